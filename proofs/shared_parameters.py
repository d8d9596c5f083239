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

**Theorem 4** (the bound under which the first-order guarantee returns). Log-linear policy,
features of diameter $D$ at every history, rewards of half-range $R$ in every context, $N$ steps
of size $\eta$ in each of $T$ turns, any fixed order, $\mathbb E[\hat A \mid \cdot] = c A + b$ with
$c > 0$. With $B = RD/2$, $K = (T+1) R D^2/4$, $L = T R D^2 / 2$: if

$$\eta \le \frac{\log(1 + \varepsilon)}{c N T B D} \quad\text{and}\quad
\eta < \frac{2\,\|\nabla J\|^2}{c N T^2 B\,(K \|\nabla J\| + L B)},$$

one SeeUPO iteration by Eq. 6-9 raises $J$. *Proof.* Inside the clip, $\mathbb E[\min(\cdot)] =
\mathbb E[\rho M]$, and the surrogate of turn $t$ is $c$ times the value of a mixture: turns already
updated new, turn $t$ at $\theta$, the others old. Its gradient is $\mathbb E[(r - b) s_t]$ with the
score $s_t = \phi(a_t) - \mathbb E\phi$ and $b$ the middle of the context's rewards, since a score
has mean 0. In a direction $u$, $u \cdot s_t$ has range at most $D$, hence variance at most $D^2/4$:
gradients are at most $B$, the own second derivative at most $R D^2/2$, mixed ones $R D^2/4$, and
$\nabla^2 J$ at most $L$ (scores of different turns are uncorrelated). The first condition keeps
$|\log \rho_t| \le D \|\theta - \theta_k\| \le \log(1 + \varepsilon)$. The j-th of the $NT$ steps
starts at a distance of at most $j \eta c B$, so that the sum of all steps differs from
$\eta N c \nabla J$ by at most $\eta^2 c^2 K B (NT)^2/2$; and $J(\theta + \Delta) \ge J + \nabla J
\cdot \Delta - \frac L2 \|\Delta\|^2$ with $\|\Delta\| \le \eta N T c B$. $\square$

The bound shrinks with $\|\nabla J\|^2$, and by Theorem 3 any bound must vanish there. A single
simultaneous step needs only $\eta < 2 / (c L)$, wherever it starts.

**What it says.** That Eq. 8's product matches the expectation of Eq. 4 although the turns share
$\theta$ is true of the expectation; the theorem of monotone improvement does not follow, because
a turn's update also moves the turns already done. It holds for steps that are small compared
with the gradient.

**Where it stops.** Theorem 4 is a sufficient condition, far from sharp. Exact expectations, no
std of a finite group. For what survives sharing at any step see ``trajectory_bound``.

**Source.** SeeUPO, arXiv:2602.06554, Eq. 4-9, Theorem 1, App. H.3 and its official code; Popoviciu
1935 (variance of a bounded variable); the descent lemma.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from fractions import Fraction
from math import isqrt
from pathlib import Path
from random import Random
from typing import Any

import sympy as sp

from proofs._base import Result, identical, require, step
from proofs._certificate import ESTIMATOR, STEP, read_algorithm, read_model, read_policy
from proofs._semantics import Play, iterate, pair_up
from proofs._trees import paths
from proofs.certify import fractions_of, switches
from proofs.group_std import binary_slope
from proofs.intervals import Interval, log, sign

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


# Theorem 4 --------------------------------------------------------------------------------------


