"""Run the benchmarks: ``python -m benchmarks [--only NAME] [--repeats N] [--json]``."""

from __future__ import annotations

import json
import os
import platform
from importlib import import_module
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.measure import MINIMUM_REPEATS, Row

NAMES = ("gradient", "seeds", "expectation", "startup", "peers")
DEFAULT_REPEATS = 15
BUSY = 0.75
"""Load a core beyond which the machine is not free for measuring."""


def _figure(value: float, unit: str) -> str:
    if unit == "bytes":
        return f"{value / 1e6:.1f} MB"
    return f"{value * 1e3:.2f} ms" if value < 1 else f"{value:.2f} s"


def _verdict(row: Row) -> str:
    if row.met is None:
        return "–"
    return f"[green]≥ {row.goal:g}\nmet[/]" if row.met else f"[red]≥ {row.goal:g}\nmissed[/]"


def _table(rows: list[Row]) -> Table:
    table = Table(title="ratio = the other / ours, median of neighbouring runs", show_lines=True)
    for column in ("what", "ours", "the other"):
        table.add_column(column, overflow="fold")
    table.add_column("ratio", no_wrap=True)
    table.add_column("goal", no_wrap=True)
    for row in rows:
        table.add_row(
            f"{row.what}\n[dim]{row.note}[/]" if row.note else row.what,
            f"{_figure(row.ours_figure, row.unit)}\n{row.ours}",
            f"{_figure(row.other_figure, row.unit)}\n{row.other}",
            f"[bold]{row.ratio:.3g}[/]\n{row.low:.2g}–{row.high:.2g}",
            _verdict(row),
        )
    return table


def _machine() -> dict[str, Any]:
    import jax
    import numpy

    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "jax": jax.__version__,
    }


@click.command(help="Ratios of two things timed alternately; results are checked equal first.")
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="Run these alone.")
@click.option(
    "--repeats",
    default=DEFAULT_REPEATS,
    show_default=True,
    type=click.IntRange(MINIMUM_REPEATS),
    help="Timed runs of each; the median is quoted.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(only: tuple[str, ...], repeats: int, as_json: bool) -> None:
    console = Console(stderr=True)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    if load is not None and load > BUSY * (os.cpu_count() or 1):
        console.print(
            f"warning: load {load:.1f} on {os.cpu_count()} cores; what runs on all cores suffers more "
            "from that than what runs on one, so ratios mean little now",
            style="yellow",
        )
    rows: list[Row] = []
    skipped: dict[str, str] = {}
    for name in only or NAMES:
        module = import_module(f"benchmarks.{name}")
        lacking = module.missing() if hasattr(module, "missing") else None
        if lacking:
            skipped[name] = f"{lacking} is not installed"
            continue
        with console.status(name):
            for row in module.rows(repeats):
                rows.append(row)
                console.print(f"{row.what}: {row.ratio:.3g} × against {row.other}", style="dim")
    if as_json:
        result = {
            "machine": _machine(),
            "load": load,
            "repeats": repeats,
            "rows": [row.to_dict() for row in rows],
            "skipped": skipped,
        }
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return
    out = Console()
    out.print(_table(rows))
    for name, reason in skipped.items():
        out.print(f"{name}: skipped, {reason}")


if __name__ == "__main__":
    main()
