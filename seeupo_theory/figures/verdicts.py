"""The verdict grid: Table 1 of the paper, cell by cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle

from seeupo_theory.figures import style

__all__ = ["QUESTIONS", "SIGNS", "VERDICT_COLOURS", "table", "verdict_grid"]

SIGNS = {"holds": "✓", "refuted": "✗", "inconclusive": "?"}

VERDICT_COLOURS = {"holds": "#8fc7ea", "refuted": "#e8793a", "inconclusive": "#e4e6ea"}
"""Light blue, vermilion and pale grey; 0.73, 0.58 and 0.90 of white in greyscale."""

QUESTIONS = ("monotone", "global")

LEVELS = (
    (("ST", "single turn"), ("MT", "multi-turn")),
    (("independent", "independent tables"), ("shared", "shared weights")),
    (("exact", "G = ∞"), ("finite", "G < ∞")),
    (("deterministic", "det"), ("random", "rnd")),
)
"""What the columns differ in, outermost first: (word in a cell's id, heading)."""

Cells = dict[str, dict[tuple[str, ...], dict[str, Any]]]


def _field(row: Any, name: str) -> Any:
    return row.get(name) if isinstance(row, Mapping) else getattr(row, name)


def table(ledger: Any) -> Cells:
    """Rows of Table 1 by preset, then setting, then question.

    Args:
        ledger: a `Ledger`, the content of ledger.json, or rows of either.
    """
    rows: Iterable[Any] = (
        ledger["rows"] if isinstance(ledger, Mapping) else getattr(ledger, "rows", ledger)
    )
    out: Cells = {}
    for row in rows:
        if _field(row, "claim") == "T1":
            _, preset, *setting, question = _field(row, "id").split(".")
            out.setdefault(preset, {}).setdefault(tuple(setting), {})[question] = row
    return out


def _columns() -> list[tuple[str, ...]]:
    columns: list[tuple[str, ...]] = [()]
    for level in LEVELS:
        columns = [(*c, word) for c in columns for word, _ in level]
    return columns


def _at(column: float) -> float:
    """Left edge of a column: gaps between settings, wider ones between ST and MT."""
    return column + 0.12 * (column // 4) + 0.25 * (column // 8)


def _heads(ax: Axes, count: int) -> None:
    """Nested headings above the columns, and lines between the groups."""
    top = -0.15
    for depth, level in reversed(list(enumerate(LEVELS))):
        groups = 2 ** (depth + 1)
        span = count / groups
        for g in range(groups):
            left, right = _at(g * span), _at((g + 1) * span - 1) + 1
            ax.text(
                (left + right) / 2,
                top,
                level[g % 2][1],
                ha="center",
                va="bottom",
                fontsize=style.SMALL if depth < 3 else style.SMALL - 1,
                fontweight="bold" if depth == 0 else "normal",
                color=style.INK if depth < 3 else style.MUTED,
            )
            if depth < 3:
                ax.plot([left + 0.05, right - 0.05], [top + 0.04] * 2, **style.rule())
        top -= 0.62


def verdict_grid(ledger: Any, *, axes: Axes | None = None) -> Figure:
    """A row an algorithm, a column a setting, two marks a cell; the paper's marks on the left.

    Args:
        ledger: a `Ledger`, the content of ledger.json, or rows of either.

    Raises:
        ValueError: no row belongs to Table 1.
    """
    cells = table(ledger)
    if not cells:
        raise ValueError("the ledger has no rows of Table 1 (claim 'T1'); nothing to draw")
    columns = _columns()
    with style.canvas(axes, style.PAGE, 0.27 * len(cells) + 1.5) as ax:
        for y, settings in enumerate(cells.values()):
            for x, column in enumerate(columns):
                for k, question in enumerate(QUESTIONS):
                    row = settings.get(column, {}).get(question)
                    if row is not None:
                        _mark(ax, _at(x) + k / 2, y, row)
        _heads(ax, len(columns))
        for at, heading in ((-1.15, "ST"), (-0.45, "MT")):
            ax.text(at, -0.15, heading, ha="center", va="bottom", fontsize=style.SMALL - 1)
        ax.text(-0.8, -0.77, "paper", ha="center", va="bottom", fontsize=style.SMALL)
        for y, (preset, settings) in enumerate(cells.items()):
            for at, turns in ((-1.15, "ST"), (-0.45, "MT")):
                found = [r for c, q in settings.items() if c[0] == turns for r in q.values()]
                sign = str(_field(found[0], "paper")) if found else "·"
                ax.text(at, y + 0.5, sign, ha="center", va="center", fontsize=style.SIZE)
            ax.text(-1.65, y + 0.5, preset, ha="right", va="center", fontsize=style.SIZE)
        ax.set(
            xlim=(-4.6, _at(len(columns) - 1) + 1),
            ylim=(len(cells) + 0.1, -2.8),
            xticks=[],
            yticks=[],
        )
        ax.spines[:].set_visible(False)
        style.plain_text(ax)
        style.describe(
            ax,
            "Two marks a cell: monotone improvement, then global convergence (✓ holds, ✗ refuted, "
            "? inconclusive); a dark corner where this differs from the paper's mark. det, rnd: "
            "deterministic, random reward.",
        )
        return ax.get_figure(root=True)  # type: ignore[return-value]


def _mark(ax: Axes, x: float, y: float, row: Any) -> None:
    verdict = _field(row, "verdict")
    face = VERDICT_COLOURS[verdict]
    ax.add_patch(Rectangle((x, y), 0.5, 1, facecolor=face, edgecolor="white", linewidth=0.7))
    if _field(row, "differs"):
        corner = [(x + 0.5, y), (x + 0.5, y + 0.28), (x + 0.28, y)]
        ax.add_patch(Polygon(corner, facecolor=style.INK, edgecolor="none"))
    ax.text(x + 0.25, y + 0.52, SIGNS[verdict], ha="center", va="center", fontsize=style.SMALL)
