"""Observation maps: a policy may see only a function of the history.

Limited context, weights shared between turns and partial observation all enter in this way. A map
o assigns to node n of turn t a row o_t(n) of the policy table; nodes with the same row have the
same policy

    π_t(· | n) = table_t[o_t(n)],   table_t [O_t, A_t].

With `shared=True` rows are numbered jointly over the turns, O_t = O for all t, so that one table
[O, A] can serve them all: what is seen alike at two turns then has one row.

Maps by name (see `NAMES`), by function or by arrays:

* "full": every node has its own row. "state": the rows that the model has by itself (an MDP's
  states).
* "turn": the turn number and nothing else. "none": nothing, not even the turn (differs only where
  shared).
* "context": the context alone. "last-action": the action of the turn before alone.
* a function (turn, history) → anything hashable. turn counts from 0; history is (context, a_1, …,
  a_{t−1}) in a bandit, and in a tree of another model (o_1, a_1, o_2, …, a_{t−1}, o_t), with o
  the rows it has by itself and a = −1 for no-op turns. Rows are numbered in the order of first
  appearance.
* a list of integer arrays, one [N_t] a turn.
* a flat list of integers [O]: the new row of each row that the model has by itself, for all turns
  (an MDP's states that look alike).

With history-conditioned tables every stationary point that keeps all histories reachable is
optimal; with an observation map it need not be. Source: partial observability in team problems;
the models are in `zoo`.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, overload

import numpy as np

from .errors import fail, show
from .exact import BoolArray, IntArray, frozen
from .graph import DecisionGraph, Layer
from .limits import MAX_NODES
from .mdp import TabularMDP
from .sequential import REPR_LEAVES, SequentialBandit

Observe = str | Callable[[int, tuple[int, ...]], Hashable] | Sequence[Any]
NAMES = ("full", "state", "turn", "none", "context", "last-action")


@dataclass(frozen=True, eq=False, repr=False)
class AliasedModel:
    """A model seen through an observation map; made by `alias`.

    Fields: model; observe: a name, per-turn arrays, or (for an MDP) a function; shared.
    """

    model: SequentialBandit | TabularMDP
    observe: Observe
    shared: bool = False

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.model.name

    @property
    def turns(self) -> int:
        """T."""
        return self.model.turns

    @property
    def horizon(self) -> int:
        """T."""
        return self.model.horizon

    @property
    def actions(self) -> tuple[int, ...]:
        """(A_1, …, A_T)."""
        return self.model.actions

    @property
    def contexts(self) -> int:
        """C."""
        return self.model.contexts

    def graph(self, merge: str = "return", max_nodes: float = MAX_NODES) -> DecisionGraph:
        """Return the model's graph with the map's rows."""
        return _alias_graph(self.model.graph(merge, max_nodes), self.observe, self.shared)

    def __eq__(self, other: object) -> bool:
        """Whether models and maps are equal; functions are equal only to themselves."""
        if not isinstance(other, AliasedModel):
            return NotImplemented
        mine, theirs = self.observe, other.observe
        if isinstance(mine, tuple) and isinstance(theirs, tuple):
            same = len(mine) == len(theirs) and all(map(np.array_equal, mine, theirs))
        else:
            same = type(mine) is type(theirs) and mine == theirs
        return same and self.shared == other.shared and self.model == other.model

    def __hash__(self) -> int:
        return hash((self.model, self.shared))

    def __repr__(self) -> str:
        observe = repr(self.observe)
        if isinstance(self.observe, tuple):
            size = sum(len(rows) for rows in self.observe)
            rows = [np.asarray(rows).tolist() for rows in self.observe]
            observe = repr(rows) if size <= REPR_LEAVES else f"<rows of {size} nodes>"
        shared = ", shared=True" if self.shared else ""
        return f"alias({self.model!r}, {observe}{shared})"


@overload
def alias(
    model: SequentialBandit | TabularMDP | AliasedModel, observe: Observe, *, shared: bool = False
) -> AliasedModel: ...
@overload
def alias(model: DecisionGraph, observe: Observe, *, shared: bool = False) -> DecisionGraph: ...
def alias(
    model: SequentialBandit | TabularMDP | AliasedModel | DecisionGraph,
    observe: Observe,
    *,
    shared: bool = False,
) -> AliasedModel | DecisionGraph:
    """Restrict what a policy sees to o_t(n); a graph gives a graph, a model an `AliasedModel`.

    Args: observe: see the module's text. shared: number rows jointly over turns; needs A_t equal.
    Raises ModelError for an unknown name, rows that do not fit the nodes, nodes of one row that
    allow different actions, and a function on a graph that is no tree.

    >>> model = SequentialBandit([[[0, 1], [1, 0]]])
    >>> alias(model, "none", shared=True).graph().observations
    (1, 1)
    >>> alias(model, lambda turn, history: turn == 1 and history[1] == 0).observe
    (array([0]), array([0, 1]))
    """
    if isinstance(model, DecisionGraph):
        return _alias_graph(model, observe, shared)
    if isinstance(model, AliasedModel):  # a map of the model itself, not of what is already seen
        model = model.model
    if isinstance(observe, str):
        _require_name(observe)
    elif isinstance(model, SequentialBandit):
        observe = tuple(_rows(model.graph(), observe, shared))
    elif not callable(observe):
        observe = _arrays(observe)
    if shared:
        _require_equal_actions(model.actions)
    return AliasedModel(model, observe, bool(shared))


def _alias_graph(graph: DecisionGraph, observe: Observe, shared: bool) -> DecisionGraph:
    rows = _rows(graph, observe, shared)
    if shared:
        _require_equal_actions(graph.actions)
    counts = [int(row.max()) + 1 for row in rows]
    if not isinstance(observe, str) and not callable(observe) and len(observe) < graph.turns:
        counts = [int(np.max(observe[0])) + 1] * graph.turns  # a map of rows, seen or not
    if isinstance(observe, str) and observe == "state":
        counts = list(graph.observations)
    if shared:
        counts = [max(counts)] * graph.turns
    layers = tuple(
        replace(
            layer,
            observations=count,
            observation=None if _is_identity(row, count) else row,
            mask=_mask(turn, layer, row, count),
        )
        for turn, (layer, row, count) in enumerate(zip(graph.layers, rows, counts, strict=True))
    )
    return replace(graph, layers=layers)


def _rows(graph: DecisionGraph, observe: Observe, shared: bool) -> list[IntArray]:
    """Return the row of every node, one array a turn."""
    if isinstance(observe, str):
        return _named_rows(graph, observe, shared)
    if not callable(observe):
        rows = list(_arrays(observe))
        if len(rows) == 1 and graph.observations == (len(rows[0]),) * graph.turns:
            return [rows[0][layer.rows()] for layer in graph.layers]
        sizes = [len(row) for row in rows]
        if sizes != list(graph.nodes):
            fail("observe", f"has rows for {sizes} nodes, should have {list(graph.nodes)}")
        return rows
    numbers: dict[Hashable, int] = {}
    out = []
    for turn, histories in enumerate(_histories(graph)):
        if not shared:
            numbers = {}
        seen = (observe(turn, history) for history in histories)
        out.append(np.array([numbers.setdefault(what, len(numbers)) for what in seen]))
    return [frozen(row) for row in out]


def _named_rows(graph: DecisionGraph, name: str, shared: bool) -> list[IntArray]:
    _require_name(name)
    if name == "state" and not (shared and graph.implicit):
        return [layer.rows() for layer in graph.layers]
    if name in ("full", "state"):
        start = np.cumsum([0, *graph.nodes]) * shared
        return [np.arange(n) + s for n, s in zip(graph.nodes, start[:-1], strict=True)]
    if name in ("turn", "none"):
        return [np.full(n, t * (shared and name == "turn")) for t, n in enumerate(graph.nodes)]
    if name == "context":
        return list(graph.node_contexts())
    return _last_actions(graph)


def _last_actions(graph: DecisionGraph) -> list[IntArray]:
    """Row 0 where there was no action yet, or a no-op; a + 1 after action a."""
    out = [np.zeros(graph.contexts, dtype=np.int64)]
    for turn, layer in enumerate(graph.layers[:-1]):
        edges = layer.edges()
        action = np.where(layer.acting()[edges.source], edges.action, -1)
        row = np.full(graph.layers[turn + 1].nodes, -2)
        row[edges.target] = action
        clash = row[edges.target] != action
        if clash.any():
            node = int(edges.target[clash.argmax()])
            fail(
                f'observe = "last-action" at turn {turn + 1}, node {node}',
                'follows two actions, should be used with graph(merge="none")',
            )
        out.append(row + 1)
    return out


def _histories(graph: DecisionGraph) -> Iterable[Sequence[tuple[int, ...]]]:
    if graph.implicit:
        ranges: list[range] = [range(graph.contexts)]
        for count in graph.actions:
            yield list(product(*ranges))
            ranges.append(range(count))
        return
    if not graph.is_tree:
        fail("observe", 'is a function of the history and needs a tree, graph(merge="none")')
    history: list[tuple[int, ...]] = [(int(row),) for row in graph.layers[0].rows()]
    yield history
    for turn in range(1, graph.turns):
        up = graph.parents(turn - 1)
        seen = graph.layers[turn].rows().tolist()
        steps = zip(up.source.tolist(), up.action.tolist(), seen, strict=True)
        history = [(*history[parent], action, row) for parent, action, row in steps]
        yield history


def _mask(turn: int, layer: Layer, rows: IntArray, count: int) -> BoolArray | None:
    """Return the mask of the new rows; all nodes of a row must allow the same actions."""
    if layer.mask is None:
        return None
    allowed = layer.allowed()
    mask = np.ones((count, layer.actions), dtype=np.bool_)
    mask[rows] = allowed
    wrong = (mask[rows] != allowed).any(axis=1)
    if wrong.any():
        node = int(wrong.argmax())
        fail(
            f"observe at turn {turn}, node {node}",
            f"shares row {rows[node]} with a node that allows other actions, should not",
        )
    return mask


def _arrays(observe: Sequence[Any]) -> tuple[IntArray, ...]:
    """Return arrays [N_t], one a turn; a flat list becomes a single one, a map of the model's rows."""
    if len(observe) and all(np.ndim(item) == 0 for item in observe):
        observe = [observe]
    return tuple(_integers(t, rows) for t, rows in enumerate(observe))


def _integers(turn: int, rows: object) -> IntArray:
    array = np.asarray(rows)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu" or array.min() < 0:
        fail(f"observe[{turn}] = {show(rows)}", "should be a list of non-negative integers")
    return frozen(array.astype(np.int64))


def _is_identity(rows: IntArray, count: int) -> bool:
    return count == len(rows) and bool((rows == np.arange(count)).all())


def _require_name(name: str) -> None:
    if name not in NAMES:
        fail(f"observe = {name!r}", f"should be one of {', '.join(NAMES)}")


def _require_equal_actions(actions: Sequence[int]) -> None:
    if len(set(actions)) > 1:
        fail(f"shared = True with actions {tuple(actions)}", "should have as many at every turn")
