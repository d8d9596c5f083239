"""Games in words: the tree that the policy meets, and episodes that walk it."""

import numpy as np
import pytest

from bandits import SequentialBandit, zoo
from bandits.families import random_mdp
from llm_bridge.environments.base import EnvironmentFault, StateError, TaskError
from llm_bridge.environments.tabular_text import TabularText, default_words
from llm_bridge.exact import evaluate
from llm_bridge.policies.tabular import TabularPolicy
from llm_bridge.rollouts import Sampling, collect

GAMES = [
    "xor",
    "mixed",
    "early-stop",
    "tool-use",
    "tool-use-aliased",
    "discount-trap",
    "wrong-sign",
]


@pytest.mark.parametrize("name", GAMES)
def test_without_noops_the_value_is_the_models(name):
    game = TabularText(f"zoo:{name}")
    rng = np.random.default_rng(0)
    tables, base = [], []
    for layer, (keys, rows), plain in zip(
        game.graph.layers, game._rows, game.base.layers, strict=True
    ):
        table = rng.random((layer.observations, layer.actions)) + 0.1
        table = table if layer.mask is None else table * layer.mask
        table[: len(keys), -1] = 0.0
        table /= table.sum(axis=1, keepdims=True)
        tables.append(table)
        at_node = np.where((rows >= 0)[:, None], table[rows, :-1], plain.allowed())
        base.append(at_node / at_node.sum(axis=1, keepdims=True))
    model = game.base
    later = model.leaf_means()
    for layer, policy in zip(reversed(model.layers), reversed(base), strict=True):
        edges = layer.edges()
        flat = edges.source * layer.actions + edges.action
        q = np.bincount(flat, edges.prob * later[edges.target], layer.nodes * layer.actions)
        later = (policy * q.reshape(policy.shape)).sum(axis=1)
    assert evaluate(game.graph, tables).value == pytest.approx(model.context_probs @ later)


@pytest.mark.parametrize("name", GAMES)
def test_episodes_earn_what_the_tree_says(name):
    game = TabularText(f"zoo:{name}", noop_reward=-0.5)
    policy = TabularPolicy(game)
    exact = evaluate(game.graph, policy.tables()).value
    sampling = Sampling(max_turns=game.turns, discount=game.discount)
    rng = np.random.default_rng(1)
    tasks = rng.choice(len(game.tasks), 40, p=game.task_probs).tolist()
    batch = collect(policy, game, tasks, 50, 3, sampling)
    weight = np.bincount(tasks, minlength=len(game.tasks)) / 40
    # rows of a context estimate its own value, whatever the contexts drawn
    states = evaluate(game.graph, policy.tables()).states[0]
    error = float(batch.returns.std()) / np.sqrt(len(batch))
    assert abs(float(batch.returns.mean()) - weight @ states) < 4 * error + 1e-12
    assert np.isfinite(exact) and not bool(batch.truncated.any())
    for i in range(len(batch)):
        acted = int(batch.active[i].sum())
        turn = batch.turns[acted - 1][i]
        assert turn is not None


def test_a_wrong_reply_ends_the_episode_with_its_reward():
    game = TabularText("zoo:xor", noop_reward=-2.0)
    game.reset(0, 0)
    result = game.step("a ")
    assert (result.reward, result.done, result.info["noop"]) == (-2.0, True, True)
    with pytest.raises(StateError, match="reset first"):
        game.step("a")


def test_masked_words_are_noops():
    game = TabularText("zoo:tool-use")
    game.reset(0, 0)
    assert game.step("c").info["noop"]  # nothing to verify yet


def test_rewards_add_up_to_the_discounted_return():
    model = random_mdp(4, states=3, actions=2, horizon=3, discount=0.5)
    game = TabularText(model)
    for seed in range(20):
        game.reset(None, seed)
        total, t, done = 0.0, 0, False
        rng = np.random.default_rng(seed)
        while not done:
            result = game.step("ab"[rng.integers(2)])
            total += 0.5**t * result.reward
            t, done = t + 1, result.done
        assert np.abs(game.base.leaf_values - total).min() < 1e-12


def test_same_seed_same_episode():
    game = TabularText("zoo:tool-use")

    def play(seed):
        out = [game.reset(0, seed)]
        for word in ("b", "b", "a"):
            result = game.step(word)
            out.append((result.messages, result.reward))
            if result.done:
                break
        return out

    assert play(5) == play(5)
    assert any(play(0) != play(s) for s in range(1, 9))


def test_spawned_environments_share_no_episode():
    game = TabularText("zoo:xor")
    game.reset(0, 0)
    other = game.spawn()
    other.reset(0, 0)
    other.step("a")
    assert game.step("a").reward == 0.0
    assert game.step("b").done


def test_conversations_can_be_located():
    game = TabularText(zoo.get("tool-use").model, instruction="Choose.")
    for t, rows in enumerate(game.conversations):
        for i, conversation in enumerate(rows):
            assert conversation[0]["role"] == "system"
            assert game.locate(conversation) == (t, i)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"actions": ["a", "a"]}, "distinct"),
        ({"actions": [["a", "b"]]}, "turns"),
        ({"contexts": [""]}, "distinct words"),
        ({"noop_reward": float("nan")}, "finite"),
    ],
)
def test_wrong_words_are_refused(options, words):
    with pytest.raises(EnvironmentFault, match=words):
        TabularText("zoo:xor", **options)


@pytest.mark.parametrize("task", [1, -1, "c0", True])
def test_wrong_tasks_are_refused(task):
    with pytest.raises(TaskError):
        TabularText("zoo:xor").reset(task, 0)


def test_nested_lists_are_a_bandit():
    game = TabularText([[[0, 1], [1, 0]]])
    assert game.model == SequentialBandit([[[0, 1], [1, 0]]])


def test_default_words_go_on_after_z():
    words = default_words(30)
    assert words[25:28] == ("z", "aa", "ab") and len(set(words)) == 30
