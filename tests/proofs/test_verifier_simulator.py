"""Two independent routes: the simulator in doubles, the verifier in fractions."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from bandits import SequentialBandit, TabularMDP, alias
from proofs._certificate import ESTIMATOR, STEP, read_algorithm, read_model, read_policy
from proofs._semantics import Play, estimates, iterate, means
from proofs.certify import algorithm_json, estimator_switches, fractions_of, model_json
from proofs.instances import shared
from proofs.intervals import Interval
from seeupo_theory import api
from seeupo_theory.rules import presets
from seeupo_theory.tabular import policies
from seeupo_theory.tabular.simulator import Simulator

ATOL = 1e-12  # rounding of a few hundred double-precision operations on numbers near 1


def as_float(x):
    return (x.lo + x.hi) / 2 / 2**x.bits if isinstance(x, Interval) else float(x)


def random_row(rng, size):
    weights = [rng.randint(1, 6) for _ in range(size)]
    return [Fraction(w, sum(weights)) for w in weights]


def random_case(seed, actions=(2, 3), contexts=2):
    """A bandit with some random rewards, and a policy table [turn][history][action]."""
    rng = random.Random(seed)

    def reward(depth):
        if depth < len(actions):
            return [reward(depth + 1) for _ in range(actions[depth])]
        if rng.random() < 0.4:
            return {"values": [Fraction(0), Fraction(3)], "probs": random_row(rng, 2)}
        return Fraction(rng.randint(0, 6), 2)

    rewards = [reward(0) for _ in range(contexts)]
    model = SequentialBandit(fractions_of(rewards), fractions_of(random_row(rng, contexts)))
    sizes = [contexts * math.prod(actions[:t]) for t in range(len(actions))]
    tables = [[random_row(rng, a) for _ in range(n)] for a, n in zip(actions, sizes, strict=True)]
    return model, tables


def floats(tables):
    return [[[float(p) for p in row] for row in table] for table in tables]


def exact_step(model, policy, algorithm):
    """Value before and after, and surrogate gains, by the verifier."""
    read_in = read_model(model)
    start = read_policy(policy, read_in)
    switches_in = read_algorithm(algorithm, ESTIMATOR | STEP, len(read_in.nodes))
    table, gains = iterate(read_in, start, switches_in, 128)
    before = Play(read_in, start, start.table(start.theta, 128)).value()
    after = Play(read_in, start, table).value()
    return as_float(before), as_float(after), [as_float(g) for g in gains]


def agree(simulator, theta, before, after, gains):
    """One compiled update of the simulator finds the verifier's numbers."""
    out = simulator.update(theta, order=simulator.order())
    np.testing.assert_allclose(
        [before, after, *gains],
        [out.value_before, out.values[-1], *out.surrogate_gain],
        rtol=0,
        atol=ATOL,
    )


STEPS = [
    ("rloo", {}, 3),
    ("reinforce++", {"epochs": 4}, 3),
    ("gspo", {"clip": (0.1, 0.3), "epochs": 4, "lr": 2.0}, math.inf),
    ("seeupo", {"epochs": 4, "order": "forward", "normalise": "none", "lr": 2.0}, 3),
    ("seeupo-official", {"epochs": 2}, 3),
    ("seeupo", {"epochs": 3, "order": "forward", "estimator": "exact"}, math.inf),
    ("trajectory-ppo", {"epochs": 4, "guard": False, "lr": 2.0}, 3),
]


@pytest.mark.parametrize(("name", "changes", "group"), STEPS)
def test_a_tabular_step(name, changes, group):
    model, tables = random_case(f"{name}{sorted(changes)}")
    algorithm = presets.get(name).replace(**changes)
    policy = {"parametrisation": "tabular", "probs": fractions_of(tables)}
    before, after, gains = exact_step(model_json(model), policy, algorithm_json(algorithm, group))
    simulator = Simulator(model, algorithm, group_size=group)
    agree(simulator, simulator.init(floats(tables)), before, after, gains)


