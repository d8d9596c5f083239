"""Objectives: truth tables of the clip, the kinks, extremes, and the scale of a loss."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seeupo_theory.rules.advantages import grae
from seeupo_theory.rules.kl import kl_penalty
from seeupo_theory.rules.objectives import (
    AGGREGATIONS,
    KINK_ULPS,
    aggregate,
    clip,
    clip_fraction,
    clip_mask,
    linear,
    reinforce,
)
from seeupo_theory.rules.ratios import log_ratio

from .catalogue import BACKENDS, OBJECTIVES, VALUE_TOLERANCE

EXACT = VALUE_TOLERANCE["float64"]


def value_and_slopes(rule, log_prob, advantage, dtype="float64", weight=1.0):
    """Value, and gradient in log_prob by JAX and by torch, at log_prob_old = 0."""
    x = np.asarray(log_prob, dtype)
    a = np.asarray(advantage, dtype)
    given_ = torch.tensor(x, requires_grad=True)
    rule(given_, torch.zeros_like(given_), torch.tensor(a), weight).sum().backward()
    ours = jnp.asarray(x)

    def total(y):
        return jnp.sum(rule(y, jnp.zeros_like(y), jnp.asarray(a), weight))

    with np.errstate(over="ignore"):
        value = rule(x, np.zeros_like(x), a, weight)
    return value, np.asarray(jax.grad(total)(ours)), given_.grad.numpy()


# --- the clip -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "advantage", "options", "value", "flat"),
    [
        (0.5, 2.0, {}, 1.0, False),
        (1.5, 2.0, {}, 2.4, True),
        (0.5, -2.0, {}, -1.6, True),
        (1.5, -2.0, {}, -3.0, False),
        (1.0, 2.0, {}, 2.0, False),
        (0.5, -1.0, {}, -0.8, True),
        (1.25, 1.0, {"high": 0.28}, 1.25, False),
        (1.5, 1.0, {"high": 0.28}, 1.28, True),
        (0.75, -1.0, {"low": 0.3}, -0.75, False),
        (1.1, 1.0, {"dual": 3.0}, 1.1, False),
        (9.0, 1.0, {"dual": 3.0}, 1.2, True),
        (9.0, -1.0, {"dual": 3.0}, -3.0, True),
        (9.0, -1.0, {}, -9.0, False),
        (0.0, -1.0, {"low": 1.0}, 0.0, False),
        (50.0, 1.0, {"high": float("inf")}, 50.0, False),
    ],
)
def test_truth_table(ratio, advantage, options, value, flat):
    """GMPO #4, spinningup #255, RL2 #21; the dual clip for A < 0 only, tianshou #433."""
    with np.errstate(divide="ignore"):
        x = np.log([ratio])

    def rule(*arguments):
        return clip(*arguments, **options)

    out, ours, theirs = value_and_slopes(rule, x, [advantage])
    slope = 0.0 if flat else ratio * advantage
    np.testing.assert_allclose(out, value, rtol=EXACT)
    np.testing.assert_allclose(ours, slope, rtol=EXACT)
    np.testing.assert_allclose(theirs, slope, rtol=EXACT)
    cut = clip_mask(x, 0 * np.ones(1), np.array([advantage]), **options)
    assert cut.tolist() == [flat]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("low", "high", "dual"), [(0.2, 0.2, None), (0.1, 0.28, 3.0), (0, 0, 2)])
def test_gradient_flows_exactly_at_the_kinks(dtype, low, high, dual):
    """The boundary belongs to the unclipped branch in every library, however it was computed."""

    def rule(*arguments):
        return clip(*arguments, low=low, high=high, dual=dual)

    bounds = [1 - low, 1 + high] + ([dual] if dual else [])
    for bound, sign in itertools.product(bounds, (1.0, -1.0)):
        if bound == dual and sign > 0:
            continue
        if bound == 1 + high and sign < 0 and dual is None:
            continue
        exact = float(np.log(np.asarray(bound, dtype)))
        rounded = np.asarray(np.log(bound), dtype)
        for x in (rounded, exact):
            out, ours, theirs = value_and_slopes(rule, [x], [sign], dtype)
            np.testing.assert_allclose(out, sign * bound, rtol=VALUE_TOLERANCE[dtype])
            np.testing.assert_allclose(ours, out, rtol=VALUE_TOLERANCE[dtype])
            np.testing.assert_allclose(ours, theirs, rtol=VALUE_TOLERANCE[dtype])


