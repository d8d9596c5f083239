"""Unroll a tabular MDP into a decision graph.

The algorithms that this project studies credit *whole returns*, so the lowered form keeps them:

* merge="return": nodes are (initial state, state, return so far), leaves (initial state, return).
  Sums are compared on a grid of 1e-12 of the largest of their turn, so that 0.1 + 0.2 meets 0.3; a
  merged node keeps the first of its sums.
* merge="none": the tree of all trajectories.

Only what the mask and the transitions allow is reached. Absorbing states are no-op turns: every
action leads to the same child. Nodes and edges are counted before they are allocated.

Layer t holds N_t nodes; an edge is one outcome (next state, reward atom) of an allowed (node,
action), with probability P(s' | s, a) times that of the atom; edges are ordered by node, then
action.
"""

from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from .errors import fail
from .exact import FloatArray, IntArray
from .graph import DecisionGraph, Layer, is_tree
from .limits import human, require_fits
from .sequential import require_merge

if TYPE_CHECKING:
    from .mdp import TabularMDP

# Two sums of the same rewards in another order differ by about 1e-16 of the largest a term.
_MERGE_GRID = 1e-12
# Bytes that an edge takes while its layer is built: index arrays, keys and their sorts.
_EDGE_BYTES = 120
# Edges of one layer for each node that is allowed: the usual number of actions and outcomes.
_EDGES_PER_NODE = 8


class _Nodes(NamedTuple):
    """Nodes of a turn: context, state, and the return paid so far, each [N]."""

    context: IntArray
    state: IntArray
    paid: FloatArray


class _Outcomes(NamedTuple):
    """Outcomes of each (s, a): number, first [S·A]; next_state, reward, prob [outcomes]."""

    number: IntArray
    first: IntArray
    next_state: IntArray
    reward: FloatArray
    prob: FloatArray


def unroll(mdp: "TabularMDP", merge: str, max_nodes: float) -> DecisionGraph:
    """Return the decision graph of an MDP.

    Args: merge: "return" or "none". max_nodes: most nodes over all turns, with the leaves.
    Raises ModelError, before allocating, where the graph would be larger or would not fit.
    """
    require_merge(merge)
    starts = np.flatnonzero(mdp.initial > 0)
    least = (mdp.horizon + 1) * len(starts)
    if least > max_nodes:
        _too_large(mdp, f"needs a graph of at least {least} nodes", max_nodes)
    if merge == "none":
        _require_tree_fits(mdp, starts, max_nodes)
    node = _Nodes(np.arange(len(starts)), starts, np.zeros(len(starts)))
    total, scale = len(starts), 1.0
    layers: list[Layer] = []
    returns: list[FloatArray] = []
    outcomes: _Outcomes | None = None
    for turn in range(mdp.horizon):
        if outcomes is None or not mdp.stationary:
            outcomes = _outcomes(mdp, turn)
        returns.append(node.paid)
        layer, node = _step(mdp, turn, node, outcomes, scale, merge, max_nodes)
        layers.append(layer)
        total += len(node.state)
        if total > max_nodes:
            _too_large(mdp, f"gives {total} nodes by turn {turn + 1}", max_nodes)
        scale *= mdp.discount
    return DecisionGraph(
        context_probs=mdp.initial[starts],
        layers=tuple(layers),
        leaf_context=node.context,
        leaf_values=node.paid[:, None],
        leaf_probs=np.broadcast_to(np.float64(1.0), (len(node.paid), 1)),
        node_return=tuple(returns),
        discount=mdp.discount,
        is_tree=is_tree(tuple(layers)),
        name=mdp.name,
    )


def _too_large(mdp: "TabularMDP", found: str, max_nodes: float) -> NoReturn:
    limit = f"should need at most max_nodes = {max_nodes:.0f}"
    nbytes = human(int(_EDGE_BYTES * max_nodes))
    fail(f"horizon = {mdp.horizon}", f"{found}, {limit} (about {nbytes})")


