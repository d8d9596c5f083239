"""Verdict grid, tree and the ledger's own figures."""

import numpy as np
import pytest
from matplotlib.patches import Polygon, Rectangle

from bandits import SequentialBandit, zoo
from seeupo_theory import figures
from seeupo_theory.figures import style
from seeupo_theory.figures.verdicts import VERDICT_COLOURS, table


def cell(preset, turns, question, verdict, differs=False):
    return {
        "id": f"T1.{preset}.{turns}.independent.exact.random.{question}",
        "claim": "T1",
        "verdict": verdict,
        "paper": "✗" if turns == "MT" else "✓",
        "differs": differs,
    }


ROWS = [
    cell("grpo", "ST", "monotone", "holds", differs=True),
    cell("grpo", "ST", "global", "refuted"),
    cell("grpo", "MT", "monotone", "inconclusive"),
    cell("seeupo", "MT", "monotone", "holds"),
    {"id": "C1.x", "claim": "C1", "verdict": "holds", "paper": "", "differs": None},
]


def test_the_grid_has_a_mark_a_verdict_and_a_corner_a_difference():
    axes = figures.verdict_grid({"rows": ROWS}).axes[0]
    marks = [p for p in axes.patches if isinstance(p, Rectangle)]
    faces = [tuple(p.get_facecolor()) for p in marks]
    from matplotlib.colors import to_rgba

    wanted = ["holds", "refuted", "inconclusive", "holds"]
    assert faces == [to_rgba(VERDICT_COLOURS[v]) for v in wanted]
    corners = [p for p in axes.patches if isinstance(p, Polygon)]
    assert len(corners) == 1
    texts = [t.get_text() for t in axes.texts]
    assert texts.count("?") == 1 and "grpo" in texts and "seeupo" in texts and "multi-turn" in texts
    # the two marks of one cell stand side by side, monotone on the left
    assert marks[1].get_x() - marks[0].get_x() == pytest.approx(0.5)
    assert marks[0].get_y() == marks[1].get_y() == 0 and marks[3].get_y() == 1


def test_the_grid_takes_rows_ledgers_and_files_alike():
    assert table(ROWS) == table({"rows": ROWS})
    with pytest.raises(ValueError, match="no rows of Table 1"):
        figures.verdict_grid(ROWS[-1:])


def test_the_tree_shows_visitation_and_advantage_of_every_branch():
    entry = zoo.get("two-turn-std")
    figure = figures.policy_tree(entry.model, entry.policy)
    texts = [t.get_text() for t in figure.axes[0].texts]
    # π_1 = ½; J = 7/24; A(1) = 1/4 − J = −1/24; below action 2: V = 1/3, A = ⅔ and −⅓
    for text in ("a=1: 0.5", "−0.042", "+0.042", "a=1: 0.17", "a=2: 0.33", "+0.67", "−0.33"):
        assert text in texts, text
    assert texts.count("0") == 3  # two advantages, one reward
    assert "J = 0.2917" in figures.caption(figure)
    branches = [line for line in figure.axes[0].get_lines() if len(line.get_xdata()) == 3]
    widths = sorted(line.get_linewidth() for line in branches)
    np.testing.assert_allclose(
        widths, 0.6 + 5 * np.sort([1 / 6, 1 / 4, 1 / 4, 1 / 3, 1 / 2, 1 / 2])
    )
    dashed = [line for line in branches if line.get_linestyle() == "--"]
    assert {line.get_color() for line in dashed} == {style.WRONG} and len(dashed) == 2


def test_the_tree_draws_contexts_episodes_that_end_and_chance():
    two = SequentialBandit([[0, 1], [1, 0]], context_probs=["1/4", "3/4"])
    texts = [t.get_text() for t in figures.policy_tree(two).axes[0].texts]
    assert "context 2\n0.75" in texts and "a=1: 0.38" in texts
    early = zoo.get("early-stop")
    drawn = figures.policy_tree(early.model).axes[0]
    assert [line for line in drawn.get_lines() if line.get_color() == style.MUTED]


def test_trees_that_cannot_be_read_are_refused():
    with pytest.raises(ValueError, match="64 leaves"):
        figures.policy_tree(zoo.get("lock", turns=6).model)


def data(**changes):
    base = {
        "kind": "lines",
        "x": [2, 4],
        "series": {"a": [0.5, 0.7], "b": [1, 2]},
        "xlabel": "G",
        "ylabel": "$ and <b>",
    }
    return {**base, **changes}


def test_lines_and_bars_draw_their_numbers(tmp_path):
    axes = figures.draw_data(data(), "title").axes[0]
    np.testing.assert_array_equal(axes.get_lines()[1].get_xydata(), [[2, 1], [4, 2]])
    figure = figures.draw_data(data(kind="bars", x=["one", "a-long-name"]))
    heights = [b.get_height() for c in figure.axes[0].containers for b in c]
    assert heights == [0.5, 0.7, 1, 2]
    figures.save(figure, tmp_path / "x.png")  # a "$" in a label is no formula


def test_wrong_figure_data_is_an_error():
    with pytest.raises(ValueError, match="kind"):
        figures.draw_data(data(kind="pie"))
    with pytest.raises(ValueError, match="'a' has 1"):
        figures.draw_data(data(series={"a": [1]}))
    with pytest.raises(ValueError, match="2 values and 1"):
        figures.draw_values([1.0, 2.0], ["a"])


def test_values_mark_the_fall():
    axes = figures.draw_values([1.0, 2.0, 1.5], ["a", "b", "c"], reference=3.0).axes[0]
    falls = [line for line in axes.get_lines() if line.get_marker() == "v"]
    assert [tuple(f.get_xydata()[0]) for f in falls] == [(2.0, 1.5)]
