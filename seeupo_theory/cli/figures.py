"""Command about pictures: figure."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["figure"]


@click.command()
@click.argument("name", required=False)
@click.option("--format", "suffix", type=click.Choice(["png", "pdf", "svg"]), default="png")
@click.option("--out", default=".", show_default=True, type=click.Path(path_type=Path))
@click.option("--ledger", type=click.Path(path_type=Path), help="ledger.json of an audit.")
def figure(name: str | None, suffix: str, out: Path, ledger: Path | None) -> None:
    """Draw a ready figure; without NAME, list them."""
    from seeupo_theory import figures

    if name is None:
        click.echo("\n".join(figures.FIGURES))
        return
    click.echo(figures.write(name, out, kind=suffix, ledger=ledger))
