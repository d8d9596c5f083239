r"""Baseline invariance, and the factor $1 - 1/G$ of the group mean.

**Theorem.** Let $\pi_\theta(\cdot \mid h)$ be a differentiable family of distributions on a
finite set and $b$ a random variable that is independent of the own action
$a \sim \pi_\theta(\cdot \mid h)$ given $h$. Then

$$\mathbb E[\nabla \log \pi_\theta(a \mid h)\, b] = \mathbb E[b \mid h]\, \nabla \sum_a
  \pi_\theta(a \mid h) = 0 .$$

Let $G \ge 2$ trajectories be drawn independently from $\pi_\theta$ in one context, with returns
$r_1, \dots, r_G$ of mean $V$, and $\hat A_i = r_i - \frac1G \sum_j r_j$. Then for every turn

$$\mathbb E[\hat A_i \mid h_i, a_i] = \Bigl(1 - \frac1G\Bigr) \bigl(Q^\pi(h_i, a_i) - V\bigr),
  \qquad \mathbb E\Bigl[\frac1G \sum_i \sum_t \nabla \log \pi_\theta(a_{t,i} \mid h_{t,i})\,
  \hat A_i\Bigr] = \Bigl(1 - \frac1G\Bigr) \nabla J(\theta),$$

and the leave-one-out advantage $r_i - \frac{1}{G-1} \sum_{j \ne i} r_j$ gives $\nabla J$ exactly.
The mean over a batch of $n = BG$ trajectories of several contexts gives the factor $1 - 1/n$.

*Proof.* $\hat A_i = \frac{G-1}{G} \bigl(r_i - \frac{1}{G-1} \sum_{j \ne i} r_j\bigr)$ pathwise; the
second term in brackets is independent of the own trajectory, hence a baseline. The steps check
the pathwise identity for a symbolic $G$, and the two expectations by summing over *all* groups of
small shapes with symbolic probabilities, rewards and directional derivatives. A directional
derivative is any family of numbers $\partial\pi(a \mid h)$ with $\sum_a \partial\pi(a \mid h) = 0$,
so that every parametrisation is covered, shared between turns or not.

**What it says about the group-relative advantage as an estimate.** It is not unbiased: every
component is scaled by $(G-1)/G$, that is by 1/2, 2/3, 3/4 for $G = 2, 3, 4$. Its direction is
exact, and a step size absorbs the factor.

**Where it stops.** The baseline must not depend on the own action. The best return of the group
does, and with it the exact expectation prefers a sure 1/2 to a gamble of mean 3/5. A scale that
depends on the own reward is no baseline either (see ``group_std``). The members must be
independent: two arms drawn without replacement give the factor $1 / (4 p (1-p))$, which depends
on the policy and exceeds 1 wherever $p \ne 1/2$.

**Source.** Williams 1992 (reinforcement baselines); Kool, van Hoof, Welling 2019 (leave-one-out);
SeeUPO, arXiv:2602.06554, Eq. 5 and 9 (the claim of an unbiased estimate).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import sympy as sp

from proofs._base import Result, identical, require, step
from proofs._trees import (
    History,
    Policy,
    Tree,
    paths,
    product,
    symbolic_direction,
    symbolic_policy,
    symbolic_rewards,
)

Advantages = Callable[[Sequence[Any]], list[Any]]


def group_mean(returns: Sequence[Any]) -> list[Any]:
    r"""$r_i - \frac1G \sum_j r_j$, exactly."""
    mean = sum(returns) / sp.Integer(len(returns))
    return [r - mean for r in returns]


def leave_one_out(returns: Sequence[Any]) -> list[Any]:
    r"""$r_i - \frac{1}{G-1} \sum_{j \ne i} r_j$, exactly."""
    total, others = sum(returns), sp.Integer(len(returns) - 1)
    return [r - (total - r) / others for r in returns]


def probability(policy: Policy, path: History) -> Any:
    """The probability of a path."""
    return product(policy[path[:t]][path[t]] for t in range(len(path)))


def score(policy: Policy, direction: Policy, path: History) -> Any:
    r"""$\partial \log \pi(\text{path}) = \sum_t \partial\pi(a_t \mid h_t) / \pi(a_t \mid h_t)$."""
    return sum(direction[path[:t]][path[t]] / policy[path[:t]][path[t]] for t in range(len(path)))


def expected_gradient(
    tree: Tree, policy: Policy, direction: Policy, group: int, advantages: Advantages
) -> Any:
    r"""$\mathbb E[\frac1G \sum_i \partial \log \pi(\text{path}_i) \hat A_i]$ over all groups."""
    total: Any = 0
    for members in itertools.product(paths(tree.actions), repeat=group):
        weight = product(probability(policy, path) for path in members)
        estimate = advantages([tree.rewards[path] for path in members])
        total += weight * sum(
            score(policy, direction, path) * value
            for path, value in zip(members, estimate, strict=True)
        )
    return total / group


def gradient(tree: Tree, policy: Policy, direction: Policy) -> Any:
    r"""$\partial J$: the sum over paths of probability, score and reward."""
    return sum(
        probability(policy, path) * score(policy, direction, path) * tree.rewards[path]
        for path in paths(tree.actions)
    )


def _symbolic(actions: tuple[int, ...]) -> tuple[Tree, Policy, Policy]:
    tree = Tree(actions, symbolic_rewards(actions))
    return tree, symbolic_policy(actions), symbolic_direction(actions)


@step("the score has mean zero for any differentiable family of 2 to 5 actions")
def score_mean() -> str:
    theta, b = sp.symbols("theta b")
    for size in range(2, 6):
        free = [sp.Function(f"p_{i}")(theta) for i in range(size - 1)]
        probs = [*free, 1 - sum(free)]
        mean = sum(p * (sp.diff(p, theta) / p) * b for p in probs)
        identical(mean, 0, f"{size} actions")
    return "sum_a p_a (p_a'/p_a) b = b (sum_a p_a)' = 0"


@step("a baseline computed from the other members cancels")
def other_members() -> str:
    for size in (2, 3):
        policy, direction = symbolic_policy((size,))[()], symbolic_direction((size,))[()]
        b = sp.symbols(f"b_0:{size}")
        mean = sum(
            policy[own] * policy[other] * direction[own] / policy[own] * b[other]
            for own in range(size)
            for other in range(size)
        )
        identical(mean, 0, f"{size} actions")
    return "E[d log pi(a_1) b(a_2)] = 0 for an arbitrary function b"


@step("pathwise, for a symbolic group size: own-mean advantage = (1 - 1/G) leave-one-out")
def pathwise() -> str:
    own, rest, size = sp.symbols("r_i R G", positive=True)  # R: sum of the other returns
    identical(
        own - (own + rest) / size,
        (1 - 1 / size) * (own - rest / (size - 1)),
        "group mean and leave-one-out",
    )
    q, v = sp.symbols("q V", real=True)
    identical(
        q - (q + (size - 1) * v) / size,
        (1 - 1 / size) * (q - v),
        "E[A_i | h_i, a_i] with E[r_i | h_i, a_i] = q, E[r_j] = V",
    )
    return "E[A_i | h, a] = (1 - 1/G)(Q(h, a) - V), all G"


@step("one turn, all groups summed: E[g] = (1 - 1/G) dJ for G = 2, 3, 4")
def one_turn() -> str:
    for actions, sizes in (((2,), (2, 3, 4)), ((3,), (2, 3))):
        tree, policy, direction = _symbolic(actions)
        target = gradient(tree, policy, direction)
        for size in sizes:
            found = expected_gradient(tree, policy, direction, size, group_mean)
            identical(found, (1 - sp.Rational(1, size)) * target, f"{actions}, G={size}")
    return "factors 1/2, 2/3, 3/4, symbolic probabilities, rewards and derivatives"


@step("two turns, all groups summed, shared parameters included: E[g] = (1 - 1/G) dJ")
def two_turns() -> str:
    tree, policy, direction = _symbolic((2, 2))
    target = gradient(tree, policy, direction)
    for size in (2, 3):
        found = expected_gradient(tree, policy, direction, size, group_mean)
        identical(found, (1 - sp.Rational(1, size)) * target, f"G={size}")
    return "4 paths, 16 and 64 groups"


@step("random rewards are one more turn, whose derivative is zero")
def random_rewards() -> str:
    tree, policy, direction = _symbolic((2, 2))
    nature = {h: (row if h == () else (0, 0)) for h, row in direction.items()}
    target = gradient(tree, policy, nature)
    found = expected_gradient(tree, policy, nature, 3, group_mean)
    identical(found, sp.Rational(2, 3) * target, "two arms with two reward atoms each, G=3")
    return "two arms with two symbolic reward atoms each, G = 3: factor 2/3"


@step("leave-one-out: E[g] = dJ exactly")
def unbiased() -> str:
    for actions, sizes in (((2,), (2, 3, 4)), ((3,), (2, 3)), ((2, 2), (2, 3))):
        tree, policy, direction = _symbolic(actions)
        target = gradient(tree, policy, direction)
        for size in sizes:
            found = expected_gradient(tree, policy, direction, size, leave_one_out)
            identical(found, target, f"{actions}, G={size}")
    return "one and two turns, G = 2, 3, 4"


@step("batch mean over two contexts: E[g] = (1 - 1/(B G)) of the mean dJ")
def batch_mean() -> str:
    arms, group = (2,), 2
    trees = [Tree(arms, symbolic_rewards(arms, letter)) for letter in "rs"]
    policies = [symbolic_policy(arms, letter) for letter in "pq"]
    directions = [symbolic_direction(arms, letter) for letter in "de"]
    member_context = [c for c in range(2) for _ in range(group)]
    total: Any = 0
    for members in itertools.product(paths(arms), repeat=len(member_context)):
        batch = list(zip(member_context, members, strict=True))
        weight = product(probability(policies[c], path) for c, path in batch)
        estimate = group_mean([trees[c].rewards[path] for c, path in batch])
        total += weight * sum(
            score(policies[c], directions[c], path) * value
            for (c, path), value in zip(batch, estimate, strict=True)
        )
    target = sum(gradient(*triple) for triple in zip(trees, policies, directions, strict=True))
    identical(total / 4, sp.Rational(3, 4) * target / 2, "B=2, G=2")
    return "B = 2, G = 2: factor 3/4, although the batch mean is nobody's value"


@step("stops: the best of the group as baseline prefers the worse arm")
def best_of_group() -> str:
    gap, advantage = best_of_group_instance()
    require(gap < 0 < advantage, f"gap {gap}, expected advantage {advantage}")
    return f"sure 1/2 against 1 with probability 3/5: true {gap}, expected {advantage}"


def best_of_group_instance() -> tuple[Fraction, Fraction]:
    r"""True advantage of the sure arm and $\mathbb E[r_1 - \max(r_1, r_2) \mid \text{sure arm}]$,

    minus the gamble's, at $\pi = (1/2, 1/2)$ and $G = 2$.
    """
    half, sure = Fraction(1, 2), {Fraction(1, 2): Fraction(1)}
    gamble = {Fraction(0): Fraction(2, 5), Fraction(1): Fraction(3, 5)}
    arms = (sure, gamble)

    def expected(arm: dict[Fraction, Fraction]) -> Fraction:
        total = Fraction(0)
        for own, p in arm.items():
            for other in arms:
                total += sum(half * p * q * (own - max(own, r)) for r, q in other.items())
        return total

    gap = sum(r * p for r, p in sure.items()) - sum(r * p for r, p in gamble.items())
    return Fraction(gap), expected(sure) - expected(gamble)


@step("stops: members drawn without replacement give a factor that depends on the policy")
def without_replacement() -> str:
    tree, policy, direction = _symbolic((2,))
    p = policy[()][0]
    pair = group_mean([tree.rewards[(0,)], tree.rewards[(1,)]])  # the only group, in either order
    found = sum(
        score(policy, direction, path) * value
        for path, value in zip([(0,), (1,)], pair, strict=True)
    ) / sp.Integer(2)
    identical(found, gradient(tree, policy, direction) / (4 * p * (1 - p)), "factor")
    return "factor 1/(4 p (1 - p)) instead of 1/2"


RESULTS = (
    Result(
        name="baseline-invariance",
        statement="A baseline independent of the own action leaves the expected gradient alone; "
        "the group mean scales it by 1 - 1/G, leave-one-out by 1",
        source="Williams 1992; Kool et al. 2019; arXiv:2602.06554 Eq. 5, 9",
        assumptions=(
            "group members drawn independently from the same policy in the same context",
            "differentiable policy, shared between turns or not",
            "finite action sets, random rewards allowed",
        ),
        steps=(
            score_mean,
            other_members,
            pathwise,
            one_turn,
            two_turns,
            random_rewards,
            unbiased,
            batch_mean,
            best_of_group,
            without_replacement,
        ),
        stops="a baseline that depends on the own action (the best of the group), a scale that "
        "does (group std), members that are not independent",
    ),
)
