"""The questions one asks of a model, with the same names in Python and on the command line.

* `load` a model; * `inspect` its value and optimum; * the expected `advantage` of an estimator;
* one `step` of an algorithm; * a `run` of many.

Every result is a frozen dataclass whose `to_dict()` is the command line's JSON object.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bandits.graph import DecisionGraph
from seeupo_theory.rules import presets
from seeupo_theory.rules.advantages import ESTIMATORS, Grae
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.tabular.evaluate import (
    check_policy,
    evaluate,
    optimum,
    turn_gaps,
    uniform_policy,
)

if TYPE_CHECKING:
    from seeupo_theory.tabular.run import Trace

__all__ = [
    "Advantages",
    "Inspection",
    "Step",
    "advantage",
    "inspect",
    "load",
    "load_parameters",
    "run",
    "step",
]

PARAMETERS_FORMAT = "seeupo-parameters/1"

MONOTONE_ATOL = 1e-12
"""A fall of J smaller than this (relative to the spread of rewards) is rounding, not a drop."""

SIGN_ATOL = 1e-12
"""Advantages smaller than this have no sign: the rounding of sums of doubles of size one."""

Policy = Sequence[Any] | str | Path | None


def _plain(value: Any) -> Any:
    """JSON-ready copy: arrays to lists, infinities to the word "inf"."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


class _Result:
    """Shared conversion of the result dataclasses."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as one JSON-ready dictionary."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Inspection(_Result):
    """Exact facts of a model and a policy.

    Attributes:
        model: its name or description.
        value: J of the policy (default: uniform).
        optimal_value: best J of a policy that sees the whole history.
        turns: T.
        actions: A_t of each turn.
        histories: rows of the policy table of each turn (histories, states or observations).
        optimal_policy: T tables [histories][actions], one-hot; ties go to the first action.
        turn_gaps: loss due to each turn; they add up to optimal_value − value.
        aliased: True where a policy does not see everything, so that `optimal_value` may be out of
            its reach; `optimal_policy` then has one row a node instead of one a table row.
    """

    model: str
    value: float
    optimal_value: float
    turns: int
    actions: list[int]
    histories: list[int]
    optimal_policy: list[Any]
    turn_gaps: list[float]
    aliased: bool


@dataclass(frozen=True)
class Advantages(_Result):
    """Expected advantage of an estimator beside the true one.

    Attributes:
        expected: E[Â | history, action], [turn][history][action].
        exact: A^π(history, action), same shape.
        method: "exact", or "monte-carlo" with a `standard_error` > 0.
        note: how the expectation was computed.
        sign_errors: (turn, history, action) triples, 0-based, where the expected advantage, less its
            mean over the history's actions (which no update feels), has the opposite sign of the
            exact one.
    """

    estimator: str
    group_size: float
    contexts_per_batch: float
    expected: list[Any]
    exact: list[Any]
    method: str
    standard_error: float
    note: str
    sign_errors: list[list[int]]


@dataclass(frozen=True)
class Step(_Result):
    """One iteration of an algorithm.

    Attributes:
        value_before, value_after: J.
        per_turn: J after each update, in update order.
        updated: the turns (1-based) in update order; "all" where they move together.
        surrogate_gain: rise of each updated turn's own surrogate.
        monotone: J never fell, neither in the whole step nor after any single update.
        surrogate_rose: every row's surrogate rose, so that improvement theorems speak of this step.
        policy: the new policy, T tables.
        method, standard_error: of the expected advantages.
        restricted: histories share parameters, so that `optimal_value` (full information) may be
            out of reach.
    """

    algorithm: str
    value_before: float
    value_after: float
    per_turn: list[float]
    updated: list[Any]
    monotone: bool
    surrogate_gain: list[float]
    surrogate_rose: bool
    optimal_value: float
    method: str
    standard_error: float
    policy: list[Any]
    restricted: bool


def load(model: Any, observe: str | None = None, param: str = "tabular") -> Any:
    """A model from a file, ``zoo:NAME``, ``gym:NAME?horizon=12``, ``openspiel:NAME``, or itself.

    Args:
        observe: a named observation map to put on it (see `bandits.aliasing`); with param "shared"
            rows are numbered jointly over the turns.

    Raises:
        ValueError: names the field of the file, or the part of the string, that is wrong.
    """
    loaded = model
    if not (hasattr(model, "graph") or isinstance(model, DecisionGraph)):
        from bandits.load import load as load_text

        loaded = load_text(str(model))
    if observe is None:
        return loaded
    from bandits.aliasing import alias

    return alias(loaded, observe, shared=param == "shared")


def load_parameters(path: str | Path) -> tuple[list[np.ndarray], np.ndarray]:
    """Features and θ of a log-linear policy from a ``seeupo-parameters/1`` file.

    Raises:
        ValueError: the file is not of that form; names the field.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: line {error.lineno} is not JSON: {error.msg}") from None
    if not isinstance(data, dict) or data.get("format") != PARAMETERS_FORMAT:
        raise ValueError(f"{path}: format should be {PARAMETERS_FORMAT!r}")
    unknown = set(data) - {"format", "features", "theta"}
    if unknown or not {"features", "theta"} <= set(data):
        raise ValueError(f"{path}: the fields should be format, features and theta")
    try:
        features = [np.array(table, dtype=float) for table in data["features"]]
        theta = np.array(data["theta"], dtype=float)
    except (TypeError, ValueError):
        raise ValueError(
            f"{path}: features should be [turn][row][action][d] and theta [d], all numbers"
        ) from None
    for name, array in [("theta", theta), *((f"features[{t}]", f) for t, f in enumerate(features))]:
        if not np.isfinite(array).all():
            raise ValueError(f"{path}: {name} should hold finite numbers")
    return features, theta


