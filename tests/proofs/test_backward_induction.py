"""The simulator's greedy step and orders against the exact sweeps."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proofs
from proofs._trees import paths
from proofs.argmax_support import NOTED, settle, stuck
from proofs.argmax_support import RESULTS as SUPPORT_RESULTS
from proofs.backward_induction import (
    RESULTS,
    argmax_turn,
    forward,
    reverse,
    staircase,
    sweep,
    sweeps_needed,
    uniform,
)
from seeupo_theory.rules import improvement, orders

from .groups import ROUNDING, bandit, tables, trees

SHAPES = ((2,), (3,), (2, 2), (3, 2), (2, 3), (2, 2, 2))


@pytest.mark.parametrize("result", [*RESULTS, *SUPPORT_RESULTS], ids=lambda r: r.name)
def test_theorem(result):
    expected = "numerical" if result.name == "argmax-support-frequency" else "exact"
    assert proofs.run(result).status == expected


def simulated(tree, policy, turn, reached_only):
    """One turn's ideal update by `improvement.greedy`, exact values in, a policy out."""
    new = dict(policy)
    for h in paths(tree.actions[:turn]):
        if reached_only and tree.reach(policy, h) == 0:
            continue
        q = np.array([float(tree.value(policy, (*h, a))) for a in range(tree.actions[turn])])
        found = improvement.greedy(np.array([float(x) for x in policy[h]]), q - q.mean())
        new[h] = tuple(Fraction(x) for x in found.tolist())
    return new


def rule_order(name, turns):
    return orders.turn_order(name, turns)


@given(trees(shapes=SHAPES), st.booleans())
@settings(max_examples=40)
def test_one_reverse_sweep_of_the_rules_is_optimal(instance, reached_only):
    tree, policy = instance
    for turn in rule_order("reverse", tree.turns):
        policy = simulated(tree, policy, turn, reached_only)
    assert float(tree.value(policy)) == pytest.approx(float(max(tree.rewards.values())), abs=1e-9)


@given(trees(shapes=SHAPES), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_every_order_is_optimal_in_its_number_of_sweeps(instance, source):
    tree, policy = instance
    order = orders.turn_order(tuple(source.sample(range(tree.turns), tree.turns)), tree.turns)
    for _ in range(sweeps_needed(order)):
        for turn in order:
            policy = simulated(tree, policy, turn, False)
    assert float(tree.value(policy)) == pytest.approx(float(max(tree.rewards.values())), abs=1e-9)


@given(trees(shapes=SHAPES))
@settings(max_examples=40)
def test_greedy_is_an_argmax(instance):
    """The value after the rule's step is that after the proof's, whatever the tie-breaking."""
    tree, policy = instance
    for turn in range(tree.turns):
        rule, proof = simulated(tree, policy, turn, True), argmax_turn(tree, policy, turn)
        assert float(tree.value(rule)) == pytest.approx(float(tree.value(proof)), abs=ROUNDING)


def test_orders_are_those_of_the_rules():
    for turns in range(1, 6):
        assert rule_order("reverse", turns) == reverse(turns)
        assert rule_order("forward", turns) == forward(turns)
        assert sweeps_needed(reverse(turns)) == 1 and sweeps_needed(forward(turns)) == turns


def greedy_simulator(model, order, support):
    from seeupo_theory.rules.presets import PRESETS
    from seeupo_theory.tabular.simulator import Simulator

    algorithm = PRESETS["haml-greedy"].replace(order=order, support=support)
    return Simulator(model, algorithm)


@pytest.mark.parametrize("turns", [2, 3, 4])
def test_staircase_in_the_simulator(turns):
    """Ideal greedy sweeps of the simulator need exactly the number of sweeps of the theorem."""
    tree = staircase(turns)
    every = itertools.permutations(range(turns)) if turns == 3 else (forward(turns), reverse(turns))
    for order in every:
        simulator = greedy_simulator(bandit(tree), order, "all")
        theta = simulator.init(tables(tree, uniform(tree.actions)))
        for count in range(1, sweeps_needed(order) + 1):
            theta = simulator.update(theta, order=order).theta
            optimal = float(simulator.value(theta)) > 1 - ROUNDING
            assert optimal == (count == sweeps_needed(order))


def test_the_stuck_tree_in_the_simulator():
    tree, policy = NOTED
    assert stuck(tree, policy, forward(2)) and not stuck(tree, policy, reverse(2))
    found = {}
    for order, support in itertools.product((forward(2), reverse(2)), ("reached", "all")):
        simulator = greedy_simulator(bandit(tree), order, support)
        theta = simulator.init(tables(tree, policy))
        for _ in range(3):
            theta = simulator.update(theta, order=order).theta
        found[order[0], support] = float(simulator.value(theta))
    expected = {(0, "reached"): 0.5, (0, "all"): 1.0, (1, "reached"): 1.0, (1, "all"): 1.0}
    assert found == pytest.approx(expected, abs=ROUNDING)


@given(trees(shapes=((2, 2), (2, 2, 2), (3, 2)), top=1))
@settings(max_examples=40)
def test_two_reward_values_never_get_stuck(instance):
    """Any positive policy, any order: one sweep."""
    tree, policy = instance
    best = max(tree.rewards.values())
    for order in itertools.permutations(range(tree.turns)):
        assert tree.value(sweep(tree, policy, order, reached_only=True)) == best


@given(trees(shapes=((2, 2), (2, 2, 2))))
@settings(max_examples=30)
def test_settled_values_do_not_fall(instance):
    tree, policy = instance
    for order in (forward(tree.turns), reverse(tree.turns)):
        end = settle(tree, policy, order, reached_only=True)
        assert tree.value(end) >= tree.value(policy)
        assert all(
            tree.value(argmax_turn(tree, end, t, reached_only=True)) == tree.value(end)
            for t in range(tree.turns)
        )


def test_blind_games_of_the_zoo():
    """Strict Nash points of the zoo, by the simulator's ideal steps in both orders."""
    from bandits.zoo import get

    entry = get("xor-aliased")
    for order in ((0, 1), (1, 0)):
        simulator = greedy_simulator(entry.model, order, "all")
        theta = simulator.init(entry.policy)
        for _ in range(3):
            theta = simulator.update(theta, order=order).theta
        assert float(simulator.value(theta)) == pytest.approx(0.5, abs=ROUNDING)
    assert entry.optimum == 1
