"""From a user's request to the settings that a search cycles through, checked before any work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from seeupo_theory.claims.falsify._instance import PARAMS
from seeupo_theory.claims.falsify._readings import PROPERTIES, Setting
from seeupo_theory.claims.falsify._space import Space
from seeupo_theory.rules._arrays import choice
from seeupo_theory.rules.presets import Algorithm

__all__ = ["REWARDS", "settings"]

REWARDS = ("random", "deterministic")

ATOMS = 2
"""Reward atoms a leaf where rewards are random: the fewest that make a reward random."""

GROUP_SIZES = (2.0, math.inf, 4.0)
"""Sizes tried where none is asked for: the smallest group, the population, and one between."""

OWN_GROUP_SIZES = (2.0, 4.0)
"""The same for a user's estimator, whose limit for infinite groups is unknown."""

OWN_BATCH = 2.0
"""Contexts of a batch for a user's estimator that couples groups; its infinite limit is unknown."""

MAX_MULTISETS = 512
"""Entries of the groups enumerated for one point; more distinct rewards than fit are not drawn."""

MAX_BATCHES = 40_000
"""The same where all batches of a user's coupled estimator are enumerated."""

MAX_LEAVES = 4096
"""Largest model searched: counterexamples are small, and thousands must fit a batch."""

