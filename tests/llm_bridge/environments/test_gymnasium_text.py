"""Gymnasium's text-style environments in words."""

import numpy as np
import pytest

from llm_bridge.environments import EnvironmentFault, NotInstalledError, StateError, TaskError
from llm_bridge.environments.gymnasium_text import ACTIONS, GymnasiumText

gymnasium = pytest.importorskip("gymnasium")


@pytest.fixture
def lake():
    environment = GymnasiumText("FrozenLake-v1", is_slippery=False)
    yield environment
    environment.close()


def test_the_words_are_the_environments_own_directions(lake):
    moves = {"left": 0, "right": 1, "down": 4, "up": 0}  # from the corner of the 4x4 lake
    for word, state in moves.items():
        lake.reset(0, 0)
        lake.step(word)
        assert lake.environment.unwrapped.s == state


def test_a_rendering_marks_the_position_without_colours(lake):
    system, first = lake.reset(0, 0)
    assert "left, down, right, up" in system["content"]
    assert first["content"].splitlines() == ["[S]FFF", "FHFH", "FFFH", "HFFG"]
    assert "\x1b" not in lake.step("right").messages[0]["content"]


def test_the_goal_pays_and_a_hole_does_not(lake):
    lake.reset(0, 0)
    results = [lake.step(w) for w in ("down", "down", "right", "right", "down", "right")]
    assert [r.done for r in results] == [False] * 5 + [True]
    assert sum(r.reward for r in results) == 1.0
    assert results[-1].info["truncated"] is False
    with pytest.raises(StateError):
        lake.step("left")
    lake.reset(0, 0)
    lake.step("right")
    result = lake.step("down")
    assert result.done and result.reward == 0.0


@pytest.mark.parametrize("text", ["", "left or right", "lefty", "go back", "x" * 30_000])
def test_a_text_without_exactly_one_action_changes_nothing(lake, text):
    lake.reset(0, 0)
    result = lake.step(text)
    assert not result.done and result.info["wrong"]
    assert lake.environment.unwrapped.s == 0
    assert lake.step("I go RIGHT, right.").info["wrong"] is False
    assert lake.environment.unwrapped.s == 1


def test_wrong_texts_count_towards_the_turn_limit_and_pay_what_is_said():
    environment = GymnasiumText("FrozenLake-v1", max_turns=2, wrong_reward=-0.25)
    environment.reset(0, 0)
    environment.step("left")
    result = environment.step("?")
    assert result.done and result.reward == -0.25 and result.info["truncated"]
    environment.close()


def test_the_environments_own_limit_truncates():
    environment = GymnasiumText("FrozenLake-v1", is_slippery=False, max_episode_steps=3)
    environment.reset(0, 0)
    results = [environment.step("left") for _ in range(3)]
    assert results[-1].done and results[-1].info["truncated"] and not results[1].done
    environment.close()


def play(environment, task, seed, words):
    shown = [environment.reset(task, seed)[-1]["content"]]
    for word in words:
        result = environment.step(word)
        shown.append(result.messages[0]["content"])
        if result.done:
            break
    return shown


def test_task_fixes_the_start_and_seed_the_rest():
    taxi = GymnasiumText("Taxi-v4")
    other = taxi.spawn()
    words = ["south", "north", "east", "west", "pickup"]
    assert play(taxi, 3, 0, words) == play(other, 3, 0, words)
    starts = {task: play(taxi, task, 0, [])[0] for task in range(5)}
    assert len(set(starts.values())) > 1
    assert starts == {task: play(taxi, task, 1, [])[0] for task in range(5)}
    lake = GymnasiumText("FrozenLake-v1")
    walks = {tuple(play(lake, 0, seed, ["right"] * 6)) for seed in range(8)}
    assert len(walks) > 1
    assert play(lake, None, 5, ["right"] * 6) == play(lake, None, 5, ["right"] * 6)
    for environment in (taxi, other, lake):
        environment.close()


def test_two_environments_share_no_state(lake):
    other = lake.spawn()
    lake.reset(0, 0)
    other.reset(0, 0)
    lake.step("right")
    assert (lake.environment.unwrapped.s, other.environment.unwrapped.s) == (1, 0)
    other.close()


def test_close_releases_and_reset_opens_again(lake):
    lake.reset(0, 0)
    lake.close()
    lake.close()
    assert lake.environment is None
    with pytest.raises(StateError):
        lake.step("right")
    assert lake.reset(0, 0)


def test_a_formatter_and_a_parser():
    environment = GymnasiumText(
        "CartPole-v1",
        format=lambda observation, environment: f"{len(observation)} numbers",
        parse={"push left": 0, "push right": 1}.get,
        instruction="Balance.",
    )
    assert [m["content"] for m in environment.reset(None, 0)] == ["Balance.", "4 numbers"]
    assert environment.step("push right").reward == 1.0
    assert environment.step("push up").info["wrong"]
    environment.close()


def test_spaces_that_do_not_begin_at_zero():
    class Counter(gymnasium.Env):
        observation_space = gymnasium.spaces.Discrete(10)
        action_space = gymnasium.spaces.Discrete(2, start=5)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return 0, {}

        def step(self, action):
            return int(action), 0.0, False, False, {}

    gymnasium.register("TextCounter-v0", Counter, disable_env_checker=True)
    try:
        environment = GymnasiumText("TextCounter-v0", actions=["five", "six"])
        environment.reset(0, 0)
        assert environment.step("six").messages[0]["content"] == "6"
        environment.close()
    finally:
        del gymnasium.registry["TextCounter-v0"]


def test_known_words_are_as_many_as_the_actions():
    for family, version in (("FrozenLake", 1), ("CliffWalking", 1), ("Taxi", 4)):
        made = GymnasiumText(f"{family}-v{version}")
        assert made.words == ACTIONS[family]
        made.close()
    assert GymnasiumText("FrozenLake8x8-v1").words == ACTIONS["FrozenLake"]
    assert GymnasiumText("Blackjack-v1").words == ("0", "1")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"id": "NoSuchLake-v1"}, "NoSuchLake"),
        ({"id": "FrozenLake-v1", "slipery": True}, "slipery"),
        ({"id": "FrozenLake-v1", "actions": ["a", "b"]}, "4 distinct words"),
        ({"id": "FrozenLake-v1", "actions": ["a", "b", "c", "A"]}, "4 distinct words"),
        ({"id": "Pendulum-v1"}, "should be a function from text"),
        ({"id": "FrozenLake-v1", "max_turns": 0}, "max_turns"),
    ],
)
def test_wrong_options_are_errors(options, reason):
    with pytest.raises(EnvironmentFault, match=reason):
        GymnasiumText(**options)


@pytest.mark.parametrize("task", ["a", -1, 1.5, True])
def test_wrong_tasks_are_errors(lake, task):
    with pytest.raises(TaskError):
        lake.reset(task, 0)
    assert lake.reset(np.int64(2), 0)


def test_without_the_package_the_error_says_so(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gymnasium", None)
    with pytest.raises(NotInstalledError, match="gym"):
        GymnasiumText("FrozenLake-v1")
