"""The laws of estimators pass where they should, fail where they should, and say why."""

import re

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bandits import SequentialBandit, TabularMDP
from seeupo_theory import PRESETS, Algorithm
from seeupo_theory.rules.advantages import ESTIMATORS, Grae
from seeupo_theory.testing import (
    BATCHES,
    Policy,
    assert_permutation_equivariant,
    assert_shift_invariant,
    assert_sign,
    assert_unbiased,
    bandits,
    leaves,
    mdps,
    problems,
    returns,
    values,
)

SMALL = settings(max_examples=40)
SEARCH = settings(
    max_examples=400, phases=[Phase.generate, Phase.shrink], report_multiple_bugs=False
)

MISLEADING = SequentialBandit([[0, {"values": [1, -3], "probs": ["2/3", "1/3"]}]])
"""The second action is worse (−1/3) but wins two comparisons in three."""


def whitened(returns):
    centred = returns - returns.mean(axis=-1, keepdims=True)
    return centred / (returns.std(axis=-1, keepdims=True) + 1e-6)


def rebuilt(text):
    """Model and policy from the code in a message."""
    names = {"SequentialBandit": SequentialBandit, "TabularMDP": TabularMDP, "Policy": Policy}
    lines = [line for line in text.splitlines() if line.startswith(("model = ", "policy = "))]
    exec("\n".join(lines), names)
    return names["model"], names["policy"]


# Expected advantages ------------------------------------------------------------------------------


@SMALL
@given(problem=problems(st.one_of(bandits(turns=2), mdps(masked=True))))
def test_group_baselines_without_std_keep_the_laws(problem):
    assert_unbiased("rloo", *problem)
    assert_unbiased("grae", *problem, up_to_scale=True)
    assert_unbiased(Grae("loo"), *problem, group_size=3)
    for name in ("grae", "rloo", "none"):
        assert_sign(name, *problem)


@SMALL
@given(problem=problems(bandits(turns=1, rewards=leaves(st.sampled_from([0, 1])))))
def test_binary_rewards_keep_their_sign_under_group_std(problem):
    """A theorem: E[Â | r] is monotone in the mean where rewards are 0 or 1."""
    assert_sign("grpo", *problem, group_size=3)


def test_the_group_mean_is_biased_by_one_over_g():
    model = SequentialBandit([[0, 1]])
    message = (
        r"^grae is biased at turn 1 after context 0, action 0: E\[Â\] less its mean over the "
        r"actions is -0\.25, the advantage is -0\.5; group_size=2\n"
        r"model = SequentialBandit\(\[\[0, 1\]\]\)\npolicy = None  # uniform$"
    )
    with pytest.raises(AssertionError, match=message):
        assert_unbiased("grae", model)
    assert_unbiased("grae", model, tolerance=0.3)


def test_group_std_is_biased_whatever_the_factor():
    with pytest.raises(AssertionError, match=r"grpo is biased .* the best factor"):
        assert_unbiased("grpo", SequentialBandit([[0, 1, 5]]), group_size=3, up_to_scale=True)


@pytest.mark.parametrize(
    "wrong", [lambda r: r.mean(-1, keepdims=True) - r, lambda r: 0 * r], ids=["opposite", "zero"]
)
def test_the_common_factor_must_be_positive(wrong):
    with pytest.raises(AssertionError, match="which should be positive"):
        assert_unbiased(wrong, SequentialBandit([[0, 1]]), up_to_scale=True)


def test_where_nothing_is_better_nothing_may_be_preferred():
    equal = SequentialBandit([[{"values": [0, 2], "probs": [0.5, 0.5]}, 1]])
    for up_to_scale in (False, True):
        assert_unbiased("rloo", equal, up_to_scale=up_to_scale)
        with pytest.raises(AssertionError, match="biased"):
            assert_unbiased(lambda r: r**2, equal, up_to_scale=up_to_scale)
    assert_sign("rloo", SequentialBandit([[1, 1]]))


