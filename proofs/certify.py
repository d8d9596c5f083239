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

import math
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


def algorithm_json(algorithm: Any, group_size: float = float("inf")) -> dict[str, Any]:
    """The switches of a `seeupo_theory.rules.presets.Algorithm`, as a certificate spells them.

    Batches are infinite; raises `NotCertified` for what the verifier does not know (GAE, a user's
    function, ideal steps, a guard, a KL penalty, a dual clip, fresh samples, a random order).

    >>> from seeupo_theory.rules import presets
    >>> algorithm_json(presets.get("seeupo-official"), 8)["factor_clip"]
    '1/5'
    """
    given = algorithm.switches()
    beyond = {
        "estimator": given["estimator"] not in ("grae", "exact"),
        "objective": given["objective"] not in ("clip", "reinforce"),
        "dual_clip": given["dual_clip"] is not None,
        "guard": given["guard"],
        "kl_coef": given["kl_coef"] != 0,
        "resample": given["resample"],
        "order": given["order"] == "random",
    }
    for name, unknown in beyond.items():
        if unknown:
            raise NotCertified(f"{name} = {given[name]!r} is beyond what a certificate can state")
    exact = given["estimator"] == "exact"
    if exact:
        given |= {"baseline": "none", "normalise": "none", "advantage_clip": None}
    numbers = ("std_eps", "advantage_clip", "factor_clip", "product_clip", "lr")
    changes = {name: given[name] for name in DEFAULTS if name in given}
    changes |= {name: fractions_of(given[name]) for name in numbers if given[name] is not None}
    changes["clip"] = fractions_of(list(algorithm.clip_range))
    changes["group_size"] = "inf" if exact or math.isinf(group_size) else int(group_size)
    return switches(**changes)


def model_json(model: Any) -> dict[str, Any]:
    """A bandit or MDP of the package `bandits` in a certificate's terms, exact fractions kept.

    Raises `NotCertified` for an MDP with random rewards, a mask or tables that change by turn.

    >>> from bandits import SequentialBandit
    >>> model_json(SequentialBandit([[0.5, {"values": [0, 2], "probs": ["1/3", "2/3"]}]]))["rewards"]
    [['1/2', {'values': ['0', '2'], 'probs': ['1/3', '2/3']}]]
    """
    rewards, probs = model.exact_rewards().tolist(), model.exact_reward_probs().tolist()
    if not hasattr(model, "exact_transitions"):
        weights = fractions_of(model.exact_context_probs().tolist())
        leaves = _leaves(rewards, probs)
        return {"kind": "bandit", "context_probs": weights, "rewards": leaves}
    leaves = _leaves(rewards, probs)
    if not model.stationary or not all(isinstance(x, str) for row in leaves for x in row):
        raise NotCertified("a certificate states one table of transitions and of sure rewards")
    if not all(model.mask_by_turn(t).all() for t in range(model.turns)):
        raise NotCertified("a certificate has no masks")
    transitions = model.exact_transitions().tolist()
    for s, (row, paid) in enumerate(zip(transitions, leaves, strict=True)):
        over = all(x[s] == 1 for x in row) and all(x == "0" for x in paid)
        if over != model.absorbing[s]:
            raise NotCertified(f"absorbing[{s}] is not what its transitions and rewards say")
    return {
        "kind": "mdp",
        "horizon": int(model.turns),
        "discount": fractions_of(model.discount_exact.exact().tolist()[0]),
        "initial": fractions_of(model.exact_initial().tolist()),
        "transitions": fractions_of(transitions),
        "rewards": leaves,
    }


def _leaves(values: Any, probs: Any) -> Any:
    if isinstance(values[0], list):
        return [_leaves(v, p) for v, p in zip(values, probs, strict=True)]
    atoms = {v: p for v, p in zip(values, probs, strict=True) if p}
    if len(atoms) == 1:
        return fractions_of(next(iter(atoms)))
    return fractions_of({"values": list(atoms), "probs": list(atoms.values())})


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
