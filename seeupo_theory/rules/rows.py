"""Rows with names: an advantage belongs to a trajectory, not to a position.

Batches are reordered, resampled and split between sampling and the update (balancing lengths,
dropping rows, micro-batches).  A vector carried along by position then reaches the wrong
trajectory.  Here each row has an id, its group is the *task* that it attempts (neither its prompt
text nor its trajectory), and what is computed is keyed by row id: `Keyed.align` is the only way
back to an array.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from seeupo_theory.rules._arrays import Array, floating, namespace
from seeupo_theory.rules.advantages import Estimator, couples, estimator, require_finite

__all__ = ["Batch", "Keyed"]


@dataclass(frozen=True, eq=False)
class Keyed:
    """Values by row id; `align` puts them into the order of a batch."""

    ids: tuple[Hashable, ...]
    values: Array

    def __post_init__(self) -> None:
        """Check that ids are distinct and as many as values."""
        _distinct(self.ids)
        if self.values.ndim == 0 or self.values.shape[0] != len(self.ids):
            raise ValueError(
                f"values has shape {tuple(self.values.shape)}; it should have {len(self.ids)} rows"
            )

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.ids)

    def __getitem__(self, row: Hashable) -> Array:
        """Value of one row."""
        return self.values[self._position(row), ...]

    def _position(self, row: Hashable) -> int:
        try:
            return self.ids.index(row)
        except ValueError:
            raise KeyError(f"row id {row!r} has no value here") from None

    def align(self, batch: Batch) -> Array:
        """Values in the order of the batch's rows; KeyError where a row has none."""
        place = {row: i for i, row in enumerate(self.ids)}
        for row in batch.ids:
            if row not in place:
                raise KeyError(f"row id {row!r} has no value here")
        return _take(self.values, [place[row] for row in batch.ids])


@dataclass(frozen=True, eq=False)
class Batch:
    """Trajectories with their returns.

    Attributes:
        ids: one distinct id a row.
        returns: [N] finite returns.
        groups: task id of each row; rows of one task are compared with each other.
        contexts: initial context of each row, or None.
        columns: further arrays, each [N, ...].

    >>> import numpy as np
    >>> batch = Batch("abcd", np.array([1.0, 0.0, 0.0, 1.0]), ["task"] * 4)
    >>> batch.take([3, 0, 1, 2]).advantages("grae")["d"].item()
    0.5
    """

    ids: tuple[Hashable, ...]
    returns: Array
    groups: tuple[Hashable, ...]
    contexts: tuple[Hashable, ...] | None = None
    columns: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check lengths, ids and returns."""
        object.__setattr__(self, "ids", tuple(self.ids))
        object.__setattr__(self, "groups", tuple(self.groups))
        if self.contexts is not None:
            object.__setattr__(self, "contexts", tuple(self.contexts))
        object.__setattr__(self, "columns", MappingProxyType(dict(self.columns)))
        rows = len(self.ids)
        if not rows:
            raise ValueError("ids is empty; a batch should have at least one row")
        _distinct(self.ids)
        if tuple(self.returns.shape) != (rows,):
            raise ValueError(
                f"returns has shape {tuple(self.returns.shape)}; it should be ({rows},), one a row"
            )
        for name, column in (("groups", self.groups), ("contexts", self.contexts)):
            if column is not None and len(column) != rows:
                raise ValueError(f"{name} has {len(column)} entries; it should have {rows}")
        for name, array in self.columns.items():
            if array.ndim == 0 or array.shape[0] != rows:
                raise ValueError(
                    f"columns[{name!r}] has shape {tuple(array.shape)}; it should have {rows} rows"
                )
        require_finite(self.returns, "returns")

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.ids)

    def take(self, order: Sequence[int]) -> Batch:
        """The rows at these positions, with everything that belongs to them.

        Raises:
            ValueError: a position that does not exist or occurs twice.
        """
        picked = [int(i) for i in order]
        for i in picked:
            if not 0 <= i < len(self):
                raise ValueError(f"position {i} does not exist; it should be 0 to {len(self) - 1}")
        if len(set(picked)) < len(picked):
            raise ValueError("a position occurs twice; a row should occur once")
        return Batch(
            tuple(self.ids[i] for i in picked),
            _take(self.returns, picked),
            tuple(self.groups[i] for i in picked),
            None if self.contexts is None else tuple(self.contexts[i] for i in picked),
            {name: _take(array, picked) for name, array in self.columns.items()},
        )

    def members(self) -> dict[Hashable, list[int]]:
        """Positions of the rows of each task, in order of first appearance."""
        out: dict[Hashable, list[int]] = {}
        for i, group in enumerate(self.groups):
            out.setdefault(group, []).append(i)
        return out

    def advantages(self, rule: str | Estimator) -> Keyed:
        """Advantages by row id.

        Groups may differ in size if the estimator looks at one group at a time; one that couples
        the batch needs equal sizes, and refuses others by naming them.
        """
        rule = estimator(rule)
        by_size: dict[int, list[list[int]]] = {}
        for positions in self.members().values():
            by_size.setdefault(len(positions), []).append(positions)
        if len(by_size) > 1 and couples(rule) == "batch":
            sizes = {str(g): len(p) for g, p in self.members().items()}
            raise ValueError(
                f"groups have different sizes {sizes}; an estimator that uses batch statistics "
                "needs equal ones"
            )
        xp = namespace(returns=self.returns)
        returns = floating(xp, self.returns, "returns")
        parts, ids = [], []
        for size, groups in by_size.items():
            flat = [i for positions in groups for i in positions]
            block = xp.reshape(_take(returns, flat), (len(groups), size))
            parts.append(xp.reshape(rule(block), (-1,)))
            ids += [self.ids[i] for i in flat]
        return Keyed(tuple(ids), xp.concat(parts))


def _distinct(ids: tuple[Hashable, ...]) -> None:
    seen: set[Hashable] = set()
    for i, row in enumerate(ids):
        if row in seen:
            raise ValueError(f"ids[{i}] is {row!r} again; row ids should be distinct")
        seen.add(row)


def _take(values: Array, positions: list[int]) -> Array:
    """Rows of an array at these positions (a copy)."""
    xp: Any = namespace(values=values)
    return xp.stack([values[i, ...] for i in positions])
