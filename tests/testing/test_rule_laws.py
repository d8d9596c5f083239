"""The laws of arrays: JAX against torch, NaN, writing, and the lower bound."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seeupo_theory import Algorithm
from seeupo_theory.rules.advantages import ESTIMATORS
from seeupo_theory.rules.objectives import clip, reinforce
from seeupo_theory.rules.ratios import log_ratio
from seeupo_theory.testing import (
    assert_does_not_write,
    assert_lower_bound,
    assert_no_nan,
    assert_same_rule,
    ratios,
    returns,
    values,
)

QUICK = settings(max_examples=25)
BOUNDARY = np.log(np.array([1.2, 0.8, 0.5]))
SIGNS = np.array([1.0, -1.0, 1.0])


# The same rule in JAX and in torch ----------------------------------------------------------------


@QUICK
@given(st.lists(st.tuples(ratios(), values()), min_size=3, max_size=3))
def test_the_librarys_objectives_are_one_rule(samples):
    """At the kinks too: ratios on the clip boundary are drawn often."""
    log_ratio_, advantage = np.array([(np.log(float(r)), float(a)) for r, a in samples]).T
    old = np.full(log_ratio_.shape, -5.0)
    assert_same_rule(clip, clip, old + log_ratio_, old, advantage)


@settings(max_examples=6)
@given(returns(2, 3))
def test_the_librarys_estimators_are_one_rule(batch):
    assert_same_rule(ESTIMATORS["grpo"], ESTIMATORS["grpo"], batch)


def test_masks_and_options_are_passed_on():
    logs = np.log(np.array([[0.5, 0.3], [0.2, 0.9]], dtype=np.float32))
    mask = np.array([[True, False], [True, True]])
    assert_same_rule(log_ratio, log_ratio, logs, logs - 1, mask)

    def named(x, how):
        return x * {"twice": 2}[how]

    assert_same_rule(named, named, np.ones(2), "twice")


def test_other_subgradients_at_the_kink_are_noticed():
    """min and clip have the same values in both libraries, but not the same derivative there."""

    def in_jax(change, advantage):
        ratio = jnp.exp(change)
        return jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.5, 1.0) * advantage)

    def in_torch(change, advantage):
        ratio = torch.exp(change)
        return torch.minimum(ratio * advantage, torch.clip(ratio, 0.5, 1.0) * advantage)

    at_the_kink, advantage = np.zeros(2), np.ones(2)
    assert_same_rule(in_jax, in_torch, at_the_kink, advantage, gradients=False)
    assert_same_rule(in_jax, in_torch, np.array([-0.1, 0.1]), advantage)
    with pytest.raises(AssertionError, match=r"gradient in argument 0\[0\]: JAX gives"):
        assert_same_rule(in_jax, in_torch, at_the_kink, advantage)


def double(x):
    return 2 * x


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        (double, lambda x: 2.0001 * x, r"value\[1\]: JAX gives 2\.0, torch 2\.0001"),
        (double, lambda x: (2 * x).float(), "float64, torch .* of float32"),
        (double, lambda x: 2 * x[:1], r"shape \(2,\) of float64, torch \(1,\)"),
        (double, lambda x: (2 * x, x), "JAX returns 1 arrays, torch 2"),
        (double, lambda x: (2 * x).detach(), "gradient in argument 0"),
        (
            lambda x: (x, x > 0),
            lambda x: (x, x >= 0),
            r"output 1\[0\]: JAX gives False, torch True",
        ),
        (lambda x: x / x, lambda x: x / x, r"value\[0\]: JAX gives nan, torch nan"),
        (lambda x: x.sum(), lambda x: x.sum() + 1, r"value: JAX gives 1\.0, torch 2\.0"),
    ],
)
def test_differences_are_named(ours, theirs, message):
    with pytest.raises(AssertionError, match=message) as caught:
        assert_same_rule(ours, theirs, np.array([0.0, 1.0]))
    if "returns" not in message:
        assert "arguments = [[0.0, 1.0]]" in str(caught.value)


def test_what_has_no_gradient_is_compared_by_value():
    for rule in (lambda x: x > 0, lambda x: [x > 0, 0 * x]):
        assert_same_rule(rule, rule, np.array([0.0, 1.0]))
    assert_same_rule(double, double, np.array([1, 2]))
    assert_same_rule(lambda x, y: x, lambda x, y: x, np.ones(2), np.ones(2))  # y is not used
    infinite = np.array([-np.inf, 0.0])
    assert_same_rule(double, double, infinite)
    assert_same_rule(double, lambda x: 2.0001 * x, np.ones(2), tolerance=0.01)


def test_a_missing_torch_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"torch, which is not installed; .*seeupo\[torch\]"
    ):
        assert_same_rule(double, double, np.ones(2))


# Finite values, and no writing --------------------------------------------------------------------


@pytest.mark.parametrize("name", ESTIMATORS)
def test_named_estimators_are_finite_and_do_not_write(name):
    assert_no_nan(name)
    assert_does_not_write(name)


def test_nan_and_infinity_are_named():
    def scaled(r):
        return (r - r.mean(-1, keepdims=True)) / r.std(-1, keepdims=True)

    with pytest.raises(AssertionError, match=r"scaled gives nan at \[0, 0\]\narguments = \[\[\[0"):
        assert_no_nan(scaled)
    with pytest.raises(AssertionError, match=r"log gives -inf at \[1\]\narguments = \[\[1\.0, 0\."):
        assert_no_nan(np.log, np.array([1.0, 0.0]))
    assert_no_nan(np.log, np.array([1.0, 0.0]), infinite=True)
    with pytest.raises(AssertionError, match=r"gives nan at \[0\] of output 1"):
        assert_no_nan(lambda x: (x, x / 0 * 0), np.float64(1.0))
    assert_no_nan(clip, BOUNDARY, np.zeros(3), SIGNS)
    assert_no_nan(clip, torch.tensor(BOUNDARY, requires_grad=True), torch.zeros(3), 1.0)


def test_writing_is_named():
    def rude(returns):
        returns -= returns.mean(axis=-1, keepdims=True)
        return returns

    with pytest.raises(AssertionError, match=r"rude writes into argument 0: .* became .*leave it"):
        assert_does_not_write(rude)

    def second(x, y):
        y[0] = 3
        return x

    for y in (np.zeros(2), [0, 1], torch.zeros(2)):
        with pytest.raises(AssertionError, match="second writes into argument 1"):
            assert_does_not_write(second, np.ones(2), y)
        assert y[0] == 0  # the caller's own is left alone
    assert_does_not_write(lambda x: x, np.array([np.nan, -0.0]))
    with pytest.raises(AssertionError, match="writes into argument 0"):
        assert_does_not_write(lambda x: np.abs(x, out=x), np.array([-0.0]))


# The lower bound ----------------------------------------------------------------------------------


@QUICK
@given(ratios(), values())
def test_the_clipped_surrogate_is_a_lower_bound(ratio, advantage):
    assert_lower_bound("clip", ratio, advantage)
    assert_lower_bound(Algorithm(clip=(0.1, 0.5)), ratio, advantage)


def test_lower_bounds_on_the_grid():
    for bound in ("clip", "linear", Algorithm(), lambda n, o, a, w: w * a * np.exp(n - o) - 1):
        assert_lower_bound(bound)


def only_clipped(log_prob, log_prob_old, advantage, weight):
    return np.clip(np.exp(log_prob - log_prob_old), 0.8, 1.2) * advantage


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (Algorithm("dual", dual_clip=3.0), "dual exceeds .* at ratio 100 and advantage -"),
        ("reinforce", "reinforce exceeds the linear gain: .* advantage -3"),
        (reinforce, "reinforce exceeds"),
        (only_clipped, "only_clipped exceeds"),
        (lambda n, o, a, w: n / 0 * 0, "exceeds"),
        (lambda n, o, a, w: np.zeros(2), r"returns shape \(2,\) for 55 samples"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_no_lower_bound_is_named(objective, message):
    with pytest.raises(AssertionError, match=message):
        assert_lower_bound(objective)


def test_the_excess_is_shown():
    with pytest.raises(
        AssertionError, match=r"0\.8 at ratio 0\.5 .* 1, it should be at most 0\.5$"
    ):
        assert_lower_bound(only_clipped, 0.5, 1.0)
    assert_lower_bound(only_clipped, [0.9, 1.1], 1.0)  # inside the interval it is linear


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("clp",), "did you mean 'clip'"),
        (("clip", [1.0, -1.0]), r"ratio is -1\.0; it should be positive"),
        (("clip", [1.0, 2.0], [1.0, 1.0, 1.0]), "advantage has 3 entries; it should have 1 or 2"),
        ((Algorithm(objective="greedy"),), "closed-form step"),
    ],
)
def test_wrong_arguments_of_the_bound_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        assert_lower_bound(*arguments)
