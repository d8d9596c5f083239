"""AppWorld through its own environment server: code goes there, nothing of it runs here.

AppWorld pins packages that a current stack does not share, so it lives in an environment of its
own: `pip install appworld`, `appworld install`, `appworld download data`, then
`appworld serve environment --port 8000`. This adapter speaks to that server by HTTP and needs no
package. The server holds one world at a time: one environment needs one server (`urls`, one for
each rollout that is open at once).

An episode: the task's instruction is the first user message; each text is a block of Python (the
content of a fenced block, if there is exactly one) that the server executes; its output is the
answer. When the agent has called `apis.supervisor.complete_task`, the server's tests decide: reward
1 if all pass, else 0 (`info["passed"]` is their share; `partial=True` pays it).

Written after the interface of `appworld` 0.1.3 (POST /initialize, /execute, /task_completed,
/evaluate, /close with JSON bodies, answers {"output": ...}) and tested against a small stand-in that
follows it; it has not been run against a server with AppWorld's data.
"""

import contextlib
import json
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from .base import EnvironmentFault, Message, StateError, StepResult, TaskError, message
from .limits import Limits, clip

__all__ = ["AppWorldTasks"]

_FENCE = re.compile(r"```(?:python|py)?\n(.*?)```", re.DOTALL)
_SYSTEM = (
    "You solve a task of {first_name} {last_name} ({email}, {phone_number}) by writing Python. Each "
    "answer is one block of code; what it prints is shown to you. The object `apis` holds the apps; "
    "apis.api_docs shows what they can do. When the task is done, call "
    "apis.supervisor.complete_task(), with answer=... if it asks for one. It is {datetime}."
)


class AppWorldFault(EnvironmentFault):
    """The server cannot be reached, or answers with an error."""


