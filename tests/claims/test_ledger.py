"""Rows, ledgers and their files."""

import json
import math

import numpy as np
import pytest

from seeupo_theory.claims import audit as auditing
from seeupo_theory.claims.ledger import Ledger, Row, plain, select, write_text
from seeupo_theory.claims.plots import claim_figure, grid_figure, save_all


def row(**changes):
    fields = {
        "id": "C4.loo",
        "claim": "C4",
        "statement": "the mean is right",
        "source": "Eq. 9",
        "paper": "✓",
        "assumptions": ("exact",),
        "verdict": "holds",
        "established": "proof",
        "evidence": "factor 1",
        "proofs": ("baseline-invariance",),
    }
    return Row(**{**fields, **changes})


def cell(preset, question, verdict, established, turns="ST"):
    return row(
        id=f"T1.{preset}.{turns}.independent.exact.random.{question}",
        claim="T1",
        verdict=verdict,
        established=established,
    )


@pytest.mark.parametrize("established", ["search", "outside", "instance"])
def test_a_search_never_establishes_holds(established):
    with pytest.raises(ValueError, match="holds"):
        row(established=established)


@pytest.mark.parametrize("established", ["search", "outside"])
def test_refuted_needs_something_to_show(established):
    with pytest.raises(ValueError, match="refuted"):
        row(verdict="refuted", established=established)


def test_unknown_words_are_errors():
    with pytest.raises(ValueError, match="verdict"):
        row(verdict="true")
    with pytest.raises(ValueError, match="established"):
        row(established="belief")


def test_what_a_row_rests_on_is_named():
    with pytest.raises(ValueError, match="names none"):
        row(proofs=())
    with pytest.raises(ValueError, match="names none"):
        row(established="certificate")


def test_a_failed_proof_demotes_every_row_that_rests_on_it():
    ledger = Ledger((row(), row(id="C4.mean", proofs=("other",))))
    after = ledger.without_failed(["baseline-invariance"])
    assert [r.verdict for r in after.rows] == ["inconclusive", "holds"]
    assert "baseline-invariance" in after.rows[0].evidence


def test_round_trip_counts_and_duplicates(tmp_path):
    ledger = Ledger(
        (row(numbers={"a": np.float64(1.5), "b": np.inf}), row(id="C4.mean", differs=True))
    )
    ledger.write(tmp_path)
    data = json.loads((tmp_path / "ledger.json").read_text())
    assert data["counts"] == {"holds": 2, "refuted": 0, "inconclusive": 0}
    assert data["differs_from_paper"] == ["C4.mean"]
    assert data["rows"][0]["numbers"] == {"a": 1.5, "b": "inf"}
    assert [Row.from_dict(r) for r in data["rows"]][1] == ledger.rows[1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ledger.json", "ledger.md"]
    with pytest.raises(ValueError, match=r"C4\.loo"):
        Ledger((row(), row()))


def test_markdown_has_the_grid_the_paper_marks_and_the_instances():
    shown = {"name": "x", "command": "seeupo step x.json"}
    ledger = Ledger(
        (
            row(),
            row(id="C5.a", claim="C5", verdict="refuted", established="instance", instance=shown),
            cell("grpo", "monotone", "refuted", "instance"),
            cell("grpo", "global", "inconclusive", "search"),
        )
    )
    text = ledger.markdown()
    assert "| grpo | ✓" in text and "✗?" in text
    assert "`seeupo step x.json`" in text
    widths = {len(line) for line in text.splitlines() if line.startswith("| C")}
    assert len(widths) == 1


def test_writing_is_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "one")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert path.read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_select_takes_a_row_or_a_branch():
    rows = [row(), row(id="C4.mean"), row(id="C41.x")]
    assert [r.id for r in select(rows, "C4")] == ["C4.loo", "C4.mean"]
    assert [r.id for r in select(rows, "C4.mean")] == ["C4.mean"]


