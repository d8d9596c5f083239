"""Commands about one model: inspect, advantage, step, run; and the zoo."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from seeupo_theory.cli.options import (
    as_json_option,
    emit,
    policy_option,
    size_options,
    split,
    switch_options,
)


def _matrix(values: Sequence[Any]) -> str:
    return "[" + ", ".join(f"{v:.6g}" for v in values) + "]"


@click.command()
@click.argument("model")
@policy_option
@as_json_option
def inspect(model: str, policy: str, as_json: bool) -> None:
    """Value, optimum and per-turn gaps of MODEL."""
    from seeupo_theory import api

    result = api.inspect(model, policy).to_dict()

    def table(console: Any) -> None:
        console.print(
            f"[bold]{result['model']}[/bold]  {result['turns']} turns, actions {result['actions']}"
        )
        console.print(f"histories      {result['histories']}")
        console.print(f"value          {result['value']:.12g}")
        console.print(f"optimal value  {result['optimal_value']:.12g}")
        console.print(f"turn gaps      {_matrix(result['turn_gaps'])}")
        what = "node" if result["aliased"] else "history"
        if result["aliased"]:
            console.print("aliased        a policy may be unable to reach the optimal value")
        for t, rows in enumerate(result["optimal_policy"]):
            best = [row.index(max(row)) for row in rows]
            shown = ", ".join(map(str, best[:24])) + (" …" if len(best) > 24 else "")
            console.print(f"turn {t + 1}: best action of each {what}: {shown}")

    emit(result, as_json, table)


@click.command()
@click.argument("model")
@policy_option
@click.option(
    "--estimator", default="grae", show_default=True, help="A preset, gae, or module:function."
)
@click.option("--baseline", help="mean, loo, batch or none.")
@click.option("--normalise", help="none, group or batch.")
@click.option("--std-eps", type=float, help="Added to every standard deviation (1e-6).")
@click.option("--gae-lambda", type=float, help="λ of GAE.")
@click.option("--seed", type=int, default=0, help="Seed of the Monte Carlo fallback.")
@size_options
@as_json_option
def advantage(model: str, policy: str, as_json: bool, **arguments: Any) -> None:
    """Exact expected advantage E[Â | history, action] beside the true one."""
    from seeupo_theory import api

    given = {k: v for k, v in arguments.items() if v is not None}
    result = api.advantage(model, policy, **given).to_dict()

    def table(console: Any) -> None:
        from rich.table import Table

        console.print(f"{result['estimator']}: {result['method']} ({result['note']})")
        grid = Table("turn", "history", "action", "expected", "exact", "sign")
        wrong = {tuple(entry) for entry in result["sign_errors"]}
        for t, rows in enumerate(result["expected"]):
            for h, row in enumerate(rows):
                for a, value in enumerate(row):
                    mark = "[red]wrong[/red]" if (t, h, a) in wrong else ""
                    exact = result["exact"][t][h][a]
                    grid.add_row(str(t + 1), str(h), str(a), f"{value:+.6f}", f"{exact:+.6f}", mark)
        console.print(grid)

    emit(result, as_json, table)


@click.command()
@click.argument("model")
@policy_option
@switch_options
@size_options
@as_json_option
def step(model: str, policy: str, as_json: bool, **arguments: Any) -> None:
    """One iteration in exact expectation: J after every single update."""
    from seeupo_theory import api

    given, options = split(arguments)
    result = api.step(model, policy, options=options, **given).to_dict()

    def table(console: Any) -> None:
        console.print(f"[bold]{result['algorithm']}[/bold] ({result['method']} expectation)")
        console.print(f"before            {result['value_before']:.12g}")
        for turn, value in zip(result["updated"], result["per_turn"], strict=True):
            console.print(f"after turn {turn!s:<6} {value:.12g}")
        limit = " (full information; a restricted policy may not reach it)"
        note = limit if result["restricted"] else ""
        console.print(f"optimal value     {result['optimal_value']:.12g}{note}", highlight=False)
        colour = "green" if result["monotone"] else "red"
        console.print(f"monotone          [{colour}]{result['monotone']}[/{colour}]")

    emit(result, as_json, table)


@click.command()
@click.argument("model")
@policy_option
@switch_options
@size_options
@click.option("--iterations", type=click.IntRange(min=1), default=100, show_default=True)
@click.option("--expectation", type=click.Choice(["exact", "sampled"]), default="exact")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="netCDF trace file.")
@as_json_option
def run(model: str, policy: str, as_json: bool, out: Path | None, **arguments: Any) -> None:
    """Many iterations; writes a netCDF trace and prints a summary."""
    from rich.console import Console
    from rich.progress import Progress

    from seeupo_theory import api

    given, options = split(arguments)
    if out is not None and not out.parent.is_dir():
        raise click.BadParameter(f"the folder {out.parent} does not exist", param_hint="--out")
    with Progress(
        console=Console(stderr=True), transient=True, disable=as_json or not sys.stderr.isatty()
    ) as progress:
        task = progress.add_task("iterations", total=given["iterations"])
        trace = api.run(
            model,
            policy,
            options=options,
            progress=lambda k: progress.update(task, completed=k),
            **given,
        )
    result = api._plain(trace.summary())
    if out is not None:
        trace.save(out)
        result["out"] = str(out)

    def table(console: Any) -> None:
        for name, value in result.items():
            shown = f"{value:.12g}" if isinstance(value, float) else value
            console.print(f"{name:<16} {shown}")

    emit(result, as_json, table)


@click.command()
@as_json_option
def zoo(as_json: bool) -> None:
    """List the named models."""
    from bandits import zoo as models

    entries = models.entries()
    result = {
        "models": [
            {"name": e.name, "optimum": float(e.optimum), "reason": e.reason} for e in entries
        ]
    }

    def table(console: Any) -> None:
        from rich.table import Table

        grid = Table("name", "optimum", "why it is here")
        for entry in entries:
            grid.add_row(f"zoo:{entry.name}", f"{float(entry.optimum):g}", entry.reason)
        console.print(grid)

    emit(result, as_json, table)
