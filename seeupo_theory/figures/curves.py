"""Learning curves, and the staircase of J inside an iteration."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seeupo_theory.figures import style
from seeupo_theory.figures._traces import algorithm_of, labelled, look_of
from seeupo_theory.figures.bands import interval

__all__ = ["QUANTITIES", "learning_curves", "staircase"]

QUANTITIES = {
    "value": "expected return J",
    "gap": "gap to the optimum J* − J",
    "entropy": "entropy of a trajectory (nats)",
}

MARKS = 8
"""Markers on a curve."""

DROP_SHARE = 1e-12
"""A fall of J smaller than this, relative to the largest |J| drawn, is rounding."""


def learning_curves(
    traces: Any,
    *,
    quantity: str = "value",
    band: str = "t",
    level: float = 0.95,
    optimum: bool = True,
    axes: Axes | None = None,
) -> Figure:
    """J (or gap, or entropy) before the first and after every iteration, averaged over seeds.

    Args:
        traces: one `Trace`, several, or a mapping from label to trace.
        quantity: one of `QUANTITIES`; the gap is drawn on a logarithmic axis.
        band, level: interval around the mean (see `bands.interval`); none for a single seed.
        optimum: a line at J*, where it is the same for all traces.

    Raises:
        ValueError: an unknown quantity or band; no trace, or two of one label.
    """
    named = labelled(traces)
    if quantity not in QUANTITIES:
        raise ValueError(f"quantity is {quantity!r}; expected one of {', '.join(QUANTITIES)}")
    runs = [interval(t.data[quantity].values, band, level) for t in named.values()]
    names = [algorithm_of(t) for t in named.values()]
    with style.canvas(axes) as ax:
        for i, ((label, trace), run) in enumerate(zip(named.items(), runs, strict=True)):
            look, x = look_of(label, trace, i, names), trace.data["step"].values
            every = max(1, len(x) // MARKS)
            mean = np.where(run.mean > 0, run.mean, np.nan) if quantity == "gap" else run.mean
            # markers of different curves stand at different steps, so that none hides another
            marks = (i * every // max(1, len(named)), every)
            ax.plot(x, mean, label=label, markevery=marks, **look.line())
            if run.runs > 1:
                ax.fill_between(
                    x, run.low, run.high, color=look.colour, alpha=0.18, linewidth=0, zorder=1
                )
        best = {float(t.data.attrs["optimal_value"]) for t in named.values()}
        if quantity == "gap":
            ax.set_yscale("log", nonpositive="clip")
        elif quantity == "value" and optimum and len(best) == 1:
            ax.axhline(best.pop(), label="optimum J*", **style.rule(linestyle=(0, (4, 2))))
        ax.set(xlabel="iteration", ylabel=QUANTITIES[quantity])
        ax.margins(x=0.02)
        style.dress(ax)
        style.legend(ax)
        texts = list(dict.fromkeys(run.text for run in runs))
        text = "; ".join(texts)
        style.describe(ax, f"{text[0].upper()}{text[1:]}.")
        return ax.get_figure(root=True)  # type: ignore[return-value]


def _path(item: Any, first: int, iterations: int, seed: int) -> tuple[np.ndarray, list[str]]:
    """J at the start and after every update, and the name of each update."""
    data = getattr(item, "data", None)
    if data is None:  # the result of `seeupo_theory.step`
        names = [f"turn {t}" if t != "all" else "all" for t in item.updated]
        return np.array([item.value_before, *item.per_turn]), names
    inside = data["update_value"].values
    if not 0 <= first < first + iterations <= inside.shape[1]:
        raise ValueError(
            f"iterations {first} … {first + iterations - 1} are asked for; "
            f"the trace has 0 … {inside.shape[1] - 1}"
        )
    if not 0 <= seed < inside.shape[0]:
        raise ValueError(f"seed is {seed}; the trace has 0 … {inside.shape[0] - 1}")
    chosen = slice(first, first + iterations)
    turns = data["updated_turn"].values[chosen].reshape(-1)
    values = [data["value"].values[seed, first], *inside[seed, chosen].reshape(-1)]
    return np.array(values), ["all" if t < 0 else f"turn {t + 1}" for t in turns]


def staircase(
    steps: Any,
    *,
    first: int = 0,
    iterations: int = 1,
    seed: int = 0,
    axes: Axes | None = None,
) -> Figure:
    """J after every single update: does each turn's update raise it?

    Args:
        steps: results of `seeupo_theory.step`, or traces; one, several, or a mapping from label.
        first, iterations, seed: which part of a trace, 0-based.

    Raises:
        ValueError: the trace does not have those iterations or that seed.
    """
    named = labelled(steps, "step")
    paths = [_path(item, first, iterations, seed) for item in named.values()]
    algorithms = [algorithm_of(item) for item in named.values()]
    scale = max(float(np.abs(values).max()) for values, _ in paths)
    longest = max(len(values) for values, _ in paths)
    with style.canvas(axes) as ax:
        fell = False
        for i, ((label, item), (values, _)) in enumerate(zip(named.items(), paths, strict=True)):
            look = look_of(label, item, i, algorithms)
            # paths with fewer updates are stretched, so that iterations begin together
            x = np.linspace(0, longest - 1, len(values))
            line = look.line()
            ax.step(x, values, where="post", label=label, **line)
            drops = np.flatnonzero(np.diff(values) < -DROP_SHARE * scale) + 1
            fell = fell or bool(len(drops))
            for k in map(int, drops):
                ax.plot(
                    x[k], values[k], "v", color=style.WRONG, markersize=7, zorder=4,
                    markeredgecolor=style.INK, markeredgewidth=0.6,
                )  # fmt: skip
        same = {tuple(names) for _, names in paths if len(names) == longest - 1}
        ticks = ["start", *(same.pop() if len(same) == 1 else map(str, range(1, longest)))]
        ax.set_xticks(range(longest), [t.replace(" ", "\n") for t in ticks])
        orders = [f"{label}: {', '.join(n)}" for label, (_, n) in zip(named, paths, strict=True)]
        ax.set(xlabel="update", ylabel="expected return J")
        for k in range(1, iterations):
            ax.axvline(k * (longest - 1) / iterations, **style.rule(linestyle=(0, (1, 2))))
        ax.margins(x=0.06, y=0.08)
        style.dress(ax)
        style.legend(ax)
        drop = " Triangles mark updates that lowered J." if fell else " No update lowered J."
        shown = "" if iterations > 1 else f" Updates: {'; '.join(orders)}."
        style.describe(ax, f"Exact J after each update.{drop}{shown}")
        return ax.get_figure(root=True)  # type: ignore[return-value]
