r"""The rules as advantage estimators and policy losses of verl.

Switched on without a line of code, by the environment variable
``VERL_USE_EXTERNAL_MODULES=llm_bridge.engines.verl`` and two keys of the YAML file:

    algorithm.adv_estimator: seeupo_rloo
    actor_rollout_ref.actor.policy_loss.loss_mode: seeupo_sequence

Estimators are ``seeupo_`` and the name of a preset without a critic; losses are the clipped
objective at the ratio of a ``seeupo_token``, a ``seeupo_sequence`` or ``seeupo_length_normalised``.
A response is one unit of these, all its turns together.  The *sequential* schedule, one update a
turn with the running factor between them, is a trainer of verl's (`llm_bridge.engines.verl_sequential`):

    trainer.v1.trainer_mode: seeupo
    seeupo: {preset: seeupo, order: reverse}

Sequence-level losses are averaged over the rows of the batch whatever ``loss_agg_mode`` says; at
the token level that key counts.

Shapes: R rows, L tokens.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from llm_bridge.engines import verl_sequential
from seeupo_theory.rules import objectives, ratios
from seeupo_theory.rules.presets import PRESETS, get
from seeupo_theory.rules.rows import Batch

__all__ = ["advantage", "loss"]


def advantage(
    preset: str, token_level_rewards: Tensor, response_mask: Tensor, index: Sequence[Any]
) -> tuple[Tensor, Tensor]:
    """A preset's advantages, [R, L] constant on each row's own tokens; verl's two outputs."""
    returns = token_level_rewards.double().sum(dim=-1)
    batch = Batch(tuple(range(len(returns))), returns, tuple(index))
    found = batch.advantages(get(preset).advantage_rule()).align(batch)
    spread = found.to(token_level_rewards.dtype)[:, None] * response_mask
    return spread, spread


def loss(
    level: str,
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """Negative clipped objective at a level of the ratio, and verl's metrics."""
    from verl.trainer.ppo.core_algos import agg_loss

    low = config.clip_ratio if config.clip_ratio_low is None else config.clip_ratio_low
    high = config.clip_ratio if config.clip_ratio_high is None else config.clip_ratio_high
    mask = response_mask.bool()
    change = ratios.log_ratio(log_prob, old_log_prob, mask, level=level)
    count = response_mask.sum(dim=-1).clamp(min=1)
    weight = torch.ones_like(log_prob) if rollout_is_weights is None else rollout_is_weights
    share = advantages
    if level != "token":
        share = (advantages * mask).sum(dim=-1) / count
        weight = (weight * mask).sum(dim=-1) / count
    zero = torch.zeros_like(change)
    terms = objectives.bound_clip(low, high, None)(change, zero, share, weight)
    cut = objectives.clip_mask(change.detach(), zero, share, weight, low=low, high=high)
    if level != "token":
        terms = (terms / count)[:, None].expand_as(log_prob)
        loss_agg_mode = "seq-mean-token-sum"
    value = agg_loss(-terms, response_mask, loss_agg_mode, **config.global_batch_info)
    tokens = ratios.log_ratio(log_prob, old_log_prob, mask, level="token").detach()
    metrics = {
        "actor/pg_clipfrac": float(cut.double().mean()),
        "actor/ppo_kl": float(-tokens.sum() / response_mask.sum().clamp(min=1)),
        "actor/pg_clipfrac_lower": 0.0,
    }
    return value, metrics


def _register() -> None:
    """Make the names known to verl."""
    from verl.trainer.ppo.core_algos import register_adv_est, register_policy_loss

    for name, algorithm in PRESETS.items():
        if algorithm.estimator not in ("gae", "exact"):

            def estimate(
                token_level_rewards: Tensor,
                response_mask: Tensor,
                index: Any,
                config: Any = None,
                _preset: str = name,
                **more: Any,
            ) -> tuple[Tensor, Tensor]:
                return advantage(_preset, token_level_rewards, response_mask, index)

            register_adv_est(f"seeupo_{name}")(estimate)
    for level in ratios.LEVELS:

        def objective(
            *args: Any, _level: str = level, **more: Any
        ) -> tuple[Tensor, dict[str, Any]]:
            return loss(_level, *args, **more)

        register_policy_loss(f"seeupo_{level.replace('-', '_')}")(objective)


if importlib.util.find_spec("verl") is not None:
    _register()
    if importlib.util.find_spec("transfer_queue") is not None:
        verl_sequential.register()
