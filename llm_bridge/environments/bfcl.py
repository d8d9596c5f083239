"""BFCL v4 multi-turn: a user asks in several turns, the assistant calls tools, state decides.

Within one turn of the user the assistant writes any number of texts. A text with calls is answered
by one message a call, with its result; a text without ends the user's turn, and the next question
comes. So one *step* of this environment is one text, and an episode has more steps than the user
has turns. After the user's last turn the reward is 1 if every turn was right (see `bfcl_backend`),
else 0; all other steps pay 0.

What differs from the package's own inference, and why:

- calls are read by a literal-only parser (`bfcl_parser`) and run in a process of the episode's own
  with limits; the package calls `eval` on it and keeps instances in module globals;
- a text that looks like a call but cannot be read is answered by an error, and the user's turn goes
  on; there it ends the turn;
- a call of an unknown function, or with an unknown argument, is no call when a turn is checked for
  having any; there it is;
- a call that takes longer than its limit ends the episode with reward 0: what it changed is lost.

Functions that a task of "miss_func" holds back are shown from their turn on. They can be called
before (as in the package, and one of its ground truths does).

Tools are shown in the system message (`tools_in="prompt"`, for any chat template; functions that
appear later come in the user's message), or left to the chat template (`tools_in="template"`, read
through `tools`, for templates with a section for tools; calls as `<tool_call>` blocks).

The tools are deterministic: the seed changes nothing. Source: the Berkeley Function-Calling
Leaderboard, version 4, and the package `bfcl-eval`.
"""

import json
import time
from collections.abc import Sequence
from typing import Any

from .base import EnvironmentFault, Message, StateError, StepResult, TaskError, message
from .bfcl_data import CATEGORIES, BFCLTask, load_tasks
from .bfcl_parser import Call, CallError, format_calls, parse_calls
from .limits import Limits, clip
from .process import Hold, Worker, WorkerFailure

__all__ = ["BFCLMultiTurn", "ground_truth_texts"]

STEPS_PER_TURN = 20  # texts with calls in one turn of the user; the package's limit
OUTPUT_CHARS = 32_000  # the longest result of a ground truth has 31 706
_BACKEND = "llm_bridge.environments.bfcl_backend:Episode"
_PRELOAD = (
    "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker",
    "mpmath",
    *(
        f"bfcl_eval.eval_checker.multi_turn_eval.func_source_code.{name}"
        for name in (
            "gorilla_file_system",
            "math_api",
            "message_api",
            "posting_api",
            "ticket_api",
            "trading_bot",
            "travel_booking",
            "vehicle_control",
        )
    ),
)
_SYSTEM = (
    "You help a user by calling functions. To call some, answer with a list of calls and nothing "
    "else: [name(argument=value, other=value), name(argument=value)]. Values are Python literals. "
    "You are shown the results and may call again. When the user's request is done, or no function "
    "can do it, or a value that you need was not given, answer in words, without a call.\n\n"
    "The functions, as JSON:\n{functions}"
)
_MORE = "More functions can be used from now on{functions}. Please go on with the request."


