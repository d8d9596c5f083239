"""Any environment in a process of its own, with limits of time and memory.

`IsolatedEnvironment("my_package:MyEnvironment", size=4)` builds the environment there and passes
tasks, texts and results through as JSON. A step that takes longer than its limit, or a process that
dies, ends the episode: reward 0, `done`, `info["truncated"]` and `info["failure"]`. The next
`reset` starts a new process. Use it for tools that could run long, need much memory, or crash.
"""

from collections.abc import Mapping
from typing import Any

from .base import EnvironmentFault, Message, StateError, StepResult, TaskError, tasks_of
from .limits import Limits, clip_messages
from .process import Hold, Worker, WorkerFailure

__all__ = ["IsolatedEnvironment"]

_TARGET = "llm_bridge.environments.isolated:Hosted"
_KINDS = {kind.__name__: kind for kind in (TaskError, StateError)}


class IsolatedEnvironment:
    """The environment `spec` (a name of `environments.NAMES`, or "module:attribute") elsewhere.

    Args:
        spec: what to build.
        limits: time and memory of a request, sizes of messages; a table or `Limits`.
        options: arguments of the environment; JSON values, as in a configuration file.

    Raises:
        EnvironmentFault: the environment cannot be built, or `reset` takes too long.
    """

    def __init__(
        self, spec: str, *, limits: Limits | Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        self.limits = Limits.of(dict(limits) if isinstance(limits, Mapping) else limits)
        self._options = {"spec": spec, "options": options}
        module = spec.partition(":")[0]
        self._preload = (module,) if ":" in spec else ()
        self._hold: Hold | None = None
        self._worker: Worker | None = None
        self._running = False
        self._tools: list[dict[str, Any]] = []

    def spawn(self) -> "IsolatedEnvironment":
        """Another environment of the same kind; this one keeps its imports."""
        self._keep()
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._hold = other._worker = None
        other._running = False
        return other

    @property
    def tasks(self) -> list[Any] | None:
        """Tasks that the environment lists, or None."""
        return self._started().call({"op": "tasks"})

    @property
    def tools(self) -> list[dict[str, Any]]:
        """Function schemas at this moment."""
        return self._tools

    def reset(self, task: Any, seed: int) -> list[Message]:
        """Begin an episode there."""
        self._running = False
        answer = self._request({"op": "reset", "task": task, "seed": seed})
        self._running, self._tools = True, answer["tools"]
        return clip_messages(answer["messages"], self.limits.output_chars)

    def step(self, text: str) -> StepResult:
        """Take a step there, within the limits."""
        if not self._running:
            raise StateError("step: the episode has not begun or is over; should call reset first")
        try:
            answer = self._request({"op": "step", "text": text})
        except WorkerFailure as failure:
            self._running = False
            return StepResult([], 0.0, True, {"truncated": True, "failure": str(failure)})
        self._running, self._tools = not answer["done"], answer["tools"]
        messages = clip_messages(answer["messages"], self.limits.output_chars)
        return StepResult(messages, answer["reward"], answer["done"], answer["info"])

    def close(self) -> None:
        """End the process."""
        self._running = False
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        if self._hold is not None:
            self._hold.close()
            self._hold = None

    def _keep(self) -> None:
        """Keep the imports of the environment from now until `close`."""
        if self._hold is None:
            self._hold = Hold(_TARGET, preload=self._preload, strict=False)

    def _started(self) -> Worker:
        if self._worker is None or not self._worker.alive:
            self._keep()
            self._worker = Worker(
                _TARGET, self._options, limits=self.limits, preload=self._preload, strict=False
            )
        return self._worker

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = self._started().call(request)
        if "fault" in answer:
            raise _KINDS.get(answer["kind"], EnvironmentFault)(answer["fault"])
        return answer


class Hosted:
    """The environment on the other side."""

    def __init__(self, spec: str, options: dict[str, Any]) -> None:
        from . import load_environment

        self._environment = load_environment(spec, **options)

    def handle(self, request: Mapping[str, Any]) -> Any:
        """Answer one request."""
        op = request["op"]
        if op == "tasks":
            tasks = tasks_of(self._environment)
            return None if tasks is None else list(tasks)
        try:
            if op == "reset":
                messages = self._environment.reset(request["task"], request["seed"])
                return {"messages": messages, "tools": self._tools()}
            result = self._environment.step(request["text"])
        except EnvironmentFault as error:
            return {"fault": str(error), "kind": type(error).__name__}
        return {
            "messages": result.messages,
            "reward": result.reward,
            "done": result.done,
            "info": {key: value for key, value in result.info.items() if _plain(value)},
            "tools": self._tools(),
        }

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()

    def _tools(self) -> list[dict[str, Any]]:
        return list(getattr(self._environment, "tools", ()))


def _plain(value: Any) -> bool:
    """Say whether a diagnostic can be sent as it is."""
    return value is None or isinstance(value, bool | int | float | str)
