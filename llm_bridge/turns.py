r"""A batch of trajectories, taken apart into turn pools.

Row i is a trajectory with an id of its own; its group is the *task* it attempts.  Turn t of the
batch is the pool D_t: one entry a row, and `None` where the episode was over before turn t (a no-op
turn: weight 0, factor 1, no KL, nothing computed).  Returns belong to trajectories, so that group
and batch statistics never depend on how many turns or tokens a row has.

Everything that is computed of a row is keyed by its id (`seeupo_theory.rules.rows`): `take`
reorders rows, and a trajectory keeps its advantage and its running factor.

*Truncation.*  ``truncated[i]`` is True where a limit (turns, tokens, context) ended row i.  What it
earned until then is its return; GAE bootstraps from the value head where a conversation goes on.

Shapes: R rows, T turns.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from llm_bridge.policies.base import Turn
from seeupo_theory.rules.rows import Batch

__all__ = ["TurnBatch"]


@dataclass(frozen=True, eq=False)
class TurnBatch:
    """Trajectories with their turns.

    Attributes:
        row_ids: R distinct ids.
        groups: R task ids; rows of one task are compared with each other.
        turns: T pools, each R entries, a `Turn` or None (no-op).
        rewards: [R, T] reward of each turn.
        returns: [R] total (discounted) return.
        truncated: [R] whether a limit ended the row.
        weights: [R] relative weights with mean 1 (a sample: all 1), or None.
        nodes: T arrays [R], the node of a `TabularText` graph before each turn; or None.
        success: [R] or None, whether the task was solved.
        bootstrap: R prompts after the last turn of truncated rows, or None where over.
        contexts: R tasks.

    Raises:
        ValueError: lengths that differ, or a turn after a no-op.
    """

    row_ids: tuple[Hashable, ...]
    groups: tuple[Hashable, ...]
    turns: tuple[tuple[Turn | None, ...], ...]
    rewards: Tensor
    returns: Tensor
    truncated: Tensor
    weights: Tensor | None = None
    nodes: tuple[Tensor, ...] | None = None
    success: Tensor | None = None
    bootstrap: tuple[tuple[int, ...] | None, ...] | None = None
    contexts: tuple[Hashable, ...] | None = None

    def __post_init__(self) -> None:
        """Check lengths and that episodes do not resume."""
        rows = len(self.row_ids)
        for name in ("row_ids", "groups"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "turns", tuple(tuple(t) for t in self.turns))
        if not self.turns:
            raise ValueError("turns is empty; a batch should have at least one turn")
        for t, pool in enumerate(self.turns):
            if len(pool) != rows:
                raise ValueError(f"turns[{t}] has {len(pool)} entries; it should have {rows}")
        for name, shape in (
            ("rewards", (rows, len(self.turns))),
            ("returns", (rows,)),
            ("truncated", (rows,)),
            ("weights", (rows,)),
            ("success", (rows,)),
        ):
            value = getattr(self, name)
            if value is not None and tuple(value.shape) != shape:
                raise ValueError(
                    f"{name} has shape {tuple(value.shape)}; it should have shape {shape}"
                )
        _ = self.rows  # distinct ids, finite returns
        active = self.active
        again = active[:, 1:] & ~active[:, :-1]
        if bool(again.any()):
            i, t = map(int, torch.nonzero(again)[0])
            raise ValueError(
                f"row {self.row_ids[i]!r} acts at turn {t + 1} after a no-op; turns of an episode "
                "should come first, no-ops after them"
            )

    def __len__(self) -> int:
        """R."""
        return len(self.row_ids)

    @property
    def horizon(self) -> int:
        """T."""
        return len(self.turns)

    @property
    def active(self) -> Tensor:
        """[R, T] where a row acts."""
        flags = [[turn is not None for turn in pool] for pool in self.turns]
        return torch.tensor(flags, dtype=torch.bool).T

    @property
    def rows(self) -> Batch:
        """The trajectories as the rules see them: ids, returns, groups."""
        return Batch(self.row_ids, self.returns, self.groups)

    @property
    def tokens(self) -> int:
        """Number of the policy's own tokens."""
        return sum(sum(t.own) for pool in self.turns for t in pool if t is not None)

    def take(self, order: Sequence[int]) -> TurnBatch:
        """The rows at these positions, with everything that belongs to them."""
        picked = [int(i) for i in order]
        at = torch.tensor(picked)

        def columns(values: Sequence[Any] | None) -> Any:
            return None if values is None else tuple(values[i] for i in picked)

        return replace(
            self,
            row_ids=columns(self.row_ids),
            groups=columns(self.groups),
            turns=tuple(columns(pool) for pool in self.turns),
            rewards=self.rewards[at],
            returns=self.returns[at],
            truncated=self.truncated[at],
            weights=None if self.weights is None else self.weights[at],
            nodes=None if self.nodes is None else tuple(n[at] for n in self.nodes),
            success=None if self.success is None else self.success[at],
            bootstrap=columns(self.bootstrap),
            contexts=columns(self.contexts),
        )

    def grouped(self) -> list[list[int]]:
        """Positions of the rows of each task."""
        return list(self.rows.members().values())
