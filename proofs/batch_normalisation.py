r"""Batch normalisation: the exact bias of a finite batch, of order 1/(BG), and its leading term.

A batch has $B$ contexts with $G$ members each, $n = BG$; $\hat A = r - \bar r$ within a group,
$\tilde A = (\hat A - \mu_B) / \sigma_B$ with the mean $\mu_B$ and the sample standard deviation
$\sigma_B$ of the $n$ values, $\tilde A = 0$ where $\sigma_B = 0$. Each group's advantages sum to
0, so $\mu_B = 0$ and $\sigma_B^2 = S / (n - 1)$, $S = \sum_b S_b$, $S_b = \sum_i \hat A_{b,i}^2$.
$\sigma_B$ does not depend on the candidate policy; but it depends on the own reward.

**Theorem 1** (two reward values). For rewards in $\{0, 1\}$ and any batch,
$\mathbb E[\tilde A \mid c, a] = D_c \, (q_a - V_c)$ with
$$D_c = \frac{\mathbb E[S_c / \sigma_B]}{G \, V_c (1 - V_c)} > 0 :$$
within a context every sign is right; but $D_c$ differs between contexts in a finite batch.

**Theorem 2** (leading term). Let the groups be independent with one reward law, $y = r - V$,
variance $\sigma^2$, third and fourth central moments $\mu_3$, $\mu_4$. With $G$ fixed,
$$\mathbb E[\tilde A \mid a] = \sqrt{\frac{n-1}{n - B}} \, \frac{1}{\sigma} \Bigl(1 - \frac1G\Bigr)
\Bigl\{ (q_a - V) \Bigl(1 + \frac{c}{n}\Bigr) - \frac{\mathbb E[y^3 \mid a] - \mu_3}{2 \sigma^2 n}
+ O(n^{-2}) \Bigr\}, \qquad c = \frac{1}{8} \Bigl(\frac{3 \mu_4}{\sigma^4}
+ \frac{G - 3}{G - 1}\Bigr) .$$
The term in $c$ is a step size; the term in $y^3$ turns the direction, towards actions whose
rewards are skewed to the low side. *Proof.* Expand $S^{-1/2}$ at $\mathbb E S = B s$,
$s = (G-1) \sigma^2$: the first-order term sees the own group only, the second-order term is
$\frac38 \operatorname{Var}(S_1)/(B s^2)$ at leading order. Moments of independent centred
variables give both. The remainder is $O(B^{-2})$ as rewards are bounded and $S < Bs/2$ has a
probability that is exponentially small in $B$.

**Corollary.** Relative to a margin $q_a - V$ of fixed size the bias vanishes as $1/(BG)$, and in
the limit all contexts get one scale, unlike with a group's own std. But no finite batch is
unbiased in direction: with the arms "1/4 - δ surely" and "1 with probability 1/4", the worse one is
preferred up to $\delta = 1/(2n) + O(n^{-2})$, and for every checked $(B, G)$ at
$\delta = 1/(4n)$.

**Where it stops.** The term in $y^3$ is affine in $r$ for two reward values only. With several
reward laws in a batch the first-order term of context $c$ has $s$ averaged over contexts and the
moments of $c$: the scale differs between contexts by $O(1/n)$, and a shared parameter whose
gradient is smaller than that can get the wrong sign even with binary rewards.

**Source.** Hu et al., arXiv:2501.03262 (REINFORCE++); SeeUPO, arXiv:2602.06554, Alg. 1, App. H.3.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import factorial
from typing import Any

import sympy as sp

from proofs._base import Result, identical, require, step
from proofs._surds import enclose_roots, sign_of_roots

Law = Mapping[Fraction, Fraction]
Terms = list[tuple[Fraction, Fraction]]  # pairs (c, q) that stand for the sum of c * sqrt(q)


def _groups(law: Law, size: int) -> Iterator[tuple[Fraction, tuple[Fraction, ...]]]:
    """Multisets of `size` rewards with their probabilities."""
    for members in itertools.combinations_with_replacement(sorted(law), size):
        weight = Fraction(factorial(size))
        for value in set(members):
            count = members.count(value)
            weight *= law[value] ** count / factorial(count)
        if weight:
            yield weight, members


def _squares(members: Sequence[Fraction]) -> Fraction:
    mean = sum(members, Fraction(0)) / len(members)
    return sum(((r - mean) ** 2 for r in members), Fraction(0))


def squares_law(law: Law, group: int) -> dict[Fraction, Fraction]:
    r"""The distribution of $S_b$, the sum of squared advantages of one group."""
    found: dict[Fraction, Fraction] = {}
    for weight, members in _groups(law, group):
        key = _squares(members)
        found[key] = found.get(key, Fraction(0)) + weight
    return found


def convolve(left: Law, right: Law) -> dict[Fraction, Fraction]:
    """The distribution of a sum of two independent variables."""
    found: dict[Fraction, Fraction] = {}
    for (a, p), (b, q) in itertools.product(left.items(), right.items()):
        found[a + b] = found.get(a + b, Fraction(0)) + p * q
    return found


def given_reward(own: Fraction, law: Law, group: int, batch: int, rest: Law) -> Terms:
    r"""$\mathbb E[\tilde A_1 \mid r_1]$ as a sum of roots; `rest` is the law of the other $S_b$."""
    merged: dict[Fraction, Fraction] = {}
    for weight, others in _groups(law, group - 1):
        members = (own, *others)
        advantage = own - sum(members, Fraction(0)) / group
        square = _squares(members)
        for other, chance in rest.items():
            if square + other:
                inverse = (group * batch - 1) / (square + other)
                merged[inverse] = merged.get(inverse, Fraction(0)) + weight * chance * advantage
    return [(c, q) for q, c in merged.items() if c]


def others_law(laws: Sequence[Law], group: int) -> dict[Fraction, Fraction]:
    """The law of the summed $S_b$ of other contexts."""
    total: dict[Fraction, Fraction] = {Fraction(0): Fraction(1)}
    for law in laws:
        total = convolve(total, squares_law(law, group))
    return total


def given_arm(arm: Law, law: Law, group: int, batch: int, rest: Law | None = None) -> Terms:
    r"""$\mathbb E[\tilde A \mid \text{arm}]$ in a batch of contexts of one law."""
    rest = others_law([law] * (batch - 1), group) if rest is None else rest
    return [
        (chance * c, q)
        for own, chance in arm.items()
        for c, q in given_reward(own, law, group, batch, rest)
    ]


def _mean(law: Law) -> Fraction:
    return sum((r * p for r, p in law.items()), Fraction(0))


def _bernoulli(p: Fraction) -> dict[Fraction, Fraction]:
    return {Fraction(0): 1 - p, Fraction(1): p}


def _middle(terms: Terms) -> Fraction:
    low, high = enclose_roots(terms)
    return (low + high) / 2


@step("the mean of a batch is 0, and the summed rewards of a group give S_b, symbolic, G to 6")
def pathwise() -> str:
    for group in range(2, 7):
        rewards = sp.symbols(f"r_1:{group + 1}")
        mean = sum(rewards) / sp.Integer(group)
        advantages = [r - mean for r in rewards]
        identical(sum(advantages), 0, f"G={group}: sum")
        identical(
            sum(a * r for a, r in zip(advantages, rewards, strict=True)),
            sum(a**2 for a in advantages),
            f"G={group}: sum of A r",
        )
    return "sum_i A_i = 0 and sum_i A_i r_i = sum_i A_i^2"


@step("binary rewards: E[A | c, a] = D_c (q_a - V_c), two contexts, G = 2, 3, 4, exact")
def binary() -> str:
    laws = [_bernoulli(Fraction(1, 2)), _bernoulli(Fraction(1, 5))]
    for group, own in itertools.product((2, 3, 4), (0, 1)):
        law, other = laws[own], laws[1 - own]
        value, rest = law[Fraction(1)], squares_law(laws[1 - own], group)
        given = {r: given_reward(r, law, group, 2, rest) for r in law}
        weighted = [(c * law[r], q) for r, terms in given.items() for c, q in terms]
        require(_collect(weighted) == {}, f"G={group}: the mean over rewards is not 0")
        # D_c times V(1 - V), both as roots: E[S_c / sigma_B] / G.
        slope = [(c, q) for c, q in given[Fraction(1)]] + [(-c, q) for c, q in given[Fraction(0)]]
        scaled: dict[Fraction, Fraction] = {}
        for (s, p), (t, u) in itertools.product(
            squares_law(law, group).items(), squares_law(other, group).items()
        ):
            if s:
                key = (2 * group - 1) / (s + t)
                scaled[key] = scaled.get(key, Fraction(0)) + p * u * s / group
        left = _collect([(c * value * (1 - value), q) for c, q in slope])
        require(left == _collect([(c, q) for q, c in scaled.items()]), f"G={group}: slope")
        require(all(c > 0 for c in scaled.values()), "D_c is a sum of positive terms")
    return "D_c = E[S_c / sigma_B] / (G V_c (1 - V_c)) > 0"


def _collect(terms: Terms) -> dict[Fraction, Fraction]:
    total: dict[Fraction, Fraction] = {}
    for c, q in terms:
        total[q] = total.get(q, Fraction(0)) + c
    return {q: c for q, c in total.items() if c}


@step("first-order term: E[A S_own | y] by moments of independent variables, symbolic G")
def first_order() -> str:
    y, size, var, third = sp.symbols("y G sigma2 mu3")
    u, w = sp.symbols("U W")  # sum and sum of squares of the other members' y
    moments = {  # E[U^i W^j] of G - 1 independent centred variables
        (0, 0): 1,
        (1, 0): 0,
        (0, 1): (size - 1) * var,
        (2, 0): (size - 1) * var,
        (1, 1): (size - 1) * third,
        (3, 0): (size - 1) * third,
    }
    advantage = (1 - 1 / size) * y - u / size
    squares = y**2 + w - (y + u) ** 2 / size
    polynomial = sp.Poly(sp.expand(advantage * squares), u, w)
    found = sum(c * moments[powers] for powers, c in polynomial.terms())
    claimed = ((size - 1) / size) ** 2 * (y**3 - third) + y * var * (size - 1) * (
        (size - 1) ** 2 + 2
    ) / size**2
    identical(found, claimed, "E[A S_own | y]")
    return "((G-1)/G)^2 (y^3 - mu_3) + y sigma^2 (G-1) ((G-1)^2 + 2) / G^2"


@step("the coefficient c and the skewness term of theorem 2, symbolic G and moments")
def leading_term() -> str:
    y, size, batch, var, third, fourth = sp.symbols("y G B sigma2 mu3 mu4", positive=True)
    n, s = size * batch, (size - 1) * var
    spread = (size - 1) ** 2 * (fourth / size - var**2 * (size - 3) / (size * (size - 1)))
    own = ((size - 1) / size) ** 2 * (y**3 - third) + y * var * (size - 1) * (
        (size - 1) ** 2 + 2
    ) / size**2
    mean = (1 - 1 / size) * y
    # Taylor coefficients of x^(-1/2) at 1: -1/2 and 3/8.
    x = sp.Symbol("x")
    series = sp.series((1 + x) ** sp.Rational(-1, 2), x, 0, 3).removeO()
    identical(series, 1 - x / 2 + sp.Rational(3, 8) * x**2, "Taylor")
    first = -(own - mean * s) / (2 * batch * s)
    second = sp.Rational(3, 8) * spread / (batch * s**2) * mean
    c = (3 * fourth / var**2 + (size - 3) / (size - 1)) / 8
    claimed = (1 - 1 / size) * (y * c / n - (y**3 - third) / (2 * var * n))
    identical(first + second, claimed, "leading term")
    return "c = (3 mu_4 / sigma^4 + (G-3)/(G-1)) / 8; direction: -(y^3 - mu_3) / (2 sigma^2 n)"


@step("variance of S_b, by moments, G = 2 to 5")
def spread_of_squares() -> str:
    var, third, fourth = sp.symbols("sigma2 mu3 mu4")
    moments = {0: 1, 1: 0, 2: var, 3: third, 4: fourth}
    for group in range(2, 6):
        ys = sp.symbols(f"y_1:{group + 1}")
        squares = sum(v**2 for v in ys) - sum(ys) ** 2 / sp.Integer(group)
        first = _expectation(squares, ys, moments)
        second = _expectation(squares**2, ys, moments)
        identical(first, (group - 1) * var, f"G={group}: mean")
        claimed = (group - 1) ** 2 * (
            fourth / group - var**2 * sp.Rational(group - 3, group * (group - 1))
        )
        identical(second - first**2, claimed, f"G={group}: variance")
    return "(G-1)^2 (mu_4 / G - sigma^4 (G-3) / (G (G-1)))"


def _expectation(expression: Any, variables: Sequence[Any], moments: Mapping[int, Any]) -> Any:
    total: Any = 0
    for powers, c in sp.Poly(sp.expand(expression), *variables).terms():
        for power in powers:
            c = c * moments[power]
        total += c
    return sp.expand(total)


@step("exact enumeration: the remainder after the leading term is O(n^-2)", kind="numerical")
def rate() -> str:
    law = {Fraction(0): Fraction(1, 2), Fraction(1): Fraction(1, 4), Fraction(3): Fraction(1, 4)}
    found = []
    for group in (2, 3):
        for own in law:
            scaled = [abs(float(remainder(law, own, group, batch))) for batch in (8, 16, 32)]
            bias = [float(leading(law, own, group, batch)) for batch in (8, 16, 32)]
            # A remainder of order n^-2 falls by 4 when n doubles; one of order 1/n, by 2.
            for small, large in itertools.pairwise(scaled):
                require(small > 3 * large, f"G={group}, r={own}: {small} to {large}")
            found.append(max(s / abs(b) for s, b in zip(scaled, bias, strict=True)))
    return f"falls more than threefold per doubling of B; at most {max(found):.2f} of the bias"


def _moments(law: Law) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    mean = _mean(law)
    central = [sum((p * (r - mean) ** k for r, p in law.items()), Fraction(0)) for k in (2, 3, 4)]
    return mean, central[0], central[1], central[2]


def leading(law: Law, own: Fraction, group: int, batch: int) -> Fraction:
    """The bracket's terms of order 1/n in theorem 2, given the own reward."""
    mean, var, third, fourth = _moments(law)
    y, n = own - mean, group * batch
    c = (3 * fourth / var**2 + Fraction(group - 3, group - 1)) / 8
    return y * c / n - (y**3 - third) / (2 * var * n)


