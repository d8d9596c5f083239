"""Slow, obvious routes to the same numbers: plain Python from the definitions, no package code.

Everything is read from the given nested lists and fractions; nothing here looks at a graph except
`graph_value`, which is the recursion of the graph's own text.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np

from bandits.graph import DecisionGraph


def graph_value(graph: DecisionGraph, tables: list[Any]) -> float:
    """V_t = Σ π Q, Q = Σ p V_{t+1}, from the leaves to the contexts."""
    value = (graph.leaf_values * graph.leaf_probs).sum(axis=1)
    for layer, table in zip(reversed(graph.layers), reversed(tables), strict=True):
        edges = layer.edges()
        q = np.zeros((layer.nodes, layer.actions))
        np.add.at(q, (edges.source, edges.action), edges.prob * value[edges.target])
        value = (np.asarray(table)[layer.rows()] * q).sum(axis=1)
    return float(graph.context_probs @ value)


def tree_value(graph: DecisionGraph, tables: list[Any]) -> float:
    """Σ over leaves of the probability of the path times the leaf's mean."""
    path = graph.ancestors()
    prob = path.prob * graph.context_probs[graph.leaf_contexts()]
    for layer, table, node, action in zip(
        graph.layers, tables, path.nodes, path.actions, strict=True
    ):
        factor = np.asarray(table)[layer.rows()[node], action]
        prob = prob * np.where(action >= 0, factor, 1.0)
    return float(prob @ graph.leaf_means())


def bandit_value(means: Any, context_probs: Any, tables: list[Any]) -> Any:
    """J of a bandit by enumerating every action sequence; exact if all inputs are fractions."""
    means = np.asarray(means, dtype=object)
    total: Any = 0
    for index in product(*map(range, means.shape)):
        prob, row = context_probs[index[0]], index[0]
        for action, count, table in zip(index[1:], means.shape[1:], tables, strict=True):
            prob = prob * table[row][action]
            row = row * count + action
        total = total + prob * means[index]
    return total


def mdp_trajectories(
    transitions: Callable[[int], Any],
    rewards: Callable[[int], Any],
    initial: Any,
    horizon: int,
    discount: float,
    policy: Callable[[int, int], Any],
) -> Iterator[tuple[float, float]]:
    """Yield (probability, discounted return) of every trajectory of an MDP with mean rewards [s][a]."""

    def walk(turn: int, state: int, prob: float, paid: float) -> Iterator[tuple[float, float]]:
        if turn == horizon:
            yield prob, paid
            return
        for action, chance in enumerate(policy(turn, state)):
            if chance == 0:
                continue
            gain = paid + discount**turn * rewards(turn)[state][action]
            for following, p in enumerate(transitions(turn)[state][action]):
                if p > 0:
                    yield from walk(turn + 1, following, prob * chance * p, gain)

    for state, p in enumerate(initial):
        if p > 0:
            yield from walk(0, state, p, 0.0)


def mdp_value(mdp: Any, tables: list[Any]) -> float:
    """J of an MDP by the recursion over states."""
    value = np.zeros(mdp.states)
    for turn in reversed(range(mdp.horizon)):
        q = mdp.rewards_by_turn(turn) + mdp.discount * (mdp.transitions_by_turn(turn) @ value)
        value = (np.asarray(tables[turn]) * q).sum(axis=1)
    return float(mdp.initial @ value)


def deterministic_policies(graph: DecisionGraph, shared: bool) -> Iterator[list[Any]]:
    """Yield every deterministic policy of a graph; with `shared` one table for all turns."""
    choices = []
    for layer in graph.layers[: 1 if shared else None]:
        shape = (layer.observations, layer.actions)
        mask = np.ones(shape, bool) if layer.mask is None else layer.mask.copy()
        if not shared:  # rows of no-op turns alone do not matter: keep one of their actions
            quiet = np.setdiff1d(np.arange(layer.observations), layer.rows()[layer.acting()])
            mask[quiet] &= np.arange(layer.actions) == mask[quiet].argmax(axis=1)[:, None]
        choices += [[np.eye(layer.actions)[a] for a in np.flatnonzero(row)] for row in mask]
    sizes = [layer.observations for layer in graph.layers]
    for rows in product(*choices):
        if shared:
            yield [np.stack(rows)] * graph.turns
        else:
            start = np.cumsum([0, *sizes])
            yield [np.stack(rows[i:j]) for i, j in pairwise(start)]


def fraction_optimum(mdp: Any) -> Fraction:
    """Best value of an MDP by backward induction in fractions."""
    p, paid, start = mdp.exact_transitions(), mdp.rewards.exact_means(), mdp.exact_initial()
    gamma = Fraction(repr(mdp.discount))
    value = [Fraction(0)] * mdp.states
    for turn in reversed(range(mdp.horizon)):
        table = p[turn] if p.ndim == 4 else p
        gain = paid[turn] if paid.ndim == 3 else paid
        mask = mdp.mask_by_turn(turn)
        value = [
            max(
                gain[s, a] + gamma * sum(q * v for q, v in zip(table[s, a], value, strict=True))
                for a in range(mdp.action_count)
                if mask[s, a]
            )
            for s in range(mdp.states)
        ]
    return sum((b * v for b, v in zip(start, value, strict=True)), Fraction(0))
