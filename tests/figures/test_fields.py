"""Margins, vector fields and phase portraits: what is drawn is what the simulator computes."""

import math

import numpy as np
import pytest
from matplotlib.quiver import Quiver

from bandits import SequentialBandit
from seeupo_theory import api, figures
from seeupo_theory.figures import fields, style
from seeupo_theory.figures.phase import CORNERS

P = np.array([0.1, 0.4, 0.7])
V = np.array([0.3, 0.8, 1.5, 2.5])
THREE_ARMS = SequentialBandit([["1/2", {"values": [0, "3/2"], "probs": ["3/5", "2/5"]}, "1/5"]])


@pytest.fixture(scope="module")
def grpo():
    return figures.sign_margin("grpo", P, V, group_size=3)


def test_the_margin_is_the_advantage_of_the_api(grpo):
    for i, v in enumerate(V):
        for j, p in enumerate(P):
            risky = {"values": [0, float(v)], "probs": [1 - float(p), float(p)]}
            found = api.advantage(
                SequentialBandit([[0.5, risky]]), estimator="grpo", group_size=3, std_eps=1e-6
            )
            sure, other = found.expected[0][0]
            assert grpo[i, j] == pytest.approx(np.sign(p * v - 0.5) * (other - sure), abs=1e-12)


def test_the_margin_is_negative_on_the_known_instance_and_nowhere_without_the_std(grpo):
    assert grpo[2, 1] < 0
    plain = figures.sign_margin("dr-grpo", P, V, group_size=3)
    # E[Â | a] = (1 − 1/G) (mean of a − J): the margin is (1 − 1/G) |p v − s|
    np.testing.assert_allclose(plain, 2 / 3 * np.abs(P * V[:, None] - 0.5), atol=1e-12)


def test_margins_refuse_what_is_no_probability_and_what_cannot_be_enumerated():
    with pytest.raises(ValueError, match="probabilities"):
        figures.sign_margin("grpo", [1.2], V)
    with pytest.raises(ValueError, match="group_size is 5000"):
        figures.sign_margin("grpo", P, V, group_size=5000)


def test_the_heat_map_draws_the_margin_and_hatches_what_is_violated(grpo):
    figure = figures.margin_map(P, V, grpo, violated="wrong sign")
    mesh = figure.axes[0].collections[0]
    np.testing.assert_array_equal(np.asarray(mesh.get_array()).reshape(grpo.shape), grpo)
    assert mesh.norm.vmin == -mesh.norm.vmax
    hatched = [c for c in figure.axes[0].collections if getattr(c, "hatches", [None])[0]]
    assert len(hatched) == 1
    share = 100 * float((grpo < 0).mean())
    assert f"{share:.1f} %" in figures.caption(figure)
    fine = figures.margin_map(P, V, np.abs(grpo))
    assert not [c for c in fine.axes[0].collections if getattr(c, "hatches", [None])[0]]
    assert figures.caption(fine).startswith("No point")


@pytest.mark.parametrize("margin", [np.zeros((2, 2)), np.full((4, 3), np.nan)])
def test_the_heat_map_checks_its_numbers(margin):
    with pytest.raises(ValueError, match="margin"):
        figures.margin_map(P, V, margin)


@pytest.fixture(scope="module")
def field():
    table = np.array([[[0.5, 0.3, 0.2]], [[0.1, 0.8, 0.1]], [[0.2, 0.2, 0.6]]])
    return figures.update_field(THREE_ARMS, "grpo", [table], group_size=2, lr=0.2)


def test_the_field_is_one_step_of_the_api(field):
    for k in range(3):
        step = api.step(THREE_ARMS, [field.before[0][k]], algorithm="grpo", group_size=2, lr=0.2)
        np.testing.assert_allclose(field.after[0][k], step.policy[0], atol=1e-12)
        change = step.value_after - step.value_before
        assert field.change[k] == pytest.approx(change, abs=1e-12)
        assert field.falls[k] == (change < 0)


def test_a_field_needs_one_exact_update():
    with pytest.raises(ValueError, match="exact expectation"):
        fields.Updater(SequentialBandit([list(range(30))]), "grpo", group_size=12)
    with pytest.raises(ValueError, match="order is 'random'"):
        fields.Updater("zoo:xor", "seeupo", order="random")