def remainder(law: Law, own: Fraction, group: int, batch: int) -> Fraction:
    """What is left of the bracket of theorem 2 after its leading terms, to 100 bits."""
    mean, var, _, _ = _moments(law)
    rest = others_law([law] * (batch - 1), group)
    n = group * batch
    # Divide by sqrt((n-1)/(n-B)) / sigma (1 - 1/G), inside the roots.
    factor = Fraction(n - batch, n - 1) * var
    terms = [(c, q * factor) for c, q in given_reward(own, law, group, batch, rest)]
    bracket = _middle(terms) / (1 - Fraction(1, group))
    return bracket - (own - mean) - leading(law, own, group, batch)


@step("no finite batch is unbiased: the worse arm preferred at margin 1/(4n), B G up to 32")
def every_batch() -> str:
    shapes = [(1, 2), (1, 3), (1, 4), (1, 8), (2, 2), (2, 4), (4, 2), (4, 4), (8, 2), (16, 2)]
    for batch, group in shapes:
        n = batch * group
        true, sign = skewed_arms(Fraction(1, 4 * n), group, batch)
        require(true < 0 < sign, f"B={batch}, G={group}: true {true}, sign {sign}")
        true, sign = skewed_arms(Fraction(4, n), group, batch)
        require(true < 0 and sign < 0, f"B={batch}, G={group}: margin 4/n, sign {sign}")
    return f"{len(shapes)} shapes; at margin 4/n every sign is right"


