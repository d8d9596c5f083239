"""Learning curves, bands, staircases, rates: the data drawn."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

from seeupo_theory import figures
from seeupo_theory.figures import style
from tests.figures.traces import trace

RUNS = np.array([[1.0, 0.5, 0.2], [1.0, 0.7, 0.4], [1.0, 0.6, 0.3]])


def lines(figure):
    return {line.get_label(): line for line in figure.axes[0].get_lines()}


def test_curves_draw_the_mean_and_the_band():
    figure = figures.learning_curves({"mine": trace(RUNS)})
    drawn = lines(figure)["mine"]
    np.testing.assert_allclose(drawn.get_ydata(), 1 - RUNS.mean(axis=0))
    np.testing.assert_array_equal(drawn.get_xdata(), [0, 1, 2])
    half = stats.t.ppf(0.975, 2) * RUNS.std(axis=0, ddof=1) / np.sqrt(3)
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx((1 - RUNS.mean(axis=0) + half).max())
    assert band[:, 1].min() == pytest.approx((1 - RUNS.mean(axis=0) - half).min())
    assert "optimum J*" in lines(figure)
    assert figure.axes[0].get_ylabel() == "expected return J"


def test_one_seed_has_no_band_and_gaps_are_logarithmic():
    figure = figures.learning_curves(trace(RUNS[:1]), quantity="gap")
    assert not figure.axes[0].collections
    assert figure.axes[0].get_yscale() == "log"
    assert figures.caption(figure) == "One run."


def test_colours_follow_the_algorithm_not_the_position():
    figure = figures.learning_curves([trace(RUNS, "grpo"), trace(RUNS, "rloo")])
    other = figures.learning_curves([trace(RUNS, "rloo"), trace(RUNS, "grpo")])
    for name in ("grpo", "rloo"):
        for made in (figure, other):
            assert lines(made)[name].get_color() == style.LOOKS[name].colour
    twice = figures.learning_curves({"a": trace(RUNS, "grpo"), "b": trace(RUNS, "grpo")})
    assert lines(twice)["a"].get_color() != lines(twice)["b"].get_color()


def test_curves_draw_onto_given_axes():
    with style.use():
        panel = Figure().subplots(1, 2)
    figure = figures.learning_curves(trace(RUNS), axes=panel[1])
    assert figure is panel[1].figure
    assert not panel[0].lines and len(panel[1].lines) == 2
    assert figure.get_supxlabel() == ""
    assert "3 seeds" in figures.caption(panel[1])


@pytest.mark.parametrize(
    ("given", "options", "match"),
    [
        ([], {}, "no trace"),
        ([trace(RUNS), trace(RUNS)], {}, "two traces"),
        (trace(RUNS), {"quantity": "loss"}, "quantity is 'loss'"),
        (trace(RUNS), {"band": "sem"}, "band is 'sem'"),
        (trace(RUNS), {"level": 95}, "level is 95"),
    ],
)
def test_wrong_arguments_are_named(given, options, match):
    with pytest.raises(ValueError, match=match):
        figures.learning_curves(given, **options)


def test_bootstrap_bands_are_deterministic_and_cover_the_mean():
    runs = np.random.default_rng(0).exponential(size=(12, 5))
    band = figures.interval(runs, "bootstrap", 0.9)
    again = figures.interval(runs, "bootstrap", 0.9)
    np.testing.assert_array_equal(band.low, again.low)
    assert (band.low < band.mean).all() and (band.mean < band.high).all()
    assert "90 %" in band.text and "2000 resamples" in band.text
    wide = figures.interval(runs, "bootstrap", 0.99)
    assert (wide.low <= band.low).all() and (wide.high >= band.high).all()


def test_bootstrap_and_t_agree_for_many_normal_runs():
    runs = np.random.default_rng(1).normal(size=(400, 3))
    t, boot = figures.interval(runs, "t"), figures.interval(runs, "bootstrap")
    np.testing.assert_allclose(t.high - t.mean, boot.high - boot.mean, rtol=0.1)


def test_staircase_of_a_trace_draws_every_update_and_marks_the_falls():
    updates = [[[0.3, 0.2], [0.4, 0.5]]]
    made = trace([[0.9, 0.8, 0.5]], updates=updates, turns=[[1, 0], [1, 0]])
    figure = figures.staircase(made, iterations=2)
    main = figure.axes[0].get_lines()[0]
    np.testing.assert_allclose(main.get_ydata(), [0.1, 0.3, 0.2, 0.4, 0.5])
    falls = [line for line in figure.axes[0].get_lines() if line.get_marker() == "v"]
    assert [(float(f.get_xdata()[0]), float(f.get_ydata()[0])) for f in falls] == [(2.0, 0.2)]
    ticks = [t.get_text().replace("\n", " ") for t in figure.axes[0].get_xticklabels()]
    assert ticks == ["start", "turn 2", "turn 1", "turn 2", "turn 1"]
    assert "lowered J" in figures.caption(figure)
    second = figures.staircase(made, first=1).axes[0].get_lines()[0]
    np.testing.assert_allclose(second.get_ydata(), [0.2, 0.4, 0.5])
    assert "No update" in figures.caption(figures.staircase(made, first=1))


def test_staircase_says_what_a_trace_does_not_have():
    made = trace([[0.9, 0.8]])
    with pytest.raises(ValueError, match="iterations 1 … 1"):
        figures.staircase(made, first=1)
    with pytest.raises(ValueError, match="seed is 4"):
        figures.staircase(made, seed=4)


def test_staircase_of_a_real_step_agrees_with_it():
    from seeupo_theory import api

    step = api.step("zoo:two-turn-std", "zoo", algorithm="seeupo", lr=0.5)
    drawn = figures.staircase(step).axes[0].get_lines()[0]
    np.testing.assert_array_equal(drawn.get_ydata(), [step.value_before, *step.per_turn])


@pytest.mark.parametrize("slope", [-0.5, -1.0, -2.0])
def test_the_fit_finds_the_slope_of_a_power_law(slope):
    k = np.arange(1, 200, dtype=float)
    rate = figures.fit_rate([3.0, *(2 * k**slope)])
    assert rate.slope == pytest.approx(slope, abs=1e-9)
    assert np.exp(rate.intercept) == pytest.approx(2)
    assert rate.residual < 1e-9
    np.testing.assert_allclose(rate.at([10.0]), [2 * 10.0**slope])


def test_the_fit_finds_a_geometric_rate_and_stops_at_rounding():
    gap = 2 * np.exp(-0.3 * np.arange(200))
    rate = figures.fit_rate(gap, kind="exponential")
    assert rate.slope == pytest.approx(-0.3)
    assert gap[rate.last] > 1e-12
    with pytest.raises(ValueError, match="expected 3"):
        figures.fit_rate([1.0, 1e-14, 1e-15])
    with pytest.raises(ValueError, match="kind is 'cubic'"):
        figures.fit_rate(gap, kind="cubic")


def test_the_rate_figure_says_its_slopes():
    k = np.arange(1, 100, dtype=float)
    figure = figures.convergence_rate(trace([[1.0, *(1 / k)]], "rloo"))
    assert "rloo: slope −1" in lines(figure)
    assert figure.axes[0].get_xscale() == figure.axes[0].get_yscale() == "log"
    with pytest.raises(ValueError, match="rloo: only"):
        figures.convergence_rate(trace([[1.0, 0.0, 0.0]], "rloo"))
