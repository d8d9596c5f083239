"""Runs: status, reproducibility, the learnt critic, the record and its file."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from numpy.testing import assert_allclose, assert_array_equal

from bandits import SequentialBandit, alias, random_bandit, random_mdp, random_policy, zoo
from seeupo_theory.rules.presets import PRESETS
from seeupo_theory.tabular import critic as critics
from seeupo_theory.tabular.evaluate import evaluate, optimum
from seeupo_theory.tabular.lowering import lower
from seeupo_theory.tabular.run import BLOCK, run_simulator
from seeupo_theory.tabular.sampling import draw
from seeupo_theory.tabular.simulator import Simulator

ATOL = 1e-12
P = PRESETS
STAR = SequentialBandit([[[0.5, 0.5], [0, 1]]], name="star")


def simulator(name="seeupo", model=STAR, switches=None, **sizes):
    return Simulator(model, P[name].replace(**{"epochs": 3, **(switches or {})}), **sizes)


# The record -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exact_run():
    """59 iterations, a block and a part of one, and the simulator that made them."""
    s = simulator(switches={"lr": 1.0})
    return s, run_simulator(s, BLOCK + 9)


def test_a_run_is_its_iterations(exact_run):
    s, trace = exact_run
    theta = s.init()
    for k in range(12):
        out = s.update(theta)
        assert_allclose(trace.values[0, k], out.value_before, atol=ATOL)
        assert_allclose(trace.data["update_value"][0, k], out.values, atol=ATOL)
        assert_allclose(trace.data["surrogate_gain"][0, k], out.surrogate_gain, atol=ATOL)
        assert_allclose(trace.data["clip_fraction"][0, k], out.clip_fraction, atol=1e-9)
        old, new = s.policy(theta), s.policy(out.theta)
        graph = s.graph
        visits = evaluate(graph, new).visitation
        pairs = list(zip(visits, new, old, strict=True))
        kl = sum(float(d @ (q * np.log(q / p)).sum(axis=1)) for d, q, p in pairs)
        assert float(trace.data["kl"][0, k]) == pytest.approx(kl, abs=ATOL)
        entropy = -sum(float(d @ (q * np.log(q)).sum(axis=1)) for d, q, _ in pairs)
        assert float(trace.data["entropy"][0, k + 1]) == pytest.approx(entropy, abs=ATOL)
        theta = out.theta
    assert trace.values.shape == (1, BLOCK + 10)
    assert trace.data["updated_turn"].values.tolist() == [[1, 0]] * (BLOCK + 9)
    assert_array_equal(trace.data["gap"], optimum(s.graph).value - trace.values)
    assert trace.data["entropy"].values[0, 0] == pytest.approx(2 * np.log(2))


def test_the_final_policy_has_the_final_value(exact_run):
    s, trace = exact_run
    final = evaluate(s.graph, [table[0] for table in trace.policy]).value
    assert final == pytest.approx(trace.values[0, -1], abs=ATOL)


def test_blocks_and_their_length_make_no_difference(exact_run):
    s, trace = exact_run
    short = run_simulator(s, 7)
    assert_array_equal(short.values, trace.values[:, :8])
    again = run_simulator(s, BLOCK + 9)
    xr.testing.assert_identical(again.data, trace.data)


def test_summary(exact_run):
    _, trace = exact_run
    found = trace.summary()
    assert found["iterations"] == BLOCK + 9 and found["seeds"] == 1
    assert found["value_first"] == 0.5 and found["optimal_value"] == 1.0
    assert found["gap_last"] == pytest.approx(1 - found["value_last"], abs=ATOL)
    assert found["share_of_drops"] == found["share_of_update_drops"] == 0.0
    assert found["worst_change"] >= -ATOL and found["status"] == {trace.status[0]: 1}


def test_drops_are_counted_with_their_tolerance():
    """Group std lowers J at every step here; by a millionth of that where rewards are so small."""
    for scale in (1.0, 1e-9):
        base = zoo.get("wrong-sign").model
        model = SequentialBandit(
            {"values": scale * base.reward_values, "probs": base.reward_probs},
        )
        s = Simulator(model, P["grpo"].replace(std_eps=0.0, epochs=1, lr=0.1), group_size=3)
        trace = run_simulator(s, 4)
        assert (trace.data["drop"].values == 1).all()
        assert trace.summary()["share_of_drops"] == 1.0
        assert trace.data.attrs["drop_tolerance"] == pytest.approx(1.5e-12 * scale)


# Status -----------------------------------------------------------------------------------------


def test_status_says_how_a_run_ended():
    model = random_bandit(0, 1, (2, 2), "uniform")
    best = run_simulator(simulator("haml-greedy", model), 2)
    assert best.status == ["converged"] and best.values[0, 1] == pytest.approx(
        optimum(model.graph()).value
    )
    assert run_simulator(simulator(switches={"lr": 1e-3}), 2).status == ["out-of-steps"]
    blown = simulator("reinforce", SequentialBandit([[0.0, 1e300]]), {"lr": 1e300, "epochs": 2})
    trace = run_simulator(blown, 3)
    assert trace.status == ["non-finite"] and not np.isfinite(trace.values[0, -1])


def test_a_blind_policy_is_compared_with_full_information():
    s = Simulator(zoo.get("xor-shared").model, P["ppo-grae"], "shared")
    trace = run_simulator(s, 3)
    assert trace.data.attrs["optimal_value"] == 1.0 and trace.status == ["out-of-steps"]


# Random numbers ---------------------------------------------------------------------------------


def test_random_orders_come_from_the_seed():
    s = simulator("happo", switches={"epochs": 1})
    one, two, other = (run_simulator(s, 6, seed=k) for k in (0, 0, 3))
    xr.testing.assert_identical(one.data, two.data)
    orders = one.data["updated_turn"].values
    assert (np.sort(orders, axis=1) == [0, 1]).all()
    assert len(np.unique(orders, axis=0)) > 1
    assert (orders != other.data["updated_turn"].values).any()


def test_seeds_are_independent_runs():
    """Seed s of many is seed s of few: vectorising changes nothing."""
    s = simulator("grpo", group_size=4, contexts_per_batch=3)
    many = run_simulator(s, 5, seeds=4, sampled=True, seed=7)
    few = run_simulator(s, 5, seeds=2, sampled=True, seed=7)
    assert_allclose(many.values[:2], few.values, rtol=1e-13)
    assert len(np.unique(many.values[:, -1])) == 4
    other = run_simulator(s, 5, seeds=2, sampled=True, seed=8)
    assert (other.values[:, -1] != few.values[:, -1]).all()
    assert many.data.attrs["expectation"] == "sampled"


def test_each_seed_may_start_elsewhere():
    s = simulator()
    starts = [s.init(random_policy(k, STAR)) for k in range(3)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *starts)
    together = run_simulator(s, 3, theta=stacked, stacked=True, seeds=3)
    for k, start in enumerate(starts):
        alone = run_simulator(s, 3, theta=start)
        assert_allclose(together.values[k], alone.values[0], atol=ATOL)
    with pytest.raises(ValueError, match="leading axis of 2 seeds"):
        run_simulator(s, 3, theta=stacked, stacked=True, seeds=2)


def test_monte_carlo_runs_say_so():
    model = random_bandit(3, 2, (2, 2))
    s = simulator("seeupo", model, {"epochs": 1}, group_size=4, contexts_per_batch=8)
    trace = run_simulator(s, 2)
    assert trace.data.attrs["expectation"] == "monte-carlo"
    assert (trace.data["standard_error"].values > 0).all()
    assert trace.data["value"].dims == ("seed", "step")


# The critic -------------------------------------------------------------------------------------


def exact_to_go(model, policy, graph):
    """Expected discounted reward to go of each state and turn, by backward induction."""
    value, out = np.zeros(model.states), []
    for t in reversed(range(model.horizon)):
        q = model.rewards_by_turn(t) + model.discount * (model.transitions_by_turn(t) @ value)
        value = (policy[t] * q).sum(axis=1)
        out.append(value)
    return out[::-1]


MDP = random_mdp(2, 4, 2, 2, 0.8, branching=2, absorbing=1, by_turn=True)


def test_learnt_critic_converges_to_the_exact_values():
    graph = MDP.graph()
    policy = random_policy(1, graph)
    lowered, tables = lower(graph), [jnp.log(jnp.asarray(t)) for t in policy]
    wanted = exact_to_go(MDP, policy, graph)
    expected = jax.jit(lambda t: critics.expected_targets(lowered, t, graph.discount))(tables)
    critic = critics.zeros(tables)
    for k in range(1, 31):
        critic = critics.fit(critic, expected, 0.5)
        for value, exact, (_, visits) in zip(critic, wanted, expected, strict=True):
            seen = np.asarray(visits) > 0
            assert_allclose(value[seen], (1 - 0.5**k) * exact[seen], atol=1e-12)
            assert_array_equal(np.asarray(value)[~seen], 0.0)  # unvisited rows keep their value

    @jax.jit
    def sampled(key):
        batch = draw(lowered, tables, 500, 20, key)
        return critics.sampled_targets(lowered, tables, batch, graph.discount)

    for (mine, seen), exact in zip(sampled(jax.random.key(0)), wanted, strict=True):
        often = np.asarray(seen) > 300
        assert often.any()
        # returns lie in [0, 2.4]: five standard errors of 300 samples
        assert_allclose(mine[often], exact[often], atol=5 * 1.2 / 300**0.5)


def test_a_blind_critic_averages_by_visitation():
    model = alias(random_bandit(4, 1, (2, 3)), "turn")
    graph = model.graph()
    policy = random_policy(5, graph)
    targets = critics.expected_targets(lower(graph), [jnp.log(jnp.asarray(t)) for t in policy], 1.0)
    for target, visits in targets:  # whatever is seen, the mean is J
        assert float(target[0]) == pytest.approx(evaluate(graph, policy).value, abs=ATOL)
        assert float(visits[0]) == pytest.approx(1.0, abs=ATOL)


def test_a_critic_fitted_at_once_is_the_exact_one():
    """Rate 1 in exact expectation; a slow critic behaves otherwise."""
    exact = run_simulator(simulator("ppo", MDP, {"gae_lambda": 0.0}), 3)
    learnt = simulator("ppo", MDP, {"gae_lambda": 0.0, "critic": "tabular"})
    assert_allclose(run_simulator(learnt, 3, critic_rate=1.0).values, exact.values, atol=1e-11)
    slow = run_simulator(learnt, 3, critic_rate=0.1).values
    assert np.abs(slow - exact.values).max() > 1e-3
    sampled = simulator("ppo", MDP, {"critic": "tabular"}, group_size=2, contexts_per_batch=4)
    assert np.isfinite(run_simulator(sampled, 2, sampled=True, seeds=2).values).all()


def test_the_penalty_of_a_run_refers_to_its_start():
    """A large β holds the policy near where it began; without a fixed reference it would drift."""
    free = run_simulator(simulator("ppo-grae", switches={"lr": 0.1}), 40)
    bound = run_simulator(simulator("ppo-grae", switches={"lr": 0.1, "kl_coef": 5.0}), 40)
    assert free.values[0, -1] > 0.8
    assert 0.5 < bound.values[0, -1] < 0.6
    assert abs(bound.values[0, -1] - bound.values[0, -2]) < 1e-3


# Files ------------------------------------------------------------------------------------------


def test_traces_survive_the_disk(exact_run, tmp_path):
    _, trace = exact_run
    path = trace.save(tmp_path / "trace.nc")
    with xr.open_dataset(path, engine="scipy") as back:
        back.load()
    for name, variable in trace.data.variables.items():
        if variable.dtype.kind == "U":
            assert [s.decode() if isinstance(s, bytes) else str(s) for s in back[name].values] == [
                str(s) for s in variable.values
            ]
        else:
            assert_array_equal(back[name].values, variable.values)
            assert back[name].dims == variable.dims
    assert back.attrs["algorithm"] == "seeupo" and back.attrs["model"] == "star"
    assert float(back.attrs["optimal_value"]) == 1.0
    trace.save(path)  # a second time replaces it
    assert [p.name for p in tmp_path.iterdir()] == ["trace.nc"]


def test_a_failed_write_leaves_nothing_behind(exact_run, tmp_path, monkeypatch):
    _, trace = exact_run
    target = tmp_path / "trace.nc"
    target.write_text("old")

    def fail(self, path, **_):
        with open(path, "w") as file:
            file.write("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(xr.Dataset, "to_netcdf", fail)
    with pytest.raises(KeyboardInterrupt):
        trace.save(target)
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["trace.nc"]
    with pytest.raises(ValueError, match="does not exist"):
        trace.save(tmp_path / "nowhere" / "trace.nc")


def test_progress_and_counts(exact_run):
    s, _ = exact_run
    seen: list[int] = []
    run_simulator(s, BLOCK + 9, progress=seen.append)
    assert seen[-1] == BLOCK + 9 and seen == sorted(set(seen))
    for name in ("iterations", "seeds"):
        with pytest.raises(ValueError, match=f"{name} is 0; expected at least 1"):
            run_simulator(s, **{"iterations": 1, name: 0})