def _graph(model: Any, merge: str = "return") -> DecisionGraph:
    return model if isinstance(model, DecisionGraph) else model.graph(merge=merge)


def _tables(graph: DecisionGraph, policy: Policy, model: Any = None) -> list[np.ndarray]:
    if policy is None or (isinstance(policy, str) and policy == "uniform"):
        return uniform_policy(graph)
    if isinstance(policy, str) and policy == "zoo":
        from bandits.load import load_entry

        entry = load_entry(model) if isinstance(model, str) else None
        if entry is None:
            raise ValueError("policy is 'zoo', but the model is not given as zoo:NAME")
        return uniform_policy(graph) if entry.policy is None else check_policy(graph, entry.policy)
    if policy == "":
        raise ValueError("policy is ''; expected 'uniform', 'zoo' or a policy file")
    if isinstance(policy, (str, Path)):
        from bandits.files import load_policy

        policy = load_policy(policy)
    return check_policy(graph, policy)


def _seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ValueError(f"seed is {seed!r}; expected a whole number from 0 to 4294967295")
    return seed


def _algorithm(algorithm: str | Algorithm, switches: dict[str, Any]) -> Algorithm:
    base = presets.get(algorithm) if isinstance(algorithm, str) else algorithm
    return base.replace(**switches) if switches else base


def _estimator(name: str | Callable[..., Any] | Algorithm) -> Algorithm:
    """An algorithm whose advantage is the named estimator's."""
    if isinstance(name, Algorithm):
        return name
    if callable(name):
        return Algorithm(name=getattr(name, "__name__", "custom"), estimator=name)
    if name in ("gae", "exact"):
        return Algorithm(name=name, estimator=name)
    if name in ESTIMATORS:
        rule = ESTIMATORS[name]
        if not isinstance(rule, Grae):
            return Algorithm(name=name, estimator=rule)
        return Algorithm(
            name=name, baseline=rule.baseline, normalise=rule.normalise, std_eps=rule.std_eps
        )
    if name in presets.PRESETS or ":" in name:
        return presets.get(name)
    known = ", ".join(sorted({*ESTIMATORS, "gae", "exact", *presets.PRESETS}))
    raise ValueError(f"estimator is {name!r}; expected one of {known}, or module:function")


def inspect(model: Any, policy: Policy = None) -> Inspection:
    """Value, optimum and per-turn gaps of a model.

    >>> from bandits import SequentialBandit
    >>> inspect(SequentialBandit([[[0.5, 0.5], [0, 1]]])).optimal_value
    1.0
    """
    loaded = load(model)
    graph = _graph(loaded)
    tables = _tables(graph, policy, model)
    best = optimum(graph)
    rows, aliased = _row_policy(graph, best.policy)
    return Inspection(
        model=graph.name or type(loaded).__name__,
        value=evaluate(graph, tables).value,
        optimal_value=best.value,
        turns=graph.turns,
        actions=list(graph.actions),
        histories=[layer.observations for layer in graph.layers],
        optimal_policy=rows,
        turn_gaps=turn_gaps(graph, tables),
        aliased=aliased,
    )


