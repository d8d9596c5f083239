"""The command line, `seeupo COMMAND MODEL`: a thin skin over `seeupo_theory.api`.

``--json`` prints one JSON object on standard output and nothing else; otherwise a readable table.
Errors go to standard error as one line, with exit status 2.  Heavy packages are imported by the
command that needs them.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from seeupo_theory import __version__

__all__ = ["main"]

Command = Callable[..., Any]


class _Number(click.ParamType):
    """A count of at least 1, or ``inf``."""

    name = "count|inf"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        try:
            number = float(value)
        except ValueError:
            self.fail(f"is {value!r}; expected a whole number of at least 1, or inf", param, ctx)
        if not (number >= 1 and (number == math.inf or number.is_integer())):
            self.fail(f"is {value}; expected a whole number of at least 1, or inf", param, ctx)
        return number


class _Clip(click.ParamType):
    """One width, or LOW,HIGH."""

    name = "eps|low,high"

    def convert(self, value: Any, param: Any, ctx: Any) -> float | tuple[float, float]:
        if not isinstance(value, str):
            return value
        try:
            parts = [float(part) for part in value.split(",")]
        except ValueError:
            parts = []
        if len(parts) not in (1, 2):
            self.fail(f"is {value!r}; expected one number, or LOW,HIGH", param, ctx)
        return parts[0] if len(parts) == 1 else (parts[0], parts[1])


class _Order(click.ParamType):
    """A named order, or a permutation such as 3,1,2 of the turns."""

    name = "order"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str) or not value.replace(",", "").isdigit():
            return value
        turns = [int(part) for part in value.split(",") if part]
        if sorted(turns) != list(range(1, len(turns) + 1)):
            self.fail(f"is {value}; expected every turn from 1 to T exactly once", param, ctx)
        return tuple(turn - 1 for turn in turns)


def _emit(result: dict[str, Any], as_json: bool, table: Callable[[Any], None]) -> None:
    if as_json:
        click.echo(json.dumps(result, allow_nan=False))
    else:
        from rich.console import Console

        table(Console())


def _options(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def apply(function: Command) -> Command:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and no more.")
_policy = click.option(
    "--policy", default="uniform", help="'uniform', 'zoo' (the entry's own) or a policy file."
)
_sizes = _options(
    click.option("--group-size", type=_Number(), help="Members of a group, or inf."),
    click.option("--contexts-per-batch", type=_Number(), help="Contexts of a batch, or inf."),
)
_switches = _options(
    click.option("--algorithm", default="seeupo", show_default=True, help="A preset, or module:name."),
    click.option("--lr", type=float, help="Step size."),
    click.option("--epochs", type=int, help="Gradient steps an update."),
    click.option("--clip", type=_Clip(), help="Clip width, or LOW,HIGH."),
    click.option("--order", type=_Order(), help="reverse, forward, random, simultaneous, or 3,1,2."),
    click.option("--baseline", help="mean, loo, batch or none."),
    click.option("--normalise", help="none, group or batch."),
    click.option("--std-eps", type=float, help="Added to every standard deviation."),
    click.option("--level", help="sequence, length-normalised or token."),
    click.option("--objective", help="clip, reinforce, greedy, mirror or clip-argmax."),
    click.option("--reference", help="behaviour or current."),
    click.option("--advantage-clip", type=float, help="Clamp of the advantage."),
    click.option("--factor-clip", type=float, help="Clamp of each factor of M."),
    click.option("--product-clip", type=float, help="Clamp of the running product."),
    click.option("--dual-clip", type=float, help="Dual clip constant, above 1."),
    click.option("--kl-coef", type=float, help="Weight of the KL penalty."),
    click.option("--gae-lambda", type=float, help="λ of GAE."),
    click.option("--param", default="tabular", show_default=True,
                 help="tabular, shared, log-linear or network."),
    click.option("--observe", help="Observation map: turn, none, context, last-action, state, full."),
    click.option("--support", help="all or reached histories (ideal steps)."),
    click.option("--parameters", help="File with features and theta (log-linear)."),
    click.option("--features", "dimension", type=int, help="Random features (log-linear)."),
    click.option("--hidden", type=int, help="Hidden units (network)."),
    click.option("--param-seed", type=int, help="Seed of features or of the network."),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of random numbers."),
)  # fmt: skip

_OPTION_NAMES = {"dimension": "dimension", "hidden": "hidden", "param_seed": "seed"}


def _split(arguments: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Given switches, and options of the policy family."""
    given = {k: v for k, v in arguments.items() if v is not None}
    options = {_OPTION_NAMES[k]: given.pop(k) for k in list(given) if k in _OPTION_NAMES}
    if "parameters" in given:
        from seeupo_theory import api

        if given["param"] != "log-linear":
            raise click.BadParameter("needs --param log-linear", param_hint="--parameters")
        options["features"], given["theta"] = api.load_parameters(given.pop("parameters"))
    return given, options


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="seeupo")
def cli() -> None:
    """Exact answers about policy-optimisation algorithms.

    MODEL is a JSON file, zoo:NAME, gym:NAME?horizon=12 or openspiel:NAME.
    """


