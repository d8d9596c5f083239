"""Timing two things against each other.

The two run in turn, A B A B …, so that a change of the machine's speed meets both; the quoted ratio
is the median of the ratios of neighbouring runs, beside the smallest and the largest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

__all__ = ["MINIMUM_REPEATS", "Benchmark", "Row", "compare", "require_equal"]

MINIMUM_REPEATS = 7
"""Fewer runs than this do not make a median."""

EQUAL_ATOL = 1e-12
"""Results of order 1 computed in double precision by two routes."""


@dataclass(frozen=True)
class Row:
    """One line of the report.

    Attributes:
        what: the question answered.
        ours, other: names of the two things.
        ours_figure, other_figure: medians, in `unit`.
        ratio: other / ours, median over neighbouring runs: above 1 where ours is faster (smaller).
        low, high: smallest and largest of these ratios.
        goal: smallest ratio aimed at; None where there is none.
        note: what a reader must know to read the figures rightly.
        unit: "s" or "bytes".
    """

    what: str
    ours: str
    other: str
    ours_figure: float
    other_figure: float
    ratio: float
    low: float
    high: float
    goal: float | None = None
    note: str = ""
    unit: str = "s"

    @property
    def met(self) -> bool | None:
        """Whether the goal was reached; None where there is none."""
        return None if self.goal is None else self.ratio >= self.goal

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "met": self.met}


Benchmark = Callable[[int], Iterable[Row]]
"""A benchmark takes the number of repeats and yields its rows as they are measured."""


def _seconds(function: Callable[[], object]) -> float:
    start = perf_counter()
    function()
    return perf_counter() - start


def compare(
    what: str,
    ours: tuple[str, Callable[[], object]],
    other: tuple[str, Callable[[], object]],
    repeats: int,
    *,
    goal: float | None = None,
    note: str = "",
    scale: float = 1.0,
    warm_up: int = 2,
) -> Row:
    """Time the two alternately; `scale` multiplies the other's times where it did a part of the work.

    Raises:
        ValueError: fewer than `MINIMUM_REPEATS` repeats.
    """
    if repeats < MINIMUM_REPEATS:
        raise ValueError(f"repeats = {repeats}: should be at least {MINIMUM_REPEATS}")
    for _ in range(warm_up):
        ours[1]()
        other[1]()
    pairs = [(_seconds(ours[1]), scale * _seconds(other[1])) for _ in range(repeats)]
    ratios = [b / a for a, b in pairs]
    return Row(
        what,
        ours[0],
        other[0],
        median(a for a, _ in pairs),
        median(b for _, b in pairs),
        median(ratios),
        min(ratios),
        max(ratios),
        goal,
        note,
    )


def require_equal(
    what: str, ours: Iterable[Any], other: Iterable[Any], atol: float = EQUAL_ATOL
) -> None:
    """Refuse to time two things that do not compute the same.

    Raises:
        AssertionError: names the pair of arrays and the largest difference.
    """
    for k, (a, b) in enumerate(zip(ours, other, strict=True)):
        difference = float(np.max(np.abs(np.asarray(a) - np.asarray(b)), initial=0.0))
        if not difference <= atol:
            raise AssertionError(
                f"{what}: result {k} differs by {difference:g}, more than {atol:g}"
            )
