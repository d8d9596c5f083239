"""The continuous numbers of a point as a vector: what the optimiser moves.

Rewards, probabilities (as logits), parameters, features and the step size (as a logarithm) vary;
which atom pays which reward and which row a history reads stay those of the starting point.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from seeupo_theory.claims.falsify._draw import STEP_SIZES
from seeupo_theory.claims.falsify._space import Points, Space, stack

__all__ = ["Coding"]

LEAST_PROBABILITY = 1e-3
"""Smaller probabilities are encoded as this one; the optimiser works within bounds."""


class Coding:
    """The continuous numbers of a point as one vector; what is discrete stays as it is."""

    def __init__(self, space: Space, start: Points, lr: float | None):
        self.space, self.start, self.lr = space, start, lr
        self.bounds: list[tuple[float, float]] = []
        self.parts: list[tuple[str, int | None, tuple[int, ...]]] = []
        self._part("values", None, start.values.shape, (-2.0, 2.0))
        if space.atoms > 1:
            self._part("atom_probs", None, start.atom_probs.shape, (-4.0, 4.0))
        if space.contexts > 1:
            self._part("context_probs", None, start.context_probs.shape, (-3.0, 3.0))
        linear = (-3.0, 3.0)
        if space.param == "tabular":
            for t, table in enumerate(start.theta):
                self._part("theta", t, table.shape, (-6.0, 0.0))
        else:
            bound = linear if space.param == "log-linear" else (-6.0, 0.0)
            self._part("theta", None, start.theta.shape, bound)
        for t, phi in enumerate(start.features):
            self._part("features", t, phi.shape, linear)
        if lr is None:
            self._part("lr", None, (), (math.log(STEP_SIZES[0]), math.log(STEP_SIZES[-1])))
        self.vector = self.encode(stack([start]))[0]

    def _part(
        self, name: str, turn: int | None, shape: tuple[int, ...], bound: tuple[float, float]
    ) -> None:
        self.parts.append((name, turn, shape))
        self.bounds += [bound] * math.prod(shape)

    def encode(self, points: Points) -> np.ndarray:
        """Vectors [n, D] of a batch."""
        columns = []
        for name, turn, _ in self.parts:
            array = getattr(points, name)
            array = array if turn is None else array[turn]
            if name in ("atom_probs", "context_probs", "lr"):
                array = np.log(np.maximum(array, LEAST_PROBABILITY))
            columns.append(np.reshape(array, (len(points.lr), -1)))
        return np.concatenate(columns, axis=1)

    def decode(self, vectors: np.ndarray) -> Points:
        """The batch of points [n] that vectors [n, D] stand for."""
        n, at = len(vectors), 0
        changed: dict[str, Any] = {}
        for name, turn, shape in self.parts:
            size = math.prod(shape)
            array = vectors[:, at : at + size].reshape(n, *shape)
            at += size
            if name in ("atom_probs", "context_probs"):
                array = np.exp(array)
                array = array / array.sum(axis=-1, keepdims=True)
            elif name == "lr":
                array = np.exp(array)
            if turn is None:
                changed[name] = array
            else:
                changed.setdefault(name, []).append(array)
        entries = {}
        for name, value in self.start._asdict().items():
            if name in changed:
                new = changed[name]
                entries[name] = tuple(new) if isinstance(new, list) else new
            elif isinstance(value, tuple):
                entries[name] = tuple(np.broadcast_to(x, (n, *np.shape(x))) for x in value)
            else:
                entries[name] = np.broadcast_to(value, (n, *np.shape(value)))
        return Points(**entries)
