r"""Expected advantages by brute force: every ordered group that can be drawn, in NumPy.

A route of its own beside the simulator's: no JAX, no multisets, no assumption that an estimator
treats the members of a group alike.  With β the contexts' probabilities and ρ_c the law of the
returns of context c under the policy, a batch of B groups of G has probability
:math:`\prod_b \beta_{c_b} \prod_i \rho_{c_b}(r_{bi})`, and

.. math:: E[\hat A \mid c, s] = \frac{1}{B G\, \beta_c\, \rho_c(s)}
          \sum_{\text{batches}} P \sum_{b,i} 1[c_b = c, r_{bi} = s]\, \hat A_{bi} ,

.. math:: E[\hat A \mid n, a] = E\big[\, E[\hat A \mid c, R] \,\big|\, n, a \big] .

The second line is one backward sweep over the decision graph.  The estimator is called once, on
all batches, as returns [M, B, G].

Shapes: C contexts, G members, B groups a batch, M batches, N_t nodes, O_t rows, A_t actions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bandits.families import uniform_policy
from bandits.graph import DecisionGraph
from bandits.sample import require_tables

__all__ = ["MAX_ENTRIES", "Expected", "expected_advantages"]

MAX_ENTRIES = 3_000_000
"""Largest array of returns that is enumerated: 24 MB, about a tenth of a second."""

EQUAL_RTOL = 1e-12
"""Returns this close, relative to the largest, are the same sum in another order of rounding."""

AGREEMENT = {8: 1e-9, 4: 1e-4, 2: 1e-2}
"""Difference allowed between two evaluations of the same numbers, by the bytes of a float."""

Table = NDArray[np.float64]


@dataclass(frozen=True)
class Expected:
    """Expected and true advantages; lists have one array a turn.

    Attributes:
        expected: E[Â | row, a] less its mean over the row's actions [O_t, A_t].
        exact: A^π(row, a) [O_t, A_t].
        sampled: which of them are ever sampled [O_t, A_t]; the others are 0 in both.
        spread: largest minus smallest return that occurs.
        itemsize: bytes of the floats that the estimator returned.
        graph: the decision graph the rows belong to.
    """

    expected: list[Table]
    exact: list[Table]
    sampled: list[NDArray[np.bool_]]
    spread: float
    itemsize: int
    graph: DecisionGraph


def expected_advantages(
    estimator: Callable[[Any], Any],
    model: Any,
    policy: Any = None,
    *,
    group_size: int = 2,
    contexts_per_batch: int = 1,
    label: str = "the estimator",
) -> Expected:
    """Expected advantage of an estimator beside the true one, by enumeration.

    Raises:
        ValueError: sizes that are no whole numbers or too many groups, a policy that does not fit,
            or an estimator that returns another shape, or other numbers when called on one batch.

    >>> from bandits import SequentialBandit
    >>> from seeupo_theory.rules.advantages import grae
    >>> result = expected_advantages(grae, SequentialBandit([[0, 1]]), group_size=4)
    >>> result.expected[0].tolist(), result.exact[0].tolist()
    ([[-0.375, 0.375]], [[-0.5, 0.5]])
    """
    for name, size in (("group_size", group_size), ("contexts_per_batch", contexts_per_batch)):
        if isinstance(size, bool) or size != size or size in (math.inf, -math.inf) or size % 1:
            raise ValueError(f"{name} is {size}; enumeration needs a whole number of at least 1")
        if size < 1:
            raise ValueError(f"{name} is {size}; it should be at least 1")
    graph = model if isinstance(model, DecisionGraph) else model.graph()
    tables = require_tables(graph, uniform_policy(graph) if policy is None else list(policy))
    nodes = [table[layer.rows()] for layer, table in zip(graph.layers, tables, strict=True)]
    visits = _visits(graph, nodes)
    cells, index = _cells(graph, visits[-1])
    mean, itemsize = _cell_advantages(
        estimator, cells, int(group_size), int(contexts_per_batch), label
    )
    leaf = np.where(index < 0, 0.0, mean[index])
    expected = _actions(graph, nodes, (leaf * graph.leaf_probs).sum(axis=1))
    exact = _actions(graph, nodes, (graph.leaf_values * graph.leaf_probs).sum(axis=1))
    rows = [_by_row(graph, t, visits[t], nodes[t], expected[t]) for t in range(graph.turns)]
    true = [_by_row(graph, t, visits[t], nodes[t], exact[t]) for t in range(graph.turns)]
    return Expected(
        expected=[table for table, _ in rows],
        exact=[table for table, _ in true],
        sampled=[some for _, some in rows],
        spread=float(np.ptp([r for _, _, r in cells])),
        itemsize=itemsize,
        graph=graph,
    )


Cells = list[tuple[int, float, float]]
"""(context, probability β_c ρ_c(s), return s) of everything that one sample can be."""


def _cells(graph: DecisionGraph, visits: Table) -> tuple[Cells, NDArray[np.int64]]:
    """What one sample can be, and the cell of every leaf's atoms [N, K], −1 where it never occurs."""
    mass = visits[:, None] * graph.leaf_probs
    context = np.broadcast_to(graph.leaf_contexts()[:, None], mass.shape)
    scale = max(float(np.abs(graph.leaf_values).max()), np.finfo(float).tiny)
    grid = np.round(graph.leaf_values / scale / EQUAL_RTOL)
    index = np.full(mass.shape, -1)
    cells: Cells = []
    for c in range(graph.contexts):
        for value in np.unique(grid[(context == c) & (mass > 0)]):
            here = (context == c) & (grid == value)
            index[here] = len(cells)
            cells.append((c, float(mass[here].sum()), float(graph.leaf_values[here][0])))
    return cells, index


