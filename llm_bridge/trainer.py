r"""The loop: rollouts, one iteration of the algorithm, measures, checkpoint::

    from llm_bridge import Config, FunctionEnvironment, Trainer, tiny_policy

    environment = FunctionEnvironment(
        reward=lambda task, texts: float(task in texts[-1]), tasks=["a", "b"]
    )
    Trainer(Config(preset="grpo", max_turns=1, max_tokens=4), tiny_policy(), environment).train()

*Seeds.*  Everything that is drawn in iteration k comes from (seed, k), not from a generator that
runs on; so an iteration can be repeated alone, and a resumed run is the run that was not stopped,
bit for bit on a CPU.

*Killed.*  A checkpoint is written after each iteration (`checkpoint_every`), whole or not at all; a
run that dies loses what came after the last one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from llm_bridge import checkpoints
from llm_bridge.bound import Bound
from llm_bridge.config import Config, ConfigError, build, tasks_to_play
from llm_bridge.exact import Exact, verdict
from llm_bridge.logs import Logs
from llm_bridge.options import TurnReport
from llm_bridge.rollouts import collect, environment_seed
from llm_bridge.turns import TurnBatch
from llm_bridge.update import Updater
from seeupo_theory.rules.advantages import zero_variance_share

__all__ = ["Result", "Trainer", "train"]


@dataclass(frozen=True)
class Result:
    """How a run ended: "finished" or "non-finite"; iterations done; the last records."""

    status: str
    iterations: int
    records: list[dict[str, Any]]


class Trainer:
    """A run.

    Args:
        config: see `Config`.
        policy, environment: what is trained and where; default: what the configuration names.
        tasks: tasks to draw from (default: the environment's own, else None for each).
        callbacks: called with every record (see `llm_bridge.logs`).

    Raises:
        ConfigError: combinations that cannot run.
    """

    def __init__(
        self,
        config: Config,
        policy: Any = None,
        environment: Any = None,
        *,
        tasks: Sequence[Any] | None = None,
        callbacks: Sequence[Callable[[dict[str, Any]], None]] = (),
    ) -> None:
        if (policy is None) != (environment is None):
            raise ConfigError("policy and environment: give both, or neither (from the config)")
        if config.threads:
            torch.set_num_threads(config.threads)
        if policy is None:
            policy, environment = build(config)
        self.config, self.policy, self.environment = config, policy, environment
        self.callbacks = callbacks
        self.tasks = tasks_to_play(environment, tasks)
        self.task_probs = getattr(environment, "task_probs", None) if tasks is None else None
        self.exact = self._exact()
        algorithm = config.algorithm
        reference = None
        if algorithm.kl_coef and config.kl_reference == "initial":
            reference = policy.reference()
        self.updater = Updater(
            policy,
            algorithm,
            self._optimiser,
            config.options,
            reference=reference,
            exact=self.exact,
        )
        self.iteration = 0

    def _exact(self) -> Exact | None:
        if not self.config.exact or not hasattr(self.environment, "graph"):
            return None
        if self.environment.discount != self.config.discount:
            raise ConfigError(
                f"discount is {self.config.discount}; the game's is {self.environment.discount}"
            )
        if self.environment.turns > self.config.max_turns:
            raise ConfigError(
                f"max_turns is {self.config.max_turns}; the game has {self.environment.turns}"
            )
        return Exact(self.environment, self.config.max_tokens, self.config.temperature)

    def _optimiser(self, parameters: list[Any]) -> torch.optim.Optimizer:
        if self.config.optimiser == "sgd":
            return torch.optim.SGD(parameters, lr=self.config.lr)
        return torch.optim.AdamW(
            parameters, lr=self.config.lr, weight_decay=self.config.weight_decay
        )

    @property
    def horizon(self) -> int:
        """T of the batches: the game's turns where they are known."""
        return int(self.environment.turns) if self.exact else self.config.max_turns

    # -- rollouts ------------------------------------------------------------------------------

    def draw(self, count: int, *parts: Any) -> list[Any]:
        """Tasks of (iteration, …), with replacement where there are weights or too few."""
        rng = np.random.default_rng(environment_seed(self.config.seed, *parts))
        size = len(self.tasks)
        if self.task_probs is not None:
            picked = rng.choice(size, count, p=self.task_probs)
        else:
            picked = rng.choice(size, count, replace=size < count)
        return [self.tasks[int(i)] for i in picked]

    def rollouts(self, count: int, *parts: Any) -> TurnBatch:
        """A batch of the current policy, drawn from `(seed, *parts)`."""
        from dataclasses import replace

        return collect(
            self.policy,
            self.environment,
            self.draw(count, "tasks", *parts),
            self.config.group,
            environment_seed(self.config.seed, "rollouts", *parts),
            replace(self.config.sampling, max_turns=self.horizon),
            prefix="-".join(map(str, parts)),
        )

    # -- the loop ------------------------------------------------------------------------------

    def train(self, resume: bool = False) -> Result:
        """Run to the end; with `resume`, from the newest checkpoint of the output directory."""
        folder = Path(self.config.output) if self.config.output else None
        if resume:
            self.resume()
        elif folder is not None and checkpoints.latest(folder) is not None:
            raise ConfigError(f"output {folder} holds checkpoints; resume, or choose another")
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(self.config.table(), indent=1)
            (folder / "config.json").write_text(text + "\n", encoding="utf-8")
        logs = Logs(
            folder,
            first=self.iteration,
            total=self.config.iterations,
            tensorboard=self.config.tensorboard,
            progress=self.config.progress,
            callbacks=self.callbacks,
        )
        records: list[dict[str, Any]] = []
        status = "finished"
        try:
            if folder is not None and self.iteration == 0:
                self.save(folder)
            while self.iteration < self.config.iterations:
                records = self.step(logs)
                if not self._finite():
                    status = "non-finite"
                    break
                last = self.iteration == self.config.iterations
                if folder is not None and (
                    last or self.iteration % self.config.checkpoint_every == 0
                ):
                    self.save(folder)
        finally:
            logs.close()
        return Result(status, self.iteration, records)

    def step(
        self, log: Callable[[dict[str, Any]], None] = lambda record: None
    ) -> list[dict[str, Any]]:
        """One iteration; returns its records."""
        k, config = self.iteration, self.config
        begun = time.perf_counter()
        batch = self.rollouts(config.tasks, k)
        rolled = time.perf_counter() - begun
        if config.bound_tasks:
            fresh = self.rollouts(config.bound_tasks, k, "fresh")
            bound = Bound.before(self.policy, fresh, config.options, fresh=True)
        else:
            bound = Bound.before(self.policy, batch, config.options, fresh=False)
        value = before = None if self.exact is None else self.exact.value(self.policy)
        scale = 1.0 if self.exact is None else float(np.abs(self.exact.graph.leaf_values).max())
        records: list[dict[str, Any]] = []

        def watch(report: TurnReport) -> None:
            nonlocal value
            record = {"kind": "turn", "iteration": k, "turns": list(report.turns), **report.metrics}
            if self.exact is not None and value is not None:
                now = self.exact.value(self.policy)
                record |= {"J": now, "J_before": value, "verdict": verdict(value, now, scale)}
                value = now
            records.append(record)
            log(record)

        rng = np.random.default_rng(environment_seed(config.seed, "update", k))
        self.updater(
            batch,
            rng=rng,
            resample=lambda step: self.rollouts(config.tasks, k, "again", step),
            on_turn=watch,
        )
        limit = {"confidence": config.confidence, "bound": config.bound_range}
        record = {
            "kind": "iteration",
            "iteration": k,
            **_summary(batch),
            **bound.after(self.policy, config.algorithm, **limit),  # type: ignore[arg-type]
            "rollout_tokens_per_second": batch.tokens / max(rolled, 1e-9),
            "seconds": time.perf_counter() - begun,
        }
        if before is not None and value is not None:
            record |= {"J_before": before, "J": value, "verdict": verdict(before, value, scale)}
        records.append(record)
        self.iteration += 1
        log(record)
        return records

    def _finite(self) -> bool:
        """Whether all parameters are finite (−inf marks a forbidden action of a table)."""
        return not any(bool(torch.isnan(p).any()) for p in self.policy.parameters())

    # -- checkpoints ---------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything that the next iterations depend on."""
        critic = self.updater.critic_optimiser
        reference = self.updater.reference
        return {
            "iteration": self.iteration,
            "policy": self.policy.state_dict(),
            "reference": None if reference is None else reference.state_dict(),
            "optimiser": self.updater.optimiser.state_dict(),
            "critic_optimiser": None if critic is None else critic.state_dict(),
            "torch_rng": torch.get_rng_state(),
            "config": json.dumps(self.config.table(), sort_keys=True),
        }

    def save(self, folder: str | Path) -> Path:
        """Write a checkpoint."""
        return checkpoints.save(folder, self.iteration, self.state(), self.config.keep)

    def resume(self, path: str | Path | None = None) -> None:
        """Go on from a checkpoint (default: the newest of the output directory, if any)."""
        found = checkpoints.latest(self.config.output) if path is None else Path(path)
        if found is None:
            return
        state = checkpoints.load(found)
        stored = json.loads(state["config"])
        free = (
            "iterations",
            "output",
            "progress",
            "tensorboard",
            "keep",
            "checkpoint_every",
            "threads",
        )
        now = json.loads(json.dumps(self.config.table()))
        for key, value in now.items():
            if key not in free and stored.get(key) != value:
                raise ConfigError(
                    f"{key} is {value!r}; the run of {found.name} had {stored.get(key)!r}, and going "
                    "on with another would be another run"
                )
        self.policy.load_state_dict(state["policy"])
        if self.updater.reference is not None and state["reference"] is not None:
            self.updater.reference.load_state_dict(state["reference"])
        self.updater.optimiser.load_state_dict(state["optimiser"])
        if self.updater.critic_optimiser is not None:
            self.updater.critic_optimiser.load_state_dict(state["critic_optimiser"])
        torch.set_rng_state(state["torch_rng"])
        self.iteration = int(state["iteration"])


def _summary(batch: TurnBatch) -> dict[str, Any]:
    """What the rollouts earned."""
    groups = torch.tensor(batch.grouped())
    active = batch.active.double()
    return {
        "reward": float(batch.returns.mean()),
        "reward_std": float(batch.returns.std(correction=0)),
        "success": None if batch.success is None else float(batch.success.double().mean()),
        "truncated": float(batch.truncated.double().mean()),
        "turns_per_row": float(active.sum(dim=1).mean()),
        "tokens": batch.tokens,
        "zero_variance_groups": float(zero_variance_share(batch.returns[groups])),
    }


def train(
    path: str | Path,
    *,
    resume: bool = False,
    callbacks: Sequence[Callable[[dict[str, Any]], None]] = (),
    **changes: Any,
) -> Result:
    """Train as a TOML file says; `changes` replace keys of it."""
    config = Config.load(path)
    trainer = Trainer(config.replace(**changes) if changes else config, callbacks=callbacks)
    try:
        return trainer.train(resume=resume)
    finally:
        trainer.environment.close()
