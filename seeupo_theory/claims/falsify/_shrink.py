"""Shrinking: the simplest instance that still shows the violation.

`edits` lists ways to make an instance simpler (a turn, a context, an action, an atom, a row or a
feature less; equal rewards; numbers with small denominators).  `shrink` evaluates all of them in
one batch, moves to the simplest that still fails, and repeats until none does.  `cost` decides what
is simpler: structure first, then the length of the numbers.  Every accepted edit lowers it, so the
process ends.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from seeupo_theory.claims.falsify._instance import Instance, Row
from seeupo_theory.claims.falsify._space import simplex

__all__ = ["Check", "cost", "edits", "shrink"]

Check = Callable[[Sequence[Instance]], list[bool]]
"""Says of each instance whether it still shows the violation."""

CHUNK = 64
"""Candidates evaluated at once, simplest first; the batch of the compiled program."""

DENOMINATORS = (1, 2, 4, 5, 10, 20, 50, 100, 1000)
LEARNING_RATES = tuple(map(Fraction, ("1", "1/2", "2", "1/4", "4", "1/5", "5", "1/10", "10", "3")))

ZERO, ONE = Fraction(0), Fraction(1)


def length(number: Fraction) -> int:
    """How long a number is to write: 0 for 0, 1 for 1, 3 for 1/2, 8 for 3/10, 5 for 500.

    >>> [length(Fraction(x)) for x in ("0", "1", "1/2", "3/10", "500", "-1")]
    [0, 1, 3, 8, 5, 2]
    """
    if number == 0:
        return 0
    digits, zeros = abs(number.numerator), 0
    while digits % 10 == 0:
        digits, zeros = digits // 10, zeros + 1
    negative = 1 if number < 0 else 0
    return digits.bit_length() + zeros + 2 * (number.denominator.bit_length() - 1) + negative


def figures(x: Fraction, count: int) -> Fraction:
    """x rounded to so many significant digits.

    >>> str(figures(Fraction(527), 1)), str(figures(Fraction("0.0123"), 2))
    ('500', '3/250')
    """
    if x == 0:
        return x
    place = math.floor(math.log10(abs(x))) - count + 1
    unit = Fraction(10) ** place
    return round(x / unit) * unit


def numbers(instance: Instance) -> Iterator[Fraction]:
    """Every number of an instance, a reward once for each distinct value."""
    yield instance.lr
    yield from instance.context_probs
    yield from instance.values()
    for leaf in instance.leaves:
        yield from (prob for _, prob in leaf)
    for table in instance.probs:
        for row in table:
            yield from row
    for turn in instance.features:
        for row_features in turn:
            for phi in row_features:
                yield from phi
    yield from instance.theta


def cost(instance: Instance) -> tuple[int, ...]:
    """Complexity, compared entry by entry: structure, then the numbers."""
    tables = sum(h * a for h, a in zip(instance.histories, instance.actions, strict=True))
    nonzero = sum(x != 0 for turn in instance.features for row in turn for phi in row for x in phi)
    return (
        instance.turns,
        instance.contexts,
        tables,
        sum(map(len, instance.leaves)),
        len(instance.theta),
        len(instance.probs[0]) if instance.param == "shared" else 0,
        len(instance.values()),
        sum(map(length, numbers(instance))) + nonzero,
    )


# Structure --------------------------------------------------------------------------------------


def _keep(
    instance: Instance, contexts: Sequence[int], actions: Sequence[Sequence[int]], drop: int | None
) -> Instance:
    """The instance with these contexts and actions only, without turn `drop` (one action left)."""
    full = (instance.contexts, *instance.actions)
    kept = [list(contexts), *map(list, actions)]

    def pick(nested: Sequence[Any], depth: int) -> list[Any]:
        grid = np.arange(len(nested)).reshape(full[: depth + 1])
        return [nested[i] for i in grid[np.ix_(*kept[: depth + 1])].reshape(-1).tolist()]

    def row(values: Any, t: int) -> Any:
        return tuple(values[a] for a in kept[t + 1])

    turns = [t for t in range(instance.turns) if t != drop]
    out: dict[str, Any] = {
        "context_probs": _normal([instance.context_probs[c] for c in contexts]),
        "actions": tuple(len(kept[t + 1]) for t in turns),
        "leaves": tuple(pick(instance.leaves, instance.turns)),
    }
    if instance.param == "tabular":
        out["probs"] = tuple(
            tuple(_normal(row(r, t)) for r in pick(instance.probs[t], t)) for t in turns
        )
    elif instance.param == "shared":
        out["observation"] = tuple(tuple(pick(instance.observation[t], t)) for t in turns)
        out["probs"] = (tuple(_normal(row(r, turns[0])) for r in instance.probs[0]),)
    else:
        out["features"] = tuple(
            tuple(row(r, t) for r in pick(instance.features[t], t)) for t in turns
        )
    return replace(instance, **out)


def _normal(row: Sequence[Fraction]) -> Row:
    total = sum(row, ZERO)
    return tuple(p / total for p in row)


def _structure(instance: Instance, fixed_turns: bool) -> Iterator[Instance]:
    contexts = range(instance.contexts)
    actions = [range(a) for a in instance.actions]
    if instance.turns > 1 and not fixed_turns:
        for t, count in enumerate(instance.actions):
            for a in range(count):
                yield _keep(instance, contexts, [*actions[:t], [a], *actions[t + 1 :]], t)
    for c in contexts:
        if instance.contexts > 1:
            yield _keep(instance, [x for x in contexts if x != c], actions, None)
    if instance.param == "shared":
        if instance.actions[0] > 2:
            for a in actions[0]:
                fewer = [x for x in actions[0] if x != a]
                yield _keep(instance, contexts, [fewer] * instance.turns, None)
        yield from _merge_rows(instance)
    else:
        for t, count in enumerate(instance.actions):
            for a in range(count):
                if count > 2:
                    fewer = [x for x in actions[t] if x != a]
                    yield _keep(instance, contexts, [*actions[:t], fewer, *actions[t + 1 :]], None)
    for i in range(len(instance.theta)):
        if len(instance.theta) > 1:
            yield _without_feature(instance, i)


def _merge_rows(instance: Instance) -> Iterator[Instance]:
    rows = instance.probs[0]
    used = sorted({r for turn in instance.observation for r in turn})
    if len(used) < len(rows):
        place = {row: i for i, row in enumerate(used)}
        yield replace(
            instance,
            probs=(tuple(rows[r] for r in used),),
            observation=tuple(tuple(place[r] for r in turn) for turn in instance.observation),
        )
    for gone in used:
        for other in used:
            if other != gone:
                yield replace(
                    instance,
                    observation=tuple(
                        tuple(other if r == gone else r for r in turn)
                        for turn in instance.observation
                    ),
                )


def _without_feature(instance: Instance, i: int) -> Instance:
    def cut(phi: Row) -> Row:
        return (*phi[:i], *phi[i + 1 :])

    return replace(
        instance,
        theta=cut(instance.theta),
        features=tuple(
            tuple(tuple(cut(phi) for phi in row) for row in turn) for turn in instance.features
        ),
    )


def _atoms(instance: Instance) -> Iterator[Instance]:
    for i, leaf in enumerate(instance.leaves):
        for k in range(len(leaf)):
            if len(leaf) > 1:
                rest = [atom for j, atom in enumerate(leaf) if j != k]
                probs = _normal([p for _, p in rest])
                atoms = tuple((v, p) for (v, _), p in zip(rest, probs, strict=True))
                yield replace(instance, leaves=_set(instance.leaves, i, atoms))
    everything = instance.values()
    for old, new in itertools.pairwise(everything):
        yield _revalue(instance, {old: new})
        yield _revalue(instance, {new: old})
    for i, leaf in enumerate(instance.leaves):
        if len(leaf) == 1:
            for new in everything:
                if new != leaf[0][0]:
                    yield replace(instance, leaves=_set(instance.leaves, i, ((new, ONE),)))


def _set(items: tuple[Any, ...], i: int, item: Any) -> tuple[Any, ...]:
    return (*items[:i], item, *items[i + 1 :])


def _revalue(instance: Instance, change: dict[Fraction, Fraction]) -> Instance:
    """Other reward values; atoms of a leaf that become equal are joined."""
    leaves = []
    for leaf in instance.leaves:
        merged: dict[Fraction, Fraction] = {}
        for value, prob in leaf:
            new = change.get(value, value)
            merged[new] = merged.get(new, ZERO) + prob
        leaves.append(tuple(sorted(merged.items())))
    return replace(instance, leaves=tuple(leaves))


# Numbers ----------------------------------------------------------------------------------------


def _near(x: Fraction, denominator: int) -> Fraction:
    return Fraction(round(x * denominator), denominator)


def _rounded(x: Fraction) -> list[Fraction]:
    """Shorter numbers near x."""
    return [*(_near(x, d) for d in DENOMINATORS), figures(x, 1), figures(x, 2)]


def _values(instance: Instance) -> Iterator[Instance]:
    values = instance.values()
    low, high = values[0], values[-1]
    if low != 0:
        yield _revalue(instance, {v: v - low for v in values})
    if high - low not in (0, 1):
        yield _revalue(instance, {v: v / (high - low) for v in values})
        whole = math.lcm(*(v.denominator for v in values))
        if whole > 1:
            yield _revalue(instance, {v: v * whole for v in values})
    for d in DENOMINATORS:
        yield _revalue(instance, {v: _near(v, d) for v in values})
    for v in values:
        for new in {ZERO, ONE, -ONE, *_rounded(v), v / 2, v / 10} - {v}:
            yield _revalue(instance, {v: new})


def _simpler_rows(row: Row) -> Iterator[Row]:
    """The same support with simpler probabilities."""
    count = sum(p > 0 for p in row)
    if count == len(row):
        yield tuple(Fraction(1, count) for _ in row)
    for d in DENOMINATORS:
        if d >= count:
            yield simplex([float(p) for p in row], d)


def _probabilities(instance: Instance) -> Iterator[Instance]:
    for row in _simpler_rows(instance.context_probs):
        yield replace(instance, context_probs=row)
    for i, leaf in enumerate(instance.leaves):
        if len(leaf) > 1:
            for row in _simpler_rows(tuple(p for _, p in leaf)):
                atoms = tuple((v, p) for (v, _), p in zip(leaf, row, strict=True))
                yield replace(instance, leaves=_set(instance.leaves, i, atoms))
    for d in DENOMINATORS:
        if instance.probs and d >= max(instance.actions):
            yield replace(
                instance,
                probs=tuple(
                    tuple(simplex([float(p) for p in row], d) for row in table)
                    for table in instance.probs
                ),
            )
    for t, table in enumerate(instance.probs):
        for i, row in enumerate(table):
            for new in _simpler_rows(row):
                yield replace(instance, probs=_set(instance.probs, t, _set(table, i, new)))


def _parameters(instance: Instance) -> Iterator[Instance]:
    theta = instance.theta
    if any(theta):
        yield replace(instance, theta=tuple(ZERO for _ in theta))
    for i, x in enumerate(theta):
        for new in {ZERO, ONE, -ONE, *_rounded(x)} - {x}:
            yield replace(instance, theta=_set(theta, i, new))
    for d in DENOMINATORS:
        yield _refeature(instance, partial(_near, denominator=d))
    for t, turn in enumerate(instance.features):
        for h, row in enumerate(turn):
            for a, phi in enumerate(row):
                for i, x in enumerate(phi):
                    for new in {ZERO, ONE, -ONE, *_rounded(x)} - {x}:
                        changed = _set(turn, h, _set(row, a, _set(phi, i, new)))
                        yield replace(instance, features=_set(instance.features, t, changed))


def _refeature(instance: Instance, change: Callable[[Fraction], Fraction]) -> Instance:
    return replace(
        instance,
        features=tuple(
            tuple(tuple(tuple(map(change, phi)) for phi in row) for row in turn)
            for turn in instance.features
        ),
    )


def edits(
    instance: Instance, *, fixed_lr: bool = False, fixed_turns: bool = False
) -> list[Instance]:
    """Simpler neighbours of an instance: each of lower `cost`, none twice.

    Args:
        fixed_lr: leave the step size alone.
        fixed_turns: leave the number of turns alone (an order given as a permutation).
    """
    found = [*_structure(instance, fixed_turns), *_atoms(instance), *_values(instance)]
    found += [*_probabilities(instance), *_parameters(instance)]
    if not fixed_lr:
        rates = (*LEARNING_RATES, *(_near(instance.lr, d) for d in DENOMINATORS))
        found += [replace(instance, lr=lr) for lr in rates if lr > 0]
    now = cost(instance)
    cheaper = {item: c for item in found if (c := cost(item)) < now}
    return sorted(cheaper, key=cheaper.__getitem__)


def shrink(
    instance: Instance,
    check: Check,
    *,
    stop: Callable[[], bool] = lambda: False,
    fixed_lr: bool = False,
    fixed_turns: bool = False,
) -> Instance:
    """Greedy descent of `cost` over `edits` that pass `check`.

    Args:
        check: whether each of several instances still shows the violation.
        stop: asked before every round; True ends the shrinking where it is.
    """
    while not stop():
        candidates = edits(instance, fixed_lr=fixed_lr, fixed_turns=fixed_turns)
        better = None
        for start in range(0, len(candidates), CHUNK):
            several = candidates[start : start + CHUNK]
            passed = check(several)
            better = next((c for c, ok in zip(several, passed, strict=True) if ok), None)
            if better is not None or stop():
                break
        if better is None:
            break
        instance = better
    return instance
