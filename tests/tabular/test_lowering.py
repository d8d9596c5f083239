"""A decision graph as arrays: returns told apart, paths, and the sweeps over them."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bandits import SequentialBandit, TabularMDP, random_mdp, random_policy, zoo
from seeupo_theory.rules.presets import PRESETS
from seeupo_theory.tabular import enumerate as walk
from seeupo_theory.tabular.dynamics import path_log_prob, probabilities, reach
from seeupo_theory.tabular.lowering import lower
from seeupo_theory.tabular.simulator import Simulator

ATOL = 1e-12


def rounding_mdp():
    """Two ways to a return of 0.3, of which one sums 0.1 + 0.2 in doubles."""
    loop = [[0, 1, 0], [0, 0, 1]], [[0, 1, 0]] * 2, [[0, 0, 1]] * 2
    rewards = [[[0.1, 0.3]] + [[0, 0]] * 2, [[0, 0], [0.2, 0.2], [0, 0]]]
    return TabularMDP(list(loop), rewards, [1, 0, 0], horizon=2)


def test_returns_that_differ_by_rounding_are_one():
    for merge in ("return", "none"):
        graph = rounding_mdp().graph(merge=merge)
        lowered = lower(graph)
        assert lowered.support.shape == (1, 1)
    with_paths = PRESETS["grpo"].replace(std_eps=0.0, factor_clip=0.2, product_clip=0.2)
    simulator = Simulator(rounding_mdp(), with_paths, group_size=2)
    theta = simulator.init()
    for before, after in zip(theta, simulator.update(theta).theta, strict=True):
        assert_allclose(after, before, atol=1e-15)  # nothing to tell the two ways apart


def test_rewards_of_a_bandit_stay_as_they_were_written():
    model = SequentialBandit([[0.3, 0.1 + 0.2, 1e-15, 0.0]])
    assert lower(model.graph()).support.tolist() == [sorted([0.3, 0.1 + 0.2, 1e-15, 0.0])]


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 5), st.integers(1, 3))
def test_support_holds_each_return_once(seed, contexts, actions, atoms):
    rng = np.random.default_rng(seed)
    shape = (contexts, actions, atoms)
    values, probs = rng.integers(-2, 3, shape) / 2, rng.dirichlet(np.ones(atoms), shape[:2])
    lowered = lower(SequentialBandit({"values": values, "probs": probs}).graph())
    support, index = np.asarray(lowered.support), np.asarray(lowered.support_index)
    context = np.asarray(lowered.leaf_context)
    assert_array_equal(support[context[:, None], index], lowered.leaf_values)
    for c in range(contexts):
        distinct = np.unique(np.asarray(lowered.leaf_values)[context == c])
        assert_array_equal(support[c, : len(distinct)], distinct)
        assert (support[c, len(distinct) :] == distinct[-1]).all()


@pytest.mark.parametrize(
    "model",
    [zoo.get("mixed").model, zoo.get("early-stop").model, random_mdp(1, 3, 2, 3, absorbing=1)],
    ids=["bandit", "early stop", "mdp"],
)
def test_paths_lead_where_the_trajectories_go(model):
    graph = model.graph(merge="none")
    policy = random_policy(0, graph)
    lowered = lower(graph, paths=True)
    tables = [jnp.log(jnp.asarray(t)) for t in policy]
    log_prob = sum(path_log_prob(lowered, tables, t) for t in range(graph.turns))
    mine = np.asarray(lowered.paths.environment_prob * jnp.exp(log_prob))
    assert_allclose(mine, reach(lowered, probabilities(lowered, tables))[-1], atol=ATOL)
    assert mine.sum() == pytest.approx(1.0, abs=ATOL)
    by_return: dict = {}
    for path in walk.trajectories(graph, policy):
        key = path.context, round(path.value, 9)
        by_return[key] = by_return.get(key, 0.0) + path.prob
    for (context, value), p in by_return.items():
        here = np.asarray(lowered.leaf_context) == context
        atom = np.isclose(lowered.leaf_values, value, atol=1e-9) * np.asarray(lowered.leaf_probs)
        assert (mine * here) @ atom.sum(axis=1) == pytest.approx(p, abs=ATOL)


def test_only_trees_have_paths():
    with pytest.raises(ValueError, match="merges histories, but this computation"):
        lower(zoo.get("tool-use").graph(), paths=True)
