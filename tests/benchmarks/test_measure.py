"""The benchmarks' own arithmetic, on a clock that the test turns."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import expectation, gradient, measure
from benchmarks.__main__ import main
from seeupo_theory.rules import presets
from seeupo_theory.tabular.expectation import Law, expected_parts


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only when told."""
    now = [0.0]
    monkeypatch.setattr(measure, "perf_counter", lambda: now[0])

    def advance(seconds):
        now[0] += seconds

    return advance


def test_ratio_is_the_median_of_neighbouring_runs(clock):
    order = []
    ours_seconds = iter([9.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    other_seconds = iter([9.0, 3.0, 6.0, 5.0, 5.0, 5.0, 3.0, 3.0])

    def ours():
        order.append("A")
        clock(next(ours_seconds))

    def other():
        order.append("B")
        clock(next(other_seconds))

    row = measure.compare("x", ("a", ours), ("b", other), 7, goal=4.0, scale=2.0, warm_up=1)
    assert "".join(order) == "AB" * 8
    assert (row.ours_figure, row.other_figure) == (1.0, 10.0)
    # twice the ratios 3, 3, 5, 5, 5, 3, 3
    assert (row.ratio, row.low, row.high) == (6.0, 6.0, 10.0)
    assert row.met is True
    assert row.to_dict()["met"] is True


def test_too_few_repeats_are_refused():
    with pytest.raises(ValueError, match="repeats = 6: should be at least 7"):
        measure.compare("x", ("a", int), ("b", int), 6)


@pytest.mark.parametrize("wrong", [1e-3, np.nan])
def test_different_results_are_refused(wrong):
    measure.require_equal("x", [np.zeros(2), 1.0], [np.zeros(2), 1.0 + 1e-15])
    with pytest.raises(AssertionError, match="x: result 1 differs by"):
        measure.require_equal("x", [np.zeros(2), 1.0], [np.zeros(2), 1.0 + wrong])


def test_touched_bytes():
    rewards, logits, _ = gradient.problem(3, 2)
    assert gradient.touched_bytes(rewards, logits) == 8 * (9 + 2 * (3 + 9))


def test_enumeration_of_groups_is_the_exact_expectation(monkeypatch):
    monkeypatch.setattr(expectation, "GROUP", 3)
    support, probs = expectation.reward_laws(3)
    assert np.allclose(probs.sum(axis=1), 1.0)
    algorithm = presets.get("grpo")
    exact = expected_parts(Law(algorithm, group_size=3), np.full(64, 1 / 64), support, probs)
    enumeration = expectation.Enumeration(3)
    for c in (0, 63):
        positive, negative = enumeration.parts(support[c], probs[c], algorithm.std_eps)
        np.testing.assert_allclose(exact.positive[c], positive, atol=1e-12)
        np.testing.assert_allclose(exact.negative[c], negative, atol=1e-12)


def test_command_prints_one_json_object(monkeypatch):
    row = measure.Row("x", "a", "b", 1.0, 2.0, 2.0, 1.5, 2.5, goal=3.0)
    monkeypatch.setattr("benchmarks.seeds.rows", lambda repeats: [row])
    result = CliRunner().invoke(main, ["--only", "seeds", "--json"])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed["rows"] == [row.to_dict()]
    assert printed["rows"][0]["met"] is False
    table = CliRunner().invoke(main, ["--only", "seeds"])
    assert "missed" in table.stdout
