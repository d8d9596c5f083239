"""Seconds from typing a command to its result, against importing NumPy alone.

Each run is a new process.  "Cold" runs get an empty folder for compiled programs each time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Row, compare

__all__ = ["rows"]

MODEL = {
    "format": "seeupo-model/1",
    "kind": "bandit",
    "rewards": [[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.5], ["3/10", 0.0]]],
}
MAIN = "from seeupo_theory.cli import main; main()"
RESULT_SECONDS = 3.0
"""A first result should be there within this time."""


def rows(repeats: int) -> Iterator[Row]:
    """Bare import, `seeupo inspect` and `seeupo step` of a small model."""
    root = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model.json"
        model.write_text(json.dumps(MODEL))
        environment = {
            **os.environ,
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PYTHONPATH": os.pathsep.join([str(root), *filter(None, sys.path)]),
        }

        def run(*arguments: str, cold: bool = False) -> str:
            if cold:
                shutil.rmtree(folder / "cache", ignore_errors=True)
            done = subprocess.run(
                [sys.executable, "-c", *arguments],
                env=environment,
                cwd=folder,
                capture_output=True,
                text=True,
            )
            if done.returncode:
                raise AssertionError(f"{' '.join(arguments)} failed: {done.stderr.strip()}")
            return done.stdout

        def numpy_alone() -> str:
            return run("import numpy")

        yield compare(
            "start-up: import",
            ("import seeupo_theory", lambda: run("import seeupo_theory")),
            ("import numpy", numpy_alone),
            repeats,
            goal=0.5,
        )
        for command in (["inspect"], ["step", "--algorithm", "seeupo"]):
            for cold in (False, True):
                arguments = (MAIN, *command[:1], str(model), *command[1:], "--json")
                json.loads(run(*arguments))  # one JSON object, or an error here
                row = compare(
                    f"start-up: seeupo {command[0]}, {'nothing' if cold else 'programs'} cached",
                    (
                        f"seeupo {' '.join(command)}",
                        lambda a=arguments, c=cold: run(*a, cold=c),  # type: ignore[misc]
                    ),
                    ("import numpy", numpy_alone),
                    repeats,
                    warm_up=1,
                )
                within = "within" if row.ours_figure <= RESULT_SECONDS else "MORE THAN"
                note = f"result after {row.ours_figure:.2f} s, {within} {RESULT_SECONDS:g} s"
                yield Row(**{**row.__dict__, "note": note})