@step("variance of a variable in [m, M]: at most (M - m)^2/4, 2 to 5 values")
def popoviciu() -> str:
    for size in range(2, 6):
        probs = [*sp.symbols(f"p_0:{size - 1}", positive=True)]
        probs.append(1 - sum(probs))
        x = sp.symbols(f"x_0:{size}", real=True)
        low, high = sp.symbols("m M", real=True)
        mean = sum(p * v for p, v in zip(probs, x, strict=True))
        variance = sum(p * v**2 for p, v in zip(probs, x, strict=True)) - mean**2
        inside = sum(p * (high - v) * (v - low) for p, v in zip(probs, x, strict=True))
        identical(variance, (high - mean) * (mean - low) - inside, "Var = (M-mu)(mu-m) - E[...]")
        square = (high - low) ** 2 / 4 - (high + low - 2 * mean) ** 2 / 4
        identical((high - mean) * (mean - low), square, "(M-mu)(mu-m) <= (M-m)^2/4")
    return "E[(M - x)(x - m)] >= 0 and a square are left out"


X = sp.Symbol("x", positive=True)  # exp(theta): with integer features all is rational in x


def d_theta(expression: Any) -> Any:
    r"""$\partial/\partial\theta = x\,\partial/\partial x$ for $x = e^\theta$."""
    return X * sp.diff(expression, X)


FEATURES: Mapping[tuple[int, ...], tuple[int, int]] = {(): (1, 0), (0,): (-1, 1), (1,): (2, 0)}


def _row(history: tuple[int, ...], at: Any) -> list[Any]:
    weights = [at**f for f in FEATURES[history]]
    return [w / sum(weights) for w in weights]


@step("Hessian: J'' = E[(r - b)((sum of scores)^2 - sum of variances)], any b; symbolic rewards")
def hessian() -> str:
    rewards, b = sp.symbols("r_0:4", real=True), sp.Symbol("b", real=True)
    value, second, mixed = sp.Integer(0), sp.Integer(0), sp.Integer(0)
    for index, (a1, a2) in enumerate(paths((2, 2))):
        rows = [_row((), X), _row((a1,), X)]
        probability = rows[0][a1] * rows[1][a2]
        scores, variances = [], []
        for history, row, action in zip(((), (a1,)), rows, (a1, a2), strict=True):
            phi = FEATURES[history]
            mean = sum(p * f for p, f in zip(row, phi, strict=True))
            scores.append(phi[action] - mean)
            variances.append(sum(p * f**2 for p, f in zip(row, phi, strict=True)) - mean**2)
        value += probability * rewards[index]
        gap = rewards[index] - b
        second += probability * gap * (sum(scores) ** 2 - sum(variances))
        mixed += probability * (scores[0] * scores[1])
    identical(d_theta(d_theta(value)), second, "second derivative")
    identical(mixed, 0, "scores of different turns are uncorrelated")
    return "hence |J''| <= R (sum of variances + sum of variances) <= T R D^2/2"


@step("the constants B, L hold on a grid of parameters and rewards, in fractions")
def constants() -> str:
    diameter = max(abs(f[0] - f[1]) for f in FEATURES.values())
    largest = [Fraction(0), Fraction(0)]
    for n, rewards in itertools.product(range(1, 25), itertools.product((-1, 1), repeat=4)):
        at = Fraction(n * n, 40)
        slopes = _derivatives(at, rewards)
        for i, limit in enumerate((Fraction(2 * diameter, 2), Fraction(2 * diameter**2, 2))):
            require(abs(slopes[i]) <= limit, f"x = {at}, r = {rewards}: {slopes[i]} > {limit}")
            largest[i] = max(largest[i], abs(slopes[i]) / limit)
    return f"T = 2, R = 1, D = {diameter}: at most {float(largest[0]):.2f}, {float(largest[1]):.2f}"


def _derivatives(at: Fraction, rewards: tuple[int, ...]) -> tuple[Fraction, Fraction]:
    """J' and J'' in theta at x = exp(theta), by the formulas above with b = 0."""
    first = second = Fraction(0)
    for index, (a1, a2) in enumerate(paths((2, 2))):
        probability, score, variance = Fraction(1), Fraction(0), Fraction(0)
        for history, action in zip(((), (a1,)), (a1, a2), strict=True):
            phi, row = FEATURES[history], _row(history, at)
            mean = sum(p * f for p, f in zip(row, phi, strict=True))
            probability *= row[action]
            score += phi[action] - mean
            variance += sum(p * f * f for p, f in zip(row, phi, strict=True)) - mean**2
        first += probability * rewards[index] * score
        second += probability * rewards[index] * (score**2 - variance)
    return first, second