class AppWorldTasks:
    """Tasks of AppWorld on running servers.

    Args:
        urls: address of each server, such as "http://127.0.0.1:8000".
        tasks: ids that `reset` takes, default any.
        experiment: name under which the server keeps its logs.
        partial: pay the share of passed tests instead of all or nothing.
        max_turns: texts of an episode; after them the tests decide, and it is truncated.
        limits: sizes, and the time of a request; `seconds` should exceed the server's own limit
            for a block (100 s), so that the server, not this side, ends it.
    """

    def __init__(
        self,
        urls: str | Sequence[str] = "http://127.0.0.1:8000",
        *,
        tasks: Sequence[str] | None = None,
        experiment: str = "seeupo",
        partial: bool = False,
        max_turns: int = 30,
        limits: Limits | Mapping[str, Any] | None = None,
    ) -> None:
        addresses = [urls] if isinstance(urls, str) else list(urls)
        for index, url in enumerate(addresses):
            if not isinstance(url, str) or not re.match(r"https?://[^/]", url):
                raise EnvironmentFault(
                    f"urls[{index}] = {url!r}: should begin with http:// or https://"
                )
        if not addresses:
            raise EnvironmentFault("urls: should have at least one address")
        if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 1:
            raise EnvironmentFault(f"max_turns = {max_turns!r}: should be at least 1")
        self._servers = _Servers([url.rstrip("/") for url in addresses])
        self.tasks = None if tasks is None else list(tasks)
        self.experiment = experiment
        self.partial = bool(partial)
        self.max_turns = max_turns
        if limits is None or isinstance(limits, Mapping):
            limits = Limits.of({"seconds": 120.0} | dict(limits or {}))
        self.limits = limits
        self._url: str | None = None
        self._task: str | None = None
        self._turns = 0

    def spawn(self) -> "AppWorldTasks":
        """Another environment, on the next free server."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._url = other._task = None
        return other

    def reset(self, task: Any, seed: int) -> list[Message]:
        """Begin a task; the seed is AppWorld's own `random_seed`."""
        if not isinstance(task, str) or (self.tasks is not None and task not in self.tasks):
            raise TaskError(f"task = {task!r}: should be the id of a task of AppWorld")
        self._leave()
        if self._url is None:
            self._url = self._servers.take()
        asked = {
            "task_id": task,
            "experiment_name": self.experiment,
            "random_seed": int(seed),
        }
        world = self._post("initialize", asked)
        self._task, self._turns = task, 0
        try:
            known = {**world["supervisor"], "datetime": world["datetime"]}
            system = _SYSTEM.format_map(known)
            return [
                message("system", system),
                message("user", clip(world["instruction"], self._chars)),
            ]
        except (KeyError, TypeError) as error:
            raise AppWorldFault(f"{self._url}/initialize: the answer lacks {error}") from None

    def step(self, text: str) -> StepResult:
        """Execute a block of code there."""
        if self._task is None:
            raise StateError("step: the episode has not begun or is over; should call reset first")
        self._turns += 1
        if len(text) > self.limits.text_chars:
            output = (
                f"The answer has {len(text)} characters; at most {self.limits.text_chars} are read."
            )
            completed = False
        else:
            blocks = _FENCE.findall(text)
            code = blocks[0] if len(blocks) == 1 else text
            try:
                output = str(self._post("execute", {"task_id": self._task, "code": code}))
                completed = bool(self._post("task_completed", {"task_id": self._task}))
            except TimeoutError:
                self._leave()
                return StepResult([], 0.0, True, {"truncated": True, "failure": "time limit"})
        answer = [message("user", clip(output, self._chars))]
        if not completed and self._turns < self.max_turns:
            return StepResult(answer, 0.0, False)
        reward, info = self._verdict()
        self._leave()
        return StepResult(answer, reward, True, info | {"truncated": not completed})

    def close(self) -> None:
        """Close the world, and free the server for others."""
        self._leave()
        if self._url is not None:
            self._servers.give(self._url)
            self._url = None

    @property
    def _chars(self) -> int:
        return self.limits.output_chars

    def _verdict(self) -> tuple[float, dict[str, Any]]:
        try:
            tests = self._post("evaluate", {"task_id": self._task, "suppress_errors": True})
            passed = len(tests["passes"]) / max(1, int(tests["num_tests"]))
            success = bool(tests["success"])
        except TimeoutError:
            return 0.0, {"success": False, "failure": "time limit"}
        except (KeyError, TypeError) as error:
            raise AppWorldFault(f"{self._url}/evaluate: the answer lacks {error}") from None
        return (passed if self.partial else float(success)), {"success": success, "passed": passed}

    def _leave(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            with contextlib.suppress(AppWorldFault, TimeoutError):  # it may have ended already
                self._post("close", {"task_id": task})

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the output of a request; TimeoutError where it takes longer than its limit."""
        address = f"{self._url}/{path}"
        request = urllib.request.Request(
            address, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        end = time.monotonic() + self.limits.seconds
        most = 16 * self._chars + 2**20  # bytes: a clipped output, tests and their reports
        try:
            with urllib.request.urlopen(request, timeout=self.limits.seconds) as answer:
                data = bytearray()
                while part := answer.read1(2**16):
                    data += part
                    if time.monotonic() > end:
                        raise TimeoutError
                    if len(data) > most:
                        raise AppWorldFault(f"{address}: the answer is longer than {most} bytes")
            return json.loads(bytes(data))["output"]
        except TimeoutError:
            raise
        except urllib.error.HTTPError as error:
            detail = error.read(300).decode(errors="replace")
            error.close()
            raise AppWorldFault(f"{address}: HTTP {error.code} {detail}") from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError | socket.timeout):
                raise TimeoutError from None
            raise AppWorldFault(
                f"{address}: {error.reason}; should be a running `appworld serve environment`"
            ) from None
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise AppWorldFault(
                f"{address}: not an answer of AppWorld's server ({error})"
            ) from None


class _Servers:
    """Addresses, each used by one environment at a time."""

    def __init__(self, urls: list[str]) -> None:
        self._free = urls
        self._count = len(urls)
        self._lock = threading.Lock()

    def take(self) -> str:
        with self._lock:
            if not self._free:
                raise EnvironmentFault(
                    f"urls: all {self._count} servers are in use; each serves one episode at a time"
                )
            return self._free.pop(0)

    def give(self, url: str) -> None:
        with self._lock:
            self._free.append(url)
