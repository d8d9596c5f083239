r"""Discounting: the update that drops $\gamma^t$ is not the gradient of the discounted return.

For a finite horizon, $J_\gamma(\theta) = \mathbb E \sum_t \gamma^{t-1} r_t$ and discounted
advantages $A^\gamma_t$ (which discount from turn $t$ on),

$$\nabla J_\gamma = \sum_t \gamma^{t-1} \mathbb E[\nabla \log \pi(a_t \mid h_t) A^\gamma_t],
\qquad g(\theta) = \sum_t \mathbb E[\nabla \log \pi(a_t \mid h_t) A^\gamma_t] .$$

Implementations follow $g$.

**Theorem 1** (no objective). For $0 < \gamma < 1$ and a tree of two turns with a row for each
history, $g$ is not the gradient of any function: the derivative of turn 1's component along turn
2's parameter and its converse differ by the factor $\gamma$, and neither vanishes in general.

**Theorem 2** (independent rows: harmless). If turns have parameters of their own, the component of
turn $t$ is $\gamma^{-(t-1)}$ times that of $\nabla J_\gamma$: the same stationary points, the same
signs, and $\langle g, \nabla J_\gamma \rangle \ge 0$, an ascent direction of $J_\gamma$.

**Theorem 3** (shared parameters: worst of all). With one probability $p$ for action 1 in both of
two turns, $\gamma = 1/2$ and the rewards

$$r_1 = a_1, \qquad r_2 = 4 a_1 - 4 a_2,$$

$J_{1/2}(p) = J_1(p) = p$, whose derivative is $+1$, but the update's is $-1$ at every $p$: following
it ends at $p = 0$, the minimum of the discounted *and* of the undiscounted return.

**What it says about "undiscounted" in convergence claims.** It is needed as soon as parameters are
shared between turns, and only a matter of step sizes when they are not. At $\gamma = 1$ the two
updates are identical. A whole-trajectory advantage of a reward at the end has no $\gamma$ to drop.

**Source.** Thomas 2014; Nota and Thomas, arXiv:1906.07073; SeeUPO, arXiv:2602.06554 (convergence
of REINFORCE with GRAE "under undiscounted returns").
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import sympy as sp

from proofs._base import Result, identical, require, step

Rewards = Mapping[tuple[int, ...], Any]  # one reward for each non-empty history


def value(
    rewards: Rewards,
    probs: Mapping[tuple[int, ...], Any],
    gamma: Any,
    turns: int,
    history: tuple[int, ...] = (),
) -> Any:
    r"""$V(h)$ discounted from the turn of $h$ on; `probs` are those of action 1."""
    if len(history) == turns:
        return 0
    p = probs[history]
    children = [
        rewards[(*history, a)] + gamma * value(rewards, probs, gamma, turns, (*history, a))
        for a in (0, 1)
    ]
    return (1 - p) * children[0] + p * children[1]


def components(
    rewards: Rewards, probs: Mapping[tuple[int, ...], Any], gamma: Any, turns: int, power: Any
) -> dict[tuple[int, ...], Any]:
    r"""$\partial/\partial p_h$ of turn $t$'s term, weighted with ``power ** t`` (0-based).

    $\sum_a \partial_{p_h}\pi(a) Q(h, a)$ times the probability of reaching h; ``power`` is
    $\gamma$ for the gradient of $J_\gamma$ and 1 for the update that drops it.
    """
    found = {}
    for t in range(turns):
        for h in itertools.product((0, 1), repeat=t):
            reach: Any = 1
            for s in range(t):
                reach = reach * (probs[h[:s]] if h[s] else 1 - probs[h[:s]])
            q = [
                rewards[(*h, a)] + gamma * value(rewards, probs, gamma, turns, (*h, a))
                for a in (0, 1)
            ]
            found[h] = power**t * reach * (q[1] - q[0])
    return found


def _symbols(turns: int) -> tuple[Rewards, dict[tuple[int, ...], Any], Any]:
    gamma = sp.Symbol("gamma", positive=True)
    rewards, probs = {}, {}
    for t in range(turns):
        for h in itertools.product((0, 1), repeat=t):
            tag = "".join(map(str, h))
            probs[h] = sp.Symbol(f"p_{tag}", positive=True)
            for a in (0, 1):
                rewards[(*h, a)] = sp.Symbol(f"r_{tag}{a}", real=True)
    return rewards, probs, gamma


@step("with gamma^t the components are the derivatives of J, symbolic, T = 2, 3")
def is_gradient() -> str:
    for turns in (2, 3):
        rewards, probs, gamma = _symbols(turns)
        objective = value(rewards, probs, gamma, turns)
        for h, found in components(rewards, probs, gamma, turns, gamma).items():
            identical(found, sp.diff(objective, probs[h]), f"T={turns}, history {h}")
    return "policy gradient theorem, discounted"


@step("without it the mixed derivatives differ: no function has this gradient")
def not_a_gradient() -> str:
    rewards, probs, gamma = _symbols(2)
    field = components(rewards, probs, gamma, 2, 1)
    root, child = (), (1,)
    across = sp.diff(field[root], probs[child])
    back = sp.diff(field[child], probs[root])
    identical(across, gamma * back, "factor gamma")
    identical(back, rewards[1, 1] - rewards[1, 0], "the derivative itself")
    # The rows as logits: multiply each component by p(1-p) and use d/dlogit = p(1-p) d/dp.
    scale = {h: probs[h] * (1 - probs[h]) for h in (root, child)}
    logit_across = sp.diff(scale[root] * field[root], probs[child]) * scale[child]
    logit_back = sp.diff(scale[child] * field[child], probs[root]) * scale[root]
    identical(logit_across, gamma * logit_back, "in logits")
    return "d g_1 / d p_2 = gamma d g_2 / d p_1, not 0 unless turn 2 is indifferent"


@step("independent rows: each component is gamma^-(t-1) times the gradient's, T = 3")
def harmless() -> str:
    rewards, probs, gamma = _symbols(3)
    plain = components(rewards, probs, gamma, 3, 1)
    for h, found in components(rewards, probs, gamma, 3, gamma).items():
        identical(plain[h] * gamma ** len(h), found, f"history {h}")
        # no sp.factor here: it draws evaluation points, and a bad draw takes minutes
        square = gamma ** -len(h) * found**2
        identical(plain[h] * found, square, "inner product is a weighted square")
    return "same stationary points, <g, grad J> >= 0"


@step("at gamma = 1 the updates are one")
def undiscounted() -> str:
    rewards, probs, _ = _symbols(3)
    objective = value(rewards, probs, 1, 3)
    for h, found in components(rewards, probs, 1, 3, 1).items():
        identical(found, sp.diff(objective, probs[h]), f"gradient, {h}")
    return "nothing to drop"


def pessimal() -> tuple[Rewards, Fraction]:
    r"""The rewards $r_1 = a_1$, $r_2 = 4 a_1 - 4 a_2$ and the discount 1/2 of Theorem 3."""
    rewards: dict[tuple[int, ...], Fraction] = {(a,): Fraction(a) for a in (0, 1)}
    rewards |= {(a, b): Fraction(4 * a - 4 * b) for a in (0, 1) for b in (0, 1)}
    return rewards, Fraction(1, 2)


@step("one probability for both turns: the update ends at the minimum of both returns")
def shared() -> str:
    rewards, gamma = pessimal()
    p = sp.Symbol("p", positive=True)
    probs = dict.fromkeys([(), (0,), (1,)], p)
    exact = {h: sp.Rational(r.numerator, r.denominator) for h, r in rewards.items()}
    half = sp.Rational(gamma.numerator, gamma.denominator)
    for discount in (half, sp.Integer(1)):
        identical(value(exact, probs, discount, 2), p, f"J at gamma = {discount}")
    plain = sum(components(exact, probs, half, 2, 1).values())
    true = sum(components(exact, probs, half, 2, half).values())
    identical(plain, -1, "update")
    identical(true, 1, "gradient")
    return "gradient +1, update -1 at every p"


@step("the same with a logit: the update drives p to 0 from any start, exactly")
def shared_flow() -> str:
    # Gradient flow on the logit: dp/dt = (p(1-p))^2 * (-1) < 0 on (0, 1); its only zeros are 0, 1.
    p = sp.Symbol("p", positive=True)
    flow = -((p * (1 - p)) ** 2)
    zeros = sp.Poly(flow, p).real_roots()
    require(set(zeros) == {0, 1}, f"zeros {zeros}")
    require(flow.subs(p, sp.Rational(1, 2)) < 0, "sign")
    return "no stationary point between 0 and 1, p falls"


RESULTS = (
    Result(
        name="dropped-discount",
        statement="The policy update without gamma^t is no gradient; with shared parameters it can "
        "end at the worst policy, with a row for each history it keeps every sign",
        source="Thomas 2014; arXiv:1906.07073; arXiv:2602.06554 (undiscounted returns)",
        assumptions=("finite horizon", "advantages discounted from their own turn on"),
        steps=(is_gradient, not_a_gradient, harmless, undiscounted, shared, shared_flow),
        stops="gamma = 1, independent rows, or a single reward at the end with a "
        "whole-trajectory advantage",
    ),
)
