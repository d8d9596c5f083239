"""What a reader gets: the instance, the command and the code that show it, and a sentence."""

from __future__ import annotations

import dataclasses
import itertools
import math
import shlex
from typing import TYPE_CHECKING, Any

import numpy as np

from seeupo_theory import api
from seeupo_theory.claims.falsify import _exact
from seeupo_theory.claims.falsify._readings import RUN_ITERATIONS
from seeupo_theory.rules.presets import PRESETS, Algorithm, get
from seeupo_theory.tabular.simulator import Simulator

if TYPE_CHECKING:
    from seeupo_theory.claims.falsify._record import Finding
    from seeupo_theory.claims.falsify._search import Search

__all__ = ["describe", "note"]

STEP_OPTIONS = (
    "lr", "epochs", "clip", "order", "baseline", "normalise", "std_eps", "level", "objective",
    "reference", "advantage_clip", "factor_clip", "product_clip", "dual_clip", "kl_coef",
    "gae_lambda",
)  # fmt: skip
"""Switches that `seeupo step` takes."""

ADVANTAGE_OPTIONS = ("baseline", "normalise", "std_eps", "gae_lambda")
"""Switches that `seeupo advantage` takes."""

SIZES = ("group_size", "contexts_per_batch")
"""Sizes of the expectation, which every command takes."""

FLAG_FORMAT = "{:.12g}"


def describe(finding: Finding, asked: str | Algorithm) -> dict[str, Any]:
    """The instance of a finding as JSON-ready data, with its statement."""
    instance = finding.instance
    name, used = _switches(finding, asked)
    out: dict[str, Any] = {
        "model": instance.model_json(),
        "policy": instance.policy_json(),
        "param": instance.param,
        "switches": {k: _label(v) for k, v in used.items()},
    }
    if _steps(finding):
        out["lr"] = str(instance.lr)
    if instance.param == "log-linear":
        out["features"] = [
            [[[str(x) for x in phi] for phi in row] for row in turn] for turn in instance.features
        ]
        out["theta"] = [str(x) for x in instance.theta]
    shown = {
        "monotone": _step,
        "sign": _sign,
        "unbiased": _unbiased,
        "global-optimum": _stuck,
    }[finding.setting.prop](finding)
    return {
        **out,
        **shown,
        "command": _command(finding, name, used),
        "python": _python(finding, name, used),
    }


def _steps(finding: Finding) -> bool:
    """Whether the violation takes steps, so that lr and epochs matter."""
    setting = finding.setting
    return (setting.prop == "monotone" or setting.scope == "run") and not setting.algorithm.ideal


def _label(value: Any) -> Any:
    if callable(value):
        return f"{value.__module__}:{getattr(value, '__qualname__', type(value).__qualname__)}"
    return list(value) if isinstance(value, tuple) else value


def _switches(finding: Finding, asked: str | Algorithm) -> tuple[str | None, dict[str, Any]]:
    """The name that `presets.get` takes (None: there is none) and what differs from it."""
    setting = finding.setting
    name = asked if isinstance(asked, str) else asked.name if asked.name in PRESETS else None
    base = get(name) if name is not None else Algorithm()
    algorithm = setting.algorithm.replace(lr=float(finding.instance.lr))
    used: dict[str, Any] = {}
    for entry in dataclasses.fields(algorithm):
        mine = getattr(algorithm, entry.name)
        stepwise = entry.name in ("lr", "epochs", "order")
        if entry.name in ("name", "summary") or (stepwise and setting.prop in ("sign", "unbiased")):
            continue
        if entry.name in ("lr", "epochs"):
            if _steps(finding):
                used[entry.name] = mine
        elif mine != getattr(base, entry.name):
            used[entry.name] = mine
    if algorithm.estimator not in ("exact", "gae"):
        used["group_size"] = _size(setting.group_size)
    if setting.contexts_per_batch != math.inf:
        used["contexts_per_batch"] = _size(setting.contexts_per_batch)
    return name, used


def _size(x: float) -> int | str:
    return "inf" if x == math.inf else int(x)


def _arguments(finding: Finding) -> tuple[Any, dict[str, Any]]:
    """Policy and keywords with which `api.step` repeats the step."""
    setting, instance = finding.setting, finding.instance
    keywords: dict[str, Any] = {
        "algorithm": setting.algorithm.replace(lr=float(instance.lr)),
        "param": instance.param,
        "group_size": setting.group_size,
        "contexts_per_batch": setting.contexts_per_batch,
    }
    if instance.param == "log-linear":
        features = [np.array(turn, float) for turn in instance.features]
        keywords["options"] = {"features": features}
        keywords["theta"] = np.array(instance.theta, float)
        return None, keywords
    return instance.policy_tables(), keywords


