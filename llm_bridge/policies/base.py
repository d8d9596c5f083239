r"""What a policy is: it generates turns, and it says how likely the tokens of a turn are.

A *turn* is one reply of the assistant: the ids of the prompt it saw (the whole conversation so far,
rendered), and the ids it wrote.  Everything of the environment is in the prompt, so that the
policy's own tokens are those of `Turn.ids` and no others; where a reply holds tokens that the
policy did not choose (forced or inserted by an engine), `Turn.mask` says so.

Shapes: R rows, L tokens of the longest reply.  Scores are padded on the right; the mask is False on
padding, and values there are 0.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

__all__ = ["Policy", "Scored", "Turn", "hashed_seed", "row_seeds", "row_uniforms"]

Ids = Sequence[int]


@dataclass(frozen=True)
class Turn:
    """One reply.

    Attributes:
        prompt_ids: tokens of the conversation before it.
        ids: tokens of the reply, the stop token included where there is one.
        log_probs: log-probability of each at generation, or None where not known.
        text: what the environment reads.
        truncated: whether a limit ended it, not the policy.
        mask: True on the policy's own tokens; None means all of `ids`.
    """

    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    log_probs: tuple[float, ...] | None
    text: str
    truncated: bool = False
    mask: tuple[bool, ...] | None = None

    def __post_init__(self) -> None:
        """Check that log-probabilities and mask belong to the tokens."""
        for name in ("log_probs", "mask"):
            value = getattr(self, name)
            if value is not None and len(value) != len(self.ids):
                raise ValueError(f"{name} has {len(value)} entries; ids has {len(self.ids)}")

    @property
    def own(self) -> tuple[bool, ...]:
        """True on the policy's own tokens."""
        return (True,) * len(self.ids) if self.mask is None else self.mask


@dataclass(frozen=True)
class Scored:
    """Scores of R replies: log_prob [R, L], mask [R, L]; entropy [R, L] where asked for."""

    log_prob: Tensor
    mask: Tensor
    entropy: Tensor | None = None


class Policy(Protocol):
    """Anything that can be trained here; `CausalPolicy` and `TabularPolicy` are two."""

    def generate(
        self,
        conversations: Sequence[Sequence[Mapping[str, Any]]],
        *,
        max_tokens: int,
        temperature: float,
        seed: int | Sequence[Any],
        tools: Sequence[Any] | None = None,
    ) -> list[Turn]:
        """One reply to each conversation; a row's randomness is that of its own seed."""

    def score(
        self,
        prompts: Sequence[Ids],
        ids: Sequence[Ids],
        *,
        temperature: float = 1.0,
        entropy: bool = False,
    ) -> Scored:
        """Log-probabilities of the replies' tokens, differentiable."""

    def values(self, prompts: Sequence[Ids]) -> Tensor:
        """Value head: expected return to go at each prompt, [R]."""

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """Trainable parameters of the policy, without those of the value head."""

    def value_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Parameters of the value head."""

    def reference(self) -> Policy:
        """A frozen copy of the policy as it is, for a KL penalty."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint has to hold."""

    def load_state_dict(self, state: dict[str, Any]) -> Any:
        """Undo `state_dict`."""


def row_uniforms(seed: int | Sequence[Any], rows: int, count: int) -> Any:
    """Uniform numbers [rows, count]: row i depends on its own seed only, not on the batch.

    >>> import numpy as np
    >>> np.array_equal(row_uniforms([5, 7], 2, 3)[1], row_uniforms([7], 1, 3)[0])
    True
    """
    import numpy as np

    return np.stack([np.random.default_rng(s).random(count) for s in row_seeds(seed, rows)])


def hashed_seed(parts: Any, size: int) -> int:
    """A seed of 8·size − 1 bits from anything that has a repr.

    >>> hashed_seed((0, "rollouts"), 4) < 2**31
    True
    """
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:size], "big") >> 1


def row_seeds(seed: int | Sequence[Any], rows: int) -> list[Any]:
    """One seed a row; a single one is counted up.

    >>> row_seeds(5, 2)
    [(5, 0), (5, 1)]
    """
    seeds = [(seed, i) for i in range(rows)] if isinstance(seed, int) else list(seed)
    if len(seeds) != rows:
        raise ValueError(f"seed has {len(seeds)} entries; it should have {rows}, one a row")
    return seeds