def test_just_beyond_the_kink_is_flat():
    eps = np.finfo(float).eps
    for sign, x in ((1.0, np.log(1.2) + 4 * KINK_ULPS * eps), (-1.0, np.log(0.8) - 4e-14)):
        _, ours, theirs = value_and_slopes(clip, [x], [sign])
        assert ours == theirs == 0.0


@given(
    ratio=st.floats(0.01, 20),
    advantage=st.floats(-5, 5),
    low=st.floats(0, 1),
    high=st.floats(0, 3),
    dual=st.one_of(st.none(), st.floats(1.01, 10)),
)
def test_clip_is_the_minimum(ratio, advantage, low, high, dual):
    """min(ρA, clip(ρ)A), then at least cA for A < 0; never above ρA without the dual clip."""
    x, zero, a = np.log(np.array([ratio])), np.zeros(1), np.array([advantage])
    want = min(ratio * advantage, float(np.clip(ratio, 1 - low, 1 + high)) * advantage)
    if dual is not None and advantage < 0:
        want = max(want, dual * advantage)
    out = clip(x, zero, a, low=low, high=high, dual=dual)
    np.testing.assert_allclose(out, want, rtol=1e-12, atol=1e-12)
    if dual is None:
        assert out[0] <= linear(x, zero, a)[0] + 1e-12


@given(scale=st.floats(0, 10), seed=st.integers(0, 20))
def test_positively_homogeneous_in_the_advantage(scale, seed):
    rng = np.random.default_rng(seed)
    new, old, a = rng.normal(size=9), rng.normal(size=9), rng.normal(size=9)
    for rule in OBJECTIVES.values():
        np.testing.assert_allclose(
            rule(new, old, scale * a, 1.0), scale * rule(new, old, a, 1.0), rtol=1e-12, atol=1e-12
        )


# --- extremes -----------------------------------------------------------------------------------

EXTREME = [800.0, -800.0, -np.inf, np.inf, np.nan]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rule", [reinforce, linear, clip], ids=lambda f: f.__name__)
def test_inert_samples_are_exactly_zero(rule, dtype):
    """Advantage 0 or weight 0: no NaN and no infinity in value or gradient."""
    for advantage, weight in ((0.0, 1.0), (1.0, 0.0), (-1.0, 0.0), (np.nan, 0.0)):
        out, ours, theirs = value_and_slopes(
            rule, EXTREME, [advantage] * len(EXTREME), dtype, weight
        )
        for x in (out, ours, theirs):
            np.testing.assert_array_equal(x, 0.0)
            assert x.dtype == np.dtype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_flat_branches_never_overflow(dtype):
    options = {"dual": 3.0}

    def rule(*arguments):
        return clip(*arguments, **options)

    out, ours, theirs = value_and_slopes(rule, [800, -800, 800, -800], [1, 1, -1, -1], dtype)
    np.testing.assert_allclose(out, [1.2, 0.0, -3.0, -0.8], rtol=1e-6)
    np.testing.assert_array_equal(ours, 0.0)
    np.testing.assert_array_equal(theirs, 0.0)


def test_a_forbidden_action_is_silent():
    """Log-probability -inf under both policies (a mask), weight 0, in every library."""
    x, weight = np.array([-np.inf, -1.0]), np.array([0.0, 1.0])
    for rule in (reinforce, linear, clip):
        for b in BACKENDS:
            out = b.numpy(rule(b.array(x), b.array(x), b.array(np.ones(2)), b.array(weight)))
            np.testing.assert_array_equal(out, [0.0, 0.0 if rule is reinforce else 1.0])


# --- clip fraction ------------------------------------------------------------------------------


