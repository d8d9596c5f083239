"""An instance in rational numbers: a bandit, a policy and a step size that can be written down.

The search works on arrays of floats; what it finds is turned into an `Instance` before anything is
simplified, so that every number shown to a reader is the number that was tested.

Shapes: C contexts, T turns, A_t actions and H_t = C·A_1⋯A_{t−1} histories of turn t, N leaves,
R rows of a shared table, d features.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from bandits.aliasing import AliasedModel, alias
from bandits.files import POLICY_FORMAT, model_to_dict
from bandits.sequential import SequentialBandit

__all__ = ["PARAMS", "Instance", "text"]

PARAMS = ("tabular", "shared", "log-linear")

Row = tuple[Fraction, ...]
Atom = tuple[Fraction, Fraction]


def text(number: Fraction) -> str | int:
    """A fraction as JSON writes it: an integer, or "3/10"."""
    return number.numerator if number.denominator == 1 else str(number)


@dataclass(frozen=True)
class Instance:
    """A bandit with a policy of one family, all in fractions.

    Attributes:
        context_probs: [C].
        actions: A_1, …, A_T.
        leaves: [N] row-major, each a tuple of (value, probability) atoms.
        param: "tabular", "shared" or "log-linear".
        lr: step size.
        probs: tabular: [T][H_t][A_t]; shared: one table, [1][R][A]; log-linear: ().
        observation: shared: [T][H_t], the row that each history reads.
        features: log-linear: [T][H_t][A_t][d].
        theta: log-linear: [d].
    """

    context_probs: Row
    actions: tuple[int, ...]
    leaves: tuple[tuple[Atom, ...], ...]
    param: str
    lr: Fraction
    probs: tuple[tuple[Row, ...], ...] = ()
    observation: tuple[tuple[int, ...], ...] = ()
    features: tuple[tuple[tuple[Row, ...], ...], ...] = ()
    theta: Row = ()

    @property
    def turns(self) -> int:
        """T."""
        return len(self.actions)

    @property
    def contexts(self) -> int:
        """C."""
        return len(self.context_probs)

    @property
    def histories(self) -> tuple[int, ...]:
        """(H_1, …, H_T)."""
        return tuple(self.contexts * math.prod(self.actions[:t]) for t in range(self.turns))

    @property
    def atoms(self) -> int:
        """Largest number of reward atoms of a leaf."""
        return max(map(len, self.leaves))

    def values(self, context: int | None = None) -> list[Fraction]:
        """Distinct rewards, ascending; of one context or of all."""
        each = len(self.leaves) // self.contexts
        leaves = self.leaves if context is None else self.leaves[context * each :][:each]
        return sorted({value for leaf in leaves for value, _ in leaf})

    def paths(self) -> Iterator[list[tuple[int, int]]]:
        """(history, action) of every turn, leaf by leaf."""
        for leaf in range(len(self.leaves)):
            steps, node = [], leaf
            for count in reversed(self.actions):
                node, action = divmod(node, count)
                steps.append((node, action))
            yield steps[::-1]

    def tables(self) -> list[list[Sequence[Any]]]:
        """Policy at the histories, [T][H_t][A_t]: fractions, or floats where log-linear."""
        if self.param == "tabular":
            return [list(table) for table in self.probs]
        if self.param == "shared":
            return [[self.probs[0][row] for row in rows] for rows in self.observation]
        out: list[list[Sequence[Any]]] = []
        theta = np.array(self.theta, float)
        for turn in self.features:
            logits = np.array(turn, float) @ theta
            weight = np.exp(logits - logits.max(axis=1, keepdims=True))
            out.append((weight / weight.sum(axis=1, keepdims=True)).tolist())
        return out

    def value(self, tables: Sequence[Sequence[Sequence[Any]]]) -> Any:
        """J of a policy given at the histories; exact if the tables are."""
        each = len(self.leaves) // self.contexts
        total: Any = Fraction(0)
        for leaf, (atoms, path) in enumerate(zip(self.leaves, self.paths(), strict=True)):
            weight: Any = self.context_probs[leaf // each]
            for t, (node, action) in enumerate(path):
                weight = weight * tables[t][node][action]
            total += weight * sum(value * prob for value, prob in atoms)
        return total

    def bandit(self) -> SequentialBandit:
        """The model, without the observation map."""
        return SequentialBandit(
            self.nested(lambda leaf: _leaf(leaf, str)),
            [str(p) for p in self.context_probs],
        )

    def model(self) -> SequentialBandit | AliasedModel:
        """The model as the policy sees it."""
        if self.param != "shared":
            return self.bandit()
        return alias(self.bandit(), [np.array(rows) for rows in self.observation], shared=True)

    def nested(self, write: Any) -> Any:
        """Leaves written as nested lists [context][a_1]…[a_T]."""
        level: list[Any] = [write(leaf) for leaf in self.leaves]
        for count in reversed(self.actions):
            level = [level[i : i + count] for i in range(0, len(level), count)]
        return level

    def _seen(self) -> tuple[Row, ...]:
        """The shared table up to the last row that a history reads, as the aliased model counts."""
        return self.probs[0][: 1 + max(row for rows in self.observation for row in rows)]

    def policy_tables(self) -> list[list[list[float]]]:
        """Tables [O_t][A_t] as the simulator takes them (one row an observation)."""
        if self.param == "shared":
            rows = [[float(p) for p in row] for row in self._seen()]
            return [rows] * self.turns
        return [[[float(p) for p in row] for row in table] for table in self.tables()]

    def model_json(self) -> dict[str, Any]:
        """Content of a model file."""
        return model_to_dict(self.model())

    def policy_json(self) -> dict[str, Any]:
        """Content of a policy file; for a log-linear policy the probabilities it induces."""
        if self.param == "log-linear":
            return {"format": POLICY_FORMAT, "probs": self.policy_tables()}
        tables = [self._seen()] * self.turns if self.param == "shared" else self.probs
        probs = [[[text(p) for p in row] for row in table] for table in tables]
        return {"format": POLICY_FORMAT, "probs": probs}

    def certificate_model(self) -> dict[str, Any]:
        """The model as a certificate states it."""
        return {
            "kind": "bandit",
            "context_probs": [str(p) for p in self.context_probs],
            "rewards": self.nested(lambda leaf: _leaf(leaf, str)),
        }

    def certificate_policy(self) -> dict[str, Any]:
        """The policy as a certificate states it; rows that no history reads are left out."""
        if self.param == "log-linear":
            features = _strings(self.features)
            return {
                "parametrisation": self.param,
                "features": features,
                "theta": _strings(self.theta),
            }
        if self.param == "tabular":
            return {"parametrisation": self.param, "probs": _strings(self.probs)}
        used = sorted({row for rows in self.observation for row in rows})
        return {
            "parametrisation": "shared",
            "probs": _strings([self.probs[0][row] for row in used]),
            "observation": [[used.index(row) for row in rows] for rows in self.observation],
        }


def _leaf(atoms: Sequence[Atom], write: Any) -> Any:
    if len(atoms) == 1:
        return write(atoms[0][0])
    return {"values": [write(v) for v, _ in atoms], "probs": [write(p) for _, p in atoms]}


def _strings(nested: Any) -> Any:
    if isinstance(nested, Fraction):
        return str(nested)
    return [_strings(item) for item in nested]
