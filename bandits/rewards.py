"""Finite reward distributions, the leaves of every model.

A leaf is a number (paid surely) or a finite distribution {"values": [..], "probs": [..]}. Leaves
are stored as arrays with a last axis of K atoms, K the largest number of atoms of any leaf;
atoms of probability 0 are dropped, and shorter leaves padded with copies of their first value at
probability 0.

Shapes: values, probs `[*shape, K]`; means `[*shape]`, means = Σ_k probs_k · values_k.

Where all leaves are sure, K = 1 and `probs` is a broadcast 1 that takes no memory: a reward array
of 10^6 leaves costs one copy of itself.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from .errors import fail, path, show
from .exact import (
    ExactArray,
    FloatArray,
    ObjectArray,
    flatten,
    frozen,
    parse_array,
    parse_flat,
    parse_probabilities,
    plain,
    to_simplex,
)

_KEYS = {"values", "probs"}


@dataclass(frozen=True, eq=False)
class Rewards:
    """Reward atoms of every leaf.

    values, probs: ExactArray `[*shape, K]`; means: float64 `[*shape]`.
    """

    values: ExactArray
    probs: ExactArray
    means: FloatArray

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the leaves, without the atoms."""
        return self.means.shape

    @property
    def deterministic(self) -> bool:
        """Whether every leaf is a number."""
        return self.values.values.shape[-1] == 1

    def exact_values(self) -> ObjectArray:
        """Return the atoms' values as fractions `[*shape, K]`."""
        return self.values.exact()

    def exact_probs(self) -> ObjectArray:
        """Return the atoms' probabilities as fractions `[*shape, K]`; each leaf sums to 1."""
        return self.probs.exact()

    def exact_means(self) -> ObjectArray:
        """Return the exact mean of each leaf `[*shape]`."""
        if self.deterministic:
            return self.exact_values()[..., 0]
        return np.asarray((self.exact_values() * self.exact_probs()).sum(axis=-1), dtype=object)

    def reshape(self, shape: tuple[int, ...]) -> "Rewards":
        """Return the same leaves in another shape, row-major."""

        def one(array: ExactArray) -> ExactArray:
            full = (*shape, array.values.shape[-1])
            fractions = None if array.fractions is None else array.fractions.reshape(full)
            return ExactArray(frozen(array.values.reshape(full)), fractions, array.simplex)

        return Rewards(one(self.values), one(self.probs), frozen(self.means.reshape(shape)))

    def same(self, other: "Rewards") -> bool:
        """Whether both pay exactly the same."""
        return self.values.same(other.values) and self.probs.same(other.probs)

    def code(self) -> Any:
        """Return nested lists, numbers and {"values", "probs"} that parse to the same rewards.

        >>> parse_rewards("rewards", [0.5, {"values": [0, 1], "probs": ["1/3", "2/3"]}]).code()
        [0.5, {'values': [0, 1], 'probs': ['1/3', '2/3']}]
        """
        if self.deterministic:
            return ExactArray(
                self.values.values[..., 0],
                None if self.values.fractions is None else self.values.fractions[..., 0],
            ).code()
        values, probs = (
            a.values if a.fractions is None else a.fractions for a in (self.values, self.probs)
        )
        return _leaf_code(values.tolist(), probs.tolist(), values.ndim - 1)


def _leaf_code(values: list[Any], probs: list[Any], depth: int) -> Any:
    if depth:
        return [_leaf_code(v, p, depth - 1) for v, p in zip(values, probs, strict=True)]
    atoms = sum(p != 0 for p in probs)  # the rest is padding
    values, probs = values[:atoms], probs[:atoms]
    if len(values) == 1:
        return plain(values[0])
    return {"values": [plain(v) for v in values], "probs": [plain(p) for p in probs]}


def parse_rewards(field: str, data: object) -> Rewards:
    """Read rewards: nested lists or an array of leaves, or {"values", "probs"} with whole arrays.

    Args: field: its name in messages. data: nested lists whose leaves are numbers, fraction
    strings or {"values": [..], "probs": [..]}; or an array of numbers; or one dict {"values":
    array [*shape, K], "probs": array [*shape, K]}.
    Raises ModelError for ragged lists, NaN or infinite values, and wrong probabilities.

    >>> parse_rewards("rewards", [[0, {"values": [0, 3], "probs": [0.5, 0.5]}]]).means.tolist()
    [[0.0, 1.5]]
    """
    if isinstance(data, Rewards):
        return data
    if isinstance(data, dict):
        return _parse_whole(field, data)
    if isinstance(data, np.ndarray) and data.dtype == object:
        data = data.tolist()
    if not isinstance(data, (list, tuple)):
        return _sure(parse_array(field, data))
    shape, flat = flatten(field, data)
    if not any(isinstance(leaf, dict) for leaf in flat):
        return _sure(parse_flat(field, shape, flat)[0])
    return _parse_leaves(field, shape, flat)


