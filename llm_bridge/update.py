r"""One iteration on a batch of trajectories, by the rules of `seeupo_theory.rules`.

For each turn, in the algorithm's order, `epochs` gradient steps are taken on

.. math:: \frac1R \sum_i f\big(\log\pi_\theta(a^i_t) - \log\pi_{old}(a^i_t),\; F_i \hat A_i\big)
          - \beta\, \mathrm{KL}_i ,

then every row's running factor F_i is multiplied by the ratio of the turn (Eq. 8).  With the order
"simultaneous" the turns' objectives are added and stepped together; with credit "trajectory" the
log ratios of all turns are added first.

- The estimator, the ratio, the objective, the KL estimate, the order and the factor are the rules'
  own functions, called here and nowhere written again.
- The sum runs over the rows of the batch, R of them, no-op turns included with weight 0, whatever
  the number of turns, tokens or micro-batches: ``micro_batch`` changes memory only.
- No-op turns are not computed at all: factor 1, no gradient, no KL.
- Log ratios are formed in double precision, whatever the model's dtype.
- Where the log-probabilities at generation differ from a forward pass of the same weights (another
  engine, another precision), each sample is weighted by exp(difference), cut at
  ``importance_cap``; the difference is reported.

*Tokens.*  At level "token" the terms of a row are added ("sum", the scale of the theory), or
averaged as `rules.objectives.aggregate` says.  The KL is that of the turn's tokens: added for
"sequence" and "token" (under the same aggregation), averaged for "length-normalised".

Shapes: R rows, T turns, L tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from llm_bridge.exact import Exact
from llm_bridge.options import Options, TurnReport
from llm_bridge.policies.base import Policy
from llm_bridge.rows import Rows, Tally
from llm_bridge.turns import TurnBatch
from seeupo_theory.rules import orders as order_rule
from seeupo_theory.rules.presets import Algorithm

__all__ = ["MAX_HALVINGS", "Options", "TurnReport", "Updater"]

MAX_HALVINGS = 40
"""A guarded step is halved at most so often, as in the tabular simulator."""


class Updater:
    """Iterations of one algorithm on one policy.

    Args:
        policy: what is trained.
        algorithm: the rule; closed-form ("ideal") steps belong to tables and are refused.
        optimiser: makes an optimiser of parameters; default plain ascent with the algorithm's lr.
        options: see `Options`.
        reference: policy of the KL penalty (default: the sampling policy of each iteration).
        exact: needed by the estimator "exact" and the critic "exact".

    Raises:
        ValueError: combinations that cannot be computed.
    """

    def __init__(
        self,
        policy: Policy,
        algorithm: Algorithm,
        optimiser: Callable[[list[Any]], torch.optim.Optimizer] | None = None,
        options: Options | None = None,
        *,
        reference: Policy | None = None,
        exact: Exact | None = None,
    ) -> None:
        if algorithm.ideal:
            raise ValueError(
                f"objective {algorithm.objective!r} is a closed-form step on tables; a network "
                "needs one that is ascended: reinforce, clip or a function"
            )
        self.policy, self.algorithm = policy, algorithm
        self.options = options or Options()
        needs = algorithm.estimator == "exact" or (
            algorithm.estimator == "gae" and self.options.critic == "exact"
        )
        if needs and exact is None:
            raise ValueError(
                f"estimator {algorithm.estimator!r} needs exact values, which only a TabularText "
                "game has; give exact=, or use critic='value-head'"
            )
        self.reference, self.exact = reference, exact
        self.make = optimiser or (lambda p: torch.optim.SGD(p, lr=algorithm.lr))
        self.parameters = list(policy.parameters())
        self.optimiser = self.make(self.parameters)
        self.critic_optimiser: torch.optim.Optimizer | None = None
        if algorithm.estimator == "gae" and self.options.critic == "value-head":
            self.critic_optimiser = torch.optim.AdamW(
                list(policy.value_parameters()), lr=self.options.critic_lr, weight_decay=0.0
            )

    def order(self, turns: int, rng: np.random.Generator | None = None) -> tuple[int, ...] | None:
        """Turns in update order; None means all at once."""
        if self.algorithm.simultaneous:
            return None
        return order_rule.turn_order(self.algorithm.order, turns, rng)

    def __call__(
        self,
        batch: TurnBatch,
        *,
        order: Sequence[int] | None = None,
        rng: np.random.Generator | None = None,
        resample: Callable[[int], TurnBatch] | None = None,
        on_turn: Callable[[TurnReport], None] | None = None,
        given: Tensor | None = None,
    ) -> list[TurnReport]:
        """One iteration; the policy's parameters move.

        Args:
            batch: trajectories of the current policy.
            order: turns in update order (default: the algorithm's).
            rng: for random orders and mini-batches.
            resample: batch of the current policy before update number k ≥ 1, for algorithms that
                resample.
            on_turn: called after every update.
            given: advantages [R] to be used instead of the estimator's.

        Returns:
            One report an update.
        """
        a = self.algorithm
        turns = self.order(batch.horizon, rng) if order is None else tuple(order)
        if order is not None and not a.simultaneous:
            turns = order_rule.turn_order(tuple(order), batch.horizon)
        if a.resample and resample is None:
            raise ValueError("this algorithm resamples before every turn; give resample=")
        rows = Rows(self, batch, given)
        groups = [list(range(batch.horizon))] if turns is None else [[t] for t in turns]
        reports = []
        for step, group in enumerate(groups):
            begun = time.perf_counter()
            if a.resample and step and resample is not None:
                rows = Rows(self, resample(step), given)
            elif a.reference == "current" and step:
                rows.refresh(group)
            if self.options.reset_optimiser:
                self.optimiser = self.make(self.parameters)
            measures = self._ascend(rows, group, rng)
            report = TurnReport(tuple(group), measures | rows.after(group))
            spent = max(time.perf_counter() - begun, 1e-9)
            report.metrics["tokens_per_second"] = a.epochs * rows.tokens(group) / spent
            if turns is not None and not a.resample:
                for t in group:
                    rows.advance(t)
            reports.append(report)
            if on_turn is not None:
                on_turn(report)
        if self.critic_optimiser is not None:
            self._fit_critic(rows, self.critic_optimiser)
        return reports

    # -- ascent --------------------------------------------------------------------------------

    def _ascend(
        self, rows: Rows, turns: list[int], rng: np.random.Generator | None
    ) -> dict[str, Any]:
        """The algorithm's epochs on some turns' objective."""
        first = last = Tally()
        norm = 0.0
        weighted = rows.weighted(turns)
        rows.forget()
        for epoch in range(self.algorithm.epochs):
            for part in self._mini(len(rows.batch), rng):
                self.optimiser.zero_grad(set_to_none=True)
                tally = self._pass(rows, turns, weighted, part, backward=True)
                norm = self._limit()
                if not self.algorithm.guard:
                    self.optimiser.step()
                else:
                    self._guarded(rows, turns, weighted, part, tally.value)
                last = tally
            first = last if epoch == 0 else first
        rows.look(turns)
        with torch.no_grad():
            final = self._pass(rows, turns, weighted, range(len(rows.batch)), backward=False)
        return {
            "surrogate": final.value,
            "surrogate_gain": final.value - (first.value if self.options.mini_batches == 1 else 0),
            "clip_fraction": last.cut / last.mass if last.mass else 0.0,
            "gradient_norm": norm,
        }

    def _mini(self, count: int, rng: np.random.Generator | None) -> Iterator[Sequence[int]]:
        if self.options.mini_batches == 1:
            yield range(count)
            return
        if rng is None:
            raise ValueError("mini_batches above 1 are drawn at random; give rng")
        yield from (
            p.tolist()
            for p in np.array_split(rng.permutation(count), self.options.mini_batches)
            if len(p)
        )

    def _limit(self) -> float:
        """Norm of the gradient, scaled down where it is too large."""
        grads = [p.grad for p in self.parameters if p.grad is not None]
        if not grads:
            return 0.0
        limit = self.options.max_grad_norm
        if limit is not None:
            return float(torch.nn.utils.clip_grad_norm_(self.parameters, limit))
        return float(torch.nn.utils.get_total_norm(grads))

    @torch.no_grad()
    def _guarded(
        self, rows: Rows, turns: list[int], weighted: Tensor, part: Sequence[int], start: float
    ) -> None:
        """A step of the optimiser, halved until the objective is neither below 0 nor falls."""
        before = [p.detach().clone() for p in self.parameters]
        self.optimiser.step()
        change = [
            torch.where(torch.isfinite(b), p - b, torch.zeros_like(b))
            for p, b in zip(self.parameters, before, strict=True)
        ]
        floor, share = max(start, 0.0), 1.0
        for _ in range(MAX_HALVINGS):
            if self._pass(rows, turns, weighted, part, backward=False).value >= floor:
                return
            share /= 2
            for p, b, d in zip(self.parameters, before, change, strict=True):
                p.copy_(b + share * d)
        for p, b in zip(self.parameters, before, strict=True):
            p.copy_(b)

    def _pass(
        self,
        rows: Rows,
        turns: list[int],
        weighted: Tensor,
        part: Sequence[int],
        *,
        backward: bool,
    ) -> Tally:
        """Objective of some rows, micro-batch by micro-batch; gradients of its negative add up."""
        tally, size = Tally(), self.options.micro_batch or len(part)
        scale = rows.normalisers(turns, part)
        for first in range(0, len(part), size):
            chunk = list(part[first : first + size])
            if self.algorithm.credit == "trajectory":
                pieces = [rows.trajectory(turns, chunk, weighted, scale, tally)]
            else:
                pieces = (rows.turn(t, chunk, weighted, scale, tally) for t in turns)  # type: ignore[assignment]
            for value in pieces:
                if value is None:
                    continue
                tally.value += float(value.detach())
                if backward and value.requires_grad:
                    (-value).backward()
        return tally

    def _fit_critic(self, rows: Rows, optimiser: torch.optim.Optimizer) -> None:
        """Regress the value head on the critic's targets of the batch, turn by turn."""
        assert rows.targets is not None
        prompts, targets = [], []
        for t, pool in enumerate(rows.batch.turns):
            for i, reply in enumerate(pool):
                if reply is not None:
                    prompts.append(reply.prompt_ids)
                    targets.append(float(rows.targets[i, t]))
        size = self.options.micro_batch or len(prompts)
        for _ in range(self.options.critic_epochs):
            optimiser.zero_grad(set_to_none=True)
            for first in range(0, len(prompts), size):
                values = self.policy.values(prompts[first : first + size])
                wanted = torch.tensor(targets[first : first + size]).to(values)
                (((values - wanted) ** 2).sum() / len(prompts)).backward()
            optimiser.step()
