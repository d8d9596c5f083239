r"""SeeUPO, and the other presets without a critic, on TRL's GRPO trainer.

    from llm_bridge.engines.trl import SeeUPOConfig, SeeUPOTrainer

    args = SeeUPOConfig("runs/a", preset="seeupo", max_turns=3, num_generations=8)
    SeeUPOTrainer(model, environment, args=args, processing_class=tokenizer).train()

TRL's loop takes ``num_iterations`` optimiser steps on each generated batch.  Here these are the
updates of the turns, in the algorithm's order, `epochs` steps each; between two turns every row's
running factor advances (Eq. 8).  Objective, ratio, estimator, KL, order and factor are those of
`seeupo_theory.rules`, called through `llm_bridge.rows`.

TRL's own `rollout_func` hook makes one completion of a conversation, in which turns cannot be told
apart, so that `_prepare_inputs` is replaced as a whole; the data loader, the optimiser, Accelerate
(DDP, FSDP, DeepSpeed), vLLM, checkpoints and logs are TRL's.

- Advantages are computed from the returns of all rows of all processes; factors stay with their
  rows.  Row g of the global batch draws from a seed of its own, whatever process plays it.
- A sum over rows is divided by their global number R; gradients are those of one process.
- A turn at which no row acts leaves parameters and optimiser alone, as in `llm_bridge.update`
  (not under DeepSpeed, which keeps gradients of its own).
- Replies are written by TRL's own generation of one turn where it is needed (``use_vllm``, FSDP,
  ZeRO stage 3), all processes in step; elsewhere by `CausalPolicy` on the unwrapped model, which
  each process then holds whole.

Shapes: R rows of all processes, T turns.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from datasets import Dataset
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer

from llm_bridge.config import tasks_to_play
from llm_bridge.exact import Exact
from llm_bridge.options import Options
from llm_bridge.policies.causal import CausalPolicy, WithoutAdapter
from llm_bridge.policies.generation import Written, cached
from llm_bridge.rollouts import Sampling, collect, environment_seed
from llm_bridge.rows import Rows, Tally
from llm_bridge.turns import TurnBatch
from seeupo_theory.rules import orders as order_rule
from seeupo_theory.rules.presets import Algorithm, get
from seeupo_theory.rules.rows import Batch

__all__ = ["SeeUPOConfig", "SeeUPOTrainer"]


@dataclass
class SeeUPOConfig(GRPOConfig):
    """TRL's arguments and the algorithm's.

    `num_iterations`, `steps_per_generation` and `beta` follow from the algorithm and are set here;
    TRL's `loss_type`, `epsilon` and `scale_rewards` are not read.

    Attributes:
        preset: algorithm by name.
        switches: single switches of it.
        epochs: optimiser steps in each turn's update.
        max_turns: replies a trajectory, T.
        aggregation, constant, importance_cap: see `llm_bridge.options.Options`.

    Raises:
        ValueError: algorithms that need a critic, closed-form steps, a guard or fresh samples.
    """

    preset: str = "seeupo"
    switches: dict[str, Any] = field(default_factory=dict)
    epochs: int = 1
    max_turns: int = 4
    aggregation: str = "sum"
    constant: float | None = None
    importance_cap: float | None = 2.0

    def __post_init__(self) -> None:
        """Check the algorithm and derive TRL's own counts."""
        a = self.algorithm
        for wrong, what in (
            (a.estimator in ("gae", "exact"), f"estimator {a.estimator!r} needs a critic"),
            (a.ideal, f"objective {a.objective!r} is a closed-form step"),
            (a.guard, "guard halves steps"),
            (a.resample, "resample needs fresh samples before each turn"),
        ):
            if wrong:
                raise ValueError(f"{what}, which this trainer has not; use llm_bridge.Trainer")
        _ = (self.options, self.sampling)
        self.num_iterations = self.epochs * (1 if a.simultaneous else self.max_turns)
        self.steps_per_generation = self.gradient_accumulation_steps
        self.beta = 0.0
        super().__post_init__()

    @property
    def algorithm(self) -> Algorithm:
        """The preset with its switches."""
        return get(self.preset).replace(epochs=self.epochs, **self.switches)

    @property
    def options(self) -> Options:
        """How an update is computed."""
        return Options(
            micro_batch=self.per_device_train_batch_size,
            aggregation=self.aggregation,
            constant=self.constant,
            temperature=self.temperature,
            importance_cap=self.importance_cap,
        )

    @property
    def sampling(self) -> Sampling:
        """Limits of rollouts."""
        return Sampling(
            max_turns=self.max_turns,
            max_tokens=int(self.max_completion_length or 0),
            temperature=self.temperature,
        )


