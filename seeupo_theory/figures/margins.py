r"""Heat maps of a violation margin over two parameters.

A margin is positive where something holds, negative where it is violated, and its size says by how
much.  `sign_margin` computes one: the bandit with a sure arm of value s and an arm that pays v with
probability p.  With the estimator's exact expectation

.. math:: m(p, v) = \operatorname{sign}(pv - s)\,\bigl(E[\hat A \mid \text{risky}] - E[\hat A \mid \text{sure}]\bigr)

an update moves towards the worse arm exactly where m < 0.
"""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import ArrayLike, NDArray

from seeupo_theory.figures import style
from seeupo_theory.rules import presets
from seeupo_theory.rules.presets import Algorithm

__all__ = ["MARGIN_COLOURS", "margin_map", "sign_margin"]

MARGIN_COLOURS = LinearSegmentedColormap.from_list(
    "margin", ["#a63c00", style.WRONG, "#f6c9a8", "#ffffff", "#b5d7ee", style.RIGHT, "#00456e"]
)
"""Vermilion below zero, blue above, white at zero."""


def sign_margin(
    algorithm: str | Algorithm,
    probabilities: ArrayLike,
    payoffs: ArrayLike,
    *,
    group_size: float = 2,
    sure: float = 0.5,
    policy: float = 0.5,
) -> NDArray[np.float64]:
    """m(p, v) for every payoff and probability, [payoffs, probabilities].

    Args:
        algorithm: its estimator is taken; a batch is of one context, infinitely many of them.
        probabilities: p of the risky arm's payoff, in [0, 1].
        payoffs: v.
        group_size: G, or inf.
        sure: s, what the other arm pays.
        policy: probability of the risky arm.

    Raises:
        ValueError: a number out of its range, or an expectation too large to enumerate.
    """
    import jax
    import jax.numpy as jnp

    from seeupo_theory.tabular.expectation import Law, expected_parts, plan

    p, v = np.asarray(probabilities, dtype=float), np.asarray(payoffs, dtype=float)
    for name, values in (("probabilities", p), ("policy", np.asarray(policy))):
        if not ((values >= 0) & (values <= 1)).all():
            raise ValueError(f"{name} should lie between 0 and 1")
    law = Law(presets.get(algorithm), group_size, math.inf)
    chosen = plan(law, 1, 3)
    if chosen.method != "exact":
        raise ValueError(f"group_size is {group_size}: {chosen.reason}; use a smaller group")

    def margin(p: jax.Array, v: jax.Array) -> jax.Array:
        support = jnp.stack([jnp.asarray(sure), v, jnp.zeros(())])[None]
        probs = jnp.stack([jnp.asarray(1 - policy), policy * p, policy * (1 - p)])[None]
        mean = expected_parts(law, jnp.ones(1), support, probs).mean[0]
        return jnp.sign(p * v - sure) * (p * mean[1] + (1 - p) * mean[2] - mean[0])

    over_p = jax.vmap(margin, in_axes=(0, None))
    grid = jax.jit(jax.vmap(over_p, in_axes=(None, 0)))
    return np.asarray(grid(jnp.asarray(p), jnp.asarray(v)))


def margin_map(
    x: ArrayLike,
    y: ArrayLike,
    margin: ArrayLike,
    *,
    xlabel: str = "probability of the payoff",
    ylabel: str = "payoff",
    label: str = "margin",
    violated: str = "violated",
    title: str = "",
    limit: float | None = None,
    axes: Axes | None = None,
) -> Figure:
    """Margin [y, x] in colour; the region below zero is hatched, so that greyscale shows it too.

    Args:
        label, violated: words for the colour bar and for the hatched region.
        limit: largest |margin| of the colour scale (default: of the data), for panels to compare.

    Raises:
        ValueError: shapes do not fit, or a margin is not finite.
    """
    xs, ys, values = (np.asarray(a, dtype=float) for a in (x, y, margin))
    if values.shape != (*ys.shape, *xs.shape) or values.ndim != 2:
        raise ValueError(
            f"margin has shape {values.shape}; expected [{ys.size}, {xs.size}], one row a y"
        )
    if not np.isfinite(values).all():
        raise ValueError("margin should hold finite numbers")
    most = limit or float(np.abs(values).max()) or 1.0
    with style.canvas(axes, style.COLUMN, 2.7) as ax:
        mesh = ax.pcolormesh(
            xs, ys, values, cmap=MARGIN_COLOURS, norm=Normalize(-most, most), rasterized=True
        )
        wrong = values < 0
        if wrong.any():
            hatched = ax.contourf(
                xs, ys, wrong.astype(float), levels=[0.5, 1.5], colors="none", hatches=["////"]
            )
            hatched.set_edgecolor(style.INK)
            hatched.set_linewidth(0)
            ax.contour(xs, ys, wrong.astype(float), levels=[0.5], colors=style.INK, linewidths=0.8)
            ax.legend(
                handles=[
                    Patch(facecolor="white", edgecolor=style.INK, hatch="////", label=violated)
                ],
                loc="lower left",
                frameon=True,
                facecolor="white",
                framealpha=0.9,
                edgecolor="none",
                borderpad=0.4,
            )
        bar = ax.get_figure(root=True).colorbar(mesh, ax=ax, pad=0.02)  # type: ignore[union-attr]
        bar.set_label(label)
        bar.outline.set_linewidth(0.5)
        bar.ax.tick_params(labelsize=style.SMALL, width=0.5, length=2)
        ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
        style.dress(ax, grid=None)
        style.plain_text(ax)
        share = 100 * float(wrong.mean())
        text = f"Hatched: {violated} ({share:.1f} % of the points drawn)."
        style.describe(ax, text if wrong.any() else f"No point drawn: {violated}.")
        return ax.get_figure(root=True)  # type: ignore[return-value]
