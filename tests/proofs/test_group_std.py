"""The simulator's group std against exact square roots."""

from fractions import Fraction

import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import proofs
from proofs.group_std import (
    RESULTS,
    SMALLEST,
    SURE_OR_GAMBLE,
    binary_slope,
    given_reward,
    shared_logit_instance,
    uniform_trees,
)
from seeupo_theory.rules import advantages

from .groups import ROUNDING, given_own_reward, laws, mean


def normalised(returns):
    return advantages.grae(returns, baseline="mean", normalise="group", std_eps=0.0, ddof=1)


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: r.name)
def test_theorem(result):
    assert proofs.run(result).status == "exact"


@given(laws(), st.integers(2, 5))
@settings(max_examples=40)
def test_expected_advantage_given_the_own_reward(law, group):
    exact = given_reward(law, group)
    found = given_own_reward(normalised, [law], group)
    for own, value in found.items():
        assert value == pytest.approx(float(exact[own]), abs=ROUNDING)


@given(st.fractions(Fraction(1, 9), Fraction(8, 9), max_denominator=9), st.integers(2, 6))
@settings(max_examples=30)
def test_binary_rewards_are_scaled_by_the_slope(p, group):
    law = {Fraction(0): 1 - p, Fraction(1): p}
    slope = float(binary_slope(group, sp.Rational(p.numerator, p.denominator)))
    for own, value in given_own_reward(normalised, [law], group).items():
        assert value == pytest.approx(slope * float(own - p), abs=ROUNDING)


@given(laws(least=2, most=2), st.integers(2, 4), st.sampled_from([1e-6, 0.1, 1.0]))
@settings(max_examples=30)
def test_binary_rewards_keep_their_sign_with_any_epsilon(law, group, epsilon):
    def rule(returns):
        return advantages.grae(returns, normalise="group", std_eps=epsilon)

    for own, value in given_own_reward(rule, [law], group).items():
        assert np.sign(value) == np.sign(float(own - mean(law)))


@pytest.mark.parametrize("arms", [SMALLEST, SURE_OR_GAMBLE], ids=["smallest", "sure-or-gamble"])
@pytest.mark.parametrize("group", [2, 3, 4, 5, 6])
def test_wrong_sign_in_the_simulator(arms, group):
    """The rule, summed over all groups, prefers the arm that pays less; the plain mean does not."""
    law = arms.mixture()
    found = given_own_reward(normalised, [law], group)
    plain = given_own_reward(advantages.grae, [law], group)
    for table, sign in ((found, 1), (plain, -1)):
        expected = sum(float(p) * table[r] for r, p in arms.x.items())
        assert np.sign(expected) == sign
    assert arms.gap < 0


@pytest.mark.parametrize("name", ["two-turn-std", "two-turn-std-uniform", "wrong-sign"])
def test_wrong_signs_of_the_zoo(name):
    """The zoo's instances, from the exact expectation of the simulator, turn the first turn."""
    from bandits.zoo import get
    from seeupo_theory.rules.presets import Algorithm
    from seeupo_theory.tabular import evaluate
    from seeupo_theory.tabular.simulator import Simulator

    entry = get(name)
    graph = entry.graph()
    advantage = evaluate.evaluate(graph, entry.policy).advantages[0][0]
    steps = {}
    for normalise in ("none", "group"):
        algorithm = Algorithm(
            objective="reinforce",
            normalise=normalise,
            std_eps=0.0,
            order="simultaneous",
            epochs=1,
            lr=1e-3,
        )
        simulator = Simulator(graph, algorithm, group_size=4)
        outcome = simulator.update(simulator.init(entry.policy))
        steps[normalise] = simulator.policy(outcome.theta)[0][0] - entry.policy[0][0]
    best = int(np.argmax(advantage))
    assert steps["none"][best] > 0 > steps["group"][best]


@pytest.mark.parametrize("group", [2, 3])
def test_constant_slope_cannot_flip_contexts(group):
    true, expected = shared_logit_instance(group)
    constant = float(binary_slope(group, sp.Rational(1, 3)))
    assert float(expected) == pytest.approx(constant * float(true), abs=ROUNDING)


def test_uniform_trees_are_what_they_say():
    rows = list(uniform_trees(2, 1))
    assert len(rows) == 3  # of (0, 0), (0, 1), (1, 1)
    assert all(sum(arms.mixture().values()) == 1 for arms in rows)
