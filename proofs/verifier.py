r"""Re-check a counterexample from its certificate: ``python -m proofs.verifier FILE...``.

A certificate is a JSON object that states a model, a policy and an algorithm in rational numbers
and a claim about them. This module recomputes the claim from the other three in exact rational
arithmetic, or in rational intervals where a square root or an exponential enters, and accepts
only if every stated number equals what it finds. It imports the standard library and three
files of this folder, ``intervals.py`` (arithmetic), ``_certificate.py`` (reading) and
``_semantics.py`` (one iteration): no simulator, no floating point.

**Format** ``seeupo-certificate/1``; unknown or missing fields are rejected. A number is a string
in lowest terms (``"3/10"``). The kinds and what each establishes:

* ``step-lowers-value``: one iteration of the algorithm lowers J by at least ``drop_at_least``;
  ``surrogate_gains`` is what each update gained in its own objective, negative if it overshot.
* ``expected-advantage-wrong-sign``: at the witness (turn, node, action) the expected estimate and
  the true advantage have opposite signs. The estimate is centred over the own action, since only
  that part of it enters the gradient.
* ``biased-estimator``: the expected gradient estimate is ``opposed`` to the true gradient (their
  inner product is negative), or ``not-proportional`` to it.
* ``suboptimal-fixed-point``: the update (expected ``gradient``, or every turn's ``argmax`` with the
  other turns held) leaves the policy alone, and the witness policy of the same kind is better.
* ``stuck-sweep``: one sweep of argmax steps over the reached histories leads to a policy which the
  next sweep leaves alone, and the witness policy is better. Ties keep the old proportions.

**Model.** ``bandit``: ``rewards`` nested [context][a_1]...[a_T]; a leaf is a number or
``{"values", "probs"}``. ``mdp``: finite horizon; a state which no action leaves and where none pays
is absorbing and takes no more turns. A node is a history (context-major, then a_1, a_2, ...) or a
state. **Policy.** ``tabular``: ``probs`` [turn][node][action]; ``shared``: ``observation``
[turn][node] names a row of ``probs``; both have logits log π. ``log-linear``: ``theta``, and
``features`` [turn][node][action][d]. All are π(a) ∝ base(a) exp(φ(a)·θ).

**Algorithm.** Plain gradient ascent on exact expectations: over all trajectories under the policy
π_k at the start, and over all groups of ``group_size``. Turn t takes ``epochs`` steps of size ``lr``
on E[min(ρ M, clip(ρ) M)] with M = (factors of the turns already updated) · Â; ρ and the factors
are relative to π_k, or with ``reference`` current to the policy at the start of the turn's update.
At the kink of the clip the unclipped branch counts. Â is ``grae``, from the group's returns, or
``exact``, the true advantage of a turn where the turns already updated follow their new policies.
``credit`` trajectory takes one ratio, the product over all turns. A batch is infinite, its
statistics are the population's; a turn is one token, so that the ``level``s agree.

An interval claim is a pair of decimals, the outward rounding to 12 places; ``drop_at_least`` is the
drop rounded down to two significant digits; ``sha256`` covers all the other fields.

>>> verify({"format": "seeupo-certificate/2"}).message
"certificate.format is 'seeupo-certificate/2', must be one of ['seeupo-certificate/1']"
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from proofs._certificate import (
    ESTIMATOR,
    FIXED_POINT,
    STEP,
    SWEEP,
    Model,
    Policy,
    Rejected,
    choice,
    demand,
    fields,
    integer,
    read_algorithm,
    read_model,
    read_policy,
)
from proofs._semantics import Play, best_rows, estimates, iterate, means, pair_up, sweep
from proofs.intervals import ZERO, Interval, Number, Undecided, sign

MAX_WORK = 20_000  # trajectories times gradient steps
FORMAT = "seeupo-certificate/1"
PLACES = 12  # decimals of an interval claim: far coarser than the arithmetic
PRECISIONS = (128, 256, 512)  # bits, tried in turn until every comparison is decided


@dataclass(frozen=True)
class Verdict:
    """What became of a certificate: accepted or not, and the reason in one line."""

    accepted: bool
    kind: str
    message: str


# Kinds of claims --------------------------------------------------------------------------------


def step_lowers_value(model: Model, policy: Policy, alg: Any, witness: Any, bits: int) -> Any:
    fields(witness, (), "witness")
    demand(len(model.trajectories) * alg["epochs"] <= MAX_WORK, "the step is too large to check")
    before = Play(model, policy, policy.table(policy.theta, bits)).value()
    table, gained = iterate(model, policy, alg, bits)
    after = Play(model, policy, table).value()
    drop = before - after
    demand(sign(drop) > 0, "the step does not lower the value")
    claim = {"value_before": before, "value_after": after, "drop_at_least": two_digits(drop)}
    message = f"one iteration lowers J by at least {two_digits(drop)}"
    if all(certain_sign(g) > 0 for g in gained):
        message += ", while every update raises its own surrogate"
    elif any(certain_sign(g) < 0 for g in gained):
        message += "; an update overshoots, it lowers its own surrogate"
    return {**claim, "surrogate_gains": gained}, message


def wrong_sign(model: Model, policy: Policy, alg: Any, witness: Any, bits: int) -> Any:
    fields(witness, ("turn", "node", "action"), "witness")
    turn = integer(witness["turn"], 0, len(model.nodes) - 1, "witness.turn")
    action = integer(witness["action"], 0, model.actions[turn] - 1, "witness.action")
    node = integer(witness["node"], 0, model.nodes[turn] - 1, "witness.node")
    play = Play(model, policy, policy.table(policy.theta, bits))
    payoff = [
        next((x for (t, _, _), x in zip(tr.moves, row, strict=True) if t == turn), ZERO)
        for tr, row in zip(model.trajectories, means(estimates(play, alg, bits)), strict=True)
    ]
    found = play.advantages(turn, payoff)
    demand(node in found, "witness.node is never reached")
    expected, exact = found[node][action], play.advantages(turn, play.returns)[node][action]
    demand(sign(expected) * sign(exact) < 0, "the expected advantage has the right sign, or none")
    side = "prefers" if sign(expected) > 0 else "avoids"
    message = f"the expected estimate {side} an action of the opposite true advantage"
    return {"expected": expected, "exact": exact}, message


def biased_estimator(model: Model, policy: Policy, alg: Any, witness: Any, bits: int) -> Any:
    fields(witness, (), "witness")
    play = Play(model, policy, policy.table(policy.theta, bits))
    estimate = play.policy_gradient(means(estimates(play, alg, bits)))
    pairs = zip(play.returns, play.paths, strict=True)
    true = play.policy_gradient([[r] * len(path) for r, path in pairs])
    inner = pair_up(estimate, true)
    demand(sign(inner) != 0, "the two gradients are orthogonal")
    relation = "opposed" if sign(inner) < 0 else "not-proportional"
    crossed = itertools.combinations(zip(estimate, true, strict=True), 2)
    differ = sign(inner) < 0 or any(certain_sign(g * d2 - g2 * d) for (g, d), (g2, d2) in crossed)
    demand(differ, "the two gradients are proportional")
    claim = {"relation": relation, "inner_product": inner, "expected": estimate, "gradient": true}
    return claim, f"the expected gradient is {relation} to the true one"


def certain_sign(x: Number) -> int:
    """The sign, and 0 also where it is not decided."""
    try:
        return sign(x)
    except Undecided:
        return 0


def better(model: Model, policy: Policy, witness: Any, bits: int) -> Number:
    """The value of the witness policy, which must share the structure of the policy."""
    other = read_policy(fields(witness, ("policy",), "witness")["policy"], model, "witness.policy")
    same = (other.rows, other.features) == (policy.rows, policy.features)
    demand(same, "witness.policy must have the parametrisation of the policy")
    return Play(model, other, other.table(other.theta, bits)).value()


def fixed_point(model: Model, policy: Policy, alg: Any, witness: Any, bits: int) -> Any:
    play = Play(model, policy, policy.table(policy.theta, bits))
    if alg["update"] == "gradient":
        gradient = play.policy_gradient(means(estimates(play, alg, bits)))
        demand(all(g == 0 for g in gradient), "the expected gradient is not exactly 0")
    for turn in range(len(model.nodes)) if alg["update"] == "argmax" else ():
        for row, best in best_rows(play, turn).items():
            kept = all(p == 0 or top for p, top in zip(play.table[row], best, strict=True))
            demand(kept, f"turn {turn}: the argmax changes row {row}")
    value, optimum = play.value(), better(model, policy, witness, bits)
    demand(sign(optimum - value) > 0, "witness.policy is not better")
    claim = {"value": value, "better_value": optimum}
    return claim, f"the {alg['update']} update rests where a better policy exists"


def stuck_sweep(model: Model, policy: Policy, alg: Any, witness: Any, bits: int) -> Any:
    table = policy.table(policy.theta, bits)
    after = sweep(model, policy, table, alg["order"])
    demand(sweep(model, policy, after, alg["order"]) == after, "the second sweep still moves")
    before, value = (Play(model, policy, x).value() for x in (table, after))
    optimum = better(model, policy, witness, bits)
    demand(sign(optimum - value) > 0, "witness.policy is not better")
    claim = {"value_before": before, "value_after": value, "better_value": optimum}
    return {**claim, "policy_after": after}, "the sweep ends where a better policy exists"


KINDS: dict[str, tuple[Any, dict[str, tuple[Any, ...]]]] = {
    "step-lowers-value": (step_lowers_value, ESTIMATOR | STEP),
    "expected-advantage-wrong-sign": (wrong_sign, ESTIMATOR),
    "biased-estimator": (biased_estimator, ESTIMATOR),
    "suboptimal-fixed-point": (fixed_point, ESTIMATOR | FIXED_POINT),
    "stuck-sweep": (stuck_sweep, SWEEP),
}


# Writing and checking ---------------------------------------------------------------------------


def decimal(units: int, places: int) -> str:
    """units / 10^places, written out."""
    digits = str(abs(units)).rjust(places + 1, "0")
    point = f"{digits[:-places]}.{digits[-places:]}" if places else digits
    return "-" + point if units < 0 else point


def floor(x: Number, places: int) -> int:
    """floor(x 10^places), which both ends of an interval must agree on."""
    if not isinstance(x, Interval):
        return math.floor(x * 10**places)
    low, high = ((end * 10**places) >> x.bits for end in (x.lo, x.hi))
    if low != high:
        raise Undecided("a rounded value")
    return low


def two_digits(x: Number) -> str:
    """A positive number rounded down to two significant digits (or to an integer)."""
    places = next(n for n in itertools.count() if floor(x, n) >= 10)
    return decimal(floor(x, places), places)


def written(x: Any) -> Any:
    """A computed claim as it stands in the certificate."""
    if isinstance(x, Interval):
        low, high = (x.lo * 10**PLACES) >> x.bits, -((-x.hi * 10**PLACES) >> x.bits)
        if high - low > 2:  # 2 where the value is a decimal itself, such as an exact 0
            raise Undecided("a claim")
        return [decimal(low, PLACES), decimal(high, PLACES)]
    if isinstance(x, Fraction):
        return str(x)
    if isinstance(x, dict):
        return {key: written(item) for key, item in x.items()}
    return [written(item) for item in x] if isinstance(x, list) else x


def has_interval(x: Any) -> bool:
    items = x.values() if isinstance(x, dict) else x if isinstance(x, list) else ()
    return isinstance(x, Interval) or any(map(has_interval, items))


def compute(kind: str, model: Any, policy: Any, algorithm: Any, witness: Any) -> tuple[Any, ...]:
    """(claim, arithmetic, message) of a certificate with these inputs; `Rejected` if none holds."""
    claim_of, switches = KINDS[choice(kind, tuple(KINDS), "certificate.kind")]
    read = read_model(model)
    start = read_policy(policy, read)
    alg = read_algorithm(algorithm, switches, len(read.nodes))
    for bits in PRECISIONS:
        try:
            claim, message = claim_of(read, start, alg, witness, bits)
            arithmetic = "rational-interval" if has_interval(claim) else "rational"
            return written(claim), arithmetic, message
        except Undecided as error:
            reason = str(error)
    raise Rejected(f"not decided with {PRECISIONS[-1]} bits: {reason}")


def digest(certificate: dict[str, Any]) -> str:
    """SHA-256 of the canonical text of every field but ``sha256``."""
    content = {key: value for key, value in certificate.items() if key != "sha256"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def verify(certificate: Any) -> Verdict:
    """Recompute the claim of a certificate; never raises for what a certificate may contain."""
    kind = certificate.get("kind", "") if isinstance(certificate, dict) else ""
    try:
        demand(isinstance(certificate, dict), "a certificate must be an object")
        choice(certificate.get("format"), (FORMAT,), "certificate.format")
        inputs = ("model", "policy", "algorithm", "witness")
        names = ("format", "kind", "statement", *inputs, "claim", "arithmetic", "sha256")
        fields(certificate, names, "certificate")
        demand(isinstance(certificate["statement"], str), "certificate.statement must be a string")
        claim, arithmetic, message = compute(kind, *(certificate[name] for name in inputs))
        choice(certificate["arithmetic"], (arithmetic,), "certificate.arithmetic")
        stated = fields(certificate["claim"], tuple(claim), "claim")
        for name, value in claim.items():
            demand(stated[name] == value, f"claim.{name} is {stated[name]!r}, found {value!r}")
        demand(certificate["sha256"] == digest(certificate), "certificate.sha256 does not match")
    except (ValueError, RecursionError, OverflowError) as error:
        return Verdict(False, str(kind), str(error))
    return Verdict(True, kind, message)


def load(text: str) -> Any:
    """The JSON value; repeated fields and numbers with a point are errors."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        repeated = [key for key, n in Counter(key for key, _ in pairs).items() if n > 1]
        demand(not repeated, f"{repeated} stands twice in one object")
        return dict(pairs)

    def no_float(token: str) -> Any:
        raise Rejected(f"the number {token} must be a fraction string")

    return json.loads(text, object_pairs_hook=unique, parse_float=no_float, parse_constant=no_float)


def verify_file(path: str | Path) -> Verdict:
    """`verify` for a file; `OSError` where it cannot be read."""
    try:
        return verify(load(Path(path).read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:
        return Verdict(False, "", f"not a certificate: {error}")


def main(paths: Sequence[str]) -> int:
    """Print one line a file; 0 if all are accepted, 1 if one is not, 2 if one cannot be read."""
    if not paths:
        print("usage: python -m proofs.verifier FILE...", file=sys.stderr)
        return 2
    accepted = True
    for path in paths:
        try:
            verdict = verify_file(path)
        except OSError as error:
            print(f"{path}: {error.strerror}", file=sys.stderr)
            return 2
        accepted &= verdict.accepted
        print(f"{'accepted' if verdict.accepted else 'REJECTED'}  {path}: {verdict.message}")
    return 0 if accepted else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
