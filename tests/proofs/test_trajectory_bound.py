"""The bound of the proof is the simulator's surrogate."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import proofs
from bandits import SequentialBandit, TabularMDP, alias
from proofs._trees import paths
from proofs.trajectory_bound import RESULTS, second_moment
from seeupo_theory.rules import presets
from seeupo_theory.tabular import policies
from seeupo_theory.tabular.simulator import Simulator

ROUNDING = 1e-12  # double-precision sums of a few hundred terms near 1
TRAJECTORY = presets.get("trajectory-ppo").replace(guard=False, epochs=1)
rows = st.lists(st.integers(1, 9), min_size=2, max_size=2)


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: r.name)
def test_theorem(result):
    assert proofs.run(result).status == "exact"


def shared_family(model):
    """One table for all turns of a model that sees only its last action."""
    graph = alias(model, "last-action", shared=True).graph(merge="none")
    return graph, policies.shared(graph)


def log_linear_family(model):
    graph = model.graph(merge="none")
    return graph, policies.log_linear(graph, policies.random_features(graph, 2, seed=5))


def bandit(rng):
    return SequentialBandit(rng.normal(size=(2, 2, 2, 2)))


def mdp(rng):
    """Random transitions; state 2 ends the episode."""
    transitions = rng.dirichlet(np.ones(3), (3, 2))
    transitions[2] = [0, 0, 1]
    rewards = np.vstack([rng.normal(size=(2, 2)), np.zeros((1, 2))])
    return TabularMDP(transitions, rewards, [0.7, 0.3, 0.0], horizon=3)


@pytest.mark.parametrize("group", [3, np.inf])
@pytest.mark.parametrize("family", [shared_family, log_linear_family])
def test_the_simulator_s_gain_bounds_the_improvement_of_shared_parameters(family, group):
    rng = np.random.default_rng(0)
    graph, parametrisation = family(bandit(rng))
    simulator = Simulator(graph, TRAJECTORY, parametrisation, group_size=group)
    factor = 1.0 if group == np.inf else 1 - 1 / group
    signs = set()
    theta = simulator.init()
    for lr in (0.1, 1.0, 5.0, 25.0, 100.0):
        out = simulator.update(theta, lr=lr)
        gain = float(out.values[-1] - out.value_before)
        assert float(out.surrogate_gain[0]) <= factor * gain + ROUNDING
        signs.add(float(out.surrogate_gain[0]) > 0)
    assert True in signs


def test_random_replies_and_early_ends_cancel():
    graph = mdp(np.random.default_rng(1)).graph(merge="none")
    simulator = Simulator(graph, TRAJECTORY, "shared", group_size=3)
    out = simulator.update(simulator.init(), lr=0.5)
    gain = float(out.values[-1] - out.value_before)
    assert 0 < float(out.surrogate_gain[0]) <= 2 / 3 * gain + ROUNDING


@given(rows, rows, rows, rows)
def test_second_moment_is_the_sum_over_trajectories(first, second, other, last):
    def policy(a, b):
        exact = [[Fraction(x, sum(row)) for x in row] for row in (a, b)]
        return {(): exact[0], (0,): exact[1], (1,): exact[0]}

    old, new = policy(first, second), policy(other, last)
    total = Fraction(0)
    for a, b in paths((2, 2)):
        p, q = old[()][a] * old[(a,)][b], new[()][a] * new[(a,)][b]
        total += q * q / p
    assert second_moment(old, new, (2, 2)) == total