def test_figures_draw_the_numbers_of_the_rows(tmp_path):
    data = {
        "kind": "lines",
        "x": [2, 4],
        "series": {"measured": [0.5, 0.75], "1 − 1/G": [0.5, 0.75]},
        "xlabel": "G",
        "ylabel": "factor",
    }
    figure = claim_figure([row(figure=data)])
    lines = figure.axes[0].get_lines()
    np.testing.assert_array_equal(lines[0].get_xydata(), [[2, 0.5], [4, 0.75]])
    grid = grid_figure([cell("grpo", "monotone", "refuted", "instance")])
    texts = [t.get_text() for t in grid.axes[0].texts]
    assert "✗" in texts
    written = save_all([row(figure=data), cell("grpo", "global", "holds", "proof")], tmp_path)
    assert sorted(p.name for p in written) == ["C4.png", "T1.png"]
    with pytest.raises(ValueError, match="kind"):
        claim_figure([row(figure={**data, "kind": "pie"})])


def test_plain_is_json_ready():
    value = {"a": (1, np.arange(2)), "b": float("nan"), 3: np.bool_(True)}
    assert json.dumps(plain(value), allow_nan=False) == '{"a": [1, [0, 1]], "b": "nan", "3": true}'


def test_tasks_cover_all_claims_and_unknown_ones_are_errors():
    names = auditing.task_names()
    assert set(auditing.CHECKS) <= set(names)
    assert any(n.startswith("proof.") for n in names)
    assert auditing.selected("C4.loo", False) == ["C4"]
    assert auditing.selected("T1.grpo.ST.shared", True) == ["T1.grpo"]
    with pytest.raises(ValueError, match="C10"):
        auditing.selected("C10", False)
    with pytest.raises(ValueError, match="only a full audit"):
        auditing.selected("T1.trajectory-ppo", True)


def fake(name, quick):
    return {"rows": [row(id=f"{name}.x", claim=name, evidence=str(quick)).to_dict()]}


def test_an_interrupted_audit_resumes_and_leaves_no_half_ledger(tmp_path, monkeypatch):
    computed = []

    def compute(names, quick, workers, say):
        for number, name in enumerate(names):
            if number == 3 and not computed_before:
                raise KeyboardInterrupt
            computed.append(name)
            yield name, fake(name, quick)

    monkeypatch.setattr(auditing, "task_names", lambda quick=False: list(auditing.CHECKS))
    monkeypatch.setattr(auditing, "_compute", compute)
    computed_before = False
    with pytest.raises(KeyboardInterrupt):
        auditing.audit(tmp_path, quick=True)
    assert not (tmp_path / "ledger.json").exists()
    first, computed_before = list(computed), True
    events = []
    ledger = auditing.audit(tmp_path, quick=True, progress=lambda n, e: events.append((n, e)))
    assert [n for n, e in events if e == "reused"] == first
    assert sorted(computed) == sorted(auditing.CHECKS)
    assert [r.claim for r in ledger.rows] == list(auditing.CHECKS)
    assert not (tmp_path / ".partial").exists()


def test_partial_results_of_another_mode_are_not_reused(tmp_path, monkeypatch):
    monkeypatch.setattr(auditing, "task_names", lambda quick=False: ["C1"])
    monkeypatch.setattr(
        auditing, "_compute", lambda names, quick, w, s: ((n, fake(n, quick)) for n in names)
    )
    (tmp_path / ".partial").mkdir()
    stale = {**fake("C1", "stale"), "fingerprint": "other"}
    (tmp_path / ".partial" / "C1.json").write_text(json.dumps(stale))
    assert auditing.audit(tmp_path, quick=True).rows[0].evidence == "True"


@pytest.mark.parametrize("value", [math.nan, [1.0, math.nan], {"a": np.array([np.nan])}, "nan"])
def test_no_verdict_rests_on_nan(value):
    with pytest.raises(ValueError, match="NaN"):
        row(numbers={"x": value}, verdict="holds", established="argument")
    assert row(numbers={"x": value}, verdict="inconclusive", established="search").numbers


def test_an_inconclusive_row_neither_differs_nor_agrees():
    with pytest.raises(ValueError, match="inconclusive"):
        row(verdict="inconclusive", established="search", differs=False)
