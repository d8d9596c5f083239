r"""The performance difference for finite horizons, and the global advantage in place of the local.

**Theorem 1.** For policies $\pi, \pi'$ of a finite-horizon decision process with discount $\gamma$,

$$J(\pi') - J(\pi) = \sum_{t=1}^{T} \gamma^{t-1} \, \mathbb E_{h_t, a_t \sim \pi'}
  \bigl[A_t^\pi(h_t, a_t)\bigr].$$

*Proof.* Along every path,
$\sum_t \gamma^{t-1} \bigl(r_t + \gamma V_{t+1}(h_{t+1}) - V_t(h_t)\bigr)$
telescopes to $\sum_t \gamma^{t-1} r_t - V_1(h_1)$ when $V_{T+1} = 0$, whatever the numbers
$V_t$ are. Take the expectation under $\pi'$. A sequential bandit is the case in which only
$r_T \ne 0$.

**Theorem 2** (Eq. 4 of SeeUPO). Let $\pi = \pi^k$ be positive on every action to which the new
policies give weight, let the suffix $\pi^+_{t+1:T}$ be updated already and $\bar\pi$ be a candidate
for turn $t$. With $\hat A = r - b$ and any $b$ that does not depend on $a_{t:T}$ given $h_t$,

$$\mathbb E_{a_{1:T} \sim \pi}\Bigl[\Bigl(\frac{\bar\pi(a_t \mid h_t)}{\pi_t(a_t \mid h_t)} - 1
  \Bigr) \frac{\pi^+_{t+1:T}}{\pi_{t+1:T}} \hat A\Bigr]
= \mathbb E_{h_t \sim \pi} \sum_a \bigl(\bar\pi - \pi_t\bigr)(a \mid h_t) \, Q^+(h_t, a)
= J(\pi_{<t}, \bar\pi, \pi^+_{>t}) - J(\pi_{\le t}, \pi^+_{>t}),$$

where $Q^+$ is the value of $(h_t, a)$ when the updated suffix follows. The middle term is
$\mathbb E_{h_t \sim \pi, a \sim \bar\pi}[A^+(h_t, a)]$, the local advantage under the updated
suffix. *Proof.* Every importance weight replaces one factor of the path's probability; the
prefix keeps $\pi$. The baseline multiplies $\sum_a (\bar\pi - \pi_t)(a \mid h_t) = 0$.

**Corollary.** In reverse order the gains of the $T$ turns of a sweep telescope to
$J(\pi^{k+1}) - J(\pi^k)$: each non-negative turn objective is a gain of the return itself. In any
other order the same holds with "already updated" in place of "suffix".

**Where it stops.** (i) Support: where $\pi_t(a \mid h) = 0 < \bar\pi(a \mid h)$ the weighted
expectation does not see $a$. (ii) Parameters shared between turns: the identity for a turn holds
the prefix and the suffix fixed, which a shared parameter does not. Take one probability $p$ for
both turns, moved from 1/2 to 3/4, and the reward 1 for unequal actions: the objective of either
turn, with the other held at 1/2, is 0, and the return falls by 1/8 (with the reward 1 for equal
actions it rises by 1/8).

**Source.** Kakade and Langford 2002 (performance difference); SeeUPO, arXiv:2602.06554, Eq. 4, 5;
Kuba et al., arXiv:2304.09870 (advantage decomposition).
"""

from __future__ import annotations

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


def performance_difference(tree: Tree, old: Policy, new: Policy) -> Any:
    r"""$\sum_h d^{\pi'}(h) \sum_a \pi'(a \mid h) A^\pi(h, a)$."""
    return sum(
        tree.reach(new, h)
        * sum(new[h][a] * tree.advantage(old, h, a) for a in range(tree.actions[len(h)]))
        for h in histories(tree.actions)
    )


def mixed(tree: Tree, policies: tuple[Policy, ...]) -> dict[History, Any]:
    """The policy that plays turn t of ``policies[t]``."""
    return {h: policies[len(h)][h] for h in histories(tree.actions)}


