"""Every zoo entry: its optimum by enumeration, and the fact it is there for."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from bandits import AliasedModel, ModelError, SequentialBandit, TabularMDP, zoo
from bandits.sample import require_tables

from .oracle import (
    bandit_value,
    deterministic_policies,
    fraction_optimum,
    graph_value,
    mdp_trajectories,
    mdp_value,
)

NAMES = zoo.names()


def base(entry):
    return entry.model.model if isinstance(entry.model, AliasedModel) else entry.model


@pytest.mark.parametrize("name", NAMES)
def test_entries_are_complete(name):
    entry = zoo.get(name)
    assert entry.name == name == entry.model.name and len(entry.reason) > 40
    assert isinstance(entry.optimum, Fraction) and isinstance(entry.full_optimum, Fraction)
    assert entry.optimum <= entry.full_optimum
    assert (entry.policy is None) == (entry.exact_policy() is None)
    if entry.policy is not None:
        require_tables(entry.graph(), entry.policy)
        assert all((p.sum(axis=1) == 1).all() for p in entry.exact_policy())


@pytest.mark.parametrize("name", NAMES)
def test_full_optimum_by_enumeration(name):
    model = base(zoo.get(name))
    if isinstance(model, SequentialBandit):
        # with the full history the best policy plays the best sequence of every context
        best = [max(rewards.ravel()) for rewards in model.exact_means()]
        found = sum(p * r for p, r in zip(model.exact_context_probs(), best, strict=True))
    else:
        found = fraction_optimum(model)
    assert found == zoo.get(name).full_optimum


def _small(name):
    """The entry, shrunk where its default has too many deterministic policies."""
    sizes = {"lock": {"turns": 3}, "forward-staircase": {"turns": 3}, "early-stop": {"turns": 3}}
    return zoo.get(name, **sizes.get(name, {}))


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("tokens", "tool-use")])
def test_optimum_is_that_of_the_best_deterministic_policy(name):
    entry = _small(name)
    graph = entry.graph()
    shared = getattr(entry.model, "shared", False)
    best = max(graph_value(graph, policy) for policy in deterministic_policies(graph, shared))
    if name == "xor-shared":  # the best policy of a shared row is stochastic
        grid = np.linspace(0, 1, 1001)
        values = [graph_value(graph, [[[1 - p, p]]] * 2) for p in grid]
        assert best == 0.0 and grid[int(np.argmax(values))] == 0.5
        best = max(values)
    assert best == pytest.approx(float(entry.optimum), abs=1e-12)


def test_tool_use_by_enumeration_of_policies_and_trajectories():
    mdp = zoo.get("tool-use").model
    best = 0.0
    allowed = [np.flatnonzero(row) for row in mdp.mask_by_turn(0)[:3]]
    for last in product(*allowed):  # the first turns as backward induction finds them
        rows = [np.array([1, 0, 1, 0])] * 3 + [np.array([*last, 0])]
        policy = [np.eye(3)[r] for r in rows]
        paths = mdp_trajectories(
            mdp.transitions_by_turn,
            mdp.rewards_by_turn,
            mdp.initial,
            4,
            1.0,
            lambda turn, state, policy=policy: policy[turn][state],
        )
        value = sum(p * r for p, r in paths)
        assert value == pytest.approx(mdp_value(mdp, policy), abs=1e-12)
        best = max(best, value)
    assert best == pytest.approx(231 / 320, abs=1e-12)


def test_unknown_names_and_parameters():
    with pytest.raises(ModelError, match=r"^zoo:nope is unknown, should be one of climbing, "):
        zoo.get("nope")
    with pytest.raises(ModelError, match=r"^zoo:lock has the parameters turns, actions: 'depth'"):
        zoo.get("lock", depth=3)
    with pytest.raises(ModelError, match=r"^zoo:xor has no parameters: 'turns'"):
        zoo.get("xor", turns=3)
    with pytest.raises(ModelError, match=r"^turns = 0: should be an integer of at least 1"):
        zoo.get("lock", turns=0)
    with pytest.raises(ModelError, match=r"^turns = 50 with 2 actions would need"):
        zoo.get("lock", turns=50)
    with pytest.raises(ModelError, match=r"^rewards of 1\d* arms would need"):
        zoo.get("needle", arms=10**15)


@pytest.mark.parametrize("name", [n for n in NAMES if zoo.parameters(n)])
def test_parameters_change_the_model(name):
    for key, default in zoo.parameters(name).items():
        entry = zoo.get(name, **{key: default + 1})
        assert entry.model != zoo.get(name).model
        assert entry.optimum == zoo.get(name).optimum


def test_entries_lists_all():
    assert [entry.name for entry in zoo.entries()] == NAMES


# What each entry is there for -------------------------------------------------------------------


def normalised_advantage(outcomes, action, size, *, ddof=1):
    """E[Â | action] with the group's std: the sum over all groups. outcomes: {action: {reward: prob}}."""
    own, everyone = outcomes[action]["rewards"], {}
    for one in outcomes.values():
        for reward, prob in one["rewards"].items():
            everyone[reward] = everyone.get(reward, 0.0) + one["prob"] * prob
    total = 0.0
    for reward, prob in own.items():
        for others in product(everyone, repeat=size - 1):
            group = np.array([reward, *others])
            chance = prob * math.prod(everyone[r] for r in others)
            if np.ptp(group) > 0:
                total += chance * (reward - group.mean()) / group.std(ddof=ddof)
    return total


