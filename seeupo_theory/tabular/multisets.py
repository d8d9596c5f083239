r"""Multisets of equally treated members, and the probability of the companions of each.

A group of G members drawn independently from S symbols is, for an estimator that treats members
alike, one of :math:`\binom{S+G-1}{G}` multisets instead of one of :math:`S^G` tuples.  Given that
one member is the symbol at position i of the multiset m, the others complete it with probability

.. math:: \frac{(G-1)!\; n_{m_i}}{\prod_s n_s!} \prod_{j \ne i} p_{m_j},

with :math:`n_s` how often symbol s occurs.  The coefficient and the product over- and underflow for
large groups while their product does not: both are kept as logarithms.

Shapes: M multisets, G positions, S symbols.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import combinations_with_replacement

import jax.numpy as jnp
import numpy as np
from jax import Array

__all__ = ["companions", "count", "multisets"]


def count(symbols: int, size: int) -> int:
    """Number of multisets of `size` of `symbols`.

    >>> count(2, 3)
    4
    """
    return math.comb(symbols + size - 1, size)


@lru_cache(maxsize=64)
def multisets(symbols: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """All multisets, sorted, [M, G]; and the log-coefficient of each position, [M, G].

    A symbol that occurs n times counts at its first position; the others are −inf.

    >>> sets, log_coefficient = multisets(2, 2)
    >>> sets.tolist(), np.exp(log_coefficient).round(9).tolist()
    ([[0, 0], [0, 1], [1, 1]], [[1.0, 0.0], [1.0, 1.0], [1.0, 0.0]])
    """
    flat = (s for chosen in combinations_with_replacement(range(symbols), size) for s in chosen)
    sets = np.fromiter(flat, dtype=np.int32, count=count(symbols, size) * size).reshape(-1, size)
    first = np.ones(sets.shape, dtype=bool)
    first[:, 1:] = sets[:, 1:] != sets[:, :-1]
    starts = np.flatnonzero(first)  # a symbol's copies stand next to each other
    times = np.zeros(sets.size, dtype=np.int64)
    times[starts] = np.diff(np.append(starts, sets.size))
    times = np.maximum(times.reshape(sets.shape), 1)
    log_factorial = np.cumsum(np.log(np.maximum(np.arange(size + 1.0), 1.0)))
    repeats = np.where(first, log_factorial[times], 0.0).sum(axis=1, keepdims=True)
    log_coefficient = log_factorial[size - 1] - repeats + np.log(times)
    return sets, np.where(first, log_coefficient, -np.inf)


def companions(log_coefficient: Array, log_probs: Array) -> Array:
    """Probability of the other members of each position, from log-probabilities [..., M, G]."""
    zero = jnp.zeros_like(log_probs[..., :1])
    before = jnp.cumsum(jnp.concatenate([zero, log_probs[..., :-1]], axis=-1), axis=-1)
    backwards = jnp.flip(log_probs, axis=-1)
    after = jnp.cumsum(jnp.concatenate([zero, backwards[..., :-1]], axis=-1), axis=-1)
    return jnp.exp(log_coefficient + before + jnp.flip(after, axis=-1))
