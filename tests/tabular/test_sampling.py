"""Sampled batches: their frequencies, and their surrogates as unbiased copies of the exact ones."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from bandits import SequentialBandit, random_bandit, random_mdp, random_policy, zoo
from seeupo_theory.rules.presets import PRESETS
from seeupo_theory.tabular import enumerate as walk
from seeupo_theory.tabular.lowering import lower
from seeupo_theory.tabular.sampling import Rows, draw
from seeupo_theory.tabular.simulator import Simulator
from seeupo_theory.tabular.surrogate import row_surrogate, trajectory_surrogate
from seeupo_theory.tabular.update import exact_source

P = PRESETS
DRAWS = 2048
SIGMAS = 5.0
"""Of some hundred components, none lies further from its mean than this with probability 1 − 1e-4."""


def logs(policy):
    with np.errstate(divide="ignore"):
        return [jnp.asarray(np.log(t)) for t in policy]


compiled_draw = jax.jit(draw, static_argnums=(2, 3))


# Draws ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mixed", "tool-use"])
@pytest.mark.parametrize("merge", ["return", "none"])
def test_trajectories_are_drawn_with_their_probabilities(name, merge):
    graph = zoo.get(name).model.graph(merge=merge)
    policy = random_policy(0, graph)
    lowered = lower(graph)
    group = 4
    batch = compiled_draw(lowered, logs(policy), 10_000, group, jax.random.key(1))
    acting = [layer.acting() for layer in graph.layers]
    wanted: dict = {}
    for path in walk.trajectories(graph, policy):
        steps = tuple(
            (n, a if acting[t][n] else 0) for t, (n, a) in enumerate(path.steps)
        )  # at no-op turns the action means nothing
        key = (path.context, steps, round(path.value, 9))
        wanted[key] = wanted.get(key, 0.0) + path.prob
    columns = [np.asarray(batch.context), np.round(np.asarray(batch.returns), 9)]
    nodes = np.stack(batch.node, axis=1)
    actions = np.where(np.stack(batch.active, axis=1), np.stack(batch.actions, axis=1), 0)
    found: dict = dict.fromkeys(wanted, 0)
    for c, r, n, a in zip(*columns, nodes.tolist(), actions.tolist(), strict=True):
        found[int(c), tuple(zip(n, a, strict=True)), float(r)] += 1
    # members of a group are independent given the context; contexts repeat inside a group
    first = [k for k in wanted if wanted[k] * 40_000 > 5]
    rare = 1 - sum(wanted[k] for k in first)
    observed = np.array([found[k] for k in first] + [40_000 - sum(found[k] for k in first)])
    expected = 40_000 * np.array([wanted[k] for k in first] + [max(rare, 1e-12)])
    if observed[-1] == 0:
        observed, expected = observed[:-1], expected[:-1] * 40_000 / expected[:-1].sum()
    inflation = group if graph.contexts > 1 else 1  # at most, of counts that share a context
    assert chisquare(observed / inflation, expected / inflation).pvalue > 1e-3
    assert (np.asarray(batch.context).reshape(-1, group) == batch.context[::group, None]).all()


def test_impossible_actions_are_never_drawn():
    model = zoo.get("tool-use").model
    graph = model.graph()
    policy = random_policy(3, graph)
    for table in policy:
        table[1] = [0.0, 1.0, 0.0]
    batch = compiled_draw(lower(graph), logs(policy), 500, 4, jax.random.key(0))
    for t, layer in enumerate(graph.layers):
        row, action = np.asarray(batch.rows[t]), np.asarray(batch.actions[t])
        assert (policy[t][row, action] > 0).all()
        assert (row == layer.rows()[np.asarray(batch.node[t])]).all()


# Surrogates -------------------------------------------------------------------------------------


def pair(simulator, order, theta, fixed, candidate, anchor):
    """(sampled, exact): functions → (value, gradient) of the last turn in `order` at `candidate`.

    The turns before it in `order` have been updated to the tables `fixed`.
    """
    settings, lowered, a = simulator.settings, simulator.lowered, simulator.algorithm
    param = settings.param
    old, new = param.log_probs(theta), param.log_probs(fixed)
    reference = param.log_probs(anchor)

    def prepared(source):
        for t in order[:-1]:
            if isinstance(source, Rows):
                source.advance(t, new, old)
            else:
                source.advance(t, new[t], old[t], a)
        return source

    def sampled(key):
        rows = prepared(Rows(settings, lowered, old, None, key))
        weighted = {t: rows.weighted(t) for t in order[-1:]}

        def function(x):
            tables = param.log_probs(x)
            if a.credit == "trajectory":
                return rows.trajectory(tables, old, reference)
            return rows.surrogate(weighted, tables, old, reference)

        return jax.value_and_grad(function)(candidate)

    def exact(_):
        source, _ = exact_source(settings, lowered, old, None, None)
        source, t = prepared(source), order[-1]

        def function(x):
            tables = param.log_probs(x)
            if a.credit == "trajectory":
                parts = source.positive[0], source.negative[0]
                return trajectory_surrogate(a, lowered, tables, old, *parts, reference)
            return jnp.sum(row_surrogate(a, tables[t], old[t], source.weights(t), reference[t]))

        return jax.value_and_grad(function)(candidate)

    return sampled, exact


CASES = [
    ("seeupo", {"normalise": "none", "kl_coef": 0.3}, (1, 0), 3, 1),
    ("seeupo", {"order": "forward"}, (0, 1), 2, 2),
    ("seeupo-official", {}, (1, 0), 2, 2),
    ("grpo", {"dual_clip": 1.3}, (0,), 4, 1),
    ("reinforce++", {}, (1,), 2, 2),
    ("rloo", {}, (0,), 3, 1),
    ("ppo", {"gae_lambda": 0.5}, (1, 0), 1, 4),
    ("happo", {"order": "forward"}, (0, 1), 1, 4),
    ("happo", {"order": "reverse"}, (1, 0), 1, 4),
    ("trajectory-ppo", {"kl_coef": 0.3}, (0,), 2, 1),
]


def small(model_name):
    if model_name == "bandit":
        coin = {"values": [0.0, 1.0], "probs": [0.3, 0.7]}
        return SequentialBandit([[[0, coin], [coin, 1]], [[1, 0], [0, 0]]], ["1/4", "3/4"])
    return random_mdp(4, 3, 2, 2, 0.9, branching=2, absorbing=1)


@pytest.mark.parametrize("name", ["bandit", "mdp"])
def test_sampled_surrogates_are_unbiased(name):
    """Value and gradient, away from the sampling policy, so that clip and factor are at work."""
    model = small(name)
    logits = [
        [jnp.asarray(x) for x in logs(random_policy(s, model.graph(), 2.0))] for s in range(4)
    ]
    theta, fixed, candidate, anchor = map(tuple, logits)
    pairs = []
    for preset, switches, order, group, batch in CASES:
        a = P[preset].replace(**switches)
        simulator = Simulator(model, a, group_size=group, contexts_per_batch=batch)
        pairs.append(pair(simulator, order, theta, fixed, candidate, anchor))
    keys = jax.random.split(jax.random.key(5), DRAWS)
    found = jax.jit(lambda k: [jax.vmap(s)(k) for s, _ in pairs])(keys)
    truth = jax.jit(lambda k: [e(k) for _, e in pairs])(0)
    for case, sampled, exact in zip(CASES, found, truth, strict=True):
        for mine, wanted in zip(*map(jax.tree.leaves, (sampled, exact)), strict=True):
            error = mine.std(axis=0, ddof=1) / math.sqrt(DRAWS)
            distance = np.abs(np.asarray(mine.mean(axis=0) - wanted))
            assert (distance <= SIGMAS * np.asarray(error) + 1e-12).all(), case
        assert max(float(jnp.abs(g).max()) for g in jax.tree.leaves(exact[1])) > 1e-3, case


# Whole iterations -------------------------------------------------------------------------------


def test_iterations_on_large_batches_approach_the_exact_ones():
    """96 000 trajectories: parameters within 0.01, nearer than any other algorithm's."""
    model = random_bandit(2, 1, (2, 2), "uniform")
    theta = tuple(logs(random_policy(1, model, 2.0)))
    names = ("seeupo", "seeupo-no-factor", "seeupo-resample", "happo")
    rules = [P[n].replace(epochs=4, order="reverse") for n in names]
    exact = [Simulator(model, a, group_size=6) for a in rules]
    sampled = [Simulator(model, a, group_size=6, contexts_per_batch=16_000) for a in rules]

    @jax.jit
    def every(theta, key):
        rate = jnp.asarray(2.0)
        return (
            [s.step((1, 0))(s.lowered, theta, rate).theta for s in exact],
            [s.step((1, 0), sampled=True)(s.lowered, theta, rate, key=key).theta for s in sampled],
        )

    true, drawn = every(theta, jax.random.key(1))

    def distance(one, two):
        return max(float(jnp.abs(x - y).max()) for x, y in zip(one, two, strict=True))

    for i, name in enumerate(names):
        own = distance(true[i], drawn[i])
        others = [distance(true[j], drawn[i]) for j in range(len(names)) if j != i]
        assert own < 0.01 < min(others), (name, own, others)


def test_what_cannot_be_sampled_is_refused():
    model = small("bandit")
    with pytest.raises(ValueError, match="need a finite group_size and contexts_per_batch"):
        Simulator(model, P["seeupo"]).update((), key=jax.random.key(0), sampled=True)
    simulator = Simulator(model, P["haml"], group_size=2, contexts_per_batch=2)
    with pytest.raises(ValueError, match="'clip-argmax' is an ideal step"):
        simulator.update((), key=jax.random.key(0), sampled=True)
    with pytest.raises(ValueError, match="draws random numbers; give a key"):
        Simulator(model, P["grpo"], group_size=2, contexts_per_batch=2).update((), sampled=True)
    with pytest.raises(ValueError, match="the algorithm's order is random"):
        Simulator(model, P["happo"]).update(())