def _matrix(values: Sequence[Any]) -> str:
    return "[" + ", ".join(f"{v:.6g}" for v in values) + "]"


@cli.command()
@click.argument("model")
@_policy
@_json
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
        for t, rows in enumerate(result["optimal_policy"]):
            best = [row.index(max(row)) for row in rows]
            shown = ", ".join(map(str, best[:24])) + (" …" if len(best) > 24 else "")
            console.print(f"turn {t + 1}: best action of each history: {shown}")

    _emit(result, as_json, table)


@cli.command()
@click.argument("model")
@_policy
@click.option(
    "--estimator", default="grae", show_default=True, help="A preset, gae, or module:function."
)
@click.option("--baseline", help="mean, loo, batch or none.")
@click.option("--normalise", help="none, group or batch.")
@click.option("--std-eps", type=float, help="Added to every standard deviation (1e-6).")
@click.option("--gae-lambda", type=float, help="λ of GAE.")
@click.option("--seed", type=int, default=0, help="Seed of the Monte Carlo fallback.")
@_sizes
@_json
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

    _emit(result, as_json, table)


@cli.command()
@click.argument("model")
@_policy
@_switches
@_sizes
@_json
def step(model: str, policy: str, as_json: bool, **arguments: Any) -> None:
    """One iteration in exact expectation: J after every single update."""
    from seeupo_theory import api

    given, options = _split(arguments)
    result = api.step(model, policy, options=options, **given).to_dict()

    def table(console: Any) -> None:
        console.print(f"[bold]{result['algorithm']}[/bold] ({result['method']} expectation)")
        console.print(f"before            {result['value_before']:.12g}")
        for turn, value in zip(result["updated"], result["per_turn"], strict=True):
            console.print(f"after turn {turn!s:<6} {value:.12g}")
        console.print(f"optimal value     {result['optimal_value']:.12g}")
        colour = "green" if result["monotone"] else "red"
        console.print(f"monotone          [{colour}]{result['monotone']}[/{colour}]")

    _emit(result, as_json, table)


@cli.command()
@click.argument("model")
@_policy
@_switches
@_sizes
@click.option("--iterations", type=click.IntRange(min=1), default=100, show_default=True)
@click.option("--expectation", type=click.Choice(["exact", "sampled"]), default="exact")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="netCDF trace file.")
@_json
def run(model: str, policy: str, as_json: bool, out: Path | None, **arguments: Any) -> None:
    """Many iterations; writes a netCDF trace and prints a summary."""
    from rich.console import Console
    from rich.progress import Progress

    from seeupo_theory import api

    given, options = _split(arguments)
    if out is not None and not out.parent.is_dir():
        raise click.BadParameter(f"the folder {out.parent} does not exist", param_hint="--out")
    with Progress(console=Console(stderr=True), transient=True, disable=as_json) as progress:
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

    _emit(result, as_json, table)


@cli.command()
@_json
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

    _emit(result, as_json, table)


@cli.command()
@click.option("--quick", is_flag=True, help="Fewer instances, Table 1 only, under a minute.")
@click.option("--out", default="results/audit", show_default=True, type=click.Path(file_okay=False))
@click.option("--claim", help="Only this claim, grid row or ledger row, e.g. C4 or T1.grpo.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True)
@_json
def audit(quick: bool, out: str, claim: str | None, workers: int, as_json: bool) -> None:
    """Check every claim of the paper; writes ledger.json, ledger.md, instances and figures."""
    from rich.console import Console
    from rich.progress import Progress

    from seeupo_theory.claims import audit as auditing

    names = auditing.selected(claim, quick)
    with Progress(console=Console(stderr=True), disable=as_json) as progress:
        bar = progress.add_task("audit", total=len(names))
        running: list[str] = []

        def say(name: str, event: str) -> None:
            if event == "start":
                running.append(name)
            else:
                if name in running:
                    running.remove(name)
                progress.advance(bar)
            progress.update(bar, description=", ".join(running) or "audit")

        ledger = auditing.audit(out, quick=quick, claim=claim, workers=workers, progress=say)
    result = ledger.to_dict()

    def table(console: Any) -> None:
        from rich.table import Table

        grid = Table("claim", "verdict", "differs", "evidence")
        for row in ledger.rows:
            if row.claim != "T1" or claim is not None:
                differs = "yes" if row.differs else ("no" if row.differs is False else "")
                grid.add_row(row.id, row.verdict, differs, row.evidence)
        if grid.row_count:
            console.print(grid)
        counts = ", ".join(f"{n} {v}" for v, n in result["counts"].items())
        console.print(f"{len(ledger.rows)} rows: {counts}; written to {out}")

    _emit(result, as_json, table)


def _one_line(error: object) -> str:
    return " ".join(str(error).split())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; never shows a traceback for a wrong input."""
    try:
        cli.main(args=None if arguments is None else list(arguments), standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("seeupo: interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        click.echo(f"seeupo: {_one_line(error.format_message())}", err=True)
        sys.exit(2)
    except (ValueError, OSError, ImportError, MemoryError) as error:
        click.echo(f"seeupo: {_one_line(error) or type(error).__name__}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