def _step(finding: Finding) -> dict[str, Any]:
    policy, keywords = _arguments(finding)
    result = api.step(finding.instance.model(), policy, **keywords)
    claim = (finding.certificate or {}).get("claim", {})
    fall = claim.get("drop_at_least") or f"{result.value_before - result.value_after:.6g}"
    if finding.setting.scope == "update":
        path = [result.value_before, *result.per_turn]
        fall = f"{max(a - b for a, b in itertools.pairwise(path)):.6g}"
    what = "one iteration" if finding.setting.scope == "iteration" else "the update of one turn"
    least = "at least " if "drop_at_least" in claim else ""
    return {
        "statement": f"{what} of {finding.setting.algorithm.name} lowers J by {least}{fall}",
        "value_before": result.value_before,
        "value_after": result.value_after,
        "per_turn": result.per_turn,
        "updated": result.updated,
        "surrogate_gain": result.surrogate_gain,
        "surrogate_rose": result.surrogate_rose,
        "surrogate_rise_exact": finding.surrogates_rise,
    }


def _sign(finding: Finding) -> dict[str, Any]:
    setting, instance = finding.setting, finding.instance
    turn, history, action = finding.place
    rule: Any = setting.algorithm
    result = api.advantage(
        instance.bandit(),
        [[[float(p) for p in row] for row in table] for table in instance.tables()],
        estimator=rule,
        group_size=setting.group_size,
        contexts_per_batch=setting.contexts_per_batch,
    )
    probs = np.array(instance.tables()[turn][history], float)
    row = np.asarray(result.expected[turn][history])
    expected = float(row[action] - probs @ row)
    exact = float(np.asarray(result.exact[turn][history])[action])
    where = f"turn {turn + 1}, history {history}, action {action}"
    return {
        "statement": f"at {where} the expected advantage of {setting.algorithm.name} is "
        f"{expected:+.6g}, the true one {exact:+.6g}",
        "witness": {"turn": turn, "history": history, "action": action},
        "expected": expected,
        "exact": exact,
    }


def _unbiased(finding: Finding) -> dict[str, Any]:
    opposed = finding.effect > 1
    relation = "opposed" if opposed else "not-proportional"
    how = "points against" if opposed else "is no multiple of"
    return {
        "statement": f"the expected gradient of {finding.setting.algorithm.name} {how} the true one "
        f"(cosine {1 - finding.effect:.6g})",
        "relation": relation,
        "cosine": 1 - finding.effect,
    }


def _stuck(finding: Finding) -> dict[str, Any]:
    instance, setting = finding.instance, finding.setting
    value = float(instance.value(instance.tables()))
    better = _exact.better_policy(finding.space, instance)
    best = float(better.value(better.tables()))
    extra: dict[str, Any] = {}
    name = setting.algorithm.name
    if setting.scope == "rest":
        text = f"the expected gradient of {name} is 0 at J = {value:.6g}, a better policy has {best:.6g}"
    elif setting.algorithm.ideal:
        text = (
            f"one sweep of {name} from J = {value:.6g} ends where the next moves nothing, below a "
        )
        text += f"policy with J = {best:.6g}"
    else:
        values = _run_values(finding)
        if best < value:
            better, best = instance, value
        extra = {"value_end": values[-1], "values": values}
        text = (
            f"{name} falls from J = {max(values):.6g} to {values[-1]:.6g} in {RUN_ITERATIONS} "
            f"iterations from J = {value:.6g}, a better policy has {best:.6g}"
        )
    return {
        "statement": text,
        "value": value,
        "better_value": best,
        "better_policy": better.policy_json(),
        **extra,
    }


def _run_values(finding: Finding) -> list[float]:
    """J before and after every iteration of a run."""
    policy, keywords = _arguments(finding)
    theta, options = keywords.pop("theta", None), keywords.pop("options", {})
    simulator = Simulator(finding.instance.model(), **keywords, **options)
    theta = simulator.init(policy) if theta is None else theta
    values = [float(simulator.value(theta))]
    for _ in range(RUN_ITERATIONS):
        out = simulator.update(theta, order=simulator.order(np.random.default_rng(0)))
        theta = out.theta
        values.append(float(out.values[-1]))
    return values


# Commands ---------------------------------------------------------------------------------------


def _flag(name: str, value: Any) -> list[str]:
    if isinstance(value, tuple):
        shift = 1 if name == "order" else 0  # turns count from 1 on the command line
        shown = ",".join(FLAG_FORMAT.format(x + shift) for x in value)
    else:
        shown = value if isinstance(value, str) else FLAG_FORMAT.format(value)
    return [f"--{name.replace('_', '-')}", shown]


