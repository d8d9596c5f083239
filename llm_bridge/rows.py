r"""A batch in the middle of an update: what belongs to each row, and the turns' objectives.

Here the rules of `seeupo_theory.rules` meet the model's log-probabilities: ratios, objectives, KL
estimates and the running factor are theirs.  `update` decides what is stepped and when.

Everything kept a row is in double precision on the CPU; log-probabilities of a turn are [R, L],
zero where masked and at no-op turns.

Shapes: R rows, T turns, L tokens of the turn's longest reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from llm_bridge.advantages import advantages
from llm_bridge.exact import Exact, LocalAdvantage
from llm_bridge.options import Options
from llm_bridge.policies.base import Policy, Scored
from llm_bridge.turns import TurnBatch
from seeupo_theory.rules import factor as factor_rule
from seeupo_theory.rules import kl as kl_rule
from seeupo_theory.rules import objectives as objective_rule
from seeupo_theory.rules import ratios as ratio_rule
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.rules.rows import Keyed

__all__ = ["Rows", "Tally", "score_batch", "score_turn"]

QUANTILES = (0.0, 0.05, 0.5, 0.95, 1.0)

MEASURES = ("kl", "kl_reference", "entropy", "ratio_quantiles", "factor_min", "factor_max")


class Owner(Protocol):
    """What `Rows` needs of an updater."""

    policy: Policy
    algorithm: Algorithm
    options: Options
    reference: Policy | None
    exact: Exact | None


@dataclass
class Tally:
    """Sums over the micro-batches of one optimiser step."""

    value: float = 0.0
    cut: float = 0.0
    mass: float = 0.0


def score_turn(
    policy: Policy, batch: TurnBatch, turn: int, rows: Sequence[int], options: Options, **more: Any
) -> Scored:
    """Scores of acting rows of a turn, [len(rows), L]; equal replies are computed once."""
    place: dict[Any, int] = {}
    index = []
    for i in rows:
        reply = batch.turns[turn][i]
        if reply is None:
            raise ValueError(f"row {batch.row_ids[i]!r} is a no-op at turn {turn}; it has no score")
        index.append(place.setdefault((reply.prompt_ids, reply.ids), len(place)))
    scored = policy.score(
        [p for p, _ in place], [r for _, r in place], temperature=options.temperature, **more
    )
    at = torch.tensor(index, device=scored.log_prob.device)
    own = torch.zeros((len(index), scored.mask.shape[1]), dtype=torch.bool)
    for k, i in enumerate(rows):
        flags = batch.turns[turn][i].own  # type: ignore[union-attr]
        own[k, : len(flags)] = torch.tensor(flags, dtype=torch.bool)
    entropy = None if scored.entropy is None else scored.entropy[at]
    return Scored(scored.log_prob[at], scored.mask[at] & own.to(at.device), entropy)


@torch.no_grad()
def score_batch(
    policy: Policy, batch: TurnBatch, turn: int, options: Options, *, entropy: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, own-token mask and entropies of a turn, each [R, L]; 0 at no-ops."""
    pool = batch.turns[turn]
    live = [i for i, reply in enumerate(pool) if reply is not None]
    width = max([1, *(len(reply.ids) for reply in pool if reply is not None)])
    log_prob = torch.zeros((len(batch), width), dtype=torch.float64)
    disorder, mask = torch.zeros_like(log_prob), torch.zeros_like(log_prob, dtype=torch.bool)
    size = options.micro_batch or max(len(live), 1)
    for first in range(0, len(live), size):
        part = live[first : first + size]
        out = score_turn(policy, batch, turn, part, options, entropy=entropy)
        at, n = torch.tensor(part), out.log_prob.shape[1]
        log_prob[at, :n] = out.log_prob.double().cpu()
        mask[at, :n] = out.mask.cpu()
        if out.entropy is not None:
            disorder[at, :n] = out.entropy.double().cpu()
    return log_prob, mask, disorder


