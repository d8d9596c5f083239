"""What a simulator promises: checks before work, one compilation, nobody's arrays touched."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from bandits import SequentialBandit, TabularMDP, random_bandit, random_mdp, random_policy, zoo
from seeupo_theory.rules.presets import PRESETS, Algorithm
from seeupo_theory.tabular.lowering import lower, with_rewards
from seeupo_theory.tabular.run import run_simulator
from seeupo_theory.tabular.simulator import Simulator

P = PRESETS
MODEL = random_bandit(0, 2, (2, 2))


def counted():
    """A clipped objective that counts how often it is traced."""
    calls = []

    def objective(log_prob, log_prob_old, advantage, weight=1.0):
        calls.append(None)
        return weight * advantage * (log_prob - log_prob_old)

    return objective, calls


def test_equal_shapes_share_one_compilation():
    objective, calls = counted()
    simulator = Simulator(MODEL, P["seeupo"].replace(objective=objective, epochs=3), group_size=2)
    simulator.update(simulator.init())
    traced = len(calls)
    assert traced > 0
    for seed in range(3):
        simulator.update(simulator.init(random_policy(seed, MODEL)), lr=0.1 * (seed + 1))
    assert len(calls) == traced
    # another problem of the same shape, through the same compiled program
    step = jax.jit(simulator.step((1, 0)))
    step(simulator.lowered, simulator.init(), jnp.asarray(0.5))
    traced = len(calls)
    for seed in range(3):
        other = lower(random_bandit(seed + 5, 2, (2, 2)).graph())
        step(other, simulator.init(), jnp.asarray(0.5))
    assert len(calls) == traced


def test_runs_share_one_compilation():
    objective, calls = counted()
    simulator = Simulator(MODEL, P["seeupo"].replace(objective=objective, epochs=2))
    run_simulator(simulator, 4)
    traced = len(calls)
    run_simulator(simulator, 4, theta=simulator.init(random_policy(1, MODEL)), seed=3)
    assert len(calls) == traced


def frozen(x):
    x = np.array(x)
    x.setflags(write=False)
    return x


def test_nothing_is_written_into_a_callers_array():
    rewards, beta = frozen(np.random.default_rng(0).normal(size=(2, 2, 2))), frozen([0.25, 0.75])
    policy = [frozen(t) for t in random_policy(1, MODEL)]
    theta = tuple(frozen(np.log(t)) for t in policy)
    features = [frozen(np.ones((2, 2, 1))), frozen(np.ones((4, 2, 1)))]
    everything = [rewards, beta, *policy, *theta, *features]
    copies = [x.copy() for x in everything]
    model = SequentialBandit(rewards, beta)
    for name in ("seeupo", "grpo", "ppo", "trajectory-ppo", "haml-greedy"):
        simulator = Simulator(model, P[name].replace(epochs=2), group_size=2)
        simulator.init(policy)
        simulator.update(theta)
    linear = Simulator(model, P["ppo-grae"], "log-linear", features=features)
    linear.update(frozen([0.5]))
    sampled = Simulator(model, P["grpo"], group_size=2, contexts_per_batch=2)
    run_simulator(sampled, 2, theta=theta, sampled=True)
    for before, after in zip(copies, everything, strict=True):
        assert_array_equal(before, after)


def test_rewards_can_be_replaced_inside_traced_code():
    """A batch of problems through `with_rewards` is the problems one by one."""
    rng = np.random.default_rng(3)
    rewards = rng.normal(size=(4, 2, 2, 2))
    simulator = Simulator(MODEL, P["seeupo"].replace(epochs=3), group_size=3)
    theta, step = simulator.init(random_policy(2, MODEL)), simulator.step((1, 0))

    @jax.jit
    @jax.vmap
    def batched(leaves):
        return step(with_rewards(simulator.lowered, leaves), theta, jnp.asarray(2.0)).values

    found = batched(rewards.reshape(4, 8, 1))
    for mine, one in zip(found, rewards, strict=True):
        model = SequentialBandit(one, MODEL.context_probs)
        alone = jax.jit(step)(lower(model.graph()), theta, jnp.asarray(2.0))
        np.testing.assert_allclose(mine, alone.values, atol=1e-12)


# Refusals ---------------------------------------------------------------------------------------


def discounted(discount):
    return random_mdp(0, 2, 2, 3, discount)


@pytest.mark.parametrize(
    ("model", "algorithm", "options", "message"),
    [
        (MODEL, P["seeupo"], {"group_size": 0}, "group_size is 0"),
        (MODEL, P["happo"], {"group_size": 0}, "group_size is 0"),
        (MODEL, P["ppo"], {"contexts_per_batch": 1.5}, "contexts_per_batch is 1.5"),
        (MODEL, P["seeupo"], {"route": "detour"}, "route is 'detour'"),
        (MODEL, P["ppo"], {"route": "sweeps"}, "needs whole histories"),
        (MODEL, P["haml"], {"param": "log-linear"}, "cannot represent"),
        (MODEL, P["seeupo"].replace(order=(0, 1, 2)), {}, r"order is \(0, 1, 2\)"),
        (MODEL, P["happo"].replace(product_clip=0.2), {}, "product_clip is set"),
        (discounted(0.0), P["ppo"], {}, "discount is 0"),
        (discounted(1e-4), P["ppo"], {}, "holds the last reward times 1e-08"),
        (
            MODEL,
            Algorithm(objective=lambda new, old, a, w=1.0: w * a**2),
            {},
            "not positively homogeneous",
        ),
        (zoo.get("tool-use").graph(), P["ppo"], {}, "merges histories"),
    ],
)
def test_what_makes_no_sense_is_refused_before_work_starts(model, algorithm, options, message):
    with pytest.raises(ValueError, match=message):
        Simulator(model, algorithm, **options)


def test_an_update_follows_the_algorithms_order():
    """Without an order given: the algorithm's own, never silently all turns at once."""
    simulator = Simulator(MODEL, P["seeupo"].replace(epochs=2))
    theta = simulator.init()
    alone, given = simulator.update(theta), simulator.update(theta, order=(1, 0))
    assert alone.values.shape == (2,)
    assert_array_equal(alone.values, given.values)
    joint = Simulator(MODEL, P["ppo-grae"].replace(epochs=2))
    assert joint.update(theta).values.shape == (1,)
    with pytest.raises(ValueError, match=r"order is \(0, 0\)"):
        simulator.update(theta, order=(0, 0))


