"""Random problems of one space: the first phase of the search.

Numbers lie on small grids in most batches (ties, repeated rewards and exact zeros are where rules
break, and what is found is easy to simplify) and are continuous in the others.  Policies go from
uniform over lopsided to nearly deterministic; step sizes spread over three decades.

Shapes as in `_space`, with a leading axis n.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seeupo_theory.claims.falsify._space import Points, Space

__all__ = ["STEP_SIZES", "draw"]

STEP_SIZES = (0.02, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)

JACKPOTS = (0.0, 1.0, 2.0, 5.0, 20.0)
"""Rewards that differ by more than an order: what a normalised advantage no longer sees."""

FLOOR = 1e-3
"""Smallest probability of an action: support is part of every improvement theorem."""

GRID = 20
"""Probabilities on a grid are multiples of 1/GRID."""


def _pick(rng: np.random.Generator, options: list[np.ndarray]) -> np.ndarray:
    """One of the options for each instance."""
    which = rng.integers(0, len(options), options[0].shape[0])
    shape = (-1,) + (1,) * (options[0].ndim - 1)
    out = options[0]
    for i, option in enumerate(options[1:], start=1):
        out = np.where(which.reshape(shape) == i, option, out)
    return out


def _compositions(rng: np.random.Generator, shape: tuple[int, ...], least: int) -> np.ndarray:
    """Multiples of 1/GRID, at least `least`/GRID each, that sum to 1 over the last axis."""
    width = shape[-1]
    units = max(GRID, 2 * width)
    weights = rng.dirichlet(np.ones(width), shape[:-1])
    return (rng.multinomial(units - least * width, weights) + least) / units


def _rows(rng: np.random.Generator, shape: tuple[int, ...], grid: bool) -> np.ndarray:
    """Policy rows, last axis summing to 1, each entry at least FLOOR (or uniform)."""
    width = shape[-1]
    uniform = np.full(shape, 1.0 / width)
    on_grid = _compositions(rng, shape, 1)
    best = np.eye(width)[rng.integers(0, width, shape[:-1])]
    peaked = 0.9 * best + 0.1 / width
    if grid:
        return _pick(rng, [uniform, on_grid, on_grid, peaked])
    smooth = rng.dirichlet(np.ones(width), shape[:-1])
    lopsided = rng.dirichlet(np.full(width, 0.2), shape[:-1])
    near = rng.dirichlet(np.full(width, 50.0), shape[:-1])
    mixed = _pick(rng, [smooth, lopsided, lopsided, near])
    return (1 - width * FLOOR) * mixed + FLOOR


def _values(rng: np.random.Generator, shape: tuple[int, ...], grid: bool) -> np.ndarray:
    """Rewards, some with rare extremes."""
    binary = rng.integers(0, 2, shape).astype(float)
    quarters = rng.integers(0, 5, shape) / 4
    whole = rng.integers(-3, 4, shape) / 2
    if grid:
        return _pick(rng, [binary, quarters, whole, rng.choice(JACKPOTS, shape)])
    normal = rng.standard_normal(shape)
    return _pick(rng, [normal, normal, np.sign(normal) * normal**2])


def _observation(rng: np.random.Generator, space: Space, n: int) -> tuple[np.ndarray, ...]:
    """Observation maps: what a row stands for is drawn per instance, from one row for all up."""
    count = rng.integers(1, space.rows + 1, n)[:, None]
    by_turn = rng.random(n)[:, None] < 0.3
    out = []
    for t, nodes in enumerate(space.histories):
        free = rng.integers(0, 2**20, (n, nodes)) % count
        fixed = np.broadcast_to(t % count, (n, nodes))
        out.append(np.where(by_turn, fixed, free).astype(np.int32))
    return tuple(out)


def draw(
    rng: np.random.Generator, space: Space, n: int, *, grid: bool, lr: float | None = None
) -> Points:
    """n random points of a space; `lr` fixes the step size."""
    contexts = space.contexts
    context_probs = _pick(
        rng,
        [np.full((n, contexts), 1.0 / contexts), _compositions(rng, (n, contexts), 1)],
    )
    values = _values(rng, (n, contexts, space.symbols), grid)
    index = rng.integers(0, space.symbols, (n, space.leaves, space.atoms))
    each = space.leaves // contexts * space.atoms
    if space.symbols >= each:  # room for a reward of its own in every atom
        own = np.tile(np.arange(each), contexts).reshape(1, space.leaves, space.atoms)
        index = np.where(rng.random((n, 1, 1)) < 0.5, own, index)
    shape = (n, space.leaves, space.atoms)
    chances = _compositions(rng, shape, 0)
    if not grid:
        chances = rng.dirichlet(np.ones(space.atoms), shape[:-1])
    sure = np.zeros(shape)
    sure[..., 0] = 1.0
    atom_probs = np.where(rng.random((*shape[:-1], 1)) < 0.4, sure, chances)
    mask = tuple(
        np.ones((n, rows, width), bool)
        for rows, width in zip(space.table_rows, space.actions, strict=True)
    )
    sizes = np.full(n, lr) if lr is not None else rng.choice(STEP_SIZES, n)
    theta, observation, features = _policy(rng, space, n, grid)
    return Points(
        context_probs, values, index.astype(np.int32), atom_probs, mask, theta, observation,
        features, sizes,
    )  # fmt: skip


def _policy(
    rng: np.random.Generator, space: Space, n: int, grid: bool
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    if space.param == "shared":
        rows = _rows(rng, (n, space.rows, space.actions[0]), grid)
        return np.log(rows), _observation(rng, space, n), ()
    if space.param == "log-linear":
        shape = (n, space.dimension)
        steps = rng.integers(-2, 3, shape) / 2 if grid else rng.standard_normal(shape)
        theta = np.where(rng.random((n, 1)) < 0.5, 0.0, steps)
        features = []
        for nodes, width in zip(space.histories, space.actions, strict=True):
            size = (n, nodes, width, space.dimension)
            features.append(
                rng.integers(-2, 3, size).astype(float) if grid else rng.standard_normal(size)
            )
        return theta, (), tuple(features)
    tables = tuple(
        np.log(_rows(rng, (n, nodes, width), grid))
        for nodes, width in zip(space.histories, space.actions, strict=True)
    )
    return tables, (), ()
