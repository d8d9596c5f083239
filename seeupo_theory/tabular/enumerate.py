"""The same quantities by walking every trajectory: slow, obvious, independent.

No arrays, no recursion over layers: each trajectory (context, actions, environment replies, reward
atom) is listed with its probability and return, and everything is a weighted sum over the list.

A decision graph holds doubles.  `number` says what is made of them: ``float`` (the default),
`fractions.Fraction` (the rational that a double is), or `decimals` (the decimal number that it is
printed as, "0.1" → 1/10).  With tables of fractions every result is then an exact rational.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from bandits.graph import DecisionGraph

__all__ = ["Trajectory", "decimals", "expected_return", "trajectories", "values_by_node"]

Number = Callable[[float], Any]


def decimals(value: float) -> Fraction:
    """The decimal number that a double is printed as.

    >>> decimals(0.1)
    Fraction(1, 10)
    """
    return Fraction(repr(value))


class Trajectory(NamedTuple):
    """One trajectory: the nodes and actions it visits, its probability and its return."""

    context: int
    steps: tuple[tuple[int, int], ...]
    prob: Any
    value: Any


def trajectories(
    graph: DecisionGraph, policy: Sequence[Any], number: Number = float
) -> Iterator[Trajectory]:
    """All trajectories of positive probability under T tables [O_t][A_t]."""
    children: list[dict[tuple[int, int], list[tuple[int, Any]]]] = []
    for layer in graph.layers:
        out: dict[tuple[int, int], list[tuple[int, Any]]] = {}
        for source, action, target, prob in zip(*layer.edges(), strict=True):
            edge = (int(target), number(prob.item()))
            out.setdefault((int(source), int(action)), []).append(edge)
        children.append(out)
    rows = [layer.rows() for layer in graph.layers]

    def walk(turn: int, node: int, prob: Any, steps: tuple[tuple[int, int], ...]) -> Iterator[Any]:
        if turn == graph.turns:
            for value, p in zip(graph.leaf_values[node], graph.leaf_probs[node], strict=True):
                if p > 0:
                    yield steps, prob * number(p.item()), number(value.item())
            return
        row = policy[turn][rows[turn][node]]
        for action in range(graph.layers[turn].actions):
            if row[action] == 0:
                continue
            for target, p in children[turn].get((node, action), ()):
                if p > 0:
                    step = (*steps, (node, action))
                    yield from walk(turn + 1, target, prob * row[action] * p, step)

    for context, p in enumerate(graph.context_probs):
        if p > 0:
            for steps, prob, value in walk(0, context, number(p.item()), ()):
                yield Trajectory(context, steps, prob, value)


def expected_return(graph: DecisionGraph, policy: Sequence[Any], number: Number = float) -> Any:
    """J as the sum of probability times return.

    >>> from bandits import SequentialBandit
    >>> half = [[Fraction(1, 2)] * 2]
    >>> expected_return(SequentialBandit([["1/10", "1/5"]]).graph(), [half], decimals)
    Fraction(3, 20)
    """
    return sum(t.prob * t.value for t in trajectories(graph, policy, number))


def values_by_node(
    graph: DecisionGraph, policy: Sequence[Any], turn: int, number: Number = float
) -> dict[tuple[int, int], tuple[Any, Any]]:
    """(node, action) of a turn → (probability, E[return | node, action]), where reached."""
    mass: dict[tuple[int, int], list[Any]] = {}
    for t in trajectories(graph, policy, number):
        entry = mass.setdefault(t.steps[turn], [0, 0])
        entry[0] += t.prob
        entry[1] += t.prob * t.value
    return {step: (prob, total / prob) for step, (prob, total) in mass.items()}