class SeeUPOTrainer(GRPOTrainer):
    """TRL's trainer with turn-wise updates.

    Args:
        model: a causal language model, or what TRL accepts as one.
        environment: an instance of the Protocol, or what makes one.
        args: see `SeeUPOConfig`.
        processing_class: tokenizer with a chat template (default: that of the model's name).
        tasks: tasks to draw from (default: the environment's own).
        more: further arguments of TRL's trainer (callbacks, optimizers, peft_config, …).
    """

    args: Any
    policy: Any
    exact: Exact | None

    def __init__(
        self,
        model: Any,
        environment: Any,
        *,
        args: SeeUPOConfig,
        processing_class: Any = None,
        tasks: Sequence[Any] | None = None,
        **more: Any,
    ) -> None:
        self.environment, self.tasks = environment, tasks_to_play(environment, tasks)
        named = isinstance(model, str) or bool(getattr(model.config, "_name_or_path", ""))
        args.beta = args.algorithm.kl_coef if named else 0.0  # TRL loads its reference by name
        frozen = None
        if args.algorithm.kl_coef and not named:
            frozen = copy.deepcopy(model).requires_grad_(False)
        size = max(len(self.tasks), int(args.generation_batch_size or 1))  # no batch is dropped
        super().__init__(
            model=model,
            reward_funcs=_unused,
            args=args,
            train_dataset=Dataset.from_dict({"prompt": [""] * size}),  # what is played: `draw`
            processing_class=processing_class,
            **more,
        )
        self.loss_is_scaled_for_ga = True  # by R already, not by the number of micro-batches
        self.algorithm, self.options = args.algorithm, args.options
        self.exact = None
        shared = self.use_vllm or self.is_fsdp_enabled or self._dist.is_zero3
        self._together = _Together(self) if shared else None
        self.policy = CausalPolicy(
            self.accelerator.unwrap_model(self.model),
            self.processing_class,
            stop_ids=self.eos_token_ids,
            max_context=args.vllm_max_model_length if self.use_vllm else None,
            generator=self._together or cached,
        )
        self.reference: Any = None
        self._frozen = None if frozen is None else frozen.to(self.accelerator.device)
        self.rows: Rows | None = None
        self._groups: list[list[int]] = []
        self._now: list[int] = []

    # -- rollouts ------------------------------------------------------------------------------

    def draw(self, count: int, iteration: int) -> list[Any]:
        """Tasks of an iteration: each occurs once before any occurs again, in a drawn order.

        TRL's sampler begins anew in a resumed run; this depends on seed and iteration alone.
        """
        first, begin = divmod(iteration * count, len(self.tasks))
        orders = []
        for epoch in range(first, first + -(-(begin + count) // len(self.tasks))):
            seed = environment_seed(self.args.seed, "tasks", epoch)
            orders.append(np.random.default_rng(seed).permutation(len(self.tasks)))
        return [self.tasks[int(i)] for i in np.concatenate(orders)[begin : begin + count]]

    def collect(self, rows: int, iteration: int) -> TurnBatch:
        """This process's rows of the global batch, played from seeds of their own."""
        s, group = self.args.sampling, int(self.num_generations or 1)
        first = self.accelerator.process_index * rows
        keys = [divmod(first + i, group) for i in range(rows)]
        tasks = self.draw(rows * self.accelerator.num_processes // group, iteration)
        seed = environment_seed(self.args.seed, "rollouts", iteration)
        player = copy.copy(self.policy)
        player.model = self.accelerator.unwrap_model(self.model)
        try:
            return collect(
                player, self.environment, tasks, group, seed, s, prefix=iteration, keys=keys
            )
        finally:
            if self._together is not None:
                self._together.drain(player)

    def advantages(self, batch: TurnBatch) -> Tensor:
        """Advantages [rows here] from the returns of all rows of all processes."""
        mine = list(zip(batch.row_ids, batch.returns.tolist(), batch.groups, strict=True))
        ids, returns, groups = zip(*self._all(mine), strict=True)
        everyone = Batch(ids, torch.tensor(returns, dtype=torch.float64), groups)
        return everyone.advantages(self.algorithm.advantage_rule()).align(batch.rows)

    def _all(self, values: list[Any]) -> list[Any]:
        return gather_object(values) if self.accelerator.num_processes > 1 else values

    # -- TRL's loop ----------------------------------------------------------------------------

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """Rows of the next micro-batch; before it, rollouts or the factor where they are due."""
        accumulate, epochs = self.args.steps_per_generation, self.algorithm.epochs
        iteration, update = divmod(self.state.global_step, self.num_iterations)
        part = self._step % accumulate
        if self.rows is None and (update or part):
            raise RuntimeError(
                f"resumed at step {update} of an iteration; save_steps should be a multiple of "
                f"{self.num_iterations}, the optimiser steps of one"
            )
        step, epoch = divmod(update, epochs)
        if not update and not part:
            self._begin(len(generation_batch), iteration)
        elif not epoch and not part:
            self._advance(step)
        size, self._now = self.args.per_device_train_batch_size, self._groups[step]
        return {"chunk": range(part * size, (part + 1) * size), "turns": self._now}

    def _begin(self, rows: int, iteration: int) -> None:
        """Rollouts, advantages and the order of the turns of an iteration."""
        a, batch = self.algorithm, self.collect(rows, iteration)
        self.policy.model = self.model_wrapped
        if a.kl_coef and self.reference is None:
            self.reference = copy.copy(self.policy)
            self.reference.model = (
                self._frozen or self.ref_model or WithoutAdapter(self.model_wrapped)
            )
        self.rows = _Rows(self, batch, self.advantages(batch))
        turns = None
        if not a.simultaneous:
            rng = np.random.default_rng(environment_seed(self.args.seed, "update", iteration))
            turns = order_rule.turn_order(a.order, batch.horizon, rng)
        self._groups = [list(range(batch.horizon))] if turns is None else [[t] for t in turns]
        counts = self._all([[int(m.sum()) for m in self.rows.mask]])
        acting = self._all([[int(n) for n in batch.active.sum(dim=0)]])
        self._acting = [sum(n) for n in zip(*acting, strict=True)]
        everyone = float(len(batch) * self.accelerator.num_processes)
        tokens = self.options.aggregation == "mean" and a.level == "token"
        self._scale = {
            t: max(float(sum(c)), 1.0) if tokens else everyone
            for t, c in enumerate(zip(*counts, strict=True))
        }
        returns = self._all(batch.returns.tolist())
        self._metrics["train"]["reward"].append(sum(returns) / len(returns))
        self._metrics["train"]["turns"].append(sum(self._acting) / everyone)

    def _advance(self, step: int) -> None:
        """The factor past the turns just updated; old scores anew where the algorithm says so."""
        assert self.rows is not None
        for t in self._groups[step - 1]:
            self.rows.advance(t)
        if self.algorithm.reference == "current":
            self.rows.refresh(self._groups[step])

    def compute_loss(
        self,
        model: Any,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Negative objective of a micro-batch, scaled so that sums over all processes add up."""
        assert self.rows is not None
        self.policy.model = model
        rows, turns, chunk, tally = self.rows, inputs["turns"], inputs["chunk"], Tally()
        weighted = rows.weighted(turns)
        if self.algorithm.credit == "trajectory":
            idle = [t for t in turns if not bool(rows.active[chunk, t].any())]
            pieces = [rows.trajectory(turns, chunk, weighted, self._scale, tally)]
            pieces += [_idle(self.policy) for _ in idle]
        else:
            found = [rows.turn(t, chunk, weighted, self._scale, tally) for t in turns]
            pieces = [_idle(self.policy) if piece is None else piece for piece in found]
        if tally.mass:
            self._metrics["train"]["clip_fraction"].append(tally.cut / tally.mass)
        total = torch.stack([piece.double() for piece in pieces]).sum()
        # gradients are averaged over processes, and added over the micro-batches of a step
        return -total * self.accelerator.num_processes

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """One micro-batch; a turn at which nobody acts leaves no gradient behind."""
        out = super().training_step(model, inputs, num_items_in_batch)
        if not any(self._acting[t] for t in self._now):
            for p in model.parameters():
                p.grad = None
        return out


class _Rows(Rows):
    """Rows of one process; all processes make the same number of forward passes."""

    def _scored(self, policy: Any, turn: int) -> tuple[Tensor, Tensor]:
        out = super()._scored(policy, turn)
        trainer: Any = self.updater
        if trainer.accelerator.num_processes > 1:
            live = int(self.active[:, turn].sum())
            mine = -(-live // (self.options.micro_batch or max(live, 1)))
            with torch.no_grad():
                for _ in range(max(gather_object([mine])) - mine):
                    _idle(policy)
        return out


class _Together:
    """TRL's generation of one turn; every process makes the same calls, with as many rows."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def __call__(
        self,
        policy: Any,
        prompts: Sequence[Any],
        *,
        max_tokens: int,
        temperature: float,
        seeds: Sequence[Any],
    ) -> list[Written]:
        return self._round(policy, prompts, len(prompts)) or []

    def drain(self, policy: Any) -> None:
        """Take part until no process has a row that still plays."""
        while self._round(policy, [], -1) is not None:
            pass

    def _round(self, policy: Any, prompts: Sequence[Any], count: int) -> list[Written] | None:
        most = max(self.trainer._all([count]))
        if most <= 0:
            return [] if most == 0 else None
        mine = [*map(list, prompts), *([policy.stop_ids[0]] for _ in range(most - len(prompts)))]
        ids, scores = self.trainer._generate_single_turn(mine, None, {}, 1)
        policy.model.eval()
        known = [None] * most if scores is None else [tuple(map(float, s)) for s in scores]
        return [(tuple(map(int, i)), s) for i, s in zip(ids, known, strict=True)][: len(prompts)]


def _idle(policy: Any) -> Tensor:
    """Zero, by a forward pass: processes that wait for each other need the same passes."""
    token = policy.stop_ids[0]
    return policy.score([[token]], [[token]]).log_prob.sum() * 0.0


def _unused(completions: Any, **columns: Any) -> list[float | None]:
    """TRL wants a reward function; rewards come from the environment."""
    return [0.0] * len(completions)
