"""The ledger as Markdown: reads well in a terminal and on a forge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seeupo_theory.claims.ledger import Ledger, Row

__all__ = ["COLUMNS", "SIGNS", "grid", "render"]

SIGNS = {"holds": "✓", "refuted": "✗", "inconclusive": "?"}

COLUMNS = tuple(
    (turns, param, group, reward)
    for turns in ("ST", "MT")
    for param in ("independent", "shared")
    for group in ("exact", "finite")
    for reward in ("deterministic", "random")
)
"""Columns of the verdict grid, in the order of the ids of its cells."""

_SHORT = {
    "independent": "ind",
    "shared": "shd",
    "exact": "G=∞",
    "finite": "G<∞",
    "deterministic": "det",
    "random": "rnd",
}


def grid(rows: Iterable[Row]) -> dict[str, dict[tuple[str, ...], dict[str, Row]]]:
    """Rows of Table 1 by preset, then column, then question."""
    out: dict[str, dict[tuple[str, ...], dict[str, Row]]] = {}
    for row in rows:
        if row.claim == "T1":
            _, preset, *column, question = row.id.split(".")
            out.setdefault(preset, {}).setdefault(tuple(column), {})[question] = row
    return out


def _table(head: list[str], body: list[list[str]]) -> list[str]:
    width = [max(len(r[i]) for r in [head, *body]) for i in range(len(head))]
    line = lambda cells: (  # noqa: E731
        "| " + " | ".join(c.ljust(w) for c, w in zip(cells, width, strict=True)) + " |"
    )
    return [line(head), "|" + "|".join("-" * (w + 2) for w in width) + "|", *map(line, body)]


def _grid_lines(rows: Iterable[Row]) -> list[str]:
    table = grid(rows)
    if not table:
        return []
    lines = [
        "## Table 1, cell by cell",
        "",
        "Two signs a cell: monotone improvement, then global convergence (✓ holds, ✗ refuted, "
        "? inconclusive). ind/shd: independent tables or shared weights; G=∞/G<∞: infinite or finite "
        "group; det/rnd: deterministic or random reward. The paper's marks are beside the name.",
        "",
    ]
    for turns in ("ST", "MT"):
        columns = [c for c in COLUMNS if c[0] == turns]
        head = [turns, "paper", *(" ".join(_SHORT[part] for part in c[1:]) for c in columns)]
        body = []
        for preset, cells in table.items():
            first = next(iter(next(iter(cells.values())).values()))
            paper = next(
                (r.paper for c, q in cells.items() if c[0] == turns for r in q.values()),
                first.paper,
            )
            marks = []
            for column in columns:
                cell = cells.get(column, {})
                marks.append(
                    "".join(
                        SIGNS[cell[q].verdict] if q in cell else "·" for q in ("monotone", "global")
                    )
                )
            body.append([preset, paper, *marks])
        lines += [*_table(head, body), ""]
    return lines


def _row_lines(row: Row) -> list[str]:
    lines = [
        f"### {row.id} — {row.verdict}",
        "",
        f"{row.statement[0].upper()}{row.statement[1:]}.",
        "",
        f"- **Paper** ({row.source}): {row.paper}" + (" — **differs**" if row.differs else ""),
        f"- **Assumptions**: {'; '.join(row.assumptions)}",
        f"- **Evidence** ({row.established}): {row.evidence}",
    ]
    if row.proofs:
        lines.append(f"- **Proofs**: {', '.join(row.proofs)}")
    for name in row.certificates:
        lines.append(f"- **Certificate**: `seeupo verify {name}`")
    if row.instance is not None:
        lines.append(f"- **Instance**: `{row.instance['command']}`")
    return [*lines, ""]


def render(ledger: Ledger) -> str:
    """The whole page."""
    data = ledger.to_dict()
    counts = ", ".join(f"{n} {v}" for v, n in data["counts"].items())
    claims = [row for row in ledger.rows if row.claim != "T1"]
    lines = [
        "# Ledger",
        "",
        f"Claims of arXiv:2602.06554, computed by seeupo {data['version']} ({ledger.mode} audit): "
        f"{counts}. Commands run in this folder.",
        "",
    ]
    if claims:
        body = [
            [
                row.id,
                row.verdict,
                row.established,
                "yes" if row.differs else ("no" if row.differs is False else "—"),
                row.evidence.replace("|", "\\|"),
            ]
            for row in claims
        ]
        head = ["claim", "verdict", "rests on", "differs from the paper", "evidence"]
        lines += ["## Claims", "", *_table(head, body), ""]
    lines += _grid_lines(ledger.rows)
    if claims:
        lines += ["## Claims in full", ""]
        for row in claims:
            lines += _row_lines(row)
    cells = [row for row in ledger.rows if row.claim == "T1"]
    if cells:
        lines += ["## Cells in full", ""]
        body = [
            [
                row.id[3:],
                row.verdict,
                row.established,
                row.evidence.replace("|", "\\|"),
                f"`{row.instance['command']}`" if row.instance else "",
            ]
            for row in cells
        ]
        lines += _table(["cell", "verdict", "rests on", "evidence", "instance"], body)
    return "\n".join(lines).rstrip() + "\n"
