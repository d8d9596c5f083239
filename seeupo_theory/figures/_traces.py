"""Arguments that are one trace or several, made into one mapping."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from seeupo_theory.figures import style

__all__ = ["algorithm_of", "labelled", "look_of"]


def labelled(items: Any, kind: str = "trace") -> dict[str, Any]:
    """{label: item} of a mapping, of several items or of one; labels default to the algorithm.

    Raises:
        ValueError: no item, or two of the same label.
    """
    if isinstance(items, Mapping):
        named = [(str(k), v) for k, v in items.items()]
    else:
        several = items if isinstance(items, Iterable) else [items]
        named = [(algorithm_of(item), item) for item in several]
    if not named:
        raise ValueError(f"there is no {kind} to draw; expected one at least")
    out: dict[str, Any] = {}
    for label, item in named:
        if label in out:
            raise ValueError(
                f"two {kind}s are called {label!r}; give a mapping from label to {kind}"
            )
        out[label] = item
    return out


def algorithm_of(item: Any) -> str:
    """Name of the algorithm behind a trace or a step."""
    data = getattr(item, "data", None)
    return str(item.algorithm if data is None else data.attrs["algorithm"])


def look_of(label: str, item: Any, index: int, names: list[str]) -> style.Look:
    """By label; else by algorithm, where no two of the curves' algorithms `names` share it."""
    name = algorithm_of(item)
    if label in style.LOOKS or names.count(name) > 1:
        return style.look(label, index)
    return style.look(name, index)
