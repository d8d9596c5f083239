"""Commands on language models: train, audit-llm.  They need the extra ``llm``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click

from seeupo_theory.cli.options import as_json_option, emit

__all__ = ["audit_llm", "train"]

NEEDS = "language models need torch and transformers: pip install 'seeupo[llm]'"

LISTS = {"games": str, "presets": str, "lrs": float}


def _bridge(name: str) -> Any:
    """A module of the bridge, or a line that says what to install."""
    import importlib

    try:
        return importlib.import_module(f"llm_bridge.{name}")
    except ModuleNotFoundError as error:
        if error.name in ("torch", "transformers"):
            raise click.ClickException(NEEDS) from error
        raise


def _value(text: str) -> Any:
    """A value as TOML writes it; a bare word is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _changes(config: Any, words: tuple[str, ...]) -> dict[str, Any]:
    """Keys and values of ``--set``; ``table.key`` changes one key of a table."""
    changes: dict[str, Any] = {}
    for word in words:
        name, sign, text = word.partition("=")
        head, dot, key = name.strip().partition(".")
        if not (sign and head):
            raise click.BadParameter(f"is {word!r}; expected KEY=VALUE", param_hint="--set")
        if dot:
            inner = changes.get(head, config.table().get(head, {}))
            if not isinstance(inner, dict):
                raise click.BadParameter(f"{head} is not a table", param_hint="--set")
            changes[head] = {**inner, key: _value(text.strip())}
        else:
            changes[head] = _value(text.strip())
    return changes


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint of the output.")
@click.option("--out", "output", help="Directory of logs and checkpoints.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE",
              help="Change one key of the file, such as lr=1e-5 or policy.kind=tiny.")  # fmt: skip
@as_json_option
def train(
    config: Path, resume: bool, output: str | None, changes: tuple[str, ...], as_json: bool
) -> None:
    """Train a policy as a TOML file says; see llm_bridge/config.py for its keys."""
    settings = _bridge("config").Config.load(config)
    edits = _changes(settings, changes)
    if output is not None:
        edits["output"] = output
    if as_json:
        edits["progress"] = False
    settings = settings.replace(**edits)
    if resume and not settings.output:
        raise click.BadParameter("needs an output directory (--out)", param_hint="--resume")
    trainer = _bridge("trainer").Trainer(settings)
    try:
        done = trainer.train(resume=resume)
    except KeyboardInterrupt:
        kept = f"; --resume goes on from {settings.output}" if settings.output else ""
        click.echo(f"seeupo: stopped in iteration {trainer.iteration}{kept}", err=True)
        raise SystemExit(130) from None
    finally:
        trainer.environment.close()
    last = done.records[-1] if done.records else {}
    shown = ("reward", "success", "J", "F", "F_lower")
    result = {
        "status": done.status,
        "iterations": done.iterations,
        "output": settings.output or None,
        **{key: last.get(key) for key in shown},
    }

    def table(console: Any) -> None:
        values = "  ".join(f"{k} {result[k]:.4f}" for k in shown if result[k] is not None)
        console.print(f"{done.status} after {done.iterations} iterations  {values}".rstrip())
        if settings.output:
            console.print(f"written to {settings.output}")

    emit(result, as_json, table)
    if done.status != "finished":
        raise SystemExit(1)


@click.command("audit-llm")
@click.option("--out", default="results/audit-llm", show_default=True,
              type=click.Path(file_okay=False, path_type=Path))  # fmt: skip
@click.option("--games", help="Comma-separated MODELs of two or three turns.")
@click.option("--presets", help="Comma-separated algorithms.")
@click.option("--lrs", help="Comma-separated step sizes of the transformer.")
@click.option("--seeds", type=click.IntRange(min=1), help="Runs of each kind.")
@click.option("--iterations", type=click.IntRange(min=1), help="Iterations of a run.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True)
@as_json_option
def audit_llm(out: Path, workers: int, as_json: bool, **given: Any) -> None:
    """Does an update improve a small transformer? Exact J after every turn's update."""
    module = _bridge("audit_llm")
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        kind = LISTS.get(name)
        try:
            changes[name] = value if kind is None else tuple(kind(v) for v in value.split(","))
        except ValueError:
            raise click.BadParameter(
                f"is {value!r}; expected numbers with commas", param_hint=f"--{name}"
            ) from None
    plan = module.Plan(**changes)
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), disable=as_json) as progress:
        bar = progress.add_task("audit-llm", total=None)
        rows = module.audit(
            plan,
            workers=workers,
            progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )
    paths = module.report(rows, out, plan)

    def table(console: Any) -> None:
        from rich.table import Table

        grid = Table("game", "family", "preset", "step", "lowered / updates", "J start, end")
        for row in rows:
            ends = f"{row.start:.3f}, {row.end:.3f}"
            share = f"{row.lowered} / {row.updates}"
            grid.add_row(row.game, row.family, row.preset, f"{row.lr:g}", share, ends)
        console.print(grid)
        console.print(f"written to {out}")

    emit({"rows": [row.plain() for row in rows], "files": [str(p) for p in paths]}, as_json, table)
