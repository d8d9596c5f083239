"""Sample trajectories from a decision graph: the Monte Carlo route beside the exact one.

Each of B contexts gets a group of G trajectories, all drawn at once turn by turn:

    c ~ β,  a_t ~ π_t(· | o_t),  n_{t+1} ~ edges of (n_t, a_t),  return ~ atoms of the leaf.

Shapes: B contexts drawn, G group members, T turns; policy tables [O_t, A_t], one a turn.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .errors import fail, path
from .exact import (
    PROBABILITY_TOLERANCE,
    BoolArray,
    FloatArray,
    IntArray,
    parse_integer,
)
from .graph import DecisionGraph, Layer


class Trajectories(NamedTuple):
    """A batch of groups of trajectories.

    context [B]; nodes, observations, actions [B, G, T] (action −1 at no-op turns); active [B, G,
    T] bool; leaf [B, G]; returns [B, G].
    """

    context: IntArray
    nodes: IntArray
    observations: IntArray
    actions: IntArray
    active: BoolArray
    leaf: IntArray
    returns: FloatArray


def sample_trajectories(
    graph: DecisionGraph,
    policy_tables: Sequence[ArrayLike],
    rng: np.random.Generator | int,
    contexts: int | Sequence[int] | IntArray,
    group: int,
) -> Trajectories:
    """Draw `group` trajectories for each of `contexts` contexts.

    Args: policy_tables: probabilities, one table [O_t, A_t] a turn. rng: a Generator or a seed.
    contexts: how many to draw from β, or which ones [B].
    Raises ModelError for tables that do not fit the graph and indices out of range.

    >>> from bandits import SequentialBandit
    >>> graph = SequentialBandit([[[0, 1], [2, 3]]]).graph()
    >>> batch = sample_trajectories(graph, [[[0, 1]], [[1, 0], [0, 1]]], 0, contexts=1, group=2)
    >>> batch.actions.tolist(), batch.returns.tolist()
    ([[[1, 1], [1, 1]]], [[3.0, 3.0]])
    """
    tables = require_tables(graph, policy_tables)
    generator = np.random.default_rng(rng)
    size = parse_integer("group", group, least=1)
    context = _contexts(graph, generator, contexts)
    shape = (len(context), size)
    node = np.broadcast_to(context[:, None], shape)
    nodes, seen, taken, active = [], [], [], []
    for layer, table in zip(graph.layers, tables, strict=True):
        row = layer.rows()[node]
        acting = layer.acting()[node]
        action = _draw(table, row, generator.random(shape))
        nodes.append(node)
        seen.append(row)
        taken.append(np.where(acting, action, -1))
        active.append(acting)
        node = _move(layer, node, action, generator.random(shape))
    atom = _draw(graph.leaf_probs, node, generator.random(shape))
    return Trajectories(
        context=context,
        nodes=np.stack(nodes, axis=-1),
        observations=np.stack(seen, axis=-1),
        actions=np.stack(taken, axis=-1),
        active=np.stack(active, axis=-1),
        leaf=np.asarray(node),
        returns=graph.leaf_values[node, atom],
    )


def require_tables(graph: DecisionGraph, tables: Sequence[ArrayLike]) -> list[FloatArray]:
    """Check that policy tables fit a graph: shapes [O_t, A_t], rows are probabilities, masks are kept.

    >>> from bandits import SequentialBandit
    >>> require_tables(SequentialBandit([[0, 1]]).graph(), [[[0.5, 0.4]]])
    Traceback (most recent call last):
    ...
    bandits.errors.ModelError: policy[0][0] sums to 0.9, should sum to 1
    """
    if len(tables) != graph.turns:
        fail("policy", f"has {len(tables)} turns, should have {graph.turns}")
    out = []
    for t, (layer, given) in enumerate(zip(graph.layers, tables, strict=True)):
        table = np.asarray(given, dtype=np.float64)
        if table.shape != (layer.observations, layer.actions):
            should = (layer.observations, layer.actions)
            fail(f"policy[{t}]", f"has shape {table.shape}, should be {should}")
        wrong = ~np.isfinite(table) | (table < 0)
        if layer.mask is not None:
            wrong |= (table > 0) & ~layer.mask
        if wrong.any():
            where = np.unravel_index(int(wrong.argmax()), table.shape)
            found = f"{path(f'policy[{t}]', where)} = {table[where]}"
            fail(found, "should be a probability, and 0 where the action is not allowed")
        off = np.abs(table.sum(axis=1) - 1) > PROBABILITY_TOLERANCE
        if off.any():
            row = int(off.argmax())
            fail(f"policy[{t}][{row}]", f"sums to {float(table[row].sum()):.12g}, should sum to 1")
        out.append(table)
    return out


def _contexts(
    graph: DecisionGraph, rng: np.random.Generator, contexts: int | Sequence[int] | IntArray
) -> IntArray:
    if np.ndim(contexts) == 0:
        count = parse_integer("contexts", contexts, least=1)
        drawn = _draw(graph.context_probs[None], np.zeros(count, np.int64), rng.random(count))
        return drawn
    array = np.asarray(contexts)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        fail("contexts", "should be a number of contexts or a list of indices")
    wrong = (array < 0) | (array >= graph.contexts)
    if wrong.any():
        i = int(wrong.argmax())
        fail(f"contexts[{i}] = {array[i]}", f"should be from 0 to {graph.contexts - 1}")
    return array.astype(np.int64)


def _draw(probs: FloatArray, row: IntArray, uniform: FloatArray) -> IntArray:
    """Draw an index from probs[row] by inversion; entries of probability 0 are never drawn."""
    if probs.shape[1] == 1:
        return np.zeros(row.shape, dtype=np.int64)
    cumulative = np.cumsum(probs, axis=1)
    last = probs.shape[1] - 1 - (probs[:, ::-1] > 0).argmax(axis=1)
    point = uniform * cumulative[row, -1]
    index = (point[..., None] >= cumulative[row]).sum(axis=-1)
    return np.minimum(index, last[row])


def _move(layer: Layer, node: IntArray, action: IntArray, uniform: FloatArray) -> IntArray:
    flat = node * layer.actions + action
    if layer.edge_source is None or layer.edge_prob is None or layer.edge_target is None:
        return flat
    count = np.bincount(layer.edge_source, minlength=layer.nodes * layer.actions)
    first = np.cumsum(count) - count
    total = np.concatenate([[0.0], np.cumsum(layer.edge_prob)])
    start, stop = first[flat], first[flat] + count[flat]
    point = total[start] + uniform * (total[stop] - total[start])
    edge = np.searchsorted(total, point, side="right") - 1
    return layer.edge_target[np.clip(edge, start, stop - 1)]
