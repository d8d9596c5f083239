"""Exact evaluation: recursion, enumeration, the JAX sweeps, autodiff and brute force agree."""

import itertools
import math
from fractions import Fraction

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from bandits import TokenView, alias, random_bandit, random_mdp, random_policy, zoo
from seeupo_theory.tabular import dynamics, policies, surrogate
from seeupo_theory.tabular import enumerate as walk
from seeupo_theory.tabular.diagnostics import divergence, entropy
from seeupo_theory.tabular.evaluate import (
    check_policy,
    evaluate,
    gradient,
    node_policy,
    optimum,
    performance_difference,
    turn_gaps,
    uniform_policy,
)
from seeupo_theory.tabular.lowering import lower

ATOL = 1e-12
"""Sums over at most a few hundred trajectories with returns below 50."""

DIFFERENCE_STEP = 1e-5
"""Central differences of a sum of order 10: h² + 1e-16/h, both below 1e-9 relative."""


def random_models():
    yield "bandit", random_bandit(1, 2, (3, 2), "distribution")
    yield "deep bandit", random_bandit(2, 1, (2, 2, 2, 2))
    yield "mdp", random_mdp(3, states=3, actions=2, horizon=3, discount=0.9)
    yield (
        "ending mdp",
        random_mdp(
            4, states=4, actions=3, horizon=3, branching=2, absorbing=1, masked=True, by_turn=True
        ),
    )
    yield "aliased", alias(random_bandit(5, 2, (2, 2, 2)), "last-action")
    yield "shared", alias(random_bandit(6, 1, (2, 2, 2)), "none", shared=True)
    yield "tokens", TokenView(random_bandit(7, 1, (4, 4)), lengths=2, vocab=2).token_model


jax_value = jax.jit(surrogate.value)

MODELS = [pytest.param(zoo.get(name).model, id=name) for name in zoo.names()]
MODELS += [pytest.param(model, id=name) for name, model in random_models()]


@pytest.mark.parametrize("model", MODELS)
def test_independent_routes_agree(model):
    graph = model.graph()
    policy = random_policy(0, graph)
    result = evaluate(graph, policy)
    with np.errstate(divide="ignore"):
        logs = [np.log(table) for table in policy]
    for other in (graph, model.graph(merge="none")):
        by_hand = walk.expected_return(other, policy)
        assert result.value == pytest.approx(by_hand, abs=ATOL)
        assert float(jax_value(lower(other), logs)) == pytest.approx(by_hand, abs=ATOL)
    for t in range(graph.turns):
        for (node, action), (mass, value) in walk.values_by_node(graph, policy, t).items():
            taken = node_policy(graph, policy)[t][node, action]
            assert result.action_values[t][node, action] == pytest.approx(value, abs=ATOL)
            assert result.visitation[t][node] * taken == pytest.approx(mass, abs=ATOL)
        averages = (node_policy(graph, policy)[t] * result.advantages[t]).sum(axis=1)
        assert_allclose(averages, 0.0, atol=ATOL)
        assert result.visitation[t].sum() == pytest.approx(1.0, abs=ATOL)


