"""One iteration against the trajectory-by-trajectory implementation of `naive`."""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from array_api_compat import array_namespace
from numpy.testing import assert_allclose

from bandits import SequentialBandit, TabularMDP, alias, random_policy, zoo
from seeupo_theory.rules.presets import PRESETS, Algorithm
from seeupo_theory.tabular.simulator import Simulator

from . import naive

RTOL, ATOL = 1e-10, 1e-11
"""A few dozen inner steps on sums of a few thousand terms; a wrong term is off by 1e-3 or more."""

INF = math.inf
P = PRESETS


@dataclass
class Case:
    """An algorithm with its sizes and the order of its turns (None: its own)."""

    name: str
    algorithm: Algorithm
    group: float = INF
    batch: float = INF
    turns: tuple[int, ...] | None = None
    lr: float = 2.0
    anchor: Any = None  # logits of the KL penalty's reference


def case(name, preset="seeupo", group=INF, batch=INF, turns=None, lr=2.0, anchor=None, **switches):
    a = P[preset].replace(epochs=switches.pop("epochs", 5), **switches)
    return Case(name, a, group, batch, turns, lr, anchor)


def soft_clip(log_prob, log_prob_old, advantage, weight=1.0):
    """A homogeneous objective that no preset has."""
    return weight * advantage * array_namespace(log_prob).tanh(log_prob - log_prob_old)


soft_clip.slope = lambda change, m: m / np.cosh(change) ** 2  # type: ignore[attr-defined]


def from_best(returns):
    return returns - returns.max(axis=-1, keepdims=True)


def among_batch(returns):
    return returns - 0.5 * returns.max(axis=(-1, -2), keepdims=True)


among_batch.couples = "batch"  # type: ignore[attr-defined]


def compare(model, cases, theta, family, *, param="tabular", observation=None, options=None):
    """Run all cases in one compiled program, and one by one naively."""
    simulators = [
        Simulator(model, c.algorithm, param, group_size=c.group, contexts_per_batch=c.batch)
        if options is None
        else Simulator(
            model, c.algorithm, param, group_size=c.group, contexts_per_batch=c.batch, **options
        )
        for c in cases
    ]
    orders = [
        s.order(np.random.default_rng(3)) if c.turns is None else c.turns
        for s, c in zip(simulators, cases, strict=True)
    ]

    @jax.jit
    def every(theta):
        return [
            s.step(order)(
                s.lowered,
                theta,
                jnp.asarray(c.lr),
                reference=None if c.anchor is None else s.param.log_probs(c.anchor),
            )
            for s, c, order in zip(simulators, cases, orders, strict=True)
        ]

    base = model if isinstance(model, (SequentialBandit, TabularMDP)) else model.model
    data = naive.paths(base, observation)
    for found, c, order in zip(every(theta), cases, orders, strict=True):
        slow = naive.Iteration(data, c.algorithm, family, theta, c.lr, c.group, c.batch, c.anchor)
        wanted = slow.run(order)
        assert float(found.value_before) == pytest.approx(slow.value(theta), abs=ATOL), c.name
        assert_allclose(found.values, slow.values, rtol=RTOL, atol=ATOL, err_msg=c.name)
        assert_allclose(found.surrogate_gain, slow.gains, rtol=RTOL, atol=ATOL, err_msg=c.name)
        for mine, theirs, before in zip(
            *map(jax.tree.leaves, (found.theta, wanted, theta)), strict=True
        ):
            assert_allclose(mine, theirs, rtol=RTOL, atol=ATOL, err_msg=c.name)
            assert mine.shape == before.shape
        moved = [
            np.nanmax(np.abs(np.asarray(a - b)))
            for a, b in zip(*map(jax.tree.leaves, (found.theta, theta)), strict=True)
        ]
        assert max(moved) > 1e-3, f"{c.name} did not move: the comparison says nothing"


def start(model, seed=0):
    """Logits of a random policy with all actions possible."""
    tables = random_policy(seed, model, 2.0)
    with np.errstate(divide="ignore"):
        return tuple(np.log(t) for t in tables)


# Bandit, independent tables ---------------------------------------------------------------------

ANCHOR = tuple(jnp.log(jnp.asarray(t)) for t in random_policy(9, zoo.get("mixed").model, 2.0))

GROUPS = [
    case("population"),
    case("mean only", normalise="none"),
    case("finite group", group=3),
    case("batch of two", group=2, batch=2),
    case("official", "seeupo-official", group=2),
    case("official, many epochs", "seeupo-official", group=2, epochs=5, lr=4.0),
    case("grpo", "grpo", group=3),
    case("dr-grpo", "dr-grpo", group=3),
    case("rloo", "rloo", group=3, epochs=2),
    case("reinforce", "reinforce", group=2),
    case("reinforce++", "reinforce++", group=2, batch=2),
    case("gspo", "gspo", group=2),
    case("custom estimator", estimator=from_best, group=3),
    case("custom batch estimator", estimator=among_batch, group=2, batch=2),
]

SWITCHES = [
    case("forward", turns=(0, 1)),
    case("no factor", "seeupo-no-factor"),
    case("clamped factor", factor_clip=0.1, lr=4.0),
    case("clamped product", product_clip=0.1, lr=4.0),
    case("clamped both ways", factor_clip=0.3, product_clip=0.1, lr=4.0, turns=(0, 1)),
    case("current reference", reference="current", product_clip=0.1),
    case("resample", "seeupo-resample", group=2),
    case("simultaneous", "ppo-grae", group=2),
    case("wide above", clip=(0.1, 0.4), lr=5.0),
    case("dual clip", dual_clip=1.5, clip=0.1, epochs=9, lr=8.0),
    case("custom objective", objective=soft_clip),
    case("k1", kl_coef=0.3, kl_kind="k1"),
    case("k2", kl_coef=0.3, kl_kind="k2", anchor=ANCHOR),
    case("k3", kl_coef=0.3, kl_kind="k3", anchor=ANCHOR, lr=1.0),
    case("guarded turn", guard=True, lr=60.0, normalise="none"),
]

