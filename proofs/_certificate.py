r"""Reading the model, the policy and the algorithm of a certificate, strictly.

Unknown and missing fields, numbers that are not in lowest terms, ragged lists and probabilities
that do not sum to 1 are rejected with the place where they stand.  The format is described in
``proofs/verifier.py``.  Standard library only.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from proofs.intervals import ONE, ZERO, Number, exp

MAX_TRAJECTORIES, MAX_EPOCHS, MAX_GROUP = 2048, 100, 16  # keep a check within seconds


class Rejected(ValueError):
    """The certificate does not establish its claim; the message says why."""


def demand(condition: bool, message: str) -> None:
    """Reject with a message unless the condition holds."""
    if not condition:
        raise Rejected(message)


def fields(value: Any, names: Sequence[str], where: str) -> dict[str, Any]:
    """The object itself, which must have exactly these fields."""
    demand(isinstance(value, dict), f"{where} must be an object")
    for name in names:
        demand(name in value, f"{where}.{name} is missing")
    for name in value:
        demand(name in names, f"{where}.{name} is unknown")
    return dict(value)


def number(value: Any, where: str) -> Fraction:
    """A string in lowest terms: "3", "-7/10"."""
    demand(isinstance(value, str) and len(value) < 400, f"{where} must be a fraction string")
    demand(
        re.fullmatch(r"-?[0-9]+(/0*[1-9][0-9]*)?", value) is not None,
        f"{where} is {value!r}, must be a fraction such as '3/10'",
    )
    result = Fraction(value)
    demand(str(result) == value, f"{where} is {value!r}, must be written {str(result)!r}")
    return result


def listing(value: Any, length: int, where: str) -> list[Any]:
    """A list of this length."""
    demand(isinstance(value, list) and len(value) == length, f"{where} must be a list of {length}")
    return list(value)


def vector(value: Any, length: int, where: str) -> list[Fraction]:
    """A list of this many numbers."""
    return [number(x, f"{where}[{i}]") for i, x in enumerate(listing(value, length, where))]


def distribution(value: Any, length: int, where: str) -> list[Fraction]:
    """Probabilities that sum to 1."""
    probs = vector(value, length, where)
    demand(min(probs) >= 0 and sum(probs) == 1, f"{where} must be probabilities that sum to 1")
    return probs


def size(value: Any, where: str) -> int:
    """The length of a list that is not empty."""
    demand(isinstance(value, list) and len(value) > 0, f"{where} must be a list, not empty")
    return len(value)


def choice(value: Any, allowed: Sequence[Any], where: str) -> Any:
    """One of the allowed values, of the same type."""
    same = any(type(value) is type(x) and value == x for x in allowed)
    demand(same, f"{where} is {value!r}, must be one of {list(allowed)}")
    return value


def integer(value: Any, low: int, high: int, where: str) -> int:
    """An integer in a range; a boolean is none."""
    ok = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    demand(ok, f"{where} is {value!r}, must be an integer from {low} to {high}")
    return int(value)


@dataclass(frozen=True)
class Trajectory:
    """One way an episode can go: ``chance`` is the environment's share of its probability."""

    context: int
    chance: Fraction
    moves: tuple[tuple[int, int, int], ...]  # (turn, node, action)
    total: Fraction  # the (discounted) return


@dataclass(frozen=True)
class Model:
    """All trajectories, and per turn the number of nodes and of actions."""

    trajectories: list[Trajectory]
    nodes: list[int]
    actions: list[int]
    discount: Fraction = ONE


def read_model(value: Any) -> Model:
    """A ``bandit`` or an ``mdp``."""
    demand(isinstance(value, dict), "model must be an object")
    kind = choice(value.get("kind"), ("bandit", "mdp"), "model.kind")
    return _bandit(value) if kind == "bandit" else _mdp(value)


def _bandit(value: Any) -> Model:
    value = fields(value, ("kind", "context_probs", "rewards"), "model")
    count = size(value["context_probs"], "model.context_probs")
    contexts = distribution(value["context_probs"], count, "model.context_probs")
    level = listing(value["rewards"], count, "model.rewards")
    nodes: list[int] = []
    actions: list[int] = []
    while isinstance(level[0], list):
        nodes.append(len(level))
        actions.append(size(level[0], "model.rewards, a row"))
        demand(nodes[-1] * actions[-1] <= MAX_TRAJECTORIES, "model.rewards is too large")
        level = [x for row in level for x in listing(row, actions[-1], "model.rewards, a row")]
    demand(bool(actions), "model.rewards must be nested [context][a_1]...[a_T]")
    trajectories = []
    for leaf, reward in enumerate(level):
        where, moves, place = f"model.rewards, leaf {leaf}", [], leaf
        for turn in reversed(range(len(actions))):
            place, action = divmod(place, actions[turn])
            moves.append((turn, place, action))
        values, probs = [reward], [ONE]
        if isinstance(reward, dict):
            atoms = fields(reward, ("values", "probs"), where)
            values = listing(atoms["values"], size(atoms["values"], where), where)
            probs = distribution(atoms["probs"], len(values), where)
        for r, p in zip(vector(values, len(probs), where), probs, strict=True):
            if chance := contexts[place] * p:
                trajectories.append(Trajectory(place, chance, tuple(moves[::-1]), r))
    demand(len(trajectories) <= MAX_TRAJECTORIES, "model has too many trajectories")
    return Model(trajectories, nodes, actions)


