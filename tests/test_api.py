"""The questions of `seeupo_theory.api`, against values known by hand or by exact proof."""

import json
import math

import numpy as np
import pytest

import seeupo_theory as st
from bandits import SequentialBandit, zoo
from seeupo_theory import api

STUCK = SequentialBandit([[["1/2", "1/2"], [0, 1]]])


@pytest.mark.parametrize(
    ("size", "wrong", "centred"),
    [(2, 0.0707, 0.025), (3, 0.0893, 1 / 30), (4, 0.0772, 0.0375), (6, 0.0348, 0.05 * 5 / 6)],
)
def test_group_std_turns_the_sign_of_the_wrong_sign_bandit(size, wrong, centred):
    entry = zoo.get("wrong-sign")
    std = st.advantage(entry.model, estimator="grpo", group_size=size, std_eps=0.0)
    np.testing.assert_allclose(std.expected[0][0], [wrong, -wrong], atol=5e-5)
    assert std.sign_errors == [[0, 0, 0], [0, 0, 1]]
    mean = st.advantage(entry.model, estimator="grae", group_size=size)
    np.testing.assert_allclose(mean.expected[0][0], [-centred, centred], atol=1e-12)
    assert mean.sign_errors == []
    assert mean.method == "exact"


def test_step_reports_every_update_and_starts_from_the_policy():
    result = st.step(STUCK, algorithm="seeupo", normalise="none", lr=0.5, epochs=1)
    # one plain step on the last turn: ∂J/∂logits = d(h) π (Q − V) = ½ · ½ · (∓½), uniform start
    logits = np.array([-0.125, 0.125]) * 0.5
    p = np.exp(logits) / np.exp(logits).sum()
    first = 0.5 * 0.5 + 0.5 * p[1]
    assert result.value_before == pytest.approx(0.5, abs=1e-15)
    assert result.per_turn[0] == pytest.approx(first, abs=1e-14)
    assert result.value_after == result.per_turn[-1] > first
    assert result.updated == [2, 1]
    assert result.monotone and result.surrogate_rose


def test_reached_support_leaves_forward_order_stuck_and_reverse_optimal():
    policy = zoo.get("stuck-tree").policy
    model = zoo.get("stuck-tree").model
    switches = {"algorithm": "haml-greedy", "support": "reached"}
    assert st.step(model, policy, order="forward", **switches).value_after == pytest.approx(0.5)
    assert st.step(model, policy, order="reverse", **switches).value_after == pytest.approx(1.0)


def test_shared_logit_feels_the_sign_flip_of_group_std():
    """Two contexts, weights .6 and .4, gaps +1 and −2: ∂J/∂θ = −.05, normalised it is positive."""
    entry = zoo.get("shared-logit")
    moved = {}
    for normalise, size in (("none", math.inf), ("group", math.inf), ("group", 2)):
        result = st.step(
            entry.model,
            entry.policy,
            algorithm="grpo",
            normalise=normalise,
            group_size=size,
            epochs=1,
            lr=0.1,
            std_eps=0.0,
        )
        moved[normalise, size] = result.value_after - result.value_before
    assert moved["none", math.inf] > 0
    assert moved["group", math.inf] < 0
    assert moved["group", 2] < 0


def test_huge_rewards_scale_like_small_ones():
    small = st.step(SequentialBandit([[2, 1]]), algorithm="seeupo", std_eps=0.0)
    huge = st.step(SequentialBandit([[2e300, 1e300]]), algorithm="seeupo", std_eps=0.0)
    np.testing.assert_allclose(huge.policy[0], small.policy[0], rtol=1e-12)
    assert huge.value_after == pytest.approx(small.value_after * 1e300, rel=1e-12)


def test_inspect_optimum_gaps_and_histories():
    result = st.inspect(STUCK)
    assert (result.value, result.optimal_value, result.turns) == (0.5, 1.0, 2)
    assert result.histories == [1, 2]
    assert sum(result.turn_gaps) == pytest.approx(0.5, abs=1e-15)
    assert np.asarray(result.optimal_policy[0]).tolist() == [[0.0, 1.0]]


