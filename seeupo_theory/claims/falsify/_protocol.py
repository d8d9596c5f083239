"""Does a user's estimator or objective fit what an exact expectation assumes?  Asked before any work.

An expectation over groups evaluates the estimator once for each multiset of rewards, many at a time
and inside compiled code.  That is right only for a function that works on leading axes, treats the
members of a group alike, looks at other groups only if it says so, and can be traced by JAX.  Each
is tried on a small array, and the message says which one fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seeupo_theory.rules.presets import Algorithm

__all__ = ["check"]

AGREEMENT = 1e-9
"""Relative difference allowed between two evaluations of the same numbers: sums in another order."""

_RETURNS = np.array([[[0.0, 1.0, 3.0], [2.0, 2.0, 7.0]], [[1.0, 0.5, 0.0], [-1.0, 4.0, 0.25]]])


def check(algorithm: Algorithm) -> None:
    """Raise ValueError where a callable of the algorithm does not fit the protocol."""
    if callable(algorithm.estimator):
        _estimator(algorithm.estimator, algorithm.name, algorithm.couples)
    if callable(algorithm.objective):
        _objective(algorithm.objective, algorithm.name)


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _traced(rule: Callable[..., Any], label: str, *arguments: np.ndarray) -> np.ndarray:
    try:
        return np.asarray(jax.jit(rule)(*map(jnp.asarray, arguments)))
    except Exception as error:
        raise ValueError(
            f"{label} fails on JAX arrays ({_line(error)}); it should use the array's own namespace "
            "(array_api_compat.array_namespace) and no branches on values"
        ) from error


def _plain(rule: Callable[..., Any], label: str, *arguments: np.ndarray) -> np.ndarray:
    try:
        return np.asarray(rule(*(a.copy() for a in arguments)))
    except Exception as error:
        shape = arguments[0].shape
        raise ValueError(
            f"{label} fails on a NumPy array of shape {shape} ({_line(error)}); it should accept "
            "any leading axes"
        ) from error


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and np.allclose(a, b, rtol=AGREEMENT, atol=AGREEMENT)


def _estimator(rule: Callable[..., Any], label: str, couples: str) -> None:
    whole = _plain(rule, label, _RETURNS)
    if whole.shape != _RETURNS.shape:
        raise ValueError(
            f"{label} returns shape {whole.shape} for {_RETURNS.shape}; an estimator should return "
            "one advantage for each return, [..., contexts, group]"
        )
    if not np.isfinite(whole).all():
        raise ValueError(f"{label} returns values that are not finite for finite returns")
    parts = np.stack([_plain(rule, label, part) for part in _RETURNS])
    if not _same(whole, parts):
        raise ValueError(
            f"{label} gives other advantages for a stack of batches than for each alone; it should "
            "reduce over the last axes only (axis=-1 for the group, (-2, -1) for the batch)"
        )
    order = [2, 0, 1]
    if not _same(_plain(rule, label, _RETURNS[..., order]), whole[..., order]):
        raise ValueError(
            f"{label} does not treat the members of a group alike: permuting the returns should "
            "permute the advantages"
        )
    if couples == "group":
        alone = _plain(rule, label, _RETURNS[:, :1])
        if not _same(alone, whole[:, :1]):
            raise ValueError(
                f"{label} depends on the other groups of the batch; it should say so with an "
                "attribute couples = 'batch'"
            )
    if not _same(_traced(rule, label, _RETURNS), whole):
        raise ValueError(f"{label} gives other advantages for JAX arrays than for NumPy arrays")


def _objective(rule: Callable[..., Any], label: str) -> None:
    new, old = np.log(np.array([0.5, 0.3, 0.2])), np.log(np.array([0.4, 0.4, 0.2]))
    arguments = (new, old, np.array([1.0, -1.0, 0.5]), np.ones(3))
    if not _same(_traced(rule, label, *arguments), _plain(rule, label, *arguments)):
        raise ValueError(f"{label} gives other values for JAX arrays than for NumPy arrays")
    try:
        jax.grad(lambda x: jnp.sum(rule(x, *map(jnp.asarray, arguments[1:]))))(jnp.asarray(new))
    except Exception as error:
        raise ValueError(f"{label} cannot be differentiated by JAX ({_line(error)})") from error