def _row_policy(graph: DecisionGraph, nodes: list[np.ndarray]) -> tuple[list[np.ndarray], bool]:
    """Optimal policy by table row, where the nodes that share a row agree; else by node."""
    out = []
    for layer, table in zip(graph.layers, nodes, strict=True):
        if layer.observation is None:
            out.append(table)
            continue
        rows = np.zeros((layer.observations, layer.actions))
        rows[layer.observation] = table
        if (rows[layer.observation] != table).any():
            return nodes, True
        unseen = rows.sum(axis=1) == 0
        rows[unseen, 0 if layer.mask is None else layer.mask[unseen].argmax(axis=1)] = 1.0
        out.append(rows)
    return out, False


def advantage(
    model: Any,
    policy: Policy = None,
    *,
    estimator: str | Callable[..., Any] = "grae",
    baseline: str | None = None,
    normalise: str | None = None,
    group_size: float = 8,
    contexts_per_batch: float = math.inf,
    std_eps: float | None = None,
    gae_lambda: float | None = None,
    seed: int = 0,
) -> Advantages:
    """Exact expected advantage E[Â | history, action] of an estimator, beside A^π.

    Args:
        estimator: a preset's name ("grae", "grpo", "rloo", …, "gae") or a function
            returns[..., B, G] → advantages.
        baseline, normalise, std_eps, gae_lambda: override the preset's switches.
        group_size: G, or inf.
        contexts_per_batch: B, or inf (matters to batch statistics only).
        seed: of the Monte Carlo fallback.
    """
    import jax

    from seeupo_theory.tabular.simulator import Simulator

    switches: dict[str, Any] = {
        name: value
        for name, value in {
            "baseline": baseline,
            "normalise": normalise,
            "std_eps": std_eps,
            "gae_lambda": gae_lambda,
        }.items()
        if value is not None
    }
    chosen = _estimator(estimator).replace(**switches)
    simulator = Simulator(
        load(model), chosen, group_size=group_size, contexts_per_batch=contexts_per_batch
    )
    graph = simulator.graph
    tables = _tables(graph, policy, model)
    nodes, error = simulator.advantages(simulator.init(tables), jax.random.key(_seed(seed)))
    expected = [np.asarray(table) for table in nodes]
    result = evaluate(graph, tables)
    exact = []
    for t, table in enumerate(result.advantages):
        scale = graph.discount**t if chosen.estimator == "gae" else 1.0
        exact.append(table / scale)
    rows = [_rows(graph, result.visitation, tables, t, expected[t]) for t in range(graph.turns)]
    true = [_rows(graph, result.visitation, tables, t, exact[t]) for t in range(graph.turns)]
    wrong = []
    for t in range(graph.turns):
        mean = (tables[t] * rows[t]).sum(axis=1, keepdims=True)
        centred = np.where(np.abs(rows[t] - mean) > max(SIGN_ATOL, 4 * error), rows[t] - mean, 0)
        opposite = (np.abs(true[t]) > SIGN_ATOL) & (centred * true[t] < 0)
        wrong += [[t, int(h), int(a)] for h, a in np.argwhere(opposite)]
    return Advantages(
        estimator=chosen.name,
        group_size=group_size,
        contexts_per_batch=contexts_per_batch,
        expected=rows,
        exact=true,
        method=simulator.plan.method,
        standard_error=error,
        note=simulator.plan.reason,
        sign_errors=wrong,
    )


def _rows(
    graph: DecisionGraph, visitation: list[Any], tables: list[Any], turn: int, nodes: np.ndarray
) -> np.ndarray:
    """Node quantities [N, A] averaged over the nodes that share a row, by visitation: [O, A]."""
    layer = graph.layers[turn]
    if layer.observation is None:
        return nodes
    weight = np.maximum(visitation[turn], 0.0)
    total = np.zeros((layer.observations, layer.actions))
    mass = np.zeros(layer.observations)
    np.add.at(total, layer.observation, weight[:, None] * nodes)
    np.add.at(mass, layer.observation, weight)
    return np.where(mass[:, None] > 0, total / np.where(mass > 0, mass, 1.0)[:, None], 0.0)


