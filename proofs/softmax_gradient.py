r"""Softmax policy gradient: convergence at the rate $1/t$, not faster, and plateaus on the way.

One softmax row with logits $\theta$, deterministic or mean rewards $r_a \in [0, 1]$, best arm $*$,
$\Delta_a = r_* - r_a$, $J = \sum_a \pi_a r_a$, gap $\delta = r_* - J$. The gradient has components
$\pi_a (r_a - J)$.

**Theorem 1** (rate, any number of arms). $\pi_*^2 \delta^2 \le \|\nabla J\|^2 \le 2 \delta^2$.
Hence along the gradient flow $\dot\theta = \nabla J$, with $c = \inf_t \pi_*(t)$,

$$\frac{1}{1/\delta_0 + 2 t} \le \delta(t) \le \frac{1}{1/\delta_0 + c^2 t},$$

and no instance converges faster than $1/t$. $J$ is $1/2$-smooth, so that gradient ascent with step
$\eta < 4$ has $\delta_t \le 1/(\kappa t)$, $\kappa = \eta (1 - \eta/4) c^2$. *Proof.* The lower bound
of the gradient is its best component; the upper one a sum of non-negative monomials (below). Along
a direction $v$ the second derivative is $\operatorname{Cov}(r, (v - \bar v)^2)$, at most
$\operatorname{Var}_\pi(v) \le \|v\|^2/2$ in absolute value. Then $\delta_{t+1} \le \delta_t - \kappa
\delta_t^2$, and $1/\delta_{t+1} \ge 1/\delta_t + \kappa$.

**Theorem 2** (two arms, closed form). With $d = \theta_1 - \theta_2$ and reward gap $\Delta$ the
flow satisfies $\sinh d + d = \sinh d_0 + d_0 + \Delta t$. So $t\, \delta(t) \to 1/2$ whatever
$\Delta$ and the start, and from $\pi_*(0) = p_0$ it takes $t \sim 1/(2 \Delta p_0)$ to reach 1/2: a
plateau.

**Theorem 3** (plateau in the horizon). In a tree of $T$ turns where one path of two-action choices
pays 1 and all others 0, the flow from the uniform policy needs at least
$2 (2^T - (4/3)^T)/T$ until its on-path probabilities are 3/4.

**What it says about convergence claims.** "Converges to the global optimum" is compatible with a
gap that has not moved after thousands of steps: the constant $c$ hides it. On the staircase tree,
whose rewards for leaving fall along the way, the exact gradient stays at a gap of 1/8.

**Where it stops.** A row for each history, exact gradients: turns that do not see the past have
stationary points that are strict local optima (see ``backward_induction``). For several turns, $c$
includes the probability of reaching a history.

**Source.** Agarwal et al. 2021 (global convergence, vanishing gradients); Mei et al.,
arXiv:2005.06392 (rate with constant $5/c^2$ at $\eta = 2/5$, lower bound of order $1/t$); the
constants here are our own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import sympy as sp

from proofs._base import Result, identical, require, step

SLOPE_TOLERANCE = 0.05
"""The local exponent of 1/t differs from 1 by O(log t / t); rivals (1/2, 2) are far outside."""

CONVERGING = (
    "lock",
    "mixed",
    "needle",
    "plateau",
    "stuck-tree",
    "team-2x2x2",
    "tokens",
    "two-turn-std",
    "two-turn-std-uniform",
    "wrong-sign",
    "xor",
)


@step("the gradient's components are pi_a (r_a - J), symbolic logits, 2 to 4 arms")
def components() -> str:
    for arms in range(2, 5):
        theta, rewards = sp.symbols(f"theta_1:{arms + 1}"), sp.symbols(f"r_1:{arms + 1}")
        weights = [sp.exp(x) for x in theta]
        probs = [w / sum(weights) for w in weights]
        value = sum(p * r for p, r in zip(probs, rewards, strict=True))
        for a in range(arms):
            identical(sp.diff(value, theta[a]), probs[a] * (rewards[a] - value), f"arm {a}")
    return "softmax"


@step("pi_*^2 delta^2 <= |grad|^2 <= 2 delta^2: sums of non-negative monomials, 2 to 5 arms")
def gradient_bounds() -> str:
    for arms in range(2, 6):
        best = sp.Symbol("p_*", positive=True)
        others = sp.symbols(f"p_1:{arms}", positive=True)
        gaps = sp.symbols(f"Delta_1:{arms}", positive=True)
        total = best + sum(others)  # equal to 1
        delta = sum(p * g for p, g in zip(others, gaps, strict=True))
        # r_* - J = delta and r_a - J = delta - Delta_a, made homogeneous by the total.
        # The first square alone is the lower bound.
        squares = (best * delta) ** 2 + sum(
            (p * (delta - g * total)) ** 2 for p, g in zip(others, gaps, strict=True)
        )
        # 2 delta^2 - |grad|^2, each delta^2 without probabilities being delta^2 total^2.
        upper = sp.Poly(sp.expand(2 * (delta * total) ** 2 - squares), best, *others, *gaps)
        require(all(c > 0 for c in upper.coeffs()), f"{arms} arms: a negative coefficient")
    return "for every policy with sum 1"


@step("second derivative along v is Cov(r, (v - mean)^2), 2 and 3 arms; 1/2-smooth")
def smoothness() -> str:
    for arms in (2, 3):
        rewards, v = sp.symbols(f"r_1:{arms + 1}"), sp.symbols(f"v_1:{arms + 1}", real=True)
        p = sp.symbols(f"p_1:{arms + 1}", positive=True)
        x = sp.Symbol("x")
        weights = [p[a] * sp.exp(x * v[a]) for a in range(arms)]
        value = sum(w * r for w, r in zip(weights, rewards, strict=True)) / sum(weights)
        second = sp.diff(value, x, 2).subs(x, 0).subs(p[-1], 1 - sum(p[:-1]))
        probs = [*p[:-1], 1 - sum(p[:-1])]
        mean = sum(q * s for q, s in zip(probs, v, strict=True))
        squares = [(s - mean) ** 2 for s in v]
        cross = sum(q * r * s for q, r, s in zip(probs, rewards, squares, strict=True))
        product = sum(q * r for q, r in zip(probs, rewards, strict=True)) * sum(
            q * s for q, s in zip(probs, squares, strict=True)
        )
        identical(second, cross - product, f"{arms} arms")
    # |Cov(r, X)| <= E|X - EX|/2 <= EX for X >= 0 and r in [0, 1]; EX = Var(v) <= (max - min)^2/4.
    top, bottom = sp.symbols("v_max v_min", real=True)
    identical(
        (top**2 + bottom**2) / 2 - (top - bottom) ** 2 / 4, (top + bottom) ** 2 / 4, "Popoviciu"
    )
    return "|Cov| <= Var(v) <= (v_max - v_min)^2/4 <= |v|^2/2"


@step("the recursion delta' <= delta - kappa delta^2 gives delta_t <= 1/(kappa t)")
def recursion() -> str:
    delta, kappa, room = sp.symbols("delta kappa room", positive=True)
    shrunk = delta - kappa * delta**2
    # 1/delta' - 1/delta - kappa = kappa^2 delta / (1 - kappa delta) >= 0 where delta' > 0.
    excess = sp.cancel(1 / shrunk - 1 / delta - kappa)
    identical(excess, kappa**2 * delta / (1 - kappa * delta), "excess")
    require(sp.cancel(excess.subs(kappa, 1 / (delta + room))).is_positive, "kappa delta < 1")
    eta, slope = sp.symbols("eta c", positive=True)
    identical(eta - eta**2 / 2 * sp.Rational(1, 2), eta * (1 - eta / 4), "ascent with step eta")
    t, start = sp.symbols("t delta_0", positive=True)
    for rate in (sp.Integer(2), slope**2):
        flow = 1 / (1 / start + rate * t)
        identical(sp.diff(flow, t), -rate * flow**2, "the bounding flow")
    return "1/delta grows by at least kappa a step; flows bounded on both sides"


@step("two arms: sinh d + d = sinh d_0 + d_0 + Delta t solves the flow")
def closed_form() -> str:
    d, gap = sp.symbols("d Delta", positive=True)
    p = 1 / (1 + sp.exp(-d))
    velocity = 2 * gap * p * (1 - p)  # both logits move, in opposite directions
    lhs = sp.diff(sp.sinh(d) + d, d) * velocity
    identical(sp.simplify((lhs - gap).rewrite(sp.exp)), 0, "d/dt (sinh d + d) = Delta")
    return "exact for all t"


@step("two arms: t delta -> 1/2, and t ~ 1/(2 Delta p_0) to leave a start p_0")
def constants() -> str:
    d, gap, start = sp.symbols("d Delta p_0", positive=True)
    time = (sp.sinh(d) + d) / gap  # from the uniform policy
    delta = gap / (1 + sp.exp(d))
    limit = sp.limit((time * delta).rewrite(sp.exp), d, sp.oo)
    identical(limit, sp.Rational(1, 2), "t delta")
    far = sp.log((1 - start) / start)  # -d_0; the flow reaches d = 0 at (sinh + id)(far) / Delta
    sinh = ((1 - start) / start - start / (1 - start)) / 2
    identical(sp.simplify(sp.sinh(far).rewrite(sp.exp) - sinh), 0, "sinh of the log odds")
    identical(sp.limit(start * (sinh + far) / gap, start, 0, "+"), 1 / (2 * gap), "plateau")
    return "independent of Delta and start; escape time inversely proportional to p_0"


@step("one rewarded path of T turns: the time to leave 1/2 grows as 2^T / T")
def horizon() -> str:
    p, turns = sp.symbols("p T", positive=True)
    # All on-path rows equal: dp/dt = p(1-p) d', d' = 2 p^(T-1) p(1-p).
    speed = p * (1 - p) * 2 * p ** (turns - 1) * p * (1 - p)
    identical(sp.simplify(speed - 2 * p ** (turns + 1) * (1 - p) ** 2), 0, "flow of p")
    # 1/(2 (1-p)^2) >= 2 for p >= 1/2, so the time from 1/2 to 3/4 is at least
    primitive = -2 * p**-turns / turns
    identical(sp.simplify(sp.diff(primitive, p) - 2 * p ** (-turns - 1)), 0, "primitive")
    bound = primitive.subs(p, sp.Rational(3, 4)) - primitive.subs(p, sp.Rational(1, 2))
    claimed = 2 * (2**turns - sp.Rational(4, 3) ** turns) / turns
    identical(sp.simplify(bound - claimed), 0, "bound")
    for size in range(1, 7):
        exact = sp.integrate(
            sp.apart(1 / speed.subs(turns, size), p), (p, sp.Rational(1, 2), sp.Rational(3, 4))
        )
        require(sp.simplify(exact) > claimed.subs(turns, size), f"T={size}")
    return "at least 2 (2^T - (4/3)^T)/T, symbolic T; exact integrals for T = 1 to 6"


def ascend(
    means: np.ndarray,
    contexts: np.ndarray,
    steps: int,
    rate: float,
    seen: Callable[[int, float], None],
) -> None:
    """Exact softmax gradient ascent from the uniform policy, [C, A_1..A_T]; calls seen(t, J)."""
    turns = means.ndim - 1
    logits = [np.zeros(means.shape[: t + 2]) for t in range(turns)]
    for t in range(1, steps + 1):
        probs = [np.exp(x - x.max(axis=-1, keepdims=True)) for x in logits]
        probs = [x / x.sum(axis=-1, keepdims=True) for x in probs]
        values = [means]
        for row in reversed(probs):
            values.insert(0, (values[0] * row).sum(axis=-1))
        reach = contexts
        for turn, row in enumerate(probs):
            advantage = values[turn + 1] - values[turn][..., None]
            logits[turn] = logits[turn] + rate * reach[..., None] * row * advantage
            reach = reach[..., None] * row
        seen(t, float((contexts * values[0]).sum()))


def gaps(name: str, steps: int) -> dict[int, float]:
    """Gap to the best history-dependent policy along the ascent of a model of the zoo."""
    from bandits import zoo
    from bandits.sequential import SequentialBandit

    entry = zoo.get(name)
    if not isinstance(entry.model, SequentialBandit):
        raise TypeError(f"{name} is a {type(entry.model).__name__}, must be a SequentialBandit")
    best, found = float(entry.full_optimum), {}

    def seen(t: int, value: float) -> None:
        found[t] = best - value

    ascend(entry.model.reward_means, entry.model.context_probs, steps, 1.0, seen)
    return found


@step("the zoo: gap of order 1/t in the last doubling, step 1", kind="numerical")
def zoo_rate() -> str:
    slopes = {}
    for name in CONVERGING:
        found = gaps(name, 4000)
        slopes[name] = np.log2(found[2000] / found[4000])
        require(found[4000] < 0.01, f"{name}: gap {found[4000]}")
        require(abs(slopes[name] - 1) < SLOPE_TOLERANCE, f"{name}: exponent {slopes[name]}")
    single = {name: 4000 * gaps(name, 4000)[4000] for name in ("needle", "wrong-sign")}
    for name, constant in single.items():
        require(0.5 < constant < 1.0, f"{name}: t gap = {constant}")
    return f"exponents {min(slopes.values()):.3f} to {max(slopes.values()):.3f}; t gap {single}"


@step("the zoo: the forward staircase stays on a plateau of 1/8", kind="numerical")
def zoo_plateau() -> str:
    found = gaps("forward-staircase", 4000)
    require(found[4000] > 1 / 8, f"gap {found[4000]}")
    require(found[1000] - found[4000] < 1e-3, f"from {found[1000]} to {found[4000]}")
    return f"gap {found[1000]:.4f} after 1000 steps, {found[4000]:.4f} after 4000"


RESULTS = (
    Result(
        name="softmax-gradient",
        statement="Softmax policy gradient on a row converges as 1/t and never faster; "
        "1/(2 Delta p_0) and 2^T/T are the lengths of its plateaus",
        source="Agarwal et al. 2021; arXiv:2005.06392",
        assumptions=("exact gradients", "rewards in [0, 1]", "a row for each history"),
        steps=(
            components,
            gradient_bounds,
            smoothness,
            recursion,
            closed_form,
            constants,
            horizon,
        ),
        stops="the constant c = inf pi_* may be tiny; rows shared by histories; sampled gradients",
    ),
    Result(
        name="softmax-gradient-zoo",
        statement="On the zoo exact gradient ascent has a gap of order 1/t, except on a plateau",
        source="Agarwal et al. 2021; arXiv:2005.06392",
        assumptions=("step 1, 4000 steps, uniform start", "the exponent over the last doubling"),
        steps=(zoo_rate, zoo_plateau),
        stops="finitely many steps of finitely many models",
    ),
)