def first_turn(entry):
    """{a_1: {prob, rewards: {r: prob given a_1}}} under the entry's policy, one context."""
    model, policy = base(entry), entry.policy
    out = {}
    assert len(model.actions) <= 2
    for index in product(*map(range, model.actions)):
        prob = float(policy[1][index[0]][index[1]]) if len(index) == 2 else 1.0
        one = out.setdefault(index[0], {"prob": float(policy[0][0][index[0]]), "rewards": {}})
        leaf = (0, *index)
        for value, chance in zip(model.reward_values[leaf], model.reward_probs[leaf], strict=True):
            value = float(value)
            one["rewards"][value] = one["rewards"].get(value, 0.0) + prob * chance
    return out


@pytest.mark.parametrize(("size", "expected"), [(2, 0.0707), (3, 0.0893), (4, 0.0772), (6, 0.0348)])
def test_wrong_sign_numbers(size, expected):
    outcomes = first_turn(zoo.get("wrong-sign"))
    assert normalised_advantage(outcomes, 0, size) == pytest.approx(expected, abs=5e-5)
    assert normalised_advantage(outcomes, 1, size) == pytest.approx(-expected, abs=5e-5)


@pytest.mark.parametrize("name", ["wrong-sign", "two-turn-std", "two-turn-std-uniform"])
@pytest.mark.parametrize("size", [2, 3, 4, 6])
def test_std_prefers_the_worse_first_action(name, size):
    outcomes = first_turn(zoo.get(name))
    means = {a: sum(r * p for r, p in one["rewards"].items()) for a, one in outcomes.items()}
    assert means[1] > means[0]
    assert (
        normalised_advantage(outcomes, 0, size)
        > 0.03
        > -0.03
        > normalised_advantage(outcomes, 1, size)
    )


def test_shared_logit_derivatives():
    entry = zoo.get("shared-logit")
    graph = entry.graph()

    def value(p):
        return graph_value(graph, [[[1 - p, p]]])

    slope = (value(0.75) - value(0.25)) / 0.5  # J is linear in p
    assert slope * 0.25 == pytest.approx(-0.05, abs=1e-12)  # dp/dθ = p (1 − p)
    weights, gaps = base(entry).context_probs, np.array([1.0, -2.0])
    # population std of two rewards gap apart, each with probability 1/2, is |gap| / 2
    assert 0.25 * (weights * gaps / (np.abs(gaps) / 2)).sum() == pytest.approx(0.10, abs=1e-12)


