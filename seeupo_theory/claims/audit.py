"""The audit: every check, in parallel, resumable, written whole or not at all.

A *task* is a claim (C1 … C9), a row of Table 1's grid, or one of the project's proofs.  Each task
runs in a process of its own and leaves its rows in ``OUT/.partial``; a run that is interrupted finds
them there next time and goes on with the rest.  Partial results are used only by an audit of the
same mode and the same source code.  At the end ledger, instances and figures are written and the
partial results go.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from seeupo_theory._interrupts import deaf, starting_workers
from seeupo_theory.claims.checks._tools import Effort
from seeupo_theory.claims.ledger import Ledger, Row, plain, select, write_text

__all__ = ["CHECKS", "audit", "selected", "task_names"]

CHECKS = {
    "C1": "c1_c3_gradients:check_c1",
    "C2": "c2_c4_c7_normalisation:check_c2",
    "C3": "c1_c3_gradients:check_c3",
    "C4": "c2_c4_c7_normalisation:check_c4",
    "C5": "c5_c8_sharing:check_c5",
    "C6": "c6_c9_orders:check_c6",
    "C7": "c2_c4_c7_normalisation:check_c7",
    "C8": "c5_c8_sharing:check_c8",
    "C9": "c6_c9_orders:check_c9",
}

QUICK_ROWS = ("ppo", "grpo", "rloo", "gspo", "seeupo")
"""The rows of the paper's own Table 1; a quick audit does these."""

WORKERS = 2

Progress = Callable[[str, str], None]
"""Called with a task's name and "start", "done" or "reused"."""


def task_names(quick: bool = False) -> list[str]:
    """All tasks of an audit, longest first."""
    from seeupo_theory.claims.checks.table1 import ROWS

    rows = [f"T1.{r.preset}" for r in reversed(ROWS) if not quick or r.preset in QUICK_ROWS]
    proofs = [] if quick else [f"proof.{name}" for name in _proof_names()]
    return [*rows, *CHECKS, *proofs, "certificates"]


def _proof_names() -> list[str]:
    from proofs._base import discover

    return sorted(discover())


def certificate_folder() -> Path:
    """Where the project's certificates lie."""
    import proofs

    return Path(proofs.__file__).parent / "certificates"


def _failed_certificates() -> list[str]:
    from proofs.verifier import verify_file

    return [
        p.stem for p in sorted(certificate_folder().glob("*.json")) if not verify_file(p).accepted
    ]


def _run_task(name: str, quick: bool) -> dict[str, Any]:
    """One task, in a worker process: {"rows": [...]} or {"proof": name, "status": ...}."""
    effort = Effort(quick)
    if name == "certificates":
        return {"failed": _failed_certificates()}
    if name.startswith("proof."):
        from proofs._base import discover, run

        outcome = run(discover()[name[len("proof.") :]])
        failures = [f"{f.step.name}: {f.failure}" for f in outcome.failures]
        failed = [outcome.result.name] if failures else []
        return {"failed": failed, "status": outcome.status, "failures": failures}
    if name.startswith("T1."):
        from seeupo_theory.claims.checks import table1

        row = next(r for r in table1.ROWS if r.preset == name[len("T1.") :])
        return {"rows": [r.to_dict() for r in table1.check(effort, row)]}
    module, function = CHECKS[name].split(":")
    check = getattr(import_module(f"seeupo_theory.claims.checks.{module}"), function)
    return {"rows": [r.to_dict() for r in check(effort)]}


