"""The bound of the proof is the simulator's surrogate and the rule's terms."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import proofs
from bandits import SequentialBandit, TabularMDP, alias
from proofs._trees import paths
from proofs.clipped_lower_bound import clipped
from proofs.trajectory_bound import (
    LONG,
    MILD,
    RESULTS,
    TRAP,
    Coins,
    bounded_term,
    second_moment,
)
from seeupo_theory.rules import bounds, presets
from seeupo_theory.tabular import policies
from seeupo_theory.tabular.simulator import Simulator

ROUNDING = 1e-12  # double-precision sums of a few hundred terms near 1
TRAJECTORY = presets.get("trajectory-ppo").replace(guard=False, epochs=1)
rows = st.lists(st.integers(1, 9), min_size=2, max_size=2)


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: r.name)
def test_theorem(result):
    outcome = proofs.run(result)
    assert outcome.status == "numerical"  # the coverage is measured
    exact = [item for item in outcome.steps if item.step.kind == "exact"]
    assert len(exact) == len(outcome.steps) - 2


@given(
    st.fractions(Fraction(1, 20), 4, max_denominator=20),
    st.fractions(-2, 2, max_denominator=20),
    st.fractions(0, 3, max_denominator=10),
)
def test_the_rule_has_the_proof_s_terms(ratio, advantage, level):
    change, size = np.array([np.log(float(ratio))]), np.array([float(advantage)])
    term = bounds.trajectory_terms(change, size)[0]
    assert term == pytest.approx(float(clipped(ratio, advantage)), abs=ROUNDING)
    side = Fraction(1, 5)
    exact = bounded_term(ratio, advantage, Fraction(2), side, side, level)
    found = bounds.bounded_terms(change, size, 2.0, truncate=float(level))[0]
    assert found == pytest.approx(float(exact), abs=ROUNDING)


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


@pytest.mark.parametrize("case", [MILD, LONG, TRAP], ids=["mild", "long", "trap"])
def test_the_exact_surrogate_is_the_mean_of_many_samples(case):
    change, advantage = case.batches(200, 200, seed=3)
    means = bounds.trajectory_terms(change, advantage).mean(axis=-1).ravel()
    error = means.std() / np.sqrt(means.size)
    assert abs(means.mean() - case.surrogate()) < 4 * error  # four standard errors


def test_the_exact_surrogate_bounds_the_improvement():
    for new in (0.4, 0.5, 0.55, 0.7):
        case = Coins(turns=3, old=0.5, new=new, wins=(2, 3), group=4)
        win = case.reward(np.arange(4))
        gain = case.counts(new) @ win - case.counts(0.5) @ win
        assert case.surrogate() <= 0.75 * gain + ROUNDING
        assert new != 0.5 or case.surrogate() == pytest.approx(0.0, abs=ROUNDING)


def test_a_safe_step_is_certified_by_a_large_batch_and_a_harmful_one_never():
    good = Coins(turns=2, old=0.5, new=0.54, wins=(1, 2), group=8)
    bad = Coins(turns=2, old=0.5, new=0.46, wins=(1, 2), group=8)
    lower = [
        float(bounds.improvement_bound(*case.batches(1, 40_000, seed=4), bound=1.0)[0])
        for case in (good, bad)
    ]
    assert lower[0] > 0 > lower[1]
