"""What the strategies draw: valid, exact, printable, and small once shrunk."""

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import find as find_with
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from bandits import ModelError, SequentialBandit, TabularMDP, alias, load_policy, save_policy
from seeupo_theory.rules.presets import PRESETS, Algorithm
from seeupo_theory.testing import (
    Policy,
    algorithms,
    bandits,
    groups,
    leaves,
    mdps,
    policies,
    problems,
    ratios,
    returns,
    simplices,
    values,
)

CODE = {"SequentialBandit": SequentialBandit, "TabularMDP": TabularMDP, "Policy": Policy}
SMALL = {Fraction(n, d) for d in (1, 2) for n in range(-3 * d, 3 * d + 1)}
QUICK = settings(max_examples=40)
SHRUNK = settings(max_examples=300, phases=[Phase.generate, Phase.shrink])
FOUND = settings(max_examples=300, phases=[Phase.generate])


def find(strategy, wish, how=FOUND):
    return find_with(strategy, wish, settings=how)


def rebuilt(thing):
    return eval(repr(thing), dict(CODE))


@QUICK
@given(bandits(contexts=st.integers(1, 2), actions=st.integers(1, 3)))
def test_bandits_are_code_with_small_fractions(model):
    assert rebuilt(model) == model
    assert model.turns <= 2 and model.contexts <= 2
    assert set(model.exact_rewards().reshape(-1)) <= SMALL
    assert model.exact_context_probs().sum() == 1
    assert (model.context_probs > 0).all()
    assert max(p.denominator for p in model.exact_reward_probs().reshape(-1)) <= 7


@QUICK
@given(bandits(contexts=2, actions=(2, st.just(3), 1), rewards=values(denominator=1)))
def test_sizes_are_as_asked(model):
    assert (model.contexts, model.actions, model.deterministic) == (2, (2, 3, 1), True)
    assert all(r.denominator == 1 for r in model.exact_rewards().reshape(-1))


@QUICK
@given(mdps(states=st.integers(1, 3), masked=True))
def test_mdps_are_code(model):
    assert rebuilt(model) == model
    assert model.graph().turns == 2
    assert (model.exact_transitions().sum(axis=-1) == 1).all()


@pytest.mark.parametrize(
    "wish",
    [
        lambda m: m.absorbing.any(),
        lambda m: m.mask is not None and not m.mask.all(),
        lambda m: m.discount == 0.9,
        lambda m: ((m.transitions > 0) & (m.transitions < 1)).any(),
        lambda m: m.contexts == 2,
    ],
    ids=["absorbing", "masked", "discounted", "random moves", "two starts"],
)
def test_mdps_of_every_kind_are_drawn(wish):
    assert wish(find(mdps(masked=True), wish))


@QUICK
@given(problem=problems(mdps(masked=True), zeros=True))
def test_policies_keep_the_masks(problem):
    model, policy = problem
    assert rebuilt(policy) == policy
    for layer, table, exact in zip(model.graph().layers, policy, policy.exact, strict=True):
        assert table.shape == (layer.observations, layer.actions)
        assert (exact.exact().sum(axis=1) == 1).all()
        assert layer.mask is None or (table[~layer.mask] == 0).all()


@QUICK
@given(problem=problems(bandits(turns=2)))
def test_policies_keep_every_action_unless_asked(problem):
    assert all((table > 0).all() for table in problem[1])


def test_nearly_deterministic_policies_are_drawn():
    model = SequentialBandit([[[0, 1], [1, 0]]])
    sure = find(policies(model), lambda policy: policy[1].max() > 0.9999)
    assert sure[1].min() <= 1e-6
    never = find(policies(model, zeros=True), lambda policy: (policy[0] == 0).any())
    assert sorted(never[0][0]) == [0, 1]
    plain = policies(model, rare=False)
    with pytest.raises(NoSuchExample):
        find(plain, lambda policy: policy[0].max() > 0.9)


@QUICK
@given(st.data())
def test_shared_policies_give_a_row_once(data):
    from seeupo_theory.tabular.policies import shared

    graph = alias(SequentialBandit(np.zeros((2, 2, 2))), "last-action", shared=True).graph()
    policy = data.draw(policies(graph, shared=True))
    shared(graph).init([np.log(table) for table in policy])  # raises where turns disagree
    assert len(policy) == 2


def test_shared_policies_need_equal_turns():
    model = SequentialBandit(np.zeros((1, 2, 3)))
    with pytest.raises(ValueError, match=r"turns have \(2, 3\) actions; they should have equally"):
        find(policies(model, shared=True), lambda policy: True)
    moves = [[[0, 1], [0, 1]], [[1, 0], [0, 1]]]
    by_turn = [[[True, True], [True, True]], [[True, False], [True, True]]]
    masked = TabularMDP(moves, [[0, 1], [1, 0]], [1, 0], horizon=2, mask=by_turn)
    with pytest.raises(ValueError, match="allow different actions in the same row"):
        find(policies(masked, shared=True), lambda policy: True)


