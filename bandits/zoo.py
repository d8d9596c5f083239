"""Named instances, each with its optimum and the reason why it is here.

`optimum` is the value of the best policy that the entry's observation map allows, stochastic ones
included; `full_optimum` that of the best policy with the full history. Where an entry is about a
particular policy, `policy` holds its tables [O_t][A_t]. Numbers are fractions; the tests find
every optimum again by enumeration.

>>> entry = get("lock", turns=3)
>>> entry.optimum, entry.model.actions
(Fraction(1, 1), (2, 2, 2))
"""

import inspect
from typing import Any

from . import zoo_bandits, zoo_mdps
from .errors import ModelError, fail
from .zoo_entry import BUILDERS, ZooEntry

__all__ = ["SOURCES", "ZooEntry", "entries", "get", "names", "parameters"]

# The modules whose builders make up the zoo.
SOURCES = (zoo_bandits, zoo_mdps)


def names() -> list[str]:
    """Return the names of all entries, sorted.

    >>> "wrong-sign" in names()
    True
    """
    return sorted(BUILDERS)


def get(name: str, **params: Any) -> ZooEntry:
    """Build the entry of that name; `params` are those of its builder (see `parameters`).

    Raises ModelError for an unknown name or parameter, or a model too large to fit.
    """
    if name not in BUILDERS:
        fail(f"zoo:{name}", f"is unknown, should be one of {', '.join(names())}")
    known = parameters(name)
    for key in params:
        if key not in known:
            has = f"has the parameters {', '.join(known)}" if known else "has no parameters"
            raise ModelError(f"zoo:{name} {has}: {key!r} should be left out")
    return BUILDERS[name](**params)


def parameters(name: str) -> dict[str, int]:
    """Return the parameters of an entry with their defaults.

    >>> parameters("needle")
    {'arms': 16}
    """
    return {k: p.default for k, p in inspect.signature(BUILDERS[name]).parameters.items()}


def entries() -> list[ZooEntry]:
    """Return all entries with their default parameters."""
    return [get(name) for name in names()]
