"""A ready example of every kind of figure, by name: what ``seeupo figure NAME`` writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bandits import SequentialBandit
from seeupo_theory import api
from seeupo_theory.figures import style
from seeupo_theory.figures.curves import learning_curves, staircase
from seeupo_theory.figures.margins import margin_map, sign_margin
from seeupo_theory.figures.phase import phase_line, phase_plane, simplex
from seeupo_theory.figures.rates import convergence_rate
from seeupo_theory.figures.tree import policy_tree
from seeupo_theory.figures.verdicts import verdict_grid

__all__ = ["FIGURES", "LEDGER", "example", "write"]

LEDGER = Path("results/audit/ledger.json")
"""Where an audit leaves its ledger, unless told otherwise."""


def _panels(count: int, height: float) -> tuple[Figure, Any]:
    with style.use():
        figure = Figure(figsize=(style.PAGE, height), layout="constrained")
        return figure, figure.subplots(1, count)


def _learning_curves() -> Figure:
    traces = {
        name: api.run(
            "zoo:two-turn-std-uniform",
            algorithm=name,
            iterations=30,
            expectation="sampled",
            group_size=4,
            contexts_per_batch=2,
            seeds=10,
            epochs=4,
        )
        for name in ("seeupo", "grpo", "rloo")
    }
    return learning_curves(traces)


def _staircase() -> Figure:
    model = "zoo:two-turn-std"
    sizes: dict[str, Any] = {"group_size": 2, "lr": 1.0}
    steps = {
        "reverse": api.step(model, "zoo", algorithm="seeupo", **sizes),
        "forward": api.step(model, "zoo", algorithm="seeupo", order="forward", **sizes),
        "reverse, group std": api.step(
            model, "zoo", algorithm="seeupo", normalise="group", **sizes
        ),
    }
    return staircase(steps)


def _three_arms() -> SequentialBandit:
    risky = {"values": [0, "3/2"], "probs": ["3/5", "2/5"]}
    return SequentialBandit([["1/2", risky, "1/5"]], name="wrong-sign with a third arm")


def _simplex() -> Figure:
    figure, axes = _panels(2, 3.6)
    starts = [[0.2, 0.2, 0.6], [0.3, 0.6, 0.1]]
    labels = ["sure\nmean 0.5", "risky\nmean 0.6", "poor, mean 0.2"]
    model = _three_arms()
    for ax, name in zip(axes, ("grpo", "dr-grpo"), strict=True):
        simplex(
            model, name, starts=starts, iterations=150, labels=labels, axes=ax, group_size=2, lr=0.2
        )
    style.footnote(
        figure,
        "Exact expected updates, G = 2; arrows are longer where an update moves further, blue where "
        "it raises J, vermilion where it lowers J. Black: 150 iterations from rings to squares.",
    )
    return figure


def _phase_line() -> Figure:
    names = ("grpo", "dr-grpo", "rloo")
    return phase_line("zoo:wrong-sign", names, group_size=2, start=0.8, iterations=25, lr=0.2)


def _phase_plane() -> Figure:
    return phase_plane(
        "zoo:xor-blind",
        "seeupo",
        starts=[[0.15, 0.3], [0.8, 0.75], [0.35, 0.6]],
        iterations=40,
        labels=("turn 1: probability of action 2", "turn 2: probability of action 2"),
    )


def _margin() -> Figure:
    figure, axes = _panels(2, 2.7)
    p, v = np.linspace(0.005, 0.995, 160), np.linspace(0.02, 3, 160)
    margins = {n: sign_margin(n, p, v, group_size=4) for n in ("grpo", "dr-grpo")}
    for ax, (name, margin) in zip(axes, margins.items(), strict=True):
        margin_map(
            p,
            v,
            margin,
            ylabel="payoff (other arm: 0.5 surely)",
            label="margin of the sign",
            violated="wrong sign",
            title=f"{name}, G = 4",
            axes=ax,
        )
    style.footnote(figure, "Uniform policy. Left: h" + style.caption(axes[0])[1:])
    return figure


def _tree() -> Figure:
    from bandits import zoo

    entry = zoo.get("two-turn-std")
    return policy_tree(entry.model, entry.policy)


def _rate() -> Figure:
    names = ("rloo", "seeupo")
    traces = {n: api.run("zoo:plateau", algorithm=n, iterations=1000, lr=2.0) for n in names}
    return convergence_rate(traces)


def _verdicts(ledger: Path) -> Figure:
    if not ledger.is_file():
        raise ValueError(
            f"{ledger} does not exist; run `seeupo audit` first, or name another ledger"
        )
    try:
        data = json.loads(ledger.read_text(encoding="utf-8"))
        return verdict_grid(data)
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{ledger} is not a ledger of `seeupo audit`") from None


FIGURES: Mapping[str, Callable[..., Figure]] = MappingProxyType(
    {
        "learning-curves": _learning_curves,
        "staircase": _staircase,
        "verdict-grid": _verdicts,
        "margin": _margin,
        "simplex": _simplex,
        "phase-line": _phase_line,
        "phase-plane": _phase_plane,
        "tree": _tree,
        "rate": _rate,
    }
)
"""Builders of the examples; "verdict-grid" takes the path of a ledger, the others nothing."""


def example(name: str, *, ledger: str | Path | None = None) -> Figure:
    """Build the example of this name.

    Args:
        ledger: file that "verdict-grid" draws (default: `LEDGER`).

    Raises:
        ValueError: an unknown name, or no ledger where one is needed.
    """
    if name not in FIGURES:
        near = get_close_matches(name, FIGURES, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"figure is {name!r}{hint}; expected one of {', '.join(FIGURES)}")
    if name == "verdict-grid":
        return FIGURES[name](Path(LEDGER if ledger is None else ledger))
    if ledger is not None:
        raise ValueError(f"figure {name!r} is not drawn from a ledger; leave it out")
    return FIGURES[name]()


def write(
    name: str,
    folder: str | Path = ".",
    *,
    kind: str = "pdf",
    ledger: str | Path | None = None,
) -> Path:
    """Build an example and write it as folder/NAME.KIND; the folder is made if it is missing.

    Raises:
        ValueError: as `example`; or an unknown kind of file.
        OSError: the folder cannot be written.
    """
    if kind not in style.FORMATS:
        raise ValueError(f"format is {kind!r}; expected one of {', '.join(style.FORMATS)}")
    figure = example(name, ledger=ledger)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    return style.save(figure, target / f"{name}.{kind}")
