"""The simulator's batch normalisation against exact sums over batches."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proofs
from proofs._surds import enclose_roots
from proofs.batch_normalisation import (
    RESULTS,
    given_reward,
    leading,
    others_law,
    remainder,
    shared_logit_instance,
    skewed_arms,
    squares_law,
)
from seeupo_theory.rules import advantages

from .groups import ROUNDING, given_own_reward, laws, mean


def normalised(returns):
    return advantages.grae(returns, baseline="mean", normalise="batch", std_eps=0.0, ddof=1)


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: r.name)
def test_theorem(result):
    assert proofs.run(result).status in ("exact", "numerical")


def value(terms):
    return float(sum(enclose_roots(terms)) / 2)


@given(laws(), laws(), st.integers(2, 3))
@settings(max_examples=25)
def test_two_contexts(first, second, group):
    found = given_own_reward(normalised, [first, second], group)
    rest = squares_law(second, group)
    for own, expected in found.items():
        exact = given_reward(own, first, group, 2, rest)
        assert expected == pytest.approx(value(exact), abs=ROUNDING)


@given(laws(most=2), laws(most=2), st.sampled_from([2, 3]))
@settings(max_examples=25)
def test_two_reward_values_keep_their_sign(first, second, group):
    for own, expected in given_own_reward(normalised, [first, second], group).items():
        assert np.sign(expected) == np.sign(float(own - mean(first)))


@given(laws(values=(0, 1, 3)), st.integers(1, 3))
@settings(max_examples=15)
def test_one_law(law, batch):
    rest = others_law([law] * (batch - 1), 2)
    found = given_own_reward(normalised, [law] * batch, 2)
    for own, expected in found.items():
        assert expected == pytest.approx(
            value(given_reward(own, law, 2, batch, rest)), abs=ROUNDING
        )


def test_leading_term_explains_the_bias_of_the_rule():
    """A batch of 3 groups of 2: the expansion's first order is most of the bias, of its sign."""
    law = {Fraction(0): Fraction(5, 6), Fraction(3): Fraction(1, 6)}
    for own in law:
        first = float(leading(law, own, 2, 12))
        rest = float(remainder(law, own, 2, 12))
        assert abs(rest) < abs(first)


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_the_worse_arm_is_preferred(batch):
    margin = Fraction(1, 8 * batch)
    true, sign = skewed_arms(margin, 2, batch)
    half, quarter = Fraction(1, 2), Fraction(1, 4)
    law = {quarter - margin: half, Fraction(0): half * 3 / 4, Fraction(1): half / 4}
    found = given_own_reward(normalised, [law] * batch, 2)
    assert true < 0 < sign and found[quarter - margin] > 0


def test_shared_logit():
    """B = G = 2, binary rewards: the rule's expected gradient has the wrong sign."""
    half = Fraction(1, 2)
    arms = ((Fraction(1, 4), Fraction(0)), (Fraction(19, 50), Fraction(31, 50)))
    success = [half * (x + y) for x, y in arms]
    contexts = [{Fraction(0): 1 - p, Fraction(1): p} for p in success]
    total = 0.0
    for own, (x, y) in enumerate(arms):
        found = given_own_reward(normalised, [contexts[own], contexts[1 - own]], 2)
        total += float(x - y) / 4 * (found[1] - found[0])
    true, sign, expected = shared_logit_instance()
    assert true > 0 > sign
    assert total == pytest.approx(expected, abs=ROUNDING)


def test_the_simulator_s_exact_expectation():
    """Finite batches in the simulator, against the proof."""
    from bandits import SequentialBandit
    from seeupo_theory.rules.presets import PRESETS
    from seeupo_theory.tabular.expectation import Law, expected_parts

    law = {Fraction(0): Fraction(1, 2), Fraction(1): Fraction(1, 4), Fraction(3): Fraction(1, 4)}
    algorithm = PRESETS["seeupo"].replace(std_eps=0.0)
    model = SequentialBandit([[[0, 1, 3]]])
    support = np.array([[0.0, 1.0, 3.0]])
    probs = np.array([[float(p) for p in law.values()]])
    parts = expected_parts(Law(algorithm, 2, 3), np.asarray(model.context_probs), support, probs)
    rest = others_law([law] * 2, 2)
    for index, own in enumerate(law):
        exact = value(given_reward(own, law, 2, 3, rest))
        assert float(parts.mean[0, index]) == pytest.approx(exact, abs=ROUNDING)
