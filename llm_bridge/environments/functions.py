"""An environment from functions of yours: a reward, and what answers the assistant.

    def step(task, texts):            # the assistant's texts so far, the newest last
        return "Too low." if int(texts[-1]) < task else "Too high."

    def reward(task, texts):          # once, at the end of the episode
        return float(int(texts[-1]) == task)

    environment = FunctionEnvironment(reward, step, max_turns=5)

A function may ask for any of `task`, `texts`, `replies` (what the environment answered so far) and
`seed`, by the names of its parameters, and gets copies. `step` returns the next user message (a
text, or a list of messages), or None when the episode is over; without `step` an episode is one
turn. A `start` function may write the first messages; without it the task itself, as text, is the
first user message.

Functions run in the trainer's process and are trusted: what they raise is raised. If they call
something that could run long, wrap them: `IsolatedEnvironment("my_module:make_environment")`.
"""

import copy
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .base import EnvironmentFault, Message, StateError, StepResult, check_messages, message
from .limits import Limits, clip, clip_messages

__all__ = ["FunctionEnvironment"]

_PARAMETERS = ("task", "texts", "replies", "seed")
Function = Callable[..., Any]


class FunctionEnvironment:
    """Two functions as an environment; see the module.

    Args:
        reward: returns a number, at the end (`each_turn=False`) or after every turn.
        step: returns the next message, or None at the end; default: one turn.
        start: returns the first messages (a text, or a list) from `task` and `seed`.
        system: text of a system message before them.
        tasks: the tasks that `reset` takes, default any.
        max_turns: turns after which the episode ends; `info["truncated"]` unless `step` said so.
        each_turn: whether the reward function is asked after every turn.
        limits: sizes of messages.

    A function may be given as "module:attribute", as in a configuration file.

    Raises:
        EnvironmentFault: a function that asks for something else, or returns something else.

    >>> guess = FunctionEnvironment(lambda task, texts: float(texts[-1] == task))
    >>> guess.reset("blue", seed=0)
    [{'role': 'user', 'content': 'blue'}]
    >>> guess.step("blue").reward
    1.0
    """

    def __init__(
        self,
        reward: Function | str,
        step: Function | str | None = None,
        start: Function | str | None = None,
        *,
        system: str = "",
        tasks: Sequence[Any] | None = None,
        max_turns: int = 8,
        each_turn: bool = False,
        limits: Limits | Mapping[str, Any] | None = None,
    ) -> None:
        self._reward = _Named("reward", reward, _PARAMETERS)
        self._step = None if step is None else _Named("step", step, _PARAMETERS)
        self._start = None if start is None else _Named("start", start, ("task", "seed"))
        if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 1:
            raise EnvironmentFault(f"max_turns = {max_turns!r}: should be at least 1")
        self.system = str(system)
        self.tasks = None if tasks is None else list(tasks)
        self.max_turns = max_turns
        self.each_turn = bool(each_turn)
        self.limits = Limits.of(dict(limits) if isinstance(limits, Mapping) else limits)
        self._known: dict[str, Any] | None = None

    def spawn(self) -> "FunctionEnvironment":
        """Another environment of the same functions."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._known = None
        return other

    def reset(self, task: Any, seed: int) -> list[Message]:
        """Begin an episode."""
        self._known = {"task": task, "seed": seed, "texts": [], "replies": []}
        head = [message("system", self.system)] if self.system else []
        first = str(task) if self._start is None else self._start(self._known)
        return head + self._messages(first, "start")

    def step(self, text: str) -> StepResult:
        """Take a turn: ask `step` for an answer, `reward` for what it was worth."""
        known = self._known
        if known is None:
            raise StateError("step: the episode has not begun or is over; should call reset first")
        if len(text) > self.limits.text_chars:
            text = clip(text, self.limits.text_chars)
        known["texts"].append(text)
        answer = None if self._step is None else self._step(known)
        ended = answer is None
        messages = [] if ended else self._messages(answer, "step")
        done = ended or len(known["texts"]) == self.max_turns
        reward = self._reward(known) if done or self.each_turn else 0.0
        if isinstance(reward, bool | int | float) or hasattr(reward, "item"):
            reward = float(reward)
        else:
            raise EnvironmentFault(f"reward returned {reward!r}: should be a number")
        known["replies"] += [item["content"] for item in messages]
        if done:
            self._known = None
        return StepResult(messages, reward, done, {"truncated": done and not ended})

    def close(self) -> None:
        """Forget the episode."""
        self._known = None

    def _messages(self, value: Any, name: str) -> list[Message]:
        if isinstance(value, str):
            value = [message("user", value)]
        check_messages(value, f"{name} returned")
        return clip_messages(value, self.limits.output_chars)


class _Named:
    """A function that is given what its parameters ask for."""

    def __init__(self, name: str, function: Function | str, offered: Sequence[str]) -> None:
        if isinstance(function, str):
            function = _imported(name, function)
        if not callable(function):
            raise EnvironmentFault(
                f'{name}: should be a function or "module:function", not {type(function).__name__}'
            )
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        self._asked = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in offered and parameter.kind not in kinds:
                self._asked.append(parameter.name)
            elif parameter.default is parameter.empty and parameter.kind not in kinds:
                raise EnvironmentFault(
                    f"{name}: has a parameter {parameter.name}; it is given {', '.join(offered)}"
                )
        self._function = function

    def __call__(self, known: Mapping[str, Any]) -> Any:
        return self._function(**{name: copy.deepcopy(known[name]) for name in self._asked})


def _imported(name: str, spec: str) -> Any:
    module, _, attribute = spec.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise EnvironmentFault(f"{name} = {spec!r}: {error}") from None
