"""The drifts of the proof are what the simulator's objectives, estimators and penalties subtract."""

from fractions import Fraction

import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import proofs
from proofs.drift import PER_SAMPLE, RESULTS, X, clip_drift, group_std_slope
from proofs.group_std import SURE_OR_GAMBLE
from seeupo_theory.rules import advantages, kl, objectives

from .groups import ROUNDING, given_own_reward, laws, mean, rows

sides = st.fractions(Fraction(1, 20), Fraction(9, 10), max_denominator=20)
parts = st.lists(st.fractions(0, 2, max_denominator=10), min_size=3, max_size=3)


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: r.name)
def test_theorem(result):
    assert proofs.run(result).status == "exact"


def doubles(values):
    return np.array([float(x) for x in values])


@given(rows(3), rows(3), parts, parts, sides, sides)
def test_linear_minus_clip_is_the_drift(old, new, plus, minus, low, high):
    log_old, log_new = np.log(doubles(old)), np.log(doubles(new))
    found = 0.0
    for sign, part in ((1.0, plus), (-1.0, minus)):
        arguments = log_new, log_old, np.full(3, sign), doubles(old) * doubles(part)
        gap = objectives.linear(*arguments)
        gap = gap - objectives.clip(*arguments, low=float(low), high=float(high))
        found += gap.sum()
    exact = clip_drift(old, new, plus, minus, low, high)
    assert exact >= 0
    assert found == pytest.approx(float(exact), abs=ROUNDING)
    assert clip_drift(old, old, plus, minus, low, high) == 0


@given(rows(3), rows(3), parts, parts, sides)
def test_no_drift_as_long_as_ratios_are_inside(old, new, plus, minus, side):
    reach = max(abs(q / p - 1) for p, q in zip(old, new, strict=True))
    share = 1 if reach <= side else side / reach
    near = [p + share * (q - p) for p, q in zip(old, new, strict=True)]
    assert clip_drift(old, near, plus, minus, side, side) == 0


@settings(max_examples=30)
@given(laws(least=2, most=3, parts=4), laws(least=2, most=3, parts=4), st.integers(2, 4))
def test_mean_and_leave_one_out_have_the_true_advantage_in_their_linear_part(x, y, group):
    mixture = {r: (x.get(r, 0) + y.get(r, 0)) / 2 for r in {*x, *y}}
    gap = float(mean(x) - mean(y))
    for name, factor in (("grae", 1 - 1 / group), ("rloo", 1.0)):
        given_reward = given_own_reward(advantages.ESTIMATORS[name], [mixture], group)
        found = sum(float(x.get(r, 0) - y.get(r, 0)) * given_reward[r] for r in mixture)
        assert found == pytest.approx(factor * gap, abs=ROUNDING)


@pytest.mark.parametrize("group", [2, 3, 4])
def test_group_std_slopes_the_wrong_way(group):
    estimator = advantages.Grae("mean", "group", std_eps=0.0)
    given_reward = given_own_reward(estimator, [SURE_OR_GAMBLE.mixture()], group)
    found = sum(float(p) * given_reward[r] for r, p in SURE_OR_GAMBLE.x.items())
    found -= sum(float(p) * given_reward[r] for r, p in SURE_OR_GAMBLE.y.items())
    assert found == pytest.approx(float(group_std_slope(group)), abs=ROUNDING)
    assert SURE_OR_GAMBLE.gap < 0 < found


@given(rows(4), rows(4))
def test_divergences_are_the_sums_of_the_proof(old, new):
    log_old, log_new = np.log(doubles(old)), np.log(doubles(new))
    ratio = np.exp(log_new - log_old)

    def total(name):
        return float(doubles(old) @ sp.lambdify(X, PER_SAMPLE[name], "numpy")(ratio))

    forward = kl.kl_divergence(log_new, log_old)
    reverse = kl.kl_divergence(log_old, log_new)
    assert total("KL(new||old)") == pytest.approx(float(forward), abs=ROUNDING)
    assert total("KL(old||new)") == pytest.approx(float(reverse), abs=ROUNDING)
    for kind in ("k2", "k3"):
        average = float(doubles(old) @ kl.kl_penalty(log_new, log_old, kind))
        assert total(kind) == pytest.approx(average, abs=ROUNDING)
        assert average >= -ROUNDING
    k1 = float(doubles(old) @ kl.kl_penalty(log_new, log_old, "k1"))
    assert k1 == pytest.approx(-float(reverse), abs=ROUNDING)
