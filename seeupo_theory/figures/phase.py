"""Phase portraits: the exact expected update as a vector field, and the paths that follow it.

* `phase_line`: one row of two actions; the update against the probability.
* `phase_plane`: two rows of two actions (two turns, or two contexts).
* `simplex`: one row of three actions.

Arrows are blue where the update raises J and vermilion, with a wider head, where it lowers J.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from seeupo_theory.figures import style
from seeupo_theory.figures.fields import Field, Updater
from seeupo_theory.rules import presets
from seeupo_theory.rules.presets import Algorithm

__all__ = ["CORNERS", "phase_line", "phase_plane", "simplex"]

CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(3) / 2]])
"""Where the simplex has its three actions."""

MARGIN = 0.02
"""Smallest probability of a grid point: at the boundary a softmax policy cannot move."""

ARROW = 1.1
"""Longest arrow, in grid spacings."""


def _rows(updater: Updater, wanted: Sequence[int], name: str) -> None:
    shape = [(layer.actions,) for layer in updater.graph.layers for _ in range(layer.observations)]
    have = [a for (a,) in shape]
    if have != list(wanted):
        raise ValueError(
            f"{name} needs a policy of {len(wanted)} row(s) with {wanted[0]} actions each; "
            f"this model has rows of {', '.join(map(str, have))} actions"
        )


def _tables(updater: Updater, rows: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Policies [points, rows, A] as T tables."""
    counts = [layer.observations for layer in updater.graph.layers]
    return np.split(rows, np.cumsum(counts)[:-1], axis=1)


