"""The ledger as one page of HTML that needs nothing else: no network, no folder beside it.

The verdict grid and the claims are tables of buttons; a button opens statement, assumptions,
numbers, figure and the command that computes it again.  All of it stands in the page as articles,
so that it can be printed, searched and read without scripts; the script only shows one at a time.

`render` fills the templates of ``claims/templates`` with Jinja2, autoescape on: whatever a ledger
holds arrives as text.  A content-security policy allows the page's own style and script, by their
hashes, and images inside the page; nothing can be fetched or run besides.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from seeupo_theory import figures
from seeupo_theory.claims.ledger import ESTABLISHED, VERDICTS, Ledger, Row, write_text
from seeupo_theory.claims.markdown import COLUMNS, SIGNS, grid
from seeupo_theory.claims.plots import row_figure

__all__ = ["NAME", "render", "write"]

NAME = "report.html"

QUESTIONS = {"monotone": "monotone improvement", "global": "global convergence"}

WORDS = {
    "ST": "single turn",
    "MT": "multi-turn",
    "independent": "independent tables",
    "shared": "shared weights",
    "exact": "infinite group",
    "finite": "finite group",
    "deterministic": "deterministic reward",
    "random": "random reward",
}

HEADS = {
    "independent": "independent tables",
    "shared": "shared weights",
    "exact": "G = ∞",
    "finite": "G < ∞",
    "deterministic": "det",
    "random": "rnd",
}


@dataclass(frozen=True)
class Picture:
    """A figure inside the page, and the same in words."""

    source: str
    text: str


@dataclass(frozen=True)
class Entry:
    """A row as the page shows it."""

    row: Row
    title: str
    algorithm: str
    picture: Picture | None
    numbers: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]
    instance: tuple[tuple[str, str], ...]

    @property
    def anchor(self) -> str:
        """Id of the article; row ids are unique and hold no spaces."""
        return f"row-{self.row.id}"


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}".replace("-", "−")
    if isinstance(value, (list, tuple)):
        return ", ".join(_number(v) for v in value)
    if value is None:
        return "none"
    return str(value)


def _flat(numbers: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested numbers as (name, text) pairs; names are put together with " · "."""
    for name, value in numbers.items():
        label = f"{prefix}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{label} · ")
        else:
            yield label, _number(value)


def _figure_text(row: Row) -> str:
    """What a figure shows, for those who do not see it."""
    if row.figure is not None:
        x = ", ".join(str(v) for v in row.figure["x"])
        series = "; ".join(f"{label}: {_number(y)}" for label, y in row.figure["series"].items())
        return f"{row.figure['ylabel']} against {row.figure['xlabel']} ({x}). {series}."
    values = (row.instance or {})["values"]
    return f"Expected return J along the instance: {_number(values)}."


def _picture(row: Row) -> Picture | None:
    figure = row_figure(row)
    if figure is None:
        return None
    data = base64.b64encode(figures.svg(figure).encode("utf-8")).decode("ascii")
    return Picture(f"data:image/svg+xml;base64,{data}", _figure_text(row))


def _commands(row: Row, mode: str) -> Iterator[tuple[str, str]]:
    if row.instance is not None and "command" in row.instance:
        yield "See the instance", row.instance["command"]
    for name in row.certificates:
        yield "Check the certificate in exact arithmetic", f"seeupo verify {name}"
    quick = " --quick" if mode == "quick" else ""
    yield "Compute this row again", f"seeupo audit --claim {row.id}{quick}"


def _instance(row: Row) -> Iterator[tuple[str, str]]:
    for name in ("model", "policy", "parameters", "switches"):
        content = (row.instance or {}).get(name)
        if content is not None:
            yield name, json.dumps(content, ensure_ascii=False)


def _title(row: Row) -> str:
    if row.claim != "T1":
        return row.id
    _, preset, *column, question = row.id.split(".")
    setting = ", ".join(WORDS.get(part, part) for part in column)
    return f"{preset}: {QUESTIONS.get(question, question)} ({setting})"


def _entry(row: Row, mode: str) -> Entry:
    return Entry(
        row=row,
        title=_title(row),
        algorithm=row.id.split(".")[1] if row.claim == "T1" else "",
        picture=_picture(row),
        numbers=tuple(_flat(row.numbers)),
        commands=tuple(_commands(row, mode)),
        instance=tuple(_instance(row)),
    )


def _grids(entries: Mapping[str, Entry], ledger: Ledger) -> list[dict[str, Any]]:
    """One table for single-turn and one for multi-turn interaction."""
    cells = grid(ledger.rows)
    out = []
    for turns in ("ST", "MT"):
        columns = [c for c in COLUMNS if c[0] == turns]
        lines = []
        for preset, settings in cells.items():
            found = [r for c in columns for r in settings.get(c, {}).values()]
            marks = [
                [
                    entries[settings[c][q].id] if q in settings.get(c, {}) else None
                    for q in QUESTIONS
                ]
                for c in columns
            ]
            if found:
                lines.append({"preset": preset, "paper": found[0].paper, "cells": marks})
        if lines:
            heads = [[HEADS[c[k]] for c in columns] for k in (1, 2, 3)]
            out.append(
                {"turns": turns, "name": WORDS[turns], "heads": _merged(heads), "rows": lines}
            )
    return out


def _merged(heads: list[list[str]]) -> list[list[tuple[str, int]]]:
    """Equal neighbours of a heading's line as (text, columns), within the heading above."""
    out, cuts = [], {0}
    for line in heads:
        starts = [i for i, text in enumerate(line) if i in cuts or text != line[i - 1]]
        cuts |= set(starts)
        ends = [*starts[1:], len(line)]
        out.append([(line[a], b - a) for a, b in zip(starts, ends, strict=True)])
    return out


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("seeupo_theory.claims"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"


def render(ledger: Ledger) -> str:
    """The whole page."""
    environment = _environment()
    assert environment.loader is not None
    style, script = (
        environment.loader.get_source(environment, name)[0] for name in ("report.css", "report.js")
    )
    entries = {row.id: _entry(row, ledger.mode) for row in ledger.rows}
    data = ledger.to_dict()
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return environment.get_template("report.html").render(
        policy=policy,
        # our own files, not the ledger's: they go in as they are
        style=Markup(style),
        script=Markup(script),
        version=data["version"],
        mode=data["mode"],
        paper=data["paper"],
        counts=data["counts"],
        differing=len(data["differs_from_paper"]),
        total=len(ledger.rows),
        verdicts=VERDICTS,
        signs=SIGNS,
        established=ESTABLISHED,
        questions=QUESTIONS,
        words=WORDS,
        claims=[e for e in entries.values() if e.row.claim != "T1"],
        cells=[e for e in entries.values() if e.row.claim == "T1"],
        grids=_grids(entries, ledger),
        algorithms=list(dict.fromkeys(e.algorithm for e in entries.values() if e.algorithm)),
    )


def write(ledger: Ledger, folder: str | Path) -> Path:
    """Write ``report.html`` into an existing folder, whole or not at all.

    Raises:
        OSError: the folder does not exist or cannot be written.
    """
    return write_text(Path(folder) / NAME, render(ledger))
