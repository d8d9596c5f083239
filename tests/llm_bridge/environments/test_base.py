"""Results, limits and building by name."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_bridge.environments import Environment, EnvironmentFault, Limits, load_environment
from llm_bridge.environments.base import StepResult, check_messages, message, tasks_of, tools_of
from llm_bridge.environments.limits import clip, clip_messages


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), 1e101, "1", None, "x", [1, 2]])
def test_a_reward_is_a_finite_number(reward):
    with pytest.raises(EnvironmentFault, match="reward"):
        StepResult([], reward, True)


@pytest.mark.parametrize(
    "messages",
    [
        "text",
        {"role": "user", "content": ""},
        [{"role": "bot", "content": ""}],
        [{"role": "user"}],
        [3],
    ],
)
def test_messages_are_checked(messages):
    with pytest.raises(EnvironmentFault, match="messages"):
        check_messages(messages)


def test_a_result_keeps_copies():
    first = message("user", "a")
    info = {"turn": 1}
    result = StepResult([first], 1, False, info)
    first["content"] = info["turn"] = "changed"
    assert result.messages == [{"role": "user", "content": "a"}]
    assert result.info == {"turn": 1}
    assert isinstance(result.reward, float)


@pytest.mark.parametrize(
    "wrong", [{"seconds": 0}, {"calls": 0}, {"calls": True}, {"output_chars": 1.5}, {"more": 1}, 3]
)
def test_limits_are_checked(wrong):
    with pytest.raises(EnvironmentFault, match="limits"):
        Limits.of(wrong)


@given(st.text(st.characters()), st.integers(1, 120))
def test_a_clipped_text_is_no_longer_than_its_limit_and_can_be_encoded(text, limit):
    out = clip(text * 9, limit)
    assert len(out) <= limit
    out.encode("utf-8")
    if len(text) * 9 <= limit:
        assert out == (text * 9).encode("utf-8", "replace").decode()
    elif limit > 60:  # room for the mark between beginning and end
        assert out[0] == clip(text[0], 1) and out[-1] == clip(text[-1], 1)
        left_out = int(out.split("[... ")[1].split()[0])
        kept = len(out) - len(f" [... {left_out} characters left out ...] ")
        assert kept + left_out == len(text) * 9


def test_clip_of_messages_makes_copies():
    messages = [message("user", "x" * 50, name="n")]
    clipped = clip_messages(messages, 10)
    assert len(clipped[0]["content"]) == 10 and clipped[0]["name"] == "n"
    assert messages[0]["content"] == "x" * 50


class Minimal:
    """The least that is an environment."""

    def reset(self, task, seed):
        return [message("user", str(task))]

    def step(self, text):
        return StepResult([], 0.0, True)

    def close(self):
        pass


def test_the_protocol_is_three_methods():
    assert isinstance(Minimal(), Environment)
    assert not isinstance(object(), Environment)
    assert tools_of(Minimal()) == [] and tasks_of(Minimal()) is None


def test_load_by_name_and_by_module():
    assert isinstance(load_environment(f"{__name__}:Minimal"), Minimal)
    game = load_environment("tabular", model="zoo:xor")
    assert game.reset(0, 0)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("chess", "should be one of"),
        ("no_such_module:X", "no_such_module"),
        ("json:nothing", "nothing"),
        ("json:JSONDecoder", "no method reset"),
        ("a:b:c", "should be one of"),
    ],
)
def test_load_says_what_is_wrong(spec, reason):
    with pytest.raises(EnvironmentFault, match=reason):
        load_environment(spec)


def test_import_of_the_package_loads_no_adapter_and_nothing_heavy():
    code = (
        "import sys, llm_bridge.environments as e\n"
        "heavy = {'torch', 'jax', 'numpy', 'gymnasium', 'textarena', 'bfcl_eval', 'transformers'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "from llm_bridge.environments import BFCLMultiTurn\n"
        "BFCLMultiTurn\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
