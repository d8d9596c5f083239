r"""Does an update improve a transformer?  Presets on small games, judged by the exact J.

For each game, preset, step size and seed, a policy takes a few iterations on rollouts of its own;
after every update J is computed exactly (`llm_bridge.exact`), and an update that lowered it is
counted.  Three families start from the same policy, as far as they can hold it:

- *shared transformer*: a tiny Qwen3, all turns and histories share its weights;
- *independent tables*: one logit a (history, action), started at the transformer's own tables;
- *log-linear*: logits φ·θ with random features, θ shared, started near uniform over words.

A step size means different things to different families, so each row also holds how far an update
went: the mean KL from the sampling policy.  Batches are finite (`tasks` × `group` rollouts), so
that some drops are noise of sampling, in every family alike; the share is reported with its 95 %
interval (Wilson 1927) and nothing is concluded beyond it.
"""

from __future__ import annotations

import copy
import csv
import itertools
import json
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from llm_bridge.config import Config
from llm_bridge.environments.tabular_text import TabularText
from llm_bridge.exact import Exact
from llm_bridge.policies.tabular import TabularPolicy
from llm_bridge.policies.tiny import tiny_policy
from llm_bridge.policies.warm import warm_start
from llm_bridge.trainer import Trainer
from seeupo_theory._interrupts import deaf, starting_workers
from seeupo_theory.rules.presets import get

__all__ = [
    "FAMILIES",
    "PRESETS",
    "Plan",
    "Row",
    "audit",
    "figure",
    "report",
    "table",
    "wilson",
]

FAMILIES = ("shared transformer", "independent tables", "log-linear")

PRESETS = (
    "ppo",
    "grpo",
    "dr-grpo",
    "rloo",
    "reinforce++",
    "gspo",
    "seeupo",
    "seeupo-official",
    "trajectory-ppo",
)

FEATURES = 3
"""Length of φ: fewer than a game's logits, so that histories share parameters."""

NOOP_START = 0.05
"""Odds of the no-op against one word where a log-linear policy starts."""

Z95 = 1.959963984540054


