"""Search spaces: problems of one shape as arrays, so that thousands are evaluated at once.

A `Space` fixes what a compiled program depends on; a `Points` holds the numbers, with a leading
axis n for a batch.  A smaller instance lives in a larger space by padding: contexts of probability
0, forbidden actions, and turns in front at which only one action is allowed.  None of these
changes a value, an advantage or a gradient step, so that one program serves the search and every
instance that the shrinking tries.  (An ideal step would write the trivial turn's row into a table
that other turns share; there the number of turns stays as it is.)

Shapes: n points, C contexts, T turns, A_t actions, H_t histories, N leaves, K atoms, S distinct
rewards of a context, R rows of a shared table, d features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bandits.sequential import SequentialBandit
from seeupo_theory.claims.falsify._instance import Instance
from seeupo_theory.tabular import policies
from seeupo_theory.tabular.lowering import Lowered, lower
from seeupo_theory.tabular.policies import Parametrisation

__all__ = [
    "Points",
    "Space",
    "embed",
    "extract",
    "family",
    "places",
    "problem",
    "stack",
    "take",
    "tight",
]

PROBABILITY_GRID = 10**6
"""Probabilities found by the search become multiples of 1/PROBABILITY_GRID."""

NUMBER_DENOMINATOR = 10**4
"""Other numbers found by the search become fractions with at most this denominator."""

EXACT_DENOMINATOR, EXACT_ATOL = 60, 1e-9
"""Probabilities this close to multiples of a small fraction are taken as these."""

LOG_ZERO = -700.0
"""Stands for log 0 in a row that is never used; exp of it is 1e-304, still a double."""


@dataclass(frozen=True)
class Space:
    """A shape. `symbols` is S; `rows` matters to "shared", `dimension` to "log-linear"."""

    contexts: int
    actions: tuple[int, ...]
    atoms: int
    symbols: int
    param: str
    rows: int = 1
    dimension: int = 1

    @property
    def turns(self) -> int:
        """T."""
        return len(self.actions)

    @property
    def leaves(self) -> int:
        """N."""
        return self.contexts * math.prod(self.actions)

    @property
    def histories(self) -> tuple[int, ...]:
        """(H_1, …, H_T)."""
        return tuple(self.contexts * math.prod(self.actions[:t]) for t in range(self.turns))

    @property
    def table_rows(self) -> tuple[int, ...]:
        """Rows of the policy table of each turn."""
        return (self.rows,) * self.turns if self.param == "shared" else self.histories


class Points(NamedTuple):
    """Numbers of one problem; in a batch every array has a leading axis n."""

    context_probs: Any  # [C]
    values: Any  # [C, S] distinct rewards of each context
    index: Any  # [N, K] which of them an atom pays
    atom_probs: Any  # [N, K]
    mask: tuple[Any, ...]  # T arrays [O_t, A_t], allowed actions
    theta: Any  # tabular: T arrays [H_t, A_t]; shared: [R, A]; log-linear: [d]
    observation: tuple[Any, ...]  # shared: T arrays [H_t]
    features: tuple[Any, ...]  # log-linear: T arrays [H_t, A_t, d]
    lr: Any  # scalar


def take(points: Points, index: Any) -> Points:
    """Rows of a batch (NumPy)."""
    return jax.tree.map(lambda x: np.asarray(x)[index], points)


def stack(points: Sequence[Points]) -> Points:
    """A batch of single points (NumPy)."""
    return jax.tree.map(lambda *xs: np.stack(xs), *points)


@lru_cache(maxsize=64)
def _skeleton(space: Space) -> Lowered:
    bandit = SequentialBandit(np.zeros((space.contexts, *space.actions)))
    with jax.ensure_compile_time_eval():
        return lower(bandit.graph(), paths=True)


def problem(space: Space, point: Points) -> Lowered:
    """The arrays of one problem (traced code)."""
    base = _skeleton(space)
    assert base.paths is not None
    layers = []
    for t, layer in enumerate(base.layers):
        observation = jnp.asarray(point.observation[t]) if point.observation else None
        layers.append(layer._replace(observation=observation, mask=jnp.asarray(point.mask[t])))
    values = jnp.asarray(point.values)
    index = jnp.asarray(point.index)
    context_probs = jnp.asarray(point.context_probs)
    return base._replace(
        context_probs=context_probs,
        layers=tuple(layers),
        leaf_values=values[base.leaf_context[:, None], index],
        leaf_probs=jnp.asarray(point.atom_probs),
        support=values,
        support_index=index,
        paths=base.paths._replace(environment_prob=context_probs[base.leaf_context]),
    )


def family(space: Space, point: Points) -> Parametrisation:
    """The policy family of one problem (traced code)."""
    layers = [
        SimpleNamespace(nodes=h, actions=a, observations=o, observation=None, mask=m)
        for h, a, o, m in zip(
            space.histories, space.actions, space.table_rows, point.mask, strict=True
        )
    ]
    graph: Any = SimpleNamespace(layers=layers, turns=space.turns, actions=space.actions)
    if space.param == "log-linear":
        return policies.log_linear(graph, point.features)
    return policies.make(space.param, graph)


# From and to fractions --------------------------------------------------------------------------


def places(space: Space, instance: Instance) -> list[list[int]]:
    """Per turn (and for the leaves) the space's history of each history of the instance."""
    offset = space.turns - instance.turns
    out = [list(range(instance.contexts))]
    for t, width in enumerate(space.actions):
        count = 1 if t < offset else instance.actions[t - offset]
        out.append([node * width + a for node in out[-1] for a in range(count)])
    return out