def _outcomes(mdp: "TabularMDP", turn: int) -> _Outcomes:
    """List what each (s, a) can lead to: next state, reward, probability."""
    table = mdp.transitions_by_turn(turn)
    state, action, following = np.nonzero(table)
    prob = table[state, action, following]
    values, probs = mdp.reward_atoms_by_turn(turn)
    where = (state, action, following) if mdp.on_transition else (state, action)
    value, weight = values[where], probs[where]  # [outcomes, K]
    over = mdp.absorbing[state]  # one outcome, however its reward of 0 was written
    value = np.where(over[:, None], 0.0, value)
    weight = np.where(over[:, None], np.arange(weight.shape[1]) == 0, weight)
    edge, atom = np.nonzero(weight > 0)
    pair = (state * mdp.action_count + action)[edge]
    number = np.bincount(pair, minlength=mdp.states * mdp.action_count)
    first = np.cumsum(number) - number
    prob = prob[edge] * weight[edge, atom]
    return _Outcomes(number, first, following[edge], value[edge, atom], prob)


def _require_tree_fits(mdp: "TabularMDP", starts: IntArray, max_nodes: float) -> None:
    """Count the nodes of the whole tree by states, before building any of them."""
    count = np.zeros(mdp.states)
    count[starts] = 1
    total, outcomes = float(len(starts)), None
    for turn in range(mdp.horizon):
        if outcomes is None or not mdp.stationary:
            outcomes = _outcomes(mdp, turn)
        trajectories = count[:, None] * (mdp.mask_by_turn(turn) & ~mdp.absorbing[:, None])
        edges = np.repeat(trajectories.reshape(-1), outcomes.number)
        count = count * mdp.absorbing
        count += np.bincount(outcomes.next_state, edges, minlength=mdp.states)
        total += count.sum()
        if total > max_nodes:
            found = f"gives a tree of {total:.4g} nodes by turn {turn + 1}"
            _too_large(
                mdp, f"{found} (a smaller horizon needs fewer, merge='return' too)", max_nodes
            )


def _step(
    mdp: "TabularMDP",
    turn: int,
    node: _Nodes,
    outcomes: _Outcomes,
    scale: float,
    merge: str,
    max_nodes: float,
) -> tuple[Layer, _Nodes]:
    """Build one layer and the nodes that follow it."""
    mask = mdp.mask_by_turn(turn)
    flat = np.flatnonzero(mask[node.state])
    source, action = np.divmod(flat, mdp.action_count)
    pair = node.state[source] * mdp.action_count + action
    number = outcomes.number[pair]
    size = int(number.sum())
    if size > _EDGES_PER_NODE * max_nodes:
        _too_large(mdp, f"gives {size} edges at turn {turn + 1}", max_nodes)
    require_fits(_EDGE_BYTES * size, f"horizon = {mdp.horizon} with {size} edges at one turn")
    chosen = np.repeat(np.arange(len(flat)), number)
    start = np.cumsum(number) - number
    outcome = outcomes.first[pair][chosen] + np.arange(size) - start[chosen]
    source, flat = source[chosen], flat[chosen]
    context, state = node.context[source], outcomes.next_state[outcome]
    paid = node.paid[source] + scale * outcomes.reward[outcome]
    over = mdp.absorbing[node.state]
    if merge == "none":
        fresh = ~over[source] | np.concatenate([[True], source[1:] != source[:-1]])
        target, first = np.cumsum(fresh) - 1, np.flatnonzero(fresh)
    else:
        last = turn + 1 == mdp.horizon
        first, target = _merge(context, np.zeros_like(state) if last else state, paid)
    layer = Layer(
        nodes=len(node.state),
        actions=mdp.action_count,
        observations=mdp.states,
        observation=node.state,
        mask=None if mask.all() else mask,
        active=~over if over.any() else None,
        edge_source=flat,
        edge_target=target,
        edge_prob=outcomes.prob[outcome],
    )
    return layer, _Nodes(context[first], state[first], paid[first])


def _merge(context: IntArray, state: IntArray, paid: FloatArray) -> tuple[IntArray, IntArray]:
    """Number the distinct (context, state, return): first edge of each node, node of each edge."""
    largest = float(np.abs(paid).max(initial=0.0))
    grid = np.rint(paid / (largest * _MERGE_GRID)) if largest > 0 else np.zeros_like(paid)
    levels, level = np.unique(grid, return_inverse=True)
    key = (context * (int(state.max()) + 1) + state) * len(levels) + level
    _, first, target = np.unique(key, return_index=True, return_inverse=True)
    return first, target
