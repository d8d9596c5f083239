"""A decision graph as a pytree of JAX arrays.

`bandits.graph.DecisionGraph` describes a problem in NumPy, validated.  `lower` turns it into
`Lowered`, the form that is traced, batched with `jax.vmap` and compiled: shapes and absent
entries (``None``) are static, numbers are not, so problems of equal shape share one program.

Shape legend: C contexts, T turns, N_t nodes and A_t actions of turn t, O_t rows of its policy
table, N leaves, K reward atoms a leaf, S distinct returns of a context.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from bandits.graph import DecisionGraph
from bandits.limits import require_fits

__all__ = ["Lowered", "LoweredLayer", "Paths", "lower", "with_rewards"]


RETURN_RTOL = 1e-12
"""Returns this close, relative to the largest, are one: they are sums of the same rewards."""


class LoweredLayer(NamedTuple):
    """One turn; see `bandits.graph.Layer` for the meaning of each entry."""

    observation: Array | None  # [N_t]
    mask: Array | None  # [O_t, A_t]
    active: Array | None  # [N_t]
    source: Array | None  # [E]
    target: Array | None  # [E]
    prob: Array | None  # [E]


class Paths(NamedTuple):
    """Where every leaf of a tree comes from: its (node, action) at each turn."""

    step: tuple[Array, ...]  # T arrays [N], flat node * A_t + action
    environment_prob: Array  # [N] product of context and transition probabilities


class Lowered(NamedTuple):
    """The arrays of one problem."""

    context_probs: Array  # [C]
    layers: tuple[LoweredLayer, ...]
    leaf_context: Array  # [N]
    leaf_values: Array  # [N, K]
    leaf_probs: Array  # [N, K]
    support: Array  # [C, S] distinct returns of each context, padded by repetition
    support_index: Array  # [N, K] column of `support` holding this atom
    node_return: tuple[Array, ...] | None = None  # [N_t] return paid before each turn
    paths: Paths | None = None

    @property
    def turns(self) -> int:
        """Number of turns T."""
        return len(self.layers)


def _index(values: np.ndarray) -> Array:
    return jnp.asarray(np.asarray(values, dtype=np.int32))


def _snapped(graph: DecisionGraph) -> np.ndarray:
    """Leaf values, with sums of rewards that differ by rounding made equal.

    0.1 + 0.2 and 0.3 are one return: without this a group of the two would have a standard
    deviation.  A bandit's rewards were written down as they are, and stay.
    """
    values = graph.leaf_values
    if graph.node_return is None or values.size == 0:
        return values
    order = np.argsort(values, axis=None)
    ascending = values.reshape(-1)[order]
    step = np.diff(ascending, prepend=-np.inf) > RETURN_RTOL * np.abs(ascending).max()
    snapped = np.empty(values.size)
    snapped[order] = ascending[np.flatnonzero(step)][np.cumsum(step) - 1]
    return snapped.reshape(values.shape)


def _support(
    values: np.ndarray, contexts: int, leaf_context: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Distinct returns a context, and where each leaf atom stands among them."""
    levels, level = np.unique(values, return_inverse=True)
    pair = np.repeat(leaf_context, values.shape[1]) * len(levels) + level.reshape(-1)
    distinct, inverse = np.unique(pair, return_inverse=True)
    context, level = np.divmod(distinct, len(levels))
    width = np.bincount(context, minlength=contexts)
    require_fits(8 * contexts * int(width.max()), f"the distinct returns of {contexts} contexts")
    column = np.arange(len(context)) - (np.cumsum(width) - width)[context]
    support = np.zeros((contexts, int(width.max())))
    support[context, column] = levels[level]
    for c in np.flatnonzero(width < support.shape[1]):
        support[c, width[c] :] = support[c, max(width[c] - 1, 0)]
    return support, column[inverse.reshape(-1)].reshape(values.shape)