def global_objective(
    tree: Tree, old: Policy, new: Policy, candidate: Policy, turn: int, baseline: Any
) -> Any:
    """Left side of Theorem 2 at a 0-based turn; `baseline` maps the history of the turn to b."""
    total: Any = 0
    for path in paths(tree.actions):
        weight = product(old[path[:s]][path[s]] for s in range(tree.turns))
        h = path[:turn]
        ratio = candidate[h][path[turn]] / old[h][path[turn]] - 1
        suffix = product(
            new[path[:s]][path[s]] / old[path[:s]][path[s]] for s in range(turn + 1, tree.turns)
        )
        total += weight * ratio * suffix * (tree.rewards[path] - baseline(h))
    return total


def local_objective(tree: Tree, old: Policy, new: Policy, candidate: Policy, turn: int) -> Any:
    """Middle term of Theorem 2: the local advantage under the updated suffix."""
    after = mixed(tree, tuple(old if s <= turn else new for s in range(tree.turns)))
    return sum(
        tree.reach(old, h)
        * sum(candidate[h][a] * tree.advantage(after, h, a) for a in range(tree.actions[turn]))
        for h in paths(tree.actions[:turn])
    )


@step("pathwise telescoping with symbolic values, rewards and discount, T = 1 to 6")
def telescoping() -> str:
    gamma = sp.Symbol("gamma")
    for turns in range(1, 7):
        rewards = sp.symbols(f"r_1:{turns + 1}")
        values = [*sp.symbols(f"V_1:{turns + 1}"), 0]
        gains = [rewards[t] + gamma * values[t + 1] - values[t] for t in range(turns)]
        identical(
            sum(gamma**t * gain for t, gain in enumerate(gains)),
            sum(gamma**t * reward for t, reward in enumerate(rewards)) - values[0],
            f"T={turns}",
        )
    t = sp.Symbol("t", integer=True, positive=True)
    value = sp.Function("V")
    term = gamma**t * value(t + 1) - gamma ** (t - 1) * value(t)
    potential = gamma ** (t - 1) * value(t)
    identical(potential.subs(t, t + 1) - potential, term, "one step for a symbolic turn")
    return "each term is the increment of gamma^(t-1) V_t: holds for every T"


@step("performance difference, symbolic policies and rewards, trees (2,), (3,2), (2,2,2)")
def trees() -> str:
    for actions in ((2,), (3, 2), (2, 2, 2)):
        tree = Tree(actions, symbolic_rewards(actions))
        old, new = symbolic_policy(actions, "p"), symbolic_policy(actions, "q")
        identical(
            performance_difference(tree, old, new),
            tree.value(new) - tree.value(old),
            f"actions {actions}",
        )
    return "both policies fully symbolic"


@step("performance difference in a random environment: two states, two actions, two turns")
def random_environment() -> str:
    gamma = sp.Symbol("gamma")
    states, acts = range(2), range(2)
    initial = sp.Symbol("mu")
    start = (initial, 1 - initial)
    move = {(s, a): sp.Symbol(f"P_{s}{a}") for s in states for a in acts}
    reward = {(t, s, a): sp.Symbol(f"r_{t}{s}{a}") for t in range(2) for s in states for a in acts}
    tables = {n: {(t, s): sp.Symbol(f"{n}_{t}{s}") for t in range(2) for s in states} for n in "pq"}

    def action(name: str, t: int, s: int, a: int) -> Any:
        probability = tables[name][t, s]
        return probability if a == 0 else 1 - probability

    def q(name: str, t: int, s: int, a: int) -> Any:
        chance = (move[s, a], 1 - move[s, a])
        follow = sum(chance[n] * value(name, t + 1, n) for n in states)
        return reward[t, s, a] + gamma * follow

    def value(name: str, t: int, s: int) -> Any:
        return 0 if t == 2 else sum(action(name, t, s, a) * q(name, t, s, a) for a in acts)

    def visits(name: str, t: int, s: int) -> Any:
        if t == 0:
            return start[s]
        return sum(
            visits(name, t - 1, n) * action(name, t - 1, n, a) * (move[n, a], 1 - move[n, a])[s]
            for n in states
            for a in acts
        )

    gains = sum(
        gamma**t
        * visits("q", t, s)
        * sum(action("q", t, s, a) * (q("p", t, s, a) - value("p", t, s)) for a in acts)
        for t in range(2)
        for s in states
    )
    difference = sum(start[s] * (value("q", 0, s) - value("p", 0, s)) for s in states)
    identical(gains, difference, "Markov decision process")
    return "symbolic transitions, rewards, discount and both policies"