def step_bound(
    gradient: Fraction,
    turns: int,
    steps: int,
    half_range: Fraction,
    diameter: Fraction,
    c: Fraction,
) -> Fraction:
    r"""The second condition, $16 n^2 / (c N T^2 R^2 D^3 ((T+1) n + R T D))$ with $n = \|\nabla J\|$.

    >>> step_bound(Fraction(1, 4), 2, 20, Fraction(1), Fraction(1), Fraction(1))
    Fraction(1, 220)
    """
    scale = c * steps * turns**2 * half_range**2 * diameter**3
    return 16 * gradient**2 / (scale * ((turns + 1) * gradient + half_range * turns * diameter))


@step("the two forms of the step bound are the same")
def bound_algebra() -> str:
    n, t, steps, r, d, c = sp.symbols("n T N R D c", positive=True)
    b, k, smooth = r * d / 2, (t + 1) * r * d**2 / 4, t * r * d**2 / 2
    stated = 2 * n**2 / (c * steps * t**2 * b * (k * n + smooth * b))
    identical(stated, 16 * n**2 / (c * steps * t**2 * r**2 * d**3 * ((t + 1) * n + r * t * d)), "")
    eta = sp.Symbol("eta", positive=True)
    total = steps * t
    gain = eta * steps * c * n**2 - n * eta**2 * c**2 * k * b * total**2 / 2
    gain -= smooth / 2 * (eta * total * c * b) ** 2
    identical(gain.subs(eta, stated), 0, "the lower bound of the gain vanishes at the bound")
    identical(sp.diff(gain, eta).subs(eta, 0), steps * c * n**2, "and is positive below it")
    return "gain >= eta N c n^2 - eta^2 (...), a parabola with these two zeros"


@step("40 random shared log-linear instances at 99/100 of the bound: J rises, in intervals")
def instances() -> str:
    rng, smallest, checked = Random(5), Fraction(1), 0
    while checked < 40:
        instance = random_instance(rng)
        eta = allowed_step(*instance)
        if eta is None:
            continue
        gain = interval_gain(*instance, eta * Fraction(99, 100))
        require(sign(gain) > 0, f"instance {checked}, eta = {float(eta)}")
        smallest, checked = min(smallest, eta), checked + 1
    return f"T = 2, 3; N = 1, 2; smallest step allowed {float(smallest):.1e}"


Instance = tuple[dict[str, Any], dict[str, Any], int]


def random_instance(rng: Random) -> Instance:
    """A one-context bandit, a shared log-linear policy with two features, steps a turn."""
    turns = rng.choice((2, 2, 3))

    def reward(depth: int) -> Any:
        return rng.randint(0, 2) if depth == turns else [reward(depth + 1) for _ in range(2)]

    model = {"kind": "bandit", "context_probs": ["1"], "rewards": fractions_of([reward(0)])}
    features = [
        [[[rng.randint(-1, 1) for _ in range(2)] for _ in range(2)] for _ in range(2**t)]
        for t in range(turns)
    ]
    theta = [Fraction(rng.randint(-2, 2), 4) for _ in range(2)]
    policy = {
        "parametrisation": "log-linear",
        "theta": fractions_of(theta),
        "features": fractions_of(features),
    }
    return model, policy, rng.choice((1, 2))


