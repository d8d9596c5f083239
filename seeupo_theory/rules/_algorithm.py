"""One algorithm as a composition of switches; the public home is `seeupo_theory.rules.presets`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from seeupo_theory.rules import objectives
from seeupo_theory.rules._arrays import choice, number, unknown
from seeupo_theory.rules.advantages import BASELINES, NORMALISATIONS, Estimator, Grae
from seeupo_theory.rules.kl import KL_KINDS
from seeupo_theory.rules.orders import ORDERS, permutation
from seeupo_theory.rules.ratios import LEVELS

ESTIMATOR_KINDS = ("grae", "gae", "exact")
ASCENDED = ("reinforce", "clip")
IDEAL = ("greedy", "mirror", "clip-argmax")
CREDITS = ("turn", "trajectory")
REFERENCES = ("behaviour", "current")
MAX_EPOCHS = 1_000_000
"""Gradient steps an update; more is a slip of the finger."""
CRITICS = ("exact", "tabular")
SUPPORTS = ("all", "reached")


@dataclass(frozen=True)
class Algorithm:
    """A policy-optimisation algorithm: estimator × objective × order, each switch separate.

    Every field is checked at construction; an unknown name is an error that lists the known ones.

    Attributes:
        name: how it is called in tables.
        estimator: "grae" (group-relative, with `baseline` and `normalise`), "gae" (with `critic`
            and `gae_lambda`), "exact" (the true advantage A^π(h, a) of the turn), or a callable
            returns[..., B, G] → advantages.
        baseline: "mean" of the group, "loo" (mean of the others), "batch" or "none". For "grae".
        normalise: "none", "group" or "batch". For "grae".
        std_eps: added to the standard deviation; may be 0. For "grae".
        advantage_clip: limit on the absolute advantage, or None.
        objective: "reinforce" or "clip", ascended by gradient steps; "greedy", "mirror" or
            "clip-argmax", ideal steps in closed form; or a callable (log_prob, log_prob_old,
            advantage, weight) → objective, positively homogeneous in the advantage.
        clip: half-width ε of the clip interval [1 − ε, 1 + ε], or (low, high).
        dual_clip: bound c > 1 on the ratio of negative advantages, or None.
        level: "sequence" (the true ratio of a whole response), "length-normalised" or "token".
        order: "reverse", "forward", "random", a permutation of 0-based turns (first updated
            first), or "simultaneous" (one joint update of all turns).
        credit: "turn" (a turn's ratio times the running factor) or "trajectory" (one ratio, the
            product over all turns).
        reference: what ratios and factors are taken against: "behaviour" (the sampling policy θ_k)
            or "current" (the parameters just before the turn's update).
        factor_clip: clamp each turn's factor to [1 − x, 1 + x], or None; 0 drops the factor.
        product_clip: clamp the running product likewise.
        epochs: gradient steps in each update.
        lr: step size; η of the mirror step.
        guard: halve a step until the surrogate does not fall below 0.
        kl_coef: weight β ≥ 0 of the KL penalty.
        kl_kind: "k1", "k2" or "k3"; see `seeupo_theory.rules.kl` for which is a valid loss.
        gae_lambda: λ. For "gae".
        critic: "exact" or "tabular" (fitted to samples). For "gae".
        resample: evaluate afresh under the current policy before each turn's update, instead of
            reweighting the samples of θ_k by the running factor.
        support: histories that an ideal step updates: "all", or those "reached" by the policy.
        summary: one line on what it is and where it comes from; not compared.

    >>> Algorithm(clip=(0.2, 0.28)).clip_range
    (0.2, 0.28)
    >>> Algorithm(order="sequential")
    Traceback (most recent call last):
    ...
    ValueError: order is 'sequential'; it should be one of reverse, forward, random, simultaneous
    """

    name: str = "custom"
    estimator: str | Estimator = "grae"
    baseline: str = "mean"
    normalise: str = "none"
    std_eps: float = 1e-6
    advantage_clip: float | None = None
    objective: str | Callable[..., Any] = "clip"
    clip: float | tuple[float, float] = 0.2
    dual_clip: float | None = None
    level: str = "sequence"
    order: str | tuple[int, ...] = "reverse"
    credit: str = "turn"
    reference: str = "behaviour"
    factor_clip: float | None = None
    product_clip: float | None = None
    epochs: int = 20
    lr: float = 0.5
    guard: bool = False
    kl_coef: float = 0.0
    kl_kind: str = "k3"
    gae_lambda: float = 1.0
    critic: str = "exact"
    resample: bool = False
    support: str = "all"
    summary: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check every field."""
        for key in ("name", "summary"):
            if not isinstance(getattr(self, key), str):
                raise TypeError(f"{key} is {getattr(self, key)!r}; it should be a string")
        if not callable(self.estimator):
            choice(self.estimator, "estimator", ESTIMATOR_KINDS)
        if not callable(self.objective):
            choice(self.objective, "objective", ASCENDED + IDEAL)
        for key, known in _NAMES.items():
            choice(getattr(self, key), key, known)
        for key in ("guard", "resample"):
            if not isinstance(getattr(self, key), bool):
                raise TypeError(f"{key} is {getattr(self, key)!r}; it should be True or False")
        self._check_numbers()
        self._check_order()
        if self.credit == "trajectory":
            self._check_trajectory()

    def _check_numbers(self) -> None:
        number(self.std_eps, "std_eps", 0.0)
        number(self.lr, "lr", 0.0)
        number(self.kl_coef, "kl_coef", 0.0)
        number(self.gae_lambda, "gae_lambda", 0.0, 1.0)
        if not isinstance(self.epochs, Integral) or self.epochs is True or self.epochs < 1:
            raise ValueError(
                f"epochs is {self.epochs!r}; it should be a whole number of at least 1"
            )
        if self.epochs > MAX_EPOCHS:
            raise ValueError(f"epochs is {self.epochs}; it should be at most {MAX_EPOCHS}")
        if self.advantage_clip is not None:
            number(self.advantage_clip, "advantage_clip", 0.0, open_low=True)
        if self.dual_clip is not None:
            number(self.dual_clip, "dual_clip", 1.0, open_low=True)
        for key in ("factor_clip", "product_clip"):
            if getattr(self, key) is not None:
                number(getattr(self, key), key, 0.0, 1.0)
        if isinstance(self.clip, list):
            object.__setattr__(self, "clip", tuple(self.clip))
        if isinstance(self.clip, tuple):
            if len(self.clip) != 2:
                raise ValueError(f"clip is {self.clip}; it should be a number or (low, high)")
            number(self.clip[0], "clip[0]", 0.0, 1.0)
            number(self.clip[1], "clip[1]", 0.0)
        else:
            number(self.clip, "clip", 0.0, 1.0)

    def _check_order(self) -> None:
        if isinstance(self.order, str):
            choice(self.order, "order", (*ORDERS, "simultaneous"))
        else:
            object.__setattr__(self, "order", permutation(self.order))

    def _check_trajectory(self) -> None:
        if self.order != "simultaneous":
            raise ValueError(
                f"order is {self.order!r} with credit='trajectory'; one ratio for all turns needs "
                "'simultaneous'"
            )
        if self.estimator in ("gae", "exact"):
            raise ValueError(
                f"estimator is {self.estimator!r} with credit='trajectory'; it should be 'grae' or "
                "a callable, one advantage a trajectory"
            )
        if self.ideal:
            raise ValueError(
                f"objective is {self.objective!r} with credit='trajectory'; ideal steps are one "
                "turn's, it should be one of " + ", ".join(ASCENDED)
            )

    @property
    def ideal(self) -> bool:
        """Whether a turn's update is a closed-form argmax instead of gradient steps."""
        return self.objective in IDEAL

    @property
    def simultaneous(self) -> bool:
        """Whether all turns are updated in one joint step."""
        return self.order == "simultaneous"

    @property
    def factor_level(self) -> str:
        """Level of the running factor: a factor belongs to a whole turn, never to a token."""
        return "sequence" if self.level == "token" else self.level

    @property
    def clip_range(self) -> tuple[float, float]:
        """(low, high) of the clip interval [1 − low, 1 + high]."""
        return self.clip if isinstance(self.clip, tuple) else (self.clip, self.clip)

    @property
    def couples(self) -> str:
        """What an advantage depends on: "group" or "batch" (the other groups too)."""
        if self.estimator in ("gae", "exact"):
            return "group"
        return str(getattr(self.advantage_rule(), "couples", "group"))

    @property
    def unread(self) -> frozenset[str]:
        """Fields that do not influence this algorithm (to warn a user who sets one).

        >>> sorted(Algorithm(objective="reinforce", normalise="batch").unread)
        ['clip', 'critic', 'dual_clip', 'gae_lambda', 'kl_kind', 'support']
        """
        out: set[str] = set()
        if self.estimator != "grae":
            out |= {"baseline", "normalise", "std_eps"}
        elif self.normalise == "none":
            out.add("std_eps")
        if self.estimator != "gae":
            out |= {"gae_lambda", "critic"}
        if self.estimator == "exact" or callable(self.estimator):
            out.add("advantage_clip")
        if self.objective != "clip":
            out.add("dual_clip")
        if self.objective not in ("clip", "clip-argmax"):
            out.add("clip")
        if self.ideal:
            out |= {"epochs", "guard", "kl_coef"}
            if self.objective != "mirror":
                out.add("lr")
        else:
            out.add("support")
        if self.ideal or not self.kl_coef:
            out.add("kl_kind")
        if self.simultaneous or self.resample:
            out |= {"factor_clip", "product_clip", "reference"}
        return frozenset(out)

    def advantage_rule(self) -> Estimator:
        """The estimator returns[..., B, G] → advantages, with its options bound.

        Raises:
            ValueError: for "gae" and "exact", which are not functions of the group's returns.
        """
        if callable(self.estimator):
            return self.estimator
        if self.estimator != "grae":
            raise ValueError(f"estimator {self.estimator!r} is not a function of a group's returns")
        return Grae(self.baseline, self.normalise, std_eps=self.std_eps, clamp=self.advantage_clip)

    def objective_rule(self) -> objectives.Objective:
        """The objective (log_prob, log_prob_old, advantage, weight) with its options bound.

        Raises:
            ValueError: for an ideal step, which has no per-sample objective.
        """
        if callable(self.objective):
            return self.objective
        if self.ideal:
            raise ValueError(f"objective {self.objective!r} is a closed-form step, not a function")
        if self.objective == "clip":
            low, high = self.clip_range
            return objectives.bound_clip(low, high, self.dual_clip)
        return objectives.OBJECTIVES[str(self.objective)]

    def replace(self, **switches: Any) -> Algorithm:
        """A copy with some switches set; an unknown switch is an error that lists the known ones.

        >>> Algorithm().replace(ordr="forward")
        Traceback (most recent call last):
        ...
        ValueError: switch is 'ordr' (did you mean 'order'?); it should be one of name, estimator, \
baseline, normalise, std_eps, advantage_clip, objective, clip, dual_clip, level, order, credit, \
reference, factor_clip, product_clip, epochs, lr, guard, kl_coef, kl_kind, gae_lambda, critic, \
resample, support, summary
        """
        known = [f.name for f in dataclasses.fields(self)]
        for key in switches:
            if key not in known:
                raise ValueError(unknown(key, "switch", known))
        return dataclasses.replace(self, **switches)

    def switches(self) -> dict[str, Any]:
        """All fields as JSON-ready values; a callable is named "module:function"."""
        out: dict[str, Any] = {}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if callable(value):
                label = getattr(value, "__qualname__", type(value).__qualname__)
                value = f"{getattr(value, '__module__', '?')}:{label}"
            out[f.name] = list(value) if isinstance(value, tuple) else value
        return out


_NAMES = {
    "baseline": BASELINES,
    "normalise": NORMALISATIONS,
    "level": LEVELS,
    "credit": CREDITS,
    "reference": REFERENCES,
    "kl_kind": KL_KINDS,
    "critic": CRITICS,
    "support": SUPPORTS,
}
