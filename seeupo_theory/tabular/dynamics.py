r"""The two sweeps over a decision graph that every exact quantity is made of.

Let :math:`w_t(n, a)` be any table on nodes and actions (a policy, or a policy times ratios).

* `push`: flow forwards, :math:`d_{t+1}(n') = \sum_{n,a} d_t(n)\, w_t(n,a)\, P(n' | n, a)`;
* `pull`: values backwards, :math:`Q_t(n, a) = \sum_{n'} P(n' | n, a)\, V_{t+1}(n')`.

In a bandit the child of (n, a) is node n·A + a, so both are a reshape and nothing is stored.
Shapes as in `seeupo_theory.tabular.lowering`.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from seeupo_theory.tabular.lowering import Lowered, LoweredLayer

__all__ = [
    "active_weight",
    "at_nodes",
    "at_rows",
    "backup",
    "joint",
    "leaf_mean",
    "path_log_prob",
    "probabilities",
    "pull",
    "push",
    "reach",
]


def joint(table: Array) -> Array:
    """Log-probability of each whole action, from token log-probabilities [.., A, L] or [.., A]."""
    return jnp.sum(table, axis=-1) if table.ndim == 3 else table


def at_nodes(layer: LoweredLayer, table: Array) -> Array:
    """Rows of a policy table [O, ...] as seen at the nodes: [N, ...]."""
    return table if layer.observation is None else table[layer.observation]


def at_rows(layer: LoweredLayer, weight: Array, rows: int) -> Array:
    """Sum node weights [N, A] over the nodes that see the same row: [O, A]."""
    if layer.observation is None:
        return weight
    return jax.ops.segment_sum(weight, layer.observation, num_segments=rows)


def active_weight(layer: LoweredLayer, weight: Array) -> Array:
    """Zero the weights [N, A] of no-op turns (the episode is over there)."""
    return weight if layer.active is None else jnp.where(layer.active[:, None], weight, 0.0)


def push(layer: LoweredLayer, flow: Array, nodes: int) -> Array:
    """Flow [N_t, A_t] out of (node, action) arriving at the next layer: [N_{t+1}]."""
    flat = jnp.reshape(flow, (-1,))
    if layer.source is None or layer.target is None or layer.prob is None:
        return flat
    moved = flat[layer.source] * layer.prob
    return jax.ops.segment_sum(moved, layer.target, num_segments=nodes)


def pull(layer: LoweredLayer, value: Array, shape: tuple[int, ...]) -> Array:
    """Expected next value [N_{t+1}] of each (node, action): [N_t, A_t]."""
    if layer.source is None or layer.target is None or layer.prob is None:
        return jnp.reshape(value, shape)
    moved = value[layer.target] * layer.prob
    flat = jax.ops.segment_sum(moved, layer.source, num_segments=shape[0] * shape[1])
    return jnp.reshape(flat, shape)


def probabilities(lowered: Lowered, tables: Sequence[Array]) -> list[Array]:
    """Policy at the nodes, [N_t, A_t] a turn, from log-probability tables [O_t, A_t(, L_t)]."""
    return [
        at_nodes(layer, jnp.exp(joint(table)))
        for layer, table in zip(lowered.layers, tables, strict=True)
    ]


def reach(lowered: Lowered, weights: Sequence[Array]) -> list[Array]:
    """Flow into the nodes of each turn under node tables `weights`; one more entry for leaves."""
    flows = [lowered.context_probs]
    for t, (layer, weight) in enumerate(zip(lowered.layers, weights, strict=True)):
        last = t + 1 == lowered.turns
        nodes = lowered.leaf_values.shape[0] if last else weights[t + 1].shape[0]
        flows.append(push(layer, flows[-1][:, None] * weight, nodes))
    return flows


def backup(
    lowered: Lowered, weights: Sequence[Array], leaf: Array
) -> tuple[list[Array], list[Array]]:
    """Values [N_t] and action values [N_t, A_t] of a leaf function [N] under node tables."""
    values: list[Array] = []
    actions: list[Array] = []
    value = leaf
    for layer, weight in zip(reversed(lowered.layers), reversed(weights), strict=True):
        action = pull(layer, value, weight.shape)
        value = jnp.sum(weight * action, axis=1)
        actions.append(action)
        values.append(value)
    return values[::-1], actions[::-1]


def leaf_mean(lowered: Lowered, leaf: Array) -> Array:
    """Mean over reward atoms, [N, K] → [N]."""
    return jnp.sum(lowered.leaf_probs * leaf, axis=-1)


def path_log_prob(lowered: Lowered, tables: Sequence[Array], turn: int) -> Array:
    """Log-probability of the action that each leaf's history takes at one turn: [N(, L)].

    Zero where the episode was already over.
    """
    if lowered.paths is None:
        raise ValueError("path_log_prob needs lower(graph, paths=True)")
    layer, table, step = lowered.layers[turn], tables[turn], lowered.paths.step[turn]
    rows = at_nodes(layer, table)
    flat = jnp.reshape(rows, (-1, *rows.shape[2:]))[step]
    if layer.active is None:
        return flat
    on = layer.active[step // rows.shape[1]]
    return jnp.where(on if flat.ndim == 1 else on[:, None], flat, 0.0)