def step(
    model: Any,
    policy: Policy = None,
    *,
    algorithm: str | Algorithm = "seeupo",
    param: str = "tabular",
    group_size: float = math.inf,
    contexts_per_batch: float = math.inf,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    theta: Any = None,
    observe: str | None = None,
    **switches: Any,
) -> Step:
    """One iteration of an algorithm in exact expectation: does J rise, after every single update?

    Args:
        model: anything `load` takes.
        policy: T tables of probabilities, a policy file, or None for uniform.
        algorithm: a preset, or an `Algorithm`; `switches` override its fields (lr, epochs, clip,
            order, normalise, …).
        param: policy family; `options` go to it (features, hidden, …).
        group_size, contexts_per_batch: sizes of the expectation, inf for the population.
        seed: of random orders and of the Monte Carlo fallback.
        theta: parameters to start from, instead of `policy`.
        observe: a named observation map to put on the model.

    >>> from bandits import SequentialBandit
    >>> result = step(SequentialBandit([[[0.5, 0.5], [0, 1]]]), algorithm="seeupo", lr=0.5)
    >>> result.monotone and result.value_after > result.value_before
    True
    """
    import jax

    from seeupo_theory.tabular.simulator import Simulator

    chosen = _algorithm(algorithm, switches)
    simulator = Simulator(
        load(model, observe, param),
        chosen,
        param,
        group_size=group_size,
        contexts_per_batch=contexts_per_batch,
        **(options or {}),
    )
    graph = simulator.graph
    start = simulator.init(_tables(graph, policy, model)) if theta is None else theta
    order = simulator.order(np.random.default_rng(_seed(seed)))
    outcome = simulator.update(start, order=order, key=jax.random.key(_seed(seed)))
    before, per_turn = float(outcome.value_before), np.asarray(outcome.values)
    path = np.concatenate([[before], per_turn])
    if not np.isfinite(path).all():
        raise ValueError(
            f"the step is not finite (J after each update: {per_turn.tolist()}); use a smaller lr"
        )
    scale = max(1.0, float(np.abs(graph.leaf_values).max()))
    best = optimum(graph)
    return Step(
        algorithm=chosen.name,
        value_before=before,
        value_after=float(per_turn[-1]),
        per_turn=per_turn.tolist(),
        updated=["all"] if order is None else [t + 1 for t in order],
        monotone=bool((np.diff(path) >= -MONOTONE_ATOL * scale).all()),
        surrogate_gain=np.asarray(outcome.surrogate_gain).tolist(),
        surrogate_rose=bool((np.asarray(outcome.worst_row_gain) >= -MONOTONE_ATOL * scale).all()),
        optimal_value=best.value,
        method=simulator.plan.method,
        standard_error=float(outcome.standard_error),
        policy=simulator.policy(outcome.theta),
        restricted=not simulator.param.independent or _row_policy(graph, best.policy)[1],
    )


def run(
    model: Any,
    policy: Policy = None,
    *,
    algorithm: str | Algorithm = "seeupo",
    iterations: int = 100,
    param: str = "tabular",
    expectation: str = "exact",
    group_size: float | None = None,
    contexts_per_batch: float | None = None,
    seeds: int = 1,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    theta: Any = None,
    observe: str | None = None,
    progress: Callable[[int], None] | None = None,
    **switches: Any,
) -> Trace:
    """Many iterations, recorded as a `seeupo_theory.tabular.run.Trace`.

    Args:
        expectation: "exact", or "sampled" with `seeds` independent runs.
        group_size, contexts_per_batch: default inf in exact expectation, 8 and 32 when sampled.
        others: as `step`.

    >>> from bandits import SequentialBandit
    >>> trace = run(SequentialBandit([[[0.5, 0.5], [0, 1]]]), algorithm="seeupo", iterations=30)
    >>> trace.status
    ['converged']
    """
    from seeupo_theory.tabular.run import run_simulator
    from seeupo_theory.tabular.simulator import Simulator

    if expectation not in ("exact", "sampled"):
        raise ValueError(f"expectation is {expectation!r}; expected 'exact' or 'sampled'")
    sampled = expectation == "sampled"
    simulator = Simulator(
        load(model, observe, param),
        _algorithm(algorithm, switches),
        param,
        group_size=(8 if sampled else math.inf) if group_size is None else group_size,
        contexts_per_batch=(32 if sampled else math.inf)
        if contexts_per_batch is None
        else contexts_per_batch,
        **(options or {}),
    )
    if theta is None:
        theta = simulator.init(_tables(simulator.graph, policy, model))
    return run_simulator(
        simulator,
        iterations,
        theta=theta,
        seeds=seeds,
        seed=_seed(seed),
        sampled=sampled,
        progress=progress,
    )