def best_responses(entry, order):
    """Let each turn in turn play its best row; a tie keeps the policy. Returns the final value."""
    graph, policy = entry.graph(), [np.array(p) for p in entry.policy]
    for _ in range(10):
        for turn in order:
            for row in range(graph.observations[turn]):

                def value(action, turn=turn, row=row):
                    changed = [p.copy() for p in policy]
                    changed[turn][row] = np.eye(graph.actions[turn])[action]
                    return graph_value(graph, changed)

                values = [value(a) for a in range(graph.actions[turn])]
                if max(values) - min(values) > 1e-12:
                    policy[turn][row] = np.eye(graph.actions[turn])[int(np.argmax(values))]
    return graph_value(graph, policy)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    ("name", "stuck"), [("xor-aliased", 0.5), ("xor-blind", 0.5), ("climbing", 7)]
)
def test_best_responses_stay_below_the_optimum(name, stuck, order):
    entry = zoo.get(name)
    assert best_responses(entry, order) == pytest.approx(stuck, abs=1e-12)
    assert stuck < entry.optimum


def test_stuck_tree_depends_on_the_order():
    """Best responses on reached histories only: an unreached row has ties and keeps its policy."""
    entry = zoo.get("stuck-tree")
    assert best_responses(entry, (0, 1)) == 0.5  # forward
    assert best_responses(entry, (1, 0)) == 1.0  # reverse


@pytest.mark.parametrize("turns", [2, 3, 5])
def test_staircase_needs_a_forward_sweep_a_turn(turns):
    entry = zoo.get("forward-staircase", turns=turns)
    rewards, policy = base(entry).reward_means[0], [p.copy() for p in entry.policy]

    def q_values(turn):
        value = rewards
        for t in reversed(range(turn + 1, turns)):
            value = (policy[t].reshape(value.shape) * value).sum(axis=-1)
        return value.reshape(-1, 2)

    def sweep(order):
        for t in order:
            policy[t] = np.eye(2)[q_values(t).argmax(axis=1)]
        return float((policy[0] * q_values(0)).sum())

    values = [sweep(range(turns)) for _ in range(turns)]
    assert values[-1] == 1.0 and all(v < 1.0 for v in values[:-1])
    policy = [p.copy() for p in entry.policy]
    assert sweep(reversed(range(turns))) == 1.0


def test_discount_trap():
    entry = zoo.get("discount-trap")
    graph = entry.graph()

    def value(p):
        return graph_value(graph, [[[1 - p, p]]] * 2)

    assert value(1.0) == 0.75 and value(0.0) == 0.5 and value(0.5) == 0.625
    # dropping γ^t leaves Σ_t E[∇ log π(a_t) Q(s_t, a_t)] ∝ 3/4 − 1 < 0: it ends at p = 0
    mdp = entry.model.model
    gaps = mdp.rewards_by_turn(0)[:, 1] - mdp.rewards_by_turn(0)[:, 0]
    assert gaps.sum() < 0 < gaps @ np.array([1.0, mdp.discount])


def test_plateau_is_flat_where_its_policy_starts():
    entry = zoo.get("plateau")
    rewards, (probs,) = base(entry).reward_means[0], entry.policy[0]
    gradient = probs * (rewards - probs @ rewards)
    assert np.linalg.norm(gradient) < 0.02 and probs @ rewards < 0.9


def test_mixed_values_in_fractions():
    model = zoo.get("mixed").model
    policy = [[[Fraction(1, 2)] * 2] * 2, [[Fraction(1, 3)] * 3] * 4]
    value = bandit_value(model.exact_means(), model.exact_context_probs(), policy)
    assert value == Fraction(1, 3) * Fraction(49, 72) + Fraction(2, 3) * Fraction(5, 8)


def test_kinds():
    assert isinstance(zoo.get("tool-use").model, TabularMDP)
    assert zoo.get("tool-use").graph().layers[1].active is not None
    assert isinstance(zoo.get("xor").model, SequentialBandit)
