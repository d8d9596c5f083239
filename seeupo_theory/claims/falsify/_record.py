"""What a search reports: its progress, what it tried, what it found."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from seeupo_theory.claims.falsify._instance import Instance
from seeupo_theory.claims.falsify._readings import Reading, Setting
from seeupo_theory.claims.falsify._space import Space

__all__ = ["Count", "Finding", "Progress"]


class Progress(NamedTuple):
    """State of a search, for a display."""

    phase: str
    instances: int
    evaluations: int
    worst: float
    elapsed: float
    budget: float


@dataclass
class Count:
    """What was tried."""

    instances: int = 0
    optimiser: int = 0
    optimiser_runs: int = 0
    shrink: int = 0
    certify: int = 0
    violations: int = 0
    overshoots: int = 0
    discarded: int = 0
    not_finite: int = 0
    worst: float = -math.inf
    factor: tuple[float, float] = (math.inf, -math.inf)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, reading: Reading, phase: str) -> None:
        """Count a batch."""
        n = len(reading.effect)
        if phase == "optimiser":
            self.optimiser += n
        else:
            self.instances += n
        self.violations += int(reading.fails.sum())
        self.overshoots += int(reading.overshoot.sum())
        finite = np.isfinite(reading.effect)
        self.not_finite += int((~finite).sum())
        usable = finite & ~reading.overshoot
        if usable.any():
            self.worst = max(self.worst, float(reading.effect[usable].max()))
        factor = reading.factor[np.isfinite(reading.factor)]
        if factor.size:
            low, high = self.factor
            self.factor = min(low, float(factor.min())), max(high, float(factor.max()))


@dataclass(frozen=True)
class Finding:
    """A violation, simplified; `certificate` is None where it is numerical, for `reason`."""

    setting: Setting
    space: Space
    instance: Instance
    effect: float
    place: tuple[int, int, int]
    certificate: dict[str, Any] | None
    surrogates_rise: bool | None
    reason: str
