r"""The trajectory-level bound of an update, from rollouts: F and its lower confidence limit.

F(θ') = E[min(ρÂ, clip(ρ)Â)] ≤ c (J(θ') − J(θ)) with ρ the ratio of the whole trajectory, for every
parametrisation, so that an update with F ≥ 0 improved the return even though all turns share their
weights (``proofs/``).  Advantages here are leave-one-out and unscaled, c = 1.

The limit is valid on a *fresh* batch of the sampling policy only, drawn independently of the
update.  On the batch that the update was fitted to, F is reported without one.

Shapes: B tasks, G rollouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from llm_bridge.options import Options
from llm_bridge.rows import score_batch
from llm_bridge.turns import TurnBatch
from seeupo_theory.rules import bounds
from seeupo_theory.rules.advantages import ESTIMATORS
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.rules.ratios import log_ratio

__all__ = ["Bound"]


@dataclass(frozen=True)
class Bound:
    """A batch of the sampling policy, with its log-probabilities under it.

    `fresh` says whether the batch is independent of the update that is judged.
    """

    batch: TurnBatch
    old: tuple[Tensor, ...]
    fresh: bool
    options: Options

    @classmethod
    def before(cls, policy: Any, batch: TurnBatch, options: Options, *, fresh: bool) -> Bound:
        """Score a batch under the sampling policy, before the update."""
        old = [score_batch(policy, batch, t, options)[0] for t in range(batch.horizon)]
        return cls(batch, tuple(old), fresh, options)

    def after(
        self,
        policy: Any,
        algorithm: Algorithm,
        *,
        confidence: float = 0.95,
        bound: float | None = None,
    ) -> dict[str, Any]:
        """F of the policy as it is now, and its lower limit on a fresh batch."""
        batch = self.batch
        groups = batch.grouped()
        if len({len(g) for g in groups}) > 1:
            raise ValueError("groups of different sizes; F needs equal ones")
        at = torch.tensor(groups)
        if at.shape[1] < 2:
            return {}
        total = torch.zeros(len(batch), dtype=torch.float64)
        for t in range(batch.horizon):
            new, mask, _ = score_batch(policy, batch, t, self.options)
            total = total + log_ratio(new, self.old[t], mask, level="sequence")
        low, high = algorithm.clip_range
        keyed = batch.rows.advantages(ESTIMATORS["rloo"])
        advantage = keyed.align(batch.rows).to(torch.float64)[at]
        terms = bounds.trajectory_terms(total[at], advantage, low=low, high=high)
        out: dict[str, Any] = {"F": float(terms.mean()), "F_fresh": self.fresh}
        if self.fresh and at.shape[0] > 1:
            out["F_lower"] = float(
                bounds.improvement_bound(
                    total[at],
                    advantage,
                    method="student" if bound is None else "bernstein",
                    bound=bound,
                    low=low,
                    high=high,
                    confidence=confidence,
                )
            )
        return out