def test_clip_fraction_is_0_at_the_sampling_policy():
    """One epoch and one mini-batch, or learning rate 0 (verl #1477, DAPO #31, RLinf #1534)."""
    x = np.log(np.random.default_rng(0).dirichlet(np.ones(50)))
    advantage = np.random.default_rng(1).normal(size=50)
    assert clip_fraction(x, x.copy(), advantage) == 0.0
    assert clip_fraction(x, x.copy(), advantage, low=0.0, high=0.0) == 0.0


def test_clip_fraction_counts_cut_gradients_only():
    x = np.log(np.array([1.5, 1.5, 0.5, 0.5, 1.5, 1.5]))
    a = np.array([1.0, -1.0, 1.0, -1.0, 0.0, 1.0])
    w = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    assert clip_fraction(x, 0 * x, a, w) == pytest.approx(2 / 5)
    assert clip_mask(x, 0 * x, a, w).tolist() == [True, False, False, True, False, False]
    assert clip_fraction(x, 0 * x, a, 0 * w) == 0.0
    assert clip_fraction(x, 0 * x, a, np.array([3.0, 1, 1, 1, 0, 0])) == pytest.approx(4 / 6)


# --- the scale of a loss ------------------------------------------------------------------------


def batch(seed=0, rows=6, length=5):
    rng = np.random.default_rng(seed)
    mask = (rng.uniform(size=(rows, length)) < 0.7).astype(float)
    mask[0], mask[1] = 0.0, 1.0
    return rng.normal(size=(rows, length)), mask


def pieces(mask, how):
    return mask.sum() if how == "mean" else (mask.sum(1) > 0).sum()


@pytest.mark.parametrize("how", AGGREGATIONS)
def test_any_split_into_micro_batches_adds_up(how):
    """TRL #6024, ms-swift #10116: value and gradient."""
    x, mask = batch()
    options = {"how": how, "constant": 5.0 if how == "constant" else None}
    count = None if how == "sum" else float(pieces(mask, how))

    def gradient(values, m, normaliser=None):
        x = torch.tensor(values, requires_grad=True)
        aggregate(x, torch.tensor(m), **options, normaliser=normaliser).backward()
        return x.grad.numpy()

    whole, slope = aggregate(x, mask, **options), gradient(x, mask)
    for cut in ([1, 2], [3], [1, 3, 5]):
        split = list(zip(np.split(x, cut), np.split(mask, cut), strict=True))
        parts = [aggregate(*p, **options, normaliser=count) for p in split]
        assert sum(parts) == pytest.approx(whole, abs=EXACT)
        slopes = [gradient(*p, normaliser=count) for p in split]
        np.testing.assert_allclose(np.concatenate(slopes), slope, atol=EXACT)


@pytest.mark.parametrize("how", AGGREGATIONS)
def test_duplicates_and_permutations(how):
    """A mean does not change when the batch is doubled (verl #3741), nor by order (TRL #3231)."""
    x, mask = batch()
    options = {"how": how, "constant": 5.0 if how == "constant" else None}
    whole = aggregate(x, mask, **options)
    twice = aggregate(np.concatenate([x, x]), np.concatenate([mask, mask]), **options)
    assert twice == pytest.approx((2 if how == "sum" else 1) * whole, abs=EXACT)
    order = np.random.default_rng(3).permutation(len(x))
    assert aggregate(x[order], mask[order], **options) == pytest.approx(whole, abs=EXACT)


@pytest.mark.parametrize("how", AGGREGATIONS)
@pytest.mark.parametrize("masked", ["rows", "all"])
def test_masked_rows_and_environment_tokens_change_nothing(how, masked):
    """verifiers #11, TRL #2810, TRL #5826, unsloth-zoo #1262."""
    x, mask = batch()
    options = {"how": how, "constant": 5.0 if how == "constant" else None}
    if masked == "all":
        assert aggregate(np.full((2, 3), np.nan), np.zeros((2, 3)), **options) == 0.0
        return
    whole = aggregate(x, mask, **options)
    wide = np.insert(x, [2, 2, 4], np.nan, axis=1)
    wide_mask = np.insert(mask, [2, 2, 4], 0.0, axis=1)
    assert aggregate(wide, wide_mask, **options) == pytest.approx(whole, abs=EXACT)
    tall = np.concatenate([x, np.full((2, 5), np.inf)])
    tall_mask = np.concatenate([mask, np.zeros((2, 5))])
    assert aggregate(tall, tall_mask, **options) == pytest.approx(whole, abs=EXACT)


