"""What a zoo entry is, and how one is made: the registry behind `zoo`.

A builder returns a `ZooEntry` and is registered under its name::

    @entry("my-game")
    def _my_game(turns: int = 3) -> ZooEntry:
        return make(SequentialBandit(..., name="my-game"), "3/4", "the reason why it is here")

Its parameters become those of zoo:my-game?turns=3. The tests find the optimum of every entry again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from .aliasing import AliasedModel
from .errors import fail
from .exact import ExactArray, FloatArray, ObjectArray, parse_probabilities
from .graph import DecisionGraph
from .limits import MAX_NODES, require_array_fits
from .mdp import TabularMDP
from .sequential import SequentialBandit

Model = SequentialBandit | TabularMDP | AliasedModel


@dataclass(frozen=True)
class ZooEntry:
    """A named instance. Fields: name, model; optimum: value of the best policy that the model's observation map allows;
    full_optimum: that of the best policy with the full history; reason; tables: those of the policy
    that the entry is about, if it is about one.
    """

    name: str
    model: Model
    optimum: Fraction
    reason: str
    full_optimum: Fraction
    tables: tuple[ExactArray, ...] | None = field(default=None, repr=False)

    @property
    def policy(self) -> list[FloatArray] | None:
        """The policy that the entry is about, tables [O_t, A_t], or None."""
        return None if self.tables is None else [table.values for table in self.tables]

    def exact_policy(self) -> list[ObjectArray] | None:
        """Return the policy as fractions."""
        return None if self.tables is None else [table.exact() for table in self.tables]

    def graph(self, merge: str = "return", max_nodes: float = MAX_NODES) -> DecisionGraph:
        """Return the model's decision graph."""
        return self.model.graph(merge, max_nodes)


BUILDERS: dict[str, Callable[..., ZooEntry]] = {}


def entry(name: str) -> Callable[[Callable[..., ZooEntry]], Callable[..., ZooEntry]]:
    """Register a builder under a name."""

    def register(build: Callable[..., ZooEntry]) -> Callable[..., ZooEntry]:
        BUILDERS[name] = build
        return build

    return register


def make(
    model: Model,
    optimum: int | str,
    reason: str,
    *,
    full: int | str | None = None,
    policy: list[Any] | None = None,
) -> ZooEntry:
    """Make an entry; `full` is the full_optimum where it differs, policy its tables [O_t][A_t]."""
    tables = None
    if policy is not None:
        tables = tuple(parse_probabilities(f"policy[{t}]", p) for t, p in enumerate(policy))
    best = Fraction(optimum)
    whole = best if full is None else Fraction(full)
    return ZooEntry(model.name, model, best, reason, whole, tables)


def require_tree(what: str, depth: int, actions: int) -> None:
    """Check the size of a tree with one leaf a sequence of actions before it is built."""
    leaves = actions ** min(depth, 64)
    require_array_fits((leaves,), f"{what} = {depth} with {actions} actions")
    if depth > 60:
        fail(f"{what} = {depth}", "should be at most 60")
