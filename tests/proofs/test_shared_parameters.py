"""The sign flip and the sweep that leaves an optimum, in the simulator."""

import numpy as np
import pytest

import proofs
from bandits import SequentialBandit, alias
from proofs.shared_parameters import ETA, RESULTS, crossed_sweep, normalised_gradient
from seeupo_theory.rules import presets
from seeupo_theory.tabular import policies
from seeupo_theory.tabular.simulator import Simulator

ROUNDING = 1e-12  # a few hundred operations in doubles on numbers near 1
SEEUPO = presets.get("seeupo").replace(normalise="none", epochs=1)


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: r.name)
def test_theorem(result):
    assert proofs.run(result).status == "exact"


@pytest.mark.parametrize("group", [2, 8, np.inf])
def test_group_std_flips_the_sign_in_the_simulator(group):
    model = SequentialBandit([[1, 0], [0, 2]], [0.6, 0.4])
    blind = alias(model, "turn")  # one row for both contexts
    for normalise, expected in (
        ("group", float(normalised_gradient(None if group == np.inf else group))),
        ("none", -0.05 * (1 - 1 / group)),
    ):
        rule = presets.get("reinforce-grae").replace(normalise=normalise, std_eps=0.0, lr=1.0)
        simulator = Simulator(blind, rule, group_size=group)
        start = simulator.init()
        moved = simulator.update(start).theta[0] - start[0]
        np.testing.assert_allclose(moved, [[expected, -expected]], rtol=0, atol=ROUNDING)


def one_logit(rewards, algorithm):
    """A simulator in which every row of every turn has the logits (theta, 0)."""
    graph = SequentialBandit(rewards).graph()
    features = [np.zeros((layer.observations, layer.actions, 1)) for layer in graph.layers]
    for table in features:
        table[:, 0] = 1.0
    return Simulator(graph, algorithm, policies.log_linear(graph, features))


@pytest.mark.parametrize("current", [False, True])
def test_the_sweep_leaves_the_optimum_at_the_rate_of_the_proof(current):
    rule = SEEUPO.replace(reference="current" if current else "behaviour")
    simulator = one_logit([[[0, 1], [2, 0]]], rule)
    leading = float(crossed_sweep(current).coeff(ETA, 4))
    for eta in (0.4, 0.2, 0.1):
        out = simulator.update(simulator.init(), order=(1, 0), lr=eta)
        change = float(out.values[-1] - out.value_before)
        assert change < 0
        # the remainder is of order eta^5, and ROUNDING of J enters divided by eta^4
        assert change / eta**4 == pytest.approx(leading, rel=eta, abs=1e-15 / eta**4)


def test_the_simultaneous_update_rests_at_the_optimum():
    simulator = one_logit([[[0, 1], [2, 0]]], SEEUPO.replace(order="simultaneous"))
    out = simulator.update(simulator.init(), lr=0.5)
    np.testing.assert_allclose(out.theta, simulator.init(), rtol=0, atol=ROUNDING)
