r"""Shared parameters: what the group std, the order of turns and the step size do to them.

**Theorem 1** (sign flip). Two contexts with weights $w = (3/5, 2/5)$ and reward gaps $(+1, -2)$
between two actions share one logit $\theta$, $p = 1/2$. Then $\partial J / \partial\theta =
\frac14(w_1 - 2 w_2) = -\frac1{20}$, but normalising by a context's own std gives

$$\mathbb E[\hat g] = \tfrac14 D_G(\tfrac12)\,(w_1 - w_2) = \tfrac{1}{20} D_G(\tfrac12) > 0$$

for every $G \ge 2$ ($D_G$: see ``group_std``; $D_\infty = 2$, so $+\frac1{10}$). The scale forgets
the size of the gap, which only a shared parameter notices.

**Theorem 2** (one SeeUPO iteration lowers $J$). By Eq. 6-9 with one logit for both turns and
$r = \binom{0\;2}{0\;1}$, $J(p) = 1 - p^2$, one iteration from $p = 1/2$ (step 1/2, 20 steps a turn,
$\varepsilon = 1/5$) lowers $J$ from 3/4 to less than 0.63, although both turns raise their own
surrogates; and one iteration of the official variant lowers $J$ for
$r = \binom{0\;1}{2\;0}$. (Certificates, re-checked here.)

**Theorem 3** (no step size is small enough at an optimum). Let $\tilde J(\theta_1, \dots, \theta_T)$
be the value when turn $t$ follows $\theta_t$, $J(\theta) = \tilde J(\theta, \dots, \theta)$, and
$g_t = \partial_t \tilde J$. Inside the clip, a sweep of single gradient steps is block-wise ascent
on $\tilde J$ from the latest shared $\theta$. For $T = 2$ in reverse order it moves a stationary
point $\theta^*$ of $J$ (where $g_1 + g_2 = 0$) by

$$\Delta\theta = \eta^2 f'(\theta^*)\, g_2 + O(\eta^3), \quad f(\theta) = g_1(\theta, \theta), \qquad
\Delta J = \tfrac12 \eta^4\, \langle f' g_2, \nabla^2 J\, f' g_2 \rangle + O(\eta^5) .$$

So a strict local maximum of $J$ at which the turns' gradients cancel without vanishing is left,
downhill, at *every* small step $\eta$, and the sweep's own resting point is at
$\theta^* - \eta\, (\nabla^2 J)^{-1} f' g_2 + O(\eta^2)$. The simultaneous update rests at $\theta^*$.
*Proof.* Taylor: $\Delta\theta = \eta g_2 + \eta f(\theta^* + \eta g_2)$ and $f(\theta^*) = -g_2$.

**What it says.** That Eq. 8's product matches the expectation of Eq. 4 although the turns share
$\theta$ is true of the expectation; the theorem of monotone improvement does not follow, because
a turn's update also moves the turns already done. It returns for steps that are small compared
with the gradient (``shared_step_bound``).

**Where it stops.** These are instances: sharing need not hurt. For what survives it at any step see
``trajectory_bound``.

**Source.** SeeUPO, arXiv:2602.06554, Eq. 4-9, Theorem 1, App. H.3 and its official code.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import sympy as sp

from proofs._base import Result, identical, require, step
from proofs._trees import paths
from proofs.group_std import binary_slope

FOLDER = Path(__file__).parent / "certificates"
BITS = 128
CLIP = Fraction(1, 5)

# Theorem 1 --------------------------------------------------------------------------------------

WEIGHTS, GAPS = (Fraction(3, 5), Fraction(2, 5)), (Fraction(1), Fraction(-2))


@step("sign flip: dJ = -1/20, and D_G(1/2)/20 > 0 for G = 2 to 16 and the population")
def sign_flip() -> str:
    true = sum(w * g for w, g in zip(WEIGHTS, GAPS, strict=True)) / 4
    require(true == Fraction(-1, 20), f"dJ = {true}")
    found = []
    for group in range(2, 17):
        flipped = normalised_gradient(group)
        require(sp.N(flipped, 30) > 0, f"G = {group}")
        if group in (2, 4, 8):
            found.append(f"G={group}: {float(flipped):+.4f}")
    identical(normalised_gradient(2), sp.sqrt(2) / 40, "G = 2")
    identical(normalised_gradient(None), sp.Rational(1, 10), "population")
    return f"{', '.join(found)}, population +1/10"


def normalised_gradient(group: int | None) -> Any:
    r"""$\frac14 D_G(\frac12)(w_1 - w_2)$; None is the population, $D = 1/\sigma = 2$."""
    scale = sp.Integer(2) if group is None else binary_slope(group, sp.Rational(1, 2))
    signed = sum(w * (1 if g > 0 else -1) for w, g in zip(WEIGHTS, GAPS, strict=True))
    return sp.simplify(scale * sp.Rational(signed.numerator, signed.denominator) / 4)


@step("sign flip for any gaps: the sign is wrong wherever w_1 g_1 < w_2 |g_2| and w_1 > w_2")
def sign_flip_general() -> str:
    w, g1, g2, scale = sp.symbols("w g_1 g_2 D", positive=True)
    # Rewards 0 and g_c: normalising makes every gap 1 in size, whatever g_c (affine invariance).
    true, found = (w * g1 - (1 - w) * g2) / 4, scale * (w - (1 - w)) / 4
    identical(found.subs(w, sp.Rational(3, 5)), scale / 20, "at 3/5")
    identical(true.subs({w: sp.Rational(3, 5), g1: 1, g2: 2}), sp.Rational(-1, 20), "dJ")
    identical(sp.diff(found, g1), 0, "the estimate does not see the gap")
    return "the normalised gradient is D (2w - 1)/4, free of the gaps"


@step("the verifier finds the same gradients (certificates re-checked)")
def sign_flip_certified() -> str:
    exact = certified("group-std-shared-logit")["claim"]
    sampled = certified("group-std-shared-logit-group-of-eight")["claim"]
    require(exact["relation"] == sampled["relation"] == "opposed", "relation")
    identical(normalised_gradient(None), sp.Rational(exact["expected"][0]), "population")
    low, high = map(sp.Rational, sampled["expected"][0])
    require(low <= sp.N(normalised_gradient(8), 40) <= high, "G = 8")
    return "population: exactly 1/10; G = 8: within 12 decimals"


def certified(name: str) -> dict[str, Any]:
    """A stored certificate that verifies."""
    from proofs.verifier import verify

    certificate: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    verdict = verify(certificate)
    require(verdict.accepted, f"{name}: {verdict.message}")
    return certificate


# Theorem 2 --------------------------------------------------------------------------------------


@step("one SeeUPO iteration by Eq. 6-9 lowers J, both turns raise their own surrogate")
def seeupo_lowers() -> str:
    found = []
    for name in ("seeupo-step-shared-logit", "seeupo-step-shared-logit-batch"):
        certificate = certified(name)
        algorithm, claim = certificate["algorithm"], certificate["claim"]
        require(algorithm["order"] == "reverse" and algorithm["reference"] == "behaviour", name)
        require(algorithm["factor_clip"] is None and algorithm["product_clip"] is None, name)
        require(all(Fraction(low) > 0 for low, _ in claim["surrogate_gains"]), name)
        found.append(f"{claim['value_before']} to {claim['value_after'][1]}")
    p = sp.Symbol("p")
    value = sum(
        (p if a == 0 else 1 - p) * (p if b == 0 else 1 - p) * ((0, 2), (0, 1))[a][b]
        for a, b in paths((2, 2))
    )
    identical(value, 1 - p**2, "J(p)")
    return f"without normalisation {found[0]}, with a batch std {found[1]}"


@step("one iteration of the official variant lowers J, both turns raise their own surrogate")
def official_lowers() -> str:
    certificate = certified("seeupo-official-step-shared-row")
    algorithm, claim = certificate["algorithm"], certificate["claim"]
    require(algorithm["reference"] == "current" and algorithm["epochs"] == 1, "switches")
    require(algorithm["factor_clip"] == algorithm["product_clip"] == "1/5", "clamps")
    require(all(Fraction(low) > 0 for low, _ in claim["surrogate_gains"]), "surrogates")
    return f"{claim['value_before']} to {claim['value_after'][1]}"


# Theorem 3 --------------------------------------------------------------------------------------


@step("a sweep moves a stationary point by eta^2 f' g_2, and J by eta^4 (f' g_2)^2 J''/2")
def leaves_stationary_points() -> str:
    """One parameter; g_1 and g_2 near theta* as cubic polynomials with symbolic coefficients."""
    eta, x = sp.symbols("eta x", real=True)
    g = sp.Symbol("g", real=True)  # g_2 at theta*; g_1 is -g there
    a, b = sp.symbols("a_1:4 b_1:4", real=True)[:3], sp.symbols("b_1:4", real=True)
    first = -g + sum(c * x ** (i + 1) for i, c in enumerate(a))  # f
    last = g + sum(c * x ** (i + 1) for i, c in enumerate(b))
    moved = eta * last.subs(x, 0)
    moved = sp.expand(moved + eta * first.subs(x, moved))
    identical(moved.coeff(eta, 1), 0, "first order")
    identical(moved.coeff(eta, 2), a[0] * g, "second order: f' g_2")
    total = sp.integrate(first + last, x)  # J - J(theta*), whose derivative is g_1 + g_2
    change = sp.expand(total.subs(x, moved))
    for order in range(1, 4):
        identical(change.coeff(eta, order), 0, f"order {order}")
    curvature = a[0] + b[0]
    identical(change.coeff(eta, 4), curvature * (a[0] * g) ** 2 / 2, "order 4")
    y = sp.Symbol("y", real=True)
    rest = sp.expand((last + first.subs(x, x + eta * last)).subs(x, eta * y))
    slope = rest.coeff(eta, 1)
    identical(sp.solve(slope, y)[0], -a[0] * g / curvature, "resting point / eta")
    return "negative at every small step where J'' < 0 and f' g_2 is not 0"


@step("r = (0, 1; 2, 0), one logit: J = 3 p (1 - p), the sweep leaves its maximum like -eta^4")
def leaves_the_optimum() -> str:
    # g_2 = (2 - 3u)/4, f = (1 - 3p) p', J'' = -6 p'^2 at p = 1/2, p' = 1/4
    moved, curvature = sp.Rational(-3, 16) * sp.Rational(1, 8), sp.Rational(-3, 8)
    found = []
    for current in (False, True):
        change = crossed_sweep(current)
        for order in range(4):
            identical(change.coeff(ETA, order), 0, f"order {order}")
        found.append(change.coeff(ETA, 4))
    identical(found[0], curvature * moved**2 / 2, "order 4 by the theorem")
    require(found[1] < 0, f"order 4: {found[1]}")
    certified("seeupo-step-leaves-optimum")
    return f"Eq. 6-9: {found[0]} eta^4; old log-probabilities recomputed: {found[1]} eta^4"


ETA = sp.Symbol("eta", positive=True)


def crossed_sweep(current: bool) -> Any:
    r"""$J$ after a sweep of single steps minus $J$ at $p = 1/2$, to fourth order in $\eta$.

    Reverse order, one logit $\theta$, $p = \sigma(\theta)$ the probability of action 0. With
    `current` the ratio of the second update is taken against the policy just before it.
    """
    theta = sp.Symbol("theta", real=True)
    sigmoid = sp.series(1 / (1 + sp.exp(-theta)), theta, 0, 6).removeO()
    slope = sp.diff(sigmoid, theta)
    rewards, half = ((0, 1), (2, 0)), sp.Rational(1, 2)

    def value(first: Any, second: Any) -> Any:
        return sum(
            (first if a == 0 else 1 - first) * (second if b == 0 else 1 - second) * rewards[a][b]
            for a, b in paths((2, 2))
        )

    def cut(expression: Any) -> Any:
        """Without powers of eta above 4."""
        return sum(sp.expand(expression).coeff(ETA, k) * ETA**k for k in range(5))

    u, v = sp.symbols("u v")
    moved = ETA * sp.diff(value(u, v), v).subs(u, half) * slope.subs(theta, 0)
    second, steep = cut(sigmoid.subs(theta, moved)), cut(slope.subs(theta, moved))
    if current:  # E_old[rho_1 M]: the old probabilities times the score at the new policy
        scores = (1 - second, -second)
        gains = [value(sp.Integer(a), second) - value(half, half) for a in (1, 0)]
        gradient = sum(half * s * x for s, x in zip(scores, gains, strict=True))
    else:
        gradient = sp.diff(value(u, v), u).subs(v, second) * steep
    new = cut(sigmoid.subs(theta, cut(moved + ETA * gradient)))
    return cut(value(new, new) - value(half, half))


@step("the simultaneous step rests there, and rises below eta = 2/(cL) from anywhere")
def simultaneous_rests() -> str:
    gradient, eta, smooth, c = sp.symbols("n eta L c", positive=True)
    # Delta = eta c dJ: J(theta + Delta) - J >= eta c n^2 - L/2 (eta c n)^2
    gain = eta * c * gradient**2 - smooth / 2 * (eta * c * gradient) ** 2
    identical(gain, eta * c * gradient**2 * (1 - eta * c * smooth / 2), "descent lemma")
    identical(gain.subs(eta, 2 / (c * smooth)), 0, "limit of the step")
    return "no dependence on the size of the gradient"


RESULTS = (
    Result(
        name="shared-parameters",
        statement="With shared parameters a group std turns gradients around, and one SeeUPO "
        "iteration can lower J at every step size",
        source="arXiv:2602.06554 Eq. 4-9, Theorem 1, App. H.3 and its official code",
        assumptions=("exact expectations",),
        steps=(
            sign_flip,
            sign_flip_general,
            sign_flip_certified,
            seeupo_lowers,
            official_lowers,
            leaves_stationary_points,
            leaves_the_optimum,
            simultaneous_rests,
        ),
        stops="small steps away from stationary points: see shared-step-bound",
    ),
)
