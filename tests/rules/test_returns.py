"""Rewards, returns and GAE along one trajectory, with tokens that are not the policy's own."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seeupo_theory.rules.advantages import grae
from seeupo_theory.rules.returns import (
    discounted_returns,
    gae,
    masked_return,
    require_finite,
    returns_from_advantages,
    token_rewards,
)

from .catalogue import VALUE_TOLERANCE

EXACT = VALUE_TOLERANCE["float64"]


def gae_by_sum(rewards, values, discount, lam):
    """Â_t = Σ_l (γλ)^l δ_{t+l}, the definition."""
    steps = len(rewards)
    delta = [rewards[t] + discount * values[t + 1] - values[t] for t in range(steps)]
    return [
        sum((discount * lam) ** (k - t) * delta[k] for k in range(t, steps)) for t in range(steps)
    ]


@given(
    steps=st.integers(1, 6),
    seed=st.integers(0, 99),
    discount=st.floats(0, 1),
    lam=st.floats(0, 1),
    bootstrap=st.booleans(),
    inserted=st.integers(0, 3),
)
def test_gae_is_its_definition_and_skips_observation_tokens(
    steps, seed, discount, lam, bootstrap, inserted
):
    """verl #2337: tokens of the environment between two steps change nothing at the steps."""
    rng = np.random.default_rng(seed)
    rewards, values = rng.normal(size=steps), rng.normal(size=steps + 1)
    last = values.copy()
    last[-1] *= bootstrap
    want = gae_by_sum(rewards, last, discount, lam)
    options = {"discount": discount, "lam": lam, "bootstrap": bootstrap}
    np.testing.assert_allclose(gae(rewards, values, **options), want, atol=EXACT)

    at = int(rng.integers(0, steps + 1))
    junk = np.full(inserted, np.nan)
    mask = np.insert(np.ones(steps), at, np.zeros(inserted))
    out = gae(np.insert(rewards, at, junk), np.insert(values, at, junk), mask=mask, **options)
    np.testing.assert_allclose(out[mask > 0], want, atol=EXACT)
    carried = want[at] if at < steps else 0.0
    np.testing.assert_allclose(out[mask == 0], carried, atol=EXACT)


def test_gae_limits():
    rewards, values = np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.25, 0.125, 8.0])
    one = gae(rewards, values, discount=1.0, lam=1.0, bootstrap=False)
    np.testing.assert_allclose(one, [6 - 0.5, 5 - 0.25, 3 - 0.125])
    np.testing.assert_allclose(
        gae(rewards, values, discount=0.5, lam=0.0), rewards + 0.5 * values[1:] - values[:-1]
    )
    np.testing.assert_allclose(gae(rewards, values, discount=1.0, lam=1.0) - one, 8.0)


def test_returns_are_apart_from_advantages():
    """verl #5974, SkyRL #773."""
    rewards, values = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.25, 0.125, 9.0])
    advantages = gae(rewards, values, discount=0.5, lam=1.0, bootstrap=False)
    targets = returns_from_advantages(advantages, values)
    np.testing.assert_allclose(targets, discounted_returns(rewards, 0.5))
    np.testing.assert_allclose(returns_from_advantages(advantages, values[:3]), targets)
    assert np.max(np.abs(targets - advantages)) > 0.1


def test_a_masked_token_carries_no_reward():
    """verl #6362."""
    masks, rewards = np.array([[1, 0], [1, 1]]), np.array([[0.0, 1.0], [0.0, 0.0]])
    returns = masked_return(rewards, masks)
    np.testing.assert_array_equal(grae(returns[None]), 0.0)
    np.testing.assert_array_equal(discounted_returns(rewards, 0.9, masks), 0.0)


def test_the_reward_sits_on_the_last_own_token():
    """verl #6392: never on text of a tool that follows it."""
    mask = np.array([[1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=bool)
    out = token_rewards(np.array([2.0, 3.0, 4.0]), mask)
    np.testing.assert_array_equal(out, [[0, 0, 2, 0, 0], [0] * 5, [0, 0, 0, 0, 4]])
    np.testing.assert_array_equal(masked_return(out, mask), [2.0, 0.0, 4.0])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: require_finite(np.array(math.inf), "x"), ValueError, "x is inf; it should be fin"),
        (lambda: gae(np.zeros(2), np.zeros(2), discount=1, lam=1), ValueError, r"be \(3,\)"),
        (lambda: gae(np.zeros(0), np.zeros(1), discount=1, lam=1), ValueError, "steps"),
        (lambda: gae(np.zeros(2), np.zeros(3), discount=1.5, lam=1), ValueError, "at most 1"),
        (lambda: gae(np.zeros(2), np.zeros(3), discount=1, lam=-1), ValueError, "lam is -1"),
        (
            lambda: gae(np.zeros(2), np.zeros(3), discount=1, lam=1, mask=np.ones(3)),
            ValueError,
            r"mask has shape \(3,\); it should be \(2,\)",
        ),
        (
            lambda: gae(np.zeros(2), np.array([0, math.nan, 0]), discount=1, lam=1),
            ValueError,
            r"values\[1\] is nan",
        ),
        (lambda: masked_return(np.zeros(2), np.ones(3)), ValueError, "mask has shape"),
        (lambda: token_rewards(np.zeros(2), np.ones(2)), ValueError, "mask has shape"),
        (
            lambda: returns_from_advantages(np.zeros(3), np.zeros(5)),
            ValueError,
            r"advantages \(3,\), values \(5,\)",
        ),
        (lambda: discounted_returns(np.array(1.0), 0.9), ValueError, "rewards has no axis"),
        (lambda: gae(np.zeros(2), torch.zeros(3), discount=1, lam=1), TypeError, "libraries"),
    ],
)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
