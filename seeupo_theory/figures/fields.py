r"""Vector fields of exact expected updates: where one iteration takes every policy.

:math:`F(\pi) = \pi^{+} - \pi`, with :math:`\pi^+` the policy after one iteration of the algorithm
from :math:`\pi` in exact expectation, all its epochs included.  Each point also has the change of
J, so that one sees where the update goes the wrong way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seeupo_theory.rules import presets
from seeupo_theory.rules.presets import Algorithm

__all__ = ["CHANGE_RTOL", "Field", "Updater", "update_field"]

CHANGE_RTOL = 1e-12
"""Changes of J below this share of the largest |return| are rounding."""

Tables = list[NDArray[np.float64]]


@dataclass(frozen=True)
class Field:
    """What one iteration does to many policies.

    Attributes:
        before, after: T tables [points, O_t, A_t].
        value: J before, [points].
        change: J after minus J before; exactly 0 where it is rounding.
    """

    before: Tables
    after: Tables
    value: NDArray[np.float64]
    change: NDArray[np.float64]

    @property
    def falls(self) -> NDArray[np.bool_]:
        """Where the update lowers J."""
        return self.change < 0


class Updater:
    """One iteration of an algorithm on a model, compiled for a number of policies at once."""

    def __init__(
        self,
        model: Any,
        algorithm: str | Algorithm,
        *,
        group_size: float = math.inf,
        contexts_per_batch: float = math.inf,
        **switches: Any,
    ):
        import jax

        from seeupo_theory import api
        from seeupo_theory.tabular.simulator import Simulator

        rule = presets.get(algorithm)
        rule = rule.replace(**switches) if switches else rule
        self.algorithm = rule
        self.simulator = Simulator(
            api.load(model), rule, group_size=group_size, contexts_per_batch=contexts_per_batch
        )
        if self.simulator.plan.method != "exact":
            raise ValueError(f"{self.simulator.plan.reason}; a field needs an exact expectation")
        if rule.order == "random" and self.simulator.graph.turns > 1:
            raise ValueError("order is 'random', so that there is no one update to draw; fix it")
        self.graph = self.simulator.graph
        order = None if rule.order == "random" else self.simulator.order()
        step: Callable[..., Any] = self.simulator.step(order)
        self._program = jax.jit(jax.vmap(step, in_axes=(None, 0, None)))

    def __call__(self, tables: Sequence[Any]) -> Field:
        """Apply one iteration to policies given as T tables [points, O_t, A_t]."""
        import jax
        import jax.numpy as jnp

        from seeupo_theory.tabular.surrogate import joint

        before = [np.asarray(t, dtype=float) for t in tables]
        with np.errstate(divide="ignore"):
            logs = [jnp.asarray(np.log(t)) for t in before]
        theta = jax.vmap(self.simulator.param.init)(logs)
        rate = jnp.asarray(float(self.algorithm.lr))
        outcome = self._program(self.simulator.lowered, theta, rate)
        after = jax.vmap(self.simulator.param.log_probs)(outcome.theta)
        value, values = np.asarray(outcome.value_before), np.asarray(outcome.values)
        change = values[:, -1] - value
        scale = max(float(np.abs(self.graph.leaf_values).max()), np.finfo(float).tiny)
        change = np.where(np.abs(change) > CHANGE_RTOL * scale, change, 0.0)
        return Field(before, [np.exp(np.asarray(jax.vmap(joint)(t))) for t in after], value, change)

    def path(self, starts: Sequence[Any], iterations: int, points: int) -> Tables:
        """Policies after 0 … `iterations` iterations: T tables [iterations + 1, starts, O_t, A_t].

        The starts are padded to `points`, the number of another call, so that nothing is compiled
        again.
        """
        now = [np.asarray(t, dtype=float) for t in starts]
        count = len(now[0])
        pad = max(points, count)
        now = [np.concatenate([t, np.repeat(t[:1], pad - count, axis=0)]) for t in now]
        steps = [now]
        for _ in range(iterations):
            now = self(now).after
            steps.append(now)
        return [np.stack([s[t][:count] for s in steps]) for t in range(len(now))]


def update_field(
    model: Any,
    algorithm: str | Algorithm,
    policies: Sequence[Any],
    *,
    group_size: float = math.inf,
    contexts_per_batch: float = math.inf,
    **switches: Any,
) -> Field:
    """One exact iteration from each of many policies.

    Args:
        model: anything `seeupo_theory.load` takes.
        algorithm: a preset or an `Algorithm`; `switches` override its fields (lr, epochs, …).
        policies: T tables [points, O_t, A_t].
        group_size, contexts_per_batch: sizes of the expectation.

    Raises:
        ValueError: the expectation is not exact, or the order of updates is random.
    """
    updater = Updater(
        model,
        algorithm,
        group_size=group_size,
        contexts_per_batch=contexts_per_batch,
        **switches,
    )
    return updater(policies)