def allowed_step(model: dict[str, Any], policy: dict[str, Any], steps: int) -> Fraction | None:
    """A step within both conditions of Theorem 4, rounded down; None where the gradient is small."""
    read_in = read_model(model)
    start = read_policy(policy, read_in)
    turns = len(read_in.nodes)
    returns = [tr.total for tr in read_in.trajectories]
    half_range = (max(returns) - min(returns)) / 2
    diameter_squared = max(
        sum(((Fraction(x) - Fraction(y)) ** 2 for x, y in zip(*node, strict=True)), Fraction(0))
        for turn in policy["features"]
        for node in turn  # two actions
    )
    diameter = _root_above(diameter_squared)
    play = Play(read_in, start, start.table(start.theta, BITS))
    gradient = play.policy_gradient([[r] * turns for r in returns])
    square = pair_up(gradient, gradient)
    low = square.lo if isinstance(square, Interval) else int(square * 2**BITS)
    if low < 2 ** (BITS - 10) or half_range == 0 or diameter == 0:
        return None
    norm = _root_below(Fraction(low, 2**BITS))
    second = step_bound(norm, turns, steps, half_range, diameter, Fraction(1))
    inside = log(1 + CLIP, BITS)
    assert isinstance(inside, Interval)
    reach = Fraction(inside.lo, 2**BITS) / (steps * turns * half_range * diameter**2 / 2)
    return _coarse(min(second, reach))


def _root_below(x: Fraction) -> Fraction:
    """A fraction a little below the root (the bound grows with the gradient)."""
    return Fraction(isqrt(int(x * 10**12)), 10**6)


def _root_above(x: Fraction) -> Fraction:
    """A fraction a little above the root (the bound falls with the diameter)."""
    return _root_below(x) + Fraction(1, 10**6) if x else Fraction(0)


def _coarse(x: Fraction) -> Fraction:
    """Rounded down to a multiple of 10^-8."""
    return Fraction(int(x * 10**8), 10**8)


def interval_gain(model: dict[str, Any], policy: dict[str, Any], steps: int, eta: Fraction) -> Any:
    """J after one SeeUPO iteration by Eq. 6-9 (population advantages) minus J, enclosed."""
    read_in = read_model(model)
    start = read_policy(policy, read_in)
    stated = switches(order="reverse", epochs=steps, lr=str(eta), std_eps="0")
    algorithm = read_algorithm(stated, ESTIMATOR | STEP, len(read_in.nodes))
    table, _ = iterate(read_in, start, algorithm, BITS)
    before = Play(read_in, start, start.table(start.theta, BITS)).value()
    return Play(read_in, start, table).value() - before


@step("the certified instance: the bound allows 1/220, the certified drop is at 1/2")
def on_the_certified_instance() -> str:
    certificate = certified("seeupo-step-shared-logit")
    bound = step_bound(Fraction(1, 4), 2, 20, Fraction(1), Fraction(1), Fraction(1))
    model, policy = certificate["model"], certificate["policy"]
    require(sign(interval_gain(model, policy, 20, bound)) > 0, "at the bound")
    first = None
    for n in range(1, 51):
        if sign(interval_gain(model, policy, 20, Fraction(n, 100))) < 0:
            first = Fraction(n, 100)
            break
    require(first is not None and first > bound, f"first drop at {first}")
    return f"allowed up to {bound} = {float(bound):.4f}; first drop on a grid of 1/100: {first}"


RESULTS = (
    Result(
        name="shared-parameters",
        statement="With shared parameters a group std turns gradients around, and one SeeUPO "
        "iteration can lower J at every step size; below a bound on the step it does not",
        source="arXiv:2602.06554 Eq. 4-9, Theorem 1, App. H.3 and its official code",
        assumptions=(
            "exact expectations",
            "Theorem 4: log-linear policy, advantages with E[estimate | .] = c A + b",
        ),
        steps=(
            sign_flip,
            sign_flip_general,
            sign_flip_certified,
            seeupo_lowers,
            official_lowers,
            leaves_stationary_points,
            leaves_the_optimum,
            simultaneous_rests,
            popoviciu,
            hessian,
            constants,
            bound_algebra,
            instances,
            on_the_certified_instance,
        ),
        stops="the step bound is sufficient only, and vanishes with the gradient, as any must",
    ),
)
