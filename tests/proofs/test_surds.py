"""Exact square roots against SymPy."""

from fractions import Fraction

import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from proofs._surds import Surd, enclose_roots, inverse_root, root, sign_of_roots, squarefree

fractions = st.fractions(-3, 3, max_denominator=12)
positive = st.fractions(Fraction(1, 12), 30, max_denominator=12)


def symbolic(terms):
    return sum(
        (
            sp.Rational(c.numerator, c.denominator)
            * sp.sqrt(sp.Rational(q.numerator, q.denominator))
            for c, q in terms
        ),
        sp.Integer(0),
    )


@given(st.lists(st.tuples(fractions, positive), max_size=5))
def test_sign_and_enclosures(terms):
    exact = sum((root(q) * c for c, q in terms), Surd())
    expected = symbolic(terms)
    truth = int(sp.sign(expected)) if expected != 0 else 0
    assert exact.sign() == truth
    for low, high in (exact.enclosure(40), enclose_roots(terms, 40)):
        assert low <= high
        assert sp.Rational(str(low)) <= expected <= sp.Rational(str(high))
    if truth:
        assert sign_of_roots(terms) == truth


def test_cancellation_is_seen():
    near = root(2) + root(3) - root(Fraction(98989794855664, 10**13))
    assert abs(float(near)) < 1e-6 and near.sign() != 0
    assert (root(8) - 2 * root(2)).sign() == 0
    with pytest.raises(ArithmeticError, match="open"):
        sign_of_roots([(Fraction(1), Fraction(8)), (Fraction(-2), Fraction(2))])


@given(st.integers(1, 3000))
def test_squarefree(n):
    square, rest = squarefree(n)
    assert square**2 * rest == n
    assert all(rest % (k * k) for k in range(2, 60))


def test_bad_arguments():
    with pytest.raises(ValueError, match="at least 0"):
        root(-1)
    with pytest.raises(ValueError, match="positive"):
        inverse_root(0)
