r"""A lower bound of the improvement that survives shared parameters: one ratio for a trajectory.

Let an episode be any finite process: contexts, actions from $\pi_\theta(a_t \mid o_t)$ where $o_t$ is
any function of the past, random replies of an environment that does not depend on $\theta$, and a
random return $r$. Let $\theta_k$ draw the trajectories, every action of $\theta'$ having positive
probability under $\theta_k$, and

$$\rho = \prod_t \frac{\pi_{\theta'}(a_t \mid o_t)}{\pi_{\theta_k}(a_t \mid o_t)}, \qquad
F(\theta') = \mathbb E_{\theta_k}[\min(\rho \hat A, \operatorname{clip}(\rho) \hat A)] .$$

**Theorem 1.** For $\hat A = r - V(s_0)$, $F(\theta') \le \mathbb E[\rho \hat A] = J(\theta') -
J(\theta_k)$, for *every* parametrisation: shared between turns, aliased, or neither. For the mean
of a group of $G$ independent trajectories of one context, $\mathbb E[\rho_i \hat A_i] = (1 - 1/G)
(J(\theta') - J(\theta_k))$ and so $F \le (1 - 1/G)(J(\theta') - J(\theta_k))$; for leave-one-out
the factor is 1. Hence a step with $F(\theta') \ge 0$ never lowers $J$: no critic, no order of turns.
*Proof.* $\min(\rho A, \cdot) \le \rho A$ pathwise. The probability of a trajectory under $\theta'$ is
$\rho$ times that under $\theta_k$, since the environment's factors are the same in both. With
$\mathbb E[\rho \mid s_0] = 1$, $\mathbb E[\rho_i r_j] = V_k(s_0)$ for $j \ne i$.

**Theorem 2** (it is no empty promise). $F(\theta_k) = 0$ and $\nabla F(\theta_k) = c \nabla J(\theta_k)$,
so that away from stationary points a small step along $\nabla F$ has $F > 0$.

**Theorem 3** (its price). $m_t(h) = \sum_a \frac{\pi'(a \mid h)^2}{\pi(a \mid h)} m_{t+1}(h, a)$ with
$m_{T+1} = 1$ gives $\mathbb E[\rho^2] = m_1$. For $T$ independent turns of equal $\chi^2 =
\sum_a (\pi' - \pi)^2 / \pi$ it is $(1 + \chi^2)^T$: exponential in the horizon at a fixed change a
turn, and bounded by $e$ only while $\chi^2 \le 1/T$.

**Where it stops.** A group std: the ratio of means is no longer the improvement (the stored
certificate of one GRPO step in one turn, whose ratio is the trajectory's, has $F > 0$ and a lower
$J$). Clipping each turn's ratio instead of their product, length normalisation: the expectation of
the unclipped ratio is not the improvement. A policy that leaves the support of $\theta_k$. And $F \ge 0$
is only sufficient: a good step may have $F < 0$ and is then refused. What a batch of samples says
about $F$ is the matter of ``trajectory_samples``.

**Source.** Conservative and clipped surrogates: Kakade and Langford 2002, Schulman et al.
2017. Bears on SeeUPO, arXiv:2602.06554, and its claim that no mainstream
backbone is both critic-free and convergent in many turns.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import sympy as sp

from proofs._base import Result, identical, require, step
from proofs._trees import History, Policy, Tree, paths, symbolic_policy, symbolic_rewards
from proofs.baseline_invariance import group_mean, leave_one_out, probability
from proofs.clipped_lower_bound import clipped, lemma

CERTIFICATE = Path(__file__).parent / "certificates" / "grpo-step-one-turn.json"

# Theorem 1 --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Episode:
    """A trajectory: the environment's factor, the policy rows used, and the return."""

    environment: Any
    moves: tuple[tuple[Any, int], ...]  # (key of the policy row, action)
    total: Any


def symbolic_process() -> tuple[list[Episode], list[Any]]:
    """Two turns, a random reply after each action and a random reward; rows seen by reply only.

    All probabilities of the environment are symbols; the second turn sees the reply, not the first
    action, and the third uses the row of the second again.
    """
    episodes = []
    rewards = sp.symbols("r_0:8", real=True)
    reply = {a: sp.Symbol(f"q_{a}", positive=True) for a in range(2)}
    for a, o, b, d in itertools.product(range(2), repeat=4):
        chance = reply[a] if o else 1 - reply[a]
        lucky = sp.Symbol(f"u_{b}{d}", positive=True)
        for win in range(2):
            weight = chance * (lucky if win else 1 - lucky)
            total = rewards[4 * win + 2 * o + (a + b + d) % 2]
            episodes.append(Episode(weight, (("first", a), (o, b), (o, d)), total))
    return episodes, list(rewards)


