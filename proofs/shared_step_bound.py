r"""Shared parameters: the bound on the step under which one SeeUPO iteration improves.

**Theorem.** Let a log-linear policy be shared by all turns: features of diameter $D$ at every
history, rewards of half-range $R$ in every context, $N$ steps of size $\eta$ in each of $T$ turns,
any fixed order, $\mathbb E[\hat A \mid \cdot] = c A + b$ with $c > 0$. With
$B = RD/2$, $K = (T+1) R D^2/4$, $L = T R D^2 / 2$: if

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

The bound shrinks with $\|\nabla J\|^2$, and any bound must: see ``shared_parameters``, Theorem 3.
A single simultaneous step needs only $\eta < 2 / (c L)$, wherever it starts.

**Where it stops.** A sufficient condition, far from sharp. Exact expectations, no std of a finite
group, and true ratios as in Eq. 6 and 8.

**Source.** SeeUPO, arXiv:2602.06554, Eq. 4-9, Theorem 1; Popoviciu 1935 (variance of a bounded
variable); the descent lemma.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction
from math import isqrt
from random import Random
from typing import Any

import sympy as sp

from proofs._base import Result, identical, require, step
from proofs._certificate import ESTIMATOR, STEP, read_algorithm, read_model, read_policy
from proofs._semantics import Play, iterate, pair_up
from proofs._trees import paths
from proofs.certify import fractions_of, switches
from proofs.intervals import Interval, log, sign
from proofs.shared_parameters import certified

BITS = 128
CLIP = Fraction(1, 5)


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
    """A step within both conditions of the theorem, rounded down; None where the gradient is small."""
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
        name="shared-step-bound",
        statement="With a shared log-linear policy one SeeUPO iteration by Eq. 6-9 improves for "
        "steps below an explicit bound of the order of the squared gradient",
        source="arXiv:2602.06554 Eq. 4-9, Theorem 1; Popoviciu 1935; the descent lemma",
        assumptions=(
            "exact expectations",
            "log-linear policy, shared by all turns",
            "advantages with E[estimate | .] = c A + b, c > 0",
        ),
        steps=(
            popoviciu,
            hessian,
            constants,
            bound_algebra,
            instances,
            on_the_certified_instance,
        ),
        stops="sufficient only; vanishes with the gradient, as any such bound must",
    ),
)
