"""The running factor: Eq. 8, the official code's clamps, and turns that must not count."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seeupo_theory.rules.factor import advance

from .catalogue import VALUE_TOLERANCE

EXACT = VALUE_TOLERANCE["float64"]


def ten_turns(**options):
    out = np.ones(1)
    for _ in range(10):
        out = advance(out, np.array([[np.log(1.1)]]), np.zeros((1, 1)), **options)
    return float(out[0])


def test_ten_turns_at_ratio_1_1():
    """2.594 by Eq. 8; 1.2 with the official code's clamp of the running product."""
    assert ten_turns() == pytest.approx(2.594, abs=5e-4)
    assert ten_turns(product_clip=0.2) == pytest.approx(1.2, abs=EXACT)
    assert ten_turns(factor_clip=0.2) == pytest.approx(2.594, abs=5e-4)
    assert ten_turns(factor_clip=0.05) == pytest.approx(1.05**10, abs=1e-12)
    assert ten_turns(factor_clip=0.0) == 1.0


@given(seed=st.integers(0, 99), turns=st.integers(1, 6))
def test_recursion_is_the_product_of_all_ratios(seed, turns):
    """With independent turns Eq. 8 and HAPPO's product, in any order of updates."""
    rng = np.random.default_rng(seed)
    new, old = rng.normal(size=(turns, 3, 4)), rng.normal(size=(turns, 3, 4))
    out = np.ones(3)
    for t in rng.permutation(turns):
        out = advance(out, new[t], old[t])
    want = np.prod(np.exp((new - old).sum(axis=-1)), axis=0)
    np.testing.assert_allclose(out, want, rtol=1e-10)


def test_both_references_are_available_and_differ():
    """Shared weights: turn 1's ratio against θ_k (Eq. 8) or against θ after turn 2's update."""
    sampling, after_two, after_one = np.log(0.5), np.log(0.6), np.log(0.7)
    out = {}
    for name, reference in (("behaviour", sampling), ("current", after_two)):
        out[name] = float(advance(np.ones(1), np.array([after_one]), np.array([reference]))[0])
    assert out["behaviour"] == pytest.approx(1.4)
    assert out["current"] == pytest.approx(7 / 6)


@pytest.mark.parametrize("junk", [np.nan, -np.inf, 800.0])
def test_no_op_turns_have_factor_exactly_1(junk):
    """Also under both clamps, and whatever log-probabilities padding carries."""
    factor = np.array([1.7, 0.3, 1.0])
    new = np.array([[junk, junk], [-1.0, -1.0], [-1.0, junk]])
    old = np.array([[-1.0, junk], [-1.5, -1.0], [-1.0, -9.0]])
    mask = np.array([[1, 1], [1, 1], [1, 0]])
    active = np.array([False, True, True])
    out = advance(factor, new, old, mask, active=active)
    np.testing.assert_array_equal(out[[0, 2]], [1.7, 1.0])
    assert out[1] == pytest.approx(0.3 * np.exp(0.5))
    clamped = advance(factor, new, old, mask, active=active, factor_clip=0.2, product_clip=0.2)
    assert clamped[0] == 1.7
    assert clamped[1] == pytest.approx(0.8)

    def total(x):
        return jnp.sum(
            advance(
                jnp.asarray(factor),
                x,
                jnp.asarray(old),
                jnp.asarray(mask),
                active=jnp.asarray(active),
            )
        )

    slope = jax.grad(total)(jnp.asarray(new))
    np.testing.assert_array_equal(slope[0], 0.0)
    assert np.all(np.isfinite(slope))


def test_a_fully_masked_row_has_factor_1():
    out = advance(np.array([2.0]), np.full((1, 3), np.nan), np.zeros((1, 3)), np.zeros((1, 3)))
    assert out[0] == 2.0


def test_a_dead_trajectory_stays_dead():
    """Factor 0 times a ratio too large for a float is 0, not NaN."""
    assert advance(np.zeros(1), np.array([800.0]), np.zeros(1))[0] == 0.0


def test_length_normalised_level():
    new, old = np.full((1, 4), -0.9), np.full((1, 4), -1.0)
    assert advance(np.ones(1), new, old)[0] == pytest.approx(np.exp(0.4))
    assert advance(np.ones(1), new, old, level="length-normalised")[0] == pytest.approx(np.exp(0.1))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.ones(2), np.zeros((3, 1)), np.zeros((3, 1))), {}, r"log_prob_new has shape \(3, 1\)"),
        ((np.ones(2), np.zeros(2), np.zeros((2, 1))), {}, "shapes differ"),
        ((np.ones(2), np.zeros(2), np.zeros(2)), {"active": np.ones(3)}, "active has shape"),
        ((np.ones(2), np.zeros(2), np.zeros(2)), {"level": "token"}, "level is 'token'"),
        ((np.ones(2), np.zeros(2), np.zeros(2)), {"factor_clip": -0.1}, "factor_clip is -0.1"),
        ((np.ones(2), np.zeros(2), np.zeros(2)), {"product_clip": 1.5}, "product_clip is 1.5"),
        ((np.ones(2), np.zeros((2, 1)), np.zeros((2, 1)), np.ones(2)), {}, "mask has shape"),
    ],
)
def test_wrong_arguments_are_named(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        advance(*arguments, **options)