def _command(finding: Finding, name: str | None, used: dict[str, Any]) -> str | None:
    """The command line that shows it, with the files of `Falsification.save`; None if none can."""
    instance = finding.instance
    if instance.param == "log-linear" or name is None:
        return None
    words = ["model.json", "--policy", "policy.json"]
    options: tuple[str, ...] = STEP_OPTIONS
    if finding.setting.prop in ("sign", "unbiased"):
        words, options = ["advantage", *words, "--estimator", name], ADVANTAGE_OPTIONS
    else:
        words = ["step", *words, "--algorithm", name, "--param", instance.param]
    for switch, value in used.items():
        if switch not in (*options, *SIZES) or value is None or callable(value):
            return None
        words += _flag(switch, value)
    return shlex.join(["seeupo", *words])


def _python(finding: Finding, name: str | None, used: dict[str, Any]) -> str | None:
    """Python code that repeats the measurement; the last line prints it."""
    instance = finding.instance
    if any(callable(value) for value in used.values()):
        return None
    switches = {k: v for k, v in used.items() if k not in SIZES}
    sizes = {k: math.inf if v == "inf" else v for k, v in used.items() if k in SIZES}
    if name is None:
        rule, switches = f"st.Algorithm({_call(switches)})", {}
    else:
        rule = repr(name)
    lines = ["import seeupo_theory as st", "from bandits import SequentialBandit, alias", ""]
    if math.inf in sizes.values():
        lines.insert(0, "from math import inf\n")
    if finding.setting.prop in ("sign", "unbiased"):
        if switches:
            rule = f"st.rules.presets.get({rule}).replace({_call(switches)})"
        tables = [[[float(p) for p in row] for row in table] for table in instance.tables()]
        lines += [f"model = {instance.bandit()!r}", f"policy = {tables!r}"]
        lines.append(f"result = st.advantage(model, policy, estimator={rule}, {_call(sizes)})")
        lines.append("print(result.expected, result.exact)")
        return "\n".join(lines) + "\n"
    lines.append(f"model = {instance.model()!r}")
    keywords = {**switches, **sizes}
    call = f"algorithm={rule}, param={instance.param!r}, {_call(keywords)}".rstrip(", ")
    if instance.param == "log-linear":
        features = [np.array(turn, float).tolist() for turn in instance.features]
        theta = [float(x) for x in instance.theta]
        lines.insert(0, "import numpy as np\n")
        lines.append(f"features = [np.array(turn) for turn in {features!r}]")
        lines.append(f"theta = np.array({theta!r})")
        call += ", options={'features': features}, theta=theta"
        lines.append(f"result = st.step(model, {call})")
    else:
        lines.append(f"policy = {instance.policy_tables()!r}")
        lines.append(f"result = st.step(model, policy, {call})")
    lines.append("print(result.value_before, result.per_turn, result.surrogate_rose)")
    return "\n".join(lines) + "\n"


def _call(keywords: dict[str, Any]) -> str:
    return ", ".join(f"{k}={v!r}" for k, v in keywords.items())


# Notes ------------------------------------------------------------------------------------------


def note(prop: str, search: Search, finding: Finding | None) -> str:
    """What the result rests on."""
    c = search.count
    tried = f"{c.instances} random instances and {c.optimiser} optimiser steps"
    parts = []
    if finding is None:
        parts.append(
            f"nothing found in {tried} (largest effect {c.worst:.3g}, looked for is more than 1e-06); "
            "a search that finds nothing proves nothing"
        )
    elif finding.certificate is not None:
        parts.append(
            f"found after {tried}; certified in {finding.certificate['arithmetic']} arithmetic"
        )
        if prop == "monotone":
            parts.append(
                {
                    True: "every row's own surrogate rises, in the same arithmetic",
                    None: "every row's own surrogate rises, in double precision",
                }[finding.surrogates_rise]
            )
    else:
        parts.append(f"found after {tried}; numerical, not certified: {finding.reason}")
    if c.overshoots:
        parts.append(
            f"at {c.overshoots} other points J fell after a step that lowered the surrogate of a row "
            "(overshoot), of which no improvement theorem speaks"
        )
    low, high = c.factor
    if prop == "unbiased" and low <= high:
        parts.append(
            f"the expected gradient along the true one is between {low:.6g} and {high:.6g} times it"
        )
    if c.discarded:
        parts.append(
            f"{c.discarded} violations did not survive rounding to fractions, or were shown to be "
            "overshoots by exact arithmetic"
        )
    if c.not_finite:
        parts.append(f"{c.not_finite} evaluations were not finite and were left out")
    return "; ".join(parts)
