"""The cornerstone: tables in the bridge and in the tabular simulator take the same path.

The same batch goes to `llm_bridge.update` (torch, the code that trains a transformer) and to
`seeupo_theory.tabular` (JAX); after every iteration the parameters and J must agree.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from bandits import sample_trajectories, zoo
from bandits.families import random_bandit, random_mdp
from llm_bridge.exact import Exact, evaluate
from llm_bridge.policies.base import Turn
from llm_bridge.policies.tabular import TabularPolicy
from llm_bridge.turns import TurnBatch
from llm_bridge.update import Options, Updater
from seeupo_theory.rules import advantages, factor, kl, objectives, orders, ratios, returns
from seeupo_theory.rules.presets import PRESETS, get
from seeupo_theory.tabular import policies
from seeupo_theory.tabular.sampling import draw
from seeupo_theory.tabular.simulator import Simulator

TOLERANCE = 1e-9
"""Two libraries add the same doubles in another order, some hundred times."""

ASCENDED = [name for name, a in PRESETS.items() if not a.ideal]
CONTEXTS, GROUP, ITERATIONS = 3, 4, 2


@pytest.fixture(autouse=True, scope="module")
def quick_compilation():
    """Programs here run twice: compiling them well would take longer than they do."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def problem(kind):
    """A graph and probability tables to start from."""
    if kind == "bandit":
        graph = random_bandit(3, contexts=2, actions=(2, 3)).graph()
    elif kind == "ending":
        graph = zoo.get("early-stop").model.graph(merge="none")
    else:
        graph = random_mdp(1, states=2, actions=2, horizon=2, discount=0.9).graph(merge="none")
    rng = np.random.default_rng(7)
    tables = []
    for layer in graph.layers:
        raw = rng.random((layer.observations, layer.actions)) + 0.2
        raw = raw if layer.mask is None else raw * layer.mask
        tables.append(raw / raw.sum(axis=1, keepdims=True))
    return graph, tables


