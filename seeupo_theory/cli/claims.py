"""Commands about claims: audit, falsify, verify."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from seeupo_theory.cli.options import Order, as_json_option, emit, size_options


@click.command()
@click.option("--quick", is_flag=True, help="Fewer instances, Table 1 only, under a minute.")
@click.option("--out", default="results/audit", show_default=True, type=click.Path(file_okay=False))
@click.option("--claim", help="Only this claim, grid row or ledger row, e.g. C4 or T1.grpo.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True)
@as_json_option
def audit(quick: bool, out: str, claim: str | None, workers: int, as_json: bool) -> None:
    """Check every claim of the paper; writes ledger.json, ledger.md, instances and figures."""
    from rich.console import Console
    from rich.progress import Progress

    from seeupo_theory.claims import audit as auditing

    names = auditing.selected(claim, quick)
    with Progress(
        console=Console(stderr=True), disable=as_json or not sys.stderr.isatty()
    ) as progress:
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

    emit(result, as_json, table)


@click.command()
@click.option("--algorithm", required=True, help="A preset, or module:function.")
@click.option(
    "--property",
    "claim",
    default="monotone",
    show_default=True,
    help="monotone, global-optimum, unbiased or sign.",
)
@click.option("--turns", type=int, default=2, show_default=True, help="Most turns searched.")
@click.option("--actions", type=int, default=3, show_default=True, help="Most actions a turn.")
@click.option("--contexts", type=int, default=1, show_default=True, help="Most contexts.")
@click.option(
    "--param", default="tabular", show_default=True, help="tabular, shared or log-linear."
)
@click.option("--reward", default="random", show_default=True, help="random or deterministic.")
@click.option("--budget", default="60s", show_default=True, help="Seconds, as 60, 60s or 2m.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--keep-turns", is_flag=True, help="Do not shrink the number of turns.")
@click.option("--lr", type=float, help="Fix the step size.")
@click.option("--epochs", type=int, help="Fix the gradient steps an update.")
@click.option("--normalise", help="none, group or batch.")
@click.option("--baseline", help="mean, loo, batch or none.")
@click.option("--order", type=Order(), help="reverse, forward, random, simultaneous, or 3,1,2.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Certificate file.")
@size_options
@as_json_option
def falsify(claim: str, budget: str, out: Path | None, as_json: bool, **arguments: Any) -> None:
    """Search a counterexample, shrink it and certify it in exact arithmetic."""
    from seeupo_theory.claims.falsify import falsify as search
    from seeupo_theory.claims.ledger import write_text

    if out is not None and not out.parent.is_dir():
        raise click.BadParameter(f"the folder {out.parent} does not exist", param_hint="--out")
    given = {k: v for k, v in arguments.items() if v is not None}
    found = search(given.pop("algorithm"), claim, budget=_seconds(budget), **given)
    result = found.to_dict()
    if out is not None and found.certificate is not None:
        write_text(out, json.dumps(found.certificate, indent=1) + "\n")
        result["out"] = str(out)

    def table(console: Any) -> None:
        colour = {"certified": "red", "numerical": "yellow"}.get(found.status, "cyan")
        console.print(f"{found.algorithm}, {found.property}: [{colour}]{found.status}[/{colour}]")
        if found.statement:
            console.print(found.statement)
        if found.instance is not None:
            console.print(found.instance["python"], markup=False, highlight=False, soft_wrap=True)
        console.print(
            f"searched {found.searched['instances']} random instances and "
            f"{found.searched['optimiser']} of the optimiser; largest effect {found.worst:.3g}"
        )
        console.print(found.note)
        if out is not None:
            written = (
                f"certificate written to {out}" if found.certificate else "no certificate written"
            )
            console.print(written)

    emit(result, as_json, table)


def _seconds(text: str) -> float:
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        return float(number) * unit
    except ValueError:
        raise click.BadParameter(
            f"is {text!r}; expected seconds such as 60, 60s or 2m", param_hint="--budget"
        ) from None


@click.command()
@click.argument("files", nargs=-1, required=True)
@as_json_option
def verify(files: tuple[str, ...], as_json: bool) -> None:
    """Re-check certificates (files, or names of the project's own) with fractions only."""
    from proofs.verifier import verify_file
    from seeupo_theory.claims.audit import certificate_folder

    own = certificate_folder()
    results = []
    for name in files:
        named = own / f"{name}.json"
        path = named if named.is_file() and not Path(name).exists() else Path(name)
        try:
            verdict = verify_file(path)
        except OSError as error:
            raise ValueError(f"{name}: cannot be read ({error.strerror})") from None
        results.append({"file": name, "accepted": verdict.accepted, "message": verdict.message})
    result = {"accepted": all(r["accepted"] for r in results), "certificates": results}

    def table(console: Any) -> None:
        for entry in results:
            colour = "green" if entry["accepted"] else "red"
            word = "accepted" if entry["accepted"] else "rejected"
            console.print(f"[{colour}]{word}[/{colour}] {entry['file']}: {entry['message']}")

    emit(result, as_json, table)
    if not result["accepted"]:
        sys.exit(1)
