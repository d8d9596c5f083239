"""A small problem as a tree: who goes where, how often, and with what advantage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bandits.graph import DecisionGraph
from seeupo_theory.figures import style
from seeupo_theory.tabular.evaluate import check_policy, evaluate, node_policy, uniform_policy

__all__ = ["MAX_LEAVES", "policy_tree"]

MAX_LEAVES = 36
"""More leaves cannot be read on a page."""

FLAT = 1e-12
"""Advantages smaller than this are drawn as zero."""


def _signed(x: float) -> str:
    return "0" if abs(x) < FLAT else f"{x:+.2g}".replace("-", "−")


def policy_tree(
    model: Any, policy: Sequence[Any] | None = None, *, axes: Axes | None = None
) -> Figure:
    r"""Branches as wide as they are visited, d_t(n) π_t(a|n), coloured by the advantage A^π(n, a).

    Above each branch stand action and visitation, below it the advantage: blue and solid where it
    is positive, vermilion and dashed where it is negative, grey where it is zero.

    Args:
        model: a model or decision graph whose graph is a tree.
        policy: T tables [O_t, A_t] (default: uniform).

    Raises:
        ValueError: more than `MAX_LEAVES` leaves, or a graph that is no tree.
    """
    graph = model if isinstance(model, DecisionGraph) else model.graph(merge="none")
    if graph.leaves > MAX_LEAVES:
        raise ValueError(f"the tree has {graph.leaves} leaves; at most {MAX_LEAVES} can be drawn")
    if not graph.is_tree:
        raise ValueError("policy_tree needs a tree; give the model, or graph(merge='none')")
    tables = uniform_policy(graph) if policy is None else check_policy(graph, policy)
    facts, probs = evaluate(graph, tables), node_policy(graph, tables)
    heights = _heights(graph)
    wide = style.COLUMN if graph.turns < 3 else style.PAGE
    with style.canvas(axes, wide, 0.36 * max(graph.leaves, 3) + 0.9) as ax:
        if graph.contexts > 1:
            _contexts(ax, graph, heights[0])
        for t, layer in enumerate(graph.layers):
            acting, edges = layer.acting(), layer.edges()
            flow = facts.visitation[t][:, None] * probs[t]
            for n, a, target, p in zip(*edges, strict=True):
                if not acting[n]:
                    ax.plot([t, t + 1], [heights[t][n], heights[t + 1][target]], **style.rule())
                    continue
                advantage = float(facts.advantages[t][n, a])
                name = f"a={a + 1}" + (f", P={p:.2g}" if p < 1 else "")
                _branch(
                    ax,
                    (t, heights[t][n]),
                    (t + 1, heights[t + 1][target]),
                    float(flow[n, a] * p),
                    advantage,
                    name,
                )
            ax.scatter(
                [t] * layer.nodes, heights[t], s=26, color="white", edgecolor=style.INK,
                linewidth=0.8, zorder=4,
            )  # fmt: skip
        for y, mean in zip(heights[-1], graph.leaf_means(), strict=True):
            ax.text(graph.turns + 0.04, y, f"{mean:.3g}", va="center", ha="left")
        top = -1.0
        for t in range(graph.turns):
            ax.text(t + 0.5, top, f"turn {t + 1}", ha="center", va="center", color=style.MUTED)
        ax.text(graph.turns + 0.04, top, "r", ha="left", va="center", color=style.MUTED)
        low = -0.85 if graph.contexts > 1 else -0.08
        ax.set(xlim=(low, graph.turns + 0.3), ylim=(graph.leaves - 0.4, -1.4))
        ax.set_axis_off()
        style.describe(
            ax,
            f"J = {facts.value:.4g}. Branch width and the first number: visitation; the number "
            "below: advantage (blue solid positive, vermilion dashed negative). r: mean reward.",
        )
        return ax.get_figure(root=True)  # type: ignore[return-value]


def _heights(graph: DecisionGraph) -> list[np.ndarray]:
    """Height of every node: leaves in the order of their paths, parents above the middle."""
    edges = [layer.edges() for layer in graph.layers]
    order = np.arange(graph.contexts)
    for edge in edges:  # depth first: children follow the order of their parents
        rank = np.argsort(order)
        order = edge.target[np.lexsort((edge.target, rank[edge.source]))]
    below = np.empty(graph.leaves)
    below[order] = np.arange(len(order))
    heights = [below]
    for layer, edge in zip(reversed(graph.layers), reversed(edges), strict=True):
        low, high = np.full(layer.nodes, np.inf), np.full(layer.nodes, -np.inf)
        np.minimum.at(low, edge.source, heights[0][edge.target])
        np.maximum.at(high, edge.source, heights[0][edge.target])
        heights.insert(0, (low + high) / 2)
    return heights


def _contexts(ax: Axes, graph: DecisionGraph, heights: np.ndarray) -> None:
    root = float(heights.mean())
    for c, (y, p) in enumerate(zip(heights, graph.context_probs, strict=True)):
        ax.plot([-0.75, 0], [root, y], color=style.MUTED, linewidth=0.6 + 4 * float(p), zorder=2)
        ax.text(-0.32, (root + y) / 2, f"context {c + 1}\n{p:.2g}", ha="center", va="center",
                fontsize=style.SMALL, bbox=_BOX)  # fmt: skip


_BOX = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}


def _branch(
    ax: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    flow: float,
    advantage: float,
    name: str,
) -> None:
    colour, dash = style.MUTED, "-"  # type: str, Any
    if abs(advantage) >= FLAT:
        colour, dash = (style.RIGHT, "-") if advantage > 0 else (style.WRONG, (0, (3, 1.2)))
    # the branch leaves its node steeply and then runs level, where its text stands
    knee = start[0] + 0.22
    ax.plot(
        [start[0], knee, end[0]],
        [start[1], end[1], end[1]],
        color=colour,
        linestyle=dash,
        linewidth=0.6 + 5 * flow,
        solid_joinstyle="round",
        zorder=2,
    )
    lift = 2.2 + 2.5 * flow
    for text, offset, align, shade in (
        (f"{name}: {flow:.2g}", lift, "bottom", style.INK),
        (_signed(advantage), -lift, "top", colour),
    ):
        ax.annotate(
            text,
            ((knee + end[0]) / 2, end[1]),
            xytext=(0, offset),
            textcoords="offset points",
            ha="center",
            va=align,
            color=shade,
            fontsize=style.SMALL - 0.5,
            zorder=5,
        )
