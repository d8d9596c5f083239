"""Closed-form steps: against linear programmes, hand-made tables and what each knows of a model."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog

from bandits import SequentialBandit, alias, random_bandit, random_mdp, random_policy, zoo
from seeupo_theory.rules.presets import PRESETS
from seeupo_theory.tabular.evaluate import evaluate, node_policy, optimum
from seeupo_theory.tabular.simulator import Simulator

from . import naive

ATOL = 1e-12
LP_ATOL = 1e-8
"""HiGHS solves to 1e-9 or so."""


SIMULATORS: dict = {}
"""One for each model and algorithm, so that repeated sweeps are compiled once."""


def sweep(model, algorithm, policy, order, lr=0.5, **sizes):
    """(policy tables, J after each update) of one iteration."""
    key = (id(model), algorithm, tuple(sizes.items()))
    if key not in SIMULATORS:  # the model is kept too: its id is free for another when it goes
        SIMULATORS[key] = model, Simulator(model, algorithm, **sizes)
    _, simulator = SIMULATORS[key]
    outcome = simulator.update(simulator.init(policy), order=order, lr=lr)
    assert float(outcome.worst_row_gain.min()) >= -ATOL
    assert (np.asarray(outcome.clip_fraction) == 0).all()
    return simulator.policy(outcome.theta), np.asarray(outcome.values)


def true_advantage(graph, policy, turn):
    """Mean advantage of each row and action, over the nodes that share it, by visitation."""
    result, layer = evaluate(graph, policy), graph.layers[turn]
    weight, total = np.zeros(layer.observations), np.zeros((layer.observations, layer.actions))
    np.add.at(weight, layer.rows(), result.visitation[turn] * layer.acting())
    by_node = (result.visitation[turn] * layer.acting())[:, None] * result.advantages[turn]
    np.add.at(total, layer.rows(), by_node)
    return total / np.where(weight > 0, weight, 1)[:, None], weight > 0


MODELS = {
    "bandit": random_bandit(0, 2, (2, 3), "bernoulli"),
    "three turns": random_bandit(1, 1, (2, 2, 2)),
    "blind": alias(random_bandit(2, 1, (2, 2, 2)), "last-action"),
    "mdp": random_mdp(3, 4, 2, 3, 0.9, branching=2, absorbing=1, masked=True),
}


@pytest.mark.parametrize("direction", ["reverse", "forward"])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_mirror_steps_are_those_of_the_true_advantage(model, direction):
    graph = model.graph()
    policy = random_policy(4, graph, 2.0)
    order = tuple(range(graph.turns))[:: -1 if direction == "reverse" else 1]
    new, values = sweep(model, PRESETS["haml-kl"], policy, order, lr=0.7)
    mixed = [table.copy() for table in policy]
    for t, value in zip(order, values, strict=True):
        advantage, reached = true_advantage(graph, mixed, t)
        weight = mixed[t] * np.exp(0.7 * np.where(mixed[t] > 0, advantage, 0.0))
        step = weight / weight.sum(axis=1, keepdims=True)
        mixed[t] = np.where(reached[:, None], step, mixed[t])
        assert_allclose(new[t], mixed[t], atol=ATOL)
        assert value == pytest.approx(evaluate(graph, mixed).value, abs=ATOL)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_clip_argmax_solves_the_linear_programme(model):
    """max Σ_n d(n) Σ_a A⁺ min(p, 1.2 π) − A⁻ max(p, 0.8 π), written with slacks."""
    graph = model.graph()
    policy = random_policy(5, graph, 2.0)
    order = tuple(reversed(range(graph.turns)))
    new, _ = sweep(model, PRESETS["haml"], policy, order)
    mixed = [table.copy() for table in policy]
    for t in order:
        layer, result = graph.layers[t], evaluate(graph, mixed)
        flow = (result.visitation[t] * layer.acting())[:, None]
        plus = np.zeros((layer.observations, layer.actions))
        minus = np.zeros((layer.observations, layer.actions))
        np.add.at(plus, layer.rows(), flow * np.maximum(result.advantages[t], 0))
        np.add.at(minus, layer.rows(), flow * np.maximum(-result.advantages[t], 0))
        for row in np.flatnonzero((plus + minus).sum(axis=1) > 0):
            p, old = new[t][row], policy[t][row]
            mine = plus[row] @ np.minimum(p, 1.2 * old) - minus[row] @ np.maximum(p, 0.8 * old)
            n, eye = layer.actions, np.eye(layer.actions)
            # variables p, u ≤ min(p, 1.2 π), v ≥ max(p, 0.8 π)
            inequality = np.block([[-eye, eye, 0 * eye], [eye, 0 * eye, -eye]])
            bounds = [(0, None if x > 0 else 0) for x in old]
            bounds += [(None, 1.2 * x) for x in old] + [(0.8 * x, None) for x in old]
            best = linprog(
                np.concatenate([np.zeros(n), -plus[row], minus[row]]),
                A_ub=inequality,
                b_ub=np.zeros(2 * n),
                A_eq=[np.concatenate([np.ones(n), np.zeros(2 * n)])],
                b_eq=[1.0],
                bounds=bounds,
            )
            assert mine == pytest.approx(-best.fun, abs=LP_ATOL)
        mixed[t] = new[t]


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_greedy_backward_sweep_is_backward_induction(model):
    graph = model.graph()
    new, values = sweep(model, PRESETS["haml-greedy"], None, tuple(reversed(range(graph.turns))))
    if all(layer.observations == layer.nodes for layer in graph.layers):
        assert values[-1] == pytest.approx(optimum(graph).value, abs=ATOL)
    assert values[-1] == pytest.approx(evaluate(graph, new).value, abs=ATOL)
    assert (np.diff(values) >= -ATOL).all()


def test_sampled_advantages_drive_ideal_steps_too():
    """A mirror step with GRPO's expected advantage, not with the true one."""
    model = zoo.get("wrong-sign").model
    a = PRESETS["haml-kl"].replace(estimator="grae", normalise="group")
    new, values = sweep(model, a, None, (0,), lr=1.0, group_size=4)
    data = naive.paths(model)
    lists = naive.group_advantages(data, [0.5] * len(data.prob), a, 4, np.inf)
    mean = np.zeros(2)
    for (action,), p, row in zip(data.actions, data.prob, lists, strict=True):
        mean[action] += p * sum(q * x for q, x in row)
    assert mean == pytest.approx([0.0772, -0.0772], abs=5e-5)
    weight = 0.5 * np.exp(mean)
    assert_allclose(new[0][0], weight / weight.sum(), atol=ATOL)
    assert values[0] < 0.55  # the wrong sign lowers J
    right, values = sweep(model, PRESETS["haml-kl"], None, (0,), lr=1.0)
    assert right[0][0, 1] > 0.5 and values[0] > 0.55


