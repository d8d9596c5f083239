"""Ledger rows: statement, assumptions, verdict, numbers, instance.

A verdict is one of

* ``holds``: an argument was checked, or every case was; `established` says which.  A search that
  found nothing is *not* a reason to say so;
* ``refuted``: an instance contradicts the statement, and the row carries it;
* ``inconclusive``: neither; the row says how much was searched.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from seeupo_theory import __version__

__all__ = ["ESTABLISHED", "VERDICTS", "Ledger", "Row", "plain", "write_text"]

VERDICTS = ("holds", "refuted", "inconclusive")

ESTABLISHED = {
    "proof": "a proof of this project, run again by the audit",
    "argument": "an argument whose steps were checked on every instance tried",
    "exhaustive": "every case of a stated finite family",
    "certificate": "a certificate that `seeupo verify` re-checks in exact arithmetic",
    "instance": "an instance in double precision, reproducible from the command line",
    "search": "a random search that found nothing (never a reason for 'holds')",
    "outside": "not a statement about finite problems; cannot be decided here",
}


def plain(value: Any) -> Any:
    """JSON-ready copy of numbers, arrays and containers; infinities become "inf"."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def _has_nan(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_nan(v) for v in value.values())
    if isinstance(value, (list, tuple)):
        return any(_has_nan(v) for v in value)
    if isinstance(value, np.ndarray):
        return value.dtype.kind == "f" and bool(np.isnan(value).any())
    return value == "nan" or (isinstance(value, (float, np.floating)) and math.isnan(value))


@dataclass(frozen=True)
class Row:
    """One verdict.

    Attributes:
        id: unique, e.g. "C4.loo" or "T1.grpo.MT.shared.finite.random.monotone".
        claim: "C1" … "C9" or "T1".
        statement: what exactly was checked.
        source: where the paper says it.
        paper: what the paper says about it ("✓", "✗", "—", or its words, ours).
        assumptions: under which the verdict stands.
        verdict: one of `VERDICTS`.
        established: one of `ESTABLISHED`.
        evidence: one sentence with the numbers that matter.
        numbers: figures behind it.
        differs: whether the verdict contradicts the paper; None where the paper is silent.
        proofs: names of the project's proofs it rests on.
        certificates: names of files of ``proofs/certificates`` that show it in exact arithmetic.
        instance: model, policy, switches and the command that shows a refutation.
        figure: data of a figure (see `seeupo_theory.claims.plots`).
    """

    id: str
    claim: str
    statement: str
    source: str
    paper: str
    assumptions: tuple[str, ...]
    verdict: str
    established: str
    evidence: str
    numbers: dict[str, Any] = field(default_factory=dict)
    differs: bool | None = None
    proofs: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()
    instance: dict[str, Any] | None = None
    figure: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"row {self.id}: verdict {self.verdict!r}; expected one of {VERDICTS}")
        if self.established not in ESTABLISHED:
            raise ValueError(
                f"row {self.id}: established {self.established!r}; expected one of "
                f"{tuple(ESTABLISHED)}"
            )
        if self.verdict == "holds" and self.established in ("search", "outside", "instance"):
            raise ValueError(
                f"row {self.id}: 'holds' cannot rest on {self.established!r}; a search that found "
                "nothing is inconclusive"
            )
        if self.verdict == "refuted" and self.established in ("search", "outside"):
            raise ValueError(f"row {self.id}: 'refuted' needs an instance or a proof")
        if self.verdict != "inconclusive" and _has_nan(self.numbers):
            raise ValueError(f"row {self.id}: {self.verdict!r} cannot rest on a number that is NaN")
        if self.verdict == "inconclusive" and self.differs is not None:
            raise ValueError(f"row {self.id}: an inconclusive verdict cannot differ or agree")
        if self.established == "proof" and not self.proofs:
            raise ValueError(f"row {self.id}: established by proof, but names none")
        if self.established == "certificate" and not self.certificates:
            raise ValueError(f"row {self.id}: established by certificate, but names none")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return plain(asdict(self))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Row:
        """Inverse of `to_dict`."""
        row = dict(data)
        for name in ("assumptions", "proofs", "certificates"):
            row[name] = tuple(row[name])
        return cls(**row)


@dataclass(frozen=True)
class Ledger:
    """All rows of one audit."""

    rows: tuple[Row, ...]
    mode: str = "full"

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for row in self.rows:
            if row.id in seen:
                raise ValueError(f"two rows are called {row.id}")
            seen.add(row.id)

    def without_failed(self, failed: Iterable[str]) -> Ledger:
        """Demote every row that rests on a proof or certificate that did not pass."""
        bad = set(failed)
        rows = []
        for row in self.rows:
            broken = bad & {*row.proofs, *row.certificates}
            if broken:
                text = f"what it rests on failed ({', '.join(sorted(broken))}); {row.evidence}"
                row = replace(row, verdict="inconclusive", evidence=text, differs=None)
            rows.append(row)
        return replace(self, rows=tuple(rows))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        counts = {v: sum(row.verdict == v for row in self.rows) for v in VERDICTS}
        return {
            "format": "seeupo-ledger/1",
            "version": __version__,
            "mode": self.mode,
            "paper": "arXiv:2602.06554",
            "counts": counts,
            "differs_from_paper": [row.id for row in self.rows if row.differs],
            "rows": [row.to_dict() for row in self.rows],
        }

    def markdown(self) -> str:
        """The ledger as a page: the grid of Table 1, then one section a claim."""
        from seeupo_theory.claims.markdown import render

        return render(self)

    def write(self, folder: Path) -> list[Path]:
        """Write ``ledger.json`` and ``ledger.md``, each whole or not at all."""
        text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        return [
            write_text(folder / "ledger.json", text + "\n"),
            write_text(folder / "ledger.md", self.markdown()),
        ]


def write_text(path: Path, text: str) -> Path:
    """Write a file atomically (a temporary file beside it, then a rename)."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


def select(rows: Sequence[Row], prefix: str) -> list[Row]:
    """Rows whose id is `prefix` or lies below it ("C4" selects "C4.loo")."""
    return [row for row in rows if row.id == prefix or row.id.startswith(prefix + ".")]