SHARED_ROWS, DIMENSION = 3, 2
"""Rows of a shared table and features of a log-linear policy: few, so that turns interfere."""


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least `least`, or ValueError."""
    if isinstance(value, bool) or not float(value).is_integer() or value < least:
        raise ValueError(f"{name} is {value!r}; expected a whole number of at least {least}")
    return int(value)


def size(name: str, value: Any) -> float:
    """A whole number of at least 1, or inf."""
    if value == math.inf:
        return math.inf
    return float(whole(name, value))


def _actions(actions: int | Sequence[int], turns: int) -> tuple[int, ...]:
    counts = [actions] * turns if isinstance(actions, int) else list(actions)
    if len(counts) != turns:
        raise ValueError(
            f"actions has {len(counts)} entries; expected one for each of {turns} turns"
        )
    return tuple(whole(f"actions[{t}]", a, 2) for t, a in enumerate(counts))


def settings(
    algorithm: Algorithm,
    prop: str,
    *,
    turns: int,
    actions: int | Sequence[int],
    contexts: int,
    param: str,
    reward: str,
    group_size: float | None,
    contexts_per_batch: float | None,
    fixed: frozenset[str],
) -> list[tuple[Setting, Space]]:
    """The (setting, space) pairs of a search, cheapest first.

    Raises:
        ValueError: an unknown name, a size out of range, or a combination without meaning.
    """
    choice(prop, "property", PROPERTIES)
    choice(param, "param", PARAMS)
    choice(reward, "reward", REWARDS)
    counts = _actions(actions, whole("turns", turns))
    contexts = whole("contexts", contexts)
    if contexts * math.prod(counts) > MAX_LEAVES:
        raise ValueError(
            f"{contexts} contexts with actions {counts} make {contexts * math.prod(counts)} leaves; "
            f"expected at most {MAX_LEAVES}"
        )
    if param == "shared" and len(set(counts)) > 1:
        raise ValueError(f"param 'shared' needs equally many actions at each turn, not {counts}")
    _sensible(algorithm, prop, param)
    batch = _batch(algorithm, contexts_per_batch)
    sizes = _sizes(algorithm, group_size)
    atoms = ATOMS if reward == "random" else 1
    out = []
    for scope in _scopes(algorithm, prop, turns):
        # exact zeros are rational, and can be certified, mostly where the group is infinite
        for group in sorted(sizes, key=lambda g: scope == "rest" and g != math.inf):
            for variant in _variants(algorithm, prop, scope, turns, fixed):
                setting = Setting(prop, variant, group, batch, scope)
                symbols = _symbols(setting, contexts, math.prod(counts) * atoms)
                space = Space(contexts, counts, atoms, symbols, param, SHARED_ROWS, DIMENSION)
                out.append((setting, space))
    return out


def _sensible(algorithm: Algorithm, prop: str, param: str) -> None:
    if algorithm.ideal and param == "log-linear":
        raise ValueError(
            f"objective {algorithm.objective!r} solves one table at a time, which a log-linear "
            "policy cannot represent; use param 'tabular' or 'shared'"
        )
    if algorithm.ideal and prop == "unbiased":
        raise ValueError(
            f"property 'unbiased' is about an expected gradient; objective {algorithm.objective!r} "
            "is an ideal step, use 'sign' or 'monotone'"
        )


def _batch(algorithm: Algorithm, given: float | None) -> float:
    own = callable(algorithm.estimator) and algorithm.couples == "batch"
    if given is None:
        return OWN_BATCH if own else math.inf
    batch = size("contexts_per_batch", given)
    if own and batch == math.inf:
        raise ValueError(
            "contexts_per_batch is inf, but the limit of a user's batch estimator is unknown; "
            "give a number"
        )
    return batch


def _sizes(algorithm: Algorithm, given: float | None) -> tuple[float, ...]:
    if algorithm.estimator in ("exact", "gae"):
        return (math.inf,)
    own = callable(algorithm.estimator)
    if given is None:
        return OWN_GROUP_SIZES if own else GROUP_SIZES
    group = size("group_size", given)
    if own and group == math.inf:
        raise ValueError(
            "group_size is inf, but the limit of a user's estimator is unknown; give a number"
        )
    return (group,)


def _scopes(algorithm: Algorithm, prop: str, turns: int) -> tuple[str, ...]:
    if prop == "monotone":
        in_turn = algorithm.order != "simultaneous" and algorithm.credit == "turn" and turns > 1
        return ("iteration", "update") if in_turn else ("iteration",)
    if prop == "global-optimum":
        return ("run",) if algorithm.ideal else ("rest", "run")
    return ("",)


def _variants(
    algorithm: Algorithm, prop: str, scope: str, turns: int, fixed: frozenset[str]
) -> list[Algorithm]:
    """The algorithm with few and with all its epochs, and with each order it may draw."""
    epochs = [algorithm.epochs]
    if "epochs" not in fixed and not algorithm.ideal:
        if scope == "run":
            epochs = [1]
        elif scope == "iteration":
            epochs = sorted({1, algorithm.epochs})
    orders: list[Any] = [algorithm.order]
    if algorithm.order == "random":
        orders = (
            ["reverse", "forward"]
            if turns > 1 and prop in ("monotone", "global-optimum")
            else ["reverse"]
        )
    return [algorithm.replace(epochs=e, order=o) for e in epochs for o in orders]


def _symbols(setting: Setting, contexts: int, each: int) -> int:
    """Distinct rewards of a context: as many as the enumeration of groups affords."""
    a = setting.algorithm
    if a.estimator in ("exact", "gae") or setting.group_size == math.inf:
        return each
    group = int(setting.group_size)
    coupled = a.couples == "batch" and setting.contexts_per_batch != math.inf
    best = 0
    for symbols in range(1, each + 1):
        groups = math.comb(symbols + group - 1, group)
        cost, limit = groups * group, MAX_MULTISETS
        if coupled:
            b = int(setting.contexts_per_batch)
            cost, limit = math.comb(contexts * groups + b - 1, b) * b * group, MAX_BATCHES
        if cost > limit:
            break
        best = symbols
    if best < min(2, each):
        batch = f" in batches of {setting.contexts_per_batch:g}" if coupled else ""
        raise ValueError(
            f"groups of {group}{batch} are too many to enumerate for thousands of instances; "
            "use a smaller group_size" + (" or contexts_per_batch" if coupled else "")
        )
    return best
