"""The file format for models and policies: JSON, with every error on one line.

A bandit: {"format": "seeupo-model/1", "kind": "bandit", "context_probs": [..], "rewards":
[context][a1]…[aT]}. A leaf is a number, a fraction string such as "3/10", or {"values": [..],
"probs": [..]}; `context_probs` may be left out (uniform).

An MDP: {"format": "seeupo-model/1", "kind": "mdp", "horizon": T, "discount": 1, "initial": [s],
"transitions": [s][a][s'], "rewards": [s][a]}, leaves as above; rewards may also be [s][a][s'].
One table a turn is given under `transitions_by_turn`, `rewards_by_turn`, `mask_by_turn` instead.
Optional: `discount`, `mask` [s][a] and `absorbing` [s] (true or false).

Both may have a `name`, and an observation map: `observe` (a name, rows [turn][node], or a flat
map of rows) with `shared` (true or false), see `aliasing`.

A policy: {"format": "seeupo-policy/1", "probs": [turn][history or state][action]}. History index:
context-major, then a_1, a_2, … row-major.

Unknown or repeated keys, NaN and Infinity are errors. Fractions survive a round trip.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from .aliasing import AliasedModel, alias
from .errors import ModelError, fail, show
from .exact import ExactArray, FloatArray, is_list, parse_probabilities
from .graph import DecisionGraph
from .limits import require_fits
from .mdp import TabularMDP
from .sample import require_tables
from .sequential import SequentialBandit

__all__ = [
    "MODEL_FORMAT",
    "POLICY_FORMAT",
    "ModelError",
    "load_model",
    "load_policy",
    "model_from_dict",
    "model_to_dict",
    "read_policy",
    "save_model",
    "save_policy",
]

MODEL_FORMAT = "seeupo-model/1"
POLICY_FORMAT = "seeupo-policy/1"
# Bytes of Python objects for one byte of JSON: "0, " becomes a pointer and a number of 24 bytes.
_JSON_GROWTH = 12

_COMMON = {"format", "kind", "name", "observe", "shared"}
_KEYS = {
    "bandit": _COMMON | {"context_probs", "rewards"},
    "mdp": _COMMON
    | {"horizon", "discount", "initial", "absorbing"}
    | {f"{key}{by}" for key in ("transitions", "rewards", "mask") for by in ("", "_by_turn")},
}

Model = SequentialBandit | TabularMDP | AliasedModel
PathLike = str | os.PathLike[str]


def load_model(path: PathLike) -> Model:
    """Read a model from a JSON file; raises ModelError, one line that begins with the path."""
    data = _read_json(path)
    try:
        return model_from_dict(data)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


def model_from_dict(data: Any) -> Model:
    """Build a model from the content of a file.

    >>> model_from_dict({"format": "seeupo-model/1", "kind": "bandit", "rewards": [[0, "1/3"]]})
    SequentialBandit([[0, '1/3']])
    """
    data = _require_object(data, MODEL_FORMAT)
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in _KEYS:
        fail(f'"kind" = {show(kind)}', 'should be "bandit" or "mdp"')
    _require_keys(data, _KEYS[kind])
    model = _bandit(data) if kind == "bandit" else _mdp(data)
    shared = data.get("shared", False)
    if not isinstance(shared, bool):
        fail(f'"shared" = {show(shared)}', "should be true or false")
    if "observe" not in data:
        if shared:
            fail('"shared"', 'is true, should come with "observe"')
        return model
    observe = data["observe"]
    if not isinstance(observe, (str, list)):
        fail(f'"observe" = {show(observe)}', "should be a name or lists of rows")
    aliased = alias(model, observe, shared=shared)
    return aliased


def _bandit(data: dict[str, Any]) -> SequentialBandit:
    _require_present(data, "rewards")
    return SequentialBandit(
        _require_list(data, "rewards"), data.get("context_probs"), name=data.get("name", "")
    )


def _mdp(data: dict[str, Any]) -> TabularMDP:
    _require_present(data, "horizon", "initial")
    transitions, _ = _table(data, "transitions")
    rewards, by_turn = _table(data, "rewards")
    mask = _table(data, "mask")[0] if {"mask", "mask_by_turn"} & set(data) else None
    return TabularMDP(
        transitions,
        rewards,
        _require_list(data, "initial"),
        data["horizon"],
        data.get("discount", 1),
        absorbing=_flags("absorbing", data["absorbing"]) if "absorbing" in data else None,
        mask=None if mask is None else _flags("mask", mask),
        on_transition=_depth(rewards) - by_turn == 3,
        name=data.get("name", ""),
    )


def _table(data: dict[str, Any], key: str) -> tuple[Any, bool]:
    """Return the table given under `key` or `key`_by_turn, and which of the two."""
    by_turn = f"{key}_by_turn"
    if (key in data) == (by_turn in data):
        both = "both given" if key in data else "missing"
        fail(f'"{key}"', f'and "{by_turn}" are {both}, should have one of them')
    used = by_turn if by_turn in data else key
    table = _require_list(data, used)
    depth = _depth(table) - (used == by_turn)
    depths = (2, 3) if key == "rewards" else (3,) if key == "transitions" else (2,)
    if depth not in depths:
        turn = "[turn]" if used == by_turn else ""
        shape = {"transitions": "[s][a][s']", "rewards": "[s][a] or [s][a][s']", "mask": "[s][a]"}
        fail(f'"{used}"', f"has {_depth(table)} levels, should be {turn}{shape[key]}")
    return table, used == by_turn


def _depth(item: Any) -> int:
    depth = 0
    while is_list(item) and len(item):
        item, depth = item[0], depth + 1
    return depth


def _flags(field: str, data: Any) -> Any:
    try:
        array = np.array(data)
    except ValueError:
        array = np.array(None)
    if array.dtype != np.bool_:
        fail(field, "should be lists of true and false, all of the same length")
    return array


def model_to_dict(model: Model) -> dict[str, Any]:
    """Return the content of a model's file; the inverse of `model_from_dict`.

    Raises ModelError for a map that is a function (write its rows instead).

    >>> model_to_dict(SequentialBandit([[0, "1/3"]]))
    {'format': 'seeupo-model/1', 'kind': 'bandit', 'rewards': [[0, '1/3']]}
    """
    if isinstance(model, AliasedModel):
        out = model_to_dict(model.model)
        if callable(model.observe):
            fail("observe", "is a function, should be a name or rows to be written to a file")
        if isinstance(model.observe, str):
            out["observe"] = model.observe
        else:
            out["observe"] = [np.asarray(rows).tolist() for rows in model.observe]
        return {**out, "shared": True} if model.shared else out
    if not isinstance(model, (SequentialBandit, TabularMDP)):
        fail("model", f"is a {type(model).__name__}, should be a bandit or an MDP")
    out = {
        "format": MODEL_FORMAT,
        "kind": "bandit" if isinstance(model, SequentialBandit) else "mdp",
    }
    if model.name:
        out["name"] = model.name
    if isinstance(model, SequentialBandit):
        if not model.uniform_contexts:
            out["context_probs"] = model.contexts_exact.code()
        out["rewards"] = model.rewards.code()
        return out
    by_turn = "_by_turn" if model.transitions.ndim == 4 else ""
    paid_by_turn = "_by_turn" if len(model.rewards.shape) == 3 + model.on_transition else ""
    out["horizon"] = model.horizon
    out["discount"] = model.discount_exact.code()[0]
    out["initial"] = model.initial_exact.code()
    out[f"transitions{by_turn}"] = model.transitions_exact.code()
    out[f"rewards{paid_by_turn}"] = model.rewards.code()
    if model.mask is not None:
        out["mask_by_turn" if model.mask.ndim == 3 else "mask"] = model.mask.tolist()
    if model.absorbing.any():
        out["absorbing"] = model.absorbing.tolist()
    return out


def save_model(model: Model, path: PathLike) -> None:
    """Write a model to a JSON file, whole or not at all."""
    _write_json(model_to_dict(model), path)


def read_policy(path: PathLike) -> list[ExactArray]:
    """Read a policy file as tables [rows, A_t] that keep their fractions."""
    data = _read_json(path)
    try:
        data = _require_object(data, POLICY_FORMAT)
        _require_keys(data, {"format", "probs"})
        _require_present(data, "probs")
        probs = _require_list(data, "probs")
        if not probs:
            fail('"probs"', "is an empty list, should have one table a turn")
        tables = [parse_probabilities(f"probs[{t}]", table) for t, table in enumerate(probs)]
        for t, table in enumerate(tables):
            if table.values.ndim != 2:
                fail(f"probs[{t}]", "should be a table [history or state][action]")
        return tables
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


def load_policy(path: PathLike, model: Model | DecisionGraph | None = None) -> list[FloatArray]:
    """Read a policy file: tables [O_t, A_t] of probabilities, checked against `model` if given.

    Raises ModelError, one line that begins with the path.
    """
    tables = [table.values for table in read_policy(path)]
    if model is None:
        return tables
    graph = model if isinstance(model, DecisionGraph) else model.graph()
    try:
        return require_tables(graph, tables)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


def save_policy(tables: Sequence[ArrayLike | ExactArray], path: PathLike) -> None:
    """Write policy tables to a JSON file, whole or not at all."""
    exact = [
        table if isinstance(table, ExactArray) else parse_probabilities(f"policy[{t}]", table)
        for t, table in enumerate(tables)
    ]
    _write_json({"format": POLICY_FORMAT, "probs": [table.code() for table in exact]}, path)


# Reading and writing ----------------------------------------------------------------------------


def _read_json(path: PathLike) -> Any:
    file = Path(path)
    try:
        size = file.stat().st_size
        require_fits(_JSON_GROWTH * size, f"{path}: reading {size} bytes of JSON")
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise ModelError(f"{path}: is no text in UTF-8, should be a JSON file") from None
    if not text.strip():
        raise ModelError(f"{path}: is empty, should hold a JSON object")
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ModelError(f"{path}: {where}: is no valid JSON ({error.msg})") from None
    except RecursionError:
        raise ModelError(f"{path}: is nested too deeply, should be a model or a policy") from None
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    except ValueError:  # an integer of thousands of digits
        raise ModelError(f"{path}: has a number too long to read, should fit a float64") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        fail(f'"{twice}"', "is given twice in one object, should be given once")
    return out


def _constant(name: str) -> NoReturn:
    fail(name, "is no JSON number, should be finite")


def _write_json(data: dict[str, Any], path: PathLike) -> None:
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_text(json.dumps(data, allow_nan=False) + "\n", encoding="utf-8")
        part.replace(target)
    except OSError as error:
        raise ModelError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        part.unlink(missing_ok=True)


def _require_object(data: Any, format_name: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        fail("the file", f"holds a {type(data).__name__}, should hold a JSON object")
    if data.get("format") != format_name:
        found = show(data["format"]) if "format" in data else "missing"
        fail(f'"format" = {found}', f'should be "{format_name}"')
    return data


def _require_keys(data: dict[str, Any], known: set[str]) -> None:
    for key in data:
        if key not in known:
            fail(f'"{key}"', f"is an unknown key, should be one of {', '.join(sorted(known))}")


def _require_present(data: dict[str, Any], *keys: str) -> None:
    for key in keys:
        if key not in data:
            fail(f'"{key}"', "is missing, should be given")


def _require_list(data: dict[str, Any], key: str) -> Any:
    if not isinstance(data[key], list):
        fail(f'"{key}" = {show(data[key])}', "should be a list")
    return data[key]
