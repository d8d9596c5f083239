r"""Advantages of a batch of trajectories: the estimators of the rules, keyed by row.

Group-relative estimators look at the returns of trajectories; GAE at the rewards of turns, with
values from a value head or, on a game that can be enumerated, from the exact critic.  A turn is one
step of GAE: the critic reads the conversation before the turn.

Shapes: R rows, T turns.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from llm_bridge.exact import Exact, evaluate
from llm_bridge.options import Options
from llm_bridge.turns import TurnBatch
from seeupo_theory.rules import returns as return_rule
from seeupo_theory.rules.presets import Algorithm

__all__ = ["advantages", "turn_values"]


def advantages(
    batch: TurnBatch, policy: Any, algorithm: Algorithm, options: Options, exact: Exact | None
) -> tuple[Tensor, Tensor | None]:
    """Advantages [R, T] in double precision, and the critic's targets [R, T] for GAE."""
    if algorithm.estimator == "gae":
        return _gae(batch, policy, algorithm, options, exact)
    keyed = batch.rows.advantages(algorithm.advantage_rule())
    flat = keyed.align(batch.rows).to(torch.float64)
    return flat[:, None].expand(len(batch), batch.horizon), None


def _gae(
    batch: TurnBatch, policy: Any, algorithm: Algorithm, options: Options, exact: Exact | None
) -> tuple[Tensor, Tensor]:
    values = turn_values(batch, policy, options, exact)
    out = return_rule.gae(
        batch.rewards.to(torch.float64),
        values,
        discount=options.discount,
        lam=algorithm.gae_lambda,
        mask=batch.active,
    )
    targets = return_rule.returns_from_advantages(out, values)
    limit = algorithm.advantage_clip
    return (out if limit is None else out.clamp(-limit, limit)), targets


@torch.no_grad()
def turn_values(batch: TurnBatch, policy: Any, options: Options, exact: Exact | None) -> Tensor:
    """Value before each turn and after the last, [R, T + 1]; 0 where the episode is over."""
    values = torch.zeros((len(batch), batch.horizon + 1), dtype=torch.float64)
    if options.critic == "exact":
        if exact is None or batch.nodes is None:
            raise ValueError("critic 'exact' needs a TabularText game")
        graph = exact.graph
        states = evaluate(graph, exact.tables(policy)).states
        for t, state in enumerate(states):
            paid = 0.0 if graph.node_return is None else graph.node_return[t]
            to_go = torch.as_tensor((state - paid) / options.discount**t)
            live = batch.active[:, t]
            values[live, t] = to_go[batch.nodes[t][live]]
        return values
    size = options.micro_batch or len(batch)
    for t in range(batch.horizon + 1):
        prompts = [
            (i, reply.prompt_ids)
            for i, reply in enumerate(batch.turns[t] if t < batch.horizon else ())
            if reply is not None
        ]
        for first in range(0, len(prompts), size):
            part = prompts[first : first + size]
            found = policy.values([p for _, p in part]).double().cpu()
            values[torch.tensor([i for i, _ in part]), t] = found
    if batch.bootstrap is not None:
        # a truncated row's conversation goes on after its last turn
        for i, prompt in enumerate(batch.bootstrap):
            if prompt is not None:
                values[i, int(batch.active[i].sum()) :] = policy.values([prompt]).double().cpu()[0]
    return values
