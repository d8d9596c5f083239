"""Checkpoints: written whole or not at all, and enough to go on bit for bit.

A checkpoint is one file, ``checkpoint-000012.pt``: the iteration, the policy (or its adapter), the
optimisers, the generators and the configuration.  It is written under another name, flushed to the
disk and then renamed, so that a process killed at any moment leaves the last whole one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

__all__ = ["latest", "load", "save"]

PATTERN = "checkpoint-{:06d}.pt"


def save(directory: str | Path, iteration: int, state: dict[str, Any], keep: int = 2) -> Path:
    """Write a checkpoint atomically and remove all but the newest `keep`."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PATTERN.format(iteration)
    part = path.with_suffix(f".part{os.getpid()}")
    with open(part, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    for old in _all(folder)[:-keep]:
        old.unlink(missing_ok=True)
    for left in folder.glob("checkpoint-*.part*"):
        left.unlink(missing_ok=True)
    return path


def _all(folder: Path) -> list[Path]:
    return sorted(folder.glob("checkpoint-??????.pt"))


def latest(directory: str | Path) -> Path | None:
    """The newest checkpoint, or None."""
    found = _all(Path(directory))
    return found[-1] if found else None


def load(path: str | Path) -> dict[str, Any]:
    """Read a checkpoint (tensors and plain values only; nothing in it is run)."""
    return torch.load(path, map_location="cpu", weights_only=True)