@pytest.mark.parametrize("name", ["seeupo-official"])
def test_a_log_linear_step(name):
    model, _ = random_case(name, actions=(2, 2))
    algorithm = presets.get(name).replace(epochs=3)
    graph = model.graph()
    rng = random.Random(name)
    features = [
        [
            [[Fraction(rng.randint(-4, 4), 2) for _ in range(2)] for _ in range(layer.actions)]
            for _ in range(layer.nodes)
        ]
        for layer in graph.layers
    ]
    policy = {
        "parametrisation": "log-linear",
        "theta": ["0", "0"],
        "features": fractions_of(features),
    }
    before, after, gains = exact_step(model_json(model), policy, algorithm_json(algorithm, 4))
    family = policies.log_linear(graph, [np.array(f, dtype=float) for f in features])
    simulator = Simulator(graph, algorithm, family, group_size=4)
    agree(simulator, simulator.init(), before, after, gains)


@pytest.mark.parametrize("name", ["seeupo"])
def test_a_shared_table(name):
    model, _ = random_case(name, actions=(2, 2), contexts=1)
    algorithm = presets.get(name).replace(epochs=3, lr=1.0)
    row = [Fraction(2, 5), Fraction(3, 5)]
    policy = shared([[0], [0, 0]], [row])
    before, after, gains = exact_step(model_json(model), policy, algorithm_json(algorithm, 3))
    blind = alias(model, "none")
    simulator = Simulator(blind, algorithm, "shared", group_size=3)
    agree(simulator, simulator.init([[row], [row]]), before, after, gains)


def tool_mdp():
    """Start, busy, over: replies are random, and one action stops."""
    return TabularMDP(
        transitions=[
            [["1/3", "2/3", 0], [0, "1/2", "1/2"]],
            [["1/4", "1/4", "1/2"], [0, 0, 1]],
            [[0, 0, 1], [0, 0, 1]],
        ],
        rewards=[[1, "1/2"], [0, 2], [0, 0]],
        initial=["3/4", "1/4", 0],
        horizon=3,
        discount="1/2",
    )


@pytest.mark.parametrize("name", ["ppo-grae"])
def test_an_mdp_step(name):
    model, rng = tool_mdp(), random.Random(name)
    tables = [[random_row(rng, 2) for _ in range(3)] for _ in range(3)]
    algorithm = presets.get(name).replace(epochs=3)
    policy = {"parametrisation": "tabular", "probs": fractions_of(tables)}
    before, after, gains = exact_step(model_json(model), policy, algorithm_json(algorithm, 2))
    simulator = Simulator(model, algorithm, group_size=2)
    agree(simulator, simulator.init(floats(tables)), before, after, gains)


@pytest.mark.parametrize(("baseline", "normalise"), [("mean", "group"), ("loo", "batch")])
def test_expected_advantages(baseline, normalise):
    model, tables = random_case(f"{baseline}{normalise}")
    switch = {"baseline": baseline, "normalise": normalise, "group_size": 3}
    read_in = read_model(model_json(model))
    start = read_policy({"parametrisation": "tabular", "probs": fractions_of(tables)}, read_in)
    play = Play(read_in, start, start.table(start.theta, 128))
    algorithm = read_algorithm(estimator_switches(**switch), ESTIMATOR, 2)
    estimate = means(estimates(play, algorithm, 128))
    found = api.advantage(model, floats(tables), estimator="grae", **switch)
    for turn in range(2):
        centred = play.advantages(turn, [row[turn] for row in estimate])
        true = play.advantages(turn, play.returns)
        for node, row in centred.items():
            probs = np.array([float(p) for p in tables[turn][node]])
            expected = np.array(found.expected[turn][node])
            np.testing.assert_allclose(
                [as_float(x) for x in row], expected - probs @ expected, rtol=0, atol=ATOL
            )
            np.testing.assert_allclose(
                [as_float(x) for x in true[node]], found.exact[turn][node], rtol=0, atol=ATOL
            )
