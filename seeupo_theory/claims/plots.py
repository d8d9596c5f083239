"""Figures of the ledger: one a claim, drawn from the data that its rows carry.

A row's `figure` is plain data (``kind``, ``x``, ``series``, axis labels), so that the same numbers
stand in ``ledger.json`` and in the picture.  The grid of Table 1 is drawn from the verdicts.  The
drawing itself, and its style, is `seeupo_theory.figures`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seeupo_theory import figures
from seeupo_theory.claims.ledger import Row

__all__ = ["claim_figure", "draw_data", "grid_figure", "row_figure", "save_all"]

HEIGHT = 2.4
"""Of the figure of a claim, in inches."""


def draw_data(axes: Axes, figure: dict[str, Any], title: str) -> None:
    """Draw a row's figure data onto given axes.

    Raises:
        ValueError: an unknown kind of figure.
    """
    figures.draw_data(figure, title, axes=axes)


def claim_figure(rows: Iterable[Row]) -> Figure | None:
    """All figure data of a claim side by side; None where no row has any."""
    chosen = [row for row in rows if row.figure is not None]
    if not chosen:
        return None
    size = (figures.COLUMN * len(chosen), HEIGHT)
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    axes = figure.subplots(1, len(chosen), squeeze=False)
    for ax, row in zip(axes[0], chosen, strict=True):
        draw_data(ax, row.figure or {}, f"{row.id}: {row.verdict}")
    return figure


def grid_figure(rows: Iterable[Row]) -> Figure | None:
    """The verdict grid: a row a preset, a column a setting, two marks a cell."""
    cells = [row for row in rows if row.claim == "T1"]
    return figures.verdict_grid(cells) if cells else None


def row_figure(row: Row) -> Figure | None:
    """What a row has to show: its own data, or J along its instance; None where it has neither."""
    if row.figure is not None:
        return figures.draw_data(row.figure)
    instance = row.instance or {}
    values = [float(v) for v in instance.get("values", ())]
    if len(values) < 2:
        return None
    best = row.numbers.get("best_of_class")
    if best is not None:
        last = f"after {row.numbers['iterations']}\niterations"
        return figures.draw_values(
            [values[0], values[-1]],
            ["start", last],
            reference=float(best),
            reference_label="best J within reach",
        )
    many = len(values) > 2
    names = [f"update {k}" if many else "after the\niteration" for k in range(1, len(values))]
    return figures.draw_values(values, ["before", *names])


def save_all(rows: Iterable[Row], folder: Path) -> list[Path]:
    """One PNG a claim, named after it; returns the files written."""
    rows = list(rows)
    folder.mkdir(parents=True, exist_ok=True)
    claims: dict[str, list[Row]] = {}
    for row in rows:
        claims.setdefault(row.claim, []).append(row)
    written = []
    for claim, chosen in claims.items():
        figure = grid_figure(chosen) if claim == "T1" else claim_figure(chosen)
        if figure is not None:
            written.append(figures.save(figure, folder / f"{claim}.png"))
    return written