def _cell_advantages(
    estimator: Callable[[Any], Any], cells: Cells, group: int, batch: int, label: str
) -> tuple[Table, int]:
    """E[Â | own cell] of every cell, and the bytes of the estimator's floats."""
    by_context: dict[int, list[int]] = {}
    for i, (c, _, _) in enumerate(cells):
        by_context.setdefault(c, []).append(i)
    most = max(map(len, by_context.values()))
    digits = batch * (group * math.log10(most) + math.log10(len(by_context)))
    if digits + math.log10(batch * group) > math.log10(MAX_ENTRIES):
        raise ValueError(
            f"group_size = {group}, contexts_per_batch = {batch} with up to {most} different returns "
            f"a context make about 10^{digits:.0f} batches, more than are enumerated here; take "
            "smaller sizes, or compare with seeupo_theory.advantage"
        )
    prob = np.array([p for _, p, _ in cells])
    value = np.array([r for _, _, r in cells])
    members, weights = [], []
    for own in by_context.values():
        drawn = np.array(own)[_product(len(own), group)]  # [S^G, G]
        beta = prob[own].sum()
        members.append(drawn)
        weights.append(beta * (prob[drawn] / beta).prod(axis=1))
    member, weight = np.concatenate(members), np.concatenate(weights)
    chosen = _product(len(member), batch)  # [M, B]
    index = member[chosen]  # [M, B, G]
    advantages = _call(estimator, value[index], label)
    total = weight[chosen].prod(axis=1)[:, None, None] * advantages
    mean = np.bincount(index.reshape(-1), total.reshape(-1), minlength=len(cells))
    return mean / (batch * group * prob), advantages.dtype.itemsize


def _product(size: int, repeat: int) -> NDArray[np.int64]:
    """All tuples of `repeat` numbers below `size`, [size^repeat, repeat]."""
    if size == 1:
        return np.zeros((1, repeat), dtype=np.int64)
    return np.indices((size,) * repeat).reshape(repeat, -1).T


def _call(estimator: Callable[[Any], Any], returns: Table, label: str) -> NDArray[Any]:
    """Advantages of returns [M, B, G], checked to treat the M batches one by one."""
    whole = np.asarray(estimator(returns.copy()))
    if whole.shape != returns.shape:
        raise ValueError(
            f"{label} returns shape {whole.shape} for returns of shape {returns.shape}; it should "
            "return one advantage for each, [..., contexts, group]"
        )
    if whole.dtype.kind != "f":
        whole = whole.astype(np.float64)
    if not np.isfinite(whole).all():
        m = int(np.argwhere(~np.isfinite(whole))[0][0])
        raise ValueError(f"{label} gives {whole[m].tolist()} for returns {returns[m].tolist()}")
    near = AGREEMENT[whole.dtype.itemsize]
    for m in {0, len(returns) // 3}:
        alone = np.asarray(estimator(returns[m : m + 1].copy()))
        if not np.allclose(alone, whole[m : m + 1], rtol=near, atol=near):
            raise ValueError(
                f"{label} gives other advantages for a stack of batches than for each alone; it "
                "should reduce over the last axes only (axis=-1 for the group, (-2, -1) for the "
                "batch)"
            )
    return whole


def _visits(graph: DecisionGraph, nodes: list[Table]) -> list[Table]:
    """Probability of every node, turn by turn, and of every leaf."""
    out: list[Any] = [np.asarray(graph.context_probs)]
    sizes = [*graph.nodes[1:], graph.leaves]
    for layer, probs, size in zip(graph.layers, nodes, sizes, strict=True):
        source, action, target, prob = layer.edges()
        flow = out[-1][source] * probs[source, action] * prob
        out.append(np.bincount(target, flow, minlength=size))
    return out


def _actions(graph: DecisionGraph, nodes: list[Table], leaf: Table) -> list[Table]:
    """Q_t − V_t [N_t, A_t] of the quantity that the leaves pay."""
    value, out = leaf, []
    for layer, probs in zip(reversed(graph.layers), reversed(nodes), strict=True):
        source, action, target, prob = layer.edges()
        q = np.zeros(probs.shape)
        np.add.at(q, (source, action), prob * value[target])
        value = (probs * q).sum(axis=1)
        out.append(q - value[:, None])
    return out[::-1]


def _by_row(
    graph: DecisionGraph, turn: int, visits: Table, probs: Table, nodes: Table
) -> tuple[Table, NDArray[np.bool_]]:
    """Mean over the nodes that share a row of the policy table, and which entries are sampled."""
    layer = graph.layers[turn]
    weight = np.where(layer.acting(), visits, 0.0)
    shape = (layer.observations, layer.actions)
    total, mass, some = np.zeros(shape), np.zeros(shape[0]), np.zeros(shape, bool)
    np.add.at(total, layer.rows(), weight[:, None] * nodes)
    np.add.at(mass, layer.rows(), weight)
    np.logical_or.at(some, layer.rows(), (weight[:, None] > 0) & (probs > 0))
    table = total / np.where(mass > 0, mass, 1.0)[:, None]
    return np.where(some, table, 0.0), some
