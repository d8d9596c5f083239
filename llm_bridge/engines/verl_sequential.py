r"""SeeUPO's sequential schedule in verl: one update a turn, the running factor between them.

A verl row is one conversation as a string of response tokens; its mask is 1 on the policy's own
tokens and 0 on what the environment says.  Turn t of a row is its t-th run of ones (a chat template
puts tokens of its own between two replies, so that runs do not touch).  For t in the algorithm's
order, the actor is updated on the tokens of turn t alone, with advantages M (Eq. 7); then

    M ← M · π_new(turn t) / π_old(turn t)                                             (Eq. 8)

Rows without turn t keep their M and give no gradient, but count among the rows that a
sequence-level loss is averaged over.

`sequential` is the schedule as a function of what updates and what scores.  `register` makes verl's
synchronous trainer with it known as ``trainer.v1.trainer_mode: seeupo``; its settings are the table
``seeupo`` of the YAML file: ``preset`` and the switches of `SWITCHES`; clip range, epochs, step size
and KL are verl's own keys.

Shapes: R rows, L response tokens, T turns.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seeupo_theory.rules import factor as factor_rule
from seeupo_theory.rules import orders as order_rule
from seeupo_theory.rules.presets import Algorithm, get

__all__ = ["SWITCHES", "algorithm_of", "register", "sequential", "turn_index"]


SWITCHES = ("order", "level", "reference", "factor_clip", "product_clip")
"""What the schedule reads of an algorithm."""


def turn_index(mask: Tensor) -> Tensor:
    """Number of the turn that each token belongs to, [R, L]; −1 on tokens that are nobody's.

    >>> turn_index(torch.tensor([[1, 1, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0]])).tolist()
    [[0, 0, -1, -1, 1, -1], [-1, 0, -1, -1, -1, -1]]
    """
    own = mask.bool()
    first = own & ~torch.nn.functional.pad(own, (1, 0))[:, :-1]
    return torch.where(own, first.long().cumsum(dim=-1) - 1, -1)


def sequential(
    mask: Tensor,
    old: Tensor,
    advantages: Tensor,
    algorithm: Algorithm,
    update: Callable[[Tensor, Tensor, Tensor], Any],
    log_probs: Callable[[], Tensor],
    rng: np.random.Generator | None = None,
) -> dict[str, float]:
    """One iteration of the algorithm, turn by turn.

    Args:
        mask: [R, L] 1 on the policy's own tokens.
        old: [R, L] log-probabilities under the policy that played.
        advantages: [R] of the trajectories.
        algorithm: order, level, reference and the clips of the factor are read.
        update: called with (mask, old log-probabilities, advantages), each [R, L], of one turn;
            moves the policy.
        log_probs: [R, L] under the policy as it is.
        rng: for a random order.

    Returns:
        Smallest and largest factor of each updated turn.
    """
    turn, metrics = turn_index(mask), {}
    how: dict[str, Any] = {
        "level": algorithm.factor_level,
        "factor_clip": algorithm.factor_clip,
        "product_clip": algorithm.product_clip,
    }
    given, old = advantages.double(), old.double()
    factor = torch.ones_like(given)
    turns = int(turn.max()) + 1
    order = order_rule.turn_order(algorithm.order, turns, rng) if turns else ()
    now = old
    for t in order:
        own = turn == t
        before = now if algorithm.reference == "current" else old
        update(own, before, (factor * given)[:, None] * own)
        now = log_probs().double()
        factor = factor_rule.advance(factor, now, before, own, active=own.any(dim=-1), **how)
        metrics[f"seeupo/turn_{t}/factor_min"] = float(factor.min())
        metrics[f"seeupo/turn_{t}/factor_max"] = float(factor.max())
    return metrics


def algorithm_of(config: Mapping[str, Any]) -> Algorithm:
    """The algorithm of a verl configuration, checked against the rest of it.

    Raises:
        ValueError: what the schedule cannot do, or what contradicts it elsewhere in the file.
    """
    table = dict(config.get("seeupo") or {})
    switches = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}
    for key in switches:
        if key not in ("preset", *SWITCHES):
            raise ValueError(
                f"seeupo.{key} is not read; the table holds preset, {', '.join(SWITCHES)}, and what "
                "else there is to say of an algorithm is said by verl's keys"
            )
    a = get(str(switches.pop("preset", "seeupo"))).replace(**switches)
    for wrong, what in (
        (a.simultaneous, f"order {a.order!r} updates all turns at once: use trainer_mode sync"),
        (a.estimator in ("gae", "exact"), f"estimator {a.estimator!r} needs a critic a turn"),
        (a.objective != "clip", f"objective is {a.objective!r}; the losses here are clipped"),
        (a.guard, "guard halves steps, which verl cannot take back; use llm_bridge.Trainer"),
        (a.resample, "resample needs fresh rollouts before each turn; use llm_bridge.Trainer"),
    ):
        if wrong:
            raise ValueError(f"seeupo: {what}")
    actor = config["actor_rollout_ref"]["actor"]
    mode, wanted = actor["policy_loss"]["loss_mode"], f"seeupo_{a.level.replace('-', '_')}"
    if mode != wanted:
        raise ValueError(f"actor.policy_loss.loss_mode is {mode!r}; {a.level} needs {wanted!r}")
    whole, part = config["data"]["train_batch_size"], actor["ppo_mini_batch_size"]
    if part != whole:
        raise ValueError(
            f"actor.ppo_mini_batch_size is {part}; a turn is one mini-batch, so that it should be "
            f"data.train_batch_size, {whole}"
        )
    return a


def register() -> None:
    """Make the trainer known to verl; needs what verl's trainer needs (ray, TransferQueue)."""
    import transfer_queue as queue
    from tensordict import TensorDict
    from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
    from verl.workers.utils.padding import response_from_nested, response_to_nested

    @register_trainer("seeupo")
    class SeeUPOTrainer(PPOTrainerSync):
        """verl's synchronous trainer with an update a turn."""

        def __init__(self, config: Any) -> None:
            from omegaconf import OmegaConf

            self.seeupo = algorithm_of(OmegaConf.to_container(config, resolve=True))
            super().__init__(config)

        def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
            """An update of the actor a turn, each through verl's own."""
            where = {"keys": batch.keys, "partition_id": batch.partition_id}
            fields = ["response_mask", "old_log_probs", "advantages"]
            nested = queue.kv_batch_get(**where, select_fields=fields)
            shape = nested["response_mask"]
            padded = nested.to_padded_tensor()
            mask, old, spread = (padded[f] for f in fields)

            def put(*values: Tensor) -> None:
                kinds = (mask.dtype, old.dtype, spread.dtype)
                new = {
                    f: response_to_nested(v.to(kind), shape)
                    for f, v, kind in zip(fields, values, kinds, strict=True)
                }
                new["loss_mask"] = new["response_mask"]  # what verl counts a batch's tokens by
                queue.kv_batch_put(**where, fields=TensorDict(new, batch_size=len(batch.keys)))

            def update(own: Tensor, before: Tensor, advantages: Tensor) -> None:
                put(own, before, advantages)
                super(SeeUPOTrainer, self)._update_actor(batch, metrics)

            def log_probs() -> Tensor:
                asked = copy.copy(batch)  # without what the update was told
                asked.extra_info = {
                    "calculate_entropy": False,
                    "compute_loss": False,
                    "temperature": self.config.actor_rollout_ref.rollout.temperature,
                }
                self.actor_rollout_wg.compute_log_prob(asked)
                new = queue.kv_batch_get(**where, select_fields=["log_probs"])["log_probs"]
                found = response_from_nested(new, shape).to_padded_tensor(0.0)
                return torch.nn.functional.pad(found, (0, mask.shape[1] - found.shape[1]))

            own = mask.bool()
            given = (spread * own).sum(dim=-1) / own.sum(dim=-1).clamp(min=1)
            rng = np.random.default_rng([self.global_steps, 0])
            metrics.update(sequential(mask, old, given, self.seeupo, update, log_probs, rng))
            put(mask, old, spread)
            return batch