def test_optimal_policy_of_an_mdp_is_by_state():
    result = st.inspect("gym:FrozenLake-v1?horizon=12&is_slippery=false")
    assert result.optimal_value == pytest.approx(1.0)
    assert len(result.optimal_policy[0]) == 16
    again = st.inspect("gym:FrozenLake-v1?horizon=12&is_slippery=false", result.optimal_policy)
    assert again.value == pytest.approx(1.0)


def test_tiny_hanabi_optimum_is_ten():
    assert st.inspect("openspiel:tiny_hanabi").optimal_value == pytest.approx(10.0)


def test_run_records_and_ends_with_a_status():
    trace = st.run(STUCK, algorithm="seeupo", iterations=12)
    assert trace.values.shape == (1, 13)
    assert trace.status == ["converged"]
    assert trace.summary()["share_of_drops"] == 0.0


def test_results_are_json_ready():
    for result in (st.inspect(STUCK), st.step(STUCK), st.advantage(STUCK, group_size=math.inf)):
        text = json.dumps(result.to_dict(), allow_nan=False)
        assert json.loads(text) == result.to_dict()


def test_an_observation_map_can_be_put_on_any_model():
    result = st.step(STUCK, algorithm="seeupo", param="shared", observe="none")
    assert [len(table) for table in result.policy] == [1, 1]
    np.testing.assert_array_equal(result.policy[0], result.policy[1])


def test_parameters_file_round_trip(tmp_path):
    path = tmp_path / "parameters.json"
    features = [[[[1.0], [0.0]]], [[[1.0], [0.0]], [[0.0], [2.0]]]]
    path.write_text(
        json.dumps({"format": "seeupo-parameters/1", "features": features, "theta": [0.5]})
    )
    loaded, theta = api.load_parameters(path)
    assert [f.tolist() for f in loaded] == features and theta.tolist() == [0.5]
    result = st.step(STUCK, param="log-linear", options={"features": loaded}, theta=theta)
    p = 1 / (1 + math.exp(-0.5))
    assert result.value_before == pytest.approx(p * 0.5 + (1 - p) / (1 + math.exp(-1.0)))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "not JSON"),
        ("{}", "format"),
        ('{"format": "seeupo-parameters/1", "theta": [1]}', "features"),
        ('{"format": "seeupo-parameters/1", "theta": ["x"], "features": []}', "numbers"),
        ('{"format": "seeupo-parameters/1", "theta": [NaN], "features": []}', "finite"),
    ],
)
def test_wrong_parameters_files_name_the_field(tmp_path, content, says):
    path = tmp_path / "p.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=says):
        api.load_parameters(path)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: st.step(STUCK, algorithm="grop"), "did you mean 'grpo'"),
        (lambda: st.step(STUCK, algorithm="grpo", group_size=0), "group_size is 0"),
        (lambda: st.step(STUCK, colour=1), "colour"),
        (lambda: st.step(STUCK, [[[0.5, 0.5]]]), "policy has 1 turns"),
        (lambda: st.step(STUCK, [[[0.6, 0.5]], [[0.5, 0.5]] * 2]), "sums to 1.1"),
        (lambda: st.step(STUCK, [[[1.5, -0.5]], [[0.5, 0.5]] * 2]), "expected a probability"),
        (lambda: st.step(STUCK, param="tables"), "param is 'tables'"),
        (lambda: st.run(STUCK, iterations=0), "iterations is 0"),
        (lambda: st.run(STUCK, expectation="guess"), "expectation is 'guess'"),
        (lambda: st.step(STUCK, order=(0, 0)), "exactly once"),
        (lambda: st.step(STUCK, order=(0, 1, 2)), "0 to 1"),
        (lambda: st.step(STUCK, lr=float("nan")), "lr"),
    ],
)
def test_wrong_arguments_are_named(call, says):
    with pytest.raises(ValueError, match=says):
        call()