def _paths(graph: DecisionGraph, leaf_context: np.ndarray) -> Paths:
    if not graph.is_tree:
        raise ValueError(
            f"{graph.name or 'this graph'} merges histories, but this computation needs one leaf a "
            "history; build it with model.graph(merge='none')"
        )
    steps = _steps(graph)
    leaves = graph.leaf_values.shape[0]
    nodes = [step // layer.actions for step, layer in zip(steps, graph.layers, strict=True)]
    nodes.append(np.arange(leaves))
    probability = graph.context_probs[leaf_context].copy()
    for t, layer in enumerate(graph.layers):
        if layer.edge_prob is not None and layer.edge_target is not None:
            into = np.empty(int(layer.edge_target.max()) + 1)
            into[layer.edge_target] = layer.edge_prob
            probability *= into[nodes[t + 1]]
    return Paths(tuple(_index(step) for step in steps), jnp.asarray(probability))


def _steps(graph: DecisionGraph) -> list[np.ndarray]:
    """Flat (node, action) of every leaf at every turn, walked back from the leaves."""
    node = np.arange(graph.leaf_values.shape[0])
    steps: list[np.ndarray] = []
    for layer in reversed(graph.layers):
        if layer.edge_source is None or layer.edge_target is None:
            step = node
        else:
            source = np.empty(int(layer.edge_target.max()) + 1, dtype=np.int64)
            source[layer.edge_target] = layer.edge_source
            step = source[node]
        steps.append(step)
        node = step // layer.actions
    return steps[::-1]


def lower(graph: DecisionGraph, *, paths: bool = False) -> Lowered:
    """Turn a decision graph into arrays.

    `paths` adds one row a leaf with its whole history; only trees have it.

    Raises:
        ValueError: `paths` is asked of a graph that merges histories.
    """
    leaf_context = np.asarray(graph.leaf_contexts())
    values = _snapped(graph)
    support, support_index = _support(values, graph.contexts, leaf_context)
    layers = []
    for layer in graph.layers:
        observation = layer.observation
        if observation is None and layer.edge_source is not None:
            observation = np.arange(layer.nodes)
        layers.append(
            LoweredLayer(
                observation=None if observation is None else _index(observation),
                mask=None if layer.mask is None else jnp.asarray(layer.mask),
                active=None if layer.active is None else jnp.asarray(layer.active),
                source=None if layer.edge_source is None else _index(layer.edge_source),
                target=None if layer.edge_target is None else _index(layer.edge_target),
                prob=None if layer.edge_prob is None else jnp.asarray(layer.edge_prob),
            )
        )
    return Lowered(
        context_probs=jnp.asarray(graph.context_probs),
        layers=tuple(layers),
        leaf_context=_index(leaf_context),
        leaf_values=jnp.asarray(values),
        leaf_probs=jnp.asarray(graph.leaf_probs),
        support=jnp.asarray(support),
        support_index=_index(support_index),
        node_return=None
        if graph.node_return is None
        else tuple(jnp.asarray(x) for x in graph.node_return),
        paths=_paths(graph, leaf_context) if paths else None,
    )


def with_rewards(
    lowered: Lowered,
    leaf_values: Array,
    leaf_probs: Array | None = None,
    context_probs: Array | None = None,
) -> Lowered:
    """The same bandit with other numbers, inside traced code (every atom its own support point).

    Only for bandits: the leaves are sorted by context, equally many each, and nothing but the
    policy decides which is reached.
    """
    probs = jnp.ones_like(leaf_values) if leaf_probs is None else leaf_probs
    weights = lowered.context_probs if context_probs is None else context_probs
    support = jnp.reshape(leaf_values, (weights.shape[0], -1))
    index = jnp.arange(support.shape[1], dtype=jnp.int32)
    paths = lowered.paths
    if paths is not None:
        paths = paths._replace(environment_prob=weights[lowered.leaf_context])
    return lowered._replace(
        context_probs=weights,
        leaf_values=leaf_values,
        leaf_probs=probs,
        support=support,
        support_index=jnp.reshape(jnp.tile(index, weights.shape[0]), leaf_values.shape),
        paths=paths,
    )