def as_turns(batch, graph, group):
    """A sampled batch of the simulator as the bridge's rows."""
    rows = len(batch.returns)
    active = np.stack([np.asarray(a) for a in batch.active], axis=1)
    returns = np.asarray(batch.returns)
    if graph.node_return is None:
        rewards = np.zeros(active.shape)
        rewards[:, -1] = returns
    else:
        nodes = zip(graph.node_return, batch.node, strict=True)
        paid = np.stack([*(r[np.asarray(n)] for r, n in nodes), returns], axis=1)
        rewards = np.diff(paid, axis=1) / graph.discount ** np.arange(graph.turns)
    turns = []
    for t in range(graph.turns):
        seen, taken = np.asarray(batch.rows[t]), np.asarray(batch.actions[t])
        turns.append(
            [
                Turn((t, int(seen[i])), (int(taken[i]),), None, "") if active[i, t] else None
                for i in range(rows)
            ]
        )
    return TurnBatch(
        row_ids=tuple(f"row {i}" for i in range(rows)),
        groups=tuple(i // group for i in range(rows)),
        turns=tuple(turns),
        rewards=torch.tensor(rewards),
        returns=torch.tensor(returns),
        truncated=torch.zeros(rows, dtype=torch.bool),
        nodes=tuple(torch.tensor(np.array(n)) for n in batch.node),
    )


def both(algorithm, kind="bandit", family="tabular"):
    """Paths [(θ, J after every update)] of the bridge and of the simulator on the same batches."""
    graph, tables = problem(kind)
    features = None
    if family == "log-linear":
        rng = np.random.default_rng(5)
        shapes = [(x.observations, x.actions, 3) for x in graph.layers]
        features = [rng.normal(size=s) for s in shapes]
        param = policies.log_linear(graph, features=features)
        policy = TabularPolicy(graph, features=features)
    else:
        param = policies.make(family, graph)
        policy = TabularPolicy(graph, tables)
    simulator = Simulator(graph, algorithm, param, group_size=GROUP, contexts_per_batch=CONTEXTS)
    logs = [jnp.log(jnp.asarray(t)) for t in tables]
    theta = jnp.zeros(3) if family == "log-linear" else simulator.param.init(logs)
    settings = Options(discount=graph.discount, critic="exact")
    updater = Updater(policy, algorithm, options=settings, exact=Exact(graph))
    reference = simulator.param.log_probs(theta)
    updater.reference = policy.reference()
    mine, theirs = [], []
    for k in range(ITERATIONS):
        rng = np.random.default_rng(k)
        order = simulator.order(rng)
        key = jax.random.key(k)
        keys = jax.random.split(key, 1 if order is None else len(order))  # one an update

        def fresh(step, keys=keys):
            now = [x.detach().numpy() for x in policy.log_tables()]
            drawn = draw(
                simulator.lowered, [jnp.asarray(x) for x in now], CONTEXTS, GROUP, keys[step]
            )
            return as_turns(drawn, graph, GROUP)

        batch = fresh(0)
        values = []

        def watch(_, values=values):
            values.append(evaluate(graph, policy.tables()).value)

        updater(batch, order=order, resample=fresh, on_turn=watch)
        outcome = simulator.update(theta, order=order, key=key, sampled=True, reference=reference)
        theta = outcome.theta
        flat = np.concatenate([np.ravel(x) for x in jax.tree.leaves(theta)])
        own = np.concatenate([p.detach().numpy().ravel() for p in policy.parameters()])
        mine.append((own, np.array(values)))
        theirs.append((flat, np.asarray(outcome.values)))
    return mine, theirs


def distance(mine, theirs):
    """Largest difference of parameters and of J, and how far the parameters moved."""
    gap = max(
        np.abs(a - b).max()
        for m, t in zip(mine, theirs, strict=True)
        for a, b in zip(m, t, strict=True)
    )
    return gap, np.abs(theirs[-1][0] - theirs[0][0]).max()


SOME = {"mdp": ["ppo", "grpo", "happo"], "ending": ["seeupo", "seeupo-official", "trajectory-ppo"]}
PAIRS = [("bandit", n) for n in ASCENDED] + [(k, n) for k, names in SOME.items() for n in names]


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_every_preset_takes_the_path_of_the_simulator(kind, name):
    algorithm = get(name)
    algorithm = algorithm.replace(epochs=min(algorithm.epochs, 4))
    gap, moved = distance(*both(algorithm, kind))
    assert gap < TOLERANCE
    assert moved > 1e-3


SWITCHES = {
    "permutation, k1": {"order": (0, 1), "kl_coef": 0.1, "kl_kind": "k1"},
    "current, k2": {"reference": "current", "kl_coef": 0.1, "kl_kind": "k2"},
    "factor clip": {"factor_clip": 0.1, "normalise": "none"},
    "product clip": {"product_clip": 0.1, "order": "forward"},
    "group std, k3": {"normalise": "group", "std_eps": 0.0, "kl_coef": 0.1},
    "dual, loo": {"dual_clip": 1.5, "lr": 2.0, "baseline": "loo"},
    "asymmetric": {"clip": (0.1, 0.3), "lr": 2.0},
    "gae clipped": {"estimator": "gae", "gae_lambda": 0.5, "advantage_clip": 0.2},
    "guard": {"guard": True, "lr": 10.0},
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_every_switch_takes_the_path_of_the_simulator(switch):
    algorithm = get("seeupo").replace(epochs=3, **SWITCHES[switch])
    gap, moved = distance(*both(algorithm))
    assert gap < TOLERANCE
    assert moved > 1e-4


@pytest.mark.parametrize("name", ["seeupo", "happo", "trajectory-ppo"])
def test_shared_parameters_take_the_path_of_the_simulator(name):
    gap, moved = distance(*both(get(name).replace(epochs=3), family="log-linear"))
    assert gap < TOLERANCE
    assert moved > 1e-4


def bridge(algorithm, kind="bandit", arrange=None, options=None):
    """Parameters of the bridge after one iteration on a batch drawn without the simulator."""
    graph, tables = problem(kind)
    rng = np.random.default_rng(3)
    drawn = sample_trajectories(graph, tables, rng, CONTEXTS, GROUP)
    flat = [np.moveaxis(x, -1, 0).reshape(graph.turns, -1) for x in drawn[1:5]]
    rows = as_turns(
        SimpleNamespace(
            node=flat[0],
            rows=flat[1],
            actions=flat[2],
            active=flat[3],
            returns=drawn.returns.ravel(),
        ),
        graph,
        GROUP,
    )
    policy = TabularPolicy(graph, tables)
    settings = options or Options(discount=graph.discount, critic="exact")
    updater = Updater(policy, algorithm, options=settings, exact=Exact(graph))
    updater.reference = TabularPolicy(graph)
    updater(rows if arrange is None else rows.take(arrange))
    return np.concatenate([p.detach().numpy().ravel() for p in policy.parameters()])


@pytest.mark.parametrize("name", ["seeupo", "seeupo-official", "grpo", "reinforce++", "ppo"])
def test_reordered_rows_change_nothing(name):
    algorithm = get(name).replace(epochs=3)
    order = np.random.default_rng(0).permutation(CONTEXTS * GROUP)
    gap = bridge(algorithm, "ending") - bridge(algorithm, "ending", order)
    assert np.abs(gap[np.isfinite(gap)]).max() < TOLERANCE


@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("name", ["seeupo", "ppo", "trajectory-ppo"])
def test_micro_batches_change_nothing(name, size):
    algorithm = get(name).replace(epochs=3)
    options = Options(critic="exact", micro_batch=size)
    assert np.abs(bridge(algorithm, options=options) - bridge(algorithm)).max() < TOLERANCE


# Each broken rule, by the module and name through which every caller reaches it, and a preset
# that depends on it.  What is broken is broken for the bridge alone.
def _doubled(rule):
    return lambda *args, **options: 2.0 * rule(*args, **options)


def _shifted(rule):
    return lambda *args, **options: rule(*args, **options) + 0.05


def _one_doubled(registry):
    return {**registry, "reinforce": _doubled(registry["reinforce"])}


def _reversed(rule):
    return lambda *args, **options: rule(*args, **options)[::-1]


def _still(rule):
    return lambda factor, *args, **options: factor


BROKEN = {
    "estimator": (advantages, "grae", _doubled, "seeupo"),
    "gae": (returns, "gae", _shifted, "ppo"),
    "log ratio": (ratios, "log_ratio", _doubled, "gspo"),
    "token log ratio": (ratios, "log_ratio", _shifted, "grpo"),
    "clip": (objectives, "clip", _doubled, "seeupo"),
    "reinforce": (objectives, "OBJECTIVES", _one_doubled, "rloo"),
    "aggregate": (objectives, "aggregate", _doubled, "dr-grpo"),
    "kl": (kl, "kl_penalty", _doubled, "kl"),
    "order": (orders, "turn_order", _reversed, "seeupo"),
    "factor": (factor, "advance", _still, "seeupo"),
    "official factor": (factor, "advance", _still, "seeupo-official"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_breaking_a_rule_breaks_the_agreement(name, monkeypatch):
    """The unbroken path is the simulator's, as tested above; the broken one must leave it."""
    module, rule, break_, preset = BROKEN[name]
    algorithm = get("seeupo").replace(kl_coef=0.3) if preset == "kl" else get(preset)
    algorithm = algorithm.replace(epochs=3, lr=2.0)
    whole = bridge(algorithm)
    monkeypatch.setattr(module, rule, break_(getattr(module, rule)))
    assert np.abs(bridge(algorithm) - whole).max() > 1e5 * TOLERANCE


def test_weighted_rows_give_the_exact_iteration():
    """All trajectories at once, weighted by their probability: the simulator's infinite group."""
    graph, tables = problem("bandit")
    algorithm = get("ppo-grae").replace(epochs=4, order="reverse")
    policy = TabularPolicy(graph, tables)
    paths = graph.ancestors()
    mass = graph.context_probs[graph.leaf_contexts()] * paths.prob
    for t in range(graph.turns):
        mass = mass * tables[t][graph.layers[t].rows()[paths.nodes[t]], paths.actions[t]]
    returns_ = graph.leaf_means()
    value = evaluate(graph, tables).states[0]
    pools = [
        [
            Turn((t, int(graph.layers[t].rows()[n])), (int(a),), None, "")
            for n, a in zip(paths.nodes[t], paths.actions[t], strict=True)
        ]
        for t in range(graph.turns)
    ]
    rows = graph.leaves
    rewards = torch.zeros((rows, graph.turns), dtype=torch.float64)
    rewards[:, -1] = torch.tensor(returns_)
    batch = TurnBatch(
        row_ids=tuple(range(rows)),
        groups=tuple(int(c) for c in graph.leaf_contexts()),
        turns=tuple(pools),
        rewards=rewards,
        returns=torch.tensor(returns_),
        truncated=torch.zeros(rows, dtype=torch.bool),
        weights=torch.tensor(mass * rows),
    )
    updater = Updater(policy, algorithm)
    updater(batch, given=torch.tensor(returns_ - value[graph.leaf_contexts()]))
    simulator = Simulator(graph, algorithm)
    outcome = simulator.update(simulator.init(tables))
    for p, x in zip(policy.parameters(), outcome.theta, strict=True):
        assert np.abs(p.detach().numpy() - np.asarray(x)).max() < TOLERANCE
    assert abs(evaluate(graph, policy.tables()).value - float(outcome.values[-1])) < TOLERANCE
