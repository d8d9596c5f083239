"""Environments for exact policy optimisation: finite models, known answers, no learning rule.

Every model is lowered to one form, the `DecisionGraph`: nodes per turn, actions, observations
(rows of the policy table), environment edges and leaves with a finite distribution of the return.
Exact algorithms need nothing else.

>>> import bandits
>>> model = bandits.SequentialBandit([[[0, 1], ["1/2", 0]]])
>>> model.graph().turns, model.graph().leaves
(2, 4)

The package needs NumPy only and loads its modules when they are first used.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "AliasedModel": "aliasing",
    "DecisionGraph": "graph",
    "Layer": "graph",
    "ModelError": "errors",
    "SequentialBandit": "sequential",
    "TabularMDP": "mdp",
    "TokenView": "tokens",
    "ZooEntry": "zoo_entry",
    "alias": "aliasing",
    "load_model": "files",
    "load_policy": "files",
    "random_bandit": "families",
    "random_mdp": "families",
    "random_policy": "families",
    "sample_trajectories": "sample",
    "save_model": "files",
    "save_policy": "files",
}
_MODULES = {
    *(
        "aliasing",
        "errors",
        "exact",
        "families",
        "files",
        "games",
        "graph",
        "imports",
        "limits",
        "load",
    ),
    *("mdp", "rewards", "sample", "sequential", "tokens", "unroll", "zoo"),
}

__all__ = [
    "AliasedModel",
    "DecisionGraph",
    "Layer",
    "ModelError",
    "SequentialBandit",
    "TabularMDP",
    "TokenView",
    "ZooEntry",
    "alias",
    "load_model",
    "load_policy",
    "random_bandit",
    "random_mdp",
    "random_policy",
    "sample_trajectories",
    "save_model",
    "save_policy",
]


def __getattr__(name: str) -> Any:
    """Load the module that owns `name` on first use."""
    if name in _HOME:
        return getattr(import_module(f"bandits.{_HOME[name]}"), name)
    if name in _MODULES:
        return import_module(f"bandits.{name}")
    raise AttributeError(f"module 'bandits' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES})
