r"""One iteration of an algorithm, in exact expectation.

From the sampling policy :math:`\pi_k` every turn is updated in the algorithm's order, by plain
gradient ascent on its expected surrogate (`seeupo_theory.tabular.surrogate`) or by a closed-form
ideal step.  After turn t the running factor is multiplied by the turn's ratio (Eq. 8), so that the
next turn sees the global advantage re-weighted to the updated turns (Eq. 4–7).

Everything here is a pure function of arrays: `jax.vmap` batches it over problems, parameters and
step sizes; `Simulator` binds it to one model and compiles it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from seeupo_theory.rules import improvement
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.tabular.dynamics import joint
from seeupo_theory.tabular.expectation import Law
from seeupo_theory.tabular.gae import gae_leaves
from seeupo_theory.tabular.lowering import Lowered
from seeupo_theory.tabular.policies import Parametrisation, Tables
from seeupo_theory.tabular.surrogate import (
    clip_share,
    row_surrogate,
    trajectory_clip_share,
    trajectory_surrogate,
    value,
)
from seeupo_theory.tabular.weights import (
    LocalAdvantage,
    PathSums,
    Sweeps,
    leaf_parts,
    needs_paths,
)

__all__ = [
    "MAX_HALVINGS",
    "Outcome",
    "Settings",
    "ascend",
    "exact_source",
    "iterate",
    "trajectory_surrogate",
]

Source = Sweeps | PathSums

GUARD_SLACK = 1e-15
"""A guarded step may lower its objective by this much times (1 + its size): rounding of a sum."""

MAX_HALVINGS = 40
"""A guarded step is halved at most so often (2^-40 of a step changes nothing in a double)."""


@dataclass(frozen=True)
class Settings:
    """What an iteration is made of, apart from numbers.

    Attributes:
        algorithm: the rule.
        param: the policy family.
        group_size, contexts_per_batch: sizes of the expectation, ``math.inf`` for the population.
        discount: γ, used by GAE only (returns are discounted by the model).
        route: "auto", "sweeps" or "paths"; how weights are computed (see `surrogate`).
    """

    algorithm: Algorithm
    param: Parametrisation
    group_size: float = math.inf
    contexts_per_batch: float = math.inf
    discount: float = 1.0
    route: str = "auto"

    @property
    def law(self) -> Law:
        """Estimator and sizes."""
        return Law(self.algorithm, self.group_size, self.contexts_per_batch)

    @property
    def uses_paths(self) -> bool:
        """Whether `Lowered.paths` must be there."""
        return self.route == "paths" or (self.route == "auto" and needs_paths(self.algorithm))


class Outcome(NamedTuple):
    """Result of one iteration; U updates (T turns in sequence, or 1 if simultaneous).

    Attributes:
        theta: the new parameters.
        value_before: J(π_k).
        values: [U] J after each update, in update order.
        surrogate_gain: [U] rise of the updated turn's own surrogate.
        worst_row_gain: [U] smallest rise over the rows of its table; negative means that some
            inner step overshot, and no improvement theorem speaks of it.
        clip_fraction: [U] share of the sampled |advantage| whose gradient the clip cut in the last
            inner step; exactly 0 with one epoch, and for objectives without a clip.
        standard_error: of the expected advantage; 0 where exact.
    """

    theta: Any
    value_before: Array
    values: Array
    surrogate_gain: Array
    worst_row_gain: Array
    clip_fraction: Array
    standard_error: Array


def ascend(objective: Any, theta: Any, lr: Array, epochs: int, guard: bool) -> tuple[Any, Any]:
    """θ after `epochs` plain gradient steps, and before the last of them.

    With `guard` a step is halved until the objective falls neither below 0 nor below where it was;
    if that does not help, θ stays.
    """

    def move(x: Any, gradient: Any, step: Array) -> Any:
        # entries at -inf are forbidden actions and stay there
        return jax.tree.map(lambda p, g: jnp.where(jnp.isfinite(p), p + step * g, p), x, gradient)

    def plain(x: Any) -> Any:
        return move(x, jax.grad(objective)(x), lr)

    def guarded(x: Any) -> Any:
        start, gradient = jax.value_and_grad(objective)(x)
        floor = jnp.maximum(start, 0.0)
        floor = floor - GUARD_SLACK * (1.0 + floor)

        def falls(state: tuple[Array, Array]) -> Array:
            step, tries = state
            risen = objective(move(x, gradient, step)) >= floor  # False for NaN
            return ~risen & (tries < MAX_HALVINGS)

        step, tries = jax.lax.while_loop(
            falls, lambda s: (s[0] / 2, s[1] + 1), (jnp.asarray(lr, float), jnp.asarray(0))
        )
        return move(x, gradient, jnp.where(tries < MAX_HALVINGS, step, 0.0))

    def both(state: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
        return ((guarded if guard else plain)(state[0]), state[0]), None

    (theta, last), _ = jax.lax.scan(both, (theta, theta), None, length=epochs)
    return theta, last


def _ideal_step(
    settings: Settings, source: Source, turn: int, old: Array, current: Array, lr: Array
) -> tuple[Array, Array]:
    """Closed-form table of a turn, and the rise of its surrogate in every row.

    Rows without samples stay as they are in `current`.  With estimator "exact" the step knows the
    advantage of actions that are not taken, and with support "all" of rows that are not reached.
    """
    algorithm = settings.algorithm
    base, kind = joint(old), algorithm.objective
    if isinstance(source, LocalAdvantage):
        explore = kind != "clip-argmax"  # an action of probability 0 has no ratio to clip
        everywhere = algorithm.support == "all"
        weights = source.gaps(turn, everywhere=everywhere, explore=explore)
        reached = source.gaps(turn, everywhere=False, explore=explore).visit
    else:
        weights = source.weights(turn)
        reached = weights.visit
    taken = weights.visit > 0
    scale = jnp.where(taken, weights.visit, 1.0)
    positive, negative = weights.positive / scale, weights.negative / scale
    advantage = positive - negative
    change_of = lambda new: jnp.where(taken, jnp.exp(new) - jnp.exp(base), 0.0)  # noqa: E731
    if kind == "clip-argmax":
        low, high = algorithm.clip_range
        best = improvement.clip_argmax(jnp.exp(base), positive, negative, low=low, high=high)
        new = jnp.log(best)
        value_of = partial(improvement.clip_value, low=low, high=high)
        gain = value_of(best, jnp.exp(base), positive, negative)
        gain = gain - value_of(jnp.exp(base), jnp.exp(base), positive, negative)
    elif kind == "mirror":
        new = improvement.mirror_step(base, jnp.where(taken, advantage, 0.0), lr)
        gain = jnp.sum(change_of(new) * advantage, axis=1)
    else:
        best = improvement.greedy(jnp.exp(base), jnp.where(taken, advantage, -jnp.inf))
        new = jnp.log(best)
        gain = jnp.sum(change_of(new) * advantage, axis=1)
    some = jnp.any(taken, axis=1, keepdims=True)
    return jnp.where(some, new, joint(current)), gain * jnp.sum(reached, axis=1)


def exact_source(
    settings: Settings, lowered: Lowered, tables: Tables, key: Array | None, critic: Tables | None
) -> tuple[Source, Array]:
    """Where the weights come from, and the standard error of the advantages behind them."""
    algorithm = settings.algorithm
    if algorithm.estimator == "exact":
        return LocalAdvantage(lowered, tables), jnp.zeros(())
    if algorithm.estimator == "gae":
        parts = gae_leaves(lowered, tables, algorithm, settings.discount, critic)
        return PathSums(lowered, tables, *parts), jnp.zeros(())
    positive, negative, law_parts = leaf_parts(lowered, tables, settings.law, key)
    error = jnp.max(law_parts.standard_error)
    if settings.uses_paths:
        each = [positive] * lowered.turns, [negative] * lowered.turns
        return PathSums(lowered, tables, *each), error
    return Sweeps(lowered, tables, positive, negative), error


def iterate(
    settings: Settings,
    order: Sequence[int] | None,
    lowered: Lowered,
    theta: Any,
    lr: Array,
    *,
    key: Array | None = None,
    reference: Tables | None = None,
    critic: Tables | None = None,
) -> Outcome:
    """One iteration (pure; `settings` and `order` are static).

    Args:
        settings: algorithm, family and sizes.
        order: turns in update order, 0-based; None means all at once.
        lowered: the problem's arrays (with paths where `settings.uses_paths`).
        theta: parameters of the sampling policy.
        lr: step size.
        key: for the Monte Carlo fallback of the expectation.
        reference: T tables of the KL penalty's reference (default: the sampling policy).
        critic: T value tables for GAE; None means the exact critic.
    """
    algorithm, param = settings.algorithm, settings.param
    sampling = param.log_probs(theta)
    reference = sampling if reference is None else reference
    before = value(lowered, sampling)
    groups = [list(range(lowered.turns))] if order is None else [[t] for t in order]
    keys = [None] * len(groups) if key is None else list(jax.random.split(key, len(groups)))
    source, error = exact_source(settings, lowered, sampling, keys[0], critic)
    climb = partial(ascend, lr=lr, epochs=algorithm.epochs, guard=algorithm.guard)
    values, gains, worst, clipped = [], [], [], []

    def record(new: Any, rise: Array, share: Array) -> None:
        values.append(value(lowered, param.log_probs(new)))
        gains.append(jnp.sum(rise))
        worst.append(jnp.min(rise))
        clipped.append(share)

    def outcome(new: Any) -> Outcome:
        values_, gains_, worst_, clipped_ = map(jnp.stack, (values, gains, worst, clipped))
        return Outcome(new, before, values_, gains_, worst_, clipped_, error)

    if algorithm.credit == "trajectory":
        assert isinstance(source, PathSums)
        parts = source.positive[0], source.negative[0]

        def bound(x: Any) -> Array:
            tables = param.log_probs(x)
            return trajectory_surrogate(algorithm, lowered, tables, sampling, *parts, reference)

        new, last = climb(bound, theta)
        cut = trajectory_clip_share(algorithm, lowered, param.log_probs(last), sampling, *parts)
        record(new, (bound(new) - bound(theta))[None], cut)
        return outcome(new)

    for step, turns in enumerate(groups):
        current = param.log_probs(theta)
        old = current if algorithm.reference == "current" else sampling
        if algorithm.resample:
            old = current
            if step:
                source, newer = exact_source(settings, lowered, current, keys[step], critic)
                error = jnp.maximum(error, newer)
        if algorithm.ideal:
            rises = []
            for t in turns:
                table, rise = _ideal_step(settings, source, t, old[t], current[t], lr)
                theta = param.replace(theta, t, table)  # type: ignore[misc]
                rises.append(rise)
            record(theta, jnp.concatenate(rises), jnp.zeros(()))
        else:
            weights = [source.weights(t) for t in turns]

            def rows(
                x: Any, turns: Sequence[int] = turns, old: Tables = old, weights: Any = weights
            ) -> Array:
                tables = param.log_probs(x)
                each = [
                    row_surrogate(algorithm, tables[t], old[t], w, reference[t])
                    for t, w in zip(turns, weights, strict=True)
                ]
                return jnp.concatenate(each)

            start = rows(theta)
            theta, last = climb(lambda x, f=rows: jnp.sum(f(x)), theta)
            before_last = param.log_probs(last)
            cut = clip_share(
                algorithm, [before_last[t] for t in turns], [old[t] for t in turns], weights
            )
            record(theta, rows(theta) - start, cut)
        if order is not None and not algorithm.resample:
            tables = param.log_probs(theta)
            for t in turns:
                source.advance(t, tables[t], old[t], algorithm)
    return outcome(theta)