def _mdp(value: Any) -> Model:
    names = ("kind", "horizon", "discount", "initial", "transitions", "rewards")
    value = fields(value, names, "model")
    states = size(value["initial"], "model.initial")
    initial = distribution(value["initial"], states, "model.initial")
    paid = listing(value["rewards"], states, "model.rewards")
    count = size(paid[0], "model.rewards[0]")
    rewards = [vector(row, count, f"model.rewards[{s}]") for s, row in enumerate(paid)]
    transitions = [
        [distribution(x, states, f"model.transitions[{s}]") for x in listing(row, count, "a row")]
        for s, row in enumerate(listing(value["transitions"], states, "model.transitions"))
    ]
    horizon = integer(value["horizon"], 1, 12, "model.horizon")
    discount = number(value["discount"], "model.discount")
    demand(0 < discount <= 1, "model.discount must be in (0, 1]")
    over = [all(x[s] == 1 for x in transitions[s]) and not any(rewards[s]) for s in range(states)]
    ends = [(s, Trajectory(s, p, (), ZERO)) for s, p in enumerate(initial) if p]
    done: list[Trajectory] = []
    for turn in range(horizon):
        done += [path for s, path in ends if over[s]]
        ends = [
            (
                target,
                Trajectory(
                    path.context,
                    path.chance * chance,
                    (*path.moves, (turn, s, a)),
                    path.total + discount**turn * rewards[s][a],
                ),
            )
            for s, path in ends
            if not over[s]
            for a in range(count)
            for target, chance in enumerate(transitions[s][a])
            if chance
        ]
        demand(len(done) + len(ends) <= MAX_TRAJECTORIES, "model has too many trajectories")
    done += [path for _, path in ends]
    return Model(done, [states] * horizon, [count] * horizon, discount)


@dataclass(frozen=True)
class Policy:
    """π(a | row) ∝ base[row][a] exp(Σ_i features[row][a][i] θ_i); ``rows`` is [turn][node]."""

    rows: list[list[int]]
    base: list[list[Fraction]]
    features: list[list[dict[int, Fraction]]]
    theta: list[Number]

    def table(self, theta: Sequence[Number], bits: int) -> list[list[Number]]:
        """The probabilities [row][action] at these parameters."""
        table = []
        for base, features in zip(self.base, self.features, strict=True):
            scores = [sum((theta[i] * f for i, f in phi.items()), ZERO) for phi in features]
            weights = [b * exp(x, bits) for b, x in zip(base, scores, strict=True)]
            total = sum(weights, ZERO)
            table.append([w / total for w in weights])
        return table


def read_policy(value: Any, model: Model, where: str = "policy") -> Policy:
    """A ``tabular``, ``shared`` or ``log-linear`` policy for this model."""
    demand(isinstance(value, dict), f"{where} must be an object")
    names = {
        "tabular": ("parametrisation", "probs"),
        "shared": ("parametrisation", "probs", "observation"),
        "log-linear": ("parametrisation", "features", "theta"),
    }
    kind = choice(value.get("parametrisation"), tuple(names), f"{where}.parametrisation")
    value = fields(value, names[kind], where)
    turns = range(len(model.nodes))
    layout = {"tabular": "probs", "shared": "observation", "log-linear": "features"}[kind]
    per_turn = listing(value[layout], len(turns), f"{where}.{layout}")
    nodes = [listing(per_turn[t], model.nodes[t], f"{where}.{layout}[{t}]") for t in turns]
    if kind == "shared":
        count = size(value["probs"], f"{where}.probs")
        rows = [[integer(x, 0, count - 1, f"{where}.observation") for x in row] for row in nodes]
        sizes = {row: model.actions[t] for t in turns for row in rows[t]}
        same = all(sizes[row] == model.actions[t] for t in turns for row in rows[t])
        demand(same, f"{where}.observation joins turns with different numbers of actions")
        demand(len(sizes) == count, f"{where}.probs has a row that no node observes")
        stated = [(value["probs"][row], sizes[row]) for row in range(count)]
    else:
        counter = itertools.count()
        rows = [[next(counter) for _ in turn] for turn in nodes]
        stated = [(x, model.actions[t]) for t in turns for x in nodes[t]]
    if kind == "log-linear":
        count = size(value["theta"], f"{where}.theta")
        theta: list[Number] = list(vector(value["theta"], count, f"{where}.theta"))
        features = [
            [
                _sparse(phi, count, f"{where}.features")
                for phi in listing(row, n, f"{where}.features")
            ]
            for row, n in stated
        ]
        return Policy(rows, [[ONE] * n for _, n in stated], features, theta)
    base = [distribution(row, n, f"{where}.probs, row {i}") for i, (row, n) in enumerate(stated)]
    index = itertools.count()
    one_hot = [[{next(index): ONE} for _ in row] for row in base]
    return Policy(rows, base, one_hot, [ZERO] * sum(map(len, base)))