@pytest.mark.parametrize("model", MODELS)
def test_gradient_by_theorem_autodiff_and_differences(model):
    graph = model.graph()
    policy = random_policy(1, graph, 2.0)
    theorem = gradient(graph, policy)
    lowered, family = lower(graph), policies.make("tabular", graph)
    with np.errstate(divide="ignore"):
        theta = tuple(np.log(table) for table in policy)

    def value(x):
        return surrogate.value(lowered, family.log_probs(x))

    for mine, auto in zip(theorem, jax.jit(jax.grad(value))(theta), strict=True):
        assert_allclose(mine, auto, atol=ATOL)
    rng = np.random.default_rng(0)
    direction = [np.where(np.isfinite(x), rng.normal(size=x.shape), 0.0) for x in theta]
    ends = []
    for sign in (1, -1):
        moved = [x + sign * DIFFERENCE_STEP * d for x, d in zip(theta, direction, strict=True)]
        tables = [np.exp(x) / np.exp(x).sum(axis=1, keepdims=True) for x in moved]
        ends.append(evaluate(graph, tables).value)
    slope = (ends[0] - ends[1]) / (2 * DIFFERENCE_STEP)
    dot = sum((g * d).sum() for g, d in zip(theorem, direction, strict=True))
    assert slope == pytest.approx(dot, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("model", MODELS)
def test_differences_and_gaps_are_sums_over_turns(model):
    graph = model.graph()
    one, two = random_policy(2, graph), random_policy(3, graph)
    change = evaluate(graph, two).value - evaluate(graph, one).value
    assert performance_difference(graph, one, two) == pytest.approx(change, abs=ATOL)
    best, gaps = optimum(graph), turn_gaps(graph, one)
    assert min(gaps) >= -ATOL
    assert sum(gaps) == pytest.approx(best.value - evaluate(graph, one).value, abs=ATOL)
    greedy = [
        np.zeros((layer.nodes, layer.actions)) + table
        for layer, table in zip(graph.layers, best.policy, strict=True)
    ]
    full = alias(graph, "full")
    assert evaluate(full, greedy).value == pytest.approx(best.value, abs=ATOL)
    assert sum(turn_gaps(full, greedy)) == pytest.approx(0.0, abs=ATOL)


@pytest.mark.parametrize("name", zoo.names())
def test_optimum_of_the_zoo(name):
    entry = zoo.get(name)
    assert optimum(entry.graph()).value == pytest.approx(float(entry.full_optimum), abs=ATOL)


def brute_force(graph):
    """Best J over all deterministic policies of full information."""
    full = alias(graph, "full")
    rows = [
        (t, row, np.flatnonzero(layer.allowed()[row]))
        for t, layer in enumerate(full.layers)
        for row in range(layer.observations)
    ]
    best = -math.inf
    for choice in itertools.product(*(allowed for _, _, allowed in rows)):
        tables = [np.zeros((layer.observations, layer.actions)) for layer in full.layers]
        for (t, row, _), action in zip(rows, choice, strict=True):
            tables[t][row, action] = 1.0
        best = max(best, evaluate(full, tables).value)
    return best


SMALL = [
    random_bandit(10, 2, (2, 2), "distribution"),
    random_bandit(11, 1, (2, 3), "grid"),
    random_mdp(12, states=2, actions=2, horizon=2),
    random_mdp(13, states=3, actions=2, horizon=2, branching=1, absorbing=1, masked=True),
]


@pytest.mark.parametrize("model", SMALL)
def test_optimum_by_brute_force(model):
    graph = model.graph()
    assert optimum(graph).value == pytest.approx(brute_force(graph), abs=ATOL)


@pytest.mark.parametrize("name", ["wrong-sign", "mixed", "tool-use", "early-stop", "xor-aliased"])
def test_enumeration_in_fractions(name):
    graph = zoo.get(name).model.graph(merge="none")
    tables = []
    for layer in graph.layers:
        allowed = np.ones((layer.observations, layer.actions), bool)
        allowed = allowed if layer.mask is None else layer.mask
        weight = [[Fraction(a + 1) * int(ok) for a, ok in enumerate(row)] for row in allowed]
        tables.append([[w / sum(row) for w in row] for row in weight])
    exact = walk.expected_return(graph, tables, walk.decimals)
    assert isinstance(exact, Fraction)
    floats = [np.array(table, dtype=float) for table in tables]
    assert float(exact) == pytest.approx(evaluate(graph, floats).value, abs=1e-14)
    total = sum(t.prob for t in walk.trajectories(graph, tables, Fraction))
    assert abs(total - 1) < Fraction(1, 10**15)


def test_exact_value_of_a_known_bandit():
    """J of the wrong-sign bandit at (1/2, 1/2): (1/2 + 3/5)/2 = 11/20."""
    entry = zoo.get("wrong-sign")
    half = [[[Fraction(1, 2)] * 2]]
    assert walk.expected_return(entry.graph(), half, walk.decimals) == Fraction(11, 20)


@pytest.mark.parametrize("model", MODELS)
def test_entropy_and_divergence_are_those_of_trajectories(model):
    graph = model.graph(merge="none")
    one, two = random_policy(4, graph, 2.0), random_policy(5, graph, 2.0)
    acting = [layer.acting() for layer in graph.layers]
    rows = [layer.rows() for layer in graph.layers]
    surprise = distance = 0.0
    for path in walk.trajectories(graph, one):
        for t, (node, action) in enumerate(path.steps):
            if acting[t][node]:
                row = rows[t][node]
                surprise -= path.prob * math.log(one[t][row, action])
                distance += path.prob * math.log(one[t][row, action] / two[t][row, action])
    with np.errstate(divide="ignore"):
        logs = [[np.log(table) for table in policy] for policy in (one, two)]
    lowered = lower(model.graph())
    assert float(jax.jit(entropy)(lowered, logs[0])) == pytest.approx(surprise, abs=1e-11)
    assert float(jax.jit(divergence)(lowered, *logs)) == pytest.approx(distance, abs=1e-11)


@settings(max_examples=40)
@given(
    st.integers(0, 10**6), st.integers(1, 3), st.lists(st.integers(1, 3), min_size=1, max_size=3)
)
def test_any_bandit_and_any_policy(seed, contexts, actions):
    graph = random_bandit(seed, contexts, actions, "bernoulli").graph()
    policy = random_policy(seed, graph, 0.2)  # often nearly deterministic
    value = evaluate(graph, policy).value
    assert value == pytest.approx(walk.expected_return(graph, policy), abs=ATOL)
    other = random_policy(seed + 1, graph, 0.2)
    change = evaluate(graph, other).value - value
    assert performance_difference(graph, policy, other) == pytest.approx(change, abs=ATOL)
    assert sum(turn_gaps(graph, policy)) == pytest.approx(optimum(graph).value - value, abs=ATOL)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.integers(0, 1))
