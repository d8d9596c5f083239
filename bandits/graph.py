"""The lowered form of every model: layers of decision nodes, environment edges, leaves.

Turn t = 0 … T−1 has a `Layer` of N_t nodes. Layer 0 has one node a context. In node n the policy
reads row o = observation[n] of its table [O_t, A_t] and draws an action a that the row's mask
allows; the environment then moves along one of the edges of (n, a) to a node of the next layer.
Nodes of layer T are the leaves; a leaf pays a total return with a finite distribution of K atoms.
Hence the value of a policy π is

    J = Σ_c β(c) V_0(c),  V_t(n) = Σ_a π_t(a | o(n)) Q_t(n, a),
    Q_t(n, a) = Σ_{edges e of (n, a)} p_e V_{t+1}(target_e),

with V_T the mean of a leaf, and nothing else has to be known of the model.

Flat index of (n, a): n·A_t + a. Two kinds of layer:

* implicit (edge_* is None): the child of (n, a) is node n·A_t + a of the next layer, with
  probability 1. A bandit is made of these alone: nothing is stored, and history h = (c, a_1, …)
  has its row-major index.
* explicit: edges ordered by edge_source; the probabilities of each allowed (n, a) sum to 1.

A node where the episode is over (active False) is a no-op turn: every allowed action has the same
single child. The recursion above therefore needs no special case, and the policy there has no
influence on J.

Shapes: C contexts, T turns, N_t nodes, A_t actions, O_t observations, E_t edges, K atoms.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .errors import fail, show
from .exact import PROBABILITY_TOLERANCE, BoolArray, FloatArray, IntArray, frozen


class Edges(NamedTuple):
    """Edges of one turn: source node, action, target in the next layer, probability, each [E]."""

    source: IntArray
    action: IntArray
    target: IntArray
    prob: FloatArray


class Ancestors(NamedTuple):
    """For every leaf of a tree, its path: nodes[t] [leaves], actions[t] [leaves], prob [leaves].

    actions is −1 at a no-op turn; prob is that of the environment's edges, without the context's.
    """

    nodes: list[IntArray]
    actions: list[IntArray]
    prob: FloatArray


@dataclass(frozen=True, eq=False)
class Layer:
    """One turn. See the module's text for the fields; `None` always means the trivial choice.

    >>> Layer(nodes=2, actions=3, observations=2).children
    6
    """

    nodes: int
    actions: int
    observations: int
    observation: IntArray | None = None
    mask: BoolArray | None = None
    active: BoolArray | None = None
    edge_source: IntArray | None = None
    edge_target: IntArray | None = None
    edge_prob: FloatArray | None = None

    def __post_init__(self) -> None:
        _index(self, "observation", self.nodes, self.observations)
        _typed(self, "mask", (self.observations, self.actions), np.bool_)
        _typed(self, "active", (self.nodes,), np.bool_)
        if min(self.nodes, self.actions, self.observations) < 1:
            fail(
                "layer",
                f"has {self.nodes} nodes, {self.actions} actions: should be at least one each",
            )
        if self.observation is None and self.observations != self.nodes:
            fail("observation", f"is None with {self.observations} rows for {self.nodes} nodes")
        if self.mask is not None and not self.mask.any(axis=1).all():
            row = int((~self.mask.any(axis=1)).argmax())
            fail(f"mask[{row}]", "allows no action, should allow at least one")
        edges = (self.edge_source, self.edge_target, self.edge_prob)
        if self.edge_source is None:
            if any(e is not None for e in edges):
                fail("edge_source", "is None, should be given with edge_target and edge_prob")
            return
        size = self.edge_source.shape[0]
        _index(self, "edge_source", size, self.nodes * self.actions)
        _index(self, "edge_target", size, None)
        _typed(self, "edge_prob", (size,), np.float64)
        if self.edge_target is None or self.edge_prob is None:
            fail("edge_target, edge_prob", "should be given with edge_source")
        if (np.diff(self.edge_source) < 0).any():
            fail("edge_source", "should be in ascending order")
        if not (self.edge_prob >= 0).all():
            fail("edge_prob", "should be non-negative")
        total = np.bincount(self.edge_source, self.edge_prob, minlength=self.nodes * self.actions)
        wrong = np.abs(total - self.allowed().reshape(-1)) > PROBABILITY_TOLERANCE
        if wrong.any():
            n, a = divmod(int(wrong.argmax()), self.actions)
            fail(
                f"edges of node {n}, action {a}",
                f"sum to {total[n * self.actions + a]}, should be 1 where allowed and 0 elsewhere",
            )

    @property
    def implicit(self) -> bool:
        """Whether the child of (n, a) is n·A + a."""
        return self.edge_source is None

    @property
    def children(self) -> int:
        """Number of nodes that the next layer has at least."""
        if self.edge_target is None:
            return self.nodes * self.actions
        return int(self.edge_target.max()) + 1

    def rows(self) -> IntArray:
        """Return the row of the policy table seen at each node [N]."""
        return np.arange(self.nodes) if self.observation is None else self.observation

    def allowed(self) -> BoolArray:
        """Return the allowed actions of each node [N, A]."""
        if self.mask is None:
            return np.broadcast_to(np.True_, (self.nodes, self.actions))
        return self.mask if self.observation is None else self.mask[self.observation]

    def acting(self) -> BoolArray:
        """Return where the episode still runs [N]."""
        return np.broadcast_to(np.True_, (self.nodes,)) if self.active is None else self.active

    def edges(self) -> Edges:
        """Return all edges; an implicit layer's are written out, with those of masked actions."""
        if self.edge_source is None or self.edge_target is None or self.edge_prob is None:
            flat = np.arange(self.nodes * self.actions)
            node, action = np.divmod(flat, self.actions)
            return Edges(node, action, flat, np.broadcast_to(np.float64(1.0), flat.shape))
        node, action = np.divmod(self.edge_source, self.actions)
        return Edges(node, action, self.edge_target, self.edge_prob)


