r"""Exact evaluation in NumPy: values, advantages, visitation, optimum, gradient.

One backward and one forward sweep over a decision graph, independent of the JAX code that runs
the algorithms (`seeupo_theory.tabular.dynamics`), so that each checks the other:

.. math::
   Q_t(n,a) = \sum_{n'} P(n'|n,a)\, V_{t+1}(n'), \quad V_t(n) = \sum_a \pi_t(a|n)\, Q_t(n,a), \quad
   J = \sum_c \beta_c V_1(c)

.. math::
   \frac{\partial J}{\partial \theta_t[o,a]} = \sum_{n: o(n)=o} d_t(n)\, \pi_t(a|o)\,(Q_t(n,a) - V_t(n))

The last line is the policy-gradient theorem for softmax logits.  Values are of the *total*
(discounted) return of the episode, as the group estimators see it.

Shapes: T turns, N_t nodes, A_t actions, O_t rows of the policy table of turn t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bandits.graph import DecisionGraph, Layer

__all__ = [
    "Evaluation",
    "Optimum",
    "check_policy",
    "evaluate",
    "gradient",
    "node_policy",
    "optimum",
    "performance_difference",
    "turn_gaps",
    "uniform_policy",
]

Table = NDArray[np.float64]

PROBABILITY_ATOL = 1e-9
"""A row of a policy may miss 1 by this much: what is left of decimals written with ten digits."""

TIE_ATOL = 1e-12
"""Action values this close to the best count as ties; rounding of a sum over a tree of doubles."""


@dataclass(frozen=True)
class Evaluation:
    """Exact quantities of one policy; lists have one array a turn.

    Attributes:
        value: J.
        state_values: V_t [N_t].
        action_values: Q_t [N_t, A_t].
        advantages: A_t = Q_t − V_t [N_t, A_t].
        visitation: d_t [N_t], probability of being at the node at turn t.
    """

    value: float
    state_values: list[Table]
    action_values: list[Table]
    advantages: list[Table]
    visitation: list[Table]


@dataclass(frozen=True)
class Optimum:
    """Optimum over policies that see the whole node (full information).

    Attributes:
        value: J*.
        policy: T tables [N_t, A_t], one-hot on the first best action.
        action_values: Q*_t [N_t, A_t]; −inf where the action is forbidden.
        state_values: V*_t [N_t].
    """

    value: float
    policy: list[Table]
    action_values: list[Table]
    state_values: list[Table]


def uniform_policy(graph: DecisionGraph) -> list[Table]:
    """Equal probability for all allowed actions, T tables [O_t, A_t]."""
    out = []
    for layer in graph.layers:
        allowed = np.ones((layer.observations, layer.actions))
        if layer.mask is not None:
            allowed = layer.mask.astype(float)
        out.append(allowed / allowed.sum(axis=1, keepdims=True))
    return out


def check_policy(graph: DecisionGraph, policy: Sequence[object]) -> list[Table]:
    """Validate T probability tables and return copies [O_t, A_t] whose rows sum to 1.

    Raises:
        ValueError: wrong number of turns or shape, a negative or non-finite probability, a row
            that does not sum to 1, weight on a forbidden action; names turn, row and value.
    """
    if len(policy) != graph.turns:
        raise ValueError(f"policy has {len(policy)} turns; the model has {graph.turns}")
    out = []
    for t, (layer, table) in enumerate(zip(graph.layers, policy, strict=True)):
        probs = np.array(table, dtype=float)
        expected = (layer.observations, layer.actions)
        if probs.shape != expected:
            raise ValueError(f"policy of turn {t + 1} has shape {probs.shape}; expected {expected}")
        bad = ~np.isfinite(probs) | (probs < 0)
        if bad.any():
            row, action = map(int, np.argwhere(bad)[0])
            raise ValueError(
                f"policy of turn {t + 1}, row {row}, action {action} is {probs[row, action]}; "
                "expected a probability"
            )
        total = probs.sum(axis=1)
        off = np.flatnonzero(np.abs(total - 1) > PROBABILITY_ATOL)
        if off.size:
            raise ValueError(
                f"policy of turn {t + 1}, row {off[0]} sums to {total[off[0]]:.12g}; expected 1"
            )
        if layer.mask is not None and (probs[~layer.mask] > 0).any():
            row, action = map(int, np.argwhere((probs > 0) & ~layer.mask)[0])
            raise ValueError(
                f"policy of turn {t + 1}, row {row} gives probability {probs[row, action]} to action "
                f"{action}, which is not allowed there"
            )
        out.append(probs / total[:, None])
    return out


def node_policy(graph: DecisionGraph, policy: Sequence[Table]) -> list[Table]:
    """Tables as seen at the nodes, [N_t, A_t]."""
    return [table[layer.rows()] for layer, table in zip(graph.layers, policy, strict=True)]


def _pull(layer: Layer, value: Table) -> Table:
    shape = (layer.nodes, layer.actions)
    if layer.edge_source is None or layer.edge_target is None or layer.edge_prob is None:
        return value.reshape(shape)
    moved = value[layer.edge_target] * layer.edge_prob
    total = np.bincount(layer.edge_source, moved, minlength=shape[0] * shape[1])
    return np.asarray(total, dtype=float).reshape(shape)


def _push(layer: Layer, flow: Table, nodes: int) -> Table:
    if layer.edge_source is None or layer.edge_target is None or layer.edge_prob is None:
        return flow.reshape(-1)
    moved = flow.reshape(-1)[layer.edge_source] * layer.edge_prob
    return np.asarray(np.bincount(layer.edge_target, moved, minlength=nodes), dtype=float)


def evaluate(graph: DecisionGraph, policy: Sequence[Table]) -> Evaluation:
    """Evaluate T probability tables [O_t, A_t].

    >>> from bandits import SequentialBandit
    >>> graph = SequentialBandit([[[0.5, 0.5], [0, 1]]]).graph()
    >>> evaluate(graph, uniform_policy(graph)).value
    0.5
    """
    policies = node_policy(graph, policy)
    values, actions = [], []
    value = graph.leaf_means()
    for layer, probs in zip(reversed(graph.layers), reversed(policies), strict=True):
        action = _pull(layer, value)
        value = (probs * action).sum(axis=1)
        values.append(value)
        actions.append(action)
    values.reverse()
    actions.reverse()
    sizes = [*graph.nodes[1:], graph.leaves]
    visitation = [np.asarray(graph.context_probs)]
    for layer, probs, nodes in zip(graph.layers, policies, sizes, strict=True):
        visitation.append(_push(layer, visitation[-1][:, None] * probs, nodes))
    return Evaluation(
        value=float(graph.context_probs @ values[0]),
        state_values=values,
        action_values=actions,
        advantages=[q - v[:, None] for q, v in zip(actions, values, strict=True)],
        visitation=visitation[:-1],
    )


def gradient(graph: DecisionGraph, policy: Sequence[Table]) -> list[Table]:
    """∂J/∂logits of independent softmax tables by the policy-gradient theorem, T arrays [O_t, A_t]."""
    result = evaluate(graph, policy)
    out = []
    for t, layer in enumerate(graph.layers):
        weight = result.visitation[t][:, None] * result.advantages[t]
        if layer.active is not None:
            weight = weight * layer.active[:, None]
        rows = np.zeros((layer.observations, layer.actions))
        np.add.at(rows, layer.rows(), weight)
        total = rows * policy[t]
        # Σ_a π A is 0 node by node, hence also after adding nodes up: nothing to subtract
        out.append(total)
    return out


def optimum(graph: DecisionGraph) -> Optimum:
    """Optimal value and policy by backward induction over nodes (ties: the first action)."""
    value = graph.leaf_means()
    policies, actions, values = [], [], []
    for layer in reversed(graph.layers):
        action = np.where(layer.allowed(), _pull(layer, value), -np.inf)
        value = action.max(axis=1)
        best = (action >= value[:, None] - TIE_ATOL * np.maximum(1.0, abs(value[:, None]))).argmax(
            1
        )
        policies.append(np.eye(layer.actions)[best])
        actions.append(action)
        values.append(value)
    return Optimum(float(graph.context_probs @ value), policies[::-1], actions[::-1], values[::-1])


def turn_gaps(graph: DecisionGraph, policy: Sequence[Table]) -> list[float]:
    r"""Loss due to each turn, :math:`\sum_n d_t(n) \sum_a \pi_t(a|n) (V^*_t(n) - Q^*_t(n, a))`.

    The gaps add up to J* − J(π) (the performance-difference identity against the optimum).
    """
    best = optimum(graph)
    visitation = evaluate(graph, policy).visitation
    gaps = []
    for d, probs, q, v in zip(
        visitation, node_policy(graph, policy), best.action_values, best.state_values, strict=True
    ):
        loss = np.where(probs > 0, v[:, None] - np.where(np.isfinite(q), q, 0.0), 0.0)
        gaps.append(float(d @ (probs * loss).sum(axis=1)))
    return gaps


def performance_difference(
    graph: DecisionGraph, policy: Sequence[Table], other: Sequence[Table]
) -> float:
    r"""J(other) − J(policy) as :math:`\sum_t \sum_n d'_t(n) \sum_a \pi'_t(a|n) A^\pi_t(n, a)`."""
    advantages = evaluate(graph, policy).advantages
    visitation = evaluate(graph, other).visitation
    return sum(
        float(d @ (probs * a).sum(axis=1))
        for d, probs, a in zip(visitation, node_policy(graph, other), advantages, strict=True)
    )
