"""Confidence bounds: formulas, ranges, array libraries, and what wrong input says."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from seeupo_theory.rules import bounds, objectives

from .catalogue import BACKENDS, DTYPES, LIBRARY_TOLERANCE

ROUNDING = 1e-12  # a few operations on numbers below 100
ratios = st.fractions(0, 6, max_denominator=30)
sizes = st.fractions(-2, 2, max_denominator=30)
sides = st.fractions(0, Fraction(19, 20), max_denominator=20)


def log(x):
    return -math.inf if x == 0 else math.log(x)


@given(ratios, sizes, sides, sides)
def test_terms_are_the_clipped_objective(ratio, advantage, low, high):
    term = float(
        bounds.trajectory_terms(
            np.array([log(ratio)]), np.array([float(advantage)]), low=float(low), high=float(high)
        )[0]
    )
    inside = min(max(ratio, 1 - low), 1 + high)
    assert term == pytest.approx(float(min(ratio * advantage, inside * advantage)), abs=ROUNDING)


@given(ratios, sizes, sides, sides, st.none() | st.fractions(0, 4, max_denominator=20))
def test_bounded_terms(ratio, advantage, low, high, level):
    options = {"low": float(low), "high": float(high)}
    options["truncate"] = None if level is None else float(level)
    found = float(
        bounds.bounded_terms(np.array([log(ratio)]), np.array([float(advantage)]), 2.0, **options)[
            0
        ]
    )
    cut = 1 + high if level is None else level
    gain, loss = max(advantage, Fraction(0)), max(-advantage, Fraction(0))
    exact = gain * min(ratio, 1 + high) - loss * max(1 - low - ratio, Fraction(0))
    exact += (2 - loss) * min(ratio, cut) - 2
    assert found == pytest.approx(float(exact), abs=ROUNDING)
    least, most = bounds.bounded_range(2.0, **options)
    assert least - ROUNDING <= found <= most + ROUNDING


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), sizes), min_size=2, max_size=5),
    st.none() | st.fractions(0, 4, max_denominator=20),
)
def test_bounded_terms_have_at_most_the_same_mean(actions, level):
    old, new, advantage = (
        np.array([float(x) for x in column]) for column in zip(*actions, strict=True)
    )
    old, new = old / old.sum(), new / new.sum()
    change = np.log(new / old)
    options = {"truncate": None if level is None else float(level)}
    exact = old @ bounds.trajectory_terms(change, advantage)
    below = old @ bounds.bounded_terms(change, advantage, 2.0, **options)
    assert below <= exact + ROUNDING
    if np.all(new / old <= 1.2) and level is None:
        assert below == pytest.approx(exact, abs=ROUNDING)


def test_student_is_scipy_s_interval():
    values = np.random.default_rng(0).normal(size=(3, 9))
    for row, lower in zip(values, bounds.student_bound(values, confidence=0.9), strict=True):
        interval = stats.ttest_1samp(row, 0.0).confidence_interval(0.8)
        assert lower == pytest.approx(interval.low, abs=ROUNDING)


def test_student_covers_normal_values():
    values = np.random.default_rng(1).normal(0.3, 2.0, size=(4000, 5))
    covered = np.mean(bounds.student_bound(values) <= 0.3)
    assert abs(covered - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 4000)


@pytest.mark.parametrize("count", [2, 20, 400])
def test_bernstein_covers_coins(count):
    coins = np.random.default_rng(2).random((2000, count)) < 0.5
    lower = bounds.bernstein_bound(coins.astype(float), 0.0, 1.0)
    assert np.mean(lower <= 0.5) >= 0.95


def test_bernstein_uses_the_variance():
    quiet, loud = np.full(500, 0.5), np.tile([0.0, 1.0], 250)
    assert bounds.bernstein_bound(quiet, 0.0, 1.0) > bounds.bernstein_bound(loud, 0.0, 1.0)
    assert bounds.bernstein_bound(quiet, 0.0, 1.0) < bounds.bernstein_bound(quiet, 0.25, 0.75)


def test_the_group_is_the_unit():
    rng = np.random.default_rng(3)
    change, advantage = rng.normal(0, 0.1, (2, 6, 4)), rng.uniform(-0.5, 0.5, (2, 6, 4))
    found = bounds.improvement_bound(change, advantage, method="student")
    means = objectives.clip(change, np.zeros_like(change), advantage).mean(axis=-1)
    np.testing.assert_allclose(found, bounds.student_bound(means), rtol=0, atol=ROUNDING)
    wide = np.repeat(change, 3, axis=-1), np.repeat(advantage, 3, axis=-1)
    for method in bounds.METHODS:  # repeated members are no new groups
        np.testing.assert_allclose(
            bounds.improvement_bound(*wide, method=method, bound=1.0),
            bounds.improvement_bound(change, advantage, method=method, bound=1.0),
            rtol=0,
            atol=ROUNDING,
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", bounds.METHODS)
def test_libraries_agree_and_keep_the_dtype(method, dtype):
    rng = np.random.default_rng(4)
    change = rng.normal(0, 0.2, (2, 6, 4)).astype(dtype)
    advantage = rng.uniform(-1, 1, (2, 6, 4)).astype(dtype)
    want = bounds.improvement_bound(change, advantage, method=method, bound=1.0)
    for backend in BACKENDS:
        given_arrays = backend.array(change), backend.array(advantage)
        found = backend.numpy(bounds.improvement_bound(*given_arrays, method=method, bound=1.0))
        assert found.dtype == np.dtype(dtype) and found.shape == (2,)
        tolerance = 10 * LIBRARY_TOLERANCE[dtype]
        np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance)


def test_it_compiles_once():
    import jax

    traces = []

    def rule(change, advantage):
        traces.append(1)
        return bounds.improvement_bound(change, advantage, bound=1.0)

    compiled = jax.jit(rule)
    for seed in range(2):
        change = np.random.default_rng(seed).normal(0, 0.1, (5, 4))
        lower = compiled(change, np.full((5, 4), 0.25))
        want = bounds.improvement_bound(change, np.full((5, 4), 0.25), bound=1.0)
        assert float(lower) == pytest.approx(float(want), abs=ROUNDING)
    assert len(traces) == 1


ONES = np.ones((3, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.improvement_bound(ONES, ONES), "bound is None"),
        (lambda: bounds.improvement_bound(ONES, ONES, method="normal"), "method is 'normal'"),
        (lambda: bounds.improvement_bound(ONES[0], ONES[0], bound=1.0), "[..., groups, members]"),
        (lambda: bounds.improvement_bound(ONES[:1], ONES[:1], bound=1.0), "n of at least 2"),
        (lambda: bounds.improvement_bound(ONES, ONES[:2], bound=1.0), "shapes differ"),
        (lambda: bounds.improvement_bound(ONES, 2 * ONES, bound=1.0), "advantage[0, 0] is 2.0"),
        (lambda: bounds.bernstein_bound(2 * ONES, 0.0, 1.0), "values[0, 0] is 2.0"),
        (lambda: bounds.bernstein_bound(ONES, 2.0, 1.0), "high - low"),
        (lambda: bounds.student_bound(ONES, confidence=1.0), "confidence is 1.0"),
        (lambda: bounds.student_bound(ONES * np.nan), "values[0, 0] is nan"),
    ],
)
def test_wrong_input(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
