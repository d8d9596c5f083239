"""A run as a value: `Config`, from Python or from a TOML file.

    preset = "seeupo"
    iterations = 20
    tasks = 8
    group = 8

    [switches]            # single switches of the preset, see seeupo_theory.rules.presets
    kl_coef = 0.002

    [policy]
    kind = "tiny"         # tiny, smollm2, tabular, causal (with path), or "module:function"

    [environment]
    kind = "tabular"      # see llm_bridge.environments.load_environment
    model = "zoo:xor"

Every key is checked before anything is loaded; an unknown one is an error that lists the known.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from llm_bridge.environments.base import tasks_of
from llm_bridge.options import Options
from llm_bridge.rollouts import Sampling
from seeupo_theory.rules.presets import Algorithm, get

__all__ = ["OPTIMISERS", "Config", "ConfigError", "build", "tasks_to_play"]

OPTIMISERS = ("adamw", "sgd")
REFERENCES = ("initial", "behaviour", "none")
POLICIES = ("tiny", "smollm2", "tabular", "causal")


class ConfigError(ValueError):
    """A configuration that cannot be run; the message names the key and what would be right."""


@dataclass(frozen=True)
class Config:
    """One training run.

    Attributes:
        preset: algorithm by name, or "module:attribute".
        switches: single switches of it; `epochs` and `lr` have keys of their own here.
        iterations: how many.
        tasks: tasks an iteration, B.
        group: rollouts a task, G.
        epochs: passes over the batch in each turn's update.
        lr: step size.
        optimiser: "adamw" or "sgd".
        weight_decay: of AdamW.
        micro_batch, mini_batches, aggregation, constant, max_grad_norm, importance_cap,
            reset_optimiser, critic, critic_lr, critic_epochs, discount: see `Options`.
        max_turns, max_tokens, temperature, success_at: see `Sampling`.
        kl_reference: "initial" policy, "behaviour" (the sampling policy of the iteration).
        bound_tasks: fresh tasks an iteration for the improvement bound F and its lower limit;
            0 means F on the training batch only, where no limit is valid.
        confidence: of that limit.
        bound_range: largest absolute advantage that can occur (the range of the returns); with it
            the limit holds for every sample size (empirical Bernstein), without it Student's.
        exact: report J itself where the environment is a `TabularText`.
        seed: of everything.
        output: directory of logs and checkpoints, or "" for none.
        checkpoint_every: iterations between checkpoints.
        keep: number of checkpoints kept.
        tensorboard, progress: whether to write and show.
        threads: torch's threads; 0 leaves them.
        policy, environment: tables {kind, options…} for `build`.

    >>> Config(preset="grpo", switches={"kl_coef": 0.01}).algorithm.kl_coef
    0.01
    """

    preset: str = "seeupo"
    switches: Mapping[str, Any] = field(default_factory=dict)
    iterations: int = 10
    tasks: int = 8
    group: int = 8
    epochs: int = 1
    lr: float = 1e-3
    optimiser: str = "adamw"
    weight_decay: float = 0.0
    micro_batch: int | None = None
    mini_batches: int = 1
    aggregation: str = "sum"
    constant: float | None = None
    max_grad_norm: float | None = 1.0
    importance_cap: float | None = 2.0
    reset_optimiser: bool = False
    critic: str = "value-head"
    critic_lr: float = 1e-3
    critic_epochs: int = 4
    discount: float = 1.0
    max_turns: int = 4
    max_tokens: int = 64
    temperature: float = 1.0
    success_at: float = 1.0
    kl_reference: str = "initial"
    bound_tasks: int = 0
    confidence: float = 0.95
    bound_range: float | None = None
    exact: bool = True
    seed: int = 0
    output: str = ""
    checkpoint_every: int = 1
    keep: int = 2
    tensorboard: bool = True
    progress: bool = True
    threads: int = 0
    policy: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check every field; what belongs to other classes is checked by them."""
        for name in ("iterations", "tasks", "group", "epochs", "checkpoint_every", "keep"):
            self._whole(name, 1)
        for name in ("bound_tasks", "seed", "threads"):
            self._whole(name, 0)
        for name, known in (("optimiser", OPTIMISERS), ("kl_reference", REFERENCES)):
            if getattr(self, name) not in known:
                raise ConfigError(_unknown(getattr(self, name), name, known))
        if self.bound_tasks == 1:
            raise ConfigError("bound_tasks is 1; a confidence limit needs at least 2 tasks")
        if not 0 < self.confidence < 1:
            raise ConfigError(f"confidence is {self.confidence}; it should be between 0 and 1")
        for name in ("epochs", "lr"):
            if name in self.switches:
                raise ConfigError(f"switches.{name}: should be the key {name} itself")
        _ = (self.algorithm, self.options, self.sampling)
        if self.algorithm.kl_coef and self.kl_reference == "none":
            raise ConfigError("kl_reference is none, but kl_coef is not 0")

    def _whole(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(
                f"{name} is {value!r}; it should be a whole number of at least {least}"
            )

    @property
    def algorithm(self) -> Algorithm:
        """The preset with its switches."""
        switches = {k: tuple(v) if isinstance(v, list) else v for k, v in self.switches.items()}
        return get(self.preset).replace(epochs=self.epochs, lr=self.lr, **switches)

    @property
    def options(self) -> Options:
        """How an iteration is computed."""
        return Options(**{f.name: getattr(self, f.name) for f in dataclasses.fields(Options)})

    @property
    def sampling(self) -> Sampling:
        """Limits of rollouts."""
        return Sampling(**{f.name: getattr(self, f.name) for f in dataclasses.fields(Sampling)})

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Config:
        """A configuration from a table; an unknown key is an error."""
        known = [f.name for f in dataclasses.fields(cls)]
        for key in table:
            if key not in known:
                raise ConfigError(_unknown(key, "key", known))
        for name in ("switches", "policy", "environment"):
            if not isinstance(table.get(name, {}), Mapping):
                raise ConfigError(f"{name} is {table[name]!r}; it should be a table")
        try:
            return cls(**table)
        except TypeError as error:
            raise ConfigError(str(error)) from error

    @classmethod
    def load(cls, path: str | Path) -> Config:
        """A configuration from a TOML file."""
        try:
            with open(path, "rb") as file:
                return cls.of(tomllib.load(file))
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from error

    def replace(self, **changes: Any) -> Config:
        """A copy with other values."""
        return Config.of({**self.table(), **changes})

    def table(self) -> dict[str, Any]:
        """All fields as JSON-ready values."""
        out = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {k: dict(v) if isinstance(v, Mapping) else v for k, v in out.items()}


def tasks_to_play(environment: Any, tasks: Sequence[Any] | None = None) -> Sequence[Any]:
    """Tasks to draw from: those given, the environment's own, or None where it needs no task."""
    listed = tasks_of(environment) if tasks is None else tasks
    if listed is None:
        return [None]
    if not len(listed):
        raise ConfigError("tasks is empty; the environment should have at least one")
    return listed


def build(config: Config) -> tuple[Any, Any]:
    """Policy and environment that a configuration's tables name.

    A "module:attribute" may be a file of the working directory.
    """
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    from llm_bridge.environments import load_environment

    place = dict(config.environment)
    kind = place.pop("kind", None)
    if not kind:
        raise ConfigError("environment.kind is missing; see llm_bridge.environments")
    environment = load_environment(kind, **place)
    return _policy(dict(config.policy), environment, config), environment


def _policy(options: dict[str, Any], environment: Any, config: Config) -> Any:
    kind = options.pop("kind", "tiny")
    try:
        if kind == "tiny":
            from llm_bridge.policies.tiny import tiny_policy

            warm = options.pop("warm_start", 0)
            policy: Any = tiny_policy(options.pop("seed", config.seed), **options)
            if warm:
                from llm_bridge.policies.warm import warm_start

                warm_start(policy, environment, steps=int(warm), max_tokens=config.max_tokens)
            return policy
        if kind == "tabular":
            from llm_bridge.policies.tabular import TabularPolicy

            return TabularPolicy(environment, **options)
        if kind == "smollm2":
            from llm_bridge.policies.smollm2 import smollm2_policy

            return smollm2_policy(**options)
        if kind == "causal":
            from llm_bridge.policies.causal import CausalPolicy

            return CausalPolicy.from_pretrained(**options)
    except (TypeError, NotADirectoryError) as error:
        raise ConfigError(f"policy: {error}") from error
    if isinstance(kind, str) and kind.count(":") == 1:
        module, name = kind.split(":")
        return getattr(importlib.import_module(module), name)(**options)
    raise ConfigError(_unknown(kind, "policy.kind", POLICIES) + ', or "module:function"')


def _unknown(value: Any, name: str, known: Any) -> str:
    near = get_close_matches(str(value), list(known), n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{name} is {value!r}{hint}; it should be one of {', '.join(known)}"
