r"""What is measured at a point, for each property: pure functions that JAX batches.

* **monotone**: one iteration; J must not fall although every row's surrogate rises.  A point at
  which some inner step lowered its own surrogate is set aside as an *overshoot*: no improvement
  theorem speaks of it.
* **sign**: the expected advantage :math:`E[\hat A \mid h, a]`, centred over the own action (only
  that part enters the gradient), must not have the opposite sign of :math:`A^\pi(h, a)`.
* **unbiased**: the expected gradient of the objective at the sampling policy must be a positive
  multiple of :math:`\nabla J`; a constant factor such as 1 − 1/G is reported, not counted.
* **global-optimum**: no fixed point (the expected gradient is 0, or a sweep of ideal steps moves
  nothing) below a better policy of the same family, and no run that keeps falling while each of its
  inner steps raises its own surrogate.

Every reading has an `effect`, at least `MIN_EFFECT` where the claim fails, and a `score` that a
search can climb.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from seeupo_theory.claims.falsify._space import Points, Space, family, problem
from seeupo_theory.rules.orders import turn_order
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.tabular.dynamics import backup, joint, leaf_mean, probabilities, pull, reach
from seeupo_theory.tabular.gae import gae_leaves
from seeupo_theory.tabular.lowering import Lowered
from seeupo_theory.tabular.policies import Parametrisation, Tables
from seeupo_theory.tabular.surrogate import row_surrogate, value
from seeupo_theory.tabular.update import Outcome, Settings, iterate
from seeupo_theory.tabular.weights import (
    LocalAdvantage,
    PathSums,
    Sweeps,
    expected_leaves,
    leaf_parts,
)

__all__ = ["MIN_EFFECT", "PROPERTIES", "Reading", "Setting", "best_thetas", "program", "steps"]

PROPERTIES = ("monotone", "global-optimum", "unbiased", "sign")

MIN_EFFECT = 1e-6
"""An effect below this is not followed up: relative to the rewards' spread, a million roundings."""

OVERSHOOT_ATOL = 1e-13
"""A row's surrogate may miss its start by this (times 1 + spread): rounding of a sum over leaves."""

STILL_ATOL = 1e-13
"""An expected gradient below this (relative to its terms) counts as 0 and is checked exactly."""

RUN_ITERATIONS = 60
"""Length of the runs of `global-optimum`; a run of ideal steps takes two sweeps."""

RUN_FALL = 1e-7
"""J must fall by this, relative to the spread, in the second half of a run to be called falling."""

MAX_TABLES = 256
"""Deterministic shared tables tried as better policies."""


@dataclass(frozen=True)
class Setting:
    """What a search program depends on besides the shape.

    Attributes:
        prop: one of `PROPERTIES`.
        algorithm: with its number of epochs and a named order or a permutation.
        group_size, contexts_per_batch: sizes of the expectation.
        scope: monotone: "iteration" or "update" (any single turn's update); global-optimum: "rest"
            (fixed points) or "run".
    """

    prop: str
    algorithm: Algorithm
    group_size: float
    contexts_per_batch: float
    scope: str = ""

    def order(self, turns: int) -> tuple[int, ...] | None:
        """Turns in update order; None means at once."""
        if self.algorithm.order == "simultaneous" or self.algorithm.credit == "trajectory":
            return None
        return turn_order(self.algorithm.order, turns)

    def settings(self, param: Parametrisation) -> Settings:
        """What the simulator takes."""
        return Settings(self.algorithm, param, self.group_size, self.contexts_per_batch)


class Reading(NamedTuple):
    """Measurements at a point (with a leading axis n in a batch)."""

    effect: Array  # size of the violation, relative to the rewards' spread; ≤ 0 if there is none
    score: Array  # what an optimiser climbs; equals the effect's order near a violation
    fails: Array  # the claim fails here
    overshoot: Array  # J fell, but so did the surrogate of an inner step
    place: Array  # [3] (turn, node, action) of the witness, for "sign"
    factor: Array  # E[ĝ] along ∇J, for "unbiased"


