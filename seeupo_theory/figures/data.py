"""The figure data that rows of a ledger carry: plain numbers, drawn with the style."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seeupo_theory.figures import style

__all__ = ["KINDS", "draw_data", "draw_values"]

KINDS = ("lines", "bars")

LABEL = 30
"""Letters on a line of an axis label; longer ones do not fit the height of a column's figure."""

PLACE = (0.19, 0.2, 0.79, 0.72)
"""Of the axes of `draw_values` in their figure: left, bottom, width, height."""

HATCHES = ("", "////", "....", "xxxx")


def draw_data(figure: Mapping[str, Any], title: str = "", *, axes: Axes | None = None) -> Figure:
    """Draw {"kind", "x", "series": {label: y}, "xlabel", "ylabel", "logx"}.

    Raises:
        ValueError: an unknown kind, or a series of another length than x.
    """
    if figure["kind"] not in KINDS:
        raise ValueError(f"figure kind is {figure['kind']!r}; expected 'lines' or 'bars'")
    x = list(figure["x"])
    for label, y in figure["series"].items():
        if len(y) != len(x):
            raise ValueError(f"series {label!r} has {len(y)} numbers; expected {len(x)}, as x")
    many = len(figure["series"]) > 1
    with style.canvas(axes) as ax:
        if figure["kind"] == "lines":
            for i, (label, y) in enumerate(figure["series"].items()):
                ax.plot([float(v) for v in x], y, label=label, **style.look(label, i).line())
            if figure.get("logx"):
                ax.set_xscale("log", base=2)
            ax.set_xticks([float(v) for v in x], [str(v) for v in x], minor=False)
            ax.minorticks_off()
        else:
            _bars(ax, x, figure["series"])
        ax.axhline(0, **style.rule(zorder=0.5))
        ax.set(xlabel=figure["xlabel"], ylabel=figure["ylabel"])
        ax.set_title(title)
        style.dress(ax)
        if many:
            style.legend(ax)
        elif figure["series"]:
            lines = [figure["ylabel"], *textwrap.wrap(next(iter(figure["series"])), LABEL)]
            ax.set_ylabel("\n".join(lines))
        style.plain_text(ax)
        return ax.get_figure(root=True)  # type: ignore[return-value]


def _bars(ax: Axes, x: Sequence[Any], series: Mapping[str, Sequence[float]]) -> None:
    count = max(1, len(series))
    width = 0.72 / count
    for i, (label, y) in enumerate(series.items()):
        at = [k + (i - (count - 1) / 2) * width for k in range(len(x))]
        bars = ax.bar(
            at,
            y,
            width=width * 0.94,
            label=label,
            color=style.CYCLE[i % len(style.CYCLE)].colour,
            hatch=HATCHES[i % len(HATCHES)],
            edgecolor="white",
        )
        ax.bar_label(bars, labels=[f"{v:.3g}" for v in y], padding=2, fontsize=style.SMALL)
    ax.set_xticks(range(len(x)), [_broken(str(v)) for v in x])
    for text in ax.get_xticklabels():
        text.set_parse_math(False)
    ax.margins(y=0.12)


def _broken(name: str) -> str:
    """A long name on two lines."""
    return name.replace("-", "-\n", 1) if len(name) > 9 else name


def draw_values(
    values: Sequence[float],
    labels: Sequence[str],
    *,
    reference: float | None = None,
    reference_label: str = "",
    title: str = "",
    axes: Axes | None = None,
) -> Figure:
    """J at some moments, one after the other; falls are marked.

    Raises:
        ValueError: not one label a value.
    """
    if len(values) != len(labels):
        raise ValueError(f"there are {len(values)} values and {len(labels)} labels")
    with style.canvas(axes, style.COLUMN, 2.0) as ax:
        x = list(range(len(values)))
        ax.plot(x, values, **style.look("seeupo").line())
        for k in x[1:]:
            if values[k] < values[k - 1]:
                ax.plot([k - 1, k], values[k - 1 : k + 1], color=style.WRONG, linewidth=2)
                ax.plot(k, values[k], "v", color=style.WRONG, markersize=7)
        if reference is not None:
            ax.axhline(reference, label=reference_label, **style.rule(linestyle=(0, (4, 2))))
            style.legend(ax)
        for k, value in zip(x, values, strict=True):
            below = k > 0 and value < values[k - 1]
            ax.annotate(
                f"{value:.4g}".replace("-", "−"),
                (k, value),
                xytext=(0, -7 if below else 6),
                textcoords="offset points",
                ha="center",
                va="top" if below else "bottom",
            )
        ax.set_xticks(x, labels)
        ax.set(ylabel="expected return J", xlim=(-0.35, len(values) - 0.65))
        ax.set_title(title)
        ax.margins(y=0.22)
        style.dress(ax)
        style.plain_text(ax)
        figure = ax.get_figure(root=True)
        if axes is None:  # nothing varies in size here: a fixed place takes half the time
            figure.set_layout_engine("none")  # type: ignore[union-attr]
            ax.set_position(PLACE)
        return figure  # type: ignore[return-value]