@dataclass(frozen=True)
class Plan:
    """What is audited.

    Attributes:
        games: MODEL strings of small games.
        presets: algorithms by name.
        lrs: step sizes (plain gradient steps) of the transformer; tables and log-linear policies
            take `table_scale` times as much.
        seeds: how many, each with its own weights, starting policy and rollouts.
        iterations: of each run.
        tasks, group: B and G of a batch.
        epochs: gradient steps in an update; presets that define one step keep it.
        warm_steps: of the warm start towards a random policy over the words.
    """

    games: tuple[str, ...] = ("zoo:xor", "zoo:team-2x2x2")
    presets: tuple[str, ...] = PRESETS
    lrs: tuple[float, ...] = (0.003, 0.01, 0.03)
    table_scale: float = 30.0
    seeds: int = 6
    iterations: int = 4
    tasks: int = 8
    group: int = 16
    epochs: int = 4
    warm_steps: int = 60

    def __post_init__(self) -> None:
        """Check names and numbers."""
        for name in ("games", "presets", "lrs"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; it should have at least one entry")
        for name in self.presets:
            get(name)
        for name in ("seeds", "iterations", "tasks", "group", "epochs", "warm_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it should be at least 1")


@dataclass(frozen=True)
class Row:
    """One line of the ledger: a preset on a game in one family at one step size.

    `updates` counts updates whose verdict is not "unchanged"; `lowered` those that lowered J,
    `share` of them with its interval (`low`, `high`).  A sequential preset has one update a turn,
    others one an iteration; `iterations` and `iterations_lowered` count whole iterations.
    """

    game: str
    family: str
    preset: str
    lr: float
    updates: int
    lowered: int
    unchanged: int
    share: float
    low: float
    high: float
    worst: float
    kl: float
    start: float
    end: float
    iterations: int
    iterations_lowered: int
    curve: tuple[float, ...] = field(default=(), repr=False)

    def plain(self) -> dict[str, Any]:
        """All of it but the curve, JSON-ready."""
        return {k: v for k, v in asdict(self).items() if k != "curve"}


def wilson(hits: int, count: int) -> tuple[float, float]:
    """95 % interval of a share.

    >>> [round(x, 3) for x in wilson(0, 10)]
    [0.0, 0.278]
    """
    if not count:
        return 0.0, 1.0
    p, z = hits / count, Z95
    middle = (p + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(p * (1 - p) / count + z * z / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def _characters(game: TabularText) -> str:
    words = [*game.context_words, *game.state_words, game.reply]
    words += [w for turn in game.action_words for w in turn]
    return "".join(sorted(set("".join(words))))


def _start(plan: Plan, name: str, seed: int) -> tuple[TabularText, Any, list[Any]]:
    """A game, a transformer warmed towards a random policy over its words, and its tables."""
    game = TabularText(name)
    rng = np.random.default_rng([seed, 7])
    wanted = [
        rng.dirichlet(np.full(len(words), 2.0), size=len(rows))
        for words, rows in zip(game.action_words, game.conversations, strict=True)
    ]
    policy = tiny_policy(seed, characters=_characters(game))
    warm_start(policy, game, steps=plan.warm_steps, max_tokens=2, tables=wanted)
    return game, policy, Exact(game, 2).tables(policy)


def _policy(family: str, game: TabularText, transformer: Any, tables: Any, seed: int) -> Any:
    if family == "shared transformer":
        return copy.deepcopy(transformer)
    if family == "independent tables":
        return TabularPolicy(game, tables)
    rng = np.random.default_rng([seed, 11])
    shapes = [(x.observations, x.actions) for x in game.graph.layers]
    features = [rng.normal(size=(*s, FEATURES + 1)) for s in shapes]
    for f in features:  # a feature of its own for the no-op, so that it can start as unlikely
        f[:, :, -1], f[:, -1, :] = 0.0, 0.0
        f[:, -1, -1] = 1.0
    theta = np.zeros(FEATURES + 1)
    theta[-1] = math.log(NOOP_START)
    return TabularPolicy(game, features=features, theta=theta)


def _run(plan: Plan, family: str, preset: str, lr: float, seed: int, start: Any) -> dict[str, Any]:
    """J after every update of one run, and what each did."""
    game, transformer, tables = start
    algorithm = get(preset)
    scale = 1.0 if family == "shared transformer" else plan.table_scale
    config = Config(
        preset=preset,
        iterations=plan.iterations,
        tasks=plan.tasks,
        group=plan.group,
        epochs=1 if algorithm.epochs == 1 else plan.epochs,
        lr=lr * scale,
        optimiser="sgd",
        max_grad_norm=None,
        importance_cap=None,
        critic="exact",
        discount=game.discount,
        max_turns=game.turns,
        max_tokens=2,
        kl_reference="behaviour",
        seed=seed,
        progress=False,
        tensorboard=False,
    )
    trainer = Trainer(config, _policy(family, game, transformer, tables, seed), game)
    records: list[dict[str, Any]] = []
    trainer.callbacks = [records.append]
    status = trainer.train().status
    turns = [r for r in records if r["kind"] == "turn"]
    return {
        "game": game.base.name,
        "family": family,
        "preset": preset,
        "lr": lr,
        "status": status,
        "verdicts": [r["verdict"] for r in turns],
        "iterations": [r["verdict"] for r in records if r["kind"] == "iteration"],
        "changes": [r["J"] - r["J_before"] for r in turns],
        "kl": [r["kl"] or 0.0 for r in turns],
        "J": [turns[0]["J_before"], *(r["J"] for r in turns)],
    }


def _cell(job: tuple[Plan, str, int, tuple[str, ...]]) -> list[dict[str, Any]]:
    """All runs of one game and seed, in a process of its own."""
    plan, game, seed, families = job
    torch.set_num_threads(1)
    start = _start(plan, game, seed)
    return [
        _run(plan, family, preset, lr, seed, start)
        for family in families
        for preset in plan.presets
        for lr in plan.lrs
    ]


def audit(
    plan: Plan | None = None,
    *,
    families: Sequence[str] = FAMILIES,
    workers: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """Run the plan and return the ledger's rows.

    Args:
        workers: processes; 1 runs everything in this one.
        progress: called with (cells done, cells).
    """
    plan = plan or Plan()
    for family in families:
        if family not in FAMILIES:
            raise ValueError(f"family is {family!r}; it should be one of {', '.join(FAMILIES)}")
    jobs = [(plan, g, s, tuple(families)) for s in range(plan.seeds) for g in plan.games]
    runs: list[dict[str, Any]] = []

    def gather(results: Iterable[list[dict[str, Any]]]) -> None:
        for done, result in enumerate(results, 1):
            runs.extend(result)
            if progress is not None:
                progress(done, len(jobs))

    if workers == 1:
        gather(map(_cell, jobs))
    else:
        import multiprocessing

        pool = ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=deaf,
        )
        try:
            with starting_workers():
                results = pool.map(_cell, jobs)
            gather(results)
        finally:
            pool.shutdown(cancel_futures=True)
    return summarise(runs)


def summarise(runs: Sequence[dict[str, Any]]) -> list[Row]:
    """Rows of the ledger from runs, one a (game, family, preset, step size)."""
    cells: dict[tuple[str, str, str, float], list[dict[str, Any]]] = {}
    for run in runs:
        cells.setdefault((run["game"], run["family"], run["preset"], run["lr"]), []).append(run)
    rows = []
    for key, members in cells.items():
        verdicts = [v for run in members for v in run["verdicts"]]
        moved = [v for v in verdicts if v != "unchanged"]
        lowered = moved.count("lowered")
        low, high = wilson(lowered, len(moved))
        length = min(len(run["J"]) for run in members)
        curve = np.mean([run["J"][:length] for run in members], axis=0)
        rows.append(
            Row(
                *key,
                updates=len(moved),
                lowered=lowered,
                unchanged=len(verdicts) - len(moved),
                share=lowered / len(moved) if moved else 0.0,
                low=low,
                high=high,
                worst=min([0.0, *(c for run in members for c in run["changes"])]),
                kl=float(np.mean([k for run in members for k in run["kl"]])),
                start=float(curve[0]),
                end=float(np.mean([run["J"][-1] for run in members])),
                iterations=sum(len(run["iterations"]) for run in members),
                iterations_lowered=sum(run["iterations"].count("lowered") for run in members),
                curve=tuple(float(x) for x in curve),
            )
        )
    return rows


def figure(rows: Sequence[Row]) -> Any:
    """Share of updates that lowered J against the KL an update moved, by preset and family.

    Returns the Matplotlib figure: one row of axes a game, one column a family.
    """
    from matplotlib.figure import Figure

    from seeupo_theory.figures import style

    games = list(dict.fromkeys(r.game for r in rows))
    families = [f for f in FAMILIES if any(r.family == f for r in rows)]
    presets = list(dict.fromkeys(r.preset for r in rows))
    with style.use():
        size = (style.PAGE, 0.9 + 1.7 * len(games))
        canvas = Figure(figsize=size, layout="constrained")
        axes = canvas.subplots(len(games), len(families), squeeze=False, sharex=True, sharey=True)
    drawn: dict[str, Any] = {}
    for (i, game), (j, family) in itertools.product(enumerate(games), enumerate(families)):
        ax = axes[i][j]
        for k, preset in enumerate(presets):
            mine = [r for r in rows if (r.game, r.family, r.preset) == (game, family, preset)]
            mine = sorted((r for r in mine if r.updates and r.kl > 0), key=lambda r: r.kl)
            if not mine:
                continue
            bars = np.array([[r.share - r.low, r.high - r.share] for r in mine]).T
            drawn[preset] = ax.errorbar(
                [r.kl for r in mine],
                [r.share for r in mine],
                yerr=np.maximum(bars, 0.0),
                elinewidth=0.4,
                **style.look(preset, k).line(),
            )
        ax.set(xscale="log", ylim=(-0.02, 1.02), title=f"{game}\n{family}")
        if j == 0:
            ax.set_ylabel("share that lowered J")
        if i == len(games) - 1:
            ax.set_xlabel("mean KL of an update")
        style.dress(ax)
    canvas.legend(
        list(drawn.values()), list(drawn), loc="outside right upper", frameon=False, fontsize=7
    )
    style.footnote(
        canvas,
        "Updates that lowered the exact J, as a share of those that changed it; bars are 95 % "
        "Wilson intervals, points along a line are step sizes.",
    )
    return canvas


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    head = (
        "| game | family | preset | step | lowered / updates | share (95 %) | whole iterations | "
        "worst drop | KL | J start → end |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    lines = [
        f"| {r.game} | {r.family} | {r.preset} | {r.lr:g} | {r.lowered} / {r.updates} | "
        f"{r.share:.2f} ({r.low:.2f}–{r.high:.2f}) | {r.iterations_lowered} / {r.iterations} | "
        f"{r.worst:.3f} | {r.kl:.1e} | "
        f"{r.start:.3f} → {r.end:.3f} |"
        for r in rows
    ]
    return "\n".join([head, *lines]) + "\n"


def report(rows: Sequence[Row], directory: str | Path, plan: Plan | None = None) -> list[Path]:
    """Write audit_llm.csv, .json, .md and .png into a directory."""
    from seeupo_theory.figures.style import save

    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    out = [folder / f"audit_llm.{kind}" for kind in ("csv", "json", "md", "png")]
    plain = [r.plain() for r in rows]
    with open(out[0], "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, plain[0])
        writer.writeheader()
        writer.writerows(plain)
    body = {"plan": asdict(plan or Plan()), "rows": [asdict(r) for r in rows]}
    out[1].write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    out[2].write_text(table(rows), encoding="utf-8")
    save(figure(rows), out[3])
    return out
