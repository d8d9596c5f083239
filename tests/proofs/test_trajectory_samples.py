"""The sampled bound: the rule has the proof's terms, and means what it says."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import proofs
from proofs.clipped_lower_bound import clipped
from proofs.trajectory_samples import LONG, MILD, RESULTS, TRAP, Coins, bounded_term
from seeupo_theory.rules import bounds

ROUNDING = 1e-12  # double-precision sums of a few hundred terms near 1


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: r.name)
def test_theorem(result):
    outcome = proofs.run(result)
    assert outcome.status == "numerical"  # the coverage is measured
    kinds = [item.step.kind for item in outcome.steps]
    assert kinds == ["exact"] * 2 + ["numerical"] * 3


@given(
    st.fractions(Fraction(1, 20), 4, max_denominator=20),
    st.fractions(-2, 2, max_denominator=20),
    st.fractions(0, 3, max_denominator=10),
)
def test_the_rule_has_the_proof_s_terms(ratio, advantage, level):
    change, size = np.array([np.log(float(ratio))]), np.array([float(advantage)])
    term = bounds.trajectory_terms(change, size)[0]
    assert term == pytest.approx(float(clipped(ratio, advantage)), abs=ROUNDING)
    side = Fraction(1, 5)
    exact = bounded_term(ratio, advantage, Fraction(2), side, side, level)
    found = bounds.bounded_terms(change, size, 2.0, truncate=float(level))[0]
    assert found == pytest.approx(float(exact), abs=ROUNDING)


@pytest.mark.parametrize("case", [MILD, LONG, TRAP], ids=["mild", "long", "trap"])
def test_the_exact_surrogate_is_the_mean_of_many_samples(case):
    change, advantage = case.batches(200, 200, seed=3)
    means = bounds.trajectory_terms(change, advantage).mean(axis=-1).ravel()
    error = means.std() / np.sqrt(means.size)
    assert abs(means.mean() - case.surrogate()) < 4 * error  # four standard errors


def test_the_exact_surrogate_bounds_the_improvement():
    for new in (0.4, 0.5, 0.55, 0.7):
        case = Coins(turns=3, old=0.5, new=new, wins=(2, 3), group=4)
        win = case.reward(np.arange(4))
        gain = case.counts(new) @ win - case.counts(0.5) @ win
        assert case.surrogate() <= 0.75 * gain + ROUNDING
        assert new != 0.5 or case.surrogate() == pytest.approx(0.0, abs=ROUNDING)


def test_a_safe_step_is_certified_by_a_large_batch_and_a_harmful_one_never():
    good = Coins(turns=2, old=0.5, new=0.54, wins=(1, 2), group=8)
    bad = Coins(turns=2, old=0.5, new=0.46, wins=(1, 2), group=8)
    lower = [
        float(bounds.improvement_bound(*case.batches(1, 40_000, seed=4), bound=1.0)[0])
        for case in (good, bad)
    ]
    assert lower[0] > 0 > lower[1]
