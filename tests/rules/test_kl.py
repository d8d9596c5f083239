"""KL penalties: which estimator is a loss, by exact expectation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seeupo_theory.rules.kl import KL_KINDS, LOSS_KIND, kl_divergence, kl_penalty
from seeupo_theory.rules.objectives import clip, reinforce
from seeupo_theory.rules.presets import PRESETS

from .catalogue import VALUE_TOLERANCE

EXACT = VALUE_TOLERANCE["float64"]
PRINTED = 5e-6
"""Half a unit in the fifth decimal of the known values."""
REFERENCE = np.log(np.array([0.2, 0.8]))


def two_arms(t):
    """log π of two actions with logits (t, 0)."""
    return jax.nn.log_softmax(jnp.stack([t, jnp.zeros_like(t)]))


def sampled_loss_slope(kind, t=0.3):
    """d/dt of the expected estimator when the samples are not differentiated."""

    def loss(s):
        weight = jax.lax.stop_gradient(jnp.exp(two_arms(s)))
        return jnp.sum(weight * kl_penalty(two_arms(s), jnp.asarray(REFERENCE), kind))

    return float(jax.grad(loss)(jnp.asarray(t)))


def torch_slope(kind, t=0.3):
    s = torch.tensor(t, dtype=torch.float64, requires_grad=True)
    log_prob = torch.log_softmax(torch.stack([s, torch.zeros_like(s)]), 0)
    penalty = kl_penalty(log_prob, torch.tensor(REFERENCE), kind)
    (log_prob.detach().exp() * penalty).sum().backward()
    return float(s.grad)


def test_what_differentiating_the_estimators_gives():
    """open-instruct #534, NeMo-RL #2506."""
    true = jax.grad(lambda t: kl_divergence(two_arms(t), jnp.asarray(REFERENCE)))(jnp.asarray(0.3))
    other = jax.grad(lambda t: kl_divergence(jnp.asarray(REFERENCE), two_arms(t)))(jnp.asarray(0.3))
    assert float(true) == pytest.approx(0.41223, abs=PRINTED)
    for slope in (sampled_loss_slope, torch_slope):
        assert slope("k1") == pytest.approx(0.0, abs=EXACT)
        assert slope("k2") == pytest.approx(float(true), abs=EXACT)
        assert slope("k3") == pytest.approx(0.37444, abs=PRINTED)
        assert slope("k3") == pytest.approx(float(other), abs=EXACT)
        assert slope(LOSS_KIND) == pytest.approx(float(true), abs=EXACT)


@given(seed=st.integers(0, 50), actions=st.integers(2, 5))
def test_values_in_expectation(seed, actions):
    """k1 and k3 are unbiased as values; k3 and k2 are never negative."""
    rng = np.random.default_rng(seed)
    new, ref = np.log(rng.dirichlet(np.ones(actions), 2))
    true = kl_divergence(new, ref)
    scale = 1 + np.exp(np.max(ref - new))
    for kind in ("k1", "k3"):
        mean = np.sum(np.exp(new) * kl_penalty(new, ref, kind))
        assert mean == pytest.approx(true, abs=EXACT * scale)
    assert np.all(kl_penalty(new, ref, "k2") >= 0)
    assert np.all(kl_penalty(new, ref, "k3") >= 0)
    assert kl_divergence(new, new.copy()) == 0.0
    for kind in KL_KINDS:
        np.testing.assert_array_equal(kl_penalty(new, new.copy(), kind), 0.0)


@pytest.mark.parametrize("kind", ["k2", "k3"])
def test_a_step_on_the_penalty_alone_lowers_the_kl(kind):
    """RAGEN #58, ToolRL #52: all advantages 0, β > 0."""
    beta, step = 0.1, 0.5

    def objective(t, old):
        log_prob = two_arms(t)
        gain = clip(log_prob, old, jnp.zeros(2)) - beta * kl_penalty(
            log_prob, jnp.asarray(REFERENCE), kind
        )
        return jnp.sum(jnp.exp(old) * gain)

    t = jnp.asarray(0.3)
    after = t + step * jax.grad(objective)(t, two_arms(t))
    ref = jnp.asarray(REFERENCE)
    assert kl_divergence(two_arms(after), ref) < kl_divergence(two_arms(t), ref)


def test_a_step_on_plus_and_minus_one_raises_the_first():
    """fla #1073: gradient descent on the negative objective, by torch's SGD."""
    for rule in (reinforce, clip):
        logits = torch.zeros(2, dtype=torch.float64, requires_grad=True)
        old = torch.log_softmax(logits.detach(), 0)
        optimiser = torch.optim.SGD([logits], lr=0.5)
        loss = -rule(
            torch.log_softmax(logits, 0), old, torch.tensor([1.0, -1.0], dtype=torch.float64)
        ).mean()
        loss.backward()
        optimiser.step()
        assert torch.softmax(logits, 0)[0] > 0.5


@pytest.mark.parametrize("name", [n for n, a in PRESETS.items() if not a.ideal])
def test_beta_changes_the_gradient_of_every_preset(name):
    """slime #1247: with the preset's own kind of estimator."""
    algorithm = PRESETS[name].replace(kl_coef=0.1)
    rule = algorithm.objective_rule()

    def slope(beta):
        def total(t):
            log_prob = two_arms(t)
            old = jax.lax.stop_gradient(log_prob)
            gain = rule(log_prob, old, jnp.array([1.0, -0.5]), 1.0)
            penalty = kl_penalty(log_prob, jnp.asarray(REFERENCE), algorithm.kl_kind)
            return jnp.sum(jnp.exp(old) * (gain - beta * penalty))

        return float(jax.grad(total)(jnp.asarray(0.3)))

    assert abs(slope(algorithm.kl_coef) - slope(0.0)) > 0.01


@pytest.mark.parametrize("kind", KL_KINDS)
def test_masked_samples_feel_no_kl(kind):
    """A no-op turn or an environment token: value and gradient 0, whatever is written there."""
    new, ref, mask = np.array([-1.0, np.nan]), np.array([-2.0, -np.inf]), np.array([1, 0])
    assert kl_penalty(new, ref, kind, mask)[1] == 0.0

    def total(x):
        return jnp.sum(kl_penalty(x, jnp.asarray(ref), kind, jnp.asarray(mask)))

    slope = jax.grad(total)(jnp.asarray(new))
    assert slope[1] == 0.0
    assert slope[0] != 0.0


def test_actions_without_mass():
    half = np.log(np.array([0.5, 0.5]))
    with np.errstate(divide="ignore"):
        sure = np.log(np.array([1.0, 0.0]))
    assert kl_divergence(sure, half) == pytest.approx(np.log(2))
    assert kl_divergence(half, sure) == np.inf
    np.testing.assert_array_equal(
        jax.grad(lambda x: kl_divergence(x, jnp.asarray(half)))(jnp.asarray(sure))[1], 0.0
    )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: kl_penalty(x, x, "k4"), ValueError, "kind is 'k4'; .*k1, k2, k3"),
        (lambda x: kl_penalty(x, x[:1]), ValueError, "shapes differ"),
        (lambda x: kl_penalty(x, x, "k1", x[:1]), ValueError, "mask has shape"),
        (lambda x: kl_divergence(x, x[:1]), ValueError, "shapes differ"),
    ],
)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call(np.zeros(2))
