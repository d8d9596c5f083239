"""Sampling agrees with exact expectations, and each draw is consistent with the graph."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bandits import ModelError, alias, random_bandit, random_policy, sample_trajectories, zoo
from bandits.families import uniform_policy
from bandits.sample import _draw

from .oracle import graph_value
from .strategies import bandits, mdps, seeds, tables

# Standard errors: a correct sampler exceeds this with probability 6e-7 a comparison.
SIGMAS = 5.0


@given(
    st.one_of(bandits(), mdps()).flatmap(lambda m: tables(m).map(lambda p: (m, p))),
    seeds,
    st.sampled_from(["return", "none"]),
)
@settings(max_examples=60)
def test_draws_follow_the_graph(model_and_policy, seed, merge):
    model, policy = model_and_policy
    graph = model.graph(merge)
    batch = sample_trajectories(graph, policy, seed, contexts=3, group=4)
    assert batch.context.shape == (3,) and batch.returns.shape == batch.leaf.shape == (3, 4)
    assert batch.actions.shape == batch.nodes.shape == batch.active.shape == (3, 4, graph.turns)
    assert (batch.nodes[..., 0] == batch.context[:, None]).all()
    assert (graph.context_probs[batch.context] > 0).all()
    assert (graph.leaf_contexts()[batch.leaf] == batch.context[:, None]).all()
    for t, layer in enumerate(graph.layers):
        node, action, row = (x[..., t] for x in (batch.nodes, batch.actions, batch.observations))
        assert (layer.rows()[node] == row).all()
        assert (layer.acting()[node] == batch.active[..., t]).all()
        assert ((action == -1) == ~batch.active[..., t]).all()
        assert (policy[t][row, action][batch.active[..., t]] > 0).all()
        following = batch.nodes[..., t + 1] if t + 1 < graph.turns else batch.leaf
        edges = layer.edges()
        known = set(
            zip(edges.source.tolist(), edges.action.tolist(), edges.target.tolist(), strict=True)
        )
        quiet = {(n, -1, m) for n, _, m in known}
        steps = zip(
            node.ravel().tolist(), action.ravel().tolist(), following.ravel().tolist(), strict=True
        )
        assert set(steps) <= known | quiet
    possible = graph.leaf_values[batch.leaf]
    paid = (possible == batch.returns[..., None]) & (graph.leaf_probs[batch.leaf] > 0)
    assert paid.any(axis=-1).all()


@pytest.mark.parametrize(
    "name", ["mixed", "tool-use", "tool-use-aliased", "early-stop", "xor-shared"]
)
def test_the_mean_return_is_the_value(name):
    graph = zoo.get(name).graph()
    policy = random_policy(3, graph)
    returns = sample_trajectories(graph, policy, 1, contexts=20_000, group=1).returns
    error = returns.std() / np.sqrt(returns.size)
    assert abs(returns.mean() - graph_value(graph, policy)) < SIGMAS * error


def test_leaf_frequencies_are_the_tree_probabilities():
    graph = random_bandit(5, contexts=2, actions=(2, 3)).graph()
    policy = random_policy(6, graph)
    count = 40_000
    batch = sample_trajectories(graph, policy, 7, contexts=count, group=1)
    path = graph.ancestors()
    prob = graph.context_probs[graph.leaf_contexts()]
    for t in range(graph.turns):
        prob = prob * policy[t][path.nodes[t], path.actions[t]]
    seen = np.bincount(batch.leaf.ravel(), minlength=graph.leaves) / count
    assert (np.abs(seen - prob) < SIGMAS * np.sqrt(prob * (1 - prob) / count)).all()


def test_atoms_are_drawn_with_their_probabilities():
    graph = zoo.get("wrong-sign").graph()
    returns = sample_trajectories(graph, [[[0, 1]]], 0, contexts=1, group=30_000).returns
    assert set(returns.ravel()) == {0.0, 1.5}
    share = (returns == 1.5).mean()
    assert abs(share - 0.4) < SIGMAS * np.sqrt(0.24 / returns.size)


def test_seeds_and_generators():
    graph = zoo.get("mixed").graph()
    policy = uniform_policy(graph)
    first = sample_trajectories(graph, policy, 4, contexts=5, group=3)
    again = sample_trajectories(graph, policy, np.random.default_rng(4), contexts=5, group=3)
    other = sample_trajectories(graph, policy, 5, contexts=5, group=3)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first.leaf, other.leaf)


def test_given_contexts():
    graph = zoo.get("mixed").graph()
    batch = sample_trajectories(graph, uniform_policy(graph), 0, contexts=[1, 0, 1], group=2)
    assert batch.context.tolist() == [1, 0, 1]


def test_actions_of_probability_zero_are_never_drawn():
    graph = random_bandit(0, actions=(4,)).graph()
    policy = [np.array([[0.0, 0.5, 0.0, 0.5]])]
    batch = sample_trajectories(graph, policy, 0, contexts=1, group=5000)
    assert set(batch.actions.ravel()) == {1, 3}


def test_the_ends_of_the_unit_interval():
    probs = np.array([[0.0, 0.25, 0.75, 0.0]])
    points = np.array([0.0, 0.25 - 1e-12, 0.25, 1.0 - 1e-16])
    assert _draw(probs, np.zeros(4, np.int64), points).tolist() == [1, 1, 2, 2]
    assert _draw(probs, np.zeros(1, np.int64), np.ones(1)).tolist() == [2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group": 0}, "group = 0: should be an integer of at least 1"),
        ({"contexts": 0}, "contexts = 0: should be an integer of at least 1"),
        ({"contexts": [2]}, "contexts[0] = 2: should be from 0 to 1"),
        ({"contexts": []}, "contexts should be a number"),
        ({"policy_tables": [np.ones((2, 2)) / 2]}, "policy has 1 turns, should have 2"),
        ({"policy_tables": [np.ones((1, 2)) / 2] * 2}, "policy[0] has shape (1, 2)"),
    ],
)
def test_refusals(changes, message):
    graph = zoo.get("mixed").graph()
    good = {"policy_tables": uniform_policy(graph), "rng": 0, "contexts": 1, "group": 1}
    with pytest.raises(ModelError) as error:
        sample_trajectories(graph, **{**good, **changes})
    assert str(error.value).replace("contexts: should", "contexts should").startswith(message)


def test_wrong_tables_name_turn_row_and_action():
    graph = alias(zoo.get("tool-use").model, "state").graph()
    policy = uniform_policy(graph)
    wrong = [p.copy() for p in policy]
    wrong[1][0] = [0.25, 0.5, 0.25]  # verify is not allowed there
    with pytest.raises(ModelError, match=r"^policy\[1\]\[0\]\[2\] = 0.25: should be a probability"):
        sample_trajectories(graph, wrong, 0, 1, 1)
    wrong = [p.copy() for p in policy]
    wrong[2][1, 0] = np.nan
    with pytest.raises(ModelError, match=r"^policy\[2\]\[1\]\[0\] = nan"):
        sample_trajectories(graph, wrong, 0, 1, 1)
