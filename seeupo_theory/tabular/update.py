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
from seeupo_theory.tabular.lowering import Lowered
from seeupo_theory.tabular.policies import Parametrisation, Tables
from seeupo_theory.tabular.surrogate import (
    PathSums,
    Sweeps,
    Weights,
    gae_leaves,
    joint_path,
    leaf_parts,
    local_advantage,
    needs_paths,
    row_surrogate,
    value,
)

__all__ = ["MAX_HALVINGS", "Outcome", "Settings", "iterate", "trajectory_surrogate"]

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
        standard_error: of the expected advantage; 0 where exact.
    """

    theta: Any
    value_before: Array
    values: Array
    surrogate_gain: Array
    worst_row_gain: Array
    standard_error: Array


def _ascend(objective: Any, theta: Any, lr: Array, epochs: int, guard: bool) -> Any:
    """`epochs` plain gradient steps; with `guard` each is halved until the objective rises."""

    def move(x: Any, gradient: Any, step: Array) -> Any:
        # entries at -inf are forbidden actions and stay there
        return jax.tree.map(lambda p, g: jnp.where(jnp.isfinite(p), p + step * g, p), x, gradient)

    def plain(x: Any, _: None) -> tuple[Any, None]:
        return move(x, jax.grad(objective)(x), lr), None

    def guarded(x: Any, _: None) -> tuple[Any, None]:
        start, gradient = jax.value_and_grad(objective)(x)
        floor = jnp.maximum(start, 0.0)

        def falls(state: tuple[Array, Array]) -> Array:
            step, tries = state
            return (objective(move(x, gradient, step)) < floor) & (tries < MAX_HALVINGS)

        step, tries = jax.lax.while_loop(
            falls, lambda s: (s[0] / 2, s[1] + 1), (jnp.asarray(lr, float), jnp.asarray(0))
        )
        return move(x, gradient, jnp.where(tries < MAX_HALVINGS, step, 0.0)), None

    theta, _ = jax.lax.scan(guarded if guard else plain, theta, None, length=epochs)
    return theta


def trajectory_surrogate(
    algorithm: Algorithm,
    lowered: Lowered,
    new: Tables,
    old: Tables,
    positive: Array,
    negative: Array,
) -> Array:
    r"""F(θ') = E_π[min(ρÂ, clip(ρ)Â)] with ρ the product of all turns' ratios.

    A lower bound of J(θ') − J(θ) for every parametrisation, because min(ρÂ, clip(ρ)Â) ≤ ρÂ and the
    environment's probabilities cancel in ρ.  `positive`, `negative` are E[Â^±] at the leaves [N].
    """
    assert lowered.paths is not None
    old_path = sum(joint_path(lowered, old, t) for t in range(lowered.turns))
    new_path = sum(joint_path(lowered, new, t) for t in range(lowered.turns))
    mass = lowered.paths.environment_prob * jnp.exp(old_path)
    reached = jnp.isfinite(old_path)
    old_ok, new_ok = jnp.where(reached, old_path, 0.0), jnp.where(reached, new_path, 0.0)
    one = jnp.ones_like(mass)
    objective = algorithm.objective_rule()
    gain = objective(new_ok, old_ok, one, mass * positive)
    return jnp.sum(gain + objective(new_ok, old_ok, -one, mass * negative))


def _ideal_table(
    algorithm: Algorithm, table: Array, weights: Weights, lr: Array
) -> tuple[Array, Array]:
    """Closed-form step of every reached row (the others stay), and its linear gain a row."""
    old = joint(table)
    mass = jnp.sum(weights.visit, axis=1, keepdims=True)
    taken = weights.visit > 0
    scale = jnp.where(taken, weights.visit, 1.0)
    positive, negative = weights.positive / scale, weights.negative / scale
    if algorithm.objective == "clip-argmax":
        low, high = algorithm.clip_range
        best = improvement.clip_argmax(jnp.exp(old), positive, negative, low=low, high=high)
        new = jnp.log(best)
    elif algorithm.objective == "mirror":
        new = improvement.mirror_step(old, jnp.where(taken, positive - negative, 0.0), lr)
    else:
        advantage = jnp.where(taken, positive - negative, -jnp.inf)
        new = jnp.log(improvement.greedy(jnp.exp(old), advantage))
    new = jnp.where(mass > 0, new, old)
    change = jnp.where(taken, jnp.exp(new) - jnp.exp(old), 0.0)
    return new, jnp.sum(mass * change * (positive - negative), axis=1)


def _true_gap(lowered: Lowered, tables: Tables, turn: int, support: str) -> Weights:
    """Local advantage of every allowed action, also of those the policy never takes.

    With support "all", rows that the policy never reaches are weighted by their nodes alike.
    """
    table, mask = joint(tables[turn]), lowered.layers[turn].mask
    allowed = jnp.ones(table.shape, bool) if mask is None else mask
    count = jnp.sum(allowed, axis=-1, keepdims=True)
    uniform = jnp.where(allowed, -jnp.log(count), -jnp.inf)
    explored = (*tables[:turn], uniform, *tables[turn + 1 :])
    reached = local_advantage(lowered, explored, turn)
    if support == "reached":
        return reached
    everywhere = local_advantage(lowered, explored, turn, uniform_visit=True)
    seen = jnp.sum(reached.visit, axis=1, keepdims=True) > 0
    return Weights(*(jnp.where(seen, a, b) for a, b in zip(reached, everywhere, strict=True)))


def _source(
    settings: Settings, lowered: Lowered, tables: Tables, key: Array | None, critic: Tables | None
) -> tuple[Sweeps | PathSums | None, Array]:
    """Where the weights come from, and the standard error of the advantages behind them."""
    algorithm = settings.algorithm
    if algorithm.estimator == "exact":
        return None, jnp.zeros(())
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
    source, error = _source(settings, lowered, sampling, key, critic)
    ascend = partial(_ascend, lr=lr, epochs=algorithm.epochs, guard=algorithm.guard)

    def turn_weights(t: int, tables: Tables) -> Weights:
        if source is None:
            return local_advantage(lowered, tables, t)
        return source.weights(t)

    def exact_gap(t: int, tables: Tables) -> Weights:
        return _true_gap(lowered, tables, t, algorithm.support)

    def surrogate(x: Any, turns: Sequence[int], old: Tables, weights: Sequence[Weights]) -> Array:
        tables = param.log_probs(x)
        rows = [
            row_surrogate(algorithm, tables[t], old[t], w, reference[t])
            for t, w in zip(turns, weights, strict=True)
        ]
        return jnp.concatenate(rows)

    values, gains, worst = [], [], []

    def record(new: Any, rows_before: Array, rows_after: Array) -> None:
        values.append(value(lowered, param.log_probs(new)))
        rise = rows_after - rows_before
        gains.append(jnp.sum(rise))
        worst.append(jnp.min(rise))

    if algorithm.credit == "trajectory":
        positive, negative = source.positive[0], source.negative[0]  # type: ignore[union-attr]
        bound = lambda x: trajectory_surrogate(  # noqa: E731
            algorithm, lowered, param.log_probs(x), sampling, positive, negative
        )
        start = bound(theta)
        theta = ascend(bound, theta)
        record(theta, start[None], bound(theta)[None])
        return Outcome(theta, before, *map(jnp.stack, (values, gains, worst)), error)

    groups = [list(range(lowered.turns))] if order is None else [[t] for t in order]
    for turns in groups:
        current = param.log_probs(theta)
        old = current if algorithm.reference == "current" else sampling
        if algorithm.resample:
            old = current
            source, error = _source(settings, lowered, current, key, critic)
        if algorithm.ideal:
            gained = []
            for t in turns:
                step_from = turn_weights if algorithm.objective == "clip-argmax" else exact_gap
                table, gain = _ideal_table(algorithm, current[t], step_from(t, current), lr)
                theta = param.replace(theta, t, table)  # type: ignore[misc]
                gained.append(gain)
            tables, rise = param.log_probs(theta), jnp.concatenate(gained)
            record(theta, jnp.zeros_like(rise), rise)
        else:
            weights = [turn_weights(t, current) for t in turns]
            objective = partial(surrogate, turns=turns, old=old, weights=weights)
            start_rows = objective(theta)
            theta = ascend(lambda x, f=objective: jnp.sum(f(x)), theta)
            tables = param.log_probs(theta)
            record(theta, start_rows, objective(theta))
        if source is not None and order is not None and not algorithm.resample:
            for t in turns:
                source.advance(t, tables[t], old[t], algorithm)
    return Outcome(theta, before, *map(jnp.stack, (values, gains, worst)), error)