def _sparse(phi: Any, length: int, where: str) -> dict[int, Fraction]:
    return {i: f for i, f in enumerate(vector(phi, length, where)) if f}


ESTIMATOR: dict[str, tuple[Any, ...]] = {
    "estimator": ("grae", "exact"),
    "baseline": ("mean", "loo", "batch", "none"),
    "normalise": ("none", "group", "batch"),
    "group_size": (),
    "contexts_per_batch": ("inf",),
    "std_eps": (),
    "ddof": (0, 1),
    "advantage_clip": (),
    "discounting": ("kept", "dropped"),
}
STEP: dict[str, tuple[Any, ...]] = {
    "objective": ("clip", "reinforce"),
    "clip": (),
    "level": ("sequence", "length-normalised", "token"),
    "order": (),
    "credit": ("turn", "trajectory"),
    "reference": ("behaviour", "current"),
    "factor_clip": (),
    "product_clip": (),
    "epochs": (),
    "lr": (),
}
FIXED_POINT: dict[str, tuple[Any, ...]] = {"update": ("gradient", "argmax")}
SWEEP: dict[str, tuple[Any, ...]] = {"update": ("argmax",), "order": ()}


def read_algorithm(value: Any, switches: dict[str, tuple[Any, ...]], turns: int) -> dict[str, Any]:
    """The switches, checked and converted; every one of them must be spelled out."""
    value = fields(value, tuple(switches), "algorithm")
    for name, allowed in switches.items():
        where, switch = f"algorithm.{name}", value[name]
        if allowed:
            choice(switch, allowed, where)
        elif name == "group_size":
            value[name] = math.inf if switch == "inf" else integer(switch, 1, MAX_GROUP, where)
        elif name == "epochs":
            integer(switch, 1, MAX_EPOCHS, where)
        elif name == "clip":
            value[name] = vector(switch, 2, where)
            demand(min(value[name]) >= 0 and value[name][0] < 1, f"{where} must be [low, high]")
        elif name == "order":
            value[name] = _schedule(switch, turns, where)
        elif not (name.endswith("_clip") and switch is None):
            value[name] = number(switch, where)
            demand(value[name] >= 0, f"{where} must not be negative")
    if value.get("estimator") == "exact":
        found = [value[name] for name in ("baseline", "normalise", "advantage_clip")]
        plain = found == ["none", "none", None]
        demand(plain, "algorithm: an exact advantage has no baseline, no normalise, no clip")
        if "order" in value and len(value["order"]) > 1:
            found = [value[name] for name in ("reference", "factor_clip", "product_clip")]
            plain = found == ["behaviour", None, None]
            demand(plain, "algorithm: an exact advantage in turn needs unclipped behaviour factors")
    elif "estimator" in value:
        demand(value["discounting"] == "kept", "algorithm.discounting belongs to exact advantages")
    if value.get("credit") == "trajectory":
        demand(
            len(value["order"]) == 1, "algorithm.credit: a trajectory has one simultaneous update"
        )
    return value


def _schedule(order: Any, turns: int, where: str) -> list[list[int]]:
    """The groups of turns that are updated together, in order."""
    if isinstance(order, list):
        permutation = sorted(integer(t, 0, turns - 1, where) for t in order)
        demand(permutation == list(range(turns)), f"{where} must be a permutation of the turns")
        return [[t] for t in order]
    choice(order, ("forward", "reverse", "simultaneous"), where)
    forward = list(range(turns))
    return {"forward": [[t] for t in forward], "reverse": [[t] for t in forward[::-1]]}.get(
        order, [forward]
    )
