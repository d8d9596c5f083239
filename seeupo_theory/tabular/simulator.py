"""A simulator: one model, one algorithm, one policy family, compiled.

`Simulator` checks everything before work starts (sizes, orders, what the family can do), picks the
graph that the algorithm needs, and offers `init`, `update`, `sampled_update` and `value`.  All
numbers stay in JAX arrays; nothing is written into a caller's array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bandits.graph import DecisionGraph
from seeupo_theory.rules.orders import turn_order
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.tabular import policies, surrogate
from seeupo_theory.tabular.dynamics import backup, probabilities
from seeupo_theory.tabular.evaluate import check_policy, uniform_policy
from seeupo_theory.tabular.expectation import LawPlan, plan
from seeupo_theory.tabular.lowering import Lowered, lower
from seeupo_theory.tabular.policies import Parametrisation, Tables
from seeupo_theory.tabular.sampling import iterate_sampled
from seeupo_theory.tabular.surrogate import needs_paths
from seeupo_theory.tabular.update import Outcome, Settings, iterate
from seeupo_theory.tabular.weights import expected_leaves

__all__ = ["HasGraph", "Simulator", "graph_for"]

LEAST_WEIGHT = 1e-6
"""Least γ^(T−1) for GAE: rewards are differences of returns, and stay right to ten digits."""

HOMOGENEITY_RTOL = 1e-9
"""Relative error allowed when a custom objective is probed for f(ρ, 2A) = 2 f(ρ, A)."""


Step = Callable[..., Outcome]

ROUTES = ("auto", "sweeps", "paths")


def _require_homogeneous(objective: Any) -> None:
    probe, one = np.array([-0.3, 0.1, 0.4]), np.ones(3)
    for sign in (1.0, -1.0):
        single = objective(probe, np.zeros(3), sign * one, one)
        double = objective(probe, np.zeros(3), 2 * sign * one, one)
        if not np.allclose(double, 2 * np.asarray(single), rtol=HOMOGENEITY_RTOL, atol=0):
            raise ValueError(
                "the custom objective is not positively homogeneous in the advantage: "
                "f(ρ, 2A) must equal 2 f(ρ, A) for exact expectations"
            )


class HasGraph(Protocol):
    """Anything that can be lowered: bandits, MDPs, aliased models."""

    def graph(self, merge: str = ...) -> DecisionGraph:
        """Lower the model; `merge` is "return" (smallest) or "none" (one node a history)."""


def graph_for(model: HasGraph | DecisionGraph, algorithm: Algorithm) -> DecisionGraph:
    """The smallest graph of the model on which the algorithm can be evaluated."""
    if isinstance(model, DecisionGraph):
        return model
    return model.graph(merge="none" if needs_paths(algorithm) else "return")


class Simulator:
    """One algorithm on one model.

    Args:
        model: a model or a decision graph.
        algorithm: the rule (see `seeupo_theory.rules.presets`).
        param: name of a policy family, or a `Parametrisation` built for the same graph.
        group_size, contexts_per_batch: sizes of the expectation (``math.inf``: the population).
        options: go to the policy family (features, hidden, seed, …).

    Raises:
        ValueError: the combination makes no sense; the message says which part and what would do.
    """

    def __init__(
        self,
        model: HasGraph | DecisionGraph,
        algorithm: Algorithm,
        param: str | Parametrisation = "tabular",
        *,
        group_size: float = math.inf,
        contexts_per_batch: float = math.inf,
        route: str = "auto",
        **options: Any,
    ):
        self.algorithm = algorithm
        self.graph = graph_for(model, algorithm)
        family = policies.make(param, self.graph, **options) if isinstance(param, str) else param
        self.settings = Settings(
            algorithm, family, group_size, contexts_per_batch, self.graph.discount, route
        )
        self._check()
        self.lowered: Lowered = lower(self.graph, paths=self.settings.uses_paths)
        if algorithm.estimator in ("gae", "exact"):
            self.plan = LawPlan("exact", "no group: advantages of single histories")
        else:
            self.plan = plan(self.settings.law, *self.lowered.support.shape)
        self._compiled: dict[Any, Any] = {}

    def _check(self) -> None:
        a, settings = self.algorithm, self.settings
        _ = settings.law  # checks the sizes, also where no group is formed
        if settings.route not in ROUTES:
            raise ValueError(f"route is {settings.route!r}; expected one of {', '.join(ROUTES)}")
        if settings.route == "sweeps" and needs_paths(a):
            raise ValueError("route is 'sweeps', but this algorithm needs whole histories: 'paths'")
        if a.ideal and settings.param.replace is None:
            raise ValueError(
                f"objective {a.objective!r} solves one table at a time, which the "
                f"{settings.param.name} parametrisation cannot represent; use 'tabular' or 'shared'"
            )
        weight = self.graph.discount ** (self.graph.turns - 1)
        if a.estimator == "gae" and weight < LEAST_WEIGHT:
            raise ValueError(
                f"discount is {self.graph.discount:g}: the return holds the last reward times "
                f"{weight:.3g}, too little to tell the rewards that GAE needs; expected a weight "
                f"of at least {LEAST_WEIGHT:g}"
            )
        if a.estimator == "exact" and a.product_clip is not None:
            raise ValueError(
                "product_clip is set, but with estimator 'exact' the advantage of a turn is a mean "
                "over what follows, which has no running product; expected None"
            )
        if a.order != "simultaneous":
            turn_order(a.order, self.graph.turns, np.random.default_rng(0))
        if callable(a.objective):
            _require_homogeneous(a.objective)

    @property
    def param(self) -> Parametrisation:
        """The policy family."""
        return self.settings.param

    def init(self, policy: Sequence[Any] | None = None) -> Any:
        """Parameters θ of a policy given as T probability tables (default: uniform)."""
        tables = uniform_policy(self.graph) if policy is None else check_policy(self.graph, policy)
        with np.errstate(divide="ignore"):
            return self.param.init([jnp.asarray(np.log(table)) for table in tables])

    def policy(self, theta: Any) -> list[np.ndarray]:
        """T probability tables [O_t, A_t]."""
        return [np.exp(np.asarray(surrogate.joint(table))) for table in self.param.log_probs(theta)]

    def order(self, rng: np.random.Generator | None = None) -> tuple[int, ...] | None:
        """Turns in update order for one iteration; None means simultaneously."""
        if self.algorithm.order == "simultaneous" or self.algorithm.credit == "trajectory":
            return None
        return turn_order(self.algorithm.order, self.graph.turns, rng)

    def step(self, order: tuple[int, ...] | None, *, sampled: bool = False) -> Step:
        """One iteration as a pure function (lowered, θ, lr, key=, reference=, critic=) → Outcome.

        Raises:
            ValueError: samples of an infinite group or batch, or of an ideal step.
        """
        if sampled and math.inf in (self.settings.group_size, self.settings.contexts_per_batch):
            raise ValueError(
                "sampled updates need a finite group_size and contexts_per_batch, not inf"
            )
        if sampled and self.algorithm.ideal:
            raise ValueError(
                f"objective {self.algorithm.objective!r} is an ideal step in exact expectation; a "
                "sampled update needs one that is ascended: reinforce, clip or a function"
            )
        return partial(iterate_sampled if sampled else iterate, self.settings, order)

    def update(
        self,
        theta: Any,
        *,
        order: tuple[int, ...] | None = None,
        lr: float | None = None,
        key: Array | None = None,
        reference: Tables | None = None,
        critic: Tables | None = None,
        sampled: bool = False,
    ) -> Outcome:
        """One iteration from θ (exact expectation, or from samples), compiled once an order.

        Args:
            order: turns in update order; None means the algorithm's own (`order`).

        Raises:
            ValueError: as `step`; random numbers are needed and no key is given; a random order of
                which no draw is given.
        """
        if key is None and (sampled or self.plan.method == "monte-carlo"):
            raise ValueError("this update draws random numbers; give a key")
        if order is None and self.algorithm.order == "random":
            raise ValueError("the algorithm's order is random; draw one with order(rng)")
        turns = self.order() if order is None else turn_order(order, self.graph.turns)
        program = self.compiled(
            ("update", turns, sampled), lambda: jax.jit(self.step(turns, sampled=sampled))
        )
        rate = jnp.asarray(float(self.algorithm.lr if lr is None else lr))
        return program(self.lowered, theta, rate, key=key, reference=reference, critic=critic)

    def compiled(self, name: Hashable, make: Callable[[], Any]) -> Any:
        """The program of that name, made once for this simulator."""
        if name not in self._compiled:
            self._compiled[name] = make()
        return self._compiled[name]

    def advantages(self, theta: Any, key: Array | None = None) -> tuple[list[Array], float]:
        """Expected advantage E[Â | node, action] of the estimator, T arrays [N_t, A_t].

        Args:
            key: for Monte Carlo, where `plan` says so.

        Returns:
            The arrays, and the largest standard error of a leaf's (0 where nothing was drawn).

        Raises:
            ValueError: estimator "exact", whose advantage is the true one; or a key is missing.
        """
        if self.algorithm.estimator == "exact":
            raise ValueError("estimator is 'exact'; its advantage is the true one: see evaluate")
        if key is None and self.plan.method == "monte-carlo":
            raise ValueError("this expectation draws random numbers; give a key")
        rule = partial(_advantages, self.settings)
        program = self.compiled("advantages", lambda: jax.jit(rule))
        tables, error = program(self.lowered, theta, key)
        return tables, float(error)

    def value(self, theta: Any) -> Array:
        """J(θ)."""
        return surrogate.value(self.lowered, self.param.log_probs(theta))


def _advantages(
    settings: Settings, lowered: Lowered, theta: Any, key: Array | None
) -> tuple[list[Array], Array]:
    """See `Simulator.advantages`."""
    logs = settings.param.log_probs(theta)
    leaves, error = expected_leaves(lowered, logs, settings.law, settings.discount, key)
    probs = probabilities(lowered, logs)
    return [backup(lowered, probs, leaf)[1][t] for t, leaf in enumerate(leaves)], error
