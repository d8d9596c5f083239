r"""Rational interval arithmetic with outward rounding, for the certificate verifier.

A number is either a ``fractions.Fraction``, and then exact, or an :class:`Interval`
``[lo / 2^bits, hi / 2^bits]`` with integer ends that contains the true value.  Rationals stay
exact until an irrational function touches them; every operation on an interval rounds its lower
end down and its upper end up, so that enclosure is preserved by construction.

Three irrational functions are needed.

* ``sqrt``: with :math:`y = x \cdot 4^b`, ``math.isqrt`` gives
  :math:`s = \lfloor\sqrt{\lfloor y \rfloor}\rfloor = \lfloor\sqrt{y}\rfloor`, hence
  :math:`s \le 2^b\sqrt{x} < s + 1`.
* ``exp``: halve the argument k times until :math:`|y| \le 1/2`, sum the Taylor series to degree n,
  and add the remainder

  .. math:: \Big|\sum_{j>n} \frac{y^j}{j!}\Big|
            \le \frac{|y|^{n+1}}{(n+1)!} \sum_{i \ge 0} |y|^i \le 2\,\frac{|y|^{n+1}}{(n+1)!},

  then square k times, each time in interval arithmetic.
* ``log``: divide by a power of two until :math:`m \in [1/4, 1]`, so that
  :math:`z = (m - 1) / (m + 1)` has :math:`|z| \le 3/5`, and sum
  :math:`\log m = 2 \sum_j z^{2j+1} / (2j+1)`; the terms from :math:`z^n` on are at most

  .. math:: 2 \sum_{i \ge 0} |z|^{n+2i} = \frac{2 |z|^n}{1 - z^2} \le 4 |z|^n .

A comparison that an interval cannot decide raises :class:`Undecided`; the caller repeats the
calculation with more bits and finally gives up.  Nothing is ever guessed.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt


class Undecided(ArithmeticError):
    """The working precision is too low to decide a comparison."""


def _down(numerator: int, bits: int) -> int:
    return numerator >> bits


def _up(numerator: int, bits: int) -> int:
    return -((-numerator) >> bits)


class Interval:
    """The closed interval from ``lo / 2**bits`` to ``hi / 2**bits``.

    >>> third = Interval.around(Fraction(1, 3), bits=4)
    >>> third.lo, third.hi
    (5, 6)
    """

    __slots__ = ("bits", "hi", "lo")

    def __init__(self, lo: int, hi: int, bits: int) -> None:
        self.lo, self.hi, self.bits = lo, hi, bits

    @classmethod
    def around(cls, x: Fraction | int, bits: int) -> Interval:
        """The tightest interval with this many bits that contains the rational ``x``."""
        x = Fraction(x)
        scaled = x.numerator << bits
        return cls(scaled // x.denominator, -(-scaled // x.denominator), bits)

    def _other(self, x: Number | int) -> Interval:
        return x if isinstance(x, Interval) else Interval.around(x, self.bits)

    def __neg__(self) -> Interval:
        return Interval(-self.hi, -self.lo, self.bits)

    def __add__(self, x: Number | int) -> Interval:
        y = self._other(x)
        return Interval(self.lo + y.lo, self.hi + y.hi, self.bits)

    def __sub__(self, x: Number | int) -> Interval:
        return self + (-x)

    def __rsub__(self, x: Number | int) -> Interval:
        return -self + x

    def __mul__(self, x: Number | int) -> Interval:
        y = self._other(x)
        ends = [a * b for a in (self.lo, self.hi) for b in (y.lo, y.hi)]
        return Interval(_down(min(ends), self.bits), _up(max(ends), self.bits), self.bits)

    def __truediv__(self, x: Number | int) -> Interval:
        y = self._other(x)
        if y.lo <= 0 <= y.hi:
            raise Undecided("a divisor may be zero")
        pairs = [(a << self.bits, b) for a in (self.lo, self.hi) for b in (y.lo, y.hi)]
        return Interval(min(a // b for a, b in pairs), max(-(-a // b) for a, b in pairs), self.bits)

    def __rtruediv__(self, x: Number | int) -> Interval:
        return self._other(x) / self

    __radd__ = __add__
    __rmul__ = __mul__


Number = Fraction | Interval
ZERO, ONE = Fraction(0), Fraction(1)
MAX_HALVINGS = 12  # exp refuses arguments beyond 2^11, whose powers would fill the memory


def sign(x: Number) -> int:
    """-1, 0 or 1; an interval that contains 0 is undecided."""
    lo, hi = (x.lo, x.hi) if isinstance(x, Interval) else (x.numerator, x.numerator)
    if lo <= 0 <= hi and isinstance(x, Interval):
        raise Undecided("a sign")
    return (lo > 0) - (lo < 0)


def clamp(x: Number, low: Fraction | None, high: Fraction | None) -> Number:
    """``min(max(x, low), high)``; ``None`` leaves that side open."""
    if not isinstance(x, Interval):
        x = x if low is None else max(x, low)
        return x if high is None else min(x, high)
    lo, hi = x.lo, x.hi
    if low is not None:
        bound = Interval.around(low, x.bits)
        lo, hi = max(lo, bound.lo), max(hi, bound.hi)
    if high is not None:
        bound = Interval.around(high, x.bits)
        lo, hi = min(lo, bound.lo), min(hi, bound.hi)
    return Interval(lo, hi, x.bits)


def at_most(x: Number, bound: Fraction) -> Number:
    """1 where ``x <= bound``, 0 where not; undecided is the interval [0, 1], which contains both."""
    if not isinstance(x, Interval):
        return ONE if x <= bound else ZERO
    edge = Interval.around(bound, x.bits)
    if x.hi <= edge.lo:
        return ONE
    return ZERO if x.lo > edge.hi else Interval(0, 1 << x.bits, x.bits)


def sqrt(x: Number, bits: int) -> Number:
    """The square root; exact for the square of a rational."""
    if isinstance(x, Interval):
        if x.lo < 0:
            raise Undecided("the square root of a number that may be negative")
        return Interval(isqrt(x.lo << bits), isqrt(x.hi << bits) + 1, bits)
    root = Fraction(isqrt(x.numerator), isqrt(x.denominator))
    if root * root == x:
        return root
    low = isqrt((x.numerator << 2 * bits) // x.denominator)
    return Interval(low, low + 1, bits)


def exp(x: Number, bits: int) -> Number:
    """The exponential; exp(0) = 1 exactly."""
    if x == 0:
        return ONE
    y = x if isinstance(x, Interval) else Interval.around(x, bits)
    halvings = max(0, max(abs(y.lo), abs(y.hi)).bit_length() - (bits - 1))
    if halvings > MAX_HALVINGS or y.hi - y.lo > 1 << (bits - 1):
        raise Undecided("an exponential of a number that is too large or too uncertain")
    y = Interval(_down(y.lo, halvings), _up(y.hi, halvings), bits)
    total = term = Interval.around(1, bits)
    degree = 0
    while degree == 0 or max(abs(term.lo), abs(term.hi)) > 1:
        degree += 1
        term = term * y / degree
        total = total + term
    term = term * y / (degree + 1)
    remainder = 2 * max(abs(term.lo), abs(term.hi))
    total = total + Interval(-remainder, remainder, bits)
    for _ in range(halvings):
        total = total * total
    return total


def log(x: Number, bits: int) -> Number:
    """The natural logarithm of a positive number; log(1) = 0 exactly."""
    if x == 1:
        return ZERO
    y = x if isinstance(x, Interval) else Interval.around(x, bits)
    shift = y.hi.bit_length() - bits
    down, up = max(shift, 0), max(-shift, 0)
    m = Interval(_down(y.lo << up, down), _up(y.hi << up, down), bits)
    if m.lo < 1 << (bits - 2):
        raise Undecided("the logarithm of a number that may be zero, or is too uncertain")
    return _twice_atanh((m - 1) / (m + 1)) + shift * _twice_atanh(
        Interval.around(Fraction(1, 3), bits)
    )


def _twice_atanh(z: Interval) -> Interval:
    """log((1 + z) / (1 - z)) for abs(z) <= 3/5."""
    total = power = z
    degree = 1
    while max(abs(power.lo), abs(power.hi)) > 1:
        power = power * z * z
        degree += 2
        total = total + power / degree
    power = power * z * z
    remainder = 4 * max(abs(power.lo), abs(power.hi))
    return 2 * total + Interval(-remainder, remainder, z.bits)
