"""Figures: what the toolkit knows, drawn for a notebook, a paper or the report.

Every kind is a function that takes a trace, a ledger or a model, returns a Matplotlib `Figure`, and
draws onto a given `axes=` instead where one wants panels of one's own:

===================== =====================================================================
`learning_curves`     J, gap or entropy against iterations, with bands over seeds
`staircase`           J after every single turn's update
`convergence_rate`    the gap on logarithmic axes, with a fitted slope
`verdict_grid`        Table 1 of the paper, cell by cell
`margin_map`          a violation margin over two parameters (`sign_margin` computes one)
`phase_line`          two actions: the exact expected update against the probability
`phase_plane`         two rows of two actions: vector field and paths
`simplex`             three actions: vector field and paths
`policy_tree`         a small problem with visitation and advantages on its branches
`draw_data`           the figure data that a ledger's row carries
===================== =====================================================================

No `pyplot`, no change of global settings.  `save` writes files that are equal byte for byte from
run to run; `FIGURES` holds a ready example of each kind (`seeupo figure NAME`).  What a band or a
shaded region means is said in the figure's own caption (`caption`).
"""

from importlib import import_module
from typing import Any

_HOME = {
    "Look": "style",
    "look": "style",
    "save": "style",
    "svg": "style",
    "caption": "style",
    "COLUMN": "style",
    "PAGE": "style",
    "Band": "bands",
    "interval": "bands",
    "learning_curves": "curves",
    "staircase": "curves",
    "convergence_rate": "rates",
    "Rate": "rates",
    "fit_rate": "rates",
    "verdict_grid": "verdicts",
    "margin_map": "margins",
    "sign_margin": "margins",
    "Field": "fields",
    "update_field": "fields",
    "phase_line": "phase",
    "phase_plane": "phase",
    "simplex": "phase",
    "policy_tree": "tree",
    "draw_data": "data",
    "draw_values": "data",
    "FIGURES": "examples",
    "example": "examples",
    "write": "examples",
}

FORMATS = ("png", "pdf", "svg")

__all__ = ["FORMATS", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}; it has {sorted(_HOME)}"
        )
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
