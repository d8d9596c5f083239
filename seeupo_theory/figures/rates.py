r"""Rates of convergence: the gap on logarithmic axes with a fitted slope.

A power law :math:`J^* - J_k \approx c\, k^{s}` is a line of slope s where both axes are
logarithmic; exact softmax policy gradient has s = −1 (Mei et al., 2005.06392).  A geometric rate
:math:`c\, e^{s k}` is a line where only the gap's axis is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from seeupo_theory.figures import style
from seeupo_theory.figures._traces import algorithm_of, labelled, look_of
from seeupo_theory.figures.curves import MARKS, QUANTITIES

__all__ = ["GAP_FLOOR", "KINDS", "Rate", "convergence_rate", "fit_rate"]

KINDS = ("power", "exponential")

GAP_FLOOR = 1e-12
"""Gaps below this are rounding of sums of doubles of size one, and are not fitted."""


@dataclass(frozen=True)
class Rate:
    """A least-squares line through log gap.

    Attributes:
        kind: "power" (against log k) or "exponential" (against k).
        slope, intercept: of the line, natural logarithms.
        first, last: iterations it was fitted to, inclusive.
        residual: root mean square of what is left, in natural logarithms.
    """

    kind: str
    slope: float
    intercept: float
    first: int
    last: int
    residual: float

    def at(self, iteration: ArrayLike) -> np.ndarray:
        """Fitted gap."""
        k = np.asarray(iteration, dtype=float)
        return np.exp(self.intercept + self.slope * (np.log(k) if self.kind == "power" else k))


def fit_rate(gap: ArrayLike, *, kind: str = "power", tail: float = 0.5) -> Rate:
    """Fit the last share `tail` of the iterations; gap[k] is the gap after k iterations.

    Raises:
        ValueError: an unknown kind, a tail outside (0, 1], or fewer than three gaps above
            `GAP_FLOOR` in it.

    >>> round(fit_rate([2.0, *(3 / k for k in range(1, 100))]).slope, 9)
    -1.0
    """
    values = np.asarray(gap, dtype=float)
    if values.ndim != 1:
        raise ValueError(f"gap has shape {values.shape}; expected one dimension")
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; expected one of {', '.join(KINDS)}")
    if not 0 < tail <= 1:
        raise ValueError(f"tail is {tail}; expected a share above 0, at most 1")
    above = np.flatnonzero(~(values > GAP_FLOOR))
    end = int(above[0]) if len(above) else len(values)
    start = max(1, round((1 - tail) * end))
    if end - start < 3:
        raise ValueError(
            f"only {max(0, end - start)} gaps above {GAP_FLOOR:g} to fit; expected 3 at least"
        )
    k = np.arange(start, end, dtype=float)
    x, y = (np.log(k) if kind == "power" else k), np.log(values[start:end])
    slope, intercept = np.polyfit(x, y, 1)
    left = y - (intercept + slope * x)
    return Rate(
        kind, float(slope), float(intercept), start, end - 1, float(np.sqrt((left**2).mean()))
    )


def convergence_rate(
    traces: Any, *, kind: str = "power", tail: float = 0.5, axes: Axes | None = None
) -> Figure:
    """The mean gap over seeds against iterations, with the line of `fit_rate` and its slope.

    Args:
        traces: one `Trace`, several, or a mapping from label to trace.

    Raises:
        ValueError: as `fit_rate`; the message names the trace.
    """
    named = labelled(traces)
    names = [algorithm_of(t) for t in named.values()]
    gaps = {label: t.data["gap"].values.mean(axis=0) for label, t in named.items()}
    rates: dict[str, Rate] = {}
    for label, gap in gaps.items():
        try:
            rates[label] = fit_rate(gap, kind=kind, tail=tail)
        except ValueError as error:
            raise ValueError(f"{label}: {error}") from None
    with style.canvas(axes) as ax:
        for i, (label, trace) in enumerate(named.items()):
            look, gap, rate = look_of(label, trace, i, names), gaps[label], rates[label]
            x = np.arange(1, len(gap))
            unit = "" if kind == "power" else " an iteration"
            marks: Any = (0.05 + 0.03 * i, 1 / MARKS)  # shares of the line's length
            ax.plot(
                x,
                np.where(gap[1:] > GAP_FLOOR, gap[1:], np.nan),
                label=f"{label}: slope " + f"{rate.slope:.3g}".replace("-", "−") + unit,
                markevery=marks,
                **look.line(),
            )
            ends = np.array([rate.first, rate.last])
            ax.plot(ends, 1.25 * rate.at(ends), color=style.INK, linewidth=0.8, zorder=3)
        ax.set_yscale("log")
        if kind == "power":
            ax.set_xscale("log")
        ax.set(xlabel="iteration", ylabel=QUANTITIES["gap"])
        style.dress(ax)
        style.legend(ax)
        shown = "; ".join(dict.fromkeys(f"{r.first}–{r.last}" for r in rates.values()))
        axis = "log gap on log iteration" if kind == "power" else "log gap on iteration"
        style.describe(
            ax,
            f"Thin lines, drawn a little above: least squares of {axis} over iterations {shown}.",
        )
        return ax.get_figure(root=True)  # type: ignore[return-value]
