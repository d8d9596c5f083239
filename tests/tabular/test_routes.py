"""The same iteration by different routes, and what no-op turns and impossible actions must not do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bandits import (
    SequentialBandit,
    TabularMDP,
    alias,
    random_bandit,
    random_mdp,
    random_policy,
    zoo,
)
from seeupo_theory.rules.presets import PRESETS, Algorithm
from seeupo_theory.tabular.lowering import lower
from seeupo_theory.tabular.simulator import Simulator
from seeupo_theory.tabular.weights import PathSums, Sweeps, leaf_parts, needs_paths

from . import naive

ATOL = 1e-12
P = {name: a.replace(epochs=min(a.epochs, 4)) for name, a in PRESETS.items()}


def logits(model, seed=0, concentration=2.0):
    with np.errstate(divide="ignore"):
        return tuple(np.log(t) for t in random_policy(seed, model, concentration))


def program(simulators, order=None):
    """One compiled program (problems, θ, lr) → outcomes of all simulators."""
    steps = [s.step(s.order() if order is None else order) for s in simulators]

    @jax.jit
    def every(problems, theta, lr):
        return [step(x, theta, lr) for step, x in zip(steps, problems, strict=True)]

    return every


def outcomes(simulators, theta, lr=2.0, order=None):
    """One iteration of each simulator."""
    return program(simulators, order)([s.lowered for s in simulators], theta, jnp.asarray(lr))


def same(one, two, atol=ATOL):
    for mine, theirs in zip(jax.tree.leaves(one.theta), jax.tree.leaves(two.theta), strict=True):
        assert_allclose(mine, theirs, atol=atol)
    assert_allclose(one.values, two.values, atol=atol)
    assert_allclose(one.surrogate_gain, two.surrogate_gain, atol=atol)
    assert_allclose(one.worst_row_gain, two.worst_row_gain, atol=atol)
    assert_allclose(one.clip_fraction, two.clip_fraction, atol=1e-9)


MODELS = {
    "blind": alias(random_bandit(1, 2, (2, 3), "grid"), "turn"),
    "mdp": random_mdp(2, 3, 2, 2, 0.9, branching=2, absorbing=1, masked=True, by_turn=True),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_sweeps_and_sums_over_paths_agree(model):
    rules = [
        P["seeupo"].replace(order="forward", factor_clip=0.1, kl_coef=0.2),
        P["seeupo-official"].replace(product_clip=None, epochs=3),
    ]
    tree = model.graph(merge="none")
    both = [Simulator(tree, a, group_size=3, route=r) for a in rules for r in ("sweeps", "paths")]
    found = outcomes(both, logits(model))
    for one, two in zip(found[::2], found[1::2], strict=True):
        same(one, two)


def test_merged_and_unmerged_graphs_agree():
    model = random_mdp(3, 3, 2, 3, 0.9, branching=2, absorbing=1, by_turn=True)
    rules = [
        (P["seeupo-official"].replace(product_clip=None, kl_coef=0.1, epochs=3), {"group_size": 2}),
        (P["happo"].replace(order=(1, 2, 0)), {}),
        (P["haml-kl"], {}),
    ]
    merged, tree = model.graph(), model.graph(merge="none")
    assert merged.leaves < tree.leaves
    both = [Simulator(g, a, **sizes) for a, sizes in rules for g in (merged, tree)]
    found = outcomes(both, logits(model))
    for one, two in zip(found[::2], found[1::2], strict=True):
        same(one, two, atol=1e-11)


@pytest.mark.parametrize("route", ["sweeps", "paths"])
def test_weights_add_up_to_the_expected_advantage(route):
    """Σ W⁺ − W⁻ of any turn is E[factor · Â], and Σ visit the chance that the turn happens."""
    model = zoo.get("early-stop").model
    graph = model.graph(merge="none")
    simulator = Simulator(graph, P["grpo"], group_size=3, route=route)
    tables = simulator.param.log_probs(logits(model))
    lowered = lower(graph, paths=True)
    positive, negative, _ = leaf_parts(lowered, tables, simulator.settings.law, None)
    source = (
        Sweeps(lowered, tables, positive, negative)
        if route == "sweeps"
        else PathSums(lowered, tables, [positive] * 4, [negative] * 4)
    )
    alive = 1.0
    for t, table in enumerate(tables):
        weights = source.weights(t)
        assert float(weights.visit.sum()) == pytest.approx(alive, abs=ATOL)
        alive *= float(jnp.exp(table)[0, 1])  # action 1 goes on
        source.advance(t, table, table, P["grpo"])  # a ratio of 1 changes nothing
    assert float(weights.visit.sum()) < 1


# No-op turns ------------------------------------------------------------------------------------


def padded(model):
    """The same bandit as an MDP that ends after its turns, with a no-op turn behind."""
    histories = [1, *np.cumprod(model.actions)]
    offset = np.cumsum([0, *histories[:-1]])
    states, actions = int(sum(histories[:-1])) + 1, max(model.actions)
    table = np.zeros((states, actions, states))
    rewards = np.zeros((states, actions))
    table[-1, :, -1] = 1.0
    for t, count in enumerate(model.actions):
        for h in range(histories[t]):
            for a in range(actions):
                last = t + 1 == model.turns
                target = states - 1 if last else offset[t + 1] + h * count + a
                table[offset[t] + h, a, target] = 1.0
                if last:
                    rewards[offset[t] + h, a] = model.reward_means.reshape(-1)[h * count + a]
    return TabularMDP(table, rewards, np.eye(states)[0], model.turns + 1), offset


def test_padding_with_no_op_turns_changes_nothing():
    """Factor 1, weight 0, no KL: the padded episode learns what the plain one learns."""
    model = random_bandit(5, 1, (2, 2), "grid")
    mdp, offset = padded(model)
    policy = random_policy(6, model, 2.0)
    rows = np.full((mdp.states, 2), 0.5)
    for t, table in enumerate(policy):
        rows[offset[t] : offset[t] + len(table)] = table
    with np.errstate(divide="ignore"):
        theta, wide = tuple(map(np.log, policy)), tuple(np.log([rows] * 3))
    rules = [
        P["seeupo-official"].replace(epochs=4, kl_coef=0.3, order="forward"),
        P["ppo"].replace(gae_lambda=0.5),
        P["trajectory-ppo"].replace(kl_coef=0.3),
    ]
    plain = outcomes([Simulator(model, a) for a in rules], theta)
    longer = outcomes([Simulator(mdp, a) for a in rules], wide)
    for one, two in zip(plain, longer, strict=True):
        for t, table in enumerate(one.theta):
            mine = two.theta[t][offset[t] : offset[t] + len(table)]
            # a row of logits is known up to a constant that the rest of the table does not share
            assert_allclose(jax.nn.softmax(mine), jax.nn.softmax(table), atol=ATOL)
        assert_array_equal(two.theta[2], wide[2])
        assert float(two.values[-1]) == pytest.approx(float(one.values[-1]), abs=ATOL)


def test_the_factor_of_a_no_op_turn_is_one_where_weights_are_shared():
    """θ moves the rows of the state where the episode is over too; the clamped factor is blind to it."""
    model = zoo.get("early-stop", turns=3).model
    graph = model.graph(merge="none")
    rng = np.random.default_rng(8)
    features = [rng.normal(size=(2, 2, 2)) for _ in range(3)]
    a = P["seeupo"].replace(factor_clip=0.05, normalise="none")
    simulators = [
        Simulator(graph, a, "log-linear", features=features, route=r) for r in ("sweeps", "paths")
    ]
    theta = np.array([0.4, -0.3])
    one, two = outcomes(simulators, theta, lr=5.0)
    same(one, two)
    slow = naive.Iteration(naive.paths(model), a, naive.LogLinear(features), theta, 5.0)
    assert_allclose(one.theta, slow.run((2, 1, 0)), atol=1e-10)
    before, after = (np.exp(simulators[0].param.log_probs(x)[2][1]) for x in (theta, one.theta))
    assert np.abs(after - before).max() > 0.01  # the row of the no-op turn did move


# Impossible and forbidden actions ---------------------------------------------------------------

ASCENDED = [name for name, a in P.items() if not a.ideal]
SOME = ["seeupo", "grpo", "seeupo-resample", "ppo", "happo", "trajectory-ppo"]
"""One preset for each route through the code."""


def certain(model, seed=0):
    """A policy with zeros: in every third row only one action is possible."""
    tables = random_policy(seed, model, 2.0)
    for table in tables:
        for row in range(0, len(table), 3):
            keep = table[row].argmax()
            table[row] = 0.0
            table[row, keep] = 1.0
    return tables


@pytest.mark.parametrize("name", ["mixed", "early-stop"])
def test_impossible_actions_stay_impossible_and_give_no_nan(name):
    model = zoo.get(name, **({"turns": 2} if name == "early-stop" else {})).model
    policy = certain(model)
    rules = [P[n].replace(kl_coef=0.1, epochs=2) for n in SOME]
    simulators = [Simulator(model, a, group_size=2) for a in rules]
    with np.errstate(divide="ignore"):
        theta = tuple(np.log(t) for t in policy)
    order = tuple(reversed(range(len(policy))))
    for a, out in zip(rules, outcomes(simulators, theta, order=order), strict=True):
        assert np.isfinite(out.values).all() and np.isfinite(out.surrogate_gain).all(), a.name
        for before, after in zip(theta, out.theta, strict=True):
            assert_array_equal(np.isneginf(after), np.isneginf(before), err_msg=a.name)
            assert not np.isnan(after).any(), a.name


def test_token_tables_with_impossible_tokens():
    model = zoo.get("tokens").model
    policy = [np.array([[0.5, 0.0, 0.0, 0.5]]), np.eye(4)[[0, 1, 1, 3]]]
    options = {"vocabulary": (2, 2), "lengths": (2, 2)}
    for name in ("grpo", "seeupo-official"):
        simulator = Simulator(model, P[name], "tokens", group_size=2, **options)
        theta = simulator.init(policy)
        assert_allclose(simulator.policy(theta)[0], policy[0], atol=ATOL)
        out = simulator.update(theta)
        assert np.isfinite(out.values).all()
        assert all(not np.isnan(x).any() for x in jax.tree.leaves(out.theta))
        assert (simulator.policy(out.theta)[0][0, 1:3] == 0).all()


def test_forbidden_actions_have_no_gradient_and_no_probability():
    model = zoo.get("tool-use").model
    simulator = Simulator(model, P["seeupo"])
    theta = simulator.init()
    out = simulator.update(theta)
    start = model.graph().layers[0].mask
    for before, after, table in zip(theta, out.theta, simulator.policy(out.theta), strict=True):
        assert (table[~start] == 0).all()
        assert_array_equal(np.asarray(after)[~start], np.asarray(before)[~start])


def test_token_tables_refuse_masks():
    mask = np.array([[True, True, True, False]])
    model = TabularMDP([[[1.0]] * 4], [[0, 1, 2, 3]], [1.0], 1, mask=mask)
    with pytest.raises(ValueError, match="turn 1 forbids actions"):
        Simulator(model, Algorithm(), "tokens", vocabulary=(2,), lengths=(2,))


def test_nearly_deterministic_policies():
    """Probabilities down to the smallest doubles: finite, and J does not fall."""
    model = SequentialBandit([[[0.0, 1.0], [0.5, 0.25]]])
    rules = [P[n] for n in SOME]
    simulators = [Simulator(model, a, group_size=2) for a in rules]
    every, problems = program(simulators, (1, 0)), [s.lowered for s in simulators]
    for tiny in (1e-12, 1e-100, 1e-300):
        policy = [np.array([[1 - tiny, tiny]]), np.array([[1 - tiny, tiny], [tiny, 1 - tiny]])]
        theta = tuple(np.log(t) for t in policy)
        for a, out in zip(rules, every(problems, theta, jnp.asarray(2.0)), strict=True):
            assert np.isfinite(out.values).all(), (a.name, tiny)
            assert np.isfinite(jnp.concatenate(out.theta)).all(), (a.name, tiny)
            assert float(out.values[-1]) >= float(out.value_before) - ATOL, (a.name, tiny)


def test_huge_and_tiny_rewards():
    """Standardised algorithms do not see the unit of the rewards; the others scale with it."""
    base = random_bandit(7, 2, (2, 2))
    theta = logits(base)
    rules = [P["seeupo"].replace(std_eps=0.0), P["grpo"].replace(std_eps=0.0), P["ppo-grae"]]
    simulators = [Simulator(base, a, group_size=3) for a in rules]
    every = program(simulators)

    def run(scale):
        model = SequentialBandit(scale * base.reward_means, base.context_probs)
        problems = [lower(model.graph())] * len(rules)
        return every(problems, theta, jnp.asarray(2.0)), every(problems, theta, 0.1 / scale)

    standard, raw = run(1.0)
    for scale in (1e-8, 1e8):
        found, small = run(scale)
        for mine, theirs in ((standard[0], found[0]), (standard[1], found[1]), (raw[2], small[2])):
            assert_allclose(theirs.values / scale, mine.values, atol=1e-9)
            for x, y in zip(mine.theta, theirs.theta, strict=True):
                assert_allclose(x, y, atol=1e-9)


def test_equal_rewards_move_nothing():
    rules = [P[n].replace(epochs=2) for n in ("seeupo", "grpo", "ppo", "happo", "trajectory-ppo")]
    base = SequentialBandit(np.zeros((2, 2, 3)))
    theta = logits(base)
    every = program([Simulator(base, a, group_size=3) for a in rules], (0, 1))
    for reward in (0.0, 0.1, 1e8, -3.0):
        graph = SequentialBandit(np.full((2, 2, 3), reward)).graph()
        problems = [lower(graph, paths=needs_paths(a)) for a in rules]
        for a, out in zip(rules, every(problems, theta, jnp.asarray(2.0)), strict=True):
            # a node's value is a sum of probabilities times the reward, right to an ulp of it
            slack = 1e-14 * abs(reward) if a.estimator in ("gae", "exact") else 0.0
            for before, after in zip(theta, out.theta, strict=True):
                assert_allclose(after, before, rtol=0, atol=slack, err_msg=a.name)
            assert float(out.clip_fraction.max()) == 0.0


# Switches that must do nothing or something -----------------------------------------------------


def test_a_learning_rate_of_nothing_changes_nothing():
    model = zoo.get("mixed").model
    theta = logits(model)
    simulators = [Simulator(model, P[n].replace(epochs=2), group_size=2) for n in ("seeupo", "ppo")]
    for out in outcomes(simulators, theta, lr=0.0, order=(1, 0)):
        for before, after in zip(theta, out.theta, strict=True):
            assert_array_equal(before, after)
        assert_array_equal(out.clip_fraction, 0.0)
        assert_array_equal(out.surrogate_gain, 0.0)


def test_one_epoch_never_meets_the_clip():
    """Its only step is taken at ratio 1; the clip fraction is that of the last step taken."""
    model = zoo.get("mixed").model
    theta = logits(model)
    once = [Simulator(model, P[n].replace(epochs=1), group_size=2) for n in ("grpo", "ppo")]
    for out in outcomes(once, theta, lr=50.0):
        assert_array_equal(out.clip_fraction, 0.0)
    often = Simulator(model, P["grpo"].replace(epochs=6), group_size=2)
    assert 0 < float(outcomes([often], theta, lr=5.0)[0].clip_fraction[0]) <= 1


def test_a_penalty_changes_every_preset():
    """The first step from a policy other than the reference, and from the reference itself."""
    model = zoo.get("mixed").model
    theta, anchor = logits(model), logits(model, seed=1)
    names = (*SOME, "reinforce", "seeupo-official", "gspo")
    steps = [Simulator(model, P[n].replace(epochs=1, kl_coef=1.0)) for n in names]

    @jax.jit
    def every(theta, anchor):
        tables = steps[0].param.log_probs(anchor)
        return [
            s.step((1, 0))(s.lowered, theta, jnp.asarray(0.1), reference=tables).theta
            for s in steps
        ]

    for name, free, bound in zip(names, every(theta, theta), every(theta, anchor), strict=True):
        assert max(float(jnp.abs(x - y).max()) for x, y in zip(free, bound, strict=True)) > 1e-4, (
            name
        )


def test_a_penalty_alone_pulls_towards_the_reference():
    model = SequentialBandit([[0.0, 0.0, 0.0]])
    theta, anchor = logits(model), logits(model, seed=1)
    for kind in ("k2", "k3"):
        a = P["ppo-grae"].replace(kl_coef=1.0, kl_kind=kind, epochs=1)
        simulator = Simulator(model, a)
        reference = simulator.param.log_probs(anchor)
        out = simulator.update(theta, lr=0.1, reference=reference)
        p, q, r = (np.exp(simulator.param.log_probs(x)[0][0]) for x in (theta, out.theta, anchor))
        assert (q * np.log(q / r)).sum() < (p * np.log(p / r)).sum() - 1e-3
