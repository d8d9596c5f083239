"""The one style of all figures: sizes, type, colours, files.

* Sizes are those of a two-column paper: `COLUMN` and `PAGE` wide, type of 7 to 8 points.
* Colours are Okabe and Ito's and Tol's, distinct to colour-blind readers; every algorithm has its
  own fixed `Look` of colour, dash and marker, so that greyscale print tells lines apart too.
* Files carry no time stamps, and type is embedded: TrueType in PDF, outlines in SVG.

Settings are applied in a context and explicitly on the axes; Matplotlib's global state is the same
before and after.
"""

from __future__ import annotations

import io
import os
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

__all__ = [
    "COLUMN",
    "CYCLE",
    "FORMATS",
    "GRID",
    "INK",
    "LOOKS",
    "MUTED",
    "PAGE",
    "RIGHT",
    "WRONG",
    "Look",
    "canvas",
    "caption",
    "describe",
    "dress",
    "legend",
    "look",
    "plain_text",
    "rule",
    "save",
    "svg",
    "use",
]

COLUMN, PAGE = 3.4, 7.0
"""Width of one column and of a page of a two-column paper, in inches."""

SIZE, SMALL = 8.0, 7.0
"""Points of axis labels, and of everything else."""

INK, MUTED, GRID = "#1f2328", "#59606b", "#d8dce2"
"""Text and axes, remarks, grid lines."""

RIGHT, WRONG = "#0072b2", "#d55e00"
"""What improves, and what goes the wrong way."""

FORMATS = ("png", "pdf", "svg")

DPI = 220
"""Of PNG files: a column is 748 pixels wide."""

STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": SMALL,
    "text.color": INK,
    "mathtext.fontset": "dejavusans",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.labelsize": SIZE,
    "axes.titlesize": SIZE,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.6,
    "axes.unicode_minus": True,
    "figure.facecolor": "white",
    "axes.facecolor": "none",
    "hatch.linewidth": 0.5,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.0,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "seeupo",
    "xtick.color": INK,
    "xtick.labelsize": SMALL,
    "ytick.color": INK,
    "ytick.labelsize": SMALL,
}


@dataclass(frozen=True)
class Look:
    """How one line is told from others: by colour, and without it by dash and marker."""

    colour: str
    dash: Any = "-"
    marker: str = "o"

    def line(self) -> dict[str, Any]:
        """Arguments of `Axes.plot`."""
        return {
            "color": self.colour,
            "linestyle": self.dash,
            "marker": self.marker,
            "markeredgecolor": "white",
            "markeredgewidth": 0.4,
        }


_DOTS, _LONG = (0, (1, 1.3)), (0, (6, 1.5, 1, 1.5, 1, 1.5))

LOOKS: dict[str, Look] = {
    "seeupo": Look("#0072b2", "-", "o"),
    "seeupo-official": Look("#0072b2", "--", "s"),
    "seeupo-loo": Look("#0072b2", _DOTS, "^"),
    "seeupo-no-factor": Look("#0072b2", "-.", "v"),
    "seeupo-resample": Look("#0072b2", _LONG, "D"),
    "grpo": Look("#d55e00", "-", "s"),
    "dr-grpo": Look("#e69f00", "--", "D"),
    "reinforce++": Look("#cc79a7", "-.", "v"),
    "rloo": Look("#009e73", "-", "^"),
    "reinforce-grae": Look("#009e73", "--", "<"),
    "reinforce": Look("#009e73", _DOTS, ">"),
    "gspo": Look("#7f3b08", "--", "P"),
    "ppo": Look("#4d4d4d", "-", "X"),
    "ppo-grae": Look("#56b4e9", "-.", "h"),
    "trajectory-ppo": Look("#332288", "-", "*"),
    "haml": Look("#999933", "-", "d"),
    "haml-greedy": Look("#999933", "--", "p"),
    "haml-kl": Look("#999933", _DOTS, "H"),
    "happo": Look("#44aa99", "--", "8"),
    "dynamic-pg": Look("#882255", "-.", ">"),
    # orders of update, for ablations that differ in nothing else
    "reverse": Look("#0072b2", "-", "o"),
    "forward": Look("#e69f00", "--", "D"),
    "random": Look("#cc79a7", "-.", "v"),
    "simultaneous": Look("#4d4d4d", _DOTS, "X"),
}
"""Fixed looks of the presets and of the orders."""

CYCLE = (
    Look("#0072b2", "-", "o"),
    Look("#d55e00", "--", "s"),
    Look("#009e73", "-.", "^"),
    Look("#cc79a7", _DOTS, "D"),
    Look("#e69f00", _LONG, "v"),
    Look("#56b4e9", "-", "<"),
)
"""Looks of whatever has no fixed one, in order of appearance."""

_captions: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def look(name: str, index: int = 0) -> Look:
    """The fixed look of an algorithm or order; `index` picks from `CYCLE` for other names.

    >>> look("grpo").colour
    '#d55e00'
    """
    return LOOKS.get(name, CYCLE[index % len(CYCLE)])


def rule(**changes: Any) -> dict[str, Any]:
    """Arguments of a thin reference line."""
    return {"color": MUTED, "linewidth": 0.7, "zorder": 1, **changes}


