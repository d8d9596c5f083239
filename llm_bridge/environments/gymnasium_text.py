r"""A Gymnasium environment in words: a formatter writes observations, a parser reads actions.

`format(observation, environment)` returns text; without one, a text rendering (`render_mode="ansi"`,
where the environment has it) or the observation itself. Renderings mark a position by a colour,
which a text does not have: \x1b[41mS\x1b[0m becomes [S].

`parse(text)` returns an action or None; without one, a discrete action is one of `actions` (their
words: for FrozenLake left, down, right, up, or the numbers), and the text has to name exactly one of
them as a word. A text that names none, or several, changes nothing and is told so; it pays
`wrong_reward` and counts towards `max_turns`.

Task and seed: a whole number as task is the environment's own seed, so that all rollouts of a task
begin in the same state; everything random after that comes from the rollout's seed. Task None
begins from the rollout's seed. A dictionary as task is passed as `options`.

Source: Gymnasium's API, `reset(seed=, options=)` and `step` with terminated and truncated.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .base import (
    EnvironmentFault,
    Message,
    NotInstalledError,
    StateError,
    StepResult,
    TaskError,
    message,
)
from .limits import Limits, clip

__all__ = ["ACTIONS", "GymnasiumText"]

ACTIONS = {
    "CliffWalking": ("up", "right", "down", "left"),
    "FrozenLake": ("left", "down", "right", "up"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
}
"""Words of the actions of text-style environments, in their order (Gymnasium's documentation)."""

_COLOUR = re.compile(r"\x1b\[[0-9;]+m(.+?)\x1b\[0m", re.DOTALL)
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


class GymnasiumText:
    """An environment of Gymnasium, by id; see the module.

    Args:
        id: such as "FrozenLake-v1".
        actions: words of a discrete action space.
        format: function of (observation, environment) that returns text.
        parse: function of text that returns an action or None.
        instruction: system message; default names the words.
        wrong_reward: of a text without an action.
        max_turns: texts of an episode, default without limit (the environment's own applies).
        limits: sizes of messages.
        options: arguments of `gymnasium.make`, such as is_slippery.

    Raises:
        NotInstalledError: without `gymnasium`.
        EnvironmentFault: an unknown id; an action space that needs a parser.
    """

    def __init__(
        self,
        id: str,
        *,
        actions: Sequence[str] | None = None,
        format: Callable[[Any, Any], str] | None = None,
        parse: Callable[[str], Any] | None = None,
        instruction: str | None = None,
        wrong_reward: float = 0.0,
        max_turns: int | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._settings = {"id": id, **options}
        self._given = (actions, format, parse, instruction, wrong_reward, max_turns, limits)
        if max_turns is not None and (not isinstance(max_turns, int) or max_turns < 1):
            raise EnvironmentFault(f"max_turns = {max_turns!r}: should be at least 1")
        self.limits = Limits.of(dict(limits) if isinstance(limits, Mapping) else limits)
        self.environment = _make(self._settings, ansi=format is None)
        self._format = format or _rendered
        self.words = _words(id, actions, self.environment) if parse is None else ()
        self._parse = parse or self._read
        self.instruction = self._instruction() if instruction is None else instruction
        self.wrong_reward = float(wrong_reward)
        self.max_turns = max_turns
        self._turns = -1

    def spawn(self) -> "GymnasiumText":
        """Another environment of the same settings."""
        actions, format, parse, instruction, wrong_reward, max_turns, limits = self._given
        return GymnasiumText(
            **self._settings,
            actions=actions,
            format=format,
            parse=parse,
            instruction=instruction,
            wrong_reward=wrong_reward,
            max_turns=max_turns,
            limits=limits,
        )

    def reset(self, task: Any, seed: int) -> list[Message]:
        """Begin an episode; see the module for task and seed."""
        if isinstance(task, bool) or not (
            task is None or isinstance(task, int | np.integer | dict)
        ):
            raise TaskError(f"task = {task!r}: should be a whole number, a dictionary or None")
        self._opened()
        if isinstance(task, int | np.integer):
            if task < 0:
                raise TaskError(f"task = {task}: should be at least 0")
            observation, _ = self.environment.reset(seed=int(task))
            noise = np.random.default_rng([int(task), int(seed)])
            self.environment.unwrapped.np_random = noise
        else:
            observation, _ = self.environment.reset(seed=int(seed), options=task)
        self._turns = 0
        head = [message("system", self.instruction)] if self.instruction else []
        return [*head, self._shown(observation)]

    def step(self, text: str) -> StepResult:
        """Take an action."""
        if self._turns < 0:
            raise StateError("step: the episode has not begun or is over; should call reset first")
        self._turns += 1
        last = self._turns == self.max_turns
        action = self._parse(text) if len(text) <= self.limits.text_chars else None
        if action is None:
            if last:
                self._turns = -1
            told = [message("user", f"No action was understood.{self._choices()}")]
            info = {"wrong": True, "truncated": last}
            return StepResult(told, self.wrong_reward, last, info)
        observation, reward, terminated, truncated, _ = self.environment.step(action)
        over = bool(terminated or truncated or last)
        if over:
            self._turns = -1
        info = {"wrong": False, "truncated": over and not terminated}
        return StepResult([self._shown(observation)], float(reward), over, info)

    def close(self) -> None:
        """Close the environment; the next `reset` makes it again."""
        self._turns = -1
        if self.environment is not None:
            self.environment.close()
            self.environment = None

    def _opened(self) -> None:
        if self.environment is None:
            self.environment = _make(self._settings, ansi=self._format is _rendered)

    def _shown(self, observation: Any) -> Message:
        text = self._format(observation, self.environment)
        if not isinstance(text, str):
            raise EnvironmentFault(f"format returned {type(text).__name__}: should return a text")
        return message("user", clip(text, self.limits.output_chars))

    def _instruction(self) -> str:
        return f"You act in {self._settings['id']}.{self._choices()}"

    def _choices(self) -> str:
        return f" Answer with one of: {', '.join(self.words)}." if self.words else ""

    def _read(self, text: str) -> int | None:
        """Return the action whose word the text names, if it names exactly one."""
        found = {
            index
            for index, word in enumerate(self.words)
            if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE)
        }
        return self._start + found.pop() if len(found) == 1 else None

    @property
    def _start(self) -> int:
        return int(getattr(self.environment.action_space, "start", 0))


def _make(settings: Mapping[str, Any], ansi: bool) -> Any:
    try:
        import gymnasium
    except ImportError:
        raise NotInstalledError("gymnasium", "pip install 'seeupo[gym]'") from None
    options = dict(settings)
    name = options.pop("id")
    try:
        made = gymnasium.make(name, **options)
        if (
            ansi
            and "render_mode" not in options
            and "ansi" in made.metadata.get("render_modes", ())
        ):
            made.close()
            made = gymnasium.make(name, render_mode="ansi", **options)
        return made
    except gymnasium.error.Error as error:
        raise EnvironmentFault(f"id = {name!r}: {str(error).splitlines()[0]}") from None
    except TypeError as error:
        raise EnvironmentFault(f"options of {name}: {str(error).splitlines()[0]}") from None


def _words(name: str, given: Sequence[str] | None, environment: Any) -> tuple[str, ...]:
    count = getattr(environment.action_space, "n", None)
    if count is None:
        raise EnvironmentFault(
            f"parse: {name} has the action space {environment.action_space}; should be a function "
            "from text to an action"
        )
    family = re.split(r"\d?x\d|-v\d|\d", name.rpartition("/")[2])[0]
    words = tuple(given) if given is not None else ACTIONS.get(family, ())
    if given is None and len(words) != count:
        words = tuple(str(index) for index in range(int(count)))
    if len(words) != count or len({word.lower() for word in words}) != count or not all(words):
        raise EnvironmentFault(f"actions = {words!r}: should be {count} distinct words")
    return words


def _rendered(observation: Any, environment: Any) -> str:
    """Return the text rendering, or the observation as text."""
    if environment.render_mode != "ansi":
        return str(observation)
    text = environment.render()
    return _ESCAPE.sub("", _COLOUR.sub(r"[\1]", text)).strip("\n")
