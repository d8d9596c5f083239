"""Single-player games of TextArena."""

import random
import re
import sys

import pytest

from llm_bridge.environments import EnvironmentFault, NotInstalledError, StateError, TaskError
from llm_bridge.environments.textarena_game import TextArenaGame

try:
    TextArenaGame("GuessTheNumber-v0")
    INSTALLED = True
except NotInstalledError:
    INSTALLED = False

needed = pytest.mark.skipif(not INSTALLED, reason="textarena is not installed")


def bisect(game, task, seed):
    """Guess by halves; the number found, the turns it took, the last result."""
    game.reset(task, seed)
    low, high = 1, 20
    for turn in range(1, 11):
        guess = (low + high) // 2
        result = game.step(f"I guess [{guess}].")
        if result.done:
            return guess, turn, result
        hint = result.messages[0]["content"]
        low, high = (guess + 1, high) if "higher" in hint else (low, guess - 1)
    raise AssertionError("twenty numbers need five guesses")


@needed
def test_guess_the_number_by_halves():
    game = TextArenaGame("GuessTheNumber-v0")
    found = {}
    for task in range(6):
        number, turns, result = bisect(game, task, 0)
        assert result.reward == 1.0 and result.info["success"] and turns <= 5
        found[task] = number
        random.seed(task)
        assert number == random.randint(1, 20)  # what the game draws first from its seed
    assert len(set(found.values())) > 1
    assert found == {task: bisect(game, task, 99)[0] for task in range(6)}
    assert bisect(game, None, 4)[0] == found[4]


@needed
def test_the_conversation_has_only_what_is_new():
    game = TextArenaGame("GuessTheNumber-v0")
    first = game.reset(0, 0)
    assert len(first) == 1 and "between 1 and 20" in first[0]["content"]
    answer = game.step("[7]").messages
    assert len(answer) == 1
    assert re.fullmatch(r"The target number is (higher|lower)\.", answer[0]["content"])


@needed
def test_tower_of_hanoi_is_solved_in_seven_moves():
    game = TextArenaGame("TowerOfHanoi-v0")
    game.reset(None, 0)
    moves = ["[A C]", "[A B]", "[C B]", "[A C]", "[B A]", "[B C]", "[A C]"]
    results = [game.step(move) for move in moves]
    assert [r.done for r in results] == [False] * 6 + [True]
    assert results[-1].reward == 1.0
    assert "A: [3, 2]" in results[0].messages[0]["content"]


@needed
def test_frozen_lake_has_a_way():
    def walk(moves):
        game = TextArenaGame("FrozenLake-v0")
        game.reset(3, 0)
        return [game.step(f"[{move}]") for move in moves]

    results = walk(["right", "right", "right", "down", "down", "down"])
    assert results[-1].done and results[-1].reward == 1.0
    assert walk(["down"])[-1].reward < 1.0  # a hole below the start


@needed
def test_random_numbers_of_others_are_left_alone():
    random.seed(5)
    wanted = [random.random() for _ in range(4)]
    random.seed(5)
    got = [random.random()]
    one, two = TextArenaGame("GuessTheNumber-v0"), TextArenaGame("FrozenLake-v0")
    one.reset(1, 0)
    got.append(random.random())
    two.reset(2, 0)
    one.step("[3]")
    got.append(random.random())
    two.step("[right]")
    one.close()
    got.append(random.random())
    assert got == wanted


@needed
def test_games_share_no_state():
    game = TextArenaGame("GuessTheNumber-v0")
    alone = bisect(game.spawn(), 1, 0)[:2]
    one, two = game.spawn(), game.spawn()
    one.reset(1, 0)
    bisect(two, 2, 0)
    one.step("[20]")
    assert bisect(one, 1, 0)[:2] == alone
    two.close()
    two.close()
    with pytest.raises(StateError):
        two.step("[1]")


@needed
@pytest.mark.parametrize(
    "text", ["", "no number", "[" + "9" * 10_000 + "]", "\x00", "[1] [2]", "x" * 99_999]
)
def test_no_text_raises(text):
    game = TextArenaGame("GuessTheNumber-v0")
    game.reset(0, 0)
    for _ in range(30):
        result = game.step(text)
        if result.done:
            break
    assert result.done
    assert 0.0 <= result.reward <= 1.0


@needed
def test_turn_limits_truncate():
    game = TextArenaGame("TowerOfHanoi-v0", max_turns=2)
    game.reset(None, 0)
    assert not game.step("[A B]").done
    result = game.step("[A C]")
    assert result.done and result.info["truncated"] and result.reward == 0.0


@needed
@pytest.mark.parametrize("task", ["x", 1.0, True])
def test_wrong_tasks_are_errors(task):
    with pytest.raises(TaskError):
        TextArenaGame("GuessTheNumber-v0").reset(task, 0)


@needed
def test_wrong_games_are_errors():
    with pytest.raises(EnvironmentFault, match="NoSuchGame"):
        TextArenaGame("NoSuchGame-v0")
    with pytest.raises(EnvironmentFault, match="max_turns"):
        TextArenaGame("GuessTheNumber-v0", max_turns=0)
    with pytest.raises(EnvironmentFault, match="one player"):
        TextArenaGame("TicTacToe-v0").reset(None, 0)


def test_without_the_package_the_error_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "textarena", None)
    with pytest.raises(NotInstalledError, match="pip install --no-deps textarena"):
        TextArenaGame("GuessTheNumber-v0")
