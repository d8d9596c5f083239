"""Environments from functions."""

import pytest

from llm_bridge.environments import (
    EnvironmentFault,
    FunctionEnvironment,
    StateError,
    load_environment,
)


def hint(task, texts):
    return None if texts[-1] == str(task) else ("more" if int(texts[-1]) < task else "less")


def right(task, texts):
    return float(texts[-1] == str(task))


def test_a_reward_and_a_step_are_enough():
    game = FunctionEnvironment(right, hint, max_turns=3)
    assert game.reset(5, seed=0) == [{"role": "user", "content": "5"}]
    first = game.step("3")
    assert (first.messages[0]["content"], first.reward, first.done) == ("more", 0.0, False)
    last = game.step("5")
    assert (last.messages, last.reward, last.done, last.info) == (
        [],
        1.0,
        True,
        {"truncated": False},
    )
    with pytest.raises(StateError):
        game.step("5")


def test_the_turn_limit_truncates_and_the_reward_is_asked_once():
    asked = []
    game = FunctionEnvironment(lambda texts: asked.append(list(texts)) or 0.5, hint, max_turns=2)
    game.reset(5, 0)
    assert game.step("1").reward == 0.0
    result = game.step("2")
    assert result.done and result.info["truncated"] and result.reward == 0.5
    assert asked == [["1", "2"]]


def test_a_reward_each_turn():
    game = FunctionEnvironment(lambda texts: len(texts), hint, max_turns=3, each_turn=True)
    game.reset(9, 0)
    assert [game.step(str(n)).reward for n in range(3)] == [1.0, 2.0, 3.0]


def test_without_a_step_an_episode_is_one_turn():
    game = FunctionEnvironment(right)
    game.reset("x", 0)
    assert game.step("x").done


def test_functions_see_what_they_ask_for_and_only_copies():
    seen = []

    def step(task, texts, replies, seed):
        seen.append((dict(task), list(texts), list(replies), seed))
        task["n"] = texts[0] = replies = "changed"
        return [{"role": "tool", "content": f"r{len(texts)}", "name": "t"}]

    task = {"n": 1}
    game = FunctionEnvironment(lambda task: task["n"], step, max_turns=3)
    game.reset(task, 11)
    game.step("a")
    game.step("b")
    assert seen == [({"n": 1}, ["a"], [], 11), ({"n": 1}, ["a", "b"], ["r1"], 11)]
    assert game.step("c").reward == 1.0
    assert task == {"n": 1}


def test_first_messages():
    game = FunctionEnvironment(
        right, start=lambda task, seed: f"{task}-{seed}", system="Play.", tasks=[1, 2]
    )
    assert game.reset(1, 4) == [
        {"role": "system", "content": "Play."},
        {"role": "user", "content": "1-4"},
    ]
    assert game.tasks == [1, 2]


def test_spawned_environments_share_no_state():
    game = FunctionEnvironment(right, hint)
    one, two = game.spawn(), game.spawn()
    one.reset(1, 0)
    two.reset(2, 0)
    assert one.step("1").reward == 1.0
    assert two.step("1").messages[0]["content"] == "more"
    two.close()
    two.close()
    with pytest.raises(StateError):
        two.step("2")


def test_sizes_are_limited():
    game = FunctionEnvironment(
        lambda texts: len(texts[-1]),
        lambda: "y" * 500,
        max_turns=1,
        limits={"text_chars": 50, "output_chars": 60},
    )
    game.reset(0, 0)
    result = game.step("x" * 1000)
    assert result.reward == 50.0 and len(result.messages[0]["content"]) == 60


def test_functions_by_name():
    game = load_environment("function", reward=f"{__name__}:right", step=f"{__name__}:hint")
    game.reset(5, 0)
    assert game.step("5").reward == 1.0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"reward": 3}, "reward: should be a function"),
        ({"reward": lambda completion: 0}, "has a parameter completion"),
        ({"reward": "no_such_module:f"}, "no_such_module"),
        ({"reward": "math"}, "reward = 'math'"),
        ({"reward": right, "start": right}, "has a parameter texts"),
        ({"reward": right, "max_turns": 0}, "max_turns"),
    ],
)
def test_wrong_functions_are_errors_at_once(options, reason):
    with pytest.raises(EnvironmentFault, match=reason):
        FunctionEnvironment(**options)


@pytest.mark.parametrize("returned", ["1", None, [1], float("nan")])
def test_a_wrong_reward_is_an_error(returned):
    game = FunctionEnvironment(lambda: returned)
    game.reset(0, 0)
    with pytest.raises(EnvironmentFault, match="reward"):
        game.step("x")


def test_a_wrong_answer_is_an_error():
    game = FunctionEnvironment(right, lambda: 3)
    game.reset(0, 0)
    with pytest.raises(EnvironmentFault, match="step returned"):
        game.step("0")
