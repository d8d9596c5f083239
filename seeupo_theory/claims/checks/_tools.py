"""What the checks share: how much effort, how instances are written down, how drops are searched."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bandits.aliasing import alias
from bandits.files import model_to_dict
from seeupo_theory.rules.orders import turn_order
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.tabular.ensembles import Ensemble, Instances, instance, iterate_all, sample
from seeupo_theory.tabular.update import Outcome

__all__ = [
    "DROP_ATOL",
    "Drop",
    "Effort",
    "bars",
    "command",
    "describe",
    "example",
    "find_drop",
    "fixed_order",
]

DROP_ATOL = 1e-9
"""A fall of J counts as a drop beyond this: rewards are at most 200 in size and J is a sum of at
most a few hundred products of doubles, whose rounding stays below 1e-11."""

Plant = Callable[[Ensemble, Instances, str], Instances]


@dataclass(frozen=True)
class Effort:
    """How much an audit searches; every row reports what was in fact done."""

    quick: bool = False

    @property
    def instances(self) -> int:
        """Random instances a shape."""
        return 512 if self.quick else 4096

    @property
    def runs(self) -> int:
        """Random instances a convergence run."""
        return 16 if self.quick else 48

    @property
    def iterations(self) -> int:
        """Iterations of a convergence run."""
        return 150 if self.quick else 600

    @property
    def seeds(self) -> int:
        """Repetitions of sampled experiments."""
        return 16 if self.quick else 64


def fixed_order(algorithm: Algorithm, turns: int) -> tuple[int, ...] | None:
    """The algorithm's order for one iteration (None: all turns at once)."""
    if algorithm.order == "simultaneous" or algorithm.credit == "trajectory":
        return None
    return turn_order(algorithm.order, turns, np.random.default_rng(0))


@dataclass(frozen=True)
class Drop:
    """Result of a search for falls of J.

    Attributes:
        instances: how many were updated.
        drops: how many fell although the surrogate rose.
        overshoots: how many fell with a step that lowered its own surrogate.
        excluded: how many steps lowered some surrogate (no theorem speaks of them).
        margin: smallest change of J among steps that raised their surrogate.
        slack: smallest ΔJ − c·(surrogate gain) among them (≥ 0 up to rounding where the surrogate
            is a lower bound), or None.
        found: (ensemble, instances, index, lr) of the worst drop, or None.
        outcome: values of that instance.
    """

    instances: int
    drops: int
    overshoots: int
    excluded: int
    margin: float
    slack: float | None
    found: tuple[Ensemble, Instances, int, float] | None
    values: tuple[float, ...] = ()

    def numbers(self) -> dict[str, Any]:
        """For a ledger row."""
        return {
            "instances": self.instances,
            "drops": self.drops,
            "overshoots": self.overshoots,
            "surrogate_fell": self.excluded,
            "worst_change": self.margin,
            "slack_of_lower_bound": self.slack,
        }


def bars(series: str, values: Mapping[str, float], xlabel: str, ylabel: str) -> dict[str, Any]:
    """Figure data of a row: one bar a setting."""
    return {
        "kind": "bars",
        "x": list(values),
        "series": {series: list(values.values())},
        "xlabel": xlabel,
        "ylabel": ylabel,
    }


def rose(ensemble: Ensemble, outcome: Outcome) -> np.ndarray:
    """Which steps raised their surrogate: every row (own parameters), or the sum (shared)."""
    gain = outcome.worst_row_gain if ensemble.param == "tabular" else outcome.surrogate_gain
    return np.asarray((gain >= -DROP_ATOL).all(axis=1))