def test_a_model_of_one_turn_and_one_action():
    model = TabularMDP([[[1.0]]], [[2.0]], [1.0], horizon=1)
    for name in ("seeupo", "grpo", "ppo", "trajectory-ppo", "haml"):
        out = (simulator := Simulator(model, P[name])).update(simulator.init())
        assert float(out.values[-1]) == 2.0


def test_a_guard_refuses_a_step_that_is_not_a_number():
    """A surrogate that is NaN outside [-1, 1] must not pass as one that does not fall."""

    def fragile(log_prob, log_prob_old, advantage, weight=1.0):
        change = log_prob - log_prob_old
        return weight * advantage * change * jnp.where(jnp.abs(change) > 1, jnp.nan, 1.0)

    def probed(log_prob, log_prob_old, advantage, weight=1.0):
        if isinstance(log_prob, np.ndarray):
            return weight * advantage * (log_prob - log_prob_old)
        return fragile(log_prob, log_prob_old, advantage, weight)

    a = P["trajectory-ppo"].replace(objective=probed, epochs=3)
    simulator = Simulator(MODEL, a)
    out = simulator.update(simulator.init(), lr=1e3)
    assert np.isfinite(out.values).all() and float(out.surrogate_gain[-1]) > 0


def test_starting_twice_is_starting_once():
    simulator = Simulator(MODEL, P["ppo-grae"], "network", hidden=3)
    for one, two in zip(*map(jax.tree.leaves, (simulator.init(), simulator.init())), strict=True):
        assert_array_equal(one, two)


def test_infinite_sizes_are_the_default():
    simulator = Simulator(MODEL, P["seeupo"])
    assert simulator.settings.group_size == simulator.settings.contexts_per_batch == math.inf
    assert simulator.plan.method == "exact"