@pytest.fixture(scope="module")
def simplexes():
    start = [[0.3, 0.6, 0.1]]
    options = {"group_size": 2, "lr": 0.2, "density": 5, "iterations": 60, "starts": start}
    return {n: figures.simplex(THREE_ARMS, n, **options) for n in ("grpo", "dr-grpo")}


def arrows(figure):
    return {
        tuple(np.round(q.get_facecolor()[0][:3], 6)): q
        for q in figure.axes[0].collections
        if isinstance(q, Quiver)
    }


def rgb(colour):
    from matplotlib.colors import to_rgb

    return tuple(np.round(to_rgb(colour), 6))


def test_one_sees_where_grpo_points_the_wrong_way(simplexes):
    wrong = arrows(simplexes["grpo"])[rgb(style.WRONG)]
    # along the edge of the two good arms, at the middle, GRPO moves towards the worse one
    edge = wrong.XY[:, 1] < 0.06
    assert edge.any() and (wrong.U[edge] < 0).all()
    right = arrows(simplexes["dr-grpo"])
    assert rgb(style.WRONG) not in right
    at = right[rgb(style.RIGHT)].XY
    low = (at[:, 1] < 0.06) & (at[:, 0] > 0.1)  # at the corner itself the poor arm's loss rules
    assert (right[rgb(style.RIGHT)].U[low] > 0).all()


def test_paths_end_where_the_updates_lead(simplexes):
    ends = {}
    for name, figure in simplexes.items():
        path = next(line for line in figure.axes[0].get_lines() if len(line.get_xdata()) > 2)
        np.testing.assert_allclose(path.get_xydata()[0], np.array([0.3, 0.6, 0.1]) @ CORNERS)
        ends[name] = path.get_xydata()[-1]
    assert ends["grpo"][0] < 0.2 and ends["dr-grpo"][0] > 0.8


def test_arrows_are_no_longer_than_the_grid_is_wide(simplexes):
    for figure in simplexes.values():
        for quiver in arrows(figure).values():
            assert np.hypot(quiver.U, quiver.V).max() <= 1.1 / 5 + 1e-9


def test_the_line_of_two_actions_draws_the_update():
    figure = figures.phase_line(
        "zoo:wrong-sign", ["grpo"], group_size=2, points=9, start=0.8, iterations=3
    )
    main = figure.axes[0].get_lines()[0]
    p, move = main.get_xdata(), main.get_ydata()
    step = api.step("zoo:wrong-sign", [[[1 - p[4], p[4]]]], algorithm="grpo", group_size=2)
    assert p[4] + move[4] == pytest.approx(step.policy[0][0][1], abs=1e-12)
    assert (move < 0).all() and "lowers J" in figures.caption(figure)
    dots = figure.axes[0].get_lines()[1]
    xs = np.append(dots.get_xdata(), dots.get_xdata()[-1] + dots.get_ydata()[-1])
    np.testing.assert_allclose(np.diff(xs), dots.get_ydata(), atol=1e-12)
    assert xs[0] == 0.8 and len(xs) == 4


def test_the_plane_of_two_rows_has_the_saddle_of_xor():
    figure = figures.phase_plane("zoo:xor-blind", "seeupo", density=5, iterations=8)
    drawn = arrows(figure)
    assert set(drawn) == {rgb(style.RIGHT)}
    points = drawn[rgb(style.RIGHT)].XY
    # at the saddle (½, ½) the update stands still, so that no arrow is drawn
    assert math.dist((0.5, 0.5), min(points, key=lambda q: math.dist(q, (0.5, 0.5)))) > 0.1


@pytest.mark.parametrize(
    ("draw", "model", "match"),
    [
        (figures.simplex, "zoo:wrong-sign", "1 row.* 3 actions"),
        (figures.phase_plane, "zoo:wrong-sign", "2 row.* 2 actions"),
        (figures.phase_line, "zoo:two-turn-std", "1 row.* 2 actions"),
    ],
)
def test_portraits_say_which_policies_they_can_draw(draw, model, match):
    with pytest.raises(ValueError, match=match):
        draw(model, "grpo", group_size=2)
