"""The brute-force expectation against the simulator and against closed forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bandits import SequentialBandit, alias, random_bandit, random_mdp, random_policy
from seeupo_theory import api
from seeupo_theory.rules.advantages import ESTIMATORS, Grae
from seeupo_theory.tabular.evaluate import evaluate
from seeupo_theory.testing import (
    bandits,
    expected_advantages,
    leaves,
    mdps,
    policies,
    problems,
    simplices,
    values,
)

ROUNDING = 1e-10
"""Sums over a few thousand groups of numbers of size 10, divided by probabilities of 1e-6 that are
themselves sums of doubles."""

ROUTES = 1e-12
"""Two routes add the same few thousand products of doubles of size 1."""


def close(found, want, tolerance=ROUNDING):
    for table, expected in zip(found, want, strict=True):
        np.testing.assert_allclose(table, expected, rtol=0, atol=tolerance)


MODELS = {
    "bandit": random_bandit(0, 2, (2, 2), "distribution"),
    "mdp": random_mdp(2, states=2, actions=2, horizon=2, masked=True, absorbing=1),
    "aliased": alias(random_bandit(3, 1, (2, 2), "grid"), "turn"),
}


@pytest.mark.parametrize("name", MODELS)
def test_agrees_with_the_simulator(name):
    model = MODELS[name]
    policy = random_policy(5, model)
    found = expected_advantages(ESTIMATORS["grpo"], model, policy, group_size=3)
    result = api.advantage(model, policy, estimator="grpo", group_size=3)
    assert result.method == "exact"
    for t in range(found.graph.turns):
        expected, exact = np.asarray(result.expected[t]), np.asarray(result.exact[t])
        centred = expected - (policy[t] * expected).sum(axis=1, keepdims=True)
        seen = found.sampled[t]
        np.testing.assert_allclose(found.expected[t][seen], centred[seen], rtol=0, atol=ROUTES)
        np.testing.assert_allclose(found.exact[t][seen], exact[seen], rtol=0, atol=ROUTES)
        assert seen.any() and not found.expected[t][~seen].any()


def test_agrees_with_the_simulator_on_batches():
    model, rule = SequentialBandit([[0, 1], [3, 1]], ["1/3", "2/3"]), ESTIMATORS["seeupo"]
    policy = random_policy(6, model)
    found = expected_advantages(rule, model, policy, group_size=2, contexts_per_batch=3)
    result = api.advantage(model, policy, estimator="seeupo", group_size=2, contexts_per_batch=3)
    assert result.method == "exact"
    expected = np.asarray(result.expected[0])
    close(found.expected, [expected - (policy[0] * expected).sum(axis=1, keepdims=True)], ROUTES)
    alone = expected_advantages(rule, model, policy, group_size=2)
    assert abs(alone.expected[0] - found.expected[0]).max() > 0.01


any_model = st.one_of(
    bandits(contexts=st.integers(1, 2), rewards=leaves(values(bound=1))),
    mdps(masked=True),
    bandits(turns=2, rewards=st.sampled_from([0, 1])).map(lambda m: alias(m, "last-action")),
)


@settings(max_examples=60)
@given(problem=problems(any_model, zeros=True), group=st.integers(2, 3))
def test_baselines_have_their_closed_forms(problem, group):
    model, policy = problem
    mean = expected_advantages(Grae("mean"), model, policy, group_size=group)
    close(mean.expected, [(1 - 1 / group) * a for a in mean.exact])
    others = expected_advantages(Grae("loo"), model, policy, group_size=group)
    close(others.expected, others.exact)
    nothing = expected_advantages(Grae("none"), model, policy, group_size=1)
    close(nothing.expected, nothing.exact)


@settings(max_examples=30)
@given(problem=problems(bandits(contexts=2, turns=2)))
def test_true_advantages_are_the_evaluators(problem):
    model, policy = problem
    found = expected_advantages(Grae("none"), model, policy, group_size=1)
    close(found.exact, evaluate(model.graph(), list(policy)).advantages)
    values_paid = model.reward_values[model.reward_probs > 0]
    assert found.spread == np.ptp(values_paid)


def first_as_baseline(returns):
    return returns - returns[..., :1]


@settings(max_examples=30)
@given(problem=problems(bandits(turns=1)), group=st.integers(1, 3))
def test_members_need_not_be_treated_alike(problem, group):
    """The first member's advantage is 0, the others' r_i − r_1: (1 − 1/G) A on average."""
    found = expected_advantages(first_as_baseline, *problem, group_size=group)
    close(found.expected, [(1 - 1 / group) * a for a in found.exact])


@settings(max_examples=30)
@given(simplices(3, rare=True), values(), values())
def test_rare_rewards_lose_no_digits(probs, low, high):
    """Three arms under a policy down to one part in a million: RLOO stays exact."""
    model = SequentialBandit([[low, high, 0]])
    found = expected_advantages(Grae("loo"), model, [[probs]], group_size=4)
    close(found.expected, found.exact)


@settings(max_examples=20)
@given(st.data())
def test_what_is_never_sampled_is_left_out(data):
    model = SequentialBandit([[[0, 1], [2, 3]]])
    policy = data.draw(policies(model, zeros=True))
    found = expected_advantages(Grae("mean"), model, policy)
    reached = policy[0][0] > 0
    assert (found.sampled[0][0] == reached).all()
    assert (found.sampled[1] == (reached[:, None] & (policy[1] > 0))).all()


def test_returns_that_differ_by_rounding_are_one_return():
    """0.1 + 0.2 and 0.3 would else be a group with a standard deviation of 1e-17."""
    model = SequentialBandit([[0.1 + 0.2, 0.3, 1.0]])
    found = expected_advantages(Grae("mean", "group", std_eps=0.0), model, group_size=2)
    assert found.expected[0][0, 0] == pytest.approx(found.expected[0][0, 1], abs=ROUTES)


def test_a_single_return_has_no_advantage():
    found = expected_advantages(Grae("mean", "group"), SequentialBandit([[2, 2]]), group_size=100)
    assert found.spread == 0 and not found.expected[0].any()


def stack_mean(returns):
    return returns - returns.mean()


@pytest.mark.parametrize(
    ("rule", "sizes", "message"),
    [
        (Grae(), {"group_size": float("inf")}, "group_size is inf; enumeration needs a whole"),
        (Grae(), {"group_size": 2.5}, r"group_size is 2\.5"),
        (Grae(), {"group_size": 0}, "group_size is 0; it should be at least 1"),
        (Grae(), {"group_size": 64}, "make about 10\\^19 batches, more than are enumerated"),
        (Grae(), {"contexts_per_batch": 10**9}, "more than are enumerated here; take smaller"),
        (lambda r: r.mean(axis=-1), {}, r"returns shape \(4, 1\) for returns of shape \(4, 1, 2\)"),
        (lambda r: r / (r.max() - r.max()), {}, r"gives \[\[.*nan.*\]\] for returns \[\[0"),
        (stack_mean, {}, "should reduce over the last axes only"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_cannot_be_enumerated_is_refused(rule, sizes, message):
    with pytest.raises(ValueError, match=message):
        expected_advantages(rule, SequentialBandit([[0, 1]]), **sizes)


def test_a_policy_that_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"policy\[0\]\[0\] sums to 0\.9"):
        expected_advantages(Grae(), SequentialBandit([[0, 1]]), [[[0.4, 0.5]]])
