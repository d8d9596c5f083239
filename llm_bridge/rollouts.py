r"""Rollouts: a policy plays G episodes of each task, all of them in step.

*Stop conditions*, each with its flag:

================  ==================================================================
end               what happens
================  ==================================================================
done              the environment says so; the row is not truncated
                  (unless the environment's ``info["truncated"]`` says that it was)
turn limit        `max_turns` replies were given and the episode goes on: truncated
token limit       a reply reaches `max_tokens`: it is cut there and the environment
                  reads what there is; `Turn.truncated`, and the episode goes on
context limit     prompt and reply would not fit the model: the episode ends there
                  with what it has earned, truncated
================  ==================================================================

A truncated row keeps its return.  Later turns of a finished row are no-ops (`None`).

*Seeds.*  Row i of group b at turn t draws from the seed (seed, b, i, t), its environment from
(seed, b, i): the same call gives the same batch, and no row depends on those beside it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from llm_bridge.environments.base import Environment, Message, check_messages, tools_of
from llm_bridge.policies.base import Policy, Turn, hashed_seed
from llm_bridge.turns import TurnBatch

__all__ = ["Sampling", "collect", "environment_seed", "factory"]


@dataclass(frozen=True)
class Sampling:
    """Limits of rollouts.

    Attributes:
        max_turns: replies a trajectory, T.
        max_tokens: tokens a reply.
        temperature: of generation, and of all scores.
        discount: γ of the return.
        success_at: a row is a success if its return is at least this.
    """

    max_turns: int = 4
    max_tokens: int = 64
    temperature: float = 1.0
    discount: float = 1.0
    success_at: float = 1.0

    def __post_init__(self) -> None:
        """Check every field."""
        for name in ("max_turns", "max_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; it should be a whole number of at least 1")
        if not self.temperature >= 0:
            raise ValueError(f"temperature is {self.temperature}; it should be at least 0")
        if not 0 <= self.discount <= 1:
            raise ValueError(f"discount is {self.discount}; it should be in [0, 1]")


def factory(environment: Any) -> Callable[[], Environment]:
    """What makes one environment a row: `spawn`, a class or function, or copies of an instance."""
    if callable(getattr(environment, "spawn", None)):
        return environment.spawn
    if isinstance(environment, type) or not hasattr(environment, "reset"):
        if not callable(environment):
            raise TypeError(
                f"environment is a {type(environment).__name__}; it should have reset, step and "
                "close, or make such a thing when called"
            )
        return environment
    return lambda: copy.deepcopy(environment)


def environment_seed(*parts: Any) -> int:
    """A seed below 2^31 from any parts."""
    return hashed_seed(parts, 4)


class _Episode:
    """One row while it is played."""

    def __init__(self, environment: Environment, task: Any, seed: int):
        self.environment = environment
        messages = environment.reset(task, seed)
        check_messages(messages, "reset")
        self.conversation: list[Message] = list(messages)
        self.turns: list[Turn] = []
        self.rewards: list[float] = []
        self.nodes: list[int] = []
        self.truncated = False
        self.done = False
        self.success: bool | None = None

    def answer(self, turn: Turn, last: bool) -> None:
        if turn.truncated and not turn.ids:  # nothing fits the context any more
            self.done = self.truncated = True
            return
        result = self.environment.step(turn.text)
        self.turns.append(turn)
        self.rewards.append(result.reward)
        self.nodes.append(int(result.info.get("node", -1)))
        self.conversation.append({"role": "assistant", "content": turn.text})
        self.conversation.extend(result.messages)
        self.done = result.done
        if "success" in result.info:
            self.success = bool(result.info["success"])
        if result.done:
            self.truncated = bool(result.info.get("truncated", False))
        elif last:
            self.done = self.truncated = True


def collect(
    policy: Policy,
    environment: Any,
    tasks: Sequence[Any] | Mapping[int, Any],
    group: int,
    seed: int,
    sampling: Sampling | None = None,
    *,
    prefix: Hashable = 0,
    keys: Sequence[tuple[int, int]] | None = None,
) -> TurnBatch:
    """Play `group` episodes of each task.

    Args:
        policy: what replies.
        environment: an instance, or what makes one (see `factory`).
        tasks: B tasks; one that occurs twice makes two groups.
        group: G.
        seed: of everything.
        sampling: limits.
        prefix: first part of row ids (prefix, group, member), the iteration in training.
        keys: (group, member) of the rows to play, where others are played elsewhere; `tasks` may
            then be a mapping from group.  A row is the same whoever plays it.

    Returns:
        R = B·G rows in the order of the tasks, or those of `keys`.
    """
    s = sampling or Sampling()
    if not tasks:
        raise ValueError("tasks is empty; there should be at least one")
    if group < 1:
        raise ValueError(f"group is {group}; it should be at least 1")
    make = factory(environment)
    if keys is None:
        keys = [(b, i) for b in range(len(tasks)) for i in range(group)]
    episodes: list[_Episode] = []
    try:
        for b, i in keys:
            episodes.append(_Episode(make(), tasks[b], environment_seed(seed, b, i)))
        for t in range(s.max_turns):
            live = [k for k, e in enumerate(episodes) if not e.done]
            if not live:
                break
            tools = [tools_of(episodes[k].environment) for k in live]
            turns = policy.generate(
                [episodes[k].conversation for k in live],
                max_tokens=s.max_tokens,
                temperature=s.temperature,
                seed=[(seed, *keys[k], t) for k in live],
                tools=tools if any(tools) else None,
            )
            for k, turn in zip(live, turns, strict=True):
                episodes[k].answer(turn, last=t + 1 == s.max_turns)
        return _batch(policy, episodes, keys, tasks, s, prefix)
    finally:
        for e in episodes:
            e.environment.close()


def _batch(
    policy: Policy,
    episodes: list[_Episode],
    keys: Sequence[tuple[int, int]],
    tasks: Sequence[Any] | Mapping[int, Any],
    s: Sampling,
    prefix: Hashable,
) -> TurnBatch:
    horizon = s.max_turns
    rewards = torch.zeros((len(episodes), horizon), dtype=torch.float64)
    nodes = torch.full((horizon, len(episodes)), -1)
    for k, e in enumerate(episodes):
        rewards[k, : len(e.rewards)] = torch.tensor(e.rewards, dtype=torch.float64)
        nodes[: len(e.nodes), k] = torch.tensor(e.nodes, dtype=torch.long)
    scale = s.discount ** torch.arange(horizon, dtype=torch.float64)
    returns = (rewards * scale).sum(dim=1)
    success = [
        float(returns[k]) >= s.success_at if e.success is None else e.success
        for k, e in enumerate(episodes)
    ]
    encode = getattr(policy, "encode", None)
    after = [encode(e.conversation) if encode and e.truncated else None for e in episodes]
    known = bool((nodes[0] >= 0).all())
    return TurnBatch(
        row_ids=tuple((prefix, *key) for key in keys),
        groups=tuple((prefix, b) for b, _ in keys),
        turns=tuple(
            tuple(e.turns[t] if t < len(e.turns) else None for e in episodes)
            for t in range(horizon)
        ),
        rewards=rewards,
        returns=returns,
        truncated=torch.tensor([e.truncated for e in episodes]),
        nodes=tuple(nodes) if known else None,
        success=torch.tensor(success),
        bootstrap=tuple(after) if any(a is not None for a in after) else None,
        contexts=tuple(repr(tasks[b]) for b, _ in keys),
    )