class BFCLMultiTurn:
    """Tool calling in several turns, over the tasks of one or more categories.

    Args:
        category: one of base, miss_func, miss_param, long_context, or a list of them.
        tasks: ids of the tasks to use, default all of the categories.
        tools_in: "prompt" (system message) or "template" (attribute `tools`).
        result_role: role of the messages with results, "tool", or "user" for templates without it.
        steps_per_turn: texts with calls that one turn of the user may have; one more ends the
            episode with reward 0, truncated.
        stop_early: end the episode at the first wrong turn of the user, where the reward can only
            be 0 (the package goes on).
        limits: sizes and times; default `Limits(output_chars=32_000)`.

    Raises:
        TaskError: an unknown category or task.
        NotInstalledError: without `bfcl-eval`.
    """

    def __init__(
        self,
        category: str | Sequence[str] = "base",
        *,
        tasks: Sequence[str] | None = None,
        tools_in: str = "prompt",
        result_role: str = "tool",
        steps_per_turn: int = STEPS_PER_TURN,
        stop_early: bool = False,
        limits: Limits | dict[str, Any] | None = None,
    ) -> None:
        categories = (category,) if isinstance(category, str) else tuple(category)
        self._tasks: dict[str, BFCLTask] = {}
        for name in categories:
            self._tasks |= load_tasks(name)
        if tasks is not None:
            self._tasks = {str(name): self._find(name) for name in tasks}
        if tools_in not in ("prompt", "template"):
            raise EnvironmentFault(f"tools_in = {tools_in!r}: should be prompt or template")
        if result_role not in ("tool", "user"):
            raise EnvironmentFault(f"result_role = {result_role!r}: should be tool or user")
        if not isinstance(steps_per_turn, int) or steps_per_turn < 1:
            raise EnvironmentFault(f"steps_per_turn = {steps_per_turn!r}: should be at least 1")
        self.tools_in = tools_in
        self.result_role = result_role
        self.steps_per_turn = steps_per_turn
        self.stop_early = bool(stop_early)
        if limits is None or isinstance(limits, dict):
            limits = Limits.of({"output_chars": OUTPUT_CHARS} | (limits or {}))
        self.limits = limits
        self._hold: Hold | None = None
        self._worker: Worker | None = None
        self._task: BFCLTask | None = None

    # -- tasks -----------------------------------------------------------------------------------

    @property
    def tasks(self) -> list[str]:
        """Ids that `reset` takes."""
        return list(self._tasks)

    def _find(self, task: Any) -> BFCLTask:
        if isinstance(task, int) and not isinstance(task, bool):
            ids = list(self._tasks)
            if not 0 <= task < len(ids):
                raise TaskError(f"task = {task}: should be from 0 to {len(ids) - 1}, or an id")
            task = ids[task]
        if not isinstance(task, str) or task not in self._tasks:
            raise TaskError(
                f"task = {task!r}: should be an id such as {next(iter(self._tasks), 'none')!r}"
            )
        return self._tasks[task]

    # -- one episode -----------------------------------------------------------------------------

    def spawn(self) -> "BFCLMultiTurn":
        """Another environment of the same tasks; this one keeps the imports of its tools."""
        self._keep()
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._hold = other._worker = other._task = None
        return other

    def reset(self, task: Any, seed: int = 0) -> list[Message]:
        """Begin a task, by its id or its index in `tasks`."""
        found = self._find(task)
        self._end()
        self._keep()
        self._worker = Worker(
            _BACKEND,
            {
                "initial_config": found.initial_config,
                "methods": {name: list(names) for name, names in found.methods.items()},
                "long_context": found.category == "long_context",
            },
            limits=self.limits,
            preload=_PRELOAD,
        )
        self._task = found
        self._turn = 0
        self._failure = ""
        self._spent = 0.0
        self._begin_turn()
        system = []
        if self.tools_in == "prompt":
            shown = json.dumps([found.schemas[name]["function"] for name in found.visible(0)])
            system = [message("system", _SYSTEM.format(functions=shown))]
        return system + self._question()

    @property
    def tools(self) -> list[dict[str, Any]]:
        """Schemas for the chat template at this moment; none where they are in the prompt."""
        if self._task is None or self.tools_in == "prompt":
            return []
        return [self._task.schemas[name] for name in self._task.visible(self._turn)]

    def step(self, text: str) -> StepResult:
        """Run the calls of a text, or end the user's turn where it has none."""
        if self._task is None:
            raise StateError("step: the episode has not begun or is over; should call reset first")
        try:
            calls = parse_calls(text, max_chars=self.limits.text_chars, max_calls=self.limits.calls)
            if not calls:
                return self._end_turn()
            self._steps += 1
            if self._steps > self.steps_per_turn:
                return self._over("step limit")
            return self._result(
                self._answers([(c, self._call(c)) for c in calls]), calls=len(calls)
            )
        except CallError as error:
            self._steps += 1
            if self._steps > self.steps_per_turn:
                return self._over("step limit")
            return self._result([self._answer(None, f"Error: {error}")], calls=0)
        except WorkerFailure as error:
            return self._over(error.reason)

    def close(self) -> None:
        """End the process of the tools."""
        self._end()
        if self._hold is not None:
            self._hold.close()
            self._hold = None

    # -- parts -----------------------------------------------------------------------------------

    def _keep(self) -> None:
        """Keep the imports of the tools from now until `close`."""
        if self._hold is None:
            self._hold = Hold(_BACKEND, preload=_PRELOAD)

    def _begin_turn(self) -> None:
        self._steps = 0
        self._called = False

    def _question(self) -> list[Message]:
        """Return what the user says at this turn."""
        assert self._task is not None
        asked = [
            message(item["role"], item["content"]) for item in self._task.questions[self._turn]
        ]
        added = self._task.held_out.get(self._turn, ())
        if added:
            shown = ""
            if self.tools_in == "prompt":
                docs = [self._task.schemas[name]["function"] for name in added]
                shown = ":\n" + json.dumps(docs) + "\n"
            asked.append(message("user", _MORE.format(functions=shown)))
        return asked

    def _call(self, call: Call) -> str:
        assert self._task is not None
        schema = self._task.schemas.get(call.name)
        if schema is None:
            return clip(f"Error: there is no function {call.name}", self.limits.output_chars)
        known = schema["function"]["parameters"]["properties"]
        for name in call.kwargs:
            if name not in known:
                return f"Error: {call.name} has no argument {name}; it has {', '.join(known) or 'none'}"
        if len(call.args) > len(known):
            return f"Error: {call.name} takes at most {len(known)} arguments, not {len(call.args)}"
        self._called = True
        answer = self._ask({"call": str(call), "chars": self.limits.output_chars})
        return clip(answer["output"], self.limits.output_chars)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Ask the worker within what is left of the episode's time."""
        assert self._worker is not None
        left = self.limits.episode_seconds - self._spent
        if left <= 0:
            raise WorkerFailure("time limit", "the episode's time is used up")
        start = time.monotonic()
        try:
            return self._worker.call(request, min(left, self.limits.seconds))
        except WorkerFailure:
            raise
        except EnvironmentFault as error:  # an error outside the tools' own code, such as memory
            raise WorkerFailure("died", str(error)) from None
        finally:
            self._spent += time.monotonic() - start

    def _answers(self, results: list[tuple[Call, str]]) -> list[Message]:
        if self.result_role == "tool":
            return [self._answer(call.name, output) for call, output in results]
        return [message("user", "\n".join(f"Result of {c.name}: {out}" for c, out in results))]

    def _answer(self, name: str | None, output: str) -> Message:
        more = {"name": name} if name and self.result_role == "tool" else {}
        return message(self.result_role, output, **more)

    def _end_turn(self) -> StepResult:
        """Check the user's turn that ends, and begin the next or end the episode."""
        assert self._task is not None
        truth = format_calls(self._task.ground_truth[self._turn])
        asked = {"turn": self._turn, "truth": truth, "called": self._called}
        self._failure = self._ask(asked)["failure"]
        info = {"turn": self._turn, "calls": 0, "failure": self._failure}
        if self._turn + 1 == self._task.turns or (self._failure and self.stop_early):
            success = not self._failure
            self._end()
            return StepResult([], float(success), True, info | {"success": success})
        self._turn += 1
        self._begin_turn()
        return StepResult(self._question(), 0.0, False, info)

    def _result(self, messages: list[Message], calls: int) -> StepResult:
        info = {"turn": self._turn, "calls": calls, "failure": self._failure}
        return StepResult(messages, 0.0, False, info)

    def _over(self, reason: str) -> StepResult:
        """End the episode at a limit, with reward 0."""
        info = {
            "turn": self._turn,
            "calls": 0,
            "failure": reason,
            "success": False,
            "truncated": True,
        }
        self._end()
        return StepResult([], 0.0, True, info)

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = self._task = None


def ground_truth_texts(task: BFCLTask) -> list[str]:
    """Return the texts that solve a task: for each turn of the user the calls, then words.

    Raises nothing; played by `BFCLMultiTurn` they earn 1.
    """
    texts = []
    for calls in task.ground_truth:
        texts += ([format_calls(calls)] if calls else []) + ["Done."]
    return texts


def find_task(task: str) -> BFCLTask:
    """Return a task of any category by its id."""
    for category in CATEGORIES:
        if task.rsplit("_", 1)[0].endswith(category):
            return load_tasks(category)[task]
    raise TaskError(f"task = {task!r}: should be an id such as 'multi_turn_base_0'")