CRITICS = [
    case("ppo 0", "ppo", gae_lambda=0.0),
    case("ppo 1/2", "ppo", gae_lambda=0.5),
    case("ppo 1", "ppo", gae_lambda=1.0),
    case("clamped gae in reverse", "ppo", gae_lambda=0.5, order="reverse", advantage_clip=0.4),
    case("happo", "happo", turns=(1, 0)),
    case("happo forward", "happo", turns=(0, 1)),
    case("happo drawn", "happo"),
    case("dynamic-pg", "dynamic-pg", epochs=4),
    Case("exact, simultaneous", P["happo"].replace(order="simultaneous", epochs=3)),
    case("trajectory", "trajectory-ppo", guard=False),
    case("trajectory, guarded", "trajectory-ppo", lr=60.0, group=2),
    case("trajectory, k3", "trajectory-ppo", guard=False, kl_coef=0.2, anchor=ANCHOR),
]


@pytest.mark.parametrize(
    "cases", [GROUPS, SWITCHES, CRITICS], ids=["groups", "switches", "critics"]
)
def test_bandit_with_independent_tables(cases):
    model = zoo.get("mixed").model
    compare(model, cases, start(model), naive.Tabular())


# Other models and families ----------------------------------------------------------------------


def small_mdp():
    """Masks by turn, random rewards and replies, an absorbing state, discount 1/2."""
    go, half, end = [0, 1, 0], [0.5, 0.25, 0.25], [0, 0, 1]
    table = [[go, half], [half, end], [end, end]]
    coin = {"values": [0.0, 1.0], "probs": [0.25, 0.75]}
    rewards = [[coin, 0.5], [-0.5, coin], [0.0, 0.0]]
    mask = np.ones((3, 3, 2), dtype=bool)
    mask[1, 0, 1] = mask[2, 1, 0] = False
    return TabularMDP(table, rewards, [0.75, 0.25, 0], horizon=3, discount=0.5, mask=mask)


MDP_CASES = [
    case("finite group", group=2),
    case("official", "seeupo-official", group=2, epochs=3),
    case("forward", turns=(0, 1, 2), normalise="none"),
    case("middle out", turns=(1, 2, 0), product_clip=0.1, factor_clip=0.3),
    case("no-op turns feel no KL", kl_coef=0.5, normalise="none"),
    case("resample", "seeupo-resample"),
    case("ppo in order", "ppo", gae_lambda=0.0, order=(1, 0, 2)),
    case("happo", "happo", turns=(1, 2, 0)),
    case("trajectory", "trajectory-ppo", guard=False, kl_coef=0.1),
]


def test_mdp_with_masks_discount_and_early_ends():
    model = small_mdp()
    masks = [model.mask_by_turn(t) for t in range(3)]
    compare(model, MDP_CASES, start(model), naive.Tabular(masks))


SHARED_CASES = [
    case("seeupo", group=2),
    case("official", "seeupo-official", epochs=4, group=2),
    case("simultaneous", "ppo-grae"),
    case("happo against the current policy", "happo", turns=(2, 0, 1), reference="current"),
    case("dynamic-pg", "dynamic-pg", epochs=4, lr=1.0),
    case("trajectory", "trajectory-ppo"),
]


def test_one_table_shared_by_all_turns():
    rng = np.random.default_rng(5)
    bandit = SequentialBandit(rng.integers(0, 5, (1, 2, 2, 2)) / 4)
    model = alias(bandit, "last-action", shared=True)
    observation = [layer.rows() for layer in model.graph().layers]
    theta = rng.normal(size=(3, 2))
    compare(model, SHARED_CASES, theta, naive.Shared(), param="shared", observation=observation)


def test_log_linear_policy():
    rng = np.random.default_rng(6)
    model = SequentialBandit(rng.normal(size=(1, 3, 3)))
    features = [rng.normal(size=(n, 3, 2)) for n in (1, 3)]
    cases = [
        case("seeupo", normalise="none"),
        case("official", "seeupo-official"),
        case("simultaneous", "ppo-grae"),
        case("trajectory", "trajectory-ppo"),
    ]
    theta = 0.3 * rng.normal(size=2)
    compare(
        model,
        cases,
        theta,
        naive.LogLinear(features),
        param="log-linear",
        options={"features": features},
    )


TOKEN_CASES = [
    case("grpo, a ratio a token", "grpo", group=2),
    case("seeupo, true ratio"),
    case("seeupo, a ratio a token", level="token"),
    case("gspo", "gspo"),
    case("official", "seeupo-official", epochs=4),
    case("ppo a token", "ppo", kl_coef=0.2),
    case("trajectory", "trajectory-ppo"),
]


def test_actions_as_token_sequences():
    rng = np.random.default_rng(7)
    model = SequentialBandit(rng.integers(0, 3, (1, 4, 4)) / 2.0)
    options = {"vocabulary": (2, 2), "lengths": (2, 2)}
    theta = tuple(tuple(rng.normal(size=(rows * 2**j, 2)) for j in range(2)) for rows in (1, 4))
    compare(model, TOKEN_CASES, theta, naive.Tokens(2, 2), param="tokens", options=options)
