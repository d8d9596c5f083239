"""Tasks and function descriptions of BFCL v4 multi-turn, read from the installed package.

`bfcl-eval` ships the four categories of 200 tasks each, their ground truths, and a description of
every function (its parameter types "dict", "float", "tuple", "any" are those of no JSON schema, and
become ones that chat templates know). Nothing of the package is imported here. The field
`excluded_function` of a few tasks is not read: neither does the package's evaluation.

Source: the Berkeley Function-Calling Leaderboard, version 4 (package `bfcl-eval`, Apache-2.0).
"""

import functools
import importlib.util
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .base import NotInstalledError, TaskError
from .bfcl_parser import Call, parse_calls

__all__ = ["CATEGORIES", "BFCLTask", "function_schema", "load_tasks"]

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")

# One file of descriptions for each class of tools that multi-turn tasks use.
_DESCRIPTIONS = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "list": "array", "any": "string"}


@dataclass(frozen=True)
class BFCLTask:
    """One task: what the user says a turn, the tools and their state, and the calls that solve it.

    `questions` [turn] messages (empty where functions are added instead), `ground_truth` [turn]
    calls, `held_out` turn → names of the functions that appear then, `methods` class → names of its
    functions, `schemas` name → schema, in the order of the descriptions.
    """

    id: str
    category: str
    questions: tuple[tuple[dict[str, Any], ...], ...]
    ground_truth: tuple[tuple[Call, ...], ...]
    initial_config: Mapping[str, Any]
    methods: Mapping[str, tuple[str, ...]]
    schemas: Mapping[str, dict[str, Any]]
    held_out: Mapping[int, tuple[str, ...]]

    @property
    def turns(self) -> int:
        """Number of turns of the user."""
        return len(self.questions)

    def visible(self, turn: int) -> list[str]:
        """Return the names of the functions that may be called at a turn of the user."""
        hidden = {name for at, names in self.held_out.items() if at > turn for name in names}
        return [name for name in self.schemas if name not in hidden]


@functools.cache
def load_tasks(category: str) -> Mapping[str, BFCLTask]:
    """Return the 200 tasks of a category by their ids, in the order of the file.

    >>> load_tasks("hard")
    Traceback (most recent call last):
    ...
    llm_bridge.environments.base.TaskError: category 'hard': should be one of base, miss_func, miss_param, long_context
    """
    if category not in CATEGORIES:
        raise TaskError(f"category {category!r}: should be one of {', '.join(CATEGORIES)}")
    name = f"BFCL_v4_multi_turn_{category}.json"
    truths = {row["id"]: row["ground_truth"] for row in _rows(f"possible_answer/{name}")}
    return {row["id"]: _task(row, truths[row["id"]], category) for row in _rows(name)}


def _task(row: dict[str, Any], truth: list[list[str]], category: str) -> BFCLTask:
    classes = row["involved_classes"]
    schemas: dict[str, dict[str, Any]] = {}
    for name in classes:
        schemas |= _descriptions(name)
    return BFCLTask(
        id=row["id"],
        category=category,
        questions=tuple(tuple(turn) for turn in row["question"]),
        ground_truth=tuple(
            tuple(call for text in turn for call in parse_calls(text)) for turn in truth
        ),
        initial_config=row["initial_config"],
        methods={name: tuple(_descriptions(name)) for name in classes},
        schemas=schemas,
        held_out={
            int(turn): tuple(names) for turn, names in row.get("missed_function", {}).items()
        },
    )


@functools.cache
def _descriptions(class_name: str) -> Mapping[str, dict[str, Any]]:
    rows = _rows(f"multi_turn_func_doc/{_DESCRIPTIONS[class_name]}.json")
    return {row["name"]: function_schema(row) for row in rows}


def function_schema(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema that chat templates take, from a description of the package.

    >>> function_schema({"name": "f", "description": "d", "parameters": {"type": "dict",
    ...     "properties": {"x": {"type": "float"}}, "required": ["x"]}})["function"]["parameters"]
    {'type': 'object', 'properties': {'x': {'type': 'number'}}, 'required': ['x']}
    """
    return {
        "type": "function",
        "function": {
            "name": description["name"],
            "description": description["description"],
            "parameters": _schema(description["parameters"]),
        },
    }


def _schema(node: Any) -> Any:
    """Rename the types of a schema; a parameter may itself be called "type"."""
    if not isinstance(node, Mapping):
        return node
    out: dict[str, Any] = {}
    for key, value in node.items():
        if key == "type" and isinstance(value, str):
            out[key] = _TYPES.get(value, value)
        elif key == "properties":
            out[key] = {name: _schema(item) for name, item in value.items()}
        else:
            out[key] = _schema(value)
    return out


def _rows(name: str) -> Iterator[dict[str, Any]]:
    spec = importlib.util.find_spec("bfcl_eval")
    if spec is None or not spec.submodule_search_locations:
        raise NotInstalledError(
            "bfcl-eval", "pip install mpmath, and pip install --no-deps bfcl-eval"
        )
    path = Path(spec.submodule_search_locations[0]) / "data" / name
    with path.open(encoding="utf-8") as file:
        yield from (json.loads(line) for line in file if line.strip())