class Rows:
    """A batch with what belongs to its rows: advantages, factors, old log-probabilities."""

    def __init__(self, updater: Owner, batch: TurnBatch, given: Tensor | None):
        self.updater, self.batch = updater, batch
        self.algorithm, self.options = updater.algorithm, updater.options
        self.active = batch.active
        rows = len(batch)
        ones = torch.ones(rows, dtype=torch.float64)
        self.weights = ones if batch.weights is None else batch.weights.to(torch.float64)
        self.factor = Keyed(batch.row_ids, ones)
        self.factors: dict[int, Tensor] = {}
        self.seen: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        self.old: list[Tensor] = []
        self.mask: list[Tensor] = []
        for t in range(batch.horizon):
            log_prob, mask = self._scored(updater.policy, t)
            self.old.append(log_prob)
            self.mask.append(mask)
        self.sampled = list(self.old)
        self.reference = self.old
        if updater.reference is not None:
            self.reference = [self._scored(updater.reference, t)[0] for t in range(batch.horizon)]
        self.mismatch, self.importance = self._importance()
        self.local: LocalAdvantage | None = None
        self.targets: Tensor | None = None
        if given is not None:
            self.advantages = given.to(torch.float64)[:, None].expand(rows, batch.horizon)
        elif self.algorithm.estimator == "exact":
            assert updater.exact is not None
            self.tables = updater.exact.tables(updater.policy)
            self.sampled_tables = self.tables
            self.local = LocalAdvantage(updater.exact.graph, self.tables)
        else:
            self.advantages, self.targets = advantages(
                batch, updater.policy, self.algorithm, self.options, updater.exact
            )

    def _scored(self, policy: Policy, turn: int) -> tuple[Tensor, Tensor]:
        """Log-probabilities and own-token mask of a turn, [R, L]."""
        return score_batch(policy, self.batch, turn, self.options)[:2]

    def look(self, turns: Sequence[int]) -> None:
        """Score some turns under the parameters as they are now, once for all that ask next.

        `forget` it before the parameters move again.
        """
        for t in turns:
            self.seen[t] = score_batch(
                self.updater.policy, self.batch, t, self.options, entropy=True
            )

    def forget(self) -> None:
        """Undo `look`."""
        self.seen.clear()

    def _importance(self) -> tuple[float, list[Tensor]]:
        """Largest |difference| from generation a token, and truncated weights a turn."""
        largest, out = 0.0, []
        level = "sequence" if self.algorithm.credit == "trajectory" else self.algorithm.level
        for t, pool in enumerate(self.batch.turns):
            seen = self.old[t].clone()
            for i, reply in enumerate(pool):
                if reply is not None and reply.log_probs is not None:
                    seen[i, : len(reply.ids)] = torch.tensor(reply.log_probs, dtype=torch.float64)
            each = ratio_rule.log_ratio(self.old[t], seen, self.mask[t], level="token")
            largest = max(largest, float(each.abs().max()))
            cap = self.options.importance_cap
            change = ratio_rule.log_ratio(self.old[t], seen, self.mask[t], level=level)
            out.append(torch.exp(change).clamp(max=cap) if cap else torch.ones_like(change))
        return largest, out

    # -- the running factor --------------------------------------------------------------------

    def refresh(self, turns: Sequence[int]) -> None:
        """Old log-probabilities of some turns under the current parameters."""
        for t in turns:
            self.old[t], _ = self._scored(self.updater.policy, t)
        if self.local is not None and self.updater.exact is not None:
            self.tables = self.updater.exact.tables(self.updater.policy)

    def advance(self, turn: int) -> None:
        """Multiply every row's running factor by the ratio of an updated turn (Eq. 8)."""
        a = self.algorithm
        new = (
            self.seen[turn][0] if turn in self.seen else self._scored(self.updater.policy, turn)[0]
        )
        options: dict[str, Any] = {"level": a.factor_level, "factor_clip": a.factor_clip}
        options["active"] = self.active[:, turn]
        path = new, self.old[turn], self.mask[turn]
        ones = torch.ones_like(self.factor.values)
        self.factors[turn] = factor_rule.advance(ones, *path, **options)
        product = factor_rule.advance(
            self.factor.align(self.batch.rows), *path, product_clip=a.product_clip, **options
        )
        self.factor = Keyed(self.batch.row_ids, product)
        if self.local is not None and self.updater.exact is not None:
            after = self.updater.exact.tables(self.updater.policy)
            self.local.advance(turn, after[turn], self.tables[turn], a)

    def weighted(self, turns: Sequence[int]) -> Tensor:
        """M: advantage times running factor, [R, T] (columns of `turns`)."""
        out = torch.zeros((len(self.batch), self.batch.horizon), dtype=torch.float64)
        for t in turns:
            if self.local is None:
                out[:, t] = self.factor.align(self.batch.rows) * self.advantages[:, t]
            else:
                out[:, t] = self._exact(t)
        return out

    def _exact(self, turn: int) -> Tensor:
        """True advantage of a turn times the factors of the updated turns before it."""
        assert self.local is not None and self.updater.exact is not None
        if self.batch.nodes is None:
            raise ValueError("estimator 'exact' needs the nodes of a TabularText game")
        table = self.local.advantage(turn)
        out = torch.zeros(len(self.batch), dtype=torch.float64)
        for i, reply in enumerate(self.batch.turns[turn]):
            if reply is not None:
                node = int(self.batch.nodes[turn][i])
                out[i] = float(table[node, self.updater.exact.action(turn, reply, node)])
        for t, factor in self.factors.items():
            out = out * factor if t < turn else out
        return out

    # -- objectives ----------------------------------------------------------------------------

    def normalisers(self, turns: Sequence[int], part: Sequence[int]) -> dict[int, float]:
        """What each turn's sum is divided by: the rows, or their tokens for "mean"."""
        if self.options.aggregation != "mean" or self.algorithm.level != "token":
            return dict.fromkeys(turns, float(len(part)))
        at = torch.tensor(list(part))
        return {t: max(float(self.mask[t][at].sum()), 1.0) for t in turns}

    def turn(
        self,
        turn: int,
        chunk: Sequence[int],
        weighted: Tensor,
        scale: dict[int, float],
        tally: Tally,
    ) -> Tensor | None:
        """Objective of a turn on some rows, None where all of them are no-ops."""
        live = [i for i in chunk if self.active[i, turn]]
        if not live:
            return None
        at = torch.tensor(live)
        new, old, mask = self._pair(turn, live)
        level = self.algorithm.level
        change = ratio_rule.log_ratio(new, old, mask, level=level)
        weight = self._of(self.importance[turn], at, change)
        advantage, share = weighted[at, turn].to(change.device), self.weights[at].to(change.device)
        if level == "token":
            advantage, share = (x[:, None].expand_as(change) for x in (advantage, share))
            weight = weight * mask
        weight = weight * share
        terms = self._objective(change, advantage, weight, tally)
        if self.algorithm.kl_coef:
            terms = terms - self.algorithm.kl_coef * self._kl(turn, at, new, mask) * share
        own = mask if level == "token" else torch.ones_like(terms[:, None], dtype=torch.bool)
        how = self.options.aggregation if level == "token" else "sum"
        return objective_rule.aggregate(
            terms if level == "token" else terms[:, None],
            own,
            how,
            constant=self.options.constant if how == "constant" else None,
            normaliser=scale[turn],
        )

    def trajectory(
        self,
        turns: Sequence[int],
        chunk: Sequence[int],
        weighted: Tensor,
        scale: dict[int, float],
        tally: Tally,
    ) -> Tensor:
        """Objective with one ratio a row, the product over its turns."""
        total, penalty, weight = (torch.zeros(len(chunk), dtype=torch.float64) for _ in range(3))
        for t in turns:
            where = [k for k, i in enumerate(chunk) if self.active[i, t]]
            if not where:
                continue
            live = [chunk[k] for k in where]
            new, old, mask = self._pair(t, live)
            change = ratio_rule.log_ratio(new, old, mask, level="sequence")
            if total.device != change.device:
                total, penalty, weight = (x.to(change.device) for x in (total, penalty, weight))
            at = torch.tensor(where, device=change.device)
            total = total.index_add(0, at, change)
            mine = self._of(self.importance[t], torch.tensor(live), change)
            weight = weight.index_add(0, at, torch.log(mine))
            if self.algorithm.kl_coef:
                each = self._kl(t, torch.tensor(live), new, mask, level="sequence")
                penalty = penalty.index_add(0, at, self.algorithm.kl_coef * each)
        rows = torch.tensor(list(chunk))
        share = self.weights[rows].to(total.device)
        cap = self.options.importance_cap or torch.inf
        factor = torch.exp(weight).clamp(max=cap) * share
        terms = self._objective(total, weighted[rows, turns[0]].to(total.device), factor, tally)
        return objective_rule.aggregate(
            (terms - penalty * share)[:, None], None, "sum", normaliser=scale[turns[0]]
        )

    def _objective(self, change: Tensor, advantage: Tensor, weight: Tensor, tally: Tally) -> Tensor:
        """The rule's objective a sample; the clip's share goes into the tally."""
        a, zero = self.algorithm, torch.zeros_like(change)
        if a.objective == "clip":
            low, high = a.clip_range
            cut = objective_rule.clip_mask(
                change.detach(), zero, advantage, weight, low=low, high=high, dual=a.dual_clip
            )
            mass = (advantage * weight).abs()
            tally.cut += float((mass * cut).sum())
            tally.mass += float(mass.sum())
        return a.objective_rule()(change, zero, advantage, weight)

    def _pair(self, turn: int, live: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Current and old log-probabilities of acting rows in double precision, and their mask."""
        if turn in self.seen:
            at = torch.tensor(live)
            return self.seen[turn][0][at], self.old[turn][at], self.mask[turn][at]
        out = score_turn(self.updater.policy, self.batch, turn, live, self.options)
        new, n = out.log_prob.double(), out.log_prob.shape[1]
        return new, self.old[turn][torch.tensor(live), :n].to(new.device), out.mask

    def _of(self, values: Tensor, at: Tensor, model: Tensor) -> Tensor:
        picked = values[at] if values.ndim == 1 else values[at, : model.shape[-1]]
        return picked.to(model.device)

    def _kl(
        self, turn: int, at: Tensor, new: Tensor, mask: Tensor, level: str | None = None
    ) -> Tensor:
        """KL estimate to the reference: a token, or summed (averaged) over a row's tokens."""
        wanted = self.reference[turn][at, : new.shape[1]].to(new.device)
        usable = mask & torch.isfinite(wanted)
        each = kl_rule.kl_penalty(new, wanted, self.algorithm.kl_kind, usable)
        level = self.algorithm.level if level is None else level
        if level == "token":
            return each
        total = each.sum(dim=-1)
        return total / mask.sum(dim=-1).clamp(min=1) if level == "length-normalised" else total

    # -- measures ------------------------------------------------------------------------------

    def tokens(self, turns: Sequence[int]) -> int:
        """Own tokens of some turns."""
        return int(sum(self.mask[t].sum() for t in turns))

    def after(self, turns: Sequence[int]) -> dict[str, Any]:
        """What the updated policy does on the turns' rows, after `look`."""
        ratios, kls, references, disorder = [], [], [], []
        level = self.algorithm.factor_level
        for t in turns:
            new, mask, entropy = self.seen[t]
            live = self.active[:, t]
            if not bool(live.any()):
                continue
            ratios.append(ratio_rule.log_ratio(new, self.old[t], mask, level=level)[live])
            usable = mask & torch.isfinite(self.reference[t])
            # the samples are those of π_k: k3 the other way round estimates KL(π_k‖π_θ)
            kls.append(kl_rule.kl_penalty(self.sampled[t], new, "k3", mask)[mask])
            references.append(kl_rule.kl_penalty(new, self.reference[t], "k3", usable)[usable])
            disorder.append(entropy[mask])
        if not ratios:  # nobody acts at these turns
            return {"active": 0.0, "mismatch": self.mismatch} | dict.fromkeys(MEASURES)
        ratio = torch.exp(torch.cat(ratios))
        quantiles = torch.quantile(ratio, torch.tensor(QUANTILES, dtype=ratio.dtype))
        return {
            "active": float(self.active[:, list(turns)].double().mean()),
            "kl": float(torch.cat(kls).mean()),
            "kl_reference": float(torch.cat(references).mean()),
            "entropy": float(torch.cat(disorder).mean()),
            "ratio_quantiles": [float(q) for q in quantiles],
            "mismatch": self.mismatch,
            "factor_min": float(self.factor.values.min()),
            "factor_max": float(self.factor.values.max()),
        }