def _spread(lowered: Lowered, tables: Tables) -> Array:
    """Largest minus smallest reward that can happen."""
    leaf = reach(lowered, probabilities(lowered, tables))[-1]
    seen = (leaf[:, None] > 0) & (lowered.leaf_probs > 0)
    high = jnp.max(jnp.where(seen, lowered.leaf_values, -jnp.inf))
    return high - jnp.min(jnp.where(seen, lowered.leaf_values, jnp.inf))


def _over(x: Array, scale: Array) -> Array:
    return jnp.where(scale > 0, x / jnp.where(scale > 0, scale, 1.0), 0.0)


def _reading(effect: Array, score: Array, **entries: Any) -> Reading:
    finite = jnp.isfinite(effect)
    blank = {
        "fails": (effect > MIN_EFFECT) & finite,
        "overshoot": jnp.asarray(False),
        "place": jnp.zeros(3, int),
        "factor": jnp.asarray(jnp.nan),
    }
    return Reading(effect, jnp.where(finite, score, -jnp.inf), **{**blank, **entries})


def steps(
    setting: Setting, space: Space, point: Points
) -> tuple[Lowered, Parametrisation, Outcome]:
    """One iteration at a point."""
    lowered, param = problem(space, point), family(space, point)
    order = setting.order(space.turns)
    out = iterate(setting.settings(param), order, lowered, point.theta, jnp.asarray(point.lr))
    return lowered, param, out


def _monotone(setting: Setting, space: Space, point: Points) -> Reading:
    lowered, param, out = steps(setting, space, point)
    old, new = param.log_probs(point.theta), param.log_probs(out.theta)
    spread = _spread(lowered, old)
    path = jnp.concatenate([out.value_before[None], out.values])
    falls = path[:-1] - path[1:] if setting.scope == "update" else path[:1] - path[-1:]
    drop = _over(jnp.max(falls), spread)
    change = jnp.max(
        jnp.stack(
            [
                jnp.max(jnp.abs(jnp.exp(joint(b)) - jnp.exp(joint(a))))
                for a, b in zip(old, new, strict=True)
            ]
        )
    )
    worst = jnp.min(out.worst_row_gain)
    rose = worst >= -OVERSHOOT_ATOL * (1 + spread)
    slope = drop / (change + MIN_EFFECT)
    score = jnp.where(rose, slope, jnp.minimum(slope, 0.0) - jnp.minimum(-worst, 1.0))
    fell = (drop > MIN_EFFECT) & jnp.isfinite(drop)
    return _reading(drop, score, fails=fell & rose, overshoot=fell & ~rose)


def _weights(setting: Setting, lowered: Lowered, tables: Tables) -> Callable[[int], Any]:
    """Signed weights of each turn's table when no turn has been updated."""
    a = setting.algorithm
    if a.estimator == "exact":
        return LocalAdvantage(lowered, tables).weights
    if a.estimator == "gae":
        return PathSums(lowered, tables, *gae_leaves(lowered, tables, a, 1.0, None)).weights
    law = setting.settings(None).law  # type: ignore[arg-type]
    positive, negative, _ = leaf_parts(lowered, tables, law, None)
    return Sweeps(lowered, tables, positive, negative).weights


def _gradients(setting: Setting, space: Space, point: Points) -> tuple[Array, Array, Array, Array]:
    """Expected gradient, true gradient, size of the first's terms, and J."""
    lowered, param = problem(space, point), family(space, point)
    old = param.log_probs(point.theta)
    weights = _weights(setting, lowered, old)
    each = [weights(t) for t in range(space.turns)]

    def surrogate(theta: Any) -> Array:
        tables = param.log_probs(theta)
        turns = zip(tables, old, each, strict=True)
        return sum(jnp.sum(row_surrogate(setting.algorithm, n, o, w, o)) for n, o, w in turns)  # type: ignore[return-value]

    def reward(theta: Any) -> Array:
        return value(lowered, param.log_probs(theta))

    estimate = ravel_pytree(jax.grad(surrogate)(point.theta))[0]
    j, true = jax.value_and_grad(reward)(point.theta)
    size = jnp.max(jnp.stack([jnp.max(w.positive + w.negative) for w in each]))
    return estimate, ravel_pytree(true)[0], size, j


