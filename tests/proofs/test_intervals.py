"""Interval arithmetic: the true value stays inside, and the enclosures stay narrow."""

from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofs.intervals import (
    Interval,
    Undecided,
    at_most,
    clamp,
    exp,
    log,
    sign,
    sqrt,
)

BITS = 96
GUARD = 16  # bits that a function may lose: its Taylor terms and squarings round a few times
rationals = st.fractions(-30, 30, max_denominator=10**6)
positives = st.fractions(Fraction(1, 10**6), 10**6, max_denominator=10**6)


def contains(x, value):
    """Whether the interval contains the value, a Fraction or an mpmath number."""
    if isinstance(x, Fraction):
        return x == value
    if isinstance(value, Fraction):
        return x.lo <= value * 2**x.bits <= x.hi
    scaled = mpmath.ldexp(value, x.bits)
    return x.lo <= scaled <= x.hi


@given(rationals, rationals, rationals)
def test_operations_enclose(a, b, c):
    x, y, z = (Interval.around(v, BITS) for v in (a, b, c))
    assert contains(x + y, a + b) and contains(x - y, a - b) and contains(x * y, a * b)
    assert contains(1 - x, 1 - a) and contains(a * y + z, a * b + c) and contains(-x, -a)
    if b:
        assert contains(x / y, a / b) and contains(1 / y, 1 / b) and contains(a / y, a / b)
        assert (x / y).hi - (x / y).lo <= 4 + abs(a / b) * (2 + 4 / abs(b))


@given(rationals)
def test_exp_encloses(a):
    with mpmath.workprec(4 * BITS):
        assert contains(exp(a, BITS), mpmath.exp(mpmath.mpf(a.numerator) / a.denominator))
        x = exp(Interval.around(a, BITS), BITS)
        assert contains(x, mpmath.exp(mpmath.mpf(a.numerator) / a.denominator))
    if a <= 0:
        assert isinstance(x, Interval) and x.hi - x.lo < 2**GUARD


@given(positives)
def test_log_and_sqrt_enclose(a):
    with mpmath.workprec(4 * BITS):
        exact = mpmath.mpf(a.numerator) / a.denominator
        assert contains(log(a, BITS), mpmath.log(exact))
        assert contains(log(Interval.around(a, BITS), BITS), mpmath.log(exact))
        root = sqrt(a, BITS)
        if isinstance(root, Interval):
            assert contains(root, mpmath.sqrt(exact))
            assert root.hi - root.lo == 1
        else:
            assert root * root == a
        assert contains(sqrt(Interval.around(a, BITS), BITS), mpmath.sqrt(exact))


def test_exact_values_stay_exact():
    assert exp(Fraction(0), BITS) == 1
    assert log(Fraction(1), BITS) == 0
    assert sqrt(Fraction(9, 4), BITS) == Fraction(3, 2)
    assert sqrt(Fraction(0), BITS) == 0


def test_what_cannot_be_decided_is_not_guessed():
    around_zero = Interval(-1, 1, BITS)
    with pytest.raises(Undecided):
        sign(around_zero)
    with pytest.raises(Undecided):
        Fraction(1) / around_zero
    with pytest.raises(Undecided):
        log(around_zero, BITS)
    with pytest.raises(Undecided):
        sqrt(around_zero, BITS)
    with pytest.raises(Undecided):
        exp(Fraction(10**6), BITS)
    with pytest.raises(Undecided):
        exp(Interval(0, 1 << BITS, BITS), BITS)
    third = Interval.around(Fraction(1, 3), BITS)
    both = at_most(third, Fraction(1, 3))
    assert isinstance(both, Interval) and (both.lo, both.hi) == (0, 1 << BITS)
    assert at_most(third, Fraction(1, 2)) == 1 and at_most(third, Fraction(1, 4)) == 0
    assert sign(third) == 1 and sign(-third) == -1


@given(rationals, st.fractions(0, 2, max_denominator=50))
def test_clamp(a, width):
    exact = min(max(a, 1 - width), 1 + width)
    assert clamp(a, 1 - width, 1 + width) == exact
    assert contains(clamp(Interval.around(a, BITS), 1 - width, 1 + width), exact)
    assert contains(clamp(Interval.around(a, BITS), Fraction(0), None), max(a, Fraction(0)))