def tight(instance: Instance) -> Space:
    """The smallest space of an instance: no padding."""
    return Space(
        instance.contexts,
        instance.actions,
        instance.atoms,
        max(len(instance.values(c)) for c in range(instance.contexts)),
        instance.param,
        len(instance.probs[0]) if instance.param == "shared" else 1,
        max(1, len(instance.theta)),
    )


def embed(space: Space, instance: Instance) -> Points:
    """An instance as a point of a space that is large enough."""
    offset, nodes = space.turns - instance.turns, places(space, instance)
    leaves = nodes[-1]
    values = np.zeros((space.contexts, space.symbols))
    index = np.zeros((space.leaves, space.atoms), np.int32)
    atom_probs = np.zeros((space.leaves, space.atoms))
    atom_probs[:, 0] = 1.0
    each = len(instance.leaves) // instance.contexts
    for c in range(instance.contexts):
        distinct = instance.values(c)
        values[c] = [float(distinct[min(s, len(distinct) - 1)]) for s in range(space.symbols)]
        column = {v: s for s, v in enumerate(distinct)}
        for leaf in range(c * each, (c + 1) * each):
            for k, (value, prob) in enumerate(instance.leaves[leaf]):
                index[leaves[leaf], k] = column[value]
                atom_probs[leaves[leaf], k] = float(prob)
    context_probs = np.zeros(space.contexts)
    context_probs[: instance.contexts] = [float(p) for p in instance.context_probs]
    mask = []
    for t, rows in enumerate(space.table_rows):
        allowed = 1 if t < offset else instance.actions[t - offset]
        mask.append(
            np.broadcast_to(np.arange(space.actions[t]) < allowed, (rows, space.actions[t]))
        )
    theta, observation, features = _embed_policy(space, instance, offset, nodes)
    return Points(
        context_probs, values, index, atom_probs, tuple(mask), theta, observation, features,
        float(instance.lr),
    )  # fmt: skip


def _log(row: Sequence[Fraction]) -> list[float]:
    return [math.log(p) if p > 0 else LOG_ZERO for p in row]


