"""The tools of one BFCL episode, in a process of their own; the trainer never imports this.

Two sets of instances are built from the task's initial configuration: the model's calls change one,
the ground truth's calls the other. At the end of each turn of the user the package's own checkers
compare them: equal public state of every instance, and every result of this turn's ground truth
among the results that the model has had so far. A turn whose ground truth is empty asks nothing; a
turn whose ground truth is not empty needs at least one call.

Calls arrive as text and are read again by the literal parser. A function is looked up among the
names that the task's descriptions list, on the class, never by an attribute that a text chose.

Source: package `bfcl-eval`, `multi_turn_checker.state_checker` and `.response_checker`.
"""

import copy
import decimal
import functools
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .bfcl_parser import Call, parse_calls

_CHECKER = "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker"
_CONSTANTS = "bfcl_eval.constants.executable_backend_config"
_TEXT_LIMIT = 2**20  # the trainer has checked sizes; this only has to be no smaller
_DECIMAL_DIGITS = 28  # the default precision of `decimal`
_MPMATH_DIGITS = 15  # the default precision of `mpmath`


class Episode:
    """Both sets of instances, and what has been answered so far."""

    def __init__(
        self,
        initial_config: Mapping[str, Any],
        methods: Mapping[str, Sequence[str]],
        long_context: bool,
    ) -> None:
        checker = importlib.import_module(_CHECKER)
        self._same_state = checker.state_checker
        self._has_responses = checker.response_checker
        self._model = _instances(initial_config, methods, long_context)
        self._truth = _instances(initial_config, methods, long_context)
        # A name that two classes share belongs to the later one, as in the package's executor.
        self._owner = {name: class_ for class_, names in methods.items() for name in names}
        self._responses: list[str] = []
        self._failure = ""

    def handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer {"call": text, "chars": limit} or {"turn": number, "truth": text, "called": bool}."""
        if "call" in request:
            (call,) = parse_calls(request["call"], max_chars=_TEXT_LIMIT)
            output = self._run(self._model, call)
            self._responses.append(output)
            limit = int(request["chars"])  # what the trainer would cut is not sent
            return {
                "output": output[:limit] + output[-limit:] if len(output) > 2 * limit else output,
                "chars": len(output),
            }
        if not self._failure:
            self._failure = self._end_turn(
                request["turn"],
                parse_calls(request["truth"], max_chars=_TEXT_LIMIT, max_calls=_TEXT_LIMIT),
                request["called"],
            )
        return {"failure": self._failure}

    def _end_turn(self, turn: int, truth: Sequence[Call], called: bool) -> str:
        """Return "" if the turn is right, else what is wrong."""
        wanted = [self._run(self._truth, call) for call in truth]
        if not truth:
            return ""
        if not called:
            return "no call"
        try:
            if not self._same_state(self._model, self._truth)["valid"]:
                return "state"
            if not self._has_responses(self._responses, wanted, turn)["valid"]:
                return "responses"
        except RecursionError:  # directories copied into themselves; the ground truth has none
            return "state"
        return ""

    def _run(self, instances: Mapping[str, Any], call: Call) -> str:
        """Return the result of a call as text; what it raises is a result too."""
        _default_precision()
        try:
            if call.name not in self._owner:
                raise NameError(f"there is no function {call.name}")
            instance = instances[self._owner[call.name]]
            method: Callable[..., Any] = getattr(type(instance), call.name)
            result = method(instance, *call.args, **call.kwargs)
            if isinstance(result, str):
                return result
            if isinstance(result, dict):
                try:
                    return json.dumps(result)
                except (TypeError, ValueError, RecursionError):
                    pass  # holds an object, such as a number of mpmath
            return str(result)
        except Exception as error:
            return f"Error during execution: {str(error) or type(error).__name__}"


def _instances(
    initial_config: Mapping[str, Any], classes: Mapping[str, Any], long_context: bool
) -> dict[str, Any]:
    constants = importlib.import_module(_CONSTANTS)
    out = {}
    for name in classes:
        class_ = getattr(importlib.import_module(constants.CLASS_FILE_PATH_MAPPING[name]), name)
        out[name] = class_()
        if name not in constants.STATELESS_CLASSES:
            config = copy.deepcopy(initial_config.get(name, {}))
            out[name]._load_scenario(config, long_context=long_context)
    return out


@functools.cache
def _mpmath() -> Any:
    return importlib.import_module("mpmath")


def _default_precision() -> None:
    """Undo what an earlier call did to the precision of the process."""
    decimal.getcontext().prec = _DECIMAL_DIGITS
    _mpmath().mp.dps = _MPMATH_DIGITS
