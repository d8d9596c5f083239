r"""The clipped surrogate is a lower bound of the linear gain: where that gives improvement.

**Lemma.** For every ratio $\rho \ge 0$, number $M$ and clip range $0 \le \varepsilon^- < 1$,
$\varepsilon^+ \ge 0$,

$$m(\rho, M) = \min\bigl(\rho M, \operatorname{clip}(\rho, 1 - \varepsilon^-, 1 + \varepsilon^+)
  M\bigr) \le \rho M, \qquad m(1, M) = M .$$

The gap is $M (\rho - 1 - \varepsilon^+)$ or $-M (1 - \varepsilon^- - \rho)$ outside the range on
the side that $M$ favours, and 0 elsewhere.

**Theorem 1** (simultaneous update, PPO with a group mean). Let every history have a policy row of
its own, and let $\hat A$ satisfy $\mathbb E[\hat A \mid h, a] = c\,(Q^\pi(h, a) - b(h))$ with
$c > 0$; by ``baseline_invariance`` the group mean does, with $c = 1 - 1/G$ and $b = V(s_0)$. If
the exact surrogate $L_h(\pi') = \mathbb E_{a \sim \pi}[m(\pi'/\pi, \hat A) \mid h]$ does not fall
below $L_h(\pi)$ at any history, then $J(\pi') \ge J(\pi)$, and

$$J(\pi') - J(\pi) \ge \frac1c \sum_h d^{\pi'}(h) \bigl(L_h(\pi') - L_h(\pi)\bigr) .$$

*Proof.* $L_h(\pi') - L_h(\pi) \le \mathbb E[(\rho - 1) \hat A \mid h] = c \sum_a (\pi' - \pi)(a
\mid h) Q^\pi(h, a)$: the baseline multiplies $\sum_a (\pi' - \pi)(a \mid h) = 0$. Weight with
$d^{\pi'}(h) \ge 0$ and use the performance difference.

**Theorem 2** (sequential update, any order). If turn $t$ is updated with $M = \hat A \prod_{s
\text{ updated}} \rho_s$, then $\mathbb E[m(\rho_t, M)] - \mathbb E[M] \le c\,\Delta_t J$, where
$\Delta_t J$ is the change of $J$ by that turn. Here the *sum* over histories suffices: rows may
be shared between the histories of one turn, but not between turns.

**What it says about "GRAE breaks PPO's monotonic improvement".** On history-conditioned
independent tables, in exact expectation and without std normalisation, it does not: the offset
$V(h) - V(s_0)$ is a baseline. The difference between the two theorems is real: if a turn does not
see the earlier actions, a simultaneous step may raise the summed surrogate and lower the return,
while a sequential sweep may not.

**Where it stops**, each with an exact instance below: rows shared between the histories of a turn
(simultaneous update), or between turns (both); a group std (the scale depends on the own reward);
a baseline that depends on the own action; a batch instead of the expectation; the dual clip, which
is no lower bound; a length-normalised ratio, whose expectation is not the linear gain; and of
course a step that lowers its own surrogate.

**Source.** Schulman et al. 2017 (clip); Kakade and Langford 2002; SeeUPO, arXiv:2602.06554,
Eq. 6-9 and the claim of a structural bias of GRAE with PPO.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import sympy as sp

from proofs._base import Result, identical, require, step
from proofs._trees import (
    History,
    Policy,
    Tree,
    histories,
    paths,
    product,
    symbolic_policy,
    symbolic_rewards,
)
from proofs.performance_difference import mixed

EPSILON = Fraction(1, 5)


def clipped(ratio: Any, advantage: Any, low: Any = EPSILON, high: Any = EPSILON) -> Any:
    r"""$\min(\rho M, \operatorname{clip}(\rho, 1 - \varepsilon^-, 1 + \varepsilon^+) M)$.

    >>> clipped(Fraction(3, 2), Fraction(1)), clipped(Fraction(3, 2), Fraction(-1))
    (Fraction(6, 5), Fraction(-3, 2))
    """
    inside = min(max(ratio, 1 - low), 1 + high)
    return min(ratio * advantage, inside * advantage)


Parts = Mapping[History, tuple[Fraction, Fraction]]


def advantage_parts(tree: Tree, old: Policy, group: int | None = None) -> Parts:
    r"""$\mathbb E[\hat A^+]$ and $\mathbb E[\hat A^-]$ given the own path, for every path.

    Minus the mean of a group that includes the path; None stands for $\hat A = r - V$.
    """
    if group is None:
        value = tree.value(old)
        gaps = {path: tree.rewards[path] - value for path in paths(tree.actions)}
        return {path: (max(gap, 0 * gap), max(-gap, 0 * gap)) for path, gap in gaps.items()}
    chance = {path: tree.reach(old, path) for path in paths(tree.actions)}
    found = {}
    for path in chance:
        up = down = Fraction(0)
        for others in itertools.product(chance, repeat=group - 1):
            total = tree.rewards[path] + sum(tree.rewards[p] for p in others)
            estimate = tree.rewards[path] - Fraction(total) / group
            joint = product(chance[p] for p in others)
            up, down = up + joint * max(estimate, 0), down + joint * max(-estimate, 0)
        found[path] = (up, down)
    return found


def surrogates(
    tree: Tree, old: Policy, new: Policy, parts: Parts | None = None
) -> dict[History, Fraction]:
    r"""$d^\pi(h) \, L_h(\pi')$ at every history, for the advantages of `advantage_parts`.

    The surrogate is positively homogeneous: $m(\rho, x) = x^+ m(\rho, 1) + x^- m(\rho, -1)$.
    """
    parts = advantage_parts(tree, old) if parts is None else parts
    found: dict[History, Fraction] = dict.fromkeys(histories(tree.actions), Fraction(0))
    for path, (up, down) in parts.items():
        weight = tree.reach(old, path)
        for t, action in enumerate(path):
            ratio = new[path[:t]][action] / old[path[:t]][action]
            found[path[:t]] += weight * (up * clipped(ratio, 1) + down * clipped(ratio, -1))
    return found


@step("lemma: the gap of the bound in every region of (rho, M), and equality at rho = 1")
def lemma() -> str:
    low, high = sp.symbols("epsilon_- epsilon_+", nonnegative=True)
    u, size = sp.symbols("u M", positive=True)  # u: distance beyond the clip boundary
    above, below = 1 + high + u, 1 - low - u
    # Outside the range on the favoured side, the clipped branch is the smaller one.
    for rho, edge, advantage in ((above, 1 + high, size), (below, 1 - low, -size)):
        gap = sp.expand(rho * advantage - edge * advantage)
        identical(gap, size * u, f"gap at rho = {rho}, M = {advantage}")
        require(gap.is_positive, f"gap {gap} is not positive")
    # On the other side the unclipped branch is the smaller one, so that the bound is an equality.
    for rho, edge, advantage in ((above, 1 + high, -size), (below, 1 - low, size)):
        excess = sp.expand(edge * advantage - rho * advantage)
        require(excess.is_positive, f"clipped minus unclipped {excess} is not positive")
    return "gap |M| u beyond the favoured side, 0 elsewhere"


@step("the baseline cancels: E[(rho - 1) A] = c sum (pi' - pi) Q, 2 to 5 actions")
def linear_gain() -> str:
    c, b = sp.symbols("c b")
    for size in range(2, 6):
        old, new = symbolic_policy((size,), "p")[()], symbolic_policy((size,), "q")[()]
        q = sp.symbols(f"Q_0:{size}")
        left = sum(old[a] * (new[a] / old[a] - 1) * c * (q[a] - b) for a in range(size))
        right = c * sum((new[a] - old[a]) * q[a] for a in range(size))
        identical(left, right, f"{size} actions")
    return "for an arbitrary baseline b(h)"


@step("a group of 2 and 3: E[(rho - 1) A] = (1 - 1/G) sum (pi' - pi) r, all groups summed")
def group_gain() -> str:
    for group in (2, 3):
        tree = Tree((2,), symbolic_rewards((2,)))
        old, new = symbolic_policy((2,), "p"), symbolic_policy((2,), "q")
        left: Any = 0
        for members in itertools.product(paths((2,)), repeat=group):
            returns = [tree.rewards[m] for m in members]
            own = members[0][0]
            weight = product(old[()][m[0]] for m in members)
            estimate = returns[0] - sum(returns) / sp.Integer(group)
            left += weight * (new[()][own] / old[()][own] - 1) * estimate
        gain = tree.value(new) - tree.value(old)
        identical(left, (1 - sp.Rational(1, group)) * gain, f"G={group}")
    return "own reward in the mean: factor 1 - 1/G only"


@step("theorem 1: J(new) - J(old) = sum of d_new(h) linear gains, symbolic, T = 2, 3")
def simultaneous() -> str:
    for actions in ((2, 2), (2, 2, 2)):
        tree = Tree(actions, symbolic_rewards(actions))
        old, new = symbolic_policy(actions, "p"), symbolic_policy(actions, "q")
        weighted = sum(
            tree.reach(new, h)
            * sum((new[h][a] - old[h][a]) * tree.value(old, (*h, a)) for a in range(2))
            for h in histories(actions)
        )
        identical(weighted, tree.value(new) - tree.value(old), f"actions {actions}")
    return "non-negative weights: non-negative gains at every history suffice"


@step("theorem 1 by exhaustion: 11664 pairs of policies, T = 2, group of 2, lower bound holds")
def exhaustion() -> str:
    grid = [Fraction(k, 4) for k in (1, 2, 3)]
    rows = [dict(zip(histories((2, 2)), row, strict=True)) for row in _policies(grid)]
    improved = 0
    for bits in itertools.product((0, 1), repeat=4):
        rewards = dict(zip(paths((2, 2)), map(Fraction, bits), strict=True))
        tree = Tree((2, 2), rewards)
        for old in rows:
            parts = advantage_parts(tree, old, group=2)
            start = surrogates(tree, old, old, parts)
            value = tree.value(old)
            for new in rows:
                rise = {h: v - start[h] for h, v in surrogates(tree, old, new, parts).items()}
                bound = sum(
                    2 * tree.reach(new, h) / tree.reach(old, h) * gain for h, gain in rise.items()
                )
                gain = tree.value(new) - value
                require(gain >= bound, f"gain {gain} below the bound {bound} at {bits}")
                if min(rise.values()) >= 0 and new is not old:
                    require(gain >= 0, f"the return falls by {-gain} at {bits}, {old}, {new}")
                    improved += max(rise.values()) > 0
    require(improved > 0, "no pair raises the surrogate, the check would be empty")
    return f"{improved} pairs raise the surrogate at some history and lower it at none"


def _policies(grid: Sequence[Fraction]) -> list[tuple[tuple[Fraction, Fraction], ...]]:
    return [tuple((p, 1 - p) for p in row) for row in itertools.product(grid, repeat=3)]


@step("theorem 2: E[(rho_t - 1) M] = change of J by turn t, in every order, T = 2, 3")
def sequential() -> str:
    for actions in ((2, 2), (2, 2, 2)):
        tree = Tree(actions, symbolic_rewards(actions))
        old, new = symbolic_policy(actions, "p"), symbolic_policy(actions, "q")
        baseline = sp.Symbol("b")
        for order in itertools.permutations(range(len(actions))):
            for done, turn in enumerate(order):
                updated = order[:done]
                left: Any = 0
                for path in paths(actions):
                    ratios = [new[path[:s]][path[s]] / old[path[:s]][path[s]] for s in updated]
                    rho = new[path[:turn]][path[turn]] / old[path[:turn]][path[turn]]
                    factor = product(ratios)
                    left += (
                        tree.reach(old, path) * (rho - 1) * factor * (tree.rewards[path] - baseline)
                    )
                before = _partly(tree, old, new, updated)
                after = _partly(tree, old, new, (*updated, turn))
                identical(
                    left, tree.value(after) - tree.value(before), f"order {order}, turn {turn}"
                )
    return "the running product weights every history as the return does"


def _partly(tree: Tree, old: Policy, new: Policy, updated: Sequence[int]) -> Policy:
    return mixed(tree, tuple(new if s in updated else old for s in range(tree.turns)))


@step("stops: a turn that does not see the past; simultaneous surrogate rises, return falls")
def blind_turns() -> str:
    tree, old, new = blind_instance()
    rise = sum(surrogates(tree, old, new).values()) - sum(surrogates(tree, old, old).values())
    gain = tree.value(new) - tree.value(old)
    require(rise > 0 > gain, f"surrogate {rise}, return {gain}")
    return f"reward for unequal actions, 12/25 to 27/50: surrogate +{rise}, return {gain}"


def blind_instance() -> tuple[Tree, Policy, Policy]:
    """Reward 1 for unequal actions; both turns move from 12/25 to 27/50, blind to the past."""
    rewards = {p: Fraction(int(p[0] != p[1])) for p in paths((2, 2))}
    p, q = Fraction(12, 25), Fraction(27, 50)
    old: Policy = dict.fromkeys(histories((2, 2)), (p, 1 - p))
    new: Policy = dict.fromkeys(histories((2, 2)), (q, 1 - q))
    return Tree((2, 2), rewards), old, new


@step("stops: group std, G = 2; the normalised surrogate rises, the return falls")
def group_std() -> str:
    # With G = 2 the normalised advantage is the sign of the difference over sqrt(2).
    half, delta = Fraction(1, 2), Fraction(1, 10)
    sure, gamble = (
        {half: Fraction(1)},
        {Fraction(0): Fraction(3, 5), Fraction(3, 2): Fraction(2, 5)},
    )
    rise = Fraction(0)
    for own, sign in ((sure, 1), (gamble, -1)):
        for r, p in own.items():
            for other in (sure, gamble):
                for s, q in other.items():
                    estimate = Fraction((r > s) - (r < s))
                    step_gain = clipped(1 + sign * delta, estimate) - estimate
                    rise += half * p * half * q * step_gain
    gain = half * delta * (half - Fraction(3, 5))
    require(rise > 0 > gain, f"surrogate {rise}/sqrt(2), return {gain}")
    return f"sure 1/2 against 3/2 with probability 2/5: surrogate +{rise}/sqrt(2), return {gain}"


@step("stops: one sampled group; its surrogate rises, the return falls, probability 3/10")
def sampled() -> str:
    # The group (sure arm: 1/2, gamble: 0) has advantages (1/4, -1/4), whatever the step.
    up, down = Fraction(11, 10), Fraction(9, 10)
    estimate = (Fraction(1, 4), Fraction(-1, 4))
    rise = sum(clipped(r, a) for r, a in zip((up, down), estimate, strict=True)) - sum(estimate)
    chance = 2 * Fraction(1, 4) * Fraction(3, 5)
    gain = Fraction(1, 20) * (Fraction(1, 2) - Fraction(3, 5))
    require(rise > 0 > gain and chance == Fraction(3, 10), f"{rise}, {gain}, {chance}")
    return f"surrogate of the sample +{rise}, return {gain}"


@step("stops: dual clip with constant 3 is no lower bound; it rises, the return falls")
def dual_clip() -> str:
    old = (Fraction(1, 100), Fraction(1, 2), Fraction(49, 100))
    new = (Fraction(1, 4), Fraction(3, 5), Fraction(3, 20))
    rewards = (Fraction(0), Fraction(1), Fraction(1, 2))
    value = sum(p * r for p, r in zip(old, rewards, strict=True))
    rise = Fraction(0)
    for p, q, r in zip(old, new, rewards, strict=True):
        advantage = r - value
        plain = clipped(q / p, advantage)
        rise += p * ((max(plain, 3 * advantage) if advantage < 0 else plain) - advantage)
    gain = sum(q * r for q, r in zip(new, rewards, strict=True)) - value
    require(rise > 0 > gain, f"surrogate {rise}, return {gain}")
    return f"a rare bad action grows 25-fold at the price of 3: surrogate +{rise}, return {gain}"


@step("stops: length-normalised ratio; the surrogate rises inside the clip range, return falls")
def length_normalised() -> str:
    third = Fraction(1, 3)
    ratios = (Fraction(119, 100), Fraction(81, 100), Fraction(1))
    normalised = (Fraction(119, 100), Fraction(9, 10), Fraction(1))  # lengths 1, 2, 1
    rewards = (Fraction(7), Fraction(8), Fraction(0))
    require(normalised[1] ** 2 == ratios[1], "geometric mean over two tokens")
    value = sum(rewards) * third
    rise = sum(
        third * (clipped(s, r - value) - (r - value))
        for s, r in zip(normalised, rewards, strict=True)
    )
    gain = sum(third * (s - 1) * r for s, r in zip(ratios, rewards, strict=True))
    require(rise > 0 > gain, f"surrogate {rise}, return {gain}")
    return f"answers of 1, 2, 1 tokens: surrogate +{rise}, return {gain}"


RESULTS = (
    Result(
        name="clipped-lower-bound",
        statement="The clipped surrogate is at most the linear gain, so a simultaneous step that "
        "lowers it at no history, or a sequential one that lowers it at no turn, keeps J",
        source="Schulman et al. 2017; Kakade and Langford 2002; arXiv:2602.06554 Eq. 6-9",
        assumptions=(
            "exact expectation over trajectories and groups",
            "advantage with conditional mean c (Q - b(h)), c > 0: no std, own-action-free baseline",
            "simultaneous: a row for each history; sequential: no rows shared between turns",
            "ratio of probabilities of the whole action, support of the old policy",
        ),
        steps=(
            lemma,
            linear_gain,
            group_gain,
            simultaneous,
            exhaustion,
            sequential,
            blind_turns,
            group_std,
            sampled,
            dual_clip,
            length_normalised,
        ),
        stops="shared rows, group std, own-action baselines, batches, dual clip, length-normalised "
        "ratios",
    ),
)
