"""Update orders: nothing falls back to another order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seeupo_theory.rules.orders import ORDERS, turn_order


def test_named_orders():
    assert turn_order("reverse", 4) == (3, 2, 1, 0)
    assert turn_order("forward", 4) == (0, 1, 2, 3)
    assert turn_order(np.array([2, 0, 1]), 3) == (2, 0, 1)
    assert {"reverse", "forward", "random"} <= set(ORDERS)


@given(turns=st.integers(1, 8), seed=st.integers(0, 50))
def test_every_order_is_a_permutation(turns, seed):
    for name in ORDERS:
        order = turn_order(name, turns, np.random.default_rng(seed))
        assert sorted(order) == list(range(turns))
        assert all(type(t) is int for t in order)
        assert turn_order(order, turns) == order
    again = turn_order("random", turns, np.random.default_rng(seed))
    assert again == turn_order("random", turns, np.random.default_rng(seed))


def test_random_reaches_all_orders():
    rng = np.random.default_rng(0)
    assert len({turn_order("random", 3, rng) for _ in range(200)}) == 6


@pytest.mark.parametrize(
    ("order", "turns", "error", "message"),
    [
        ("sequential", 3, ValueError, "order is 'sequential'.*reverse, forward, random"),
        ("revers", 3, ValueError, "did you mean 'reverse'"),
        ("simultaneous", 3, ValueError, "one joint update"),
        ((0, 0, 1), 3, ValueError, r"order is \(0, 0, 1\); it should hold 0 to 2"),
        ((1, 2, 3), 3, ValueError, "0 to 2, each exactly once"),
        ((1, 0), 3, ValueError, "0 to 2"),
        ((0, 1.5), 2, ValueError, "name or a tuple of turns"),
        (None, 2, ValueError, "order is None"),
        ("random", 3, TypeError, "needs rng, a numpy.random.Generator; it is NoneType"),
        ("reverse", 0, ValueError, "turns is 0"),
        ("reverse", 1.0, ValueError, "turns is 1.0"),
        ("reverse", True, ValueError, "turns is True"),
    ],
)
def test_wrong_orders_are_errors(order, turns, error, message):
    with pytest.raises(error, match=message):
        turn_order(order, turns)