# What a step can know ---------------------------------------------------------------------------

ONE_SIDED = [np.array([[1.0, 0.0]]), np.array([[0.5, 0.5], [0.5, 0.5]])]
"""The first turn never takes action 1, below which all the reward lies."""

BEHIND = SequentialBandit([[[0, 0.25], [0, 1]]])


@pytest.mark.parametrize(
    ("preset", "support", "row"),
    [
        ("haml-greedy", "all", [0.0, 1.0]),
        ("haml-greedy", "reached", [0.5, 0.5]),
        ("haml", "all", [0.4, 0.6]),
        ("haml", "reached", [0.5, 0.5]),
    ],
)
def test_support_decides_about_rows_that_are_not_reached(preset, support, row):
    model = BEHIND
    new, _ = sweep(model, PRESETS[preset].replace(support=support), ONE_SIDED, (1, 0))
    assert_allclose(new[1][1], row, atol=ATOL)
    # greedy with the true advantage takes up an action that was never taken; a ratio cannot
    taken_up = preset == "haml-greedy"
    assert_allclose(new[0][0], [0.0, 1.0] if taken_up else [1.0, 0.0], atol=ATOL)


def test_an_action_taken_up_counts_for_the_turns_before():
    """Turn 2 never took its best action; once it does, turn 1 must see what that is worth."""
    policy = [np.array([[0.5, 0.5]]), np.array([[0.5, 0.5], [1.0, 0.0]])]
    new, values = sweep(BEHIND, PRESETS["haml-greedy"], policy, (1, 0))
    assert_allclose(new[0][0], [0.0, 1.0], atol=ATOL)
    assert values[-1] == 1.0


def test_sampled_advantages_know_nothing_of_what_is_never_taken():
    model = BEHIND
    for objective in ("greedy", "mirror", "clip-argmax"):
        a = PRESETS["haml"].replace(objective=objective, estimator="grae")
        new, _ = sweep(model, a, ONE_SIDED, (1, 0))
        assert_allclose(new[0], ONE_SIDED[0], atol=ATOL)
        assert_allclose(new[1][1], [0.5, 0.5], atol=ATOL)
        assert new[1][0, 1] > 0.53


def test_the_smallest_stuck_tree():
    entry = zoo.get("stuck-tree")
    a = PRESETS["haml-greedy"].replace(support="reached")
    forward, values = sweep(entry.model, a, entry.policy, (0, 1))
    assert values[-1] == 0.5
    for _ in range(3):
        forward, values = sweep(entry.model, a, forward, (0, 1))
    assert values[-1] == 0.5
    _, values = sweep(entry.model, a, entry.policy, (1, 0))
    assert values[-1] == 1.0


@pytest.mark.parametrize("turns", [2, 4])
def test_sweeps_by_order_on_the_staircase(turns):
    """One sweep backwards; T forwards: turn t improves once its suffix has."""
    entry = zoo.get("forward-staircase", turns=turns)
    a, graph = PRESETS["haml-greedy"], entry.graph()
    best = float(entry.optimum)
    _, values = sweep(entry.model, a, entry.policy, tuple(reversed(range(turns))))
    assert values[-1] == pytest.approx(best, abs=ATOL)
    policy, count = entry.policy, 0
    while evaluate(graph, policy).value < best - 1e-9:
        policy, _ = sweep(entry.model, a, policy, tuple(range(turns)))
        count += 1
        assert count <= turns
    assert count == turns


def test_forward_and_simultaneous_greedy_sweeps_coincide():
    """A forward update of turn t depends on the turns after it only."""
    model = MODELS["three turns"]
    policy = random_policy(6, model)
    one, _ = sweep(model, PRESETS["haml-greedy"], policy, (0, 1, 2))
    joint = PRESETS["haml-greedy"].replace(order="simultaneous")
    two, values = sweep(model, joint, policy, None)
    assert len(values) == 1
    for mine, theirs in zip(one, two, strict=True):
        assert_allclose(mine, theirs, atol=ATOL)


def test_nodes_of_a_row_are_averaged():
    """A blind second turn is stepped on the mean of its nodes."""
    model = alias(random_bandit(8, 1, (2, 3)), "turn")
    graph = model.graph()
    policy = random_policy(9, graph)
    new, _ = sweep(model, PRESETS["haml-greedy"], policy, (1, 0))
    first = node_policy(graph, policy)[0][0]
    rewards = model.model.reward_means[0]
    assert new[1][0].argmax() == (first @ rewards).argmax()
