"""Importance ratios: two sequence-level ones under two names, and masks that cost nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seeupo_theory.rules.ratios import LEVELS, log_ratio

from .catalogue import VALUE_TOLERANCE

EXACT = VALUE_TOLERANCE["float64"]


def test_true_and_length_normalised_ratio():
    """100 tokens of log ratio 0.012: 3.32 and 1.012 (TRL #5814, NeMo-RL #2269)."""
    old = np.full((1, 100), -2.0)
    new = old + 0.012
    assert np.exp(log_ratio(new, old, level="sequence"))[0] == pytest.approx(3.32, abs=5e-3)
    short = np.exp(log_ratio(new, old, level="length-normalised"))[0]
    assert short == pytest.approx(1.01207, abs=5e-6)


@pytest.mark.parametrize("level", LEVELS)
def test_same_weights_give_ratio_exactly_1(level):
    """TRL #4159, ms-swift #8427, RLinf #1534: at any temperature the same scores cancel exactly."""
    scores = np.random.default_rng(0).normal(size=(3, 7)) / 0.6
    log_prob = scores - np.log(np.exp(scores).sum())
    np.testing.assert_array_equal(np.exp(log_ratio(log_prob, log_prob.copy(), level=level)), 1.0)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("junk", [np.nan, -np.inf, np.inf, 1e30])
def test_masked_tokens_have_ratio_1_and_no_gradient(level, junk):
    """Flash-RL #19, TRL #5826: whatever is written there, a fully masked row included."""
    mask = np.array([[1, 0, 1], [0, 0, 0]])
    old = np.where(mask, -1.0, junk)
    new = np.where(mask, -0.9, junk)
    want = {"sequence": [0.2, 0.0], "length-normalised": [0.1, 0.0]}.get(level)
    want = [[0.1, 0.0, 0.1], [0.0, 0.0, 0.0]] if want is None else want
    np.testing.assert_allclose(log_ratio(new, old, mask, level=level), want, atol=EXACT)
    slope = {"length-normalised": 0.5}.get(level, 1.0) * mask

    def total(x):
        return jnp.sum(log_ratio(x, jnp.asarray(old), jnp.asarray(mask), level=level))

    np.testing.assert_array_equal(jax.grad(total)(jnp.asarray(new)), slope)
    given_ = torch.tensor(new, requires_grad=True)
    log_ratio(given_, torch.tensor(old), torch.tensor(mask), level=level).sum().backward()
    np.testing.assert_array_equal(given_.grad.numpy(), slope)


@given(seed=st.integers(0, 99), inserted=st.integers(1, 4), level=st.sampled_from(LEVELS))
def test_environment_tokens_change_nothing(seed, inserted, level):
    """verifiers #11, TRL #2810: neither the ratio nor the length normaliser."""
    rng = np.random.default_rng(seed)
    new, old = rng.normal(size=(2, 5)), rng.normal(size=(2, 5))
    at = int(rng.integers(0, 6))

    def wide(x, fill):
        return np.insert(x, [at] * inserted, fill, axis=1)

    mask = wide(np.ones((2, 5)), 0.0)
    out = log_ratio(wide(new, 7.0), wide(old, np.nan), mask, level=level)
    want = log_ratio(new, old, level=level)
    out = out[mask > 0].reshape(2, 5) if level == "token" else out
    np.testing.assert_allclose(out, want, atol=EXACT)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: log_ratio(x, x[:1]), ValueError, r"log_prob \(2, 3\), log_prob_old \(1, 3\)"),
        (lambda x: log_ratio(x, x, x[0]), ValueError, r"mask has shape \(3,\)"),
        (lambda x: log_ratio(x, x, level="gspo"), ValueError, "level is 'gspo'; .*sequence"),
        (lambda x: log_ratio(x[0, 0], x[0, 0]), ValueError, "tokens"),
        (lambda x: log_ratio(x, 0.0), TypeError, "log_prob_old is 0.0; it should be an array"),
    ],
)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call(np.zeros((2, 3)))
