"""Sequential bandits: shapes, exact numbers, equality, repr, and refusals."""

import dataclasses
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

from bandits import ModelError, SequentialBandit
from bandits.rewards import as_fraction, parse_rewards, reward

from .oracle import bandit_value, graph_value, tree_value
from .strategies import bandits, tables


def test_attributes_of_a_small_model():
    coin = {"values": [0, "3/2"], "probs": [0.6, "2/5"]}
    model = SequentialBandit([[[0, 1], ["1/2", coin]]], name="small")
    assert (model.contexts, model.turns, model.horizon, model.actions) == (1, 2, 2, (2, 2))
    assert model.histories == (1, 2) and model.leaves == 4 and not model.deterministic
    assert model.reward_values.shape == model.reward_probs.shape == (1, 2, 2, 2)
    assert model.reward_means.tolist() == [[[0.0, 1.0], [0.5, 0.6000000000000001]]]
    assert model.exact_means().tolist() == [[[0, 1], [Fraction(1, 2), Fraction(3, 5)]]]
    assert model.exact_rewards()[0, 1, 1].tolist() == [0, Fraction(3, 2)]
    assert model.exact_reward_probs()[0, 1, 1].tolist() == [Fraction(3, 5), Fraction(2, 5)]
    assert model.exact_context_probs().tolist() == [1]


def test_padding_atoms_are_copies_with_probability_zero():
    model = SequentialBandit([[3, reward((0, "1/2"), (1, "1/4"), (2, "1/4"))]])
    assert model.reward_values[0, 0].tolist() == [3.0, 3.0, 3.0]
    assert model.reward_probs[0, 0].tolist() == [1.0, 0.0, 0.0]


@given(bandits())
def test_repr_rebuilds_the_model(model):
    again = eval(repr(model), {"SequentialBandit": SequentialBandit})
    assert again == model and hash(again) == hash(model) and again.name == model.name


@given(bandits())
def test_moments_agree_with_the_definition(model):
    values, probs = model.exact_rewards(), model.exact_reward_probs()
    assert (probs.sum(axis=-1) == 1).all()
    assert ((values * probs).sum(axis=-1) == model.exact_means()).all()
    np.testing.assert_allclose(model.reward_means, model.exact_means().astype(float), atol=1e-12)
    np.testing.assert_allclose(model.reward_values, values.astype(float), rtol=1e-15)
    assert sum(model.exact_context_probs()) == 1


@given(bandits().flatmap(lambda m: tables(m).map(lambda p: (m, p))))
def test_three_routes_to_the_value_agree(model_and_policy):
    model, policy = model_and_policy
    graph = model.graph()
    expected = float(bandit_value(model.reward_means, model.context_probs, policy))
    assert graph_value(graph, policy) == pytest.approx(expected, abs=1e-12)
    assert tree_value(graph, policy) == pytest.approx(expected, abs=1e-12)


def test_equality_is_of_numbers_not_of_names_or_spelling():
    first = SequentialBandit([[0.5, "1/3"]], name="a")
    assert first == SequentialBandit([["1/2", Fraction(1, 3)]], name="b")
    assert first != SequentialBandit([[0.5, 1 / 3]])  # a float is its decimal
    assert first != SequentialBandit([[0.5], [0.5]])
    assert first != "a bandit"


def test_flat_rewards_take_the_shape_of_actions():
    flat = np.arange(12.0)
    model = SequentialBandit(flat, actions=(2, 3))
    assert model.reward_means.shape == (2, 2, 3)
    assert model == SequentialBandit(flat.reshape(2, 6), actions=[2, 3])
    assert model == SequentialBandit(flat.reshape(2, 2, 3), actions=(2, 3))
    exact = SequentialBandit(["1/3", 0, {"values": [0, 1], "probs": [0.5, 0.5]}, 1], actions=(2, 2))
    assert exact.exact_means()[0].tolist() == [[Fraction(1, 3), 0], [Fraction(1, 2), 1]]
    for wrong in [(5,), (2, 2, 2), (), "23", 3, (0, 3)]:
        with pytest.raises(ModelError, match=r"^(rewards|actions)"):
            SequentialBandit(flat, actions=wrong)


def test_whole_arrays_of_distributions():
    values, probs = np.zeros((1, 2, 3)), np.full((1, 2, 3), 1 / 3)
    model = SequentialBandit({"values": values, "probs": probs})
    assert model.actions == (2,) and model.reward_values.shape == (1, 2, 3)
    with pytest.raises(ModelError, match=r"^rewards.values has shape"):
        SequentialBandit({"values": values[..., :2], "probs": probs})


