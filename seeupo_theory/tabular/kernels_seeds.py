r"""Thousands of exact policy-gradient runs of one small bandit, or of one bandit a seed.

A program for one seed, mapped over seeds with `jax.vmap`, puts the seed axis first, so that every
loop runs over the few actions of one history.  Here the seed axis is last: each operation of
`seeupo_theory.tabular.kernels.policy_gradient` is one long loop over seeds.  Seeds are updated in
chunks whose tables stay in the cache for all iterations, and chunks run on all cores.  Where the
chunks begin depends on the number of seeds alone, and so do the results.

Shapes: S seeds, K iterations, others as in `seeupo_theory.tabular.kernels`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from bandits.limits import require_fits
from seeupo_theory.tabular.kernels import policy_gradient, policy_value
from seeupo_theory.tabular.kernels_checks import checked, require_valid

__all__ = ["SeedRuns", "run_seeds"]

SEEDS_PER_CHUNK = 1024
"""Seeds updated together: enough to vectorise, few enough that their tables stay in the cache."""


class SeedRuns(NamedTuple):
    """What `run_seeds` returns.

    Attributes:
        values: [S, K + 1] J before the first update and after each.
        logits: T tables [S, H_t, A_t] after the last update.
        status: "finished", or "non-finite" where a step was so long that J overflowed.
    """

    values: np.ndarray
    logits: list[np.ndarray]
    status: str


@partial(jax.jit, static_argnames="iterations")
def _run_chunk(
    rewards: Array, logits: list[Array], probs: Array, lr: Array, iterations: int
) -> tuple[Array, list[Array]]:
    """Seeds first outside, seeds last inside."""
    rewards = jnp.moveaxis(rewards, 0, -1)
    tables = [jnp.moveaxis(table, 0, -1) for table in logits]
    probs = probs[:, None]

    def update(tables: list[Array], _: None) -> tuple[list[Array], Array]:
        result, gradients = policy_gradient(rewards, tables, probs)
        return [x + lr * g for x, g in zip(tables, gradients, strict=True)], result

    tables, values = jax.lax.scan(update, tables, None, length=iterations)
    values = jnp.concatenate([values, policy_value(rewards, tables, probs)[None]])
    return values.T, [jnp.moveaxis(table, -1, 0) for table in tables]


def run_seeds(
    rewards: ArrayLike,
    logits: Sequence[ArrayLike],
    lr: ArrayLike,
    iterations: int,
    context_probs: ArrayLike | None = None,
    *,
    threads: int | None = None,
) -> SeedRuns:
    r"""Exact policy-gradient ascent :math:`\theta \leftarrow \theta + \eta \nabla J`, many starts.

    Args:
        rewards: [C, A_1, ..., A_T] shared by all seeds, or [S, C, A_1, ..., A_T].
        logits: T starting tables [S, H_t, A_t].
        lr: step size η, one number or [S].
        iterations: number of updates K, at least 0.
        context_probs: [C]; uniform by default.
        threads: chunks of seeds run at the same time; default one a core.  Results do not
            depend on it.

    Raises:
        ValueError: as `value_and_gradient`; a number of iterations or threads out of range;
            results that would not fit into memory.

    >>> runs = run_seeds([[0.0, 1.0]], [np.zeros((3, 1, 2))], lr=[0.0, 1.0, 2.0], iterations=5)
    >>> runs.values[:, -1].round(3).tolist()
    [0.5, 0.876, 0.946]
    """
    tables = [np.asarray(table, dtype=np.float64) for table in logits]
    means = np.asarray(rewards, dtype=np.float64)
    if not tables or any(table.ndim != 3 for table in tables):
        raise ValueError(
            "logits should be T tables [S, H_t, A_t] with T >= 1, "
            f"not of shapes {[table.shape for table in tables]}"
        )
    seeds = tables[0].shape[0]
    if seeds < 1 or any(table.shape[0] != seeds for table in tables):
        raise ValueError(
            "all tables of logits should have the same number of seeds, at least 1, "
            f"not {[table.shape[0] for table in tables]}"
        )
    if iterations < 0 or int(iterations) != iterations:
        raise ValueError(f"iterations = {iterations}: should be a whole number of at least 0")
    if threads is not None and threads < 1:
        raise ValueError(f"threads = {threads}: should be at least 1")
    own = means.ndim == len(tables) + 2
    if own and means.shape[0] != seeds:
        raise ValueError(
            f"rewards has {means.shape[0]} seeds and logits have {seeds}: should be equal"
        )
    means = means if own else means[None]
    _, _, probs = checked(means[0], [table[0] for table in tables], context_probs)
    require_valid(means, tables)
    rate = np.asarray(lr, dtype=np.float64)
    if rate.shape not in ((), (seeds,)) or not np.isfinite(rate).all():
        raise ValueError(f"lr should be one finite number or {seeds}, one a seed, not {lr!r}")
    rate = np.broadcast_to(rate, (seeds,))
    require_fits(8 * seeds * (int(iterations) + 1), f"values of {seeds} seeds")

    values = np.empty((seeds, int(iterations) + 1))
    final = [np.empty_like(table) for table in tables]
    chunks = -(-seeds // SEEDS_PER_CHUNK)
    size = -(-seeds // chunks)
    means = means.reshape(means.shape[0], -1)

    def run(start: int) -> None:
        rows = np.minimum(np.arange(start, start + size), seeds - 1)  # the last chunk is padded
        mine = means[rows] if own else means
        result, last = _run_chunk(
            mine, [x[rows] for x in tables], probs, rate[rows], int(iterations)
        )
        count = min(size, seeds - start)
        values[start : start + count] = result[:count]
        for target, table in zip(final, last, strict=True):
            target[start : start + count] = table[:count]

    starts = range(0, seeds, size)
    if chunks == 1 or threads == 1:
        for start in starts:
            run(start)
    else:
        with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
            list(pool.map(run, starts))
    return SeedRuns(values, final, "finished" if np.isfinite(values[:, -1]).all() else "non-finite")
