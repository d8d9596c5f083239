r"""Argmax steps turn by turn: how many sweeps each order needs, what a fixed point is.

A tree of $T$ turns has a policy row for each history. The ideal update of turn $t$ sets
$\pi_t(\cdot \mid h)$ to an action that maximises $Q^\pi(h, \cdot)$ under the *current* policies of
the later turns. A sweep updates every turn once, in an order $\tau$.

**Theorem 1** (all histories updated). From any policy, with any tie-breaking, the optimum is
reached after at most $1 + u(\tau)$ sweeps, $u(\tau)$ the number of turns $t < T$ that are updated
before $t + 1$: one sweep in reverse order, $T$ in forward order. The bound is attained by every
order on one family of trees: staying with action 1 pays 1 at the end, leaving at turn $T - k$ pays
$1 - 3^{-k}$ for $k \ge 1$ and 0 for $k = 0$, from the uniform policy. *Proof.* Once the turns
after $t$ are optimal at all histories, the next update of $t$ makes it so, and later updates keep
it. A turn that is updated after $t + 1$ follows in the same sweep. In the family, turn
$t = T - k - 1$ leaves, at a loss of $3^{-(k+1)}$, until $t + 1$ stays: while $t + 1$ is uniform,
staying loses at least $3^{-k}/2$, and once $t + 1$ leaves, $3^{-k}$. So each update of a turn before
that of its successor costs a sweep.

**Theorem 2** (fixed points). A policy that the update of no turn can improve at any history is
optimal: by backward induction on $t$. So if every history keeps positive probability the fixed
points of every order are optimal. With a floor on all probabilities, the same holds within the
class of policies with that floor, and Theorem 1 with it.

If only reached histories are updated, see ``argmax_support``.

**Where it stops.** Observation of the whole history. If turn 2 does not see turn 1, the rewards
$((1, 0), (0, 2))$ from $\pi_1 = \pi_2 = (3/4, 1/4)$, a full support, are led by *every* order to
the value 1, a strict Nash equilibrium, with 2 in reach. In the game that rewards unequal actions
($a_1 \oplus a_2$), the uniform policy is a fixed point of value 1/2 with 1 in reach. If both turns
share one row besides, no policy of the class exceeds 1/2, and an argmax step lowers the return
from 12/25 to 0.

**Source.** Bellman 1957; SeeUPO, arXiv:2602.06554, Eq. 3, App. B (reverse order reaches the
global optimum); Klein et al., arXiv:2310.02671 (training backwards in time).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import sympy as sp

from proofs._base import Result, identical, require, step
from proofs._trees import History, Policy, Tree, histories, paths

Table = dict[History, tuple[Fraction, ...]]


def reverse(turns: int) -> tuple[int, ...]:
    """The last turn first."""
    return tuple(range(turns - 1, -1, -1))


def forward(turns: int) -> tuple[int, ...]:
    """The first turn first."""
    return tuple(range(turns))


def sweeps_needed(order: Sequence[int]) -> int:
    r"""$1 + u(\tau)$ for the 0-based turns in the order of their updates.

    >>> sweeps_needed((2, 1, 0)), sweeps_needed((0, 1, 2)), sweeps_needed((1, 2, 0))
    (1, 3, 2)
    """
    place = {turn: index for index, turn in enumerate(order)}
    return 1 + sum(place[t] < place[t + 1] for t in range(len(order) - 1))


def argmax_turn(
    tree: Tree,
    policy: Policy,
    turn: int,
    *,
    reached_only: bool = False,
    floor: Fraction = Fraction(0),
    ties: Callable[[list[int]], int] = min,
) -> Table:
    """The policy after the ideal update of one turn; `floor` is the least probability."""
    new = dict(policy)
    size = tree.actions[turn]
    for h in paths(tree.actions[:turn]):
        if reached_only and tree.reach(policy, h) == 0:
            continue
        q = [tree.value(policy, (*h, a)) for a in range(size)]
        best = ties([a for a in range(size) if q[a] == max(q)])
        new[h] = tuple(1 - (size - 1) * floor if a == best else floor for a in range(size))
    return {h: tuple(row) for h, row in new.items()}


def sweep(tree: Tree, policy: Policy, order: Sequence[int], **options: Any) -> Table:
    """One update of every turn in an order."""
    for turn in order:
        policy = argmax_turn(tree, policy, turn, **options)
    return {h: tuple(row) for h, row in policy.items()}


def uniform(actions: Sequence[int]) -> Table:
    """The uniform policy."""
    return {h: (Fraction(1, actions[len(h)]),) * actions[len(h)] for h in histories(actions)}


def staircase(turns: int) -> Tree:
    """The tree of Theorem 1: action 1 stays; leaving at turn T - k pays $1 - 3^{-k}$, 0 at last."""
    rewards: dict[History, Fraction] = {}
    for path in paths((2,) * turns):
        left = path.index(0) if 0 in path else turns
        if left == turns:
            rewards[path] = Fraction(1)
        else:
            rewards[path] = 1 - Fraction(1, 3 ** (turns - 1 - left))
    return Tree((2,) * turns, rewards)


def sweeps_taken(tree: Tree, policy: Policy, order: Sequence[int], **options: Any) -> int:
    """Sweeps until the best reward of a deterministic tree is reached."""
    best, count = max(tree.rewards.values()), 0
    while tree.value(policy) != best:
        policy = sweep(tree, policy, order, **options)
        count += 1
    return count


@step("all trees with rewards 0, 1, 2, all deterministic policies, all orders, T = 2, 3: the bound")
def bound() -> str:
    checked = 0
    for turns in (2, 3):
        rewards, policy = _all_instances(turns, 3)
        best = rewards.max(axis=1)
        for order in itertools.permutations(range(turns)):
            current = policy
            for _ in range(sweeps_needed(order)):
                current = _integer_sweep(rewards, current, order)
            value = _integer_values(rewards, current)[0][:, 0]
            require(bool((value == best).all()), f"order {order}, T={turns}")
            checked += len(best)
    return f"{checked} runs in integers"


def _all_instances(turns: int, values: int) -> tuple[np.ndarray, list[np.ndarray]]:
    leaves, nodes = 2**turns, 2**turns - 1
    rewards = np.array(list(itertools.product(range(values), repeat=leaves)), dtype=np.int8)
    tables = np.array(list(itertools.product((0, 1), repeat=nodes)), dtype=np.int8)
    grid = np.repeat(rewards, len(tables), axis=0)
    rows = np.tile(tables, (len(rewards), 1))
    return grid, [rows[:, 2**t - 1 : 2 ** (t + 1) - 1] for t in range(turns)]


def _integer_values(rewards: np.ndarray, policy: Sequence[np.ndarray]) -> list[np.ndarray]:
    """V at every history of every turn, and the rewards; actions are 0 or 1."""
    values = [rewards]
    for row in reversed(policy):
        after = values[0]
        values.insert(0, np.where(row == 1, after[:, 1::2], after[:, ::2]))
    return values


def _integer_sweep(
    rewards: np.ndarray, policy: Sequence[np.ndarray], order: Sequence[int]
) -> list[np.ndarray]:
    new = list(policy)
    for turn in order:
        after = _integer_values(rewards, new)[turn + 1]
        new[turn] = (after[:, 1::2] > after[:, ::2]).astype(np.int8)
    return new


@step("the bound is attained: the staircase needs exactly 1 + u sweeps, every order, T = 1 to 5")
def attained() -> str:
    for turns in range(1, 6):
        tree, start = staircase(turns), uniform((2,) * turns)
        for order in itertools.permutations(range(turns)):
            taken = sweeps_taken(tree, start, order)
            require(taken == sweeps_needed(order), f"order {order}: {taken} sweeps")
    tree, start = staircase(6), uniform((2,) * 6)
    require(sweeps_taken(tree, start, reverse(6)) == 1, "reverse, T=6")
    require(sweeps_taken(tree, start, forward(6)) == 6, "forward, T=6")
    return "forward T, reverse 1, and all orders between"


@step("the staircase for every T and order: a turn leaves until its successor stays")
def staircase_induction() -> str:
    k = sp.Symbol("k", integer=True, nonnegative=True)
    loss = sp.Integer(3) ** -k  # 1 - reward for leaving at turn T - k
    earlier = loss.subs(k, k + 1)
    # Successor still uniform: it leaves half the time, so that staying loses at least loss / 2.
    require(sp.simplify(loss / 2 - earlier).is_positive, "leaving beats a uniform successor")
    # Successor leaves: staying loses all of its loss.
    require(sp.simplify(loss - earlier).is_positive, "leaving beats a successor that leaves")
    # Successor stays, and so do all after it: staying loses nothing.
    require(loss.is_positive, "staying beats leaving")
    return "3^-k / 2 > 3^-(k+1) for all k"


@step("fixed points at all histories are optimal: all trees with rewards 0, 1, 2, T = 2, 3")
def fixed_points() -> str:
    count = 0
    for turns in (2, 3):
        rewards, policy = _all_instances(turns, 3)
        values = _integer_values(rewards, policy)
        stable = np.ones(len(rewards), dtype=bool)
        for turn in range(turns):
            best = np.maximum(values[turn + 1][:, ::2], values[turn + 1][:, 1::2])
            stable &= (values[turn] == best).all(axis=1)
        optimal = values[0][:, 0] == rewards.max(axis=1)
        require(bool(optimal[stable].all()), f"T={turns}: a fixed point is not optimal")
        require(bool((~stable & optimal).any()), "the converse is not claimed")
        count += int(stable.sum())
    return f"{count} fixed points, all optimal"


@step("with a floor of 1/20: forward, within T sweeps, the best policy with that floor")
def floored() -> str:
    source, floor = random.Random(0), Fraction(1, 20)
    for _ in range(30):
        tree = random_tree(source, 3)
        start = uniform(tree.actions)
        best = tree.value(sweep(tree, start, reverse(3), floor=floor))
        require(best == _floored_optimum(tree, floor), "reverse, one sweep")
        current: Policy = start
        for _ in range(3):
            current = sweep(tree, current, forward(3), reached_only=True, floor=floor)
        require(tree.value(current) == best, "forward, three sweeps")
    return "30 trees of integers, T = 3, only reached histories updated"


def _floored_optimum(tree: Tree, floor: Fraction, history: History = ()) -> Fraction:
    if len(history) == tree.turns:
        return Fraction(tree.rewards[history])
    children = [_floored_optimum(tree, floor, (*history, a)) for a in range(2)]
    return floor * min(children) + (1 - floor) * max(children)


def random_tree(source: random.Random, turns: int) -> Tree:
    """A tree of binary turns with integer rewards below a million."""
    actions = (2,) * turns
    return Tree(actions, {p: Fraction(source.randrange(10**6)) for p in paths(actions)})


def blind_turn(
    rewards: Mapping[History, Fraction], rows: Sequence[Sequence[Fraction]], turn: int
) -> tuple[Fraction, ...]:
    """Argmax row of a turn that does not see the other: the first best action."""
    other = rows[1 - turn]
    q = [
        sum((other[b] * rewards[(a, b) if turn == 0 else (b, a)] for b in (0, 1)), Fraction(0))
        for a in (0, 1)
    ]
    return (Fraction(1), Fraction(0)) if q[0] >= q[1] else (Fraction(0), Fraction(1))


@step("stops: turns blind to the past; a strict Nash point of value 1 with 2 in reach, any order")
def blind_coordination() -> str:
    rewards = dict(zip(paths((2, 2)), map(Fraction, (1, 0, 0, 2)), strict=True))
    for order in ((1, 0), (0, 1)):
        rows: list[Sequence[Fraction]] = [(Fraction(3, 4), Fraction(1, 4))] * 2
        for _ in range(3):
            for turn in order:
                rows[turn] = blind_turn(rewards, rows, turn)
        value = sum(rows[0][a] * rows[1][b] * r for (a, b), r in rewards.items())
        require(value == 1, f"order {order}: {value}")
    require(rewards[0, 0] > max(rewards[0, 1], rewards[1, 0]), "not strict")
    seeing = Tree((2, 2), rewards)
    start = {h: (Fraction(3, 4), Fraction(1, 4)) for h in histories((2, 2))}
    require(seeing.value(sweep(seeing, start, reverse(2))) == 2, "with the history")
    return "value 1 for ever; with the history seen, 2 after one reverse sweep"


@step("stops: reward for unequal actions; blind, the uniform policy is a fixed point of value 1/2")
def blind_xor() -> str:
    p, q = sp.symbols("p q")
    value = p * (1 - q) + q * (1 - p)
    identical(sp.diff(value, p).subs(q, sp.Rational(1, 2)), 0, "turn 1 is indifferent")
    identical(sp.diff(value, q).subs(p, sp.Rational(1, 2)), 0, "turn 2 is indifferent")
    require(value.subs({p: sp.Rational(1, 2), q: sp.Rational(1, 2)}) == sp.Rational(1, 2), "value")
    require(value.subs({p: 0, q: 1}) == 1, "1 is in reach")
    return "every action is an argmax of either turn"


@step("stops: one row for both turns; no policy above 1/2, an argmax step falls from 12/25 to 0")
def shared_xor() -> str:
    p = sp.Symbol("p", real=True)
    value = 2 * p * (1 - p)
    identical(sp.Rational(1, 2) - value, 2 * (p - sp.Rational(1, 2)) ** 2, "at most 1/2")
    rewards = {path: Fraction(int(path[0] != path[1])) for path in paths((2, 2))}
    row: Sequence[Fraction] = (Fraction(3, 5), Fraction(2, 5))
    before = 2 * row[0] * row[1]
    for turn in (0, 1):
        new = blind_turn(rewards, [row, row], turn)
        require(before == Fraction(12, 25) and 2 * new[0] * new[1] == 0, f"turn {turn}: {new}")
    return "the best response of a turn to the old row becomes the other turn's policy as well"


RESULTS = (
    Result(
        name="backward-induction",
        statement="Argmax steps reach the optimum in 1 + u sweeps, u the turns updated before "
        "their successor (reverse 1, forward T), and every fixed point is optimal",
        source="Bellman 1957; arXiv:2602.06554 Eq. 3, App. B",
        assumptions=(
            "a policy row for each history",
            "exact values, all histories updated or kept above a floor",
        ),
        steps=(
            bound,
            attained,
            staircase_induction,
            fixed_points,
            floored,
            blind_coordination,
            blind_xor,
            shared_xor,
        ),
        stops="turns that do not see the history",
    ),
)
