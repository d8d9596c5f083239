"""Backward induction of a bandit's optimum against QuantEcon.py, where it is installed.

QuantEcon knows Markov decision processes with a transition matrix, so each history becomes a state
of a sparse one.  Building the two models is not timed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
from scipy import sparse

from bandits import SequentialBandit
from benchmarks.measure import Row, compare, require_equal
from seeupo_theory.tabular.evaluate import optimum

__all__ = ["missing", "rows"]

ACTIONS, TURNS = 4, 8


def missing() -> str | None:
    """The package that this benchmark needs and does not find."""
    return None if find_spec("quantecon") else "quantecon"


def rows(repeats: int) -> Iterator[Row]:
    """Optimal value of one context."""
    from quantecon.markov import DiscreteDP, backward_induction

    rewards = np.random.default_rng(0).normal(size=(1, *(ACTIONS,) * TURNS))
    graph = SequentialBandit(rewards).graph()
    histories = sum(ACTIONS**t for t in range(TURNS))
    last = ACTIONS ** (TURNS - 1)
    state = np.repeat(np.arange(histories + 1), ACTIONS)  # the last state: the episode is over
    action = np.tile(np.arange(ACTIONS), histories + 1)
    child = np.minimum(ACTIONS * state + 1 + action, histories)
    reward = np.zeros(len(state))
    reward[ACTIONS * (histories - last) : ACTIONS * histories] = rewards.reshape(-1)
    transition = sparse.csr_matrix(
        (np.ones(len(state)), (np.arange(len(state)), child)), shape=(len(state), histories + 1)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that discount 1 rules out infinite horizons
        peer = DiscreteDP(reward, transition, 1.0, state, action)
    value = backward_induction(peer, TURNS)[0][0, 0]
    require_equal("optimum", [optimum(graph).value], [value])
    yield compare(
        f"optimum by backward induction, {ACTIONS}^{TURNS} leaves",
        ("optimum", lambda: optimum(graph)),
        ("quantecon backward_induction", lambda: backward_induction(peer, TURNS)),
        repeats,
        goal=1.0,
    )