def _embed_policy(
    space: Space, instance: Instance, offset: int, nodes: list[list[int]]
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    if space.param == "shared":
        logits = np.zeros((space.rows, space.actions[0]))
        for row, probs in enumerate(instance.probs[0]):
            logits[row, : len(probs)] = _log(probs)
        observation = []
        for t, count in enumerate(space.histories):
            rows = np.zeros(count, np.int32)
            if t >= offset:
                rows[nodes[t]] = instance.observation[t - offset]
            observation.append(rows)
        return logits, tuple(observation), ()
    if space.param == "log-linear":
        theta = np.zeros(space.dimension)
        theta[: len(instance.theta)] = [float(x) for x in instance.theta]
        features = []
        for t, (count, width) in enumerate(zip(space.histories, space.actions, strict=True)):
            phi = np.zeros((count, width, space.dimension))
            if t >= offset:
                given = np.array(instance.features[t - offset], float)
                phi[nodes[t], : given.shape[1], : given.shape[2]] = given
            features.append(phi)
        return theta, (), tuple(features)
    tables = []
    for t, (count, width) in enumerate(zip(space.histories, space.actions, strict=True)):
        table = np.zeros((count, width))
        if t >= offset:
            for place, probs in zip(nodes[t], instance.probs[t - offset], strict=True):
                table[place, : len(probs)] = _log(probs)
        tables.append(table)
    return tuple(tables), (), ()


def simplex(weights: Any, grid: int) -> tuple[Fraction, ...]:
    """Probabilities in multiples of 1/grid nearest to `weights`; what is positive stays so."""
    raw = np.asarray(weights, float)
    raw = raw / raw.sum() * grid
    whole = np.maximum(np.floor(raw), np.where(raw > 0, 1, 0)).astype(int)
    remainder = raw - whole
    while (missing := grid - int(whole.sum())) != 0:
        step = 1 if missing > 0 else -1
        usable = np.where((whole + step > 0) & (raw > 0), remainder * step, -np.inf)
        best = int(usable.argmax())
        whole[best] += step
        remainder[best] -= step
    return tuple(Fraction(int(w), grid) for w in whole)


def probabilities(weights: Any) -> tuple[Fraction, ...]:
    """`weights` as fractions: small ones where they fit, else on a fine grid."""
    raw = np.asarray(weights, float)
    raw = raw / raw.sum()
    for few in range(1, EXACT_DENOMINATOR + 1):
        units = np.rint(raw * few)
        if np.abs(raw * few - units).max() < EXACT_ATOL:
            return tuple(Fraction(int(u), few) for u in units)
    return simplex(raw, PROBABILITY_GRID)


def number(x: float) -> Fraction:
    """The nearest fraction with a small denominator."""
    return Fraction(float(x)).limit_denominator(NUMBER_DENOMINATOR)


def extract(space: Space, points: Points, i: int) -> Instance:
    """Point i of a batch in fractions (rounded where its numbers are not on a grid)."""
    point = take(points, i)
    context_probs = probabilities(point.context_probs)
    each = space.leaves // space.contexts
    leaves = []
    for leaf in range(space.leaves):
        paid: dict[Fraction, float] = {}
        for k in range(space.atoms):
            if point.atom_probs[leaf, k] > 0:
                value = number(point.values[leaf // each, point.index[leaf, k]])
                paid[value] = paid.get(value, 0.0) + point.atom_probs[leaf, k]
        leaves.append(
            tuple(zip(sorted(paid), probabilities([paid[v] for v in sorted(paid)]), strict=True))
        )
    shape: dict[str, Any] = {}
    if space.param == "log-linear":
        shape["features"] = tuple(
            tuple(tuple(tuple(map(number, phi)) for phi in row) for row in turn)
            for turn in point.features
        )
        shape["theta"] = tuple(map(number, point.theta))
    else:
        tables = [point.theta] if space.param == "shared" else point.theta
        shape["probs"] = tuple(
            tuple(probabilities(np.exp(row - row.max())) for row in table) for table in tables
        )
    if space.param == "shared":
        shape["observation"] = tuple(tuple(map(int, rows)) for rows in point.observation)
    return Instance(
        context_probs, space.actions, tuple(leaves), space.param, number(point.lr), **shape
    )
