"""``python -m proofs [NAME ...]``: run the proofs and print a table of result, status, seconds."""

from __future__ import annotations

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proofs._base import Outcome, Result, discover, run

COLOURS = {"exact": "green", "numerical": "yellow", "failed": "red"}


@click.command(name="proofs")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--list", "list_only", is_flag=True, help="List the results and what they state.")
@click.option("--steps", is_flag=True, help="Show each step and what it established.")
def main(names: tuple[str, ...], list_only: bool, steps: bool) -> None:
    """Run the proofs of this package, or those named. Exit code 1 if any step fails."""
    console = Console()
    results = _select(discover(), names)
    if list_only:
        console.print(_listing(results))
        return
    outcomes = []
    for result in results:
        outcomes.append(outcome := run(result))
        if steps:
            _print_steps(console, outcome)
    console.print(_table(outcomes))
    for outcome in outcomes:
        for item in outcome.failures:
            console.print(
                f"[red]failed[/] {escape(outcome.result.name)} / {escape(item.step.name)}"
            )
            console.print(f"  {escape(item.failure or '')}")
    if any(outcome.failures for outcome in outcomes):
        raise SystemExit(1)


def _select(found: dict[str, Result], names: tuple[str, ...]) -> list[Result]:
    for name in names:
        if name not in found:
            raise click.BadParameter(f"no result named {name!r}; there are: {', '.join(found)}")
    return [found[name] for name in names] if names else list(found.values())


def _listing(results: list[Result]) -> Table:
    table = Table("result", "statement", "source", "steps")
    for result in results:
        table.add_row(
            escape(result.name),
            escape(result.statement),
            escape(result.source),
            str(len(result.steps)),
        )
    return table


def _print_steps(console: Console, outcome: Outcome) -> None:
    console.print(f"[bold]{escape(outcome.result.name)}[/]")
    for item in outcome.steps:
        status = "failed" if item.failure else item.step.kind
        colour = COLOURS[status]
        console.print(
            f"  [{colour}]{status}[/] {escape(item.step.name)}: "
            f"{escape(item.failure or item.finding)} ({item.seconds:.2f} s)",
            soft_wrap=True,
        )


def _table(outcomes: list[Outcome]) -> Table:
    table = Table("result", "status", "seconds", "steps")
    for outcome in outcomes:
        passed = len(outcome.steps) - len(outcome.failures)
        colour = COLOURS[outcome.status]
        table.add_row(
            escape(outcome.result.name),
            f"[{colour}]{outcome.status}[/]",
            f"{outcome.seconds:.2f}",
            f"{passed}/{len(outcome.steps)}",
        )
    total = sum(outcome.seconds for outcome in outcomes)
    failed = sum(bool(outcome.failures) for outcome in outcomes)
    table.caption = f"{len(outcomes)} results, {failed} failed, {total:.1f} s"
    return table


if __name__ == "__main__":
    main(prog_name="python -m proofs")
