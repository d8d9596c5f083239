"""Where a run's numbers go: JSONL, TensorBoard, the console; other trackers by a callback.

A record is a flat dictionary with ``iteration`` and ``kind``: "turn" (after one turn's update) or
"iteration".  `metrics.jsonl` holds one a line.  On resuming, lines of iterations that have to be
run again are removed first, so that every iteration stands there once.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Logs", "read"]

Record = dict[str, Any]


def read(path: str | Path) -> list[Record]:
    """Records of a JSONL file; a last line that was cut off is left out."""
    out = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        try:
            out.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return out


class Logs:
    """Sinks of one run.

    Args:
        directory: of metrics.jsonl and TensorBoard's files; None writes no file.
        first: first iteration to come; later records of an earlier attempt are removed.
        callbacks: called with every record.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        first: int,
        total: int,
        tensorboard: bool = True,
        progress: bool = True,
        callbacks: Sequence[Callable[[Record], None]] = (),
    ) -> None:
        self.callbacks = tuple(callbacks)
        self.file: Any = None
        self.board: Any = None
        self.bar: Any = None
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / "metrics.jsonl"
            if path.exists():
                kept = [r for r in read(path) if r.get("iteration", 0) < first]
                part = path.with_suffix(".part")
                part.write_text("".join(json.dumps(r) + "\n" for r in kept), encoding="utf-8")
                os.replace(part, path)
            self.file = path.open("a", encoding="utf-8")
            if tensorboard:
                self.board = _board(directory, first)
        if progress:
            self.bar = _bar(first, total)

    def __call__(self, record: Record) -> None:
        """Send a record everywhere."""
        if self.file is not None:
            self.file.write(json.dumps(_finite(record)) + "\n")
            self.file.flush()
        if self.board is not None:
            step = record["iteration"]
            turns = record.get("turns")
            head = record["kind"] if not turns else f"turn-{'-'.join(map(str, turns))}"
            for key, value in record.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    self.board.add_scalar(f"{head}/{key}", value, step)
        if self.bar is not None and record["kind"] == "iteration":
            progress, task = self.bar
            shown = {k: record[k] for k in ("reward", "J", "F") if record.get(k) is not None}
            text = "  ".join(f"{k} {v:.4f}" for k, v in shown.items())
            progress.update(task, completed=record["iteration"] + 1, description=text)
        for callback in self.callbacks:
            callback(record)

    def close(self) -> None:
        """Close files and the bar."""
        if self.file is not None:
            self.file.close()
        if self.board is not None:
            self.board.close()
        if self.bar is not None:
            self.bar[0].stop()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _board(directory: Path, first: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # an optional package
        return None
    return SummaryWriter(str(directory / "tensorboard"), purge_step=first)


def _bar(first: int, total: int) -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    progress = Progress(*columns)
    progress.start()
    return progress, progress.add_task("", total=total, completed=first)
