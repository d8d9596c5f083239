"""The factor 1 - 1/G of the simulator's group mean, and its absence from leave-one-out."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proofs
from proofs._trees import histories
from proofs.baseline_invariance import RESULTS, best_of_group_instance, expected_gradient, gradient
from seeupo_theory.rules import advantages

from .groups import ROUNDING, bandit, given_own_reward, laws, mean, rows, tables, trees


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: r.name)
def test_theorem(result):
    assert proofs.run(result).status == "exact"


@given(laws(), st.integers(2, 4))
@settings(max_examples=40)
def test_group_mean_scales_by_its_factor(law, group):
    found = given_own_reward(lambda r: advantages.grae(r, baseline="mean"), [law], group)
    for own, value in found.items():
        assert value == pytest.approx(
            float((1 - Fraction(1, group)) * (own - mean(law))), abs=ROUNDING
        )


@given(laws(), st.integers(2, 4))
@settings(max_examples=40)
def test_leave_one_out_is_unbiased(law, group):
    found = given_own_reward(lambda r: advantages.grae(r, baseline="loo"), [law], group)
    for own, value in found.items():
        assert value == pytest.approx(float(own - mean(law)), abs=ROUNDING)


@given(laws(most=2), laws(most=2))
@settings(max_examples=30)
def test_batch_mean_scales_by_the_batch(first, second):
    found = given_own_reward(lambda r: advantages.grae(r, baseline="batch"), [first, second], 2)
    others = (mean(first) + 2 * mean(second)) / 4
    for own, value in found.items():
        assert value == pytest.approx(float(Fraction(3, 4) * own - others), abs=ROUNDING)


@given(trees(), st.sampled_from(["mean", "loo"]), st.data())
@settings(max_examples=25)
def test_expected_gradient(instance, baseline, data):
    """Every parametrisation: an arbitrary direction, with the rule in the place of the symbols."""
    tree, policy = instance
    group = data.draw(st.integers(2, 3 if tree.turns == 1 else 2))
    direction = {}
    for h in histories(tree.actions):
        other = data.draw(rows(tree.actions[len(h)]))
        direction[h] = tuple(b - a for a, b in zip(policy[h], other, strict=True))

    def rule(returns):
        return advantages.grae(np.array([float(r) for r in returns]), baseline=baseline)

    found = float(expected_gradient(tree, policy, direction, group, rule))
    factor = 1 - 1 / group if baseline == "mean" else 1.0
    assert found == pytest.approx(factor * float(gradient(tree, policy, direction)), abs=1e-11)


@given(trees(shapes=((2, 2), (2, 3))))
@settings(max_examples=15)
def test_gradient_is_the_simulator_s(instance):
    from seeupo_theory.tabular import evaluate

    tree, policy = instance
    found = evaluate.gradient(bandit(tree).graph(), tables(tree, policy))
    for turn, table in enumerate(found):
        rows_here = list(itertools.product(*(range(n) for n in tree.actions[:turn])))
        for row, h in enumerate(rows_here):
            for a in range(tree.actions[turn]):
                zero = {k: (Fraction(0),) * len(v) for k, v in policy.items()}
                pi = policy[h]
                zero[h] = tuple(pi[b] * ((a == b) - pi[a]) for b in range(len(pi)))
                assert table[row, a] == pytest.approx(
                    float(gradient(tree, policy, zero)), abs=ROUNDING
                )


def test_the_best_of_the_group_is_no_baseline():
    gap, difference = best_of_group_instance()
    half = Fraction(1, 2)
    arms = ({half: Fraction(1)}, {Fraction(0): Fraction(2, 5), Fraction(1): Fraction(3, 5)})
    mixture = {
        r: sum(half * arm.get(r, 0) for arm in arms) for r in (Fraction(0), half, Fraction(1))
    }
    found = given_own_reward(lambda r: r - r.max(axis=-1, keepdims=True), [mixture], 2)
    expected = [sum(float(p) * found[r] for r, p in arm.items()) for arm in arms]
    assert gap < 0 < difference
    assert expected[0] - expected[1] == pytest.approx(float(difference), abs=ROUNDING)
