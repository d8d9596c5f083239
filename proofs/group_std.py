r"""Normalising by the group's standard deviation: harmless for two rewards, wrong-signed for three.

Let $G$ members be drawn independently, $\hat A_i = (r_i - \bar r) / \hat\sigma$ with the sample
standard deviation $\hat\sigma$ of the group (divisor $G - 1$) and $\hat A_i = 0$ when all rewards
are equal. $q_a = \mathbb E[r \mid a]$, $V = \sum_a \pi(a) q_a$.

**Theorem 1** (two reward values). For $r \in \{0, 1\}$, $V = p \in (0, 1)$, and any action or
history $a$ with success probability $q_a$,

$$\mathbb E[\hat A \mid a] = D_G(p) \, (q_a - V), \qquad
D_G(p) = \sum_{j=0}^{G-1} \binom{G-1}{j} p^j (1-p)^{G-1-j} (u_{j+1} + v_j) > 0,$$

$u_k = (1 - k/G)/\hat\sigma_k$, $v_k = (k/G)/\hat\sigma_k$, $\hat\sigma_k^2 = k (G-k)/(G (G-1))$,
$u_G = v_0 = 0$; equivalently $p (1-p) D_G(p) = (1 - 1/G)\,\mathbb E[\hat\sigma]$. So the sign of
every advantage is right and its size is monotone in the mean; any two values are affine images of
0 and 1. *Proof.* Condition on the own reward: $\mathbb E[\hat A \mid r]$ takes two values, so it is
affine in $r$ with slope $D_G$; members' advantages sum to 0, so it vanishes at $r = V$. The
coefficients in the Bernstein basis are non-negative and not all zero, for every $G \ge 2$ and also
with $\hat\sigma + \varepsilon$ in the place of $\hat\sigma$.

**Theorem 2** (three values). There are two arms with $q_X < q_Y$ and
$\mathbb E[\hat A \mid X] > 0 > \mathbb E[\hat A \mid Y]$ for every $G = 2, \dots, 8$. An instance
has size $N$ if all its rewards (in $[0, 1]$ with 0 and 1 among the values), probabilities and
policy entries are multiples of $1/N$. For $G = 2, \dots, 6$ the smallest size is $N = 3$:

$$X: \tfrac13 \text{ with probability } \tfrac23, \text{ else } 0; \qquad
  Y: 1 \text{ with probability } \tfrac13, \text{ else } 0; \qquad
  q_X = \tfrac29 < q_Y = \tfrac13,$$

at $\pi(X) = 2/3$ (for $G \le 5$ at $\pi(X) = 1/3$ too), unique up to $r \mapsto 1 - r$; all instances
of size 1 and 2 have the right sign. For $G = 7, 8$ the smallest size is 4. Read as a tree of two
turns with two actions each, $X$ and $Y$ are first actions, the four rewards are deterministic and
the second turn's policy draws them: the same fractions, hence the same smallest size. At uniform
policies no such tree with rewards in multiples of 1/4 exists for $G \le 6$; with three second actions
$X: (0, \frac13, \frac13)$ and $Y: (0, 0, 1)$ is one for $G \le 5$.

**Where it stops.** As $G \to \infty$ the scale becomes $1/\sigma(s_0)$, the same for all actions of
a context, and the sign is right: the bandit "1/2 surely, or 3/2 with probability 2/5" has the
wrong sign up to $G = 7$ and the right one from $G = 8$. Theorem 1 holds a context at a time:
$D_G$ depends on $V(s_0)$ for $G \ge 4$ (it is constant for $G = 2, 3$), so that contexts that
share a parameter are weighted unequally, and the sign of the shared gradient can flip with binary
rewards too.

**Source.** Shao et al., arXiv:2402.03300 (GRPO); Liu et al., arXiv:2503.20783 (difficulty bias);
SeeUPO, arXiv:2602.06554, App. H.3 (the scale depends on the state).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import comb, factorial
from typing import Any

import sympy as sp

from proofs._base import Result, identical, require, step
from proofs._surds import Surd, inverse_root

Distribution = Mapping[Fraction, Fraction]
GROUPS = range(2, 9)


@cache
def normalised(own: Fraction, others: tuple[Fraction, ...]) -> Surd:
    r"""$(r_1 - \bar r) / \hat\sigma$ of the first member, divisor $G - 1$, 0 for equal rewards."""
    group = (own, *others)
    mean = sum(group, Fraction(0)) / len(group)
    variance = sum(((r - mean) ** 2 for r in group), Fraction(0)) / (len(group) - 1)
    return inverse_root(variance) * (own - mean) if variance else Surd()


def given_reward(distribution: Distribution, group: int) -> dict[Fraction, Surd]:
    r"""$\mathbb E[\hat A_1 \mid r_1 = r]$ for every reward value, the others being independent."""
    values = sorted(distribution)
    found = dict.fromkeys(values, Surd())
    for others in itertools.combinations_with_replacement(values, group - 1):
        weight = Fraction(factorial(group - 1))
        for value in set(others):
            count = others.count(value)
            weight *= distribution[value] ** count / factorial(count)
        if weight:
            for own in values:
                found[own] += normalised(own, others) * weight
    return found


@dataclass(frozen=True)
class Arms:
    """Two arms with finite reward distributions and the probability of the first."""

    x: Distribution
    y: Distribution
    pi_x: Fraction

    @property
    def gap(self) -> Fraction:
        """$q_X - q_Y$."""
        return _mean(self.x) - _mean(self.y)

    def expected(self, group: int, conditional: Mapping[Fraction, Surd] | None = None) -> Surd:
        r"""$\mathbb E[\hat A \mid X]$, exactly."""
        table = conditional or given_reward(self.mixture(), group)
        return sum((table[r] * p for r, p in self.x.items() if p), Surd())

    def mixture(self) -> dict[Fraction, Fraction]:
        """The reward distribution of one member."""
        keys = sorted({*self.x, *self.y})
        zero = Fraction(0)
        return {
            r: self.pi_x * self.x.get(r, zero) + (1 - self.pi_x) * self.y.get(r, zero) for r in keys
        }

    def wrong_sign(self, group: int) -> bool:
        """Whether the expected advantage of X has the sign opposite to the true one."""
        gap = self.gap
        return gap != 0 and self.expected(group).sign() == (-1 if gap > 0 else 1)


def _mean(distribution: Distribution) -> Fraction:
    return sum((r * p for r, p in distribution.items()), Fraction(0))


def instances(size: int) -> Iterator[Arms]:
    """All two-armed instances of a size, unordered arms of different means, values 0, m, 1."""
    grid = [Fraction(k, size) for k in range(size + 1)]
    for middle in grid[1:-1]:
        values = (Fraction(0), middle, Fraction(1))
        laws = [
            dict(zip(values, (p, q, 1 - p - q), strict=True))
            for p, q in itertools.product(grid, repeat=2)
            if p + q <= 1
        ]
        for x, y in itertools.combinations(laws, 2):
            for pi_x in grid[1:-1]:
                yield Arms(x, y, pi_x)


SMALLEST = Arms(
    {Fraction(0): Fraction(1, 3), Fraction(1, 3): Fraction(2, 3)},
    {Fraction(0): Fraction(2, 3), Fraction(1): Fraction(1, 3)},
    Fraction(2, 3),
)
SURE_OR_GAMBLE = Arms(
    {Fraction(1, 2): Fraction(1)},
    {Fraction(0): Fraction(3, 5), Fraction(3, 2): Fraction(2, 5)},
    Fraction(1, 2),
)


def binary_slope(group: int, p: Any, epsilon: Any = 0) -> Any:
    r"""$D_G(p)$ as a SymPy expression, in the Bernstein basis."""
    return sum(
        comb(group - 1, j) * p**j * (1 - p) ** (group - 1 - j) * c
        for j, c in enumerate(_bernstein(group, epsilon))
    )


def _bernstein(group: int, epsilon: Any = 0) -> list[Any]:
    def up(k: int) -> Any:
        return (1 - sp.Rational(k, group)) / (_sigma(group, k) + epsilon) if k < group else 0

    def down(k: int) -> Any:
        return sp.Rational(k, group) / (_sigma(group, k) + epsilon) if k > 0 else 0

    return [up(j + 1) + down(j) for j in range(group)]


def _sigma(group: int, ones: int) -> Any:
    return sp.sqrt(sp.Rational(ones * (group - ones), group * (group - 1)))


@step("binary rewards, symbolic q and V: E[A | a] = D_G(V) (q_a - V), G = 2 to 8")
def binary_closed_form() -> str:
    p, q = sp.symbols("p q", positive=True)
    for group in GROUPS:
        slope = binary_slope(group, p)
        given = {own: _given_binary(group, own, p) for own in (0, 1)}
        _polynomials_equal(given[1] - given[0], slope, p, f"slope, G={group}")
        _polynomials_equal(p * given[1] + (1 - p) * given[0], 0, p, f"sum to 0, G={group}")
        mean = sum(
            comb(group, k) * p**k * (1 - p) ** (group - k) * _sigma(group, k)
            for k in range(1, group)
        )
        _polynomials_equal(
            p * (1 - p) * slope, (1 - sp.Rational(1, group)) * mean, p, f"E[sigma], G={group}"
        )
    one, zero, value = sp.symbols("e_1 e_0 p")
    centred = sp.solve(value * one + (1 - value) * zero, zero)[0]
    identical(
        q * one + (1 - q) * centred,
        (one - centred) * (q - value),
        "an affine function that vanishes in the mean",
    )
    return "p (1 - p) D_G(p) = (1 - 1/G) E[sigma]; D_2 = 1/sqrt(2)"


def _given_binary(group: int, own: int, p: Any) -> Any:
    total: Any = 0
    for ones in range(group):  # among the other members
        k = ones + own
        if 0 < k < group:
            weight = comb(group - 1, ones) * p**ones * (1 - p) ** (group - 1 - ones)
            total += weight * (own - sp.Rational(k, group)) / _sigma(group, k)
    return total


def _polynomials_equal(left: Any, right: Any, p: Any, message: str) -> None:
    difference = sp.expand(sp.expand(left) - sp.expand(right))
    for coefficient in sp.Poly(difference, p).coeffs():
        identical(sp.nsimplify(sp.radsimp(coefficient)), 0, message)


@step("D_G > 0 on (0, 1): non-negative Bernstein coefficients for every G, with any epsilon")
def positivity() -> str:
    epsilon = sp.Symbol("epsilon", nonnegative=True)
    for group in GROUPS:
        for coefficient in _bernstein(group, epsilon):
            require(coefficient.is_positive, f"G={group}: coefficient {coefficient}")
    k, gap, more = sp.symbols("k g s", positive=True)  # g = G - k, s = G - 1
    sigma = sp.sqrt(k * gap / ((1 + more) * more))
    for numerator in (gap, k):
        require((numerator / (1 + more) / (sigma + epsilon)).is_positive, "symbolic G and k")
    return "u_k > 0 for k < G and v_k > 0 for k > 0, whatever sigma + epsilon > 0 is"


@step("D_G is constant for G = 2, 3 and not for G = 4 to 8")
def constant_slope() -> str:
    p = sp.Symbol("p")
    for group in GROUPS:
        poly = sp.Poly(sp.expand(binary_slope(group, p)), p)
        flat = all(sp.simplify(c) == 0 for c in poly.all_coeffs()[:-1])
        require(flat == (group <= 3), f"G={group}: constant is {flat}")
    identical(sp.simplify(binary_slope(2, p)), 1 / sp.sqrt(2), "G=2")
    identical(sp.simplify(binary_slope(3, p)), 2 / sp.sqrt(3), "G=3")
    return "1/sqrt(2) and 2/sqrt(3)"


@step("the bandit 1/2 or 3/2 with probability 2/5: wrong sign exactly for G = 2 to 7")
def sure_or_gamble() -> str:
    # Values of E[A | X] to four digits, and of the mean-centred (1 - 1/G)(q_X - V).
    known = {2: (707, -250), 3: (893, -333), 4: (772, -375), 6: (348, -417)}
    found = []
    for group in range(2, 10):
        exact = SURE_OR_GAMBLE.expected(group)
        require(SURE_OR_GAMBLE.wrong_sign(group) == (group <= 7), f"G={group}: {exact}")
        centred = (1 - Fraction(1, group)) * SURE_OR_GAMBLE.gap / 2
        if group in known:
            low, high = exact.enclosure(60)
            require(round(low * 10**4) == round(high * 10**4) == known[group][0], f"G={group}")
            require(round(centred * 10**4) == known[group][1], f"G={group}: mean {centred}")
            found.append(f"G={group}: {float(exact):+.4f} (mean only {float(centred):+.4f})")
    return "; ".join(found) + f"; G=2 exactly {SURE_OR_GAMBLE.expected(2)}"


@step("smallest three-valued instances: size 3 for G = 2 to 6, size 4 for G = 7, 8")
def smallest() -> str:
    for group in range(2, 7):
        require(not any(i.wrong_sign(group) for i in instances(2)), f"G={group}, size 2")
        hits = [i for i in instances(3) if i.wrong_sign(group)]
        require(len(hits) == (4 if group < 6 else 2), f"G={group}: {len(hits)} of size 3")
        for hit in hits:
            reflected = hit if Fraction(1, 3) in hit.mixture() else _reflect(hit)
            laws = [{r: p for r, p in law.items() if p} for law in (reflected.x, reflected.y)]
            require(SMALLEST.x in laws and SMALLEST.y in laws, f"G={group}: another {hit}")
        require(SMALLEST.wrong_sign(group), f"G={group}")
    for group in (7, 8):
        require(not any(i.wrong_sign(group) for i in (*instances(2), *instances(3))), f"G={group}")
        sure = Arms(
            {Fraction(1, 4): Fraction(1)},
            {
                Fraction(0): Fraction(1, 2),
                Fraction(1, 4): Fraction(1, 4),
                Fraction(1): Fraction(1, 4),
            },
            Fraction(1, 2),
        )
        require(sure.wrong_sign(group), f"G={group}, size 4")
    values = ", ".join(f"{float(SMALLEST.expected(g)):+.4f}" for g in range(2, 7))
    return f"E[A | X] = {values} for G = 2..6, q_X - q_Y = {SMALLEST.gap}"


def _reflect(arms: Arms) -> Arms:
    x, y = ({1 - r: p for r, p in law.items()} for law in (arms.x, arms.y))
    return Arms(x, y, arms.pi_x)


@step("two turns, deterministic rewards: the smallest tree is the smallest bandit unrolled")
def two_turns() -> str:
    # Every first action has at most two deterministic rewards, drawn by the second turn.
    for group in range(2, 7):
        require(not any(i.wrong_sign(group) for i in instances(2) if _two_leaves(i)), f"G={group}")
        require(any(i.wrong_sign(group) for i in instances(3) if _two_leaves(i)), f"G={group}")
    return "r = [[1/3, 0], [1, 0]], pi_2 = (2/3, 1/3) and (1/3, 2/3), pi_1 = (2/3, 1/3)"


def _two_leaves(arms: Arms) -> bool:
    return all(sum(p > 0 for p in law.values()) <= 2 for law in (arms.x, arms.y))


def uniform_trees(leaves: int, size: int) -> Iterator[Arms]:
    """Two first actions with equally likely deterministic rewards in multiples of 1/size."""
    grid = [Fraction(k, size) for k in range(size + 1)]
    rows = list(itertools.combinations_with_replacement(grid, leaves))
    for x, y in itertools.combinations(rows, 2):
        laws = [{r: Fraction(row.count(r), leaves) for r in row} for row in (x, y)]
        yield Arms(laws[0], laws[1], Fraction(1, 2))


@step("two turns at uniform policies: none with two second actions, the smallest with three")
def uniform_policies() -> str:
    for group in range(2, 7):
        for size in range(1, 5):
            require(not any(i.wrong_sign(group) for i in uniform_trees(2, size)), f"G={group}")
        need = 3 if group < 6 else 4
        for size in range(1, need):
            require(not any(i.wrong_sign(group) for i in uniform_trees(3, size)), f"G={group}")
        require(any(i.wrong_sign(group) for i in uniform_trees(3, need)), f"G={group}, {need}")
    x, y = {Fraction(0): Fraction(1, 3), Fraction(1, 3): Fraction(2, 3)}, SMALLEST.y
    for group in range(2, 6):
        require(Arms(x, y, Fraction(1, 2)).wrong_sign(group), f"G={group}")
    return "rewards (0, 1/3, 1/3) against (0, 0, 1), G = 2..5; size 4 for G = 6"


@step("stops: binary rewards, two contexts, one shared logit; wrong sign at G = 8")
def shared_logit() -> str:
    true, expected = shared_logit_instance(8)
    require(true > 0 and expected.sign() < 0, f"true {true}, normalised {expected}")
    return f"true {true}, normalised {float(expected):+.4f}"


def shared_logit_instance(group: int) -> tuple[Fraction, Surd]:
    r"""$\sum_c \beta_c \, p (1-p) (q_{c,X} - q_{c,Y})$ and its normalised counterpart at p = 1/2.

    Context 1, weight 21/100: X always succeeds, Y never. Context 2: X never, Y with probability
    1/4.
    """
    half, zero, one = Fraction(1, 2), Fraction(0), Fraction(1)
    contexts = (
        (Fraction(21, 100), Arms({one: one, zero: zero}, {zero: one, one: zero}, half)),
        (
            Fraction(79, 100),
            Arms({zero: one, one: zero}, {one: Fraction(1, 4), zero: Fraction(3, 4)}, half),
        ),
    )
    true, expected = Fraction(0), Surd()
    for weight, arms in contexts:
        true += weight * arms.gap / 4
        # The two arms' expected advantages are opposite at pi = 1/2: their difference is twice X's.
        expected += arms.expected(group) * (2 * weight / 4)
    return true, expected


RESULTS = (
    Result(
        name="group-std-binary",
        statement="With two reward values, group-std normalisation multiplies the advantages of a "
        "context by D_G(V) > 0",
        source="arXiv:2402.03300; arXiv:2503.20783; arXiv:2602.06554 App. H.3",
        assumptions=("independent members", "two reward values", "one context at a time"),
        steps=(binary_closed_form, positivity, constant_slope, shared_logit),
        stops="a parameter shared by contexts (G >= 4); three reward values",
    ),
    Result(
        name="group-std-wrong-sign",
        statement="With three reward values group-std normalisation can give every advantage the "
        "wrong sign, in one turn or in two with deterministic rewards",
        source="arXiv:2602.06554 App. H.3",
        assumptions=("independent members", "sample standard deviation, divisor G - 1"),
        steps=(sure_or_gamble, smallest, two_turns, uniform_policies),
        stops="the wrong sign of a given instance ends at some G: the population scale is harmless",
    ),
)
