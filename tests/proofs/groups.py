"""Estimators summed over every batch that can be drawn: the simulator's rules, no shortcut.

The rules are looked up in their modules at each call, so that a test can put a mutation there.
"""

import itertools
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

ROUNDING = 1e-12
"""A few hundred products of doubles of size 1 are summed: far below a wrong term of any formula."""


@st.composite
def laws(draw, values=(0, 1, 2, 3), least=2, most=3, parts=6):
    """A reward law: distinct small values with probabilities in multiples of 1/parts."""
    support = draw(st.lists(st.sampled_from(values), min_size=least, max_size=most, unique=True))
    cuts = draw(
        st.lists(
            st.integers(1, parts - 1),
            min_size=len(support) - 1,
            max_size=len(support) - 1,
            unique=True,
        )
    )
    edges = [0, *sorted(cuts), parts]
    weights = [Fraction(b - a, parts) for a, b in itertools.pairwise(edges)]
    return dict(zip(map(Fraction, sorted(support)), weights, strict=True))


def given_own_reward(estimator, contexts, group):
    """E[Â | own reward] of the first member of the first context, for each reward of its law.

    `contexts` are the laws of a batch; every assignment of rewards to its members is one row of a
    single call of the estimator, returns [M, B, G].
    """
    members = [law for law in contexts for _ in range(group)]
    rows = np.array(list(itertools.product(*members)), dtype=object)
    returns = rows.astype(float).reshape(len(rows), len(contexts), group)
    advantages = np.asarray(estimator(returns))[:, 0, 0]
    found = {}
    for own in contexts[0]:
        mine = rows[:, 0] == own
        weight = np.ones(int(mine.sum()))
        for column, law in zip(rows[mine].T[1:], members[1:], strict=True):
            weight = weight * np.array([float(law[r]) for r in column])
        found[own] = float(weight @ advantages[mine])
    return found


def mean(law):
    return sum(r * p for r, p in law.items())


@st.composite
def trees(draw, shapes=((2,), (3,), (2, 2), (2, 3)), top=4):
    """Actions, rewards in [0, top] and a positive policy, all fractions."""
    from proofs._trees import Tree, histories, paths

    actions = draw(st.sampled_from(shapes))
    rewards = {p: Fraction(draw(st.integers(0, top))) for p in paths(actions)}
    policy = {h: draw(rows(actions[len(h)])) for h in histories(actions)}
    return Tree(actions, rewards), policy


@st.composite
def rows(draw, size):
    """A positive row of a policy with small denominators."""
    counts = [draw(st.integers(1, 5)) for _ in range(size)]
    return tuple(Fraction(c, sum(counts)) for c in counts)


def tables(tree, policy):
    """The policy as the simulator's tables [O_t, A_t]."""
    from proofs._trees import paths

    return [
        np.array([[float(x) for x in policy[h]] for h in paths(tree.actions[:t])])
        for t in range(tree.turns)
    ]


def bandit(tree):
    """The tree as a model of the simulator."""
    from bandits import SequentialBandit
    from proofs._trees import paths

    rewards = np.array([float(tree.rewards[p]) for p in paths(tree.actions)])
    return SequentialBandit(rewards.reshape(1, *tree.actions))
