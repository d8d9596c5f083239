"""A single-player game of TextArena: its prompts and messages as they are, its reward at the end.

The conversation grows by what is new: the game's messages since the last turn, without the history
that TextArena's own wrapper repeats. The final reward is the game's for player 0. If a text makes a
game raise, the episode ends with reward 0 and the error in `info["failure"]`.

TextArena draws from Python's global random numbers and seeds them at reset. Here a game has a state
of random numbers of its own, put in place for the length of each call, so that neither other games
nor the trainer notice.

Task: None, or a whole number, which is the game's seed, the same for all rollouts of the task; with
None the game is seeded by the rollout. GuessTheNumber, TowerOfHanoi and FrozenLake need no
download. The package is best installed without its dependencies, most of which serve online play.

Source: TextArena's API, `make`, `reset(num_players, seed)`, `get_observation`, `step`, `close`.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any

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

__all__ = ["TextArenaGame"]

INSTALL = "pip install 'seeupo[games]', and pip install --no-deps textarena"

_PLAYER = 0


class TextArenaGame:
    """A single-player game, by its id such as "GuessTheNumber-v0"; see the module.

    Args:
        id: of `textarena.make`.
        max_turns: texts of an episode, default the game's own limit.
        limits: sizes of messages.
        options: arguments of `textarena.make`, such as max_number.

    Raises:
        NotInstalledError: without `textarena`, or a package that it needs.
        EnvironmentFault: an unknown id, or a game for more players.
    """

    def __init__(
        self,
        id: str,
        *,
        max_turns: int | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if max_turns is not None and (not isinstance(max_turns, int) or max_turns < 1):
            raise EnvironmentFault(f"max_turns = {max_turns!r}: should be at least 1")
        self.id = id
        self.max_turns = max_turns
        self.limits = Limits.of(dict(limits) if isinstance(limits, Mapping) else limits)
        self._options = options
        self._random = random.Random(0).getstate()
        self._game: Any = None
        self._turns = 0
        self._own(self._make)  # an unknown game is an error now

    def spawn(self) -> "TextArenaGame":
        """Another game of the same settings."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._game = None
        return other

    def reset(self, task: Any, seed: int) -> list[Message]:
        """Begin a game."""
        if isinstance(task, bool) or not (task is None or isinstance(task, int)):
            raise TaskError(f"task = {task!r}: should be a whole number (the game's seed) or None")
        start = seed if task is None else task

        def begin() -> list[Message]:
            self._game = self._make()
            self._game.reset(num_players=1, seed=int(start))
            return self._news()

        self._turns = 0
        try:
            return self._own(begin)
        except AssertionError as error:
            self._game = None
            raise EnvironmentFault(
                f"id = {self.id!r}: should be a game for one player; {error}"
            ) from None

    def step(self, text: str) -> StepResult:
        """Play one move."""
        if self._game is None:
            raise StateError("step: the episode has not begun or is over; should call reset first")
        text = clip(text, self.limits.text_chars)
        self._turns += 1
        try:
            done, news, rewards = self._own(lambda: self._move(text))
        except Exception as error:
            self._game = None
            info = {"failure": f"{type(error).__name__}: {error}", "success": False}
            return StepResult([], 0.0, True, info)
        if not done:
            over = self._turns == self.max_turns
            if over:
                self._game = None
            return StepResult(news, 0.0, over, {"truncated": over})
        self._game = None
        reward = float((rewards or {}).get(_PLAYER, 0.0))
        return StepResult(news, reward, True, {"success": reward >= 1.0})

    def close(self) -> None:
        """Forget the game."""
        self._game = None

    def _make(self) -> Any:
        ta = _textarena()
        try:
            game = ta.make(self.id, **self._options)
        except (ValueError, TypeError, LookupError) as error:
            raise EnvironmentFault(
                f"id = {self.id!r}: {str(error).splitlines()[0][:200]}"
            ) from None
        return game

    def _move(self, text: str) -> tuple[bool, list[Message], dict[int, float] | None]:
        done, _ = self._game.step(text)
        news = self._news()
        return bool(done), news, self._game.close()[0] if done else None

    def _news(self) -> list[Message]:
        """Return what the game has said since the last turn, as one user message."""
        game = self._game
        while hasattr(game, "env"):  # under the wrappers, whose observations repeat the history
            game = game.env
        _, said = game.get_observation()
        lines = [str(text) for sender, text, _ in said if sender != _PLAYER]
        content = clip("\n".join(lines), self.limits.output_chars)
        return [message("user", content)] if content else []

    def _own(self, act: Callable[[], Any]) -> Any:
        """Act with the game's own random numbers in the global place, and put the others back."""
        kept = random.getstate()
        random.setstate(self._random)
        try:
            return act()
        finally:
            self._random = random.getstate()
            random.setstate(kept)


def _textarena() -> Any:
    kept = random.getstate()
    try:
        import textarena
    except ImportError as error:
        missing = getattr(error, "name", None) or str(error).splitlines()[0][:120]
        raise NotInstalledError("textarena", INSTALL, f"import failed: {missing}") from None
    finally:
        random.setstate(kept)
    return textarena
