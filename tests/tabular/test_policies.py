"""Policy families: what they represent, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from bandits import SequentialBandit, alias, random_bandit, random_policy, zoo
from seeupo_theory.rules.presets import PRESETS
from seeupo_theory.tabular import policies
from seeupo_theory.tabular.simulator import Simulator

ATOL = 1e-12
BANDIT = random_bandit(0, 2, (3, 3))
GRAPH = BANDIT.graph()


def probabilities(family, theta):
    return [np.exp(np.asarray(t).sum(-1) if t.ndim == 3 else t) for t in family.log_probs(theta)]


def logs(tables):
    with np.errstate(divide="ignore"):
        return [np.log(t) for t in tables]


@pytest.mark.parametrize("name", ["mixed", "tool-use", "early-stop", "climbing"])
def test_tables_reproduce_any_policy(name):
    graph = zoo.get(name).graph()
    policy = random_policy(1, graph, 0.3)
    family = policies.tabular(graph)
    for mine, theirs in zip(probabilities(family, family.init(logs(policy))), policy, strict=True):
        assert_allclose(mine, theirs, atol=ATOL)


def test_families_are_policies_and_respect_masks():
    graph = zoo.get("tool-use").graph()
    mask = graph.layers[0].mask
    rng = np.random.default_rng(0)
    network = policies.make("network", graph, hidden=4)
    start = network.init(logs([m / m.sum(axis=1, keepdims=True) for m in [1.0 * mask] * 4]))
    shaken = jax.tree.map(lambda x: x + rng.normal(size=x.shape), start)
    linear = policies.make("log-linear", graph, dimension=3, seed=1)
    for family, theta in ((network, shaken), (linear, rng.normal(size=3))):
        for table in probabilities(family, theta):
            assert_allclose(table.sum(axis=1), 1.0, atol=ATOL)
            assert (table[~mask] == 0).all() and (table[mask] > 0).all()
        grads = jax.grad(lambda t, f=family: sum(jnp.sum(jnp.exp(x)) for x in f.log_probs(t)))(
            theta
        )
        # rows sum to 1 whatever θ is: the derivative is 0, and not NaN at forbidden actions
        assert max(float(jnp.abs(g).max()) for g in jax.tree.leaves(grads)) < 1e-12


def test_log_linear_is_a_softmax_of_features():
    features = policies.random_features(GRAPH, 2, seed=3)
    family = policies.log_linear(GRAPH, features)
    theta = np.array([0.3, -1.2])
    for f, table in zip(features, probabilities(family, theta), strict=True):
        weight = np.exp(f @ theta)
        assert_allclose(table, weight / weight.sum(axis=1, keepdims=True), atol=ATOL)
    assert_allclose(family.init(logs([np.full((2, 3), 1 / 3), np.full((6, 3), 1 / 3)])), 0.0)


def test_shared_tables_read_the_same_row():
    model = alias(random_bandit(1, 1, (2, 2)), "none", shared=True)
    family = policies.shared(model.graph())
    one, two = family.log_probs(jnp.array([[0.4, -0.2]]))
    assert_allclose(one, two)
    theta = family.init(logs([np.array([[0.3, 0.7]])] * 2))
    assert_allclose(probabilities(family, theta)[1], [[0.3, 0.7]], atol=ATOL)
    replaced = family.replace(theta, 0, jnp.log(jnp.array([[0.9, 0.1]])))
    assert_allclose(probabilities(family, replaced)[1], [[0.9, 0.1]], atol=ATOL)
    with pytest.raises(ValueError, match="turn 2 gives row 0 other probabilities"):
        family.init(logs([np.array([[0.3, 0.7]]), np.array([[0.4, 0.6]])]))


def test_gradient_flows_between_turns_only_where_parameters_are_shared():
    """One step on turn 1 alone moves turn 2 under a shared family, and not under tables."""
    model = alias(random_bandit(2, 1, (2, 2)), "none", shared=True)
    for name, moves in (("tabular", False), ("shared", True)):
        simulator = Simulator(model, PRESETS["ppo-grae"].replace(epochs=1), name)
        theta = simulator.init()
        out = simulator.step((0,))(simulator.lowered, theta, jnp.asarray(1.0)).theta
        before, after = simulator.policy(theta)[1], simulator.policy(out)[1]
        assert (np.abs(after - before).max() > 1e-3) == moves


def test_token_tables_are_products_over_prefixes():
    graph = SequentialBandit([[0.0] * 8]).graph()
    family = policies.tokens(graph, (2,), (3,))
    rng = np.random.default_rng(4)
    policy = rng.dirichlet(np.ones(8), size=1)
    table = family.log_probs(family.init(logs([policy])))[0]
    assert table.shape == (1, 8, 3)
    assert_allclose(np.exp(table.sum(-1)), policy, atol=ATOL)
    first = policy[0, :4].sum()  # actions 0 … 3 begin with token 0
    assert_allclose(np.exp(table[0, :, 0]), [first] * 4 + [1 - first] * 4, atol=ATOL)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("table", {}, "param is 'table'; expected one of"),
        (
            "log-linear",
            {"features": [np.zeros((2, 3, 2))]},
            "features has 1 arrays; the model has 2",
        ),
        (
            "log-linear",
            {"features": [np.zeros((2, 3, 2)), np.zeros((5, 3, 2))]},
            r"features\[1\] has shape \(5, 3, 2\); expected \(6, 3, 2\)",
        ),
        ("log-linear", {"dimension": 0}, "dimension is 0; expected a whole number of at least 1"),
        ("network", {"hidden": -1}, "hidden is -1; expected"),
        ("tabular", {"hidden": 3}, "option 'hidden' does not fit param 'tabular'"),
        ("tokens", {"vocabulary": (2, 2), "lengths": (2, 2)}, r"turn 1 has 3 actions, not 2\^2"),
        ("tokens", {"vocabulary": (3,), "lengths": (1,)}, "lengths has 1 entries; the model has 2"),
    ],
)
def test_wrong_families_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        policies.make(name, GRAPH, **options)


def test_shared_needs_equal_turns():
    with pytest.raises(ValueError, match=r"equally many actions at each, not \(2, 3\)"):
        policies.shared(random_bandit(0, 1, (2, 3)).graph())


@pytest.mark.parametrize("name", ["log-linear", "network"])
def test_families_that_cannot_start_elsewhere_say_so(name):
    family = policies.make(name, GRAPH)
    with pytest.raises(ValueError, match=f"the {name} parametrisation cannot reproduce"):
        family.init(logs(random_policy(0, GRAPH)))
