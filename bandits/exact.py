"""Arrays of float64 that remember the fractions they were given as.

Floats are what the exact algorithms compute with; certificates need the rational numbers
themselves. An `ExactArray` holds both: `values` (float64, read-only) and, only where a fraction
was given, `fractions`. The fraction of a float is that of its shortest decimal, 0.1 → 1/10: what
the author of a file wrote.

    parse_array("rewards", [[0.5, "1/3"]])       -> values [[.5, .333…]], fractions [[1/2, 1/3]]
    parse_probabilities("initial", [0.5, 0.5])   -> each row along the last axis sums to 1

Numbers are int, float, NumPy scalars, `Fraction`, or strings such as "3/10" and "0.3". Booleans,
NaN and infinities are refused. A NumPy array of numbers is taken whole, without a loop over its
entries.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import ModelError, fail, path, show
from .limits import require_array_fits

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
ObjectArray = NDArray[np.object_]

# Probabilities printed with ten digits and read back still sum to 1 within this.
PROBABILITY_TOLERANCE = 1e-9
# n correctly rounded terms of a sum near 1 are off by at most n · 2^-53; twice that stays as it is.
_ROUNDING = 2.0**-52
# Integers up to here are exact in float64.
_EXACT_INT = 2**53
_NUMBER = re.compile(r"\s*[+-]?(\d+\s*/\s*\d+|(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?)\s*")
_NUMBER_HELP = 'should be a finite number or a fraction string such as "3/10"'


def to_fraction(value: float) -> Fraction:
    """Return the fraction of a float's shortest decimal.

    >>> to_fraction(0.1)
    Fraction(1, 10)
    """
    return Fraction(repr(float(value)))


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def parse_number(field: str, value: object) -> tuple[float, Fraction | None]:
    """Return (float64 value, the fraction if it was given as one).

    >>> parse_number("x", "3/10"), parse_number("x", 2)
    ((0.3, Fraction(3, 10)), (2.0, None))
    """
    exact: Fraction | None = None
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, (bool, np.bool_)):
        fail(f"{field} = {show(value)}", _NUMBER_HELP)
    if isinstance(value, str):
        if not (value.isascii() and _NUMBER.fullmatch(value)):
            fail(f"{field} = {show(value)}", _NUMBER_HELP)
        try:
            exact = Fraction(re.sub(r"\s", "", value))
        except (ValueError, ZeroDivisionError):
            fail(f"{field} = {show(value)}", _NUMBER_HELP)
    elif isinstance(value, Integral):
        exact = Fraction(int(value)) if abs(int(value)) > _EXACT_INT else None
    elif isinstance(value, Rational):
        exact = Fraction(value)
    elif not isinstance(value, (Real, np.floating)):
        fail(f"{field} = {show(value)}", _NUMBER_HELP)
    try:
        number = float(value if exact is None else exact)
    except OverflowError:
        fail(f"{field} = {show(value)}", "should be small enough for a float64 (below 1.8e308)")
    if not math.isfinite(number):
        fail(f"{field} = {show(value)}", _NUMBER_HELP)
    return number, exact


@dataclass(frozen=True, eq=False)
class ExactArray:
    """A read-only float64 array and the fractions that it stands for.

    `simplex`: entries along the last axis are probabilities; `exact()` then sums to exactly 1.
    """

    values: FloatArray
    fractions: ObjectArray | None = None
    simplex: bool = False

    def exact(self) -> ObjectArray:
        """Return the entries as fractions, an object array of the same shape.

        >>> parse_array("x", [0.1, "1/3"]).exact().tolist()
        [Fraction(1, 10), Fraction(1, 3)]
        """
        if self.fractions is not None:
            return self.fractions.copy()
        out = as_fractions(self.values)
        if self.simplex:
            total = out.sum(axis=-1, keepdims=True)
            if (total != 1).any():
                out = out / total
        return out

    def same(self, other: "ExactArray") -> bool:
        """Whether both stand for exactly the same numbers."""
        if self.values.shape != other.values.shape or not np.array_equal(self.values, other.values):
            return False
        if self.fractions is None and other.fractions is None:
            return True
        return bool((self.exact() == other.exact()).all())

    def code(self) -> Any:
        """Return nested lists of ints, floats and fraction strings that parse to the same numbers.

        >>> parse_array("x", [[1, "1/3"]]).code()
        [[1, '1/3']]
        """
        return nested(self.values if self.fractions is None else self.fractions, plain)


def as_fractions(values: FloatArray) -> ObjectArray:
    """Convert each float to the fraction of its shortest decimal."""
    out = np.empty(values.shape, dtype=object)
    flat = out.reshape(-1)
    flat[:] = [to_fraction(x) for x in values.reshape(-1).tolist()]
    return flat.reshape(values.shape)


def plain(value: float | Fraction) -> int | float | str:
    """Write one number as an int, a float or a fraction string, whichever reads best."""
    if isinstance(value, Fraction):
        if value.denominator == 1:
            return int(value)
        return f"{value.numerator}/{value.denominator}"
    return int(value) if value.is_integer() and abs(value) <= _EXACT_INT else float(value)


def nested(array: NDArray[Any], leaf: Callable[[Any], Any]) -> Any:
    """Return the array as nested lists with `leaf` applied to every entry."""

    def walk(item: Any) -> Any:
        return [walk(i) for i in item] if isinstance(item, list) else leaf(item)

    return walk(array.tolist())


def flatten(field: str, data: object) -> tuple[tuple[int, ...], list[Any]]:
    """Return (shape, entries in row-major order) of nested lists; whatever is no list is an entry.

    Ragged lists raise ModelError with the path of the first list that differs.

    >>> flatten("x", [[1, 2], [3, 4]])
    ((2, 2), [1, 2, 3, 4])
    """
    shape: list[int] = []
    first = data
    while is_list(first):
        if len(first) == 0:  # type: ignore[arg-type]
            fail(path(field, [0] * len(shape)), "is an empty list, should have at least one entry")
        shape.append(len(first))  # type: ignore[arg-type]
        first = first[0]  # type: ignore[index]
    level: list[Any] = [data]
    for depth, size in enumerate(shape):
        following: list[Any] = []
        for i, item in enumerate(level):
            if not is_list(item) or len(item) != size:
                _ragged(field, shape, depth, i, item)
            following.extend(item)
        level = following
    for i, item in enumerate(level):
        if isinstance(item, (list, tuple, np.ndarray)) and is_list(item):
            _ragged(field, shape, len(shape), i, item)
    return tuple(shape), level


def is_list(item: object) -> bool:
    """Whether an item of nested data has entries of its own."""
    return isinstance(item, (list, tuple)) or (isinstance(item, np.ndarray) and item.ndim > 0)


def _ragged(field: str, shape: Sequence[int], depth: int, flat: int, item: Any) -> None:
    where = path(field, np.unravel_index(flat, shape[:depth]) if depth else ())
    if not is_list(item):
        fail(where, f"is {show(item)}, expected a list of {shape[depth]} entries")
    if depth == len(shape):
        fail(where, f"is a list of {len(item)} entries, expected a number")
    fail(where, f"has {len(item)} entries, expected {shape[depth]}")


def as_numeric_array(field: str, data: object) -> NDArray[Any] | None:
    """Return `data` as an array if it is one of numbers, None if its entries have to be read."""
    if not isinstance(data, (list, tuple, dict, str)) and hasattr(data, "__array__"):
        array = np.asarray(data)
        if array.dtype.kind in "fiu":
            if array.size == 0:
                fail(field, f"is an empty array of shape {array.shape}, should have entries")
            return array
        if array.dtype.kind != "O":
            fail(field, f"has dtype {array.dtype}, should be an array of numbers")
    return None


def parse_array(field: str, data: object) -> ExactArray:
    """Read an array of numbers from nested lists or an array.

    Args: field: its name in messages. data: nested lists or a NumPy array of numbers.
    Raises ModelError for ragged or empty lists, and entries that are no finite number.

    >>> parse_array("rewards", [[0, 1], [2]])
    Traceback (most recent call last):
    ...
    bandits.errors.ModelError: rewards[1] has 1 entries, expected 2
    """
    return _parse(field, data)[0]


def _parse(field: str, data: object) -> tuple[ExactArray, BoolArray | None]:
    """Return the array and which entries were given as fractions (None: not one)."""
    array = as_numeric_array(field, data)
    if array is not None:
        require_array_fits(array.shape, f"{field} of shape {array.shape}")
        values = np.array(array, dtype=np.float64, order="C")
        _require_finite(field, values)
        return ExactArray(frozen(values)), None
    if isinstance(data, np.ndarray):
        data = data.tolist()
    shape, flat = flatten(field, data)
    return parse_flat(field, shape, flat)


def parse_flat(
    field: str, shape: tuple[int, ...], flat: Sequence[Any]
) -> tuple[ExactArray, BoolArray | None]:
    """Read numbers flattened in row-major order; also tell which were given as fractions."""
    if all(type(x) is float or (type(x) is int and -_EXACT_INT <= x <= _EXACT_INT) for x in flat):
        values = np.array(flat, dtype=np.float64).reshape(shape)
        _require_finite(field, values)
        return ExactArray(frozen(values)), None
    pairs = [
        parse_number(path(field, np.unravel_index(i, shape) if shape else ()), x)
        for i, x in enumerate(flat)
    ]
    values = np.array([number for number, _ in pairs], dtype=np.float64).reshape(shape)
    given = np.array([exact is not None for _, exact in pairs]).reshape(shape)
    if not given.any():
        return ExactArray(frozen(values)), None
    fractions = np.empty(len(pairs), dtype=object)
    fractions[:] = [to_fraction(number) if exact is None else exact for number, exact in pairs]
    return ExactArray(frozen(values), frozen(fractions.reshape(shape))), given


def _require_finite(field: str, values: FloatArray) -> None:
    # The sum is finite iff all entries are, up to overflow: no temporary array in the usual case.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return
    bad = ~np.isfinite(values)
    if bad.any():
        index = np.unravel_index(int(bad.argmax()), values.shape)
        fail(f"{path(field, index)} = {values[index]}", _NUMBER_HELP)


def parse_probabilities(field: str, data: object) -> ExactArray:
    """Read probabilities: entries along the last axis are non-negative and sum to 1.

    Rows with an entry given as a fraction must sum to exactly 1; rows of floats within
    PROBABILITY_TOLERANCE, and are then divided by their sum.

    An ExactArray of probabilities is taken as it is.

    >>> parse_probabilities("initial", [0.5, 0.25])
    Traceback (most recent call last):
    ...
    bandits.errors.ModelError: initial sums to 0.75, should sum to 1 (within 1e-09)
    """
    if isinstance(data, ExactArray) and data.simplex:
        return data
    array, given = _parse(field, data)
    return to_simplex(field, array, given)


def to_simplex(field: str, array: ExactArray, given: BoolArray | None) -> ExactArray:
    """Check and, for rows of floats, normalise probabilities along the last axis."""
    values = array.values
    if values.ndim == 0:
        fail(f"{field} = {values}", "should be a list of probabilities")
    if (values < 0).any():
        index = np.unravel_index(int((values < 0).argmax()), values.shape)
        fail(f"{path(field, index)} = {show(values[index])}", "should be a probability, at least 0")
    total = values.sum(axis=-1)
    exact_rows = None if given is None else given.any(axis=-1)
    fractions = array.fractions
    if exact_rows is not None and fractions is not None:
        sums = fractions.sum(axis=-1)
        wrong = np.asarray(exact_rows & (sums != 1))
        if wrong.any():
            index = np.unravel_index(int(wrong.argmax()), wrong.shape)
            found = np.asarray(sums)[index]
            fail(
                path(field, index), f"sums to {found}, should sum to exactly 1 (given as fractions)"
            )
        fractions = fractions / np.expand_dims(np.asarray(sums, dtype=object), -1)
    off = np.abs(total - 1)
    if not (off <= PROBABILITY_TOLERANCE).all():
        index = np.unravel_index(int(np.asarray(off > PROBABILITY_TOLERANCE).argmax()), off.shape)
        found = show(float(np.asarray(total)[index]))
        fail(
            path(field, index), f"sums to {found}, should sum to 1 (within {PROBABILITY_TOLERANCE})"
        )
    loose = off > _ROUNDING * values.shape[-1]
    if exact_rows is not None:
        loose = loose & ~exact_rows
    if np.any(loose):
        values = np.where(np.expand_dims(loose, -1), values / np.expand_dims(total, -1), values)
    if fractions is not None:
        return ExactArray(frozen(values), frozen(fractions), simplex=True)
    return ExactArray(frozen(values), simplex=True)


def uniform(count: int) -> ExactArray:
    """Return the uniform distribution over `count` outcomes, exactly.

    >>> uniform(4).exact().tolist()[0]
    Fraction(1, 4)
    """
    fractions = np.empty(count, dtype=object)
    fractions[:] = [Fraction(1, count)] * count
    return ExactArray(frozen(np.full(count, 1.0 / count)), frozen(fractions), simplex=True)


def parse_integer(field: str, value: object, *, least: int) -> int:
    """Read an integer of at least `least`.

    >>> parse_integer("horizon", 3, least=1)
    3
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral) or value < least:
        raise ModelError(f"{field} = {show(value)}: should be an integer of at least {least}")
    return int(value)
