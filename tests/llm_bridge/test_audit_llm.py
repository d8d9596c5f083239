"""The audit of a transformer: counts, intervals, files."""

import csv
import json

import pytest

from llm_bridge import audit_llm
from llm_bridge.audit_llm import FAMILIES, Plan, audit, report, summarise, wilson

SMALL = Plan(
    games=("zoo:xor",),
    presets=("seeupo", "rloo"),
    lrs=(0.03,),
    seeds=1,
    iterations=2,
    tasks=2,
    group=4,
    epochs=2,
    warm_steps=10,
)


@pytest.fixture(scope="module")
def rows():
    return audit(SMALL, workers=1)


def test_every_family_and_preset_has_a_row(rows):
    assert [(r.family, r.preset) for r in rows] == [(f, p) for f in FAMILIES for p in SMALL.presets]
    for row in rows:
        updates = 2 * (2 if row.preset == "seeupo" else 1)  # turns, or one joint update
        assert row.updates + row.unchanged == updates
        assert row.low <= row.share <= row.high
        assert (row.worst < 0) == (row.lowered > 0) or abs(row.worst) < 1e-4
        assert len(row.curve) == updates + 1


def test_tables_start_where_the_transformer_does(rows):
    start = {r.family: r.start for r in rows}
    assert start["independent tables"] == pytest.approx(start["shared transformer"], abs=1e-6)


def test_a_plan_is_reproducible(rows):
    assert audit(SMALL, families=FAMILIES[:2], workers=1) == rows[:4]


def test_counts():
    run = {
        "game": "g", "family": "f", "preset": "p", "lr": 1.0, "kl": [0.1, 0.3],
        "verdicts": ["lowered", "improved"], "iterations": ["unchanged"],
        "changes": [-0.2, 0.2], "J": [0.5, 0.3, 0.5],
    }  # fmt: skip
    (row,) = summarise([run, {**run, "verdicts": ["unchanged", "improved"], "changes": [0.0, 0.1]}])
    assert (row.updates, row.lowered, row.unchanged) == (3, 1, 1)
    assert row.share == pytest.approx(1 / 3) and row.worst == -0.2
    assert (row.iterations, row.iterations_lowered) == (2, 0)


def test_files(rows, tmp_path):
    paths = report(rows, tmp_path, SMALL)
    with open(paths[0], encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    assert len(json.loads(paths[1].read_text())["rows"]) == len(rows)
    assert paths[2].read_text().count("\n") == len(rows) + 2
    assert paths[3].read_bytes().startswith(b"\x89PNG")


def test_intervals():
    assert wilson(0, 0) == (0.0, 1.0)
    low, high = wilson(5, 10)
    assert low == pytest.approx(1 - high) and 0.2 < low < 0.3


@pytest.mark.parametrize("change", [{"presets": ("grop",)}, {"seeds": 0}, {"lrs": ()}])
def test_wrong_plans_are_refused(change):
    with pytest.raises(ValueError, match=r"grop|seeds|lrs"):
        Plan(**change)


def test_unknown_families_are_refused():
    with pytest.raises(ValueError, match="family is"):
        audit_llm.audit(SMALL, families=("tables",))
