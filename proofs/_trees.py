r"""Exact sequential bandits for the proofs: symbols or fractions in, symbols or fractions out.

A tree has ``actions = (A_1, ..., A_T)``; a history is a tuple of the actions so far, a path is a
complete one. Rewards map paths to numbers, policies map histories to probabilities. Nothing here
knows the simulator, so that the tests can compare the two.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

History = tuple[int, ...]
Policy = Mapping[History, Sequence[Any]]


def paths(actions: Sequence[int]) -> Iterator[History]:
    """All complete action sequences, the last action running fastest.

    >>> list(paths((2, 2)))
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    return itertools.product(*(range(n) for n in actions))


def histories(actions: Sequence[int]) -> Iterator[History]:
    """All histories at which an action is due, turn by turn.

    >>> list(histories((2, 2)))
    [(), (0,), (1,)]
    """
    for turn in range(len(actions)):
        yield from paths(actions[:turn])


def product(factors: Any) -> Any:
    """The product of exact numbers or symbols, 1 for none."""
    total: Any = 1
    for factor in factors:
        total = total * factor
    return total


@dataclass(frozen=True)
class Tree:
    """A sequential bandit with one context: ``rewards`` gives each path its mean reward."""

    actions: tuple[int, ...]
    rewards: Mapping[History, Any]

    @property
    def turns(self) -> int:
        """T."""
        return len(self.actions)

    def value(self, policy: Policy, history: History = ()) -> Any:
        r"""$V^\pi(h) = \sum_a \pi(a \mid h) Q^\pi(h, a)$, and the reward on a path."""
        if len(history) == self.turns:
            return self.rewards[history]
        return sum(
            policy[history][a] * self.value(policy, (*history, a))
            for a in range(self.actions[len(history)])
        )

    def reach(self, policy: Policy, history: History) -> Any:
        r"""$d^\pi(h) = \prod_{s<t} \pi(a_s \mid h_s)$."""
        return product(policy[history[:t]][history[t]] for t in range(len(history)))

    def advantage(self, policy: Policy, history: History, action: int) -> Any:
        r"""$A^\pi(h, a) = Q^\pi(h, a) - V^\pi(h)$."""
        return self.value(policy, (*history, action)) - self.value(policy, history)


def symbolic_rewards(actions: Sequence[int], letter: str = "r") -> dict[History, Any]:
    """One real symbol a path: ``r_01`` for the path (0, 1)."""
    import sympy as sp

    return {p: sp.Symbol(f"{letter}_{''.join(map(str, p))}", real=True) for p in paths(actions)}


def symbolic_policy(actions: Sequence[int], letter: str = "p") -> dict[History, tuple[Any, ...]]:
    """Free symbols for every probability but the last of each history, which is 1 - the others."""
    return {h: _row(h, actions[len(h)], letter, 1) for h in histories(actions)}


def symbolic_direction(actions: Sequence[int], letter: str = "d") -> dict[History, tuple[Any, ...]]:
    r"""A directional derivative $\partial \pi(a \mid h)$: free symbols that sum to 0 in each row.

    Any differentiable parametrisation, shared between histories or not, gives such numbers.
    """
    return {h: _row(h, actions[len(h)], letter, 0) for h in histories(actions)}


def _row(history: History, size: int, letter: str, total: int) -> tuple[Any, ...]:
    import sympy as sp

    tag = "".join(map(str, history))
    free = [sp.Symbol(f"{letter}_{tag}|{a}", positive=total == 1, real=True) for a in range(size)]
    return (*free[:-1], total - sum(free[:-1]))
