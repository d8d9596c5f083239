"""From an instance to a certificate, and what exact arithmetic says beyond it.

`certify` hands model, policy and switches to `proofs.certify`, which recomputes the claim in
rational or interval arithmetic.  For a step that lowers J the certificate says no more than that;
`surrogates_rise` repeats the step in the same arithmetic and tells whether every row's own
surrogate rose, which is what makes the fall a counterexample and not an overshoot.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from proofs import certify as proofs_certify
from proofs._certificate import ESTIMATOR, STEP, read_algorithm, read_model, read_policy
from proofs._semantics import Play, Surrogate, estimates, height, slope
from proofs.certify import NotCertified
from proofs.intervals import ONE, ZERO, Interval, Number, Undecided
from seeupo_theory.claims.falsify._instance import Instance
from seeupo_theory.claims.falsify._readings import Setting, best_thetas
from seeupo_theory.claims.falsify._space import Space

__all__ = ["NotCertified", "certify", "obstacles", "surrogates_rise"]

MAX_GROUP, MAX_EPOCHS = 16, 100
"""Largest group and number of epochs that a certificate may state."""

PRECISIONS = (128, 256, 512)
"""Bits of the intervals, tried in turn."""

NEGLIGIBLE = Fraction(1, 10**20)
"""A row whose surrogate stays the same is an interval around 0, whose ends no precision decides;
a fall by less than this explains no drop of J that can be printed."""


def obstacles(setting: Setting) -> list[str]:
    """Why this algorithm has no certificate; empty where it has."""
    a = setting.algorithm
    out = []
    if callable(a.estimator):
        out.append("the estimator is a function of the user's own")
    elif a.estimator == "gae":
        out.append("GAE is not part of the certificate format")
    stepwise = setting.prop == "monotone"
    if callable(a.objective):
        out.append("the objective is a function of the user's own")
    elif a.ideal and (setting.prop != "global-optimum" or a.objective != "greedy"):
        out.append(f"steps with objective {a.objective!r} are not part of the certificate format")
    if setting.prop == "global-optimum" and setting.scope == "run":
        if not a.ideal:
            out.append("a run has no certificate")
        elif a.support != "reached":
            out.append("certified sweeps update reached histories only")
    if stepwise:
        out += _step_obstacles(setting)
    if setting.group_size != math.inf and setting.group_size > MAX_GROUP:
        out.append(f"groups of more than {MAX_GROUP}")
    if "batch" in (a.baseline, a.normalise) and setting.contexts_per_batch != math.inf:
        out.append("the statistics of a finite batch")
    return out


def _step_obstacles(setting: Setting) -> list[str]:
    a, out = setting.algorithm, []
    if setting.scope == "update":
        out.append("a fall within an iteration has no certificate, only one over the iteration")
    if a.estimator == "exact" and a.order != "simultaneous":
        out.append("exact advantages in sequence, which are evaluated afresh at every turn")
    for switch, plain in (
        ("dual_clip", None),
        ("kl_coef", 0.0),
        ("guard", False),
        ("resample", False),
    ):
        if getattr(a, switch) != plain:
            out.append(f"{switch}={getattr(a, switch)!r} is not part of the certificate format")
    if a.epochs > MAX_EPOCHS:
        out.append(f"more than {MAX_EPOCHS} epochs")
    return out


def _fraction(x: float | None) -> str | None:
    return None if x is None else str(Fraction(repr(float(x))))


def switches(setting: Setting, lr: Fraction) -> dict[str, Any]:
    """The algorithm as a certificate spells it out."""
    a = setting.algorithm
    exact = a.estimator == "exact"
    batch = "batch" in (a.baseline, a.normalise)
    size = setting.group_size
    return {
        "estimator": a.estimator,
        "baseline": "none" if exact else a.baseline,
        "normalise": "none" if exact else a.normalise,
        "group_size": "inf" if size == math.inf else int(size),
        "contexts_per_batch": "inf" if not batch else _size(setting.contexts_per_batch),
        "std_eps": _fraction(a.std_eps),
        "ddof": 1,
        "advantage_clip": None if exact else _fraction(a.advantage_clip),
        "discounting": "kept",
        "objective": a.objective,
        "clip": [_fraction(x) for x in a.clip_range],
        "level": a.level,
        "order": list(a.order) if isinstance(a.order, tuple) else a.order,
        "credit": a.credit,
        "reference": a.reference,
        "factor_clip": _fraction(a.factor_clip),
        "product_clip": _fraction(a.product_clip),
        "epochs": a.epochs,
        "lr": str(lr),
    }


def _size(x: float) -> str | int:
    return "inf" if x == math.inf else int(x)


def certify(
    setting: Setting, space: Space, instance: Instance, place: Sequence[int] = ()
) -> dict[str, Any]:
    """A certificate of the violation, or `NotCertified`.

    Args:
        place: (turn, node, action) of the instance, for "sign".
    """
    reasons = obstacles(setting)
    if reasons:
        raise NotCertified("; ".join(reasons))
    model, policy = instance.certificate_model(), instance.certificate_policy()
    every = switches(setting, instance.lr)
    estimator = {name: every[name] for name in ESTIMATOR}
    if setting.prop == "monotone":
        return proofs_certify.certify_step(model, policy, every)
    if setting.prop == "sign":
        turn, node, action = map(int, place)
        witness: dict[str, Any] = {"turn": turn, "node": node, "action": action}
        kind = "expected-advantage-wrong-sign"
        return proofs_certify.certify(kind, model, policy, estimator, witness)
    if setting.prop == "unbiased":
        return proofs_certify.certify("biased-estimator", model, policy, estimator)
    witness = {"policy": better_policy(space, instance).certificate_policy()}
    if setting.algorithm.ideal:
        sweep = {"update": "argmax", "order": every["order"]}
        return proofs_certify.certify("stuck-sweep", model, policy, sweep, witness)
    rest = {**estimator, "update": "gradient"}
    return proofs_certify.certify("suboptimal-fixed-point", model, policy, rest, witness)


def better_policy(space: Space, instance: Instance) -> Instance:
    """The instance with the best policy of its family that is known (the optimum where tabular)."""
    if instance.param == "tabular":
        return replace(instance, probs=_optimal(instance))
    options: list[Instance] = []
    if instance.param == "shared":
        width, rows = instance.actions[0], len(instance.probs[0])
        for chosen in itertools.islice(itertools.product(range(width), repeat=rows), 4096):
            table = tuple(tuple(ONE if a == c else ZERO for a in range(width)) for c in chosen)
            options.append(replace(instance, probs=(table,)))
    else:
        d = len(instance.theta)
        for theta in np.unique(best_thetas(space)[:, :d], axis=0):
            options.append(replace(instance, theta=tuple(map(Fraction, theta.tolist()))))
    return max(options, key=lambda option: float(option.value(option.tables())))


def _optimal(instance: Instance) -> tuple[Any, ...]:
    """Backward induction in fractions; ties go to the first action."""
    later: list[Fraction] = [sum((v * p for v, p in leaf), ZERO) for leaf in instance.leaves]
    tables = []
    for count in reversed(instance.actions):
        rows = [later[i : i + count] for i in range(0, len(later), count)]
        best = [row.index(max(row)) for row in rows]
        tables.append(tuple(tuple(ONE if a == b else ZERO for a in range(count)) for b in best))
        later = [max(row) for row in rows]
    return tuple(tables[::-1])


# Surrogates -------------------------------------------------------------------------------------


def surrogates_rise(setting: Setting, instance: Instance) -> bool | None:
    """Whether no update lowers the surrogate of any row (by 1e-20 or more); None where undecided.

    The step is that of the certificate, in the same arithmetic.
    """
    every = switches(setting, instance.lr)
    algorithm = {name: every[name] for name in (*ESTIMATOR, *STEP)}
    model = read_model(instance.certificate_model())
    policy = read_policy(instance.certificate_policy(), model)
    alg = read_algorithm(algorithm, ESTIMATOR | STEP, len(model.nodes))
    for bits in PRECISIONS:
        try:
            return all(_rises_enough(x) for x in _rises(model, policy, alg, bits))
        except Undecided:
            continue
    return None


def _rises_enough(x: Number) -> bool:
    """Whether x ≥ −NEGLIGIBLE, for certain."""
    if not isinstance(x, Interval):
        return x >= -NEGLIGIBLE
    bound = Interval.around(-NEGLIGIBLE, x.bits)
    if x.lo < bound.hi and x.hi > bound.lo:
        raise Undecided("a rise")
    return x.lo >= bound.hi


def _rises(model: Any, policy: Any, alg: dict[str, Any], bits: int) -> list[Number]:
    """Rise of every row's surrogate in every update, the step being the verifier's."""
    theta, table = list(policy.theta), policy.table(policy.theta, bits)
    sampling, old = Play(model, policy, table), table
    surrogate = Surrogate(sampling, estimates(sampling, alg, bits), alg)
    rises: list[Number] = []
    for turns in alg["order"]:
        if alg["reference"] == "current":
            old = table
        start = table
        for _ in range(alg["epochs"]):
            slopes = [
                (row, a, weight * slope(rho, plus, minus, alg))
                for row, a, weight, rho, plus, minus in surrogate.terms(turns, table, old)
            ]
            gradient = Play(model, policy, table).ascent(slopes)
            theta = [x + alg["lr"] * g for x, g in zip(theta, gradient, strict=True)]
            table = policy.table(theta, bits)
        rows: dict[int, Number] = {}
        for side, at in ((1, table), (-1, start)):
            for row, _, weight, rho, plus, minus in surrogate.terms(turns, at, old):
                part = side * weight * height(rho, plus, minus, alg, bits)
                key = 0 if alg["credit"] == "trajectory" else row
                rows[key] = rows.get(key, ZERO) + part
        rises += rows.values()
        surrogate.advance(turns, table, old)
    return rises
