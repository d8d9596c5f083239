r"""Drift functionals: what each surrogate and penalty subtracts, and whether that is a drift.

HAML updates by $\arg\max_{\bar\pi} \mathbb E_{\bar\pi}[A^\pi(s, a)] - D_\pi(\bar\pi \mid s)$, where
$D_\pi$ must be a *drift functional*: (i) $D_\pi(\bar\pi \mid s) \ge 0$, (ii) $D_\pi(\pi \mid s) = 0$,
(iii) every directional (Gateaux) derivative at $\bar\pi = \pi$ is 0. Then the maximiser has
$\mathbb E_{\bar\pi}[A^\pi] \ge D \ge 0$, hence improvement. Directions are $\delta$ with $\sum_a
\delta(a) = 0$; $\pi$ is positive.

**Theorem 1** (clip). For every estimator $\hat A$, $M = \hat A \cdot$ (factors of updated turns),

$$D^{\text{clip}}(\bar\pi) = \mathbb E[\rho M - \min(\rho M, \operatorname{clip}(\rho) M)]
= \sum_a \pi(a) \bigl( E^+_a (\rho_a - 1 - \varepsilon^+)^+ + E^-_a (1 - \varepsilon^- - \rho_a)^+
\bigr)$$

is a drift functional, $E^\pm_a = \mathbb E[M^\pm \mid a]$. It is 0 as long as all ratios are in the
clip range, so that (iii) holds with room to spare; with $\varepsilon^+ = 0$ or $\varepsilon^- = 0$
it has a kink at $\pi$ and (iii) fails.

**Theorem 2** (the estimator). So the clipped surrogate is $\mathbb E_{\bar\pi}[g] - D^{\text{clip}}$
up to a constant, with $g(a) = \mathbb E[\hat A \mid s, a]$. It has HAML's form with the *true*
advantage, $c\,\mathbb E_{\bar\pi}[A^\pi] - D$ with $c > 0$ and a drift $D$, if and only if
$g = c A^\pi + b$, $b$ constant in $a$. At $s$:

| estimator | $g = c A + b$ | $c$ |
|---|---|---|
| mean of the group | yes | $1 - 1/G$ |
| leave-one-out, none | yes | 1 |
| mean of a batch of $n$ | yes | $1 - 1/n$ |
| population std, of the group's context | yes | $1/\sigma(s)$: differs between contexts |
| population std of the batch | yes | $(1 - 1/G)/\sigma$, one number |
| std of a finite group, two reward values | yes | $D_G(V(s))$: differs between contexts |
| std of a finite group, three values | no | |
| std of a finite batch, three values | no, up to $O(1/n)$ | |
| batch std, then clamped to $\pm 3$, three values | no | |

*Proof of "if and only if".* $D = c\,\mathbb E_{\bar\pi}[A] - (\mathbb E_{\bar\pi}[g] - \mathbb
E_\pi[g]) + D^{\text{clip}}$ has the derivative $\sum_a \delta(a)(c A - g)(a)$ at $\pi$, which
vanishes for all $\delta$ exactly if $cA - g$ is constant; then $D = D^{\text{clip}}$.

**Theorem 3** (KL). $\operatorname{KL}(\bar\pi \| \pi)$ and $\operatorname{KL}(\pi \| \bar\pi)$ are
drift functionals: with $x = \bar\pi/\pi$ they are $\sum_a \pi f(x)$ for $f = x \log x - x + 1$ and
$x - 1 - \log x$. Of the sample estimators of a penalty towards $\pi$, averaged over samples of $\pi$
without reweighting, k2 ($f = \frac12 \log^2 x$) and k3 ($f = 1/x - 1 + \log x$) are drift
functionals; k1 ($f = \log x$) is $-\operatorname{KL}(\pi \| \bar\pi)$, which is *negative*. A penalty
towards a fixed reference other than $\pi$ is no drift, whatever the estimator: at $\bar\pi = \pi$
it is positive and has a slope. What then improves is $J - \beta \operatorname{KL}$, not $J$.

**What it says about normalisation** (SeeUPO, App. H.3). The statement that a group std breaks the
drift conditions is right for three reward values, but not because the scale depends on the state:
a state-dependent scale alone (population std, two reward values) keeps them at every state and
only reweights the states, which matters as soon as they share parameters. What breaks them is
that the scale depends on the own reward. A batch std keeps them in the limit only, and the
clamp of the official code breaks them again: with it a sure 1 is preferred to 30 with probability
1/20 (stored certificate).

**Where it stops.** Finite action sets, positive $\pi$, exact expectations, rows that are not shared.

**Source.** Kuba et al. 2022, arXiv:2201.02373 (mirror learning); Zhong et al., arXiv:2304.09870
(HAML); SeeUPO, arXiv:2602.06554, Eq. 3, Theorem 1, App. H.3.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import sympy as sp

from proofs._base import Result, identical, require, step
from proofs._surds import Surd
from proofs.clipped_lower_bound import clipped, lemma
from proofs.group_std import SURE_OR_GAMBLE, binary_slope, given_reward

CLAMPED = Path(__file__).parent / "certificates" / "seeupo-official-clamp-wrong-sign.json"
Law = Mapping[Fraction, Fraction]

# Theorem 1 --------------------------------------------------------------------------------------


def clip_drift(
    old: Sequence[Any],
    new: Sequence[Any],
    plus: Sequence[Any],
    minus: Sequence[Any],
    low: Any = Fraction(1, 5),
    high: Any = Fraction(1, 5),
) -> Any:
    r"""$\sum_a \pi(a) (E^+_a (\rho_a - 1 - \varepsilon^+)^+ + E^-_a (1 - \varepsilon^- - \rho_a)^+)$.

    >>> clip_drift([Fraction(1, 2)] * 2, [Fraction(3, 4), Fraction(1, 4)], [1, 0], [0, 1])
    Fraction(3, 10)
    """
    total: Any = 0
    for p, q, up, down in zip(old, new, plus, minus, strict=True):
        rho = q / p
        total += p * (up * max(rho - 1 - high, 0) + down * max(1 - low - rho, 0))
    return total


@step("the drift of the clip is the sum of both sides' gaps, for random estimates of either sign")
def clip_drift_formula() -> str:
    """E[rho M - min(...)] by its definition, against E+ and E-, with three values of M per action."""
    values = [Fraction(-2), Fraction(1, 3), Fraction(1)]
    chance = [Fraction(1, 6), Fraction(1, 3), Fraction(1, 2)]
    plus = sum(p * max(m, Fraction(0)) for m, p in zip(values, chance, strict=True))
    minus = sum(p * max(-m, Fraction(0)) for m, p in zip(values, chance, strict=True))
    for n in range(1, 60):
        rho = Fraction(n, 20)
        direct = sum(p * (rho * m - clipped(rho, m)) for m, p in zip(values, chance, strict=True))
        found = clip_drift([Fraction(1)], [rho], [plus], [minus])
        require(direct == found >= 0, f"rho = {rho}: {direct}, {found}")
    return "59 ratios, an estimate with values of both signs"


@step("(ii), (iii): the drift of the clip is 0 in a neighbourhood of pi, in every direction")
def clip_conditions() -> str:
    """rho - 1 = (1 - u) eps is every ratio inside the clip as u runs over [0, 1 + ...]."""
    plus, minus, u = sp.symbols("E_+ E_- u", nonnegative=True)
    low, high = sp.symbols("epsilon_- epsilon_+", positive=True)
    for rho in (1 + (1 - u) * high, 1 - (1 - u) * low):
        above = sp.Max(sp.expand(rho - 1 - high), 0)
        below = sp.Max(sp.expand(1 - low - rho), 0)
        gap = plus * above if rho.has(high) else minus * below
        identical(gap, 0, "the side that the direction can reach")
    # pi(a) > 0: along pi + t delta every ratio is inside for t <= min_a eps pi(a) / |delta(a)|.
    p, d, t = sp.symbols("p d t", positive=True)
    limit = high * p / d
    identical(sp.Max(sp.expand((1 + limit * d / p) - 1 - high), 0), 0, "at the largest t")
    identical(sp.diff((p + t * d) / p, t), d / p, "the ratio moves by t d / p")
    return "value 0 and all derivatives 0"


@step("stops: with a clip range of 0 the derivative is not 0")
def no_clip_range() -> str:
    t, plus = sp.symbols("t E_+", positive=True)
    gap = plus * sp.Max((1 + t) - 1, 0)
    identical(sp.limit(gap / t, t, 0, "+"), plus, "slope at the kink")
    return "(iii) fails with slope E[M^+ | a]"


@step("with a drift, the maximiser improves: D >= 0 = value at pi", kind="exact")
def improvement() -> str:
    """arg max of E[A] - D over a grid of policies, by exhaustion, for a few advantages."""
    grid = [
        (Fraction(i, 12), Fraction(j, 12), Fraction(12 - i - j, 12))
        for i in range(13)
        for j in range(13 - i)
    ]
    old = (Fraction(1, 6), Fraction(1, 3), Fraction(1, 2))
    for raw in itertools.product((-1, 0, 2), repeat=3):
        mean = sum(p * Fraction(x) for p, x in zip(old, raw, strict=True))
        advantage = [Fraction(x) - mean for x in raw]
        plus, minus = ([max(s * x, Fraction(0)) for x in advantage] for s in (1, -1))

        def gain(new: Sequence[Fraction], advantage: Sequence[Fraction] = advantage) -> Fraction:
            return sum((q * x for q, x in zip(new, advantage, strict=True)), Fraction(0))

        best = max(grid, key=lambda new: gain(new) - clip_drift(old, new, plus, minus))
        require(gain(best) >= clip_drift(old, best, plus, minus) >= 0, f"{raw}: {best}")
    return f"27 advantages, {len(grid)} policies"


# Theorem 2 --------------------------------------------------------------------------------------


@step("D is a drift for some c if and only if g = c A + b: the derivative, 2 to 4 actions")
def linear_part() -> str:
    c, b = sp.symbols("c b", real=True)
    for size in range(2, 5):
        advantage = sp.symbols(f"A_0:{size}", real=True)
        g = sp.symbols(f"g_0:{size}", real=True)
        delta = [*sp.symbols(f"d_0:{size - 1}", real=True)]
        delta.append(-sum(delta))
        slope = sum(d * (c * x - y) for d, x, y in zip(delta, advantage, g, strict=True))
        free = delta[:-1]
        conditions = [sp.diff(slope, d) for d in free]
        identical(slope - sum(d * k for d, k in zip(free, conditions, strict=True)), 0, "linear")
        for k, x, y in zip(conditions, advantage, g, strict=False):
            identical(k, (c * x - y) - (c * advantage[-1] - g[-1]), "condition")
        inside = dict(zip(g, [c * x + b for x in advantage], strict=True))
        identical(slope.subs(inside), 0, "sufficient")
    return "derivative 0 in all directions <=> c A - g is constant in the action"


@step("group mean, leave-one-out and batch mean: g = c A + b with c = 1 - 1/G, 1, 1 - 1/n")
def means() -> str:
    q, v, size, other = sp.symbols("q V G V_other", real=True)
    advantage = q - v
    identical(q - (q + (size - 1) * v) / size, (1 - 1 / size) * advantage, "group mean")
    identical(q - (size - 1) * v / (size - 1), advantage, "leave-one-out")
    batch = sp.Symbol("B", positive=True)
    n = batch * size
    mean = (q + (size - 1) * v + (batch - 1) * size * other) / n
    found = sp.expand(q - mean - (1 - 1 / n) * advantage)
    identical(sp.diff(found, q), 0, "batch mean: the rest does not depend on the action")
    return "b = 0 for the first two; (1 - 1/B)(V - V_other) for the batch"


@step("population std: one c for a batch, 1/sigma(s) for a context")
def population_std() -> str:
    q, v, sigma, size, eps = sp.symbols("q V sigma G epsilon", positive=True)
    for factor in (1, 1 - 1 / size):  # an infinite group; finite groups of an infinite batch
        estimate = factor * (q - v) / (sigma + eps)
        identical(sp.diff(estimate, q), factor / (sigma + eps), "c")
        identical(estimate.subs(q, v), 0, "b")
    rewards, weights = (Fraction(1), Fraction(-2)), (Fraction(3, 5), Fraction(2, 5))
    shared = sum(w * r for w, r in zip(weights, rewards, strict=True))
    scaled = sum(w * (1 if r > 0 else -1) for w, r in zip(weights, rewards, strict=True))
    require(shared < 0 < scaled, "the sum over states may change its sign")
    return f"with shared parameters the weights 1/sigma(s) turn {shared} into {scaled}"


@step("finite group std, two values: c = D_G(V) > 0, and it differs between contexts from G = 4")
def two_values() -> str:
    p = sp.Symbol("p", positive=True)
    for group in (2, 3, 4, 5):
        scale = binary_slope(group, p)
        at = [scale.subs(p, x) for x in (sp.Rational(1, 10), sp.Rational(1, 2))]
        require(all(sp.N(x, 30) > 0 for x in at), f"G = {group}")
        same = sp.simplify(at[0] - at[1]) == 0
        require(same == (group <= 3), f"G = {group}: {at}")
    return "the scale depends on the state, the conditions hold at every state"


@step("finite group std, three values: no c > 0 makes D a drift, for G = 2 to 7")
def three_values() -> str:
    gap = SURE_OR_GAMBLE.gap
    for group in range(2, 8):
        slope = group_std_slope(group)
        # c (A_X - A_Y) - (g_X - g_Y) < 0 for every c > 0: both terms have that sign.
        require(gap < 0 and slope.sign() > 0, f"G = {group}")
    return "towards the sure arm D falls below 0 from D(pi) = 0, whatever c > 0"


def group_std_slope(group: int) -> Surd:
    r"""$g_X - g_Y$ of the sure arm and the gamble at $\pi = (1/2, 1/2)$, exactly."""
    given = given_reward(SURE_OR_GAMBLE.mixture(), group)
    total = Surd()
    for law, side in ((SURE_OR_GAMBLE.x, 1), (SURE_OR_GAMBLE.y, -1)):
        for reward, chance in law.items():
            total = total + given[reward] * (side * chance)
    return total


@step("batch std clamped to 3: no c > 0 makes D a drift (certificate re-checked)")
def clamped() -> str:
    from proofs.verifier import verify

    certificate = json.loads(CLAMPED.read_text(encoding="utf-8"))
    verdict = verify(certificate)
    require(verdict.accepted, verdict.message)
    algorithm, claim = certificate["algorithm"], certificate["claim"]
    require(algorithm["advantage_clip"] == "3" and algorithm["normalise"] == "batch", "algorithm")
    return f"true advantage {claim['exact']}, expected estimate in {claim['expected']}"


# Theorem 3 --------------------------------------------------------------------------------------

X = sp.Symbol("x", positive=True)
PER_SAMPLE = {
    "KL(new||old)": X * sp.log(X) - X + 1,
    "KL(old||new)": X - 1 - sp.log(X),
    "k2": sp.log(X) ** 2 / 2,
    "k3": 1 / X - 1 + sp.log(X),
}
r"""Functions $f$ of $x = \bar\pi/\pi$ with $D = \sum_a \pi(a) f(x_a)$."""


@step("both KL divergences are such sums: the added terms cancel, 2 to 4 actions")
def kl_sums() -> str:
    for size in range(2, 5):
        old = sp.symbols(f"p_0:{size - 1}", positive=True)
        new = sp.symbols(f"n_0:{size - 1}", positive=True)
        p, n = ([*row, 1 - sum(row)] for row in (old, new))
        forward = sum(b * (sp.log(b / a)) for a, b in zip(p, n, strict=True))
        reverse = sum(a * (-sp.log(b / a)) for a, b in zip(p, n, strict=True))
        for name, divergence in (("KL(new||old)", forward), ("KL(old||new)", reverse)):
            found = sum(a * PER_SAMPLE[name].subs(X, b / a) for a, b in zip(p, n, strict=True))
            identical(sp.expand(found), sp.expand(divergence), f"{name}, {size} actions")
    return "sum (new - old) = 0"


@step("KL, k2 and k3: f(1) = f'(1) = 0 and f >= 0, hence (i), (ii), (iii)")
def kl_conditions() -> str:
    for name, f in PER_SAMPLE.items():
        identical(f.subs(X, 1), 0, f"{name}: value")
        identical(sp.diff(f, X).subs(X, 1), 0, f"{name}: derivative")
    identical(sp.diff(PER_SAMPLE["KL(new||old)"], X, 2), 1 / X, "convex: f'' = 1/x > 0")
    identical(sp.diff(PER_SAMPLE["KL(old||new)"], X, 2), 1 / X**2, "convex: f'' = 1/x^2 > 0")
    identical(sp.diff(PER_SAMPLE["k3"], X), (X - 1) / X**2, "k3 falls before 1, rises after it")
    root = sp.log(X) / sp.sqrt(2)
    identical(root**2, PER_SAMPLE["k2"], "k2 is a square")
    return "minimum 0 at x = 1 of a convex, unimodal or squared function"


@step("k1 averaged over old samples is -KL(old||new): negative, no drift")
def k1() -> str:
    old, new = (Fraction(1, 2), Fraction(1, 2)), (Fraction(3, 4), Fraction(1, 4))
    product = Fraction(1)  # sum 1/2 log x = 1/2 log(prod x)
    for p, n in zip(old, new, strict=True):
        product *= n / p
    require(product < 1, f"prod x = {product}")
    identical(sp.log(X) + PER_SAMPLE["KL(old||new)"], X - 1, "log x = -(x - 1 - log x) + (x - 1)")
    return f"at (3/4, 1/4) from (1/2, 1/2): log({product})/2 < 0"


@step("a fixed reference: positive at pi and with a slope, unless it is pi")
def fixed_reference() -> str:
    p, r, n = sp.symbols("p r n", positive=True)
    penalty = n * sp.log(n / r) + (1 - n) * sp.log((1 - n) / (1 - r))
    slope = sp.diff(penalty, n).subs(n, p)
    identical(
        sp.expand_log(slope, force=True),
        sp.expand_log(sp.log(p * (1 - r) / (r * (1 - p))), force=True),
        "slope",
    )
    identical(slope.subs(r, p), 0, "no slope if the reference is pi")
    at = penalty.subs({n: sp.Rational(1, 2), r: sp.Rational(1, 4)})
    require(
        sp.N(at, 30) > 0 and sp.N(slope.subs({p: sp.Rational(1, 2), r: sp.Rational(1, 4)})) > 0, ""
    )
    return f"pi = 1/2, reference 1/4: value {sp.simplify(at)}, slope log 3"


@step("with a fixed reference the best step can lower J, in fractions of exp")
def fixed_reference_lowers() -> str:
    """max of n - KL(n || 1/10) / eta over n is n proportional to r exp(eta A): below p = 9/10."""
    # logit(n) = logit(1/10) + eta with eta = 1: odds e/9 < 9 because e < 3.
    odds_above = Fraction(3, 9)
    require(odds_above < Fraction(9), "odds after the step")
    n, r, eta = sp.symbols("n r eta", positive=True)
    objective = n - (n * sp.log(n / r) + (1 - n) * sp.log((1 - n) / (1 - r))) / eta
    best = r * sp.exp(eta) / (r * sp.exp(eta) + 1 - r)
    identical(sp.simplify(sp.diff(objective, n).subs(n, best)), 0, "stationary")
    return "J = P(a), from 9/10 with reference 1/10 and eta = 1 to at most 1/4"


RESULTS = (
    Result(
        name="drift-functionals",
        statement="The clip's drift is a drift functional for every estimator; the surrogate has "
        "HAML's form with the true advantage exactly where E[estimate | a] = c A + b, c > 0",
        source="arXiv:2201.02373; arXiv:2304.09870; arXiv:2602.06554 Eq. 3, Theorem 1, App. H.3",
        assumptions=(
            "finite actions, a positive current policy, rows of their own",
            "exact expectations",
            "positive clip ranges",
        ),
        steps=(
            lemma,
            clip_drift_formula,
            clip_conditions,
            no_clip_range,
            improvement,
            linear_part,
            means,
            population_std,
            two_values,
            three_values,
            clamped,
            kl_sums,
            kl_conditions,
            k1,
            fixed_reference,
            fixed_reference_lowers,
        ),
        stops="a finite group's std with three reward values, clamped advantages, a KL penalty to "
        "a fixed reference, k1 as a penalty, a clip range of 0",
    ),
)
