"""The ready examples."""

import json

import pytest
from matplotlib.figure import Figure

from seeupo_theory import figures
from tests.figures.test_grid_tree_data import ROWS

QUICK = ("margin", "tree", "phase-plane", "simplex")


@pytest.mark.parametrize("name", QUICK)
def test_examples_are_written_the_same_twice(tmp_path, name):
    first = figures.write(name, tmp_path / "a", kind="svg")
    again = figures.write(name, tmp_path / "b", kind="svg")
    assert first.name == f"{name}.svg"
    assert first.read_bytes() == again.read_bytes()


def test_every_kind_has_an_example_with_a_caption(tmp_path):
    ledger = tmp_path / "ledger.json"
    ledger.write_text(json.dumps({"rows": ROWS}))
    figure = figures.example("verdict-grid", ledger=ledger)
    assert isinstance(figure, Figure) and "✗ refuted" in figures.caption(figure)
    assert set(figures.FIGURES) > {*QUICK, "learning-curves", "staircase", "rate", "phase-line"}


def test_the_rate_example_shows_the_known_rate():
    """Exact softmax policy gradient: O(1/t) (Mei et al. 2020)."""
    figure = figures.example("rate")
    label = next(
        line.get_label() for line in figure.axes[0].get_lines() if "rloo" in line.get_label()
    )
    assert -1.1 < float(label.split("slope ")[1].replace("−", "-")) < -0.95


def test_mistakes_are_named_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="did you mean 'simplex'"):
        figures.write("simplx", tmp_path)
    with pytest.raises(ValueError, match="format is 'gif'"):
        figures.write("tree", tmp_path, kind="gif")
    with pytest.raises(ValueError, match="run `seeupo audit` first"):
        figures.write("verdict-grid", tmp_path, ledger=tmp_path / "none.json")
    with pytest.raises(ValueError, match="leave it out"):
        figures.write("tree", tmp_path, ledger=tmp_path / "none.json")
    bad = tmp_path / "bad.json"
    bad.write_text("[1, 2")
    with pytest.raises(ValueError, match="is not a ledger"):
        figures.write("verdict-grid", tmp_path, ledger=bad)
    assert [p.name for p in tmp_path.iterdir()] == ["bad.json"]