def _fingerprint(quick: bool) -> str:
    """Changes with the mode and with every source file that a verdict depends on."""
    digest = hashlib.sha256(b"quick" if quick else b"full")
    root = Path(__file__).resolve().parents[2]
    for package in ("bandits", "seeupo_theory", "proofs"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def selected(claim: str | None, quick: bool) -> list[str]:
    """Tasks of an audit, or those that a claim needs; raises ValueError for an unknown claim."""
    names = task_names(quick)
    if claim is None:
        return names
    chosen = [
        n for n in names if n == claim or claim.startswith(n + ".") or n.startswith(claim + ".")
    ]
    if not chosen:
        everything = task_names()
        hint = (
            " (only a full audit has it)"
            if any(n == claim or claim.startswith(n + ".") for n in everything)
            else ""
        )
        raise ValueError(
            f"claim is {claim!r}; expected C1 … C9, T1, T1.ROW or the id of a ledger row{hint}"
        )
    return chosen


def _reuse(folder: Path, names: Sequence[str], mark: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in names:
        try:
            data = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if data.get("fingerprint") == mark:
            yield name, data


def _prepare_worker() -> None:
    deaf()
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def audit(
    out: str | Path = "results/audit",
    *,
    quick: bool = False,
    claim: str | None = None,
    workers: int = WORKERS,
    progress: Progress | None = None,
) -> Ledger:
    """Run the audit; write ``ledger.json``, ``ledger.md``, ``report.html``, instances and figures.

    Args:
        out: folder, made if it is missing.
        quick: fewer instances, the rows of the paper's Table 1 only, proofs not run again.
        claim: only this claim, grid row or ledger row; nothing else is computed.  The files are
            then named after it and leave a whole ledger alone.
        workers: processes.
        progress: called as tasks start and finish.

    Raises:
        ValueError: an unknown claim, or `workers` below 1.
        OSError: the folder cannot be written.
    """
    if workers < 1:
        raise ValueError(f"workers is {workers}; expected at least 1")
    names = selected(claim, quick)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / ".partial"
    partial.mkdir(exist_ok=True)
    mark = _fingerprint(quick)
    say = progress or (lambda name, event: None)
    done = dict(_reuse(partial, names, mark))
    for name in done:
        say(name, "reused")
    for name, result in _compute([n for n in names if n not in done], quick, workers, say):
        result["fingerprint"] = mark
        write_text(partial / f"{name}.json", json.dumps(plain(result), allow_nan=False))
        done[name] = result
    ledger = _assemble([done[name] for name in names], quick)
    if claim is not None:
        chosen = select(ledger.rows, claim) or list(ledger.rows)
        ledger = Ledger(tuple(chosen), ledger.mode)
    _write(ledger, folder, claim)
    for name in names:
        (partial / f"{name}.json").unlink(missing_ok=True)
    with suppress(OSError):  # results of another, interrupted audit may be left in it
        partial.rmdir()
    return ledger


def _compute(
    names: Sequence[str], quick: bool, workers: int, say: Progress
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Results as they finish; the processes are ended when the caller stops listening."""
    if not names:
        return
    pool = ProcessPoolExecutor(
        min(workers, len(names)), mp_context=get_context("spawn"), initializer=_prepare_worker
    )
    waiting = list(names)
    running: dict[Future[dict[str, Any]], str] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                name = waiting.pop(0)
                say(name, "start")
                with starting_workers():
                    running[pool.submit(_run_task, name, quick)] = name
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                name = running.pop(future)
                result = future.result()
                say(name, "done")
                yield name, result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _assemble(results: Sequence[dict[str, Any]], quick: bool) -> Ledger:
    rows = [Row.from_dict(row) for result in results for row in result.get("rows", [])]
    order = {name: i for i, name in enumerate([*CHECKS, "T1"])}
    rows.sort(key=lambda row: order[row.claim])
    failed = [name for result in results for name in result.get("failed", [])]
    return Ledger(tuple(rows), "quick" if quick else "full").without_failed(failed)


def _write(ledger: Ledger, folder: Path, claim: str | None) -> None:
    from seeupo_theory.claims import report
    from seeupo_theory.claims.plots import save_all

    instances = folder / "instances"
    instances.mkdir(exist_ok=True)
    for row in ledger.rows:
        for kind in ("model", "policy", "parameters"):
            content = (row.instance or {}).get(kind)
            if content is not None:
                text = json.dumps(content, allow_nan=False) + "\n"
                write_text(instances / f"{row.instance['name']}.{kind}.json", text)  # type: ignore[index]
    if claim is None:
        save_all(ledger.rows, folder / "figures")
        ledger.write(folder)
        report.write(ledger, folder)
    else:
        text = json.dumps(ledger.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
        write_text(folder / f"{claim}.json", text + "\n")
