"""Figures of the ledger: one a claim, drawn from the data that its rows carry.

A row's `figure` is plain data (``kind``, ``x``, ``series``, axis labels), so that the same numbers
stand in ``ledger.json`` and in the picture.  The grid of Table 1 is drawn from the verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from seeupo_theory.claims.ledger import Row
from seeupo_theory.claims.markdown import COLUMNS, SIGNS, grid

__all__ = ["claim_figure", "draw_data", "grid_figure", "save_all"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's palette: distinct to colour-blind readers."""

VERDICT_COLOURS = {"holds": "#56b4e9", "refuted": "#d55e00", "inconclusive": "#dddddd"}

MARKERS = "os^Dv<"


def draw_data(axes: Axes, figure: dict[str, Any], title: str) -> None:
    """Draw a row's figure data onto given axes.

    Raises:
        ValueError: an unknown kind of figure.
    """
    if figure["kind"] not in ("lines", "bars"):
        raise ValueError(f"figure kind is {figure['kind']!r}; expected 'lines' or 'bars'")
    count = len(figure["series"])
    for i, (label, y) in enumerate(figure["series"].items()):
        colour = COLOURS[i % len(COLOURS)]
        if figure["kind"] == "lines":
            style = "--" if i else "-"
            x = [float(v) for v in figure["x"]]
            axes.plot(x, y, style, marker=MARKERS[i % 6], color=colour, label=label)
        else:
            width = 0.8 / count
            at = [k + (i - (count - 1) / 2) * width for k in range(len(figure["x"]))]
            axes.bar(at, y, width=width, color=colour, label=label)
    if figure["kind"] == "bars":
        axes.set_xticks(range(len(figure["x"])), [str(v) for v in figure["x"]])
    if figure.get("logx"):
        axes.set_xscale("log", base=2)
    axes.axhline(0, color="0.6", linewidth=0.6, zorder=0)
    axes.set(xlabel=figure["xlabel"], ylabel=figure["ylabel"])
    axes.set_title(title, fontsize=9)
    axes.legend(fontsize=7, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def claim_figure(rows: Iterable[Row]) -> Figure | None:
    """All figure data of a claim side by side; None where no row has any."""
    chosen = [row for row in rows if row.figure is not None]
    if not chosen:
        return None
    figure = Figure(figsize=(4.2 * len(chosen), 3.2), layout="constrained")
    axes = figure.subplots(1, len(chosen), squeeze=False)
    for ax, row in zip(axes[0], chosen, strict=True):
        draw_data(ax, row.figure or {}, f"{row.id}: {row.verdict}")
    return figure


def grid_figure(rows: Iterable[Row]) -> Figure | None:
    """The verdict grid: a row a preset, a column a setting, two marks a cell."""
    table = grid(rows)
    if not table:
        return None
    size = (0.62 * len(COLUMNS) + 2.6, 0.42 * len(table) + 2.2)
    figure = Figure(figsize=size, layout="constrained")
    ax = figure.subplots()
    for y, cells in enumerate(table.values()):
        for x, column in enumerate(COLUMNS):
            for k, question in enumerate(("monotone", "global")):
                row = cells.get(column, {}).get(question)
                if row is None:
                    continue
                ax.add_patch(
                    Rectangle(
                        (x + k / 2, y),
                        0.5,
                        1,
                        facecolor=VERDICT_COLOURS[row.verdict],
                        edgecolor="white",
                    )
                )
                ax.text(
                    x + k / 2 + 0.25,
                    y + 0.5,
                    SIGNS[row.verdict],
                    ha="center",
                    va="center",
                    fontsize=8,
                )
    labels = []
    for preset, cells in table.items():
        marks = []
        for turns in ("ST", "MT"):
            found = [r for c, q in cells.items() if c[0] == turns for r in q.values()]
            marks.append(f"{turns} {found[0].paper if found else '·'}")
        labels.append(f"{preset}  (paper: {', '.join(marks)})")
    ax.set_yticks([y + 0.5 for y in range(len(table))], labels, fontsize=8)
    names = ["\n".join((c[1][:3], "G=∞" if c[2] == "exact" else "G=2", c[3][:3])) for c in COLUMNS]
    ax.set_xticks([x + 0.5 for x in range(len(COLUMNS))], names, fontsize=7)
    half = len(COLUMNS) / 2
    for at, text in ((half / 2, "single turn"), (1.5 * half, "multi-turn")):
        ax.text(at, -0.25, text, ha="center", va="bottom", fontsize=9)
    ax.axvline(half, color="black", linewidth=1)
    ax.set(xlim=(0, len(COLUMNS)), ylim=(len(table), -0.9))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_xlabel(
        "left half of a cell: monotone improvement, right half: global convergence\n"
        "ind, sha: independent tables, shared weights; det, ran: deterministic, random reward",
        fontsize=8,
    )
    return figure


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
        if figure is None:
            continue
        path = folder / f"{claim}.png"
        figure.savefig(path, dpi=160, metadata={"Software": None})
        written.append(path)
    return written