def find_drop(
    algorithm: Algorithm,
    ensembles: Sequence[Ensemble],
    count: int,
    *,
    lrs: Sequence[float],
    reward: str = "random",
    group_size: float = math.inf,
    contexts_per_batch: float = math.inf,
    scale: float | None = None,
    seed: int = 0,
    plant: Plant = lambda ensemble, instances, reward: instances,
) -> Drop:
    """Search falls of J over one iteration, smallest shape first; stop at the first shape with one.

    Args:
        plant: may put problems of one's own in the place of some random ones.
        scale: c such that c·(surrogate gain) ≤ ΔJ is claimed; None claims nothing.
    """
    total = drops = overshoots = excluded = 0
    margin, slack = math.inf, math.inf
    for number, ensemble in enumerate(ensembles):
        instances = plant(ensemble, sample(ensemble, count, seed + number, reward=reward), reward)
        order = fixed_order(algorithm, len(ensemble.actions))
        worst: tuple[float, int, float, Outcome] | None = None
        for lr in lrs:
            out = iterate_all(
                ensemble,
                algorithm,
                instances,
                lr=lr,
                order=order,
                group_size=group_size,
                contexts_per_batch=contexts_per_batch,
            )
            change = out.values[:, -1] - out.value_before
            up = rose(ensemble, out)
            total += len(change)
            excluded += int((~up).sum())
            overshoots += int(((change < -DROP_ATOL) & ~up).sum())
            bad = (change < -DROP_ATOL) & up
            drops += int(bad.sum())
            if up.any():
                margin = min(margin, float(change[up].min()))
                if scale is not None:
                    gap = change - scale * out.surrogate_gain.sum(axis=1)
                    slack = min(slack, float(gap[up].min()))
            if bad.any():
                i = int(np.where(bad, change, np.inf).argmin())
                if worst is None or change[i] < worst[0]:
                    worst = (float(change[i]), i, lr, out)
        if worst is not None:
            _, i, lr, out = worst
            values = (float(out.value_before[i]), *map(float, out.values[i]))
            bound = None if scale is None else slack
            found = (ensemble, instances, i, lr)
            return Drop(total, drops, overshoots, excluded, margin, bound, found, values)
    bound = None if scale is None else slack
    return Drop(total, drops, overshoots, excluded, margin, bound, None)


def example(
    ensemble: Ensemble, instances: Instances, i: int
) -> tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any] | None]:
    """Instance i as file contents: model, policy, parameters (None where there are none)."""
    model, theta, options = instance(ensemble, instances, i)
    shown: Any = model
    if ensemble.observe != "full":
        shown = alias(model, ensemble.observe, shared=ensemble.param == "shared")
    content = model_to_dict(shown)
    if options:
        parameters = {
            "format": "seeupo-parameters/1",
            "features": [np.asarray(f).tolist() for f in options["features"]],
            "theta": np.asarray(theta).tolist(),
        }
        return content, None, parameters
    if ensemble.param == "shared":
        tables = [np.exp(theta)] * len(ensemble.actions)
    else:
        tables = [np.exp(table) for table in theta]
    probs = [np.round(table, 12).tolist() for table in tables]
    return content, {"format": "seeupo-policy/1", "probs": probs}, None


def command(name: str, switches: dict[str, Any], policy: bool, parameters: bool) -> str:
    """The command line that replays a step, relative to the audit's folder."""
    words = ["seeupo step", f"instances/{name}.model.json"]
    if policy:
        words.append(f"--policy instances/{name}.policy.json")
    if parameters:
        words.append(f"--parameters instances/{name}.parameters.json")
    for key, value in switches.items():
        text = (
            ",".join(str(v + 1) for v in value)
            if key == "order" and isinstance(value, tuple)
            else value
        )
        words.append(f"--{key.replace('_', '-')} {text}")
    return " ".join(words)


def describe(
    name: str, found: tuple[Ensemble, Instances, int, float], switches: dict[str, Any]
) -> dict[str, Any]:
    """The `instance` entry of a row: file contents, switches, command."""
    ensemble, instances, i, lr = found
    model, policy, parameters = example(ensemble, instances, i)
    full = {**switches, "lr": lr, "param": ensemble.param}
    return {
        "name": name,
        "model": model,
        "policy": policy,
        "parameters": parameters,
        "switches": full,
        "command": command(name, full, policy is not None, parameters is not None),
    }