def likelihood(episode: Episode, policy: dict[Any, tuple[Any, ...]]) -> Any:
    """The probability of an episode."""
    result = episode.environment
    for row, action in episode.moves:
        result = result * policy[row][action]
    return result


def ratio(episode: Episode, new: Any, old: Any) -> Any:
    """The product of the ratios of all turns; the environment's factors are absent."""
    result: Any = 1
    for row, action in episode.moves:
        result = result * new[row][action] / old[row][action]
    return result


@step("random replies, aliased rows, one row used twice: E[rho (r - V)] = J' - J, all symbolic")
def environment_cancels() -> str:
    episodes, _ = symbolic_process()
    rows = ("first", 0, 1)
    old = {row: _row(f"p_{row}") for row in rows}
    new = {row: _row(f"n_{row}") for row in rows}
    better = sum(likelihood(e, new) * e.total for e in episodes)
    reweighted = [(likelihood(e, old) * ratio(e, new, old), e.total) for e in episodes]
    identical(sum(w for w, _ in reweighted), 1, "E[rho] = 1")
    identical(sum(w * total for w, total in reweighted), better, "E[rho r] = J'")
    return f"E[rho] = 1, E[rho r] = J': {len(episodes)} trajectories, 3 rows for three turns"


def _row(name: str) -> tuple[Any, Any]:
    p = sp.Symbol(name, positive=True)
    return p, 1 - p


@step("for a symbolic G: E[rho_i A_i] = (1 - 1/G)(J' - J); leave-one-out: J' - J")
def group_factor() -> str:
    new, old, size = sp.symbols("J_new J G", real=True)
    # E[rho_i r_i] = J', E[rho_i r_j] = E[rho_i] E[r_j] = J for the G - 1 others
    identical(new - (new + (size - 1) * old) / size, (1 - 1 / size) * (new - old), "group mean")
    identical(new - old * (size - 1) / (size - 1), new - old, "leave-one-out")
    return "the context's value enters through E[rho | s_0] = 1"


@step("the same by summing over all groups: one turn G = 2, 3, two turns G = 2")
def group_sums() -> str:
    for actions, sizes in (((2,), (2, 3)), ((2, 2), (2,))):
        tree = Tree(actions, symbolic_rewards(actions))
        old, new = symbolic_policy(actions, "p"), symbolic_policy(actions, "n")
        gain = tree.value(new) - tree.value(old)
        for size in sizes:
            mean = weighted_group_sum(tree, old, new, size, group_mean)
            identical(mean, (1 - sp.Rational(1, size)) * gain, f"{actions}, group mean, G={size}")
            loo = weighted_group_sum(tree, old, new, size, leave_one_out)
            identical(loo, gain, f"{actions}, leave-one-out, G={size}")
    return "symbolic rewards and policies"


def weighted_group_sum(
    tree: Tree, old: Policy, new: Policy, size: int, advantages: Any, objective: Any = None
) -> Any:
    r"""$\mathbb E[\frac1G \sum_i f(\rho_i, \hat A_i)]$ over all groups; $f$ is $\rho \hat A$ if None."""
    total: Any = 0
    for members in itertools.product(paths(tree.actions), repeat=size):
        weight: Any = 1
        for path in members:
            weight = weight * probability(old, path)
        estimates = advantages([tree.rewards[path] for path in members])
        for path, value in zip(members, estimates, strict=True):
            rho = probability(new, path) / probability(old, path)
            total += weight * (rho * value if objective is None else objective(rho, value))
    return total / size


# Exact instances --------------------------------------------------------------------------------


def random_row(rng: Random, size: int) -> tuple[Fraction, ...]:
    """A row of small positive fractions."""
    weights = [rng.randint(1, 6) for _ in range(size)]
    return tuple(Fraction(w, sum(weights)) for w in weights)


def random_process(rng: Random) -> tuple[list[Episode], dict[int, int]]:
    """A random process of one to three turns, and the number of actions of its policy rows.

    What the policy sees is a random function of the past into two rows at most, so that histories
    and turns share rows; replies are random, and so is the reward.
    """
    turns, size = rng.randint(1, 3), rng.randint(2, 3)
    seen: dict[Any, int] = {}

    def extend(past: tuple[Any, ...], weight: Fraction, moves: Any) -> Iterator[Episode]:
        if len(moves) == turns:
            for chance in random_row(rng, 2):
                yield Episode(weight * chance, moves, Fraction(rng.randint(-2, 3)))
            return
        row = seen.setdefault((len(moves), past[-1:]), rng.randint(0, 1))
        for action in range(size):
            for reply, chance in enumerate(random_row(rng, 2)):
                after = (*past, (action, reply))
                yield from extend(after, weight * chance, (*moves, (row, action)))

    return list(extend((), Fraction(1), ())), dict.fromkeys((0, 1), size)


