"""Limits for whatever a tool or a game returns: size, time, memory, number of calls.

Tool output and the policy's own text are untrusted. Sizes are limited by `clip` wherever a text
enters a conversation; time and memory cannot be limited inside a Python process (big-integer
arithmetic, say, cannot be interrupted), so what could run long runs in another process, which is
killed at its deadline (`process`, `isolated`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from .base import EnvironmentFault, Message

__all__ = ["Limits", "clip", "clip_messages"]

_MARK = " [... {} characters left out ...] "


@dataclass(frozen=True)
class Limits:
    """What one episode may use; every field is a number above 0.

    `text_chars`: characters of one assistant text that are read; a longer text is answered by an
    error, never cut. `output_chars`: characters of one message of the environment; a longer one is
    cut in the middle. `calls`: tool calls in one text. `seconds`: wall-clock time of one request to
    a worker process; `episode_seconds`: of all requests of an episode. `memory_mb`: what the worker
    may allocate.

    >>> Limits(seconds=2).seconds
    2
    >>> Limits(calls=0)
    Traceback (most recent call last):
    ...
    llm_bridge.environments.base.EnvironmentFault: limits.calls = 0: should be a whole number of at least 1
    """

    text_chars: int = 20_000
    output_chars: int = 8_000
    calls: int = 64
    seconds: float = 10.0
    episode_seconds: float = 120.0
    memory_mb: int = 1_024

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if item.name.endswith("seconds"):
                if not number or not 0 < value < float("inf"):
                    raise EnvironmentFault(
                        f"limits.{item.name} = {value!r}: should be a number above 0"
                    )
            elif not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise EnvironmentFault(
                    f"limits.{item.name} = {value!r}: should be a whole number of at least 1"
                )

    def replace(self, **changes: Any) -> "Limits":
        """Return a copy with other values."""
        return replace(self, **changes)

    @classmethod
    def of(cls, value: "Limits | dict[str, Any] | None") -> "Limits":
        """Take limits, a table of a configuration file, or None for the defaults.

        >>> Limits.of({"cals": 3})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        llm_bridge.environments.base.EnvironmentFault: limits: unknown key 'cals'; should be one of ...
        """
        if value is None:
            return cls()
        if isinstance(value, cls):
            return value
        if not isinstance(value, dict):
            raise EnvironmentFault(f"limits: should be a table, not {type(value).__name__}")
        known = [item.name for item in fields(cls)]
        for key in value:
            if key not in known:
                raise EnvironmentFault(
                    f"limits: unknown key {key!r}; should be one of {', '.join(known)}"
                )
        return cls(**value)


def clip(text: str, limit: int) -> str:
    """Return the text, or its beginning and end with a mark between, at most `limit` characters.

    Half of a surrogate pair, which no tokenizer can encode, becomes a question mark.

    >>> clip("short", 100)
    'short'
    >>> out = clip("a" * 5000 + "b" * 5000, 100)
    >>> len(out), out[0], out[-1], "characters left out" in out
    (100, 'a', 'b', True)
    """
    text = text.encode("utf-8", "replace").decode()
    if len(text) <= limit:
        return text
    bare = len(_MARK.format(""))
    digits, room = 0, 0
    while digits < len(str(len(text) - room)):  # the mark's length depends on the number in it
        digits += 1
        room = limit - bare - digits
    mark = _MARK.format(len(text) - room)
    if room < 2:
        return text[:limit]
    head = (room + 1) // 2
    return text[:head] + mark + text[len(text) - (room - head) :]


def clip_messages(messages: Iterable[Message], limit: int) -> list[Message]:
    """Return copies of the messages whose contents are at most `limit` characters.

    >>> clip_messages([{"role": "user", "content": "x" * 9}], 3)
    [{'role': 'user', 'content': 'xxx'}]
    """
    return [
        {**item, "content": clip(item["content"], limit)}
        if isinstance(item.get("content"), str)
        else dict(item)
        for item in messages
    ]