def test_a_kl_per_token_is_added_per_token():
    """open-instruct #535: mean of (pg + β kl) under the mask is the sum of the two means."""
    x, mask = batch()
    new, old, ref = -np.abs(x), -np.abs(x) - 0.1, -np.abs(x) - 0.3
    beta = 0.04
    gain = clip(new, old, np.ones_like(x))
    penalty = kl_penalty(new, ref, "k3", mask)
    together = aggregate(gain - beta * penalty, mask, "mean")
    tokens = [
        gain[i, j] - beta * (np.exp(-0.3) - 1 + 0.3) for i, j in np.ndindex(x.shape) if mask[i, j]
    ]
    assert together == pytest.approx(sum(tokens) / len(tokens), abs=EXACT)
    assert together == pytest.approx(
        aggregate(gain, mask, "mean") - beta * aggregate(penalty, mask, "mean"), abs=EXACT
    )


@pytest.mark.parametrize("rule", [linear, clip, reinforce], ids=lambda f: f.__name__)
def test_value_0_at_ratio_1_is_not_gradient_0(rule):
    """open-r1 #239."""
    advantage = grae(np.array([[1.0, 0.0, 0.0, 1.0]]))[0]
    out, ours, theirs = value_and_slopes(rule, np.zeros(4), advantage)
    assert abs(out.sum()) == 0.0
    np.testing.assert_allclose(ours, advantage)
    np.testing.assert_allclose(theirs, advantage)


def test_one_ratio_a_row_does_not_weigh_rows_by_length():
    """Lengths 2 and 20, A = (+1, −1), ratio 1: loss 0, not 18/22 (TRL #3823)."""
    mask = np.array([[1] * 2 + [0] * 18, [1] * 20])
    log_prob = np.full((2, 20), -1.0)
    for level in ("sequence", "length-normalised"):
        ratio = log_ratio(log_prob, log_prob, mask, level=level)
        value = clip(ratio, np.zeros(2), np.array([1.0, -1.0]))
        assert aggregate(value[:, None], how="mean") == 0.0
    per_token = clip(log_prob, log_prob, np.array([[1.0], [-1.0]]))
    assert aggregate(per_token, mask, "sequence-mean") == 0.0
    assert aggregate(per_token, mask, "mean") == pytest.approx(-18 / 22)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: clip(x, x[:2], 1.0), ValueError, "shapes differ"),
        (lambda x: clip(x, x, x[None]), ValueError, r"advantage has shape \(1, 3\)"),
        (lambda x: clip(x[None], x[None], x), ValueError, r"advantage has shape \(3,\)"),
        (lambda x: clip(x, x, x, x[:2]), ValueError, r"weight has shape \(2,\)"),
        (lambda x: clip(x, x, 1.0, low=1.5), ValueError, "low is 1.5; .*at least 0 and at most 1"),
        (lambda x: clip(x, x, 1.0, high=-0.1), ValueError, "high is -0.1"),
        (lambda x: clip(x, x, 1.0, dual=1.0), ValueError, "dual is 1.0; .*more than 1"),
        (lambda x: clip(0.0, x, 1.0), TypeError, "log_prob is 0.0; it should be an array"),
        (lambda x: clip(x, x, [1.0] * 3), TypeError, "advantage is a list"),
        (lambda x: aggregate(x, how="average"), ValueError, "how is 'average'"),
        (lambda x: aggregate(x, how="constant"), ValueError, "constant is None"),
        (lambda x: aggregate(x, how="mean", constant=3.0), ValueError, "constant is 3.0"),
        (lambda x: aggregate(x, how="mean", normaliser=0.0), ValueError, "normaliser is 0.0"),
        (lambda x: aggregate(x, x[:2]), ValueError, r"mask has shape \(2,\)"),
        (lambda x: aggregate(x[0]), ValueError, "tokens"),
    ],
)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call(np.zeros(3))