def test_any_mdp_merged_or_not(seed, masked, by_turn, absorbing):
    model = random_mdp(
        seed, 3, 2, 3, 0.8, branching=2, absorbing=absorbing, masked=masked, by_turn=by_turn
    )
    merged, tree = model.graph(), model.graph(merge="none")
    policy = random_policy(seed, merged)
    value = evaluate(merged, policy).value
    assert value == pytest.approx(evaluate(tree, policy).value, abs=ATOL)
    assert value == pytest.approx(walk.expected_return(tree, policy), abs=ATOL)
    assert optimum(merged).value == pytest.approx(optimum(tree).value, abs=ATOL)
    for mine, theirs in zip(gradient(merged, policy), gradient(tree, policy), strict=True):
        assert_allclose(mine, theirs, atol=ATOL)


# The token view ---------------------------------------------------------------------------------


def test_token_view_has_the_same_value():
    view = TokenView(random_bandit(8, 2, (4, 8), "bernoulli"), lengths=(2, 3), vocab=2)
    tokens = random_policy(0, view.token_model)
    turns = view.turn_tables(tokens)
    value = evaluate(view.token_model.graph(), tokens).value
    assert evaluate(view.turn_model.graph(), turns).value == pytest.approx(value, abs=ATOL)
    family = policies.tokens(view.turn_model.graph(), view.vocab, view.lengths)
    theta = family.init([np.log(t) for t in turns])
    tables = jax.jit(family.log_probs)(theta)
    lowered = lower(view.turn_model.graph())
    assert float(jax_value(lowered, tables)) == pytest.approx(value, abs=ATOL)
    for table, wanted in zip(tables, turns, strict=True):
        assert_allclose(np.exp(dynamics.joint(table)), wanted, atol=ATOL)


# Policies and their checks ----------------------------------------------------------------------


def test_uniform_policy_keeps_masks():
    graph = zoo.get("tool-use").graph()
    table = uniform_policy(graph)[0]
    assert table[0].tolist() == [0.5, 0.5, 0.0]
    assert table[1].tolist() == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([], "policy has 0 turns; the model has 1"),
        ([[[1.0]]], r"policy of turn 1 has shape \(1, 1\); expected \(1, 2\)"),
        ([[[1.5, -0.5]]], "policy of turn 1, row 0, action 1 is -0.5; expected a probability"),
        ([[[math.nan, 1.0]]], "policy of turn 1, row 0, action 0 is nan"),
        ([[[0.5, 0.4]]], "policy of turn 1, row 0 sums to 0.9; expected 1"),
    ],
)
def test_wrong_policies_are_refused(policy, message):
    with pytest.raises(ValueError, match=message):
        check_policy(zoo.get("wrong-sign").graph(), policy)


def test_weight_on_a_forbidden_action_is_refused():
    graph = zoo.get("tool-use").graph()
    policy = uniform_policy(graph)
    policy[0][0] = [0.4, 0.4, 0.2]
    with pytest.raises(ValueError, match=r"turn 1, row 0 gives probability 0\.2 to action 2"):
        check_policy(graph, policy)


def test_checking_copies():
    graph = zoo.get("wrong-sign").graph()
    mine = np.array([[0.5, 0.5]])
    mine.setflags(write=False)
    checked = check_policy(graph, [mine])
    checked[0][0, 0] = 7.0
    assert mine[0, 0] == 0.5
