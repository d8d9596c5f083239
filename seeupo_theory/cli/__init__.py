"""The command line, `seeupo COMMAND MODEL`: a thin skin over `seeupo_theory.api`.

``--json`` prints one JSON object on standard output and nothing else; otherwise a readable table.
Errors go to standard error as one line, with exit status 2.  Heavy packages are imported by the
command that needs them.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from seeupo_theory import __version__
from seeupo_theory.cli import bridge, claims, figures, models

__all__ = ["cli", "main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(__version__, prog_name="seeupo")
@click.pass_context
def cli(context: click.Context) -> None:
    """Exact answers about policy-optimisation algorithms.

    MODEL is a JSON file, zoo:NAME, gym:NAME?horizon=12 or openspiel:NAME.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in (
    models.inspect,
    models.advantage,
    models.step,
    models.run,
    models.zoo,
    claims.audit,
    claims.falsify,
    claims.verify,
    figures.figure,
    bridge.train,
    bridge.audit_llm,
):
    cli.add_command(_command)


def _one_line(error: object) -> str:
    return " ".join(str(error).split())


_asked: list[int] = []
"""Signals that asked the running command to stop."""


def _stop(number: int, frame: object) -> None:
    """End the worker processes too: they would go on with what is left to do."""
    _asked.append(number)
    for child in multiprocessing.active_children():
        child.terminate()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


@contextmanager
def _signals() -> Iterator[None]:
    """Handle what asks a command to stop, as long as it runs; only a main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _asked.clear()
    before = {n: signal.signal(n, _stop) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; never shows a traceback for a wrong input."""
    try:
        with _signals():
            cli.main(args=None if arguments is None else list(arguments), standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("seeupo: interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        click.echo(f"seeupo: {_one_line(error.format_message())}", err=True)
        sys.exit(2)
    except (ValueError, OSError, ImportError, MemoryError, OverflowError) as error:
        click.echo(f"seeupo: {_one_line(error) or type(error).__name__}", err=True)
        sys.exit(2)
    except RuntimeError as error:
        if _asked:  # who waited for a worker that was ended may say so first
            click.echo("seeupo: interrupted", err=True)
            sys.exit(128 + _asked[-1])
        if type(error).__name__ not in ("JaxRuntimeError", "XlaRuntimeError"):
            raise
        click.echo(f"seeupo: {_one_line(error) or type(error).__name__}", err=True)
        sys.exit(2)
