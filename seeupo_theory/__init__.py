"""seeupo: exact answers about policy-optimisation algorithms.

Does this update improve the policy, and where does it converge?  On problems small enough to
enumerate the answer is computed, not estimated:

>>> import seeupo_theory as st
>>> from bandits import SequentialBandit
>>> model = SequentialBandit([[[0.5, 0.5], [0, 1]]])
>>> st.inspect(model).optimal_value
1.0
>>> st.step(model, algorithm="seeupo", lr=0.5).monotone
True

The names below are loaded on first use, so that importing the package stays light.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "inspect": "api",
    "advantage": "api",
    "step": "api",
    "run": "api",
    "load": "api",
    "audit": "claims.audit",
    "falsify": "claims.falsify",
    "Algorithm": "rules.presets",
    "PRESETS": "rules.presets",
    "rules": "rules",
    "tabular": "tabular",
    "testing": "testing",
}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}; it has {sorted(_HOME)}"
        )
    module = import_module(f"{__name__}.{_HOME[name]}")
    value = module if _HOME[name] == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