def _sure(array: ExactArray) -> Rewards:
    values = array.values[..., None]
    fractions = None if array.fractions is None else array.fractions[..., None]
    ones = np.broadcast_to(np.float64(1.0), values.shape)
    return Rewards(ExactArray(values, fractions), ExactArray(ones, simplex=True), array.values)


def _random(values: ExactArray, probs: ExactArray) -> Rewards:
    values, probs = _canonical(values, probs)
    if values.values.shape[-1] == 1:
        fractions = None if values.fractions is None else values.fractions[..., 0]
        return _sure(ExactArray(values.values[..., 0], fractions))
    return Rewards(values, probs, frozen((values.values * probs.values).sum(axis=-1)))


def _canonical(values: ExactArray, probs: ExactArray) -> tuple[ExactArray, ExactArray]:
    """Move atoms of probability 0 behind the others, as copies of the first; drop what all lack."""
    never = np.asarray((probs.values if probs.fractions is None else probs.fractions) == 0)
    if not never.any():
        return values, probs
    order = np.argsort(never, axis=-1, kind="stable")
    never = np.take_along_axis(never, order, axis=-1)
    atoms = int((~never).sum(axis=-1).max())

    def sort(array: ExactArray, pad: bool) -> ExactArray:
        def one(data: Any) -> Any:
            data = np.take_along_axis(data, order, axis=-1)
            if pad:
                data = np.where(never, data[..., :1], data)
            return frozen(data[..., :atoms])

        fractions = None if array.fractions is None else one(array.fractions)
        return ExactArray(one(array.values), fractions, array.simplex)

    return sort(values, pad=True), sort(probs, pad=False)


def _parse_whole(field: str, data: dict[Any, Any]) -> Rewards:
    _require_keys(field, data)
    values = parse_array(f"{field}.values", data["values"])
    probs = parse_probabilities(f"{field}.probs", data["probs"])
    if values.values.shape != probs.values.shape or values.values.ndim < 2:
        fail(
            f"{field}.values",
            f"has shape {values.values.shape}, should be that of probs {probs.values.shape}, "
            "with the atoms on the last axis",
        )
    return _random(values, probs)


def _parse_leaves(field: str, shape: tuple[int, ...], flat: list[Any]) -> Rewards:
    values: list[list[Any]] = []
    probs: list[list[Any]] = []
    for i, leaf in enumerate(flat):
        where = path(field, np.unravel_index(i, shape) if shape else ())
        if not isinstance(leaf, dict):
            values.append([leaf])
            probs.append([1])
            continue
        _require_keys(where, leaf)
        for key in ("values", "probs"):
            if not isinstance(leaf[key], (list, tuple, np.ndarray)) or len(leaf[key]) == 0:
                fail(
                    f"{where}.{key} = {show(leaf[key])}", "should be a list with at least one entry"
                )
        if len(leaf["values"]) != len(leaf["probs"]):
            fail(
                f"{where}.probs",
                f"has {len(leaf['probs'])} entries, expected {len(leaf['values'])}",
            )
        parse_array(f"{where}.values", leaf["values"])
        parse_probabilities(f"{where}.probs", leaf["probs"])
        values.append(list(leaf["values"]))
        probs.append(list(leaf["probs"]))
    atoms = max(map(len, values))
    for v, p in zip(values, probs, strict=True):
        v += v[:1] * (atoms - len(v))
        p += [0] * (atoms - len(p))
    full = (*shape, atoms)
    value_array, _ = parse_flat(field, full, [x for leaf in values for x in leaf])
    prob_array, given = parse_flat(field, full, [x for leaf in probs for x in leaf])
    return _random(value_array, to_simplex(field, prob_array, given))


def _require_keys(where: str, leaf: dict[Any, Any]) -> None:
    for key in leaf:
        if key not in _KEYS:
            fail(f"{where}.{key}", 'is unknown, a distribution has the keys "values" and "probs"')
    for key in sorted(_KEYS - set(leaf)):
        fail(f"{where}.{key}", 'is missing, a distribution has the keys "values" and "probs"')


def reward(*atoms: tuple[Any, Any]) -> dict[str, list[Any]]:
    """Write a distribution from (value, probability) pairs.

    >>> reward((0, "3/5"), ("3/2", "2/5"))
    {'values': [0, '3/2'], 'probs': ['3/5', '2/5']}
    """
    return {"values": [v for v, _ in atoms], "probs": [p for _, p in atoms]}


def as_fraction(value: float | Fraction | str) -> Fraction:
    """Return a number, given in any of the accepted ways, as a fraction.

    >>> as_fraction("3/10") + as_fraction(0.2)
    Fraction(1, 2)
    """
    return Fraction(parse_array("value", [value]).exact()[0])