def _unbiased(setting: Setting, space: Space, point: Points) -> Reading:
    g, d, size, _ = _gradients(setting, space, point)
    spread = _spread(problem(space, point), family(space, point).log_probs(point.theta))
    inner, norm_g, norm_d = jnp.sum(g * d), jnp.linalg.norm(g), jnp.linalg.norm(d)
    measurable = (norm_d > 1e-6 * spread) & (norm_g > 1e-6 * size)
    effect = jnp.where(measurable, 1 - _over(inner, norm_g * norm_d), 0.0)
    factor = jnp.where(measurable, _over(inner, norm_d**2), jnp.nan)
    return _reading(effect, effect, factor=factor)


def _sign(setting: Setting, space: Space, point: Points) -> Reading:
    lowered, param = problem(space, point), family(space, point)
    tables = param.log_probs(point.theta)
    probs = probabilities(lowered, tables)
    means = leaf_mean(lowered, lowered.leaf_values)
    if setting.algorithm.estimator == "exact":
        leaves = [means] * space.turns
    else:
        leaves, _ = expected_leaves(lowered, tables, setting.settings(param).law, 1.0, None)
    visits = reach(lowered, probs)
    spread = _spread(lowered, tables)
    true_v, true_q = backup(lowered, probs, means)
    effects, scales = [], []
    for t in range(space.turns):
        v, q = backup(lowered, probs, leaves[t])
        expected, exact = q[t] - v[t][:, None], true_q[t] - true_v[t][:, None]
        chosen = jnp.sum(probs[t] > 0, axis=1, keepdims=True) > 1  # a forced action has no sign
        allowed = (probs[t] > 0) & chosen & (visits[t][:, None] > 0)
        scales.append(jnp.max(jnp.where(allowed, jnp.abs(expected), 0.0)))
        effects.append((expected, exact, allowed))
    scale = jnp.max(jnp.stack(scales))
    sizes, places = [], []
    for expected, exact, allowed in effects:
        size = jnp.minimum(jnp.abs(_over(expected, scale)), jnp.abs(_over(exact, spread)))
        signed = jnp.where(allowed, -jnp.sign(expected) * jnp.sign(exact) * size, -jnp.inf)
        flat = jnp.argmax(signed)
        sizes.append(jnp.max(signed))
        places.append(jnp.stack([flat // signed.shape[1], flat % signed.shape[1]]))
    turn = jnp.argmax(jnp.stack(sizes))
    effect = jnp.max(jnp.stack(sizes))
    place = jnp.concatenate([turn[None], jnp.stack(places)[turn]])
    return _reading(effect, effect, place=place)


# Global optimum ---------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def best_thetas(space: Space) -> Any:
    """Candidates for a better policy where the family is restricted, or None for tabular.

    Shared: deterministic tables [n, R, A] of probabilities; log-linear: parameters [n, d].
    """
    if space.param == "tabular":
        return None
    if space.param == "log-linear":
        side = np.array([-8.0, -2.0, -0.5, 0.0, 0.5, 2.0, 8.0][:: 1 if space.dimension < 4 else 3])
        return np.array(list(itertools.product(side, repeat=space.dimension)))
    width = space.actions[0]
    every = itertools.product(range(width), repeat=space.rows)
    return np.array([np.eye(width)[list(rows)] for rows in itertools.islice(every, MAX_TABLES)])


def _best(space: Space, point: Points, lowered: Lowered) -> Array:
    """J of the best policy of the family that is tried (the optimum where tabular)."""
    mean = leaf_mean(lowered, lowered.leaf_values)
    if space.param == "tabular":
        later = mean
        for layer, mask in zip(reversed(lowered.layers), reversed(point.mask), strict=True):
            later = jnp.max(jnp.where(mask, pull(layer, later, mask.shape), -jnp.inf), axis=1)
        return jnp.sum(lowered.context_probs * later)
    candidates = jnp.asarray(best_thetas(space))
    if space.param == "log-linear":
        param = family(space, point)
        return jnp.max(jax.vmap(lambda theta: value(lowered, param.log_probs(theta)))(candidates))

    def worth(table: Array) -> Array:
        rows = []
        for mask in point.mask:
            kept = jnp.where(mask, table, 0.0)
            none = jnp.sum(kept, axis=1, keepdims=True) == 0
            kept = jnp.where(none, mask.astype(float), kept)
            rows.append(jnp.log(kept / jnp.sum(kept, axis=1, keepdims=True)))
        return value(lowered, rows)

    return jnp.max(jax.vmap(worth)(candidates))


def _rest(setting: Setting, space: Space, point: Points) -> Reading:
    """A point at which the expected gradient is 0 although a better policy exists."""
    g, _, size, j = _gradients(setting, space, point)
    lowered = problem(space, point)
    spread = _spread(lowered, family(space, point).log_probs(point.theta))
    gap = _over(_best(space, point, lowered) - j, spread)
    moving = _over(jnp.max(jnp.abs(g)), size)
    still = (moving <= STILL_ATOL) & (spread > 0)
    score = gap - jnp.log1p(moving / STILL_ATOL)
    return _reading(jnp.where(still, gap, 0.0), score)


def _run(setting: Setting, space: Space, point: Points) -> Reading:
    """A run that stops (ideal steps) or keeps falling (gradient steps) below a better policy."""
    lowered, param = problem(space, point), family(space, point)
    settings, order = setting.settings(param), setting.order(space.turns)
    lr = jnp.asarray(point.lr)

    def once(theta: Any, _: None) -> tuple[Any, tuple[Array, Array, Array]]:
        out = iterate(settings, order, lowered, theta, lr)
        before, after = param.log_probs(theta), param.log_probs(out.theta)
        moved = [
            jnp.max(jnp.abs(jnp.exp(b) - jnp.exp(a))) for a, b in zip(before, after, strict=True)
        ]
        return out.theta, (out.values[-1], jnp.min(out.worst_row_gain), jnp.max(jnp.stack(moved)))

    length = 2 if setting.algorithm.ideal else RUN_ITERATIONS
    _, (values, worst, moved) = jax.lax.scan(once, point.theta, None, length=length)
    spread = _spread(lowered, param.log_probs(point.theta))
    best = jnp.maximum(_best(space, point, lowered), value(lowered, param.log_probs(point.theta)))
    gap = _over(best - values[-1], spread)
    if setting.algorithm.ideal:
        return _reading(jnp.where(moved[-1] == 0, gap, 0.0), gap)
    half = values[length // 2 :]
    fall = _over(half[0] - half[-1], spread)
    down = jnp.all(half[1:] <= half[:-1])
    rose = jnp.min(worst) >= -OVERSHOOT_ATOL * (1 + spread)
    falling = down & (fall > RUN_FALL) & (gap > MIN_EFFECT)
    effect = jnp.where(falling, gap, jnp.minimum(fall, 0.0))
    return _reading(effect, fall, fails=falling & rose, overshoot=falling & ~rose)


def reader(setting: Setting, space: Space) -> Callable[[Points], Reading]:
    """The reading of one point, as a pure function."""
    functions = {"monotone": _monotone, "sign": _sign, "unbiased": _unbiased}
    function = functions.get(setting.prop) or (_run if setting.scope == "run" else _rest)
    return lambda point: function(setting, space, point)


@lru_cache(maxsize=128)
def program(setting: Setting, space: Space) -> Callable[[Points], Reading]:
    """The readings of a batch, compiled; arrays in and out are NumPy's."""
    compiled = jax.jit(jax.vmap(reader(setting, space)))

    def run(points: Points) -> Reading:
        return jax.tree.map(np.asarray, compiled(points))

    return run


def entries(space: Space, setting: Setting) -> int:
    """Rough number of array entries that one point needs, to size a batch."""
    group = 1
    law = setting.settings(None).law  # type: ignore[arg-type]
    if setting.algorithm.estimator not in ("exact", "gae") and law.group_size != math.inf:
        size = int(law.group_size)
        group = math.comb(space.symbols + size - 1, size) * size * space.contexts
    tables = space.leaves * (space.atoms + 2 * space.turns + 2)
    return (group + tables) * (RUN_ITERATIONS if setting.scope == "run" else 1)
