"""What the fast kernels ask of their arguments; each error names the argument, index and value.

Shapes are checked before any work.  Reading every entry to look for NaN would cost as much as the
value itself, so `value_and_gradient` looks at its result first (one NaN or infinity anywhere makes
J non-finite) and calls `diagnose` only then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from jax import Array
from numpy.typing import ArrayLike

__all__ = ["checked", "diagnose", "require_valid"]
Numbers = Array | np.ndarray

PROBABILITY_TOLERANCE = 1e-9
"""How far a sum of probabilities may be from 1: printed with ten digits and read back."""


def _float64(values: ArrayLike) -> Numbers:
    """The values as they are where possible: converting even a JAX array to itself takes time."""
    if isinstance(values, Array) and values.dtype == np.float64:
        return values
    return np.asarray(values, dtype=np.float64)


def checked(
    rewards: ArrayLike, logits: Sequence[ArrayLike], context_probs: ArrayLike | None
) -> tuple[Numbers, list[Numbers], np.ndarray]:
    """Arguments as arrays of float64 that fit each other."""
    means = _float64(rewards)
    tables = [_float64(table) for table in logits]
    if means.ndim < 2 or 0 in means.shape:
        raise ValueError(f"rewards has shape {means.shape}: should be [C, A_1, ..., A_T], T >= 1")
    if len(tables) != means.ndim - 1:
        raise ValueError(
            f"logits has {len(tables)} tables: should have {means.ndim - 1}, one a turn of rewards"
        )
    histories = means.shape[0]
    for t, table in enumerate(tables):
        if table.shape != (histories, means.shape[t + 1]):
            raise ValueError(
                f"logits[{t}] has shape {table.shape}: should be {(histories, means.shape[t + 1])}"
            )
        histories *= means.shape[t + 1]
    if context_probs is None:
        return means, tables, np.full(means.shape[0], 1.0 / means.shape[0])
    probs = np.asarray(context_probs, dtype=np.float64)
    if probs.shape != (means.shape[0],):
        raise ValueError(f"context_probs has shape {probs.shape}: should be {(means.shape[0],)}")
    if not (probs >= 0).all() or not abs(probs.sum() - 1.0) <= PROBABILITY_TOLERANCE:
        raise ValueError(f"context_probs = {probs.tolist()}: should be at least 0 and sum to 1")
    return means, tables, probs


def require_valid(rewards: np.ndarray, tables: Sequence[np.ndarray]) -> None:
    """Name the first entry that has no meaning."""
    wrong = ~np.isfinite(rewards)
    if wrong.any():
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(f"rewards{list(index)} = {rewards[index]}: should be a finite number")
    for t, table in enumerate(tables):
        wrong = np.isnan(table) | (table == np.inf)
        if wrong.any():
            index = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise ValueError(
                f"logits[{t}]{list(index)} = {table[index]}: should be a finite number or -inf"
            )
        wrong = ~np.isfinite(table).any(axis=-1)
        if wrong.any():
            row = [int(i) for i in np.argwhere(wrong)[0]]
            raise ValueError(
                f"logits[{t}]{row} forbids all actions: should have a finite entry in each row"
            )


def diagnose(rewards: Numbers, tables: Sequence[Numbers], result: float) -> NoReturn:
    """Say why J is not finite."""
    require_valid(np.asarray(rewards), [np.asarray(table) for table in tables])
    raise ValueError(f"J = {result}: the rewards are so large that sums of them overflow")