def test_large_array_is_taken_with_one_copy():
    rewards = np.random.default_rng(0).random((1, *(4,) * 9))
    tracemalloc.start()
    model = SequentialBandit(rewards)
    graph = model.graph()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.1 * rewards.nbytes
    assert np.shares_memory(graph.leaf_values, model.reward_means)
    assert np.array_equal(model.reward_means, rewards)
    assert repr(model).startswith("<SequentialBandit")


def test_an_array_too_large_to_copy_is_refused_first():
    endless = np.broadcast_to(0.0, (1, *(10,) * 14))
    with pytest.raises(ModelError, match=r"^rewards of shape \(1, 10, .*\) would need 800 TB, "):
        SequentialBandit(endless)


def test_callers_array_is_left_alone():
    rewards = np.arange(4.0).reshape(1, 2, 2)
    before = rewards.copy()
    model = SequentialBandit(rewards)
    rewards += 1
    assert np.array_equal(model.reward_means, before)
    rewards -= 1
    assert rewards.flags.writeable and np.array_equal(rewards, before)


def test_frozen():
    model = SequentialBandit([[0, 1]])
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.name = "other"


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        ([[[0, 1], [2]]], "rewards[0][1] has 1 entries, expected 2"),
        ([[0, 1], [2, 3, 4]], "rewards[1] has 3 entries, expected 2"),
        ([0, 1], "rewards should be nested lists"),
        (3, "rewards should be nested lists"),
        ([[0, float("nan")]], "rewards[0][1] = nan: should be a finite number"),
        ([[0, "x"]], "rewards[0][1] = 'x': should be a finite number"),
        ([[0, True]], "rewards[0][1] = True: should be a finite number"),
        ([[0, None]], "rewards[0][1] = None: should be a finite number"),
        ([[{"values": [1]}, 0]], "rewards[0][0].probs is missing"),
        ([[{"values": [1], "probs": [1], "p": 1}, 0]], "rewards[0][0].p is unknown"),
        (
            [[{"values": [1], "probs": [0.5]}, 0]],
            "rewards[0][0].probs sums to 0.5, should sum to 1",
        ),
        ([[{"values": [1, 2], "probs": [1.5, -0.5]}, 0]], "rewards[0][0].probs[1] = -0.5"),
        ([[{"values": [1, 2], "probs": [1]}, 0]], "rewards[0][0].probs has 1 entries, expected 2"),
        ([[{"values": [], "probs": []}, 0]], "rewards[0][0].values = []: should be a list"),
        ([[{"values": "ab", "probs": [1]}, 0]], "rewards[0][0].values = 'ab': should be a list"),
        ([[{"values": [np.inf], "probs": [1]}, 0]], "rewards[0][0].values[0] = inf"),
    ],
)
def test_wrong_rewards(rewards, message):
    with pytest.raises(ModelError) as error:
        SequentialBandit(rewards)
    text = str(error.value).replace("rewards: ", "rewards ")
    assert text.startswith(message) and "\n" not in text


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        ([1], "context_probs has shape (1,), should be (2,)"),
        ([0.5, 0.6], "context_probs sums to 1.1, should sum to 1"),
        ([-0.5, 1.5], "context_probs[0] = -0.5: should be a probability"),
        (["1/2", "1/3"], "context_probs sums to 5/6, should sum to exactly 1"),
        ([[0.5, 0.5]], "context_probs has shape (1, 2)"),
        ([], "context_probs is an empty list"),
    ],
)
def test_wrong_context_probs(probs, message):
    with pytest.raises(ModelError) as error:
        SequentialBandit([[0, 1], [1, 0]], probs)
    assert str(error.value).startswith(message)


def test_wrong_name_and_merge():
    with pytest.raises(ModelError, match=r"^name = 3: should be a string"):
        SequentialBandit([[0]], name=3)
    with pytest.raises(ModelError, match=r"^merge = 'all': should be one of return, none"):
        SequentialBandit([[0]]).graph("all")


def test_helpers():
    assert as_fraction("3/10") == Fraction(3, 10) and as_fraction(0.1) == Fraction(1, 10)
    rewards = parse_rewards("r", [reward((0, "3/5"), ("3/2", "2/5"))])
    assert rewards.exact_means().tolist() == [Fraction(3, 5)]
    assert parse_rewards("r", rewards) is rewards
