"""What an environment is: three methods, messages in and out, text from the policy.

An episode begins with `reset(task, seed)`, which returns the first messages of the conversation
(system and user). Every call of `step(text)` is one turn: the assistant's text goes in, a
`StepResult` comes out: the messages that answer it (user or tool), the reward of this turn, and
whether the episode is over. `close()` gives back what the environment holds, and may be called
more than once.

Three promises that rollouts rely on:

- the same task, seed and texts give the same messages and rewards (seed is the only randomness);
- `reset` forgets everything of the episode before; two environments share no state;
- no text, however wrong, raises: it is answered by a message, or ends the episode. What raises is
  wrong use (`StateError`), a wrong task (`TaskError`) or a missing package (`NotInstalledError`).

An environment sees text alone: no token ids, no log-probabilities. It may have more, all optional:
`tools`, the function schemas for a chat template at this moment of the episode (`tools_of`);
`tasks`, the tasks that `reset` takes (`tasks_of`); `spawn()`, which returns another environment of
the same settings with an episode of its own (rollouts ask for one a row; without it they copy).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

__all__ = [
    "ROLES",
    "Environment",
    "EnvironmentFault",
    "Message",
    "NotInstalledError",
    "StateError",
    "StepResult",
    "TaskError",
    "check_messages",
    "message",
    "tasks_of",
    "tools_of",
]

ROLES = ("system", "user", "assistant", "tool")

LARGEST_REWARD = 1e100
"""Above it, a batch's variance is no longer a double."""

Message = dict[str, Any]
"""{"role": one of ROLES, "content": str}, and whatever else a chat template reads (`name`)."""


class EnvironmentFault(ValueError):
    """An environment cannot do what was asked; the message says what would be right."""


class TaskError(EnvironmentFault):
    """`reset` was given a task that the environment does not have."""


class StateError(EnvironmentFault):
    """A method was called at the wrong moment: `step` before `reset`, or after the end."""


class NotInstalledError(EnvironmentFault, ImportError):
    """The package behind an adapter is not there.

    >>> raise NotInstalledError("textarena", "pip install --no-deps textarena")
    Traceback (most recent call last):
    ...
    llm_bridge.environments.base.NotInstalledError: textarena is not installed: pip install --no-deps textarena
    """

    def __init__(self, package: str, command: str, hint: str = "") -> None:
        text = f"{package} is not installed: {command}"
        super().__init__(text + (f" ({hint})" if hint else ""))


def message(role: str, content: str, **more: Any) -> Message:
    """Return one message, its role and content checked.

    >>> message("user", "Which way?")
    {'role': 'user', 'content': 'Which way?'}
    """
    out = {"role": role, "content": content, **more}
    check_messages([out])
    return out


def check_messages(messages: Sequence[Message], where: str = "messages") -> None:
    """Raise `EnvironmentFault` unless every message is a dictionary with a known role and a text.

    >>> check_messages([{"role": "user", "content": None}])
    Traceback (most recent call last):
    ...
    llm_bridge.environments.base.EnvironmentFault: messages[0]["content"]: should be a text, not NoneType
    """
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):
        raise EnvironmentFault(
            f"{where}: should be a list of messages, not {type(messages).__name__}"
        )
    for index, item in enumerate(messages):
        if not isinstance(item, Mapping):
            raise EnvironmentFault(
                f"{where}[{index}]: should be a dictionary with role and content, not {type(item).__name__}"
            )
        if item.get("role") not in ROLES:
            raise EnvironmentFault(
                f'{where}[{index}]["role"] = {item.get("role")!r}: should be one of {", ".join(ROLES)}'
            )
        if not isinstance(item.get("content"), str):
            raise EnvironmentFault(
                f'{where}[{index}]["content"]: should be a text, not {type(item.get("content")).__name__}'
            )


@dataclass(frozen=True)
class StepResult:
    """The answer to one turn.

    Shapes: `messages` what the conversation grows by (may be empty when `done`), `reward` a finite
    number, `done` whether the episode is over, `info` diagnostics that no learning rule reads.
    `info["truncated"]` is True where a limit, not the task, ended the episode.

    >>> StepResult([], 1.0, True).reward
    1.0
    >>> StepResult([], float("nan"), True)
    Traceback (most recent call last):
    ...
    llm_bridge.environments.base.EnvironmentFault: reward = nan: should be a finite number
    """

    messages: list[Message]
    reward: float
    done: bool
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_messages(self.messages)
        try:
            reward = float(self.reward)
        except (TypeError, ValueError, OverflowError):
            reward = math.nan
        if isinstance(self.reward, str) or not math.isfinite(reward):
            raise EnvironmentFault(f"reward = {self.reward!r}: should be a finite number")
        if abs(reward) > LARGEST_REWARD:
            raise EnvironmentFault(
                f"reward = {self.reward!r}: should be at most {LARGEST_REWARD:g} in size, so that "
                "variances are numbers"
            )
        object.__setattr__(self, "messages", [dict(item) for item in self.messages])
        object.__setattr__(self, "reward", reward)
        object.__setattr__(self, "done", bool(self.done))
        object.__setattr__(self, "info", dict(self.info))


@runtime_checkable
class Environment(Protocol):
    """A multi-turn environment; see the module for what each method promises."""

    def reset(self, task: Any, seed: int) -> list[Message]:
        """Begin an episode of `task`; return its first messages."""
        ...

    def step(self, text: str) -> StepResult:
        """Take the assistant's text of one turn."""
        ...

    def close(self) -> None:
        """Give back processes and memory; harmless when called again."""
        ...


def tools_of(environment: Environment) -> list[dict[str, Any]]:
    """Return the function schemas for the chat template at this moment, none for most.

    >>> tools_of(object())
    []
    """
    return list(getattr(environment, "tools", ()))


def tasks_of(environment: Environment) -> Sequence[Any] | None:
    """Return the tasks of an environment that lists them, else None (it takes any).

    >>> tasks_of(object()) is None
    True
    """
    return getattr(environment, "tasks", None)
