"""How an iteration is computed, apart from the algorithm; and what it reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from seeupo_theory.rules.objectives import AGGREGATIONS

__all__ = ["Options", "TurnReport"]


@dataclass(frozen=True)
class Options:
    """How an iteration is computed, apart from the algorithm.

    Attributes:
        micro_batch: rows in one forward pass; None means all. Changes memory only.
        mini_batches: optimiser steps an epoch, each on its share of the rows.
        aggregation: of tokens at level "token": "sum", "mean", "sequence-mean" or "constant".
        constant: tokens a row is divided by, for "constant".
        temperature: that of generation.
        max_grad_norm: gradients are scaled down to this norm; None means never.
        importance_cap: upper cut of importance weights for the mismatch of generation; None
            means no correction.
        reset_optimiser: forget the optimiser's state before each turn's update.
        critic: "exact" (needs a game) or "value-head". For GAE.
        critic_lr, critic_epochs: of the value head's regression.
        discount: γ of GAE.
    """

    micro_batch: int | None = None
    mini_batches: int = 1
    aggregation: str = "sum"
    constant: float | None = None
    temperature: float = 1.0
    max_grad_norm: float | None = None
    importance_cap: float | None = 2.0
    reset_optimiser: bool = False
    critic: str = "value-head"
    critic_lr: float = 1e-3
    critic_epochs: int = 4
    discount: float = 1.0

    def __post_init__(self) -> None:
        """Check every field."""
        for name in ("micro_batch", "mini_batches", "critic_epochs"):
            value = getattr(self, name)
            if value is None and name == "micro_batch":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; it should be a whole number of at least 1")
        if self.aggregation not in AGGREGATIONS:
            raise ValueError(
                f"aggregation is {self.aggregation!r}; it should be one of "
                + ", ".join(AGGREGATIONS)
            )
        if (self.constant is None) == (self.aggregation == "constant"):
            raise ValueError("constant belongs to aggregation 'constant', and is needed there")
        if not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}; training needs one above 0")
        if self.critic not in ("exact", "value-head"):
            raise ValueError(f"critic is {self.critic!r}; it should be exact or value-head")
        for name in ("max_grad_norm", "importance_cap"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value!r}; it should be above 0, or left out")
        if not 0 <= self.discount <= 1:
            raise ValueError(f"discount is {self.discount}; it should be in [0, 1]")


@dataclass(frozen=True)
class TurnReport:
    """What one update did: the turns it moved, and its numbers by name."""

    turns: tuple[int, ...]
    metrics: dict[str, Any] = field(default_factory=dict)
