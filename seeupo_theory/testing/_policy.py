"""A policy that prints as the code that rebuilds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from bandits.errors import fail
from bandits.exact import ExactArray, FloatArray, parse_probabilities

__all__ = ["Policy"]


class Policy(Sequence[FloatArray]):
    """T probability tables [O_t, A_t], kept as the fractions they were given as.

    A sequence of read-only float64 tables: it goes wherever a policy is taken
    (`seeupo_theory.step`, `bandits.save_policy`, …).  Rows with a fraction must sum to exactly 1.

    Raises:
        ValueError: an entry that is no probability, or a row that does not sum to 1; names the
            turn and the row.

    >>> policy = Policy([[["1/3", "2/3"]], [[0.5, 0.5], [0, 1]]])
    >>> policy
    Policy([[['1/3', '2/3']], [[0.5, 0.5], [0, 1]]])
    >>> policy[1].tolist(), len(policy)
    ([[0.5, 0.5], [0.0, 1.0]], 2)
    """

    __slots__ = ("exact",)
    exact: tuple[ExactArray, ...]

    def __init__(self, tables: Sequence[Any]) -> None:
        """Read the tables; entries are numbers, `Fraction`s or strings such as "1/3"."""
        if isinstance(tables, Policy):
            exact = tables.exact
        else:
            exact = tuple(parse_probabilities(f"policy[{t}]", x) for t, x in enumerate(tables))
        if not exact:
            fail("policy", "is empty, should have one table a turn")
        for t, table in enumerate(exact):
            if table.values.ndim != 2:
                fail(
                    f"policy[{t}]",
                    f"has shape {table.values.shape}, should be a table [row][action]",
                )
        object.__setattr__(self, "exact", exact)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse: a policy does not change."""
        raise AttributeError(
            f"a Policy cannot be changed; make a new one instead of setting {name}"
        )

    @overload
    def __getitem__(self, turn: int) -> FloatArray: ...
    @overload
    def __getitem__(self, turn: slice) -> tuple[FloatArray, ...]: ...
    def __getitem__(self, turn: int | slice) -> FloatArray | tuple[FloatArray, ...]:
        """Table of a turn [O_t, A_t], turns counted from 0."""
        if isinstance(turn, slice):
            return tuple(table.values for table in self.exact[turn])
        return self.exact[turn].values

    def __len__(self) -> int:
        """T."""
        return len(self.exact)

    def __iter__(self) -> Iterator[FloatArray]:
        return (table.values for table in self.exact)

    def __eq__(self, other: object) -> bool:
        """Whether both hold exactly the same numbers."""
        if not isinstance(other, Policy):
            return NotImplemented
        return len(self) == len(other) and all(
            mine.same(theirs) for mine, theirs in zip(self.exact, other.exact, strict=True)
        )

    def __hash__(self) -> int:
        return hash(tuple(table.values.shape for table in self.exact))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are built anew."""
        return (Policy, (list(self.exact),))

    def __repr__(self) -> str:
        return f"Policy({[table.code() for table in self.exact]!r})"
