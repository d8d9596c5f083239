"""Numbers: what is read, what is refused, and which fraction a float stands for."""

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandits.errors import ModelError, show
from bandits.exact import (
    PROBABILITY_TOLERANCE,
    parse_array,
    parse_integer,
    parse_number,
    parse_probabilities,
    plain,
    to_fraction,
    uniform,
)

from .strategies import simplices


def test_float_stands_for_its_shortest_decimal():
    assert to_fraction(0.1) == Fraction(1, 10)
    assert to_fraction(1e-3) == Fraction(1, 1000)
    assert parse_array("x", [0.1, 3, "1/3"]).exact().tolist() == [
        Fraction(1, 10),
        Fraction(3),
        Fraction(1, 3),
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [("3/10", Fraction(3, 10)), ("-1 / 2", Fraction(-1, 2)), ("0.25", Fraction(1, 4)),
     ("1e-3", Fraction(1, 1000)), ("+7", Fraction(7)), (" .5", Fraction(1, 2))],
)  # fmt: skip
def test_fraction_strings(text, value):
    assert parse_number("x", text) == (float(value), value)


@pytest.mark.parametrize(
    "wrong",
    ["", "a", "1/0", "nan", "inf", "1e999999999", "1/2/3", "0x1", "1_0", "١/2", "１", True, np.bool_(False),
     None, float("nan"), float("inf"), 10**400, {}, 1j, b"1", [1]],
)  # fmt: skip
def test_no_number_is_refused_with_field_index_and_value(wrong):
    with pytest.raises(ModelError) as error:
        parse_number("rewards[0][1]", wrong)
    message = str(error.value)
    assert message.startswith(f"rewards[0][1] = {show(wrong)}: should be") and "\n" not in message


def test_large_integers_stay_exact():
    big = 2**60 + 1
    array = parse_array("x", [big, 2])
    assert array.exact()[0] == big and array.values[0] == float(big)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([[0, 1, 2], [3, 4]], "x[1] has 2 entries, expected 3"),
        ([[0, 1], [2, 3, 4]], "x[1] has 3 entries, expected 2"),
        ([[[0], [1]], [[2], 3]], "x[1][1] is 3, expected a list of 1 entries"),
        ([[0, 1], [2, [3]]], "x[1][1] is a list of 1 entries, expected a number"),
        ([[0, 1], "ab"], "x[1] is 'ab', expected a list of 2 entries"),
        ([[], []], "x[0] is an empty list, should have at least one entry"),
        ([[1], []], "x[1] has 0 entries, expected 1"),
        ([], "x is an empty list, should have at least one entry"),
        ([[1, 2], np.array([1.0])], "x[1] has 1 entries, expected 2"),
    ],
)
def test_ragged_lists_name_the_path(data, message):
    with pytest.raises(ModelError, match=f"^{re.escape(message)}$"):
        parse_array("x", data)


def test_arrays_are_copied_and_frozen():
    given_array = np.arange(6.0).reshape(2, 3)
    array = parse_array("x", given_array)
    given_array[0, 0] = 7.0
    assert array.values[0, 0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        array.values[0, 0] = 1.0


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float32, np.float64])
def test_numeric_dtypes(dtype):
    assert parse_array("x", np.array([1, 2], dtype)).values.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "array", [np.array([True]), np.array(["a"]), np.zeros((0, 2)), np.array([1j])]
)
def test_other_arrays_are_refused(array):
    with pytest.raises(ModelError, match=r"^x (has|is)"):
        parse_array("x", array)


def test_nan_in_an_array_is_found():
    array = np.zeros((2, 3))
    array[1, 2] = np.nan
    with pytest.raises(ModelError, match=r"^x\[1\]\[2\] = nan: should be a finite number"):
        parse_array("x", array)
    array[1, 2] = 0
    array[:, 0] = 1e308  # the sum overflows, the entries do not
    assert parse_array("x", array).values[0, 0] == 1e308


def test_probabilities_known_errors():
    for wrong, message in [
        ([0.5, 0.25], "p sums to 0.75, should sum to 1 (within 1e-09)"),
        ([["1/2", "1/2"], ["1/2", "1/3"]], "p[1] sums to 5/6, should sum to exactly 1"),
        ([1.5, -0.5], "p[1] = -0.5: should be a probability, at least 0"),
        (["1/3", 0.6666666666666667], "should sum to exactly 1"),
        (0.5, "should be a list of probabilities"),
    ]:
        with pytest.raises(ModelError) as error:
            parse_probabilities("p", wrong)
        assert message in str(error.value)


def test_probabilities_within_the_tolerance_are_normalised():
    third = 0.3333333333
    array = parse_probabilities("p", [third] * 3)
    assert abs(array.values.sum() - 1) < 1e-15
    assert sum(array.exact()) == 1
    off = 2 * PROBABILITY_TOLERANCE
    with pytest.raises(ModelError):
        parse_probabilities("p", [0.5, 0.5 + off])


def test_rows_of_floats_beside_rows_of_fractions_sum_to_one_too():
    array = parse_probabilities("p", [["1/2", "1/2"], [1 / 3, 2 / 3]])
    assert to_fraction(1 / 3) + to_fraction(2 / 3) != 1
    assert (array.exact().sum(axis=1) == 1).all()
    assert array.values[1].tolist() == [1 / 3, 2 / 3]


@given(st.integers(1, 5).flatmap(simplices))
def test_exact_probabilities_stay_as_given(probs):
    array = parse_probabilities("p", probs)
    assert array.exact().tolist() == probs
    again = parse_probabilities("p", array.code())
    assert again.same(array)


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=6))
def test_normalising_twice_changes_nothing(weights):
    once = parse_probabilities("p", np.array(weights) / sum(weights))
    twice = parse_probabilities("p", once.values)
    assert np.array_equal(once.values, twice.values)
    assert sum(once.exact()) == 1


@given(
    st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.fractions(max_denominator=99))
)
def test_plain_numbers_parse_back(value):
    number = value if isinstance(value, Fraction) else value + 0.0
    array = parse_array("x", [number])
    assert parse_array("x", array.code()).same(array)
    assert parse_array("x", [plain(number)]).exact()[0] == array.exact()[0]


def test_uniform_is_exact():
    assert uniform(3).exact().tolist() == [Fraction(1, 3)] * 3


@pytest.mark.parametrize("wrong", [0, -1, 2.0, "3", True, None])
def test_integers(wrong):
    with pytest.raises(ModelError, match=r"^horizon = .*: should be an integer of at least 1$"):
        parse_integer("horizon", wrong, least=1)