def test_a_wrong_sign_is_named_and_can_be_rebuilt():
    policy = Policy([[["1/3", "2/3"]]])
    with pytest.raises(AssertionError) as caught:
        assert_sign(whitened, MISLEADING, policy, group_size=3)
    text = str(caught.value)
    found = re.search(
        r"after context 0, action (\d): .* is ([-+.\d]+), the .* is ([-+.\d]+);", text
    )
    assert float(found[2]) * float(found[3]) < 0 and "group_size=3" in text
    model, again = rebuilt(text)
    assert model == MISLEADING and again == policy
    with pytest.raises(AssertionError):
        assert_sign(whitened, model, again, group_size=3)
    assert_sign(whitened, model, again, group_size=3, tolerance=0.5)


def test_histories_and_rows_are_named():
    later = SequentialBandit([[[0, 0], [0, {"values": [1, -3], "probs": ["2/3", "1/3"]}]]])
    tables = [[[0.01, 0.99]], [[0.5, 0.5], [0.5, 0.5]]]
    with pytest.raises(AssertionError, match=r"turn 2 after context 0 and actions \(1,\), action"):
        assert_sign("grpo", later, tables)
    paid = [[0, {"values": [1, -3], "probs": ["2/3", "1/3"]}]]
    mdp = TabularMDP([[[1], [1]]], paid, [1], horizon=1)
    with pytest.raises(AssertionError, match=r"at turn 1, row 0, action \d: (.|\n)*TabularMDP"):
        assert_sign("grpo", mdp)


def test_hypothesis_finds_and_shrinks_a_wrong_sign():
    """What the package's own text promises."""

    @SEARCH
    @given(bandits(turns=1, actions=2))
    def the_law(model):
        assert_sign(whitened, model, group_size=2)

    with pytest.raises(AssertionError, match="whitened has the wrong sign") as caught:
        the_law()
    model, policy = rebuilt(str(caught.value))
    assert policy is None and model.leaves == 2
    assert sorted(len(np.unique(v)) for v in model.reward_values[0]) == [1, 2]
    assert max(abs(r) for r in model.exact_rewards().reshape(-1)) <= 3


def test_hypothesis_finds_it_with_sure_rewards_in_two_turns():
    @SEARCH
    @given(problem=problems(bandits(turns=2, rewards=values(denominator=1)), rare=False))
    def the_law(problem):
        assert_sign("grpo", *problem)

    with pytest.raises(AssertionError, match="grpo has the wrong sign at turn 1") as caught:
        the_law()
    model, policy = rebuilt(str(caught.value))
    assert model.deterministic and model.leaves == 4 and isinstance(policy, Policy)


def test_batch_statistics_are_measured_in_batches():
    model = SequentialBandit([[0, 1], [3, 1]], ["1/3", "2/3"])
    with pytest.raises(AssertionError, match="group_size=2, contexts_per_batch=2"):
        assert_unbiased("seeupo", model, up_to_scale=True)
    with pytest.raises(AssertionError, match="contexts_per_batch=3"):
        assert_unbiased("seeupo", model, up_to_scale=True, contexts_per_batch=3)
    assert_sign("seeupo", model)
    assert_unbiased("rloo", model, contexts_per_batch=3)  # looks at its own group only


def test_single_precision_has_its_own_tolerance():
    def single(returns):
        return ESTIMATORS["rloo"](returns.astype(np.float32))

    model = SequentialBandit([[["1/3", "2/3"], ["1/7", 1]]])
    assert_unbiased(single, model, group_size=3)
    with pytest.raises(AssertionError):
        assert_unbiased(single, model, group_size=3, tolerance=1e-12)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        ("gae", "algorithm is 'gae'; it should be one of"),
        ("rlo", "did you mean 'rloo'"),
        (PRESETS["ppo"], "estimator 'gae' is not a function of a group's returns"),
        ("haml", "estimator 'exact' is not a function of a group's returns"),
    ],
)
def test_estimators_that_have_no_group_are_refused(estimator, message):
    with pytest.raises(ValueError, match=message):
        assert_sign(estimator, MISLEADING)