def bound_and_gain(rng: Random) -> tuple[Fraction, Fraction]:
    r"""$F$ and $J' - J$ of a random process with random old and new rows, exactly."""
    episodes, rows = random_process(rng)
    old = {row: random_row(rng, size) for row, size in rows.items()}
    new = {row: random_row(rng, size) for row, size in rows.items()}
    value = sum(likelihood(e, old) * e.total for e in episodes)
    gain = sum(likelihood(e, new) * e.total for e in episodes) - value
    surrogate = sum(
        likelihood(e, old) * clipped(ratio(e, new, old), e.total - value) for e in episodes
    )
    return Fraction(surrogate), Fraction(gain)


@step("400 random processes with shared and aliased rows, in fractions: F <= J' - J")
def instances() -> str:
    rng, refused, improved = Random(7), 0, 0
    for index in range(400):
        surrogate, gain = bound_and_gain(rng)
        require(surrogate <= gain, f"instance {index}: F = {surrogate} > {gain}")
        improved += surrogate > 0
        refused += surrogate < 0 < gain
    require(improved > 0 and refused > 0, "the sample is one-sided")
    return f"F > 0 in {improved}; in {refused} the step was good and F < 0 would refuse it"


@step("200 random trees and groups of two, in fractions: F <= (1 - 1/G)(J' - J)")
def group_instances() -> str:
    rng = Random(8)
    for index in range(200):
        actions = (rng.randint(2, 3),) if index % 2 else (2, 2)
        tree = Tree(actions, {p: Fraction(rng.randint(-2, 3)) for p in paths(actions)})
        old, new = (_random_policy(rng, actions) for _ in range(2))
        found = weighted_group_sum(tree, old, new, 2, _fraction_mean, clipped)
        gain = tree.value(new) - tree.value(old)
        require(found <= gain / 2, f"instance {index}: F = {found} > {gain / 2}")
    return "one turn and two turns, history-conditioned rows"


def _fraction_mean(returns: list[Fraction]) -> list[Fraction]:
    mean = sum(returns, Fraction(0)) / len(returns)
    return [r - mean for r in returns]


def _random_policy(rng: Random, actions: tuple[int, ...]) -> dict[History, tuple[Fraction, ...]]:
    return {
        h: random_row(rng, size) for turn, size in enumerate(actions) for h in paths(actions[:turn])
    }


@step("tangent: F(theta_k) = 0 and dF = (1 - 1/G) dJ, two turns sharing one parameter")
def tangent() -> str:
    theta = sp.Symbol("theta", real=True)
    tree = Tree((2, 2), symbolic_rewards((2, 2)))
    shared = sp.Function("p")(theta)
    base = sp.Symbol("p", positive=True)
    old: Policy = dict.fromkeys(((), (0,), (1,)), (base, 1 - base))
    new: Policy = dict.fromkeys(((), (0,), (1,)), (shared, 1 - shared))
    # Near theta_k every ratio is inside the clip, where min(rho A, clip(rho) A) = rho A.
    surrogate = weighted_group_sum(tree, old, new, 2, group_mean)
    slope = sp.Symbol("slope", real=True)
    at = {sp.Derivative(shared, theta): slope, shared: base}
    identical(surrogate.subs(shared, base), 0, "F(theta_k)")
    identical(
        sp.diff(surrogate, theta).subs(at).doit(),
        sp.diff(tree.value(new), theta).subs(at).doit() / 2,
        "dF = dJ / 2 for G = 2",
    )
    return "arbitrary p(theta); the ratios near 1 are not clipped"


# Theorem 3 --------------------------------------------------------------------------------------


@step("E[rho^2] by recursion over histories, two turns, symbolic rows")
def second_moment_recursion() -> str:
    actions = (2, 2)
    old, new = symbolic_policy(actions, "p"), symbolic_policy(actions, "n")
    direct = sum(probability(new, p) ** 2 / probability(old, p) for p in paths(actions))
    identical(second_moment(old, new, actions), direct, "two turns")
    return "m(h) = sum_a new^2/old m(h, a)"


def second_moment(old: Policy, new: Policy, actions: tuple[int, ...], history: History = ()) -> Any:
    r"""$\mathbb E[\rho^2]$ from a history on."""
    if len(history) == len(actions):
        return 1
    return sum(
        new[history][a] ** 2 / old[history][a] * second_moment(old, new, actions, (*history, a))
        for a in range(actions[len(history)])
    )


