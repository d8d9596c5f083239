r"""Orders: in which sequence are the turns updated?

SeeUPO updates the last turn first (Alg. 1, "reverse"), so that each turn is trained against a
suffix that has already been improved.  An order here is a tuple of 0-based turns, first updated
first.  "simultaneous" is not a sequence: it is a switch of `presets.Algorithm` that the simulator
handles by itself.

An unknown name, or a custom order that is not a permutation, is an error; nothing falls back to
another order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from seeupo_theory.rules._arrays import unknown

__all__ = ["ORDERS", "turn_order"]


def _reverse(turns: int, rng: Any) -> Sequence[int]:
    return range(turns - 1, -1, -1)


def _forward(turns: int, rng: Any) -> Sequence[int]:
    return range(turns)


def _random(turns: int, rng: Any) -> Sequence[int]:
    if not hasattr(rng, "permutation"):
        raise TypeError(
            f"order 'random' needs rng, a numpy.random.Generator; it is {type(rng).__name__}"
        )
    return list(rng.permutation(turns))


ORDERS: Mapping[str, Callable[[int, Any], Sequence[int]]] = MappingProxyType(
    {"reverse": _reverse, "forward": _forward, "random": _random}
)
"""Named orders: functions (turns, rng) → turns in update order."""


def turn_order(order: str | Sequence[int], turns: int, rng: Any = None) -> tuple[int, ...]:
    """Turns in update order, 0-based.

    Args:
        order: "reverse", "forward", "random", or a permutation of 0 … turns − 1.
        turns: number of turns.
        rng: numpy.random.Generator, for "random" only.

    Raises:
        ValueError: an unknown name, a sequence that is not a permutation, or no turns.
        TypeError: "random" without a generator.

    Source: SeeUPO (arXiv:2602.06554) Alg. 1; HARL 2304.09870 for the random order.

    >>> turn_order("reverse", 3), turn_order((1, 0), 2)
    ((2, 1, 0), (1, 0))
    """
    if isinstance(turns, bool) or not isinstance(turns, int) or turns < 1:
        raise ValueError(f"turns is {turns!r}; it should be a whole number of at least 1")
    if isinstance(order, str):
        if order == "simultaneous":
            raise ValueError(
                "order 'simultaneous' is one joint update and has no sequence of turns"
            )
        if order not in ORDERS:
            raise ValueError(unknown(order, "order", ORDERS))
        order = ORDERS[order](turns, rng)
    return permutation(order, turns)


def permutation(order: Sequence[int], turns: int | None = None) -> tuple[int, ...]:
    """`order` as a tuple of ints; ValueError unless it is a permutation (of `turns` turns)."""
    try:
        out = tuple(operator.index(t) for t in order)
    except TypeError:
        raise ValueError(f"order is {order!r}; it should be a name or a tuple of turns") from None
    size = len(out) if turns is None else turns
    if not size or sorted(out) != list(range(size)):
        wanted = f"0 to {size - 1}" if size else "the turns from 0 on"
        raise ValueError(f"order is {out}; it should hold {wanted}, each exactly once")
    return out
