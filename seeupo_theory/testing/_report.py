"""What a failed law prints: code that rebuilds the failure, and the command that repeats it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bandits.graph import DecisionGraph
from seeupo_theory.rules.presets import PRESETS, Algorithm
from seeupo_theory.testing._policy import Policy

__all__ = ["algorithm_code", "command", "label", "place", "problem", "step_call", "switches"]

COMMAND_SWITCHES = frozenset(
    {
        *(
            "lr",
            "epochs",
            "clip",
            "order",
            "baseline",
            "normalise",
            "std_eps",
            "level",
            "objective",
        ),
        *("reference", "advantage_clip", "factor_clip", "product_clip", "dual_clip", "kl_coef"),
        *("gae_lambda", "support"),
    }
)
"""Fields of `Algorithm` that ``seeupo step`` has an option for."""


def label(rule: Any) -> str:
    """How a rule is called in a message.

    >>> label(Algorithm("mine")), label(sorted)
    ('mine', 'sorted')
    """
    if isinstance(rule, str):
        return rule
    if isinstance(rule, Algorithm):
        return rule.name
    return str(getattr(rule, "__name__", None) or repr(rule))


def problem(model: Any, policy: Any) -> str:
    """Two lines of code: model and policy."""
    return f"model = {model!r}\npolicy = {_policy_code(policy)}"


def _policy_code(policy: Any) -> str:
    if policy is None:
        return "None  # uniform"
    if isinstance(policy, (Policy, str)):
        return repr(policy)
    return repr([np.asarray(table, dtype=float).tolist() for table in policy])


def place(graph: DecisionGraph, turn: int, row: int, action: int) -> str:
    """Where an entry of a policy table is; of a bandit, with the history.

    >>> from bandits import SequentialBandit
    >>> place(SequentialBandit([[[0, 1], [1, 0]]]).graph(), 1, 1, 0)
    'turn 2 after context 0 and actions (1,), action 0'
    """
    if any(not layer.implicit or layer.observation is not None for layer in graph.layers):
        return f"turn {turn + 1}, row {row}, action {action}"
    before: list[int] = []
    history = row
    for count in reversed(graph.actions[:turn]):
        history, taken = divmod(history, count)
        before.insert(0, taken)
    past = f" and actions {tuple(before)}" if before else ""
    return f"turn {turn + 1} after context {history}{past}, action {action}"


def _differences(algorithm: Algorithm, base: Algorithm) -> dict[str, Any]:
    return {
        f.name: getattr(algorithm, f.name)
        for f in dataclasses.fields(Algorithm)
        if f.name not in ("name", "summary") and getattr(algorithm, f.name) != getattr(base, f.name)
    }


def switches(algorithm: Algorithm) -> tuple[str | None, dict[str, Any]]:
    """The nearest preset (its own, where the name is one) and the switches that differ from it.

    (None, switches): nearest to ``Algorithm()``, because of a function of the user's.

    >>> switches(PRESETS["grpo"].replace(lr=2.0))
    ('grpo', {'lr': 2.0})
    """
    if callable(algorithm.estimator) or callable(algorithm.objective):
        return None, _differences(algorithm, Algorithm())
    names = [algorithm.name] if algorithm.name in PRESETS else list(PRESETS)
    name = min(names, key=lambda n: len(_differences(algorithm, PRESETS[n])))
    return name, _differences(algorithm, PRESETS[name])


def algorithm_code(algorithm: Algorithm) -> str:
    """Code of an algorithm.

    >>> algorithm_code(PRESETS["grpo"].replace(lr=2.0))
    "PRESETS['grpo'].replace(lr=2.0)"
    """
    name, changed = switches(algorithm)
    inner = _keywords(changed)
    if name is None:
        return f"Algorithm({inner})"
    return f"PRESETS[{name!r}]" + (f".replace({inner})" if changed else "")


def step_call(algorithm: Algorithm, options: Mapping[str, Any]) -> str:
    """The call that repeats a step.

    >>> step_call(PRESETS["grpo"].replace(lr=2.0), {"group_size": 3})
    "seeupo_theory.step(model, policy, algorithm='grpo', group_size=3, lr=2.0)"
    """
    name, changed = switches(algorithm)
    if name is None:
        words = [f"algorithm={algorithm_code(algorithm)}", _keywords(options)]
    else:
        words = [f"algorithm={name!r}", _keywords({**options, **changed})]
    return f"seeupo_theory.step(model, policy, {', '.join(filter(None, words))})"


def _keywords(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={_code(value)}" for key, value in values.items())


def _code(value: Any) -> str:
    if isinstance(value, float) and value == float("inf"):
        return "math.inf"
    return str(getattr(value, "__name__", None) or repr(value))


def _importable(rule: Callable[..., Any]) -> str | None:
    path = getattr(rule, "__qualname__", "<")
    return None if "<" in path else f"{rule.__module__}:{path}"


def command(algorithm: Algorithm, options: Mapping[str, Any]) -> str | None:
    """The ``seeupo step`` command that repeats a step, or None where it has no such option.

    >>> command(PRESETS["seeupo"].replace(order=(1, 0), clip=(0.2, 0.3)), {"group_size": 3})
    'seeupo step model.json --policy policy.json --algorithm seeupo --group-size 3 --clip 0.2,0.3 \
--order 2,1'
    """
    name, changed = switches(algorithm)
    if name is None:
        custom = [key for key in ("estimator", "objective") if callable(changed.get(key))]
        name = _importable(changed.pop(custom[0])) if len(custom) == 1 else None
    plain = set(options) <= {"group_size", "contexts_per_batch", "seed", "param", "observe"}
    if name is None or not plain or not set(changed) <= COMMAND_SWITCHES:
        return None
    words = ["seeupo", "step", "model.json", "--policy", "policy.json", "--algorithm", name]
    for key, value in {**options, **changed}.items():
        if value is None:
            return None
        if key == "order" and isinstance(value, tuple):
            value = ",".join(str(t + 1) for t in value)
        elif isinstance(value, tuple):
            value = ",".join(map(repr, value))
        words += [f"--{key.replace('_', '-')}", str(value)]
    return shlex.join(words)
