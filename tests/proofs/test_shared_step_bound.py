"""The step bound for shared parameters, in the simulator."""

from fractions import Fraction
from random import Random

import numpy as np
import pytest
import sympy as sp

import proofs
from bandits import SequentialBandit
from proofs.intervals import sign
from proofs.shared_step_bound import (
    FEATURES,
    RESULTS,
    _derivatives,
    allowed_step,
    interval_gain,
    random_instance,
    step_bound,
)
from seeupo_theory.rules import presets
from seeupo_theory.tabular import policies
from seeupo_theory.tabular.simulator import Simulator

ROUNDING = 1e-12  # a few hundred operations in doubles on numbers near 1
SEEUPO = presets.get("seeupo").replace(normalise="none", epochs=1)


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: r.name)
def test_theorem(result):
    assert proofs.run(result).status == "exact"


def test_derivatives_are_those_of_the_simulator():
    import jax

    x, rewards = Fraction(3, 2), (1, -1, 1, 1)
    graph = SequentialBandit(np.reshape(rewards, (1, 2, 2))).graph()
    features = [
        np.array([FEATURES[()]], float)[..., None],
        np.array([FEATURES[(0,)], FEATURES[(1,)]], float)[..., None],
    ]
    simulator = Simulator(graph, SEEUPO, policies.log_linear(graph, features))
    theta = np.array([float(sp.log(x))])
    found = (jax.grad(simulator.value)(theta)[0], jax.hessian(simulator.value)(theta)[0, 0])
    want = [float(d) for d in _derivatives(x, rewards)]
    np.testing.assert_allclose(found, want, rtol=0, atol=ROUNDING)


def test_a_step_within_the_bound_raises_j_in_the_simulator():
    """Groups of four: c = 3/4 and the bound allows a longer step."""
    import jax

    rng = np.random.default_rng(2)
    graph = SequentialBandit(rng.uniform(-1, 1, size=(1, 2, 2))).graph()
    for seed in range(3):
        features = policies.random_features(graph, 2, seed)
        diameter = max(np.linalg.norm(f[:, 0] - f[:, 1], axis=-1).max() for f in features)
        simulator = Simulator(graph, SEEUPO, policies.log_linear(graph, features), group_size=4)
        theta = simulator.init()
        norm = float(np.linalg.norm(jax.grad(simulator.value)(theta)))
        half_range = float(np.ptp(graph.leaf_values)) / 2
        numbers = [Fraction(x) for x in (norm, half_range, diameter)]
        eta = float(step_bound(numbers[0], 2, 1, numbers[1], numbers[2], Fraction(3, 4)))
        eta = min(eta, np.log(1.2) / (0.75 * 2 * half_range * diameter**2 / 2))
        out = simulator.update(theta, order=(1, 0), lr=0.99 * eta)
        assert float(out.values[-1] - out.value_before) > 0


def test_beyond_the_bound_the_same_instances_can_fall():
    rng, falls = Random(5), 0
    for _ in range(60):
        instance = random_instance(rng)
        if allowed_step(*instance) is not None:
            falls += sign(interval_gain(*instance, Fraction(20))) < 0
    assert falls > 0


def test_the_bound_vanishes_with_the_gradient_squared():
    small, large = (
        step_bound(Fraction(1, n), 2, 1, Fraction(1), Fraction(1), Fraction(1)) for n in (1000, 100)
    )
    assert 90 < large / small < 110