@step("for T independent turns: E[rho^2] = (1 + chi^2)^T, and two actions: chi^2 = d^2/(p(1-p))")
def second_moment_product() -> str:
    p, d = sp.symbols("p d", positive=True)
    one_turn = (p + d) ** 2 / p + (1 - p - d) ** 2 / (1 - p)
    identical(one_turn, 1 + d**2 / (p * (1 - p)), "two actions")
    for turns in range(1, 6):
        actions = (2,) * turns
        rows = {h: (p, 1 - p) for t in range(turns) for h in paths(actions[:t])}
        moved = dict.fromkeys(rows, (p + d, 1 - p - d))
        identical(second_moment(rows, moved, actions), one_turn**turns, f"T = {turns}")
    n, moment = sp.symbols("T m", positive=True)
    grown = (
        moment * one_turn
    )  # the step from T to T + 1: the recursion's factor does not depend on a
    identical(grown - moment, moment * d**2 / (p * (1 - p)), f"induction in {n}")
    ten, fifty = (sp.Rational(26, 25) ** t for t in (10, 50))
    return f"at p = 1/2, d = 1/10: {float(ten):.2f} for T = 10, {float(fifty):.2f} for T = 50"


@step("with chi^2 = 1/T the second moment stays below e, with a fixed chi^2 it does not")
def second_moment_limit() -> str:
    for turns in (1, 2, 10, 100, 1000):
        moment = (1 + Fraction(1, turns)) ** turns
        partial_e = sum(Fraction(1, math.factorial(k)) for k in range(20))  # below e
        require(moment < partial_e, f"T = {turns}")
    require((1 + Fraction(1, 25)) ** 500 > 10**8, "a fixed change a turn")
    return "(1 + 1/T)^T < e; (1 + 1/25)^500 > 10^8"


# Where it stops ----------------------------------------------------------------------------------


@step("stops: with a group std F > 0 and J falls (certificate re-checked)")
def group_std_breaks_it() -> str:
    from proofs.verifier import verify

    certificate = json.loads(CERTIFICATE.read_text(encoding="utf-8"))
    verdict = verify(certificate)
    require(verdict.accepted, verdict.message)
    claim = certificate["claim"]
    require(len(certificate["policy"]["probs"]) == 1, "one turn: the ratio is the trajectory's")
    require(Fraction(claim["surrogate_gains"][0][0]) > 0, "F > 0")
    return f"F in {claim['surrogate_gains'][0]}, J falls by at least {claim['drop_at_least']}"


@step("stops: clipping each turn's ratio is no lower bound")
def factors_clipped_apart() -> str:
    gain, bound = clipped_factors_instance()
    require(bound > gain, f"{bound} <= {gain}")
    return f"product of clipped ratios: surrogate {bound}, improvement {gain}"


def clipped_factors_instance() -> tuple[Fraction, Fraction]:
    r"""$J' - J$, and the surrogate with $\prod_t \operatorname{clip}(\rho_t)$ for the ratio.

    Two turns, action 1 from probability 1/2 to 4/5 in each, r = -1 on (1, 1): the ratio of that
    path is 64/25, and 36/25 after clipping.
    """
    half, new = Fraction(1, 2), Fraction(4, 5)
    value, better = -half * half, -new * new
    total = Fraction(0)
    for path in paths((2, 2)):
        ratios = [(new if a else 1 - new) / half for a in path]
        inside = [min(max(x, Fraction(4, 5)), Fraction(6, 5)) for x in ratios]
        reward = Fraction(-1 if path == (1, 1) else 0)
        total += half * half * inside[0] * inside[1] * (reward - value)
    return better - value, total


RESULTS = (
    Result(
        name="trajectory-bound",
        statement="F = E[min(rho A, clip(rho) A)] with rho the product of all turns' ratios is at "
        "most the improvement, for every parametrisation and environment",
        source="Kakade and Langford 2002; Schulman et al. 2017; bears on arXiv:2602.06554 "
        "(critic-free and convergent)",
        assumptions=(
            "the new policy stays in the support of the old one",
            "the environment does not depend on the parameters",
            "an advantage centred by a baseline of the own context, without a std",
        ),
        steps=(
            lemma,
            environment_cancels,
            group_factor,
            group_sums,
            instances,
            group_instances,
            tangent,
            second_moment_recursion,
            second_moment_product,
            second_moment_limit,
            group_std_breaks_it,
            factors_clipped_apart,
        ),
        stops="group std; per-turn clipped or length-normalised ratios; leaving the support",
    ),
)