def skewed_arms(margin: Fraction, group: int, batch: int) -> tuple[Fraction, int]:
    r"""$q_X - V$ and the sign of $\mathbb E[\tilde A \mid X]$ at $\pi = (1/2, 1/2)$.

    X pays 1/4 - margin surely, Y pays 1 with probability 1/4.
    """
    half = Fraction(1, 2)
    sure = {Fraction(1, 4) - margin: Fraction(1)}
    gamble = _bernoulli(Fraction(1, 4))
    law: dict[Fraction, Fraction] = {}
    for arm in (sure, gamble):
        for r, p in arm.items():
            law[r] = law.get(r, Fraction(0)) + half * p
    return -half * margin, sign_of_roots(given_arm(sure, law, group, batch))


@step("stops: two contexts with binary rewards and one logit; wrong sign, B = G = 2")
def shared_logit() -> str:
    true, sign, value = shared_logit_instance()
    require(true > 0 > sign, f"true {true}, sign {sign}")
    return f"true {true}, normalised {value:+.4f}"


def shared_logit_instance() -> tuple[Fraction, int, float]:
    r"""$\sum_c p (1-p) (q_{c,X} - q_{c,Y})$ and its normalised counterpart, p = 1/2, B = G = 2.

    Context 1: X succeeds with probability 1/4, Y never. Context 2: X succeeds with probability
    19/50, Y with 31/50. The context with the larger variance gets the larger scale.
    """
    group = 2
    contexts = (
        (Fraction(1, 4), Fraction(0)),
        (Fraction(1, 2) - Fraction(3, 25), Fraction(1, 2) + Fraction(3, 25)),
    )
    laws = [_bernoulli((x + y) / 2) for x, y in contexts]
    true, terms = Fraction(0), []
    for own, (x, y) in enumerate(contexts):
        rest = squares_law(laws[1 - own], group)
        true += (x - y) / 4
        for r, difference in ((Fraction(1), x - y), (Fraction(0), y - x)):
            terms += [
                (difference * c / 4, q)
                for c, q in given_reward(r, laws[own], group, len(contexts), rest)
            ]
    return true, sign_of_roots(terms), float(_middle(terms))


RESULTS = (
    Result(
        name="batch-normalisation-bias",
        statement="Batch normalisation scales a context's advantages and turns them by "
        "-(E[y^3 | a] - mu_3) / (2 sigma^2 B G), up to O((B G)^-2)",
        source="arXiv:2501.03262; arXiv:2602.06554 Alg. 1, App. H.3",
        assumptions=(
            "independent members and contexts, bounded rewards",
            "group-mean baseline, sample standard deviation of the batch, no epsilon",
        ),
        steps=(
            pathwise,
            binary,
            first_order,
            spread_of_squares,
            leading_term,
            every_batch,
            shared_logit,
        ),
        stops="unbiased in direction only as B G grows; binary rewards a context at a time",
    ),
    Result(
        name="batch-normalisation-rate",
        statement="Enumerated bias of finite batches: what is left after the leading term falls "
        "as (B G)^-2",
        source="the leading term of batch-normalisation-bias",
        assumptions=("a law of three rewards", "G = 2, 3 and B = 8, 16, 32"),
        steps=(rate,),
        stops="three doublings of B, not a limit: the limit is the expansion's",
    ),
)
