r"""Exact sums of square roots, $\sum_k c_k \sqrt{s_k}$ with rational $c_k$ and squarefree $s_k$.

Standard deviations of rational numbers are square roots of rationals, so that expectations of
std-normalised advantages are such sums. Square roots of distinct squarefree integers are linearly
independent over the rationals (Besicovitch 1940), hence a sum is zero exactly when all its
coefficients are, and otherwise an interval that is narrow enough decides its sign: both are done
in integers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import isqrt, sqrt
from typing import Any

Rational = int | Fraction
Enclosure = tuple[Fraction, Fraction]


@cache
def squarefree(n: int) -> tuple[int, int]:
    """Write n as ``square * square * rest`` with a squarefree rest.

    >>> squarefree(72)
    (6, 2)
    """
    if n < 0:
        raise ValueError(f"square root of {n}: must be at least 0")
    if n == 0:
        return 0, 1
    square, rest, divisor = 1, 1, 2
    while divisor * divisor <= n:
        power = 0
        while n % divisor == 0:
            n //= divisor
            power += 1
        square *= divisor ** (power // 2)
        rest *= divisor if power % 2 else 1
        divisor += 1
    return square, rest * n


@dataclass(frozen=True)
class Surd:
    r"""$\sum_s c_s \sqrt s$ as a tuple of pairs (s, c), sorted, all c non-zero."""

    terms: tuple[tuple[int, Fraction], ...] = ()

    @staticmethod
    def of(terms: dict[int, Fraction]) -> Surd:
        """The sum with these coefficients by squarefree radicand; zeros are dropped."""
        return Surd(tuple(sorted((s, c) for s, c in terms.items() if c != 0)))

    def __add__(self, other: Surd | Rational) -> Surd:
        terms = dict(self.terms)
        for s, c in _surd(other).terms:
            terms[s] = terms.get(s, Fraction(0)) + c
        return Surd.of(terms)

    __radd__ = __add__

    def __neg__(self) -> Surd:
        return Surd(tuple((s, -c) for s, c in self.terms))

    def __sub__(self, other: Surd | Rational) -> Surd:
        return self + -_surd(other)

    def __mul__(self, factor: Rational) -> Surd:
        return Surd.of({s: c * factor for s, c in self.terms})

    __rmul__ = __mul__

    def __float__(self) -> float:
        return float(sum(float(c) * sqrt(s) for s, c in self.terms))

    def __str__(self) -> str:
        parts = [f"{c}" if s == 1 else f"{c}*sqrt({s})" for s, c in self.terms]
        return " + ".join(parts).replace("+ -", "- ") or "0"

    def enclosure(self, bits: int) -> Enclosure:
        r"""Rational bounds, each root enclosed in a width of $2^{-\text{bits}}$."""
        low = high = Fraction(0)
        for s, c in self.terms:
            root = isqrt(s << (2 * bits))
            below = Fraction(root, 1 << bits)
            above = below if root * root == s << (2 * bits) else Fraction(root + 1, 1 << bits)
            low += c * (below if c > 0 else above)
            high += c * (above if c > 0 else below)
        return low, high

    def sign(self) -> int:
        """-1, 0 or 1, exactly."""
        if not self.terms:
            return 0
        bits = 32
        while True:  # ends: the sum is not zero, and the enclosure shrinks to it
            low, high = self.enclosure(bits)
            if low > 0:
                return 1
            if high < 0:
                return -1
            bits *= 2


def _surd(value: Any) -> Surd:
    if isinstance(value, Surd):
        return value
    return Surd.of({1: Fraction(value)})


def root(value: Rational) -> Surd:
    """The square root of a rational number.

    >>> str(root(Fraction(9, 8)))
    '3/4*sqrt(2)'
    """
    value = Fraction(value)
    square, rest = squarefree(value.numerator * value.denominator)
    return Surd.of({rest: Fraction(square, value.denominator)})


def inverse_root(value: Rational) -> Surd:
    """One over the square root of a positive rational number."""
    if value <= 0:
        raise ValueError(f"inverse square root of {value}: must be positive")
    return root(1 / Fraction(value))


def enclose_roots(pairs: Iterable[tuple[Rational, Rational]], bits: int = 128) -> Enclosure:
    r"""Rational bounds of $\sum_k c_k \sqrt{q_k}$ for rational $q_k$, without factorising them.

    >>> low, high = enclose_roots([(1, 2), (-1, 2)], bits=20)
    >>> low <= 0 <= high
    True
    """
    low = high = Fraction(0)
    for c, q in pairs:
        numerator, denominator = Fraction(q).as_integer_ratio()
        scaled = numerator * denominator << (2 * bits)
        floor = isqrt(scaled)
        below = Fraction(floor, denominator << bits)
        above = Fraction(floor + (floor * floor != scaled), denominator << bits)
        low += c * (below if c > 0 else above)
        high += c * (above if c > 0 else below)
    return low, high


def sign_of_roots(pairs: Iterable[tuple[Rational, Rational]], most_bits: int = 4096) -> int:
    """The sign of such a sum where an enclosure decides it; an error where none does."""
    pairs = list(pairs)
    bits = 64
    while bits <= most_bits:
        low, high = enclose_roots(pairs, bits)
        if low > 0 or high < 0:
            return 1 if low > 0 else -1
        bits *= 2
    raise ArithmeticError(f"the sign of a sum of {len(pairs)} roots is open at {most_bits} bits")