def test_presets_and_algorithms_are_estimators_too():
    assert_unbiased(Algorithm(baseline="loo"), MISLEADING)
    with pytest.raises(AssertionError, match="gspo has the wrong sign"):
        assert_sign("gspo", MISLEADING)


# Batches of returns -------------------------------------------------------------------------------


@SMALL
@given(returns())
def test_named_estimators_treat_members_and_groups_alike(batch):
    for name in ESTIMATORS:
        assert_permutation_equivariant(name, batch)
        if name != "none":
            assert_shift_invariant(name, batch, per_group=name != "reinforce++")


@pytest.mark.parametrize("name", [n for n in ESTIMATORS if n != "none"])
def test_named_estimators_keep_the_laws_on_the_stored_batches(name):
    assert_permutation_equivariant(name)
    assert_shift_invariant(name)


def test_stored_batches_hold_the_awkward_cases():
    assert any(np.ptp(b) == 0 and b.shape[1] > 1 for b in BATCHES)
    assert any(b.shape[1] == 1 for b in BATCHES) and any(b.shape[0] > 1 for b in BATCHES)
    assert any(b.min() >= 1000 for b in BATCHES)
    assert not any(b.flags.writeable for b in BATCHES)


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        (lambda r: r - r[..., :1], "members"),
        (lambda r: np.cumsum(r, axis=-1), "members"),
        (lambda r: r * np.arange(1, r.shape[-2] + 1)[:, None], "groups"),
    ],
)
def test_order_is_noticed(rule, what):
    message = rf"does not treat the {what} alike\nreturns = \[\[.*\nwith the {what} in the order \["
    with pytest.raises(AssertionError, match=message):
        assert_permutation_equivariant(rule)


def test_shifts_are_noticed():
    with pytest.raises(AssertionError, match=r"none feels a shift .*\n.*\nwith \[1\.0\] added"):
        assert_shift_invariant("none")
    with pytest.raises(AssertionError, match="feels a shift"):
        assert_shift_invariant("reinforce++", per_group=True)
    relative = lambda r: r / (1e-9 + abs(r).max(axis=-1, keepdims=True))  # noqa: E731
    with pytest.raises(AssertionError, match=r"<lambda> feels a shift"):
        assert_shift_invariant(relative, np.array([[1.0, 2.0]]), shifts=[0.5])
    assert_shift_invariant(relative, np.array([[1.0, 2.0]]), shifts=[0.0])


def test_rounding_of_equal_returns_is_noticed():
    """A mean of equal numbers can miss them by one unit: the naive form divides that by 1e-12."""

    def naive(returns):
        centred = returns - returns.mean(axis=-1, keepdims=True)
        return centred / (returns.std(axis=-1, keepdims=True) + 1e-12)

    equal = np.full((1, 3), 0.1)
    with pytest.raises(AssertionError, match="feels a shift"):
        assert_shift_invariant(naive, equal, shifts=[1000.0])
    assert_shift_invariant("grpo", equal, shifts=[1000.0])


@pytest.mark.parametrize("law", [assert_permutation_equivariant, assert_shift_invariant])
def test_wrong_shapes_are_named(law):
    with pytest.raises(AssertionError, match=r"returns shape \(1,\) for returns of shape \(1, 4\)"):
        law(lambda r: r.mean(axis=-1))
    for wrong in ([1.0, 2.0], np.array([[1, 2]])):
        with pytest.raises(ValueError, match="it should be floats"):
            law("grpo", wrong)


@pytest.mark.parametrize("law", [assert_permutation_equivariant, assert_shift_invariant])
def test_the_laws_write_into_nothing(law):
    def rude(r):
        r -= r.mean(axis=-1, keepdims=True)
        return r

    given_returns = np.array([[1.0, 2.0, 6.0]])
    law(rude, given_returns)
    assert given_returns.tolist() == [[1.0, 2.0, 6.0]]