def _flat(tables: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """T tables [..., O_t, A] as one of all rows [..., rows, A]."""
    return np.concatenate(list(tables), axis=-2)


def _algorithms(given: Any) -> list[Algorithm]:
    several = [given] if isinstance(given, (str, Algorithm)) else list(given)
    return [presets.get(a) for a in several]


def phase_line(
    model: Any,
    algorithms: Any,
    *,
    points: int = 101,
    start: float | None = None,
    iterations: int = 30,
    axes: Axes | None = None,
    **options: Any,
) -> Figure:
    """The exact update of the second action's probability against that probability.

    Args:
        model: one turn, one context, two actions.
        algorithms: one preset or several; `options` go to all (see `fields.update_field`).
        points: of the grid.
        start: draw the steps that follow from this probability, as dots on each curve.
        iterations: how many of them.

    Raises:
        ValueError: the policy has another shape, or the expectation is not exact.
    """
    rules = _algorithms(algorithms)
    p = np.linspace(0, 1, points + 2)[1:-1]
    worse = 0
    with style.canvas(axes, style.COLUMN, 2.9) as ax:
        for i, rule in enumerate(rules):
            updater = Updater(model, rule, **options)
            _rows(updater, (2,), "phase_line")
            grid = np.stack([1 - p, p], axis=-1)[:, None]
            field = updater([grid])
            move = _flat(field.after)[:, 0, 1] - p
            look = style.look(rule.name, i)
            every = (i * 3, max(1, points // 8))
            ax.plot(p, move, label=rule.name, markevery=every, **look.line())
            if field.falls.any():
                worse += 1
                ax.fill_between(
                    p,
                    move,
                    0,
                    where=field.falls,
                    facecolor="none",
                    edgecolor=style.WRONG,
                    hatch="////",
                    linewidth=0,
                    label=None if worse > 1 else "lowers J",
                )
            if start is not None:
                first = np.array([[[1 - start, start]]])
                path = _flat(updater.path([first], iterations, points))[:, 0, 0, 1]
                ax.plot(
                    path[:-1], np.diff(path), "o", color=style.INK, markersize=2.2, zorder=4,
                    label=f"{iterations} steps from {start:g}" if i == 0 else None,
                )  # fmt: skip
        ax.axhline(0, **style.rule(color=style.INK))
        ax.set(
            xlabel="probability of action 2",
            ylabel="its change in one iteration",
            xlim=(0, 1),
        )
        style.dress(ax)
        style.legend(ax, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        text = "Exact expected update; above zero action 2 gains."
        if worse:
            text += " Hatched: the update lowers J."
        style.describe(ax, text)
        return ax.get_figure(root=True)  # type: ignore[return-value]


def _arrows(
    ax: Axes, at: NDArray[np.float64], move: NDArray[np.float64], field: Field, spacing: float
) -> None:
    """One arrow a point; lengths grow with the square root of the step, so that small ones show."""
    size = np.hypot(move[:, 0], move[:, 1])
    most = float(size.max()) or 1.0
    scaled = np.where(size > 0, np.sqrt(size / most) / np.where(size > 0, size, 1.0), 0.0)
    shown = move * (scaled * ARROW * spacing)[:, None]
    for wrong, colour, head in ((False, style.RIGHT, 4.0), (True, style.WRONG, 6.0)):
        chosen = (field.falls == wrong) & (size > 0)
        if chosen.any():
            ax.quiver(
                at[chosen, 0], at[chosen, 1], shown[chosen, 0], shown[chosen, 1],
                color=colour, angles="xy", scale_units="xy", scale=1, pivot="middle",
                width=0.0055, headwidth=head, headlength=head, headaxislength=head - 0.5, zorder=3,
            )  # fmt: skip


def _paths(ax: Axes, paths: NDArray[np.float64], count: int) -> None:
    """Paths [steps, starts, 2]: a line each, a ring at its start, a square at its end."""
    for k in range(count):
        ax.plot(paths[:, k, 0], paths[:, k, 1], color=style.INK, linewidth=1.1, zorder=4)
        ax.plot(*paths[0, k], "o", color="white", markeredgecolor=style.INK, markersize=4, zorder=5)
        ax.plot(*paths[-1, k], "s", color=style.INK, markersize=3.6, zorder=5)


def _words(updater: Updater, field: Field, iterations: int, starts: int) -> str:
    text = (
        f"{updater.algorithm.name}: arrows show one exact expected iteration, longer where it moves "
        "further (square root); blue raises J, vermilion lowers it"
    )
    if field.falls.any():
        text += f" ({100 * float(field.falls.mean()):.0f} % of the arrows)"
    if starts:
        text += f". Black: {iterations} iterations from the rings to the squares"
    return text + "."


def simplex(
    model: Any,
    algorithm: str | Algorithm,
    *,
    starts: ArrayLike = ((1 / 3, 1 / 3, 1 / 3),),
    iterations: int = 60,
    density: int = 14,
    labels: Sequence[str] | None = None,
    title: str | None = None,
    axes: Axes | None = None,
    **options: Any,
) -> Figure:
    """The policy simplex of three actions: update field, and paths from some policies.

    Args:
        model: one turn, one context, three actions.
        algorithm: a preset or an `Algorithm`; `options` as in `fields.update_field`.
        starts: policies [starts, 3]; may be empty.
        iterations: of the paths.
        density: grid points along an edge.
        labels: of the corners (default: action and its mean reward).

    Raises:
        ValueError: the policy has another shape, or the expectation is not exact.
    """
    updater = Updater(model, algorithm, **options)
    _rows(updater, (3,), "simplex")
    index = np.array(
        [(i, j, density - i - j) for i in range(density + 1) for j in range(density + 1 - i)]
    )
    grid = (1 - 3 * MARGIN) * index / density + MARGIN
    field = updater([grid[:, None]])
    move = (_flat(field.after)[:, 0] - grid) @ CORNERS
    first = np.asarray(starts, dtype=float).reshape(-1, 3)
    means = updater.graph.leaf_means()
    names = labels or [f"action {a + 1}\nmean {m:.3g}" for a, m in enumerate(means)]
    with style.canvas(axes, style.COLUMN, 3.5) as ax:
        ax.fill(*CORNERS.T, facecolor="none", edgecolor=style.INK, linewidth=0.8, zorder=2)
        _arrows(ax, grid @ CORNERS, move, field, 1 / density)
        if len(first):
            path = _flat(updater.path([first[:, None]], iterations, len(grid)))[:, :, 0]
            _paths(ax, path @ CORNERS, len(first))
        best = int(np.argmax(means))
        for a, (name, corner) in enumerate(zip(names, CORNERS, strict=True)):
            top = a == 2
            ax.annotate(
                name + (" (best)" if a == best else ""),
                corner,
                xytext=(0, 5 if top else -6),
                textcoords="offset points",
                ha="center",
                va="bottom" if top else "top",
                fontweight="bold" if a == best else "normal",
            )
        ax.set(xlim=(-0.08, 1.08), ylim=(-0.03, 0.9), aspect="equal")
        ax.set_axis_off()
        ax.set_title(updater.algorithm.name if title is None else title)
        style.plain_text(ax)
        style.describe(ax, _words(updater, field, iterations, len(first)))
        return ax.get_figure(root=True)  # type: ignore[return-value]


def phase_plane(
    model: Any,
    algorithm: str | Algorithm,
    *,
    starts: ArrayLike = ((0.5, 0.45),),
    iterations: int = 60,
    density: int = 13,
    labels: Sequence[str] = ("first row: probability of action 2", "second row: of action 2"),
    title: str | None = None,
    axes: Axes | None = None,
    **options: Any,
) -> Figure:
    """A policy of two rows with two actions: update field in the plane of their probabilities.

    Args:
        model: two turns of which neither sees the other, or one turn with two contexts.
        algorithm: a preset or an `Algorithm`; `options` as in `fields.update_field`.
        starts: probabilities of action 2 in the two rows, [starts, 2]; may be empty.

    Raises:
        ValueError: the policy has another shape, or the expectation is not exact.
    """
    updater = Updater(model, algorithm, **options)
    _rows(updater, (2, 2), "phase_plane")
    side = np.linspace(MARGIN, 1 - MARGIN, density)
    at = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    field = updater(_tables(updater, np.stack([1 - at, at], axis=-1)))
    move = _flat(field.after)[..., 1] - at
    first = np.asarray(starts, dtype=float).reshape(-1, 2)
    with style.canvas(axes, style.COLUMN, 3.4) as ax:
        _arrows(ax, at, move, field, 1 / density)
        if len(first):
            begin = _tables(updater, np.stack([1 - first, first], axis=-1))
            path = _flat(updater.path(begin, iterations, len(at)))[..., 1]
            _paths(ax, path, len(first))
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
        ax.set(xlabel=labels[0], ylabel=labels[1])
        ax.set_title(updater.algorithm.name if title is None else title)
        style.dress(ax, grid=None)
        style.plain_text(ax)
        style.describe(ax, _words(updater, field, iterations, len(first)))
        return ax.get_figure(root=True)  # type: ignore[return-value]
