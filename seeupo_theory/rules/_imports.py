"""A user's own rule by import path, tried on a small array before any work starts."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from seeupo_theory.rules._algorithm import Algorithm
from seeupo_theory.rules._arrays import unknown

HOMOGENEITY = 1e-9
"""Relative error allowed in f(2A) = 2 f(A): rounding of a handful of float64 operations."""

_RETURNS = np.array([[0.0, 1.0, 3.0], [2.0, 2.0, 7.0]])


def load(path: str) -> Algorithm:
    """Algorithm made from what "module:attribute" names; see `presets.get`."""
    found = resolve(path)
    if isinstance(found, Algorithm):
        return found
    if isinstance(found, type) or not callable(found):
        raise ValueError(
            f"{path} is {_article(found)}; it should be an Algorithm, an estimator "
            "(one argument) or an objective (log_prob, log_prob_old, advantage, weight)"
        )
    count = _required(found, path)
    if count == 1:
        check_estimator(found, path)
        return Algorithm(name=path, estimator=found)
    check_objective(found, path)
    return Algorithm(name=path, objective=found)


def _article(found: Any) -> str:
    return f"the class {found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"


def resolve(path: str) -> Any:
    """The object that "package.module:attribute" names."""
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute or module_name.startswith("."):
        raise ValueError(f"algorithm is {path!r}; an import path should be module:attribute")
    here = str(Path.cwd())
    added = here not in sys.path and "" not in sys.path
    if added:
        sys.path.append(here)
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        raise ValueError(
            f"{path}: module {module_name!r} cannot be imported "
            f"({type(error).__name__}: {_line(error)})"
        ) from error
    finally:
        if added:
            sys.path.remove(here)
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = (
                [n for n in vars(found) if not n.startswith("_")]
                if hasattr(found, "__dict__")
                else []
            )
            raise ValueError(unknown(part, f"{path}: attribute", public or ["(nothing)"]))
        found = getattr(found, part)
    return found


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _required(rule: Callable[..., Any], path: str) -> int:
    """1 for an estimator, 3 for an objective, from the positional parameters without default."""
    try:
        parameters = inspect.signature(rule).parameters.values()
    except (TypeError, ValueError):
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [p for p in parameters if p.kind in kinds]
    needed = sum(p.default is inspect.Parameter.empty for p in positional)
    if needed == 1:
        return 1
    if needed in (3, 4) and len(positional) >= 4:
        return 3
    raise ValueError(
        f"{path} takes {needed} arguments; it should take 1 (an estimator: returns) or 4 (an "
        "objective: log_prob, log_prob_old, advantage, weight)"
    )


def check_estimator(rule: Callable[..., Any], label: str) -> None:
    """Raise ValueError unless returns [2, 3] give finite advantages [2, 3]."""
    given = _RETURNS.copy()
    out = _call(rule, label, given)
    _expect(out, _RETURNS.shape, label, "an estimator: returns [..., contexts, group] in and out")
    if not np.array_equal(given, _RETURNS):
        raise ValueError(f"{label} writes into its argument; an estimator should not")
    if getattr(rule, "couples", "group") not in ("group", "batch"):
        raise ValueError(f"{label}.couples is {rule.couples!r}; it should be 'group' or 'batch'")  # type: ignore[attr-defined]


def check_objective(rule: Callable[..., Any], label: str) -> None:
    """Raise ValueError unless one finite number a sample, positively homogeneous in advantage."""
    new, old = np.log(np.array([0.5, 0.3, 0.2])), np.log(np.array([0.4, 0.4, 0.2]))
    for sign in (1.0, -1.0):
        advantage = np.full(3, sign)
        one = _call(rule, label, new, old, advantage, np.ones(3))
        _expect(one, (3,), label, "an objective: one value a sample")
        two = _call(rule, label, new, old, 2 * advantage, np.ones(3))
        if not np.allclose(two, 2 * np.asarray(one), rtol=HOMOGENEITY, atol=HOMOGENEITY):
            raise ValueError(
                f"{label} is not positively homogeneous in the advantage: f(2A) ≠ 2 f(A); exact "
                "expectations need it"
            )


def _call(rule: Callable[..., Any], label: str, *arguments: Any) -> Any:
    try:
        return rule(*arguments)
    except Exception as error:
        raise ValueError(
            f"{label} fails on a small NumPy array ({type(error).__name__}: {_line(error)}); "
            "it should work on any array library"
        ) from error


def _expect(out: Any, shape: tuple[int, ...], label: str, form: str) -> None:
    got = tuple(np.shape(out))
    if got != shape:
        raise ValueError(f"{label} returns shape {got} for {shape}; it should be {form}")
    if not np.all(np.isfinite(np.asarray(out, dtype=float))):
        raise ValueError(f"{label} returns values that are not finite; it should be {form}")