@QUICK
@given(returns(), groups())
def test_returns_are_batches_of_floats(batch, group):
    assert batch.dtype == group.dtype == np.float64
    assert 1 <= batch.shape[0] <= 3 and 2 <= batch.shape[1] <= 5
    assert group.shape[0] == 1 and 2 <= group.shape[1] <= 6
    assert {Fraction(x) for x in batch.reshape(-1).tolist()} <= SMALL


def test_equal_and_unequal_groups_are_drawn():
    equal = find(returns(1, 3), lambda r: np.ptp(r) == 0 and r[0, 0] != 0, SHRUNK)
    assert equal.tolist() == [[1.0, 1.0, 1.0]]
    assert np.ptp(find(returns(1, 3), lambda r: np.ptp(r) > 1)) > 1


@QUICK
@given(algorithms(["seeupo", "grpo"], lr=st.sampled_from([0.5, 2.0]), epochs=3), ratios())
def test_algorithms_are_presets_with_switches(algorithm, ratio):
    assert algorithm.name in ("seeupo", "grpo") and algorithm.epochs == 3 and ratio > 0
    assert PRESETS[algorithm.name].replace(lr=algorithm.lr, epochs=3) == algorithm


def test_all_presets_are_drawn_by_default():
    assert {find(algorithms(), lambda a, n=n: a.name == n).name for n in PRESETS} == set(PRESETS)
    assert isinstance(find(algorithms("rloo"), lambda a: True), Algorithm)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (lambda: bandits(turns=0), "turns is 0; it should be a whole number of at least 1"),
        (lambda: bandits(actions=()), "actions is empty"),
        (lambda: bandits(actions=(2, "x")), r"actions\[1\] is 'x'"),
        (lambda: bandits(contexts=True), "contexts is True"),
        (lambda: mdps(states=st.just(1.5)), r"states is 1\.5"),
        (lambda: leaves(atoms=0), "atoms is 0"),
        (lambda: simplices(0), "size is 0"),
        (lambda: values(bound=-1), "bound is -1"),
        (lambda: algorithms("grop"), "did you mean 'grpo'"),
        (lambda: algorithms([]), "names is empty"),
        (lambda: algorithms("grpo", ordr=1), "did you mean 'order'"),
    ],
)
def test_wrong_sizes_are_named(strategy, message):
    with pytest.raises(ValueError, match=message):
        find(strategy(), lambda drawn: True)


def test_failures_shrink_to_the_simplest_model():
    two = bandits(contexts=2, turns=2)
    assert repr(find(two, lambda m: m.deterministic, SHRUNK)) == (
        "SequentialBandit([[[0, 0], [0, 0]], [[0, 0], [0, 0]]])"
    )
    best = find(bandits(turns=1), lambda m: m.reward_means.max() >= 1, SHRUNK)
    assert repr(best) in ("SequentialBandit([[0, 1]])", "SequentialBandit([[1, 0]])")


def test_hypothesis_prints_code():
    """Not the fields of the dataclasses, parsed arrays and all."""

    @settings(SHRUNK, report_multiple_bugs=False)
    @given(bandits(turns=1), mdps(), algorithms("grpo", lr=2.0))
    def fails(model, mdp, algorithm):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        fails()
    text = "\n".join(caught.value.__notes__)
    assert "model=SequentialBandit([[0, 0]])" in text
    assert "mdp=TabularMDP([[[" in text
    assert "algorithm=PRESETS['grpo'].replace(lr=2.0)" in text


def test_a_policy_is_a_sequence_of_tables(tmp_path):
    policy = Policy([[["1/3", "2/3"]], [[0.25, 0.75], [1, 0]]])
    assert policy[0].tolist() == [[1 / 3, 2 / 3]] and len(policy[0:2]) == 2
    assert [table.shape for table in policy] == [(1, 2), (2, 2)]
    assert Policy(policy) == policy and hash(Policy(policy)) == hash(policy)
    assert copy.deepcopy(policy) == policy == pickle.loads(pickle.dumps(policy))
    assert policy != Policy([[["1/3", "2/3"]], [[0.5, 0.5], [1, 0]]]) and policy != 1
    save_policy(policy.exact, tmp_path / "policy.json")
    assert [t.tolist() for t in load_policy(tmp_path / "policy.json")] == [
        t.tolist() for t in policy
    ]
    with pytest.raises(ValueError, match="read-only"):
        policy[0][0, 0] = 1
    with pytest.raises(AttributeError, match="cannot be changed"):
        policy.exact = ()


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([], "policy is empty"),
        ([[0.5, 0.5]], r"policy\[0\] has shape \(2,\), should be a table"),
        ([[["1/3", "1/3"]]], r"policy\[0\]\[0\] sums to 2/3"),
        ([[[2, -1]]], r"policy\[0\]\[0\]\[1\] = -1"),
    ],
)
def test_wrong_policies_are_named(tables, message):
    with pytest.raises(ModelError, match=message):
        Policy(tables)
