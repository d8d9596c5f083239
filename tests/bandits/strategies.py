"""Hypothesis strategies of small models and policies."""

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from bandits import SequentialBandit, TabularMDP, random_mdp, random_policy

numbers = st.one_of(
    st.integers(-3, 3),
    st.floats(-3, 3, allow_subnormal=False).map(lambda x: x + 0.0),
    st.fractions(-3, 3, max_denominator=12),
    st.fractions(-3, 3, max_denominator=12).map(str),
)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def simplices(draw: Any, size: int) -> list[Fraction]:
    """Fractions that sum to 1, zeros included."""
    weights = draw(st.lists(st.integers(0, 6), min_size=size, max_size=size))
    weights[draw(st.integers(0, size - 1))] += 1
    return [Fraction(w, sum(weights)) for w in weights]


@st.composite
def leaves(draw: Any) -> Any:
    """A number or a distribution."""
    if draw(st.booleans()):
        return draw(numbers)
    size = draw(st.integers(1, 3))
    probs = draw(simplices(size))
    return {"values": [draw(numbers) for _ in range(size)], "probs": probs}


@st.composite
def shapes(draw: Any) -> tuple[int, ...]:
    """(C, A_1, …, A_T)."""
    return tuple(draw(st.lists(st.integers(1, 3), min_size=2, max_size=4)))


@st.composite
def bandits(draw: Any) -> SequentialBandit:
    """Bandits of every kind of leaf."""
    shape = draw(shapes())
    pool = draw(st.lists(leaves(), min_size=1, max_size=4))
    place = np.random.default_rng(draw(seeds)).integers(0, len(pool), shape)

    def nested(item: Any) -> Any:
        return [nested(i) for i in item] if isinstance(item, list) else pool[item]

    rewards = nested(place.tolist())
    probs = draw(st.one_of(st.none(), simplices(shape[0])))
    return SequentialBandit(rewards, probs, name=draw(st.sampled_from(["", "x"])))


@st.composite
def mdps(draw: Any) -> TabularMDP:
    """MDPs with absorbing states, masks, tables by turn and random rewards."""
    states = draw(st.integers(1, 3))
    return random_mdp(
        draw(seeds),
        states=states,
        actions=draw(st.integers(1, 3)),
        horizon=draw(st.integers(1, 3)),
        discount=draw(st.sampled_from([1.0, 0.5, 0.9, 0.0])),
        reward=draw(st.sampled_from(["grid", "normal", "bernoulli"])),
        branching=draw(st.integers(1, min(2, states))),
        absorbing=draw(st.integers(0, states - 1)),
        masked=draw(st.booleans()),
        by_turn=draw(st.booleans()),
    )


@st.composite
def tables(draw: Any, model: Any) -> list[np.ndarray]:
    """Policies from nearly deterministic to nearly uniform."""
    return random_policy(draw(seeds), model, draw(st.sampled_from([0.01, 1.0, 20.0])))