def use() -> Any:
    """A context in which new artists have the style."""
    return rc_context(STYLE)


@contextmanager
def canvas(
    axes: Axes | None, width: float = COLUMN, height: float = 2.4, **options: Any
) -> Iterator[Axes]:
    """The given axes, or the only axes of a new figure, in the style.

    A figure made here gets the caption given to `describe` as a note below the axes.
    """
    with use():
        if axes is not None:
            yield axes
            return
        figure = Figure(figsize=(width, height), layout="constrained")
        made = figure.subplots(**options)
        yield made
        footnote(figure, caption(made))


def footnote(figure: Figure, text: str) -> None:
    """Write a caption below the axes, wrapped to the figure's width."""
    if not text:
        return
    _captions[figure] = text
    wide = 0.53 * SMALL / 72  # mean width of a letter of DejaVu Sans, in inches
    lines = textwrap.wrap(text, max(20, int((figure.get_figwidth() - 0.1) / wide)))
    with use():
        note = figure.supxlabel(
            "\n".join(lines), x=0.01, ha="left", fontsize=SMALL, color=MUTED, linespacing=1.25
        )
    note.set_parse_math(False)


def describe(axes: Axes, text: str) -> None:
    """Set the caption of what was drawn on these axes."""
    _captions[axes] = text


def caption(drawn: Figure | Axes) -> str:
    """What bands, shading and marks of a figure (or of axes) mean, for the caption of a paper."""
    if drawn in _captions:
        return _captions[drawn]
    inside = drawn.axes if isinstance(drawn, Figure) else []
    parts = [_captions[ax] for ax in inside if ax in _captions]
    return " ".join(dict.fromkeys(parts))


def dress(axes: Axes, *, grid: str | None = "y") -> None:
    """Spines, ticks and grid of the style, set explicitly so that they hold outside `use`."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color=INK, linewidth=0.6)
    axes.tick_params(which="both", labelsize=SMALL, colors=INK, width=0.6, labelcolor=INK)
    axes.tick_params(which="major", length=3)
    axes.tick_params(which="minor", length=1.5)
    if grid is not None:
        axes.grid(True, axis=grid, color=GRID, linewidth=0.5)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    for text in (axes.xaxis.label, axes.yaxis.label):
        text.set(fontsize=SIZE, color=INK)
    for where in ("left", "center", "right"):
        words = axes.get_title(loc=where)
        if words:
            axes.set_title(words, loc=where, fontsize=SIZE, color=INK)


def legend(axes: Axes, **options: Any) -> None:
    """A legend without a frame, left out where nothing has a label."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(**{"handlelength": 2.6, "borderaxespad": 0.3, "labelspacing": 0.3, **options})
        plain_text(axes)


def plain_text(axes: Axes) -> None:
    """Show labels as they are written: a "$" is no formula."""
    shown = axes.get_legend()
    texts = [t for t in axes.get_children() if isinstance(t, Text)]
    texts += [axes.xaxis.label, axes.yaxis.label]
    texts += [] if shown is None else shown.get_texts()
    for text in texts:
        text.set_parse_math(False)


_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
}
_CAPTION_KEY = {"png": "Description", "pdf": "Subject", "svg": "Description"}


def save(figure: Figure, path: str | Path, **rc: Any) -> Path:
    """Write a figure; the format is the name's ending, the caption goes into the file's metadata.

    Two runs write the same bytes.  The file is written whole or not at all.

    Raises:
        ValueError: the ending is not one of `FORMATS`.
        OSError: the folder does not exist or cannot be written.
    """
    target = Path(path)
    kind = target.suffix.lstrip(".").lower()
    if kind not in FORMATS:
        raise ValueError(f"{target.name} ends in {target.suffix!r}; expected .png, .pdf or .svg")
    metadata = dict(_METADATA[kind])
    if caption(figure):
        metadata[_CAPTION_KEY[kind]] = caption(figure)
    partial = target.with_name(f".{target.name}.{os.getpid()}.{kind}")
    try:
        settings: Any = {**STYLE, **rc}
        with rc_context(settings):
            figure.savefig(partial, format=kind, dpi=DPI, metadata=metadata)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return target


_THEME = f"""<style>
svg {{ --ink: {INK}; --muted: {MUTED}; --grid: {GRID}; }}
@media screen and (prefers-color-scheme: dark) {{
  svg {{ --ink: #e6e8ec; --muted: #a4abb6; --grid: #3a4049; }}
}}
</style>"""


def svg(figure: Figure) -> str:
    """SVG for a web page: text stays text, no background, axes follow the light or dark theme.

    The result is deterministic, like the files of `save`.
    """
    buffer = io.BytesIO()
    settings: Any = {**STYLE, "svg.fonttype": "none"}
    with rc_context(settings):
        figure.savefig(
            buffer, format="svg", facecolor="none", transparent=True, metadata=_METADATA["svg"]
        )
    text = buffer.getvalue().decode("utf-8")
    text = text[text.index("<svg") :]
    for name, colour in (("ink", INK), ("muted", MUTED), ("grid", GRID)):
        text = text.replace(f": {colour}", f": var(--{name})")
    head = text.index(">") + 1
    return f"{text[:head]}{_THEME}{text[head:]}"
