"""Laws of advantage estimators: returns[..., B, G] → advantages of the same shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from seeupo_theory.rules import advantages, presets
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.testing._enumerate import AGREEMENT, Expected, Table, expected_advantages
from seeupo_theory.testing._report import label, place, problem

__all__ = [
    "BATCHES",
    "assert_permutation_equivariant",
    "assert_shift_invariant",
    "assert_sign",
    "assert_unbiased",
    "resolve",
]

Estimator = str | Algorithm | Callable[[Any], Any]


def _batch(*groups: list[float]) -> Table:
    array = np.array(groups, dtype=np.float64)
    array.setflags(write=False)
    return array


BATCHES: tuple[Table, ...] = (
    _batch([0, 1, 1, 0.5]),
    _batch([0, 0, 0, 8]),
    _batch([0, 0, 0]),
    _batch([-3, 1, 0.5], [2, 2, 2], [0, 1, -1]),
    _batch([1000, 1001, 1000, 1002.5]),
    _batch([2], [0.5]),
    _batch([-1]),
)
"""Batches [B, G] that a law tries where none are given: ties, one outlier, equal groups, several
groups, returns far from 0, groups of one."""

SHIFTS = (1.0, -3.0, 1000.0)
"""Whole numbers: added to returns with few binary digits they round nothing."""


def resolve(estimator: Estimator) -> Callable[[Any], Any]:
    """The function behind a name, a preset, an `Algorithm`, or itself.

    Raises:
        ValueError: an unknown name, or an advantage that is no function of a group's returns.
    """
    if isinstance(estimator, str) and estimator not in advantages.ESTIMATORS:
        estimator = presets.get(estimator)
    if isinstance(estimator, Algorithm):
        return estimator.advantage_rule()
    return advantages.estimator(estimator)


def _measure(
    estimator: Estimator, model: Any, policy: Any, group_size: int, contexts_per_batch: int | None
) -> tuple[Expected, str]:
    """Expected advantages, and the code that repeats the measurement."""
    rule = resolve(estimator)
    coupled = advantages.couples(rule) == "batch"
    batch = (2 if coupled else 1) if contexts_per_batch is None else contexts_per_batch
    found = expected_advantages(
        rule,
        model,
        policy,
        group_size=group_size,
        contexts_per_batch=batch if coupled else 1,
        label=label(estimator),
    )
    sizes = f"group_size={group_size}" + (f", contexts_per_batch={batch}" if coupled else "")
    return found, sizes


def _tolerance(tolerance: float | None, found: Expected) -> float:
    return AGREEMENT[found.itemsize] if tolerance is None else tolerance


def assert_unbiased(
    estimator: Estimator,
    model: Any,
    policy: Any = None,
    *,
    group_size: int = 2,
    contexts_per_batch: int | None = None,
    up_to_scale: bool = False,
    tolerance: float | None = None,
) -> None:
    r"""E[Â | h, a], less its mean over the actions, is the true advantage:

    .. math:: E[\hat A \mid h, a] - \sum_{a'} \pi(a'|h) E[\hat A \mid h, a'] = A^\pi(h, a)

    for all histories (rows of the policy table) and actions that are sampled.  The mean is what no
    policy gradient feels.

    Args:
        estimator: a function returns[..., B, G] → advantages, an `Algorithm`, or a name.
        policy: T tables [O_t, A_t]; None for uniform.
        group_size: G; small, since all groups are enumerated.
        contexts_per_batch: B, for an estimator whose attribute ``couples`` is "batch"; default 2.
        up_to_scale: allow one positive factor for all rows, such as 1 − 1/G of the group mean.
        tolerance: allowed difference, relative to the spread of the returns; default 1e-9 (for an
            estimator that computes in float32, 1e-4).

    Raises:
        AssertionError: names the row where the difference is largest, with model and policy.
        ValueError: the enumeration would be too large, or an argument does not fit.

    >>> from bandits import SequentialBandit
    >>> assert_unbiased("rloo", SequentialBandit([[[0, 1], ["1/2", 3]]]), group_size=3)
    """
    found, sizes = _measure(estimator, model, policy, group_size, contexts_per_batch)
    near = _tolerance(tolerance, found)
    scale = 1.0
    if up_to_scale:
        inner = sum(float((e * a).sum()) for e, a in zip(found.expected, found.exact, strict=True))
        norm = sum(float((a * a).sum()) for a in found.exact)
        scale = inner / norm if norm > near * found.spread**2 else 1.0
    off = [abs(e - scale * a) for e, a in zip(found.expected, found.exact, strict=True)]
    turn, row, action = _largest(off)
    worst = off[turn][row, action]
    wrong_scale = up_to_scale and scale <= near
    if worst <= near * max(found.spread, abs(scale) * found.spread) and not wrong_scale:
        return
    factor = f" (times {scale:.6g}, the best factor)" if up_to_scale else ""
    if wrong_scale:
        turn, row, action = _largest([abs(a) for a in found.exact])
        factor = f"; the best factor is {scale:.6g}, which should be positive"
    raise AssertionError(
        f"{label(estimator)} is biased at {place(found.graph, turn, row, action)}: E[Â] less its mean "
        f"over the actions is {found.expected[turn][row, action]:+.6g}, the advantage is "
        f"{found.exact[turn][row, action]:+.6g}{factor}; {sizes}\n{problem(model, policy)}"
    )


def assert_sign(
    estimator: Estimator,
    model: Any,
    policy: Any = None,
    *,
    group_size: int = 2,
    contexts_per_batch: int | None = None,
    tolerance: float | None = None,
) -> None:
    r"""E[Â | h, a], less its mean over the actions, never has the opposite sign of A^π(h, a).

    Where it has, the expected update makes a bad action more likely.  A 0 is no wrong sign.

    Args:
        tolerance: advantages below this have no sign, relative to the spread of the returns and,
            for E[Â], to its own largest value; default 1e-9 (float32: 1e-4).
        others: as `assert_unbiased`.

    Raises:
        AssertionError: names the row where it is clearest, with model and policy.
        ValueError: as `assert_unbiased`.

    >>> from bandits import SequentialBandit
    >>> assert_sign("grpo", SequentialBandit([[0, 1]]), group_size=3)
    """
    found, sizes = _measure(estimator, model, policy, group_size, contexts_per_batch)
    near = _tolerance(tolerance, found)
    most = max(float(abs(e).max()) for e in found.expected)
    if most == 0 or found.spread == 0:
        return
    opposite = [
        np.where(e * a < 0, np.minimum(abs(e) / most, abs(a) / found.spread), 0.0)
        for e, a in zip(found.expected, found.exact, strict=True)
    ]
    turn, row, action = _largest(opposite)
    if opposite[turn][row, action] <= near:
        return
    raise AssertionError(
        f"{label(estimator)} has the wrong sign at {place(found.graph, turn, row, action)}: E[Â] less "
        f"its mean over the actions is {found.expected[turn][row, action]:+.6g}, the advantage is "
        f"{found.exact[turn][row, action]:+.6g}; {sizes}\n{problem(model, policy)}"
    )


def _largest(tables: list[Table]) -> tuple[int, int, int]:
    turn = max(range(len(tables)), key=lambda t: float(tables[t].max()))
    row, action = np.unravel_index(int(tables[turn].argmax()), tables[turn].shape)
    return turn, int(row), int(action)


def _tried(returns: Any) -> Iterable[Table]:
    if returns is None:
        return BATCHES
    array = np.asarray(returns)
    if array.ndim < 2 or array.dtype.kind != "f":
        raise ValueError(
            f"returns has shape {array.shape} of {array.dtype}; it should be floats "
            "[..., contexts, group]"
        )
    return (array,)


def _apply(rule: Callable[[Any], Any], returns: Table, name: str) -> Table:
    out = np.asarray(rule(returns.copy()))
    if out.shape != returns.shape:
        raise AssertionError(
            f"{name} returns shape {out.shape} for returns of shape {returns.shape}; it should "
            f"return one advantage for each\nreturns = {returns.tolist()}"
        )
    return out if out.dtype.kind == "f" else out.astype(np.float64)


def _compare(out: Table, want: Table, tolerance: float | None, what: str) -> None:
    near = AGREEMENT[out.dtype.itemsize] if tolerance is None else tolerance
    size = 1 + float(np.max(abs(want), initial=0.0, where=np.isfinite(want)))
    if not np.allclose(out, want, rtol=0, atol=near * size):
        raise AssertionError(f"{what} {out.tolist()}, it should give {want.tolist()}")


def assert_permutation_equivariant(
    estimator: Estimator, returns: Any = None, *, tolerance: float | None = None
) -> None:
    """The members of a group are treated alike, and so are the groups of a batch.

    Permuting the returns of a group permutes its advantages; permuting the groups permutes the
    groups of advantages.  Exact expectations over multisets of returns rest on the first.

    Args:
        estimator: a function returns[..., B, G] → advantages, an `Algorithm`, or a name.
        returns: floats [..., B, G]; default: each of `BATCHES`.
        tolerance: allowed difference, relative to the largest advantage; default 1e-9 (float32:
            1e-4).

    Raises:
        AssertionError: with the returns, the permutation and both results.

    >>> assert_permutation_equivariant("grpo")
    """
    rule, name = resolve(estimator), label(estimator)
    for given in _tried(returns):
        want = _apply(rule, given, name)
        for axis, what in ((-1, "members"), (-2, "groups")):
            size = given.shape[axis]
            cycle, swap = np.roll(np.arange(size), 1), np.arange(size)
            swap[:2] = swap[:2][::-1]
            for order in (cycle, swap):  # they generate all permutations
                out = _apply(rule, np.take(given, order, axis=axis), name)
                _compare(
                    out,
                    np.take(want, order, axis=axis),
                    tolerance,
                    f"{name} does not treat the {what} alike\nreturns = {given.tolist()}\n"
                    f"with the {what} in the order {order.tolist()} it gives",
                )


def assert_shift_invariant(
    estimator: Estimator,
    returns: Any = None,
    *,
    shifts: Iterable[float] = SHIFTS,
    per_group: bool = False,
    tolerance: float | None = None,
) -> None:
    """Adding a constant to all returns changes no advantage.

    Args:
        returns: floats [..., B, G]; default: each of `BATCHES`.
        shifts: the constants.
        per_group: every group gets another constant: true for baselines of the own group only.
        tolerance: as `assert_permutation_equivariant`.

    Raises:
        AssertionError: with the returns, the shift and both results.

    >>> assert_shift_invariant("seeupo", per_group=True)
    """
    rule, name = resolve(estimator), label(estimator)
    for given in _tried(returns):
        want = _apply(rule, given, name)
        for shift in shifts:
            added = np.full(given.shape[-2], float(shift))
            if per_group:
                added = added * np.arange(1, len(added) + 1)
            moved = given + added[:, None].astype(given.dtype)
            _compare(
                _apply(rule, moved, name),
                want,
                tolerance,
                f"{name} feels a shift of the returns\nreturns = {given.tolist()}\n"
                f"with {added.tolist()} added to the groups it gives",
            )