@dataclass(frozen=True, eq=False)
class DecisionGraph:
    """A finite decision problem in the form of this module's text.

    context_probs [C]; layers, one a turn; leaf_values, leaf_probs [N_T, K]; leaf_context [N_T] or
    None where all layers are implicit; node_return: per turn [N_t], the discounted return paid
    before it, or None.
    Raises ModelError where shapes, indices or probabilities do not fit.
    """

    context_probs: FloatArray
    layers: tuple[Layer, ...]
    leaf_context: IntArray | None
    leaf_values: FloatArray
    leaf_probs: FloatArray
    node_return: tuple[FloatArray, ...] | None = None
    discount: float = 1.0
    is_tree: bool = True
    name: str = ""

    def __post_init__(self) -> None:
        if not self.layers:
            fail("layers", "is empty, should have one layer a turn")
        _typed(self, "context_probs", (self.layers[0].nodes,), np.float64)
        if (self.context_probs < 0).any() or abs(
            self.context_probs.sum() - 1
        ) > PROBABILITY_TOLERANCE:
            fail("context_probs", f"sum to {self.context_probs.sum()}, should be probabilities")
        leaves = self.leaf_values.shape[0]
        sizes = [*(layer.nodes for layer in self.layers), leaves]
        for t, layer in enumerate(self.layers):
            if (
                (layer.children != sizes[t + 1])
                if layer.implicit
                else (layer.children > sizes[t + 1])
            ):
                fail(
                    f"layers[{t}]", f"leads to {layer.children} nodes, the next has {sizes[t + 1]}"
                )
        if self.leaf_values.ndim != 2:
            fail("leaf_values", f"has shape {self.leaf_values.shape}, should be [leaves, atoms]")
        _typed(self, "leaf_values", self.leaf_values.shape, np.float64)
        _typed(self, "leaf_probs", self.leaf_values.shape, np.float64)
        _index(self, "leaf_context", leaves, self.contexts)
        if self.leaf_context is None and not all(layer.implicit for layer in self.layers):
            fail("leaf_context", "is None, should be given where a layer has edges")
        if self.node_return is not None:
            if [r.shape for r in self.node_return] != [(n,) for n in sizes[:-1]]:
                fail("node_return", f"should hold one array a turn of sizes {sizes[:-1]}")
            object.__setattr__(self, "node_return", tuple(frozen(r) for r in self.node_return))
        if self.is_tree and not is_tree(self.layers):
            fail("is_tree", "is True, but a node can be reached in more than one way")

    @property
    def contexts(self) -> int:
        """C."""
        return int(self.context_probs.shape[0])

    @property
    def turns(self) -> int:
        """T."""
        return len(self.layers)

    @property
    def leaves(self) -> int:
        """N_T, the number of leaves."""
        return int(self.leaf_values.shape[0])

    @property
    def atoms(self) -> int:
        """K, the number of atoms of a leaf's return."""
        return int(self.leaf_values.shape[1])

    @property
    def actions(self) -> tuple[int, ...]:
        """(A_0, …, A_{T−1})."""
        return tuple(layer.actions for layer in self.layers)

    @property
    def nodes(self) -> tuple[int, ...]:
        """(N_0, …, N_{T−1})."""
        return tuple(layer.nodes for layer in self.layers)

    @property
    def observations(self) -> tuple[int, ...]:
        """(O_0, …, O_{T−1}): rows of the policy table of each turn."""
        return tuple(layer.observations for layer in self.layers)

    @property
    def implicit(self) -> bool:
        """Whether no layer stores edges."""
        return all(layer.implicit for layer in self.layers)

    def __repr__(self) -> str:
        name = f"{self.name!r}, " if self.name else ""
        return (
            f"<DecisionGraph {name}contexts={self.contexts}, nodes={self.nodes}, "
            f"actions={self.actions}, leaves={self.leaves}, tree={self.is_tree}>"
        )

    def leaf_means(self) -> FloatArray:
        """Return the mean return of each leaf [N_T]."""
        if self.atoms == 1:
            return self.leaf_values[:, 0]
        return np.asarray((self.leaf_values * self.leaf_probs).sum(axis=1))

    def leaf_contexts(self) -> IntArray:
        """Return the context of each leaf [N_T]."""
        if self.leaf_context is not None:
            return self.leaf_context
        return np.repeat(np.arange(self.contexts), self.leaves // self.contexts)

    def node_contexts(self) -> tuple[IntArray, ...]:
        """Return the context of each node, per turn [N_t]; a node of two contexts is an error."""
        out = [np.arange(self.contexts)]
        for t, layer in enumerate(self.layers[:-1]):
            edges = layer.edges()
            context = np.full(self.layers[t + 1].nodes, -1)
            context[edges.target] = out[t][edges.source]
            if (context[edges.target] != out[t][edges.source]).any():
                fail(f"layers[{t + 1}]", "has a node that two contexts share")
            out.append(context)
        return tuple(out)

    def parents(self, turn: int) -> Edges:
        """Return the edge into every node of layer `turn` + 1 of a tree (after the last: every leaf).

        Fields are [N_{turn+1}] long and ordered by target; action is −1 below a no-op turn.
        """
        self._require_tree("parents")
        layer = self.layers[turn]
        edges = layer.edges()
        if layer.implicit:
            return edges
        size = self.layers[turn + 1].nodes if turn + 1 < self.turns else self.leaves
        source, action = np.full(size, -1), np.full(size, -1)
        prob = np.zeros(size)
        source[edges.target] = edges.source
        prob[edges.target] = edges.prob
        action[edges.target] = np.where(layer.acting()[edges.source], edges.action, -1)
        return Edges(source, action, np.arange(size), prob)

    def ancestors(self) -> Ancestors:
        """Return the path of every leaf of a tree: node visited and action taken at every turn."""
        self._require_tree("ancestors")
        at = np.arange(self.leaves)
        prob = np.ones(self.leaves)
        nodes: list[IntArray] = []
        actions: list[IntArray] = []
        for t in reversed(range(self.turns)):
            if self.layers[t].implicit:
                at, action = np.divmod(at, self.layers[t].actions)
            else:
                up = self.parents(t)
                prob = prob * up.prob[at]
                at, action = up.source[at], up.action[at]
            nodes.insert(0, at)
            actions.insert(0, action)
        return Ancestors(nodes, actions, prob)

    def _require_tree(self, what: str) -> None:
        if not self.is_tree:
            fail(what, 'needs a tree, should be called on graph(merge="none")')


def is_tree(layers: tuple[Layer, ...]) -> bool:
    """Whether every node has one parent node and, but for no-op turns, one edge into it."""
    for layer in layers:
        if layer.implicit:
            continue
        edges = layer.edges()
        first = np.full(layer.children, -1)
        first[edges.target] = edges.source
        if (first[edges.target] != edges.source).any():
            return False
        acting = layer.acting()[edges.source]
        if np.bincount(edges.target[acting], minlength=1).max() > 1:
            return False
        idle = (edges.source * layer.actions + edges.action)[~acting]
        if (np.diff(idle) == 0).any():
            return False
    return True


def _typed(owner: object, name: str, shape: tuple[int, ...], dtype: type) -> None:
    value = getattr(owner, name)
    if value is None:
        return
    array = np.asarray(value)
    if array.shape != shape or array.dtype != dtype:
        fail(
            name,
            f"has shape {array.shape} of {array.dtype}, should be {shape} of {dtype.__name__}",
        )
    object.__setattr__(owner, name, frozen(array))


def _index(owner: object, name: str, size: int, bound: int | None) -> None:
    value = getattr(owner, name)
    if value is None:
        return
    array = np.asarray(value)
    if array.shape != (size,) or array.dtype.kind not in "iu":
        fail(
            name,
            f"has shape {array.shape} and dtype {array.dtype}, should be ({size},) of integers",
        )
    array = array.astype(np.int64, copy=False)
    if array.size and (array.min() < 0 or (bound is not None and array.max() >= bound)):
        wrong = (array < 0) | (array >= (bound if bound is not None else array.max() + 1))
        i = int(wrong.argmax())
        fail(
            f"{name}[{i}] = {show(array[i])}",
            f"should be an index from 0 to {bound}, {bound} excluded",
        )
    object.__setattr__(owner, name, frozen(array))