@step("Eq. 4: global advantage = local advantage = difference of J, every turn, T = 2, 3")
def eq_4() -> str:
    for actions in ((2, 2), (2, 3), (2, 2, 2)):
        tree = Tree(actions, symbolic_rewards(actions))
        old, new, candidate = (symbolic_policy(actions, letter) for letter in "pqc")
        for turn in range(tree.turns):
            weighted = global_objective(tree, old, new, candidate, turn, _free_baseline)
            local = local_objective(tree, old, new, candidate, turn)
            before = mixed(tree, tuple(old if s <= turn else new for s in range(tree.turns)))
            after = mixed(
                tree,
                tuple(
                    old if s < turn else candidate if s == turn else new for s in range(tree.turns)
                ),
            )
            identical(weighted, local, f"{actions}, turn {turn + 1}: global and local")
            identical(
                local,
                tree.value(after) - tree.value(before),
                f"{actions}, turn {turn + 1}: local and difference of J",
            )
    return "for an arbitrary baseline of the history"


def _free_baseline(history: History) -> Any:
    return sp.Symbol(f"b_{''.join(map(str, history))}")


@step("corollary: the gains of one sweep telescope to the change of J, in every order, T = 3")
def sweep_telescopes() -> str:
    import itertools

    actions = (2, 2, 2)
    tree = Tree(actions, symbolic_rewards(actions))
    old, new = symbolic_policy(actions, "p"), symbolic_policy(actions, "q")
    for order in itertools.permutations(range(3)):
        total: Any = 0
        for done, turn in enumerate(order):
            updated = set(order[:done])
            base: list[Policy] = [new if s in updated else old for s in range(3)]
            current = mixed(tree, tuple(base))
            total += sum(
                tree.reach(current, h)
                * sum(new[h][a] * tree.advantage(current, h, a) for a in range(2))
                for h in paths(actions[:turn])
            )
        identical(total, tree.value(new) - tree.value(old), f"order {order}")
    return "all six orders"


@step("stops: without support the weighted expectation misses the gain")
def support() -> str:
    tree = Tree((2,), {(0,): Fraction(0), (1,): Fraction(1)})
    old: Policy = {(): (Fraction(1), Fraction(0))}
    new: Policy = {(): (Fraction(0), Fraction(1))}
    seen = [path for path in paths((2,)) if old[()][path[0]] > 0]
    found = sum(old[()][p[0]] * (new[()][p[0]] / old[()][p[0]] - 1) * tree.rewards[p] for p in seen)
    gain = tree.value(new) - tree.value(old)
    require(found == 0 and gain == 1, f"weighted {found}, true {gain}")
    return "weighted 0, true gain 1"


@step("stops: one probability for both turns; each turn's objective is 0, J changes by +-1/8")
def shared() -> str:
    for equal, change in ((1, Fraction(1, 8)), (0, Fraction(-1, 8))):
        rewards = {p: Fraction(int((p[0] == p[1]) == bool(equal))) for p in paths((2, 2))}
        tree = Tree((2, 2), rewards)
        half, moved = Fraction(1, 2), Fraction(3, 4)
        old: Policy = dict.fromkeys(histories((2, 2)), (half, half))
        new: Policy = dict.fromkeys(histories((2, 2)), (moved, 1 - moved))
        turns = [
            global_objective(tree, old, old, new, turn, lambda h: Fraction(0)) for turn in (0, 1)
        ]
        gain = tree.value(new) - tree.value(old)
        require(turns == [0, 0] and gain == change, f"turn objectives {turns}, change {gain}")
    return "first-order objectives vanish, the interaction of the turns does not"


RESULTS = (
    Result(
        name="performance-difference",
        statement="J(new) - J(old) is the sum over turns of old advantages under the new policy",
        source="Kakade and Langford 2002; arXiv:2304.09870",
        assumptions=("finite horizon", "any policies, any finite environment, any discount"),
        steps=(telescoping, trees, random_environment),
        stops="nothing: an identity",
    ),
    Result(
        name="local-from-global-advantage",
        statement="Importance-weighted global advantage = local advantage under the updated "
        "suffix = the change of J by that turn",
        source="arXiv:2602.06554 Eq. 4, 5",
        assumptions=(
            "the new policies put weight only where the old one does",
            "a turn's update leaves the other turns' policies as they are",
            "baseline independent of the actions from the turn on",
        ),
        steps=(eq_4, sweep_telescopes, support, shared),
        stops="missing support; parameters shared between turns",
    ),
)
