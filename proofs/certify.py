r"""Write certificates: from rational inputs to a claim that ``proofs/verifier.py`` accepts.

`certify` computes the claim with the verifier's own arithmetic and raises `NotCertified` where there
is none, so that whatever it returns verifies. The inputs are the JSON values described in
``proofs/verifier.py``; `fractions_of` turns nested numbers into the strings they are made of.

>>> model = {"kind": "bandit", "context_probs": ["1"], "rewards": fractions_of([
...     [0.5, {"values": [0, "3/2"], "probs": ["3/5", "2/5"]}]])}
>>> policy = {"parametrisation": "tabular", "probs": fractions_of([[["1/2", "1/2"]]])}
>>> algorithm = switches(normalise="group", group_size=2, std_eps="0", lr="1/2")
>>> certificate = certify_step(model, policy, algorithm)
>>> certificate["claim"]["value_before"], certificate["claim"]["drop_at_least"]
('11/20', '0.00088')
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from proofs._certificate import ESTIMATOR, STEP, Rejected
from proofs.verifier import FORMAT, KINDS, compute, digest

DEFAULTS: dict[str, Any] = {
    "estimator": "grae",
    "baseline": "mean",
    "normalise": "none",
    "group_size": "inf",
    "contexts_per_batch": "inf",
    "std_eps": "1/1000000",
    "ddof": 1,
    "advantage_clip": None,
    "discounting": "kept",
    "objective": "clip",
    "clip": ["1/5", "1/5"],
    "level": "sequence",
    "order": "simultaneous",
    "credit": "turn",
    "reference": "behaviour",
    "factor_clip": None,
    "product_clip": None,
    "epochs": 1,
    "lr": "1/2",
}


class NotCertified(ValueError):
    """There is no certificate of this kind for these inputs; the message says why."""


def fractions_of(value: Any) -> Any:
    """Nested numbers as fraction strings; a float is taken as the decimal it prints as.

    >>> fractions_of([1, 0.1, "2/4", Fraction(1, 3)])
    ['1', '1/10', '1/2', '1/3']
    """
    if isinstance(value, dict):
        return {key: fractions_of(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fractions_of(item) for item in value]
    if isinstance(value, bool) or not isinstance(value, int | float | str | Fraction):
        raise TypeError(f"{value!r} is not a number; use an int, a float, a Fraction or '3/10'")
    return str(Fraction(repr(value)) if isinstance(value, float) else Fraction(value))


def switches(**changes: Any) -> dict[str, Any]:
    """All switches of an iteration, spelled out; anything not named keeps its default."""
    unknown = sorted(set(changes) - set(DEFAULTS))
    if unknown:
        raise ValueError(f"unknown switch {unknown[0]!r}; there are: {', '.join(DEFAULTS)}")
    return {**DEFAULTS, **changes}


def estimator_switches(**changes: Any) -> dict[str, Any]:
    """The switches of the advantage estimator alone."""
    return {name: value for name, value in switches(**changes).items() if name in ESTIMATOR}


def certify(
    kind: str,
    model: dict[str, Any],
    policy: dict[str, Any],
    algorithm: dict[str, Any],
    witness: dict[str, Any] | None = None,
    *,
    statement: str = "",
) -> dict[str, Any]:
    """The certificate of a kind of claim, or `NotCertified`."""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, must be one of {sorted(KINDS)}")
    witness = {} if witness is None else witness
    try:
        claim, arithmetic, message = compute(kind, model, policy, algorithm, witness)
    except Rejected as error:
        raise NotCertified(str(error)) from None
    certificate = {
        "format": FORMAT,
        "kind": kind,
        "statement": statement or message,
        "model": model,
        "policy": policy,
        "algorithm": algorithm,
        "witness": witness,
        "claim": claim,
        "arithmetic": arithmetic,
    }
    return {**certificate, "sha256": digest(certificate)}


def certify_step(
    model: dict[str, Any], policy: dict[str, Any], algorithm: dict[str, Any], *, statement: str = ""
) -> dict[str, Any]:
    """A certificate that one iteration lowers J, or `NotCertified`.

    `algorithm` must spell out every switch (see `switches`).
    """
    missing = sorted(set(ESTIMATOR | STEP) - set(algorithm))
    if missing:
        raise ValueError(
            f"algorithm.{missing[0]} is missing; `switches(...)` spells all of them out"
        )
    return certify("step-lowers-value", model, policy, algorithm, statement=statement)
