r"""Hypothesis strategies for finite decision problems.

Every number is drawn from a short list of small fractions, the simplest first.  Hypothesis then
shrinks a failure towards few leaves, ones and zeros, and what it prints is a model that can be read
and typed: ``SequentialBandit([[0, {'values': [1, -3], 'probs': ['2/3', '1/3']}]])``.  Models and
policies print as code, and hold the exact fractions, so that a failure can be certified.

*Sizes* are a number (always this many) or a strategy of numbers (``st.integers(1, 3)``).  A law
that compiles a program a shape (`seeupo_theory.testing.assert_monotone`) is fast on few shapes:
give it numbers, or a narrow range.

Shapes: C contexts, T turns, A_t actions, K reward atoms, S states, B groups of G members.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, TypeAlias, cast

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from numpy.typing import NDArray

from bandits.graph import DecisionGraph, Layer
from bandits.mdp import TabularMDP
from bandits.sequential import SequentialBandit
from seeupo_theory.rules import presets
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.testing import _printing
from seeupo_theory.testing._policy import Policy

__all__ = [
    "algorithms",
    "bandits",
    "groups",
    "leaves",
    "mdps",
    "policies",
    "problems",
    "ratios",
    "returns",
    "simplices",
    "values",
]

_printing.register()

Size: TypeAlias = int | SearchStrategy[int]
Leaves: TypeAlias = SearchStrategy[Any]

ONE_OR_TWO, UP_TO_THREE = st.integers(1, 2), st.integers(1, 3)
UP_TO_FIVE, UP_TO_SIX = st.integers(2, 5), st.integers(2, 6)

WEIGHTS = (1, 2, 3, 4)
"""Relative weights of a probability row: halves, thirds, … up to sevenths for two entries."""

RARE = (100, 1000, 1_000_000)
"""A nearly deterministic row gives each other action one part in so many."""

RATIOS = tuple(
    map(Fraction, ("1", "2", "1/2", "6/5", "4/5", "5/4", "3/4", "11/10", "9/10", "100", "1/100"))
)
"""Probability ratios on, inside and far outside the usual clip interval [4/5, 6/5]."""


@lru_cache(maxsize=32)
def values(bound: int = 3, denominator: int = 2) -> SearchStrategy[Fraction]:
    """Fractions in [−bound, bound] with denominators up to `denominator`, simplest first.

    >>> from hypothesis import find
    >>> find(values(), lambda x: x < -1)
    Fraction(-2, 1)
    """
    _positive("bound", bound)
    _positive("denominator", denominator)
    found = {
        Fraction(n, d) for d in range(1, denominator + 1) for n in range(-bound * d, bound * d + 1)
    }
    return st.sampled_from(sorted(found, key=lambda x: (x.denominator, abs(x), x < 0)))


@lru_cache(maxsize=64)
def simplices(
    size: int, *, zeros: bool = False, rare: bool = False
) -> SearchStrategy[list[Fraction]]:
    """`size` fractions that sum to exactly 1; shrinks to equal ones.

    Args:
        size: entries.
        zeros: entries may be 0.
        rare: now and then one entry takes all but some parts in a hundred, thousand or million.

    >>> from hypothesis import find
    >>> [str(x) for x in find(simplices(2), lambda p: p[0] < p[1])]
    ['1/3', '2/3']
    """
    _positive("size", size)
    if size == 1:
        return st.builds(lambda: [Fraction(1)])
    weights = st.lists(st.sampled_from(WEIGHTS), min_size=size, max_size=size)
    kinds: list[SearchStrategy[list[int]]] = [weights]
    if rare:
        which = st.integers(0, size - 1)
        kinds.append(st.tuples(st.sampled_from(RARE), which).map(partial(_rare, size)))
    if zeros:
        never = st.sets(st.integers(0, size - 1), min_size=1, max_size=size - 1)
        kinds.append(st.tuples(weights, never).map(_without))
    return st.one_of(kinds).map(lambda row: [Fraction(w, sum(row)) for w in row])


def _rare(size: int, drawn: tuple[int, int]) -> list[int]:
    parts, best = drawn
    return [parts - size + 1 if i == best else 1 for i in range(size)]


def _without(drawn: tuple[list[int], set[int]]) -> list[int]:
    weights, never = drawn
    return [0 if i in never else w for i, w in enumerate(weights)]


@lru_cache(maxsize=32)
def leaves(rewards: SearchStrategy[Any] | None = None, atoms: int = 2) -> Leaves:
    """Reward of a leaf: a number, or a distribution over up to `atoms` different numbers.

    Shrinks to a number.

    Args:
        rewards: strategy of numbers, default `values()`.
        atoms: K at most; 1 for deterministic rewards.
    """
    _positive("atoms", atoms)
    pair = st.tuples(values() if rewards is None else rewards, st.sampled_from(WEIGHTS))
    # a list of pairs, so that Hypothesis can drop an atom without drawing the others anew
    drawn = st.lists(pair, min_size=1, max_size=atoms, unique_by=lambda atom: atom[0])
    return drawn.map(_leaf)


def _leaf(atoms: list[tuple[Any, int]]) -> Any:
    if len(atoms) == 1:
        return atoms[0][0]
    total = sum(weight for _, weight in atoms)
    return {
        "values": [value for value, _ in atoms],
        "probs": [Fraction(weight, total) for _, weight in atoms],
    }


@st.composite
def bandits(
    draw: st.DrawFn,
    contexts: Size = 1,
    turns: Size = ONE_OR_TWO,
    actions: Size | Sequence[Size] = 2,
    rewards: Leaves | None = None,
) -> SequentialBandit:
    """Sequential bandits with small-fraction rewards and context probabilities.

    Args:
        contexts: C.
        turns: T; ignored where `actions` names every turn.
        actions: A_t, of every turn alike or one entry a turn; a strategy is drawn turn by turn.
        rewards: strategy of leaves, default `leaves()`.  ``values()`` gives deterministic rewards,
            ``st.sampled_from([0, 1])`` binary ones.

    >>> from hypothesis import find
    >>> find(bandits(), lambda model: not model.deterministic)
    SequentialBandit([[0, {'values': [0, 1], 'probs': ['1/2', '1/2']}]])
    """
    leaf = leaves() if rewards is None else rewards
    each: list[Size]
    if isinstance(actions, Sequence):
        each = list(actions)
        if not each:
            raise ValueError("actions is empty; it should have one entry a turn")
    else:
        each = [cast(Size, actions)] * _size(draw, turns, "turns")
    count = _size(draw, contexts, "contexts")
    shape = [_size(draw, a, f"actions[{t}]") for t, a in enumerate(each)]

    def nested(sizes: list[int]) -> Any:
        if not sizes:
            return draw(leaf)
        return [nested(sizes[1:]) for _ in range(sizes[0])]

    probs = None if count == 1 else draw(simplices(count))
    return SequentialBandit(nested([count, *shape]), probs)


@st.composite
def mdps(
    draw: st.DrawFn,
    states: Size = 2,
    actions: Size = 2,
    horizon: Size = 2,
    rewards: Leaves | None = None,
    *,
    discount: SearchStrategy[Any] | None = None,
    masked: bool = False,
) -> TabularMDP:
    """Tabular MDPs: fraction rows with zeros, so that some moves are sure and some states absorb.

    Args:
        states, actions, horizon: S, A, T.  The unrolled tree grows as (S·A)^T.
        rewards: strategy of leaves [s][a], default ``leaves(atoms=1)``.
        discount: strategy of γ, default 1, 1/2 or 9/10.
        masked: forbid some actions in some states.
    """
    leaf = leaves(atoms=1) if rewards is None else rewards
    size, count = _size(draw, states, "states"), _size(draw, actions, "actions")
    turns = _size(draw, horizon, "horizon")
    gamma = draw(
        st.sampled_from([1, Fraction(1, 2), Fraction(9, 10)]) if discount is None else discount
    )
    table: list[list[Any]] = [
        [draw(simplices(size, zeros=True)) for _ in range(count)] for _ in range(size)
    ]
    paid = [[draw(leaf) for _ in range(count)] for _ in range(size)]
    if size > 1 and draw(st.booleans()):  # the last state ends the episode
        table[-1] = [[0] * (size - 1) + [1] for _ in range(count)]
        paid[-1] = [0] * count
    mask = None
    if masked:
        forbidden = st.sets(st.integers(0, count - 1), max_size=count - 1)
        mask = [
            [a not in row for a in range(count)] for row in (draw(forbidden) for _ in range(size))
        ]
    return TabularMDP(table, paid, draw(simplices(size, zeros=True)), turns, gamma, mask=mask)


@st.composite
def policies(
    draw: st.DrawFn,
    model: Any,
    *,
    rare: bool = True,
    zeros: bool = False,
    shared: bool = False,
) -> Policy:
    """Policies of a model: exact rows from uniform to nearly deterministic.

    Args:
        model: a bandit, an MDP, an aliased model or a decision graph; its masks are kept.
        rare: some rows are nearly deterministic (down to one part in a million).
        zeros: some rows never take some of the allowed actions.
        shared: one table for all turns, for ``param="shared"``; the turns should have equally many
            actions.

    Raises:
        ValueError: `shared`, and the turns differ.

    >>> from hypothesis import find
    >>> model = SequentialBandit([[[0, 1], [1, 0]]])
    >>> find(policies(model), lambda policy: policy[0][0, 0] > 0.9)
    Policy([[['99/100', '1/100']], [['1/2', '1/2'], ['1/2', '1/2']]])
    """
    graph = model if isinstance(model, DecisionGraph) else model.graph()

    def table(layer: Layer, rows: int) -> list[list[Fraction]]:
        out = []
        for row in range(rows):
            allowed = np.ones(layer.actions, bool)
            if layer.mask is not None and row < layer.observations:
                allowed = layer.mask[row]
            probs = iter(draw(simplices(int(allowed.sum()), zeros=zeros, rare=rare)))
            out.append([next(probs) if ok else Fraction(0) for ok in allowed])
        return out

    if not shared:
        return Policy([table(layer, layer.observations) for layer in graph.layers])
    widest = max(graph.layers, key=lambda layer: layer.observations)
    if len(set(graph.actions)) > 1:
        raise ValueError(
            f"shared is True, but the turns have {graph.actions} actions; they should have equally "
            "many"
        )
    if any(not _same_mask(layer, widest) for layer in graph.layers):
        raise ValueError("shared is True, but the turns allow different actions in the same row")
    whole = table(widest, widest.observations)
    return Policy([whole[: layer.observations] for layer in graph.layers])


def _same_mask(layer: Layer, widest: Layer) -> bool:
    if layer.mask is None or widest.mask is None:
        return layer.mask is None and widest.mask is None
    return np.array_equal(layer.mask, widest.mask[: layer.observations])


@st.composite
def problems(
    draw: st.DrawFn, models: SearchStrategy[Any] | None = None, **options: Any
) -> tuple[Any, Policy]:
    """Pairs (model, policy), ``@given(problem=problems(bandits(turns=2)))``.

    Args:
        models: strategy of models, default `bandits()`.
        options: of `policies`.
    """
    model = draw(bandits() if models is None else models)
    return model, draw(policies(model, **options))


@st.composite
def returns(
    draw: st.DrawFn,
    batch: Size = UP_TO_THREE,
    group: Size = UP_TO_FIVE,
    rewards: SearchStrategy[Any] | None = None,
) -> NDArray[np.float64]:
    """Batches of returns [B, G], as an estimator takes them; equal groups are frequent.

    Args:
        batch, group: B, G.
        rewards: strategy of a return, default `values()`.
    """
    number = values() if rewards is None else rewards
    size, members = _size(draw, batch, "batch"), _size(draw, group, "group")
    rows = [
        [draw(number)] * members
        if draw(st.booleans())
        else draw(st.lists(number, min_size=members, max_size=members))
        for _ in range(size)
    ]
    return np.array(rows, dtype=np.float64)


def groups(
    size: Size = UP_TO_SIX, rewards: SearchStrategy[Any] | None = None
) -> SearchStrategy[NDArray[np.float64]]:
    """Returns of one group, [1, G]: a batch of one."""
    return returns(1, size, rewards)


def ratios() -> SearchStrategy[Fraction]:
    """Positive ratios π_new/π_old, many of them on the boundary of a clip interval."""
    return st.sampled_from(RATIOS)


@st.composite
def algorithms(
    draw: st.DrawFn, names: str | Iterable[str] | None = None, **switches: Any
) -> Algorithm:
    """Algorithms by preset name, with some switches set.

    Args:
        names: one or several of `seeupo_theory.PRESETS`, default all of them.
        switches: fields of `Algorithm`, each a value or a strategy of values.  A program is
            compiled for each combination, but for `lr`, which costs nothing.

    Raises:
        ValueError: an unknown name, switch or value.

    >>> from hypothesis import find
    >>> drawn = algorithms("seeupo", lr=st.sampled_from([0.1, 2.0]))
    >>> find(drawn, lambda a: a.lr > 1).lr
    2.0
    """
    known = list(presets.PRESETS) if names is None else [names] if isinstance(names, str) else names
    bases = [presets.get(name) for name in known]
    if not bases:
        raise ValueError("names is empty; it should have at least one algorithm")
    base = draw(st.sampled_from(bases))
    drawn = {
        name: draw(value) if isinstance(value, SearchStrategy) else value
        for name, value in switches.items()
    }
    return base.replace(**drawn) if drawn else base


def _positive(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}; it should be a whole number of at least 1")


def _size(draw: st.DrawFn, size: Size, name: str) -> int:
    drawn = draw(size) if isinstance(size, SearchStrategy) else size
    if isinstance(drawn, bool) or not isinstance(drawn, int) or drawn < 1:
        raise ValueError(
            f"{name} is {drawn!r}; it should be a whole number of at least 1, or a strategy of such"
        )
    return drawn
