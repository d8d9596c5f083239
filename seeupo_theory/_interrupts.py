"""Ctrl-C and worker processes: a terminal interrupts all of them, and the command ends the others."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["deaf", "starting_workers"]


@contextmanager
def starting_workers() -> Iterator[None]:
    """Processes started inside never see an interrupt, not even while they start.

    The interrupt is held back here as long, and then arrives; a process inherits what is held back.
    """
    if not hasattr(signal, "pthread_sigmask"):  # where there are no groups of processes
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def deaf() -> None:
    """Initialiser of a worker: the parent ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
