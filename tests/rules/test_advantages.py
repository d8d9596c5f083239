"""Advantage estimators: known values, conventions at the edges, and their exact expectations."""

import itertools
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from seeupo_theory.rules.advantages import (
    BASELINES,
    ESTIMATORS,
    NORMALISATIONS,
    Grae,
    couples,
    estimator,
    grae,
    zero_variance_share,
)

from .catalogue import BACKENDS, GRAE, VALUE_TOLERANCE

EXACT = VALUE_TOLERANCE["float64"]
PRINTED = 5e-5
"""Half a unit in the fourth decimal: known values are given to four places."""
CLOSE = 1e-6
"""Properties on returns of size up to 1000: centring them loses up to 1e-13 of the unit, and a std
may be as small as 1e-3 of the range that hypothesis leaves (see `groups`)."""
COMPARED = [rule for rule in GRAE.values() if (rule.baseline, rule.normalise) != ("none", "none")]

groups = arrays(
    np.float64,
    st.tuples(st.integers(1, 3), st.integers(1, 5)),
    elements=st.integers(-1000, 1000).map(float),
)


def centred(x):
    return [[v - sum(row) / len(row) for v in row] for row in x]


# --- known values -------------------------------------------------------------------------------


def test_the_group_is_the_task():
    """Four rollouts of one task are one group of four, not four of one (rllm #667)."""
    np.testing.assert_array_equal(grae(np.array([[1.0, 0, 0, 1]])), [[0.5, -0.5, -0.5, 0.5]])


def test_three_of_eight():
    """Relax #174."""
    r = np.array([[1.0, 1, 1, 0, 0, 0, 0, 0]])
    for name, good, bad in (
        ("grpo", 1.2076, -0.7246),
        ("dr-grpo", 0.625, -0.375),
        ("rloo", 0.7143, -0.4286),
    ):
        out = ESTIMATORS[name](r)[0]
        np.testing.assert_allclose(out[[0, -1]], [good, bad], atol=PRINTED)
    np.testing.assert_allclose(grae(r, baseline="loo"), 8 / 7 * grae(r), rtol=EXACT)


def test_leave_one_out_is_the_mean_of_the_others():
    r = np.array([[1.0, 0, 0, 0]])
    np.testing.assert_allclose(grae(r, baseline="loo"), [[1, -1 / 3, -1 / 3, -1 / 3]], rtol=EXACT)


def test_leave_one_out_never_divides_by_the_siblings_std():
    """One success: the siblings' std is 0, and advantages stay of order one (NeMo-RL #1518)."""
    r = np.array([[1.0, 0, 0, 0]])
    for eps in (0.0, 1e-6):
        out = grae(r, baseline="loo", normalise="group", std_eps=eps)
        np.testing.assert_allclose(out, [[2, -2 / 3, -2 / 3, -2 / 3]], rtol=1e-5)


def test_group_centring_is_not_batch_centring():
    """grpo-flat #2, fla #1073."""
    r = np.array([[0.0, 0, 1, 1], [10, 10, 11, 11]])
    np.testing.assert_array_equal(grae(r), [[-0.5, -0.5, 0.5, 0.5]] * 2)
    assert np.all(grae(r, baseline="batch")[0] < 0)
    np.testing.assert_array_equal(grae(r, baseline="batch"), r - 5.5)


def test_reinforce_plus_plus_is_global():
    """axolotl #3731: signs differ across groups, GRPO's are ±0.7071."""
    r = np.array([[0.0, 1], [10, 11]])
    assert np.all(ESTIMATORS["reinforce++"](r)[0] < 0)
    assert np.all(ESTIMATORS["reinforce++"](r)[1] > 0)
    np.testing.assert_allclose(
        ESTIMATORS["grpo"](r), [[-math.sqrt(0.5), math.sqrt(0.5)]] * 2, rtol=1e-5
    )


def test_normalisations_are_distinct_settings():
    """axolotl #3731: "none" is off, and is neither of the others."""
    r = np.array([[0.0, 1, 1], [0, 5, 9]])
    out = [grae(r, normalise=n) for n in NORMALISATIONS]
    np.testing.assert_array_equal(out[0], grae(r))
    for a, b in itertools.combinations(out, 2):
        assert np.max(np.abs(a - b)) > 0.1
    with pytest.raises(ValueError, match=r"normalise is False; .*none, group, batch"):
        grae(r, normalise=False)


def test_clamp_at_three():
    """One success in 256 with G = 8: 14.94 after batch normalisation, 3 with the clamp."""
    r = np.zeros((32, 8))
    r[4, 2] = 1.0
    assert ESTIMATORS["seeupo"](r)[4, 2] == pytest.approx(14.94, abs=5e-3)
    clamped = grae(r, normalise="batch", clamp=3.0)
    assert clamped[4, 2] == 3.0
    np.testing.assert_array_equal(np.delete(clamped, 4, axis=0), 0.0)


def test_cancelling_rewards():
    """TRL #3857: advantages are 0, and the share of such groups is reported."""
    r = np.array([[-3.0, 2.0], [0.0, 1.0]]) + np.array([[3.0, -2.0], [0.0, 0.0]])
    np.testing.assert_array_equal(grae(r)[0], [0.0, 0.0])
    assert zero_variance_share(r) == 0.5
    assert zero_variance_share(np.array([2.0, 2.0])) == 1.0


# --- conventions at the edges -------------------------------------------------------------------


@pytest.mark.parametrize("rule", COMPARED, ids=repr)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equal_returns_give_exactly_zero(rule, dtype):
    """ai-agent-book #498, tinker-cookbook #579: exact 0, gradient 0, nothing NaN."""
    guarded = replace(rule, std_eps=1e-6)
    slope = jax.jit(jax.grad(lambda x: jnp.sum(rule(x) * x)))
    for value in (0.0, 1.0, 1e8, -3.0, 0.1):
        for shape in ((1, 1), (1, 3), (2, 4), (3, 7)):
            r = np.full(shape, value, dtype)
            np.testing.assert_array_equal(rule(r), np.zeros(shape))
            np.testing.assert_array_equal(guarded(r), np.zeros(shape))
        r = np.full((2, 3), value, dtype)
        for backend in BACKENDS:
            out = backend.numpy(rule(backend.array(r)))
            np.testing.assert_array_equal(out, np.zeros((2, 3)))
        given_ = torch.tensor(r, requires_grad=True)
        (rule(given_) * given_.detach()).sum().backward()
        assert torch.isfinite(given_.grad).all()
        assert np.all(np.isfinite(slope(jnp.asarray(r))))


@pytest.mark.parametrize("name", ["grae", "rloo", "grpo", "seeupo"])
def test_an_equal_group_stays_zero_inside_a_batch(name):
    """Exactly: the other groups' rounding does not reach it through the batch mean."""
    for seed in range(20):
        r = np.random.default_rng(seed).normal(size=(4, 3))
        r[1] = 0.3
        np.testing.assert_array_equal(ESTIMATORS[name](r)[1], 0.0)


@pytest.mark.parametrize("baseline", ["mean", "loo"])
@pytest.mark.parametrize("normalise", NORMALISATIONS)
@pytest.mark.parametrize("eps", [0.0, 1e-6])
def test_group_of_one(baseline, normalise, eps):
    """One answer on every path (verl, TRL and AgentEvolver differ; rllm #916)."""
    r = np.array([[5.0], [7.0]])
    out = grae(r, baseline=baseline, normalise=normalise, std_eps=eps)
    np.testing.assert_array_equal(out, 0.0)
    np.testing.assert_array_equal(
        grae(np.array([5.0]), baseline=baseline, normalise=normalise, std_eps=eps), 0.0
    )


def test_group_of_one_says_what_the_documentation_says():
    import seeupo_theory.rules.advantages as module

    assert "A group of one has no others: its group-relative advantage is 0." in module.__doc__


def test_zero_std_never_divides():
    r = np.array([[2.0, 2.0], [0.0, 4.0]])
    for eps in (0.0, 1e-6):
        out = grae(r, baseline="batch", normalise="group", std_eps=eps)
        np.testing.assert_array_equal(out[0], 0.0)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_std_neither_over_nor_underflows(scale):
    r = np.array([[0.0, 1.0, 1.0]])
    small = grae(r, normalise="group", std_eps=0.0)
    np.testing.assert_allclose(grae(scale * r, normalise="group", std_eps=0.0), small, rtol=EXACT)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_returns_that_are_not_finite_are_named(bad):
    r = np.zeros((2, 3))
    r[1, 2] = bad
    for backend in BACKENDS:
        for name in ESTIMATORS:
            with pytest.raises(ValueError, match=r"returns\[1, 2\] is -?(nan|inf); .*finite"):
                ESTIMATORS[name](backend.array(r))


def test_not_finite_is_silent_while_tracing():
    r = jnp.array([[0.0, jnp.nan]])
    assert np.isnan(jax.jit(grae)(r)).any()
    assert np.isnan(jax.vmap(grae)(r[None])).any()
    assert np.isnan(jax.grad(lambda x: jnp.sum(jax.jit(grae)(x)))(r)).shape == (1, 2)
    assert torch.func.vmap(grae)(torch.tensor([[[0.0, math.nan]]])).isnan().any()


def test_a_real_error_is_not_taken_for_tracing():
    class Strange:
        def __bool__(self):
            raise RuntimeError("disk is full")

    from seeupo_theory.rules._arrays import truth

    with pytest.raises(RuntimeError, match="disk is full"):
        truth(Strange())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: grae([[1.0, 0.0]]), TypeError, "returns is a list; it should be an array"),
        (lambda: grae(np.array(1.0)), ValueError, r"returns has shape \(\)"),
        (lambda: grae(np.zeros((2, 0))), ValueError, r"shape \(2, 0\).* at least one"),
        (lambda: grae(np.zeros((0, 2))), ValueError, r"shape \(0, 2\).* at least one"),
        (lambda: grae(np.zeros((1, 2), complex)), TypeError, "complex128; it should be real"),
        (lambda: grae(np.zeros((1, 2)), baseline="median"), ValueError, "mean, loo, batch, none"),
        (lambda: grae(np.zeros((1, 2)), baseline="lo"), ValueError, "did you mean 'loo'"),
        (lambda: grae(np.zeros((1, 2)), std_eps=-1.0), ValueError, "std_eps is -1.0; .*at least 0"),
        (lambda: grae(np.zeros((1, 2)), std_eps="x"), TypeError, "std_eps is 'x'.*number"),
        (lambda: grae(np.zeros((1, 2)), ddof=2), ValueError, "ddof is 2; it should be 0 or 1"),
        (lambda: grae(np.zeros((1, 2)), clamp=0.0), ValueError, "clamp is 0.0; .*more than 0"),
        (lambda: estimator("gpro"), ValueError, "did you mean 'grpo'.*seeupo"),
    ],
)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_integers_and_numpy_scalars_are_taken():
    np.testing.assert_array_equal(grae(np.array([[1, 0]])), [[0.5, -0.5]])
    np.testing.assert_array_equal(grae(np.array([[True, False]])), [[0.5, -0.5]])
    assert grae(jnp.array([[1, 0]])).dtype == jnp.float64
    grae(np.array([[1.0, 0]]), normalise="group", std_eps=np.float32(0))


# --- laws of comparison -------------------------------------------------------------------------


@given(r=groups, seed=st.integers(0, 99))
def test_relabelling_members_relabels_advantages(r, seed):
    order = np.random.default_rng(seed).permutation(r.shape[1])
    rows = np.random.default_rng(seed).permutation(r.shape[0])
    for rule in GRAE.values():
        np.testing.assert_allclose(rule(r)[:, order], rule(r[:, order]), atol=CLOSE)
        np.testing.assert_allclose(rule(r)[rows], rule(r[rows]), atol=CLOSE)


@given(r=groups, shift=st.integers(-1000, 1000), scale=st.sampled_from([0.5, 2.0, 3.0]))
def test_shift_and_scale(r, shift, scale):
    """Only comparisons count: a common shift changes nothing; a scale is kept, or divided out."""
    for rule in GRAE.values():
        if (rule.baseline, rule.normalise) != ("none", "none") and (
            rule.baseline != "none" or rule.normalise == "batch"
        ):
            np.testing.assert_allclose(rule(r + shift), rule(r), atol=CLOSE)
        power = 1 if rule.normalise == "none" else 0
        np.testing.assert_allclose(rule(scale * r), scale**power * rule(r), atol=CLOSE)


@given(r=groups)
def test_against_definitions(r):
    """The textbook formulas with the statistics module's arithmetic."""
    import statistics

    plain = r.tolist()
    np.testing.assert_allclose(grae(r), centred(plain), atol=CLOSE)
    flat = list(itertools.chain(*plain))
    np.testing.assert_allclose(grae(r, baseline="batch"), r - statistics.fmean(flat), atol=CLOSE)
    size = r.shape[1]
    if size > 1:
        others = [[(sum(row) - v) / (size - 1) for v in row] for row in plain]
        np.testing.assert_allclose(grae(r, baseline="loo"), r - np.array(others), atol=CLOSE)
        for row, out in zip(plain, grae(r, normalise="group", std_eps=1e-3), strict=True):
            sigma = statistics.stdev(row)
            want = [(v - statistics.fmean(row)) / (sigma + 1e-3) if sigma else 0.0 for v in row]
            np.testing.assert_allclose(out, want, atol=CLOSE)
        advantages = list(itertools.chain(*centred(plain)))
        sigma = statistics.stdev(advantages)
        want = np.array(centred(plain)) / (sigma + 1e-3) if sigma > CLOSE else np.zeros(r.shape)
        np.testing.assert_allclose(grae(r, normalise="batch", std_eps=1e-3), want, atol=CLOSE)
        population = grae(r, normalise="group", std_eps=0.0, ddof=0)
        bessel = math.sqrt(size / (size - 1))
        np.testing.assert_allclose(
            population, bessel * grae(r, normalise="group", std_eps=0.0), atol=CLOSE
        )


@given(r=groups)
def test_batch_normalised_advantages_have_mean_0_and_std_1(r):
    for baseline in BASELINES:
        out = grae(r, baseline=baseline, normalise="batch", std_eps=0.0)
        assert abs(np.mean(out)) < CLOSE
        assert np.all(out == 0) or np.std(out, ddof=1) == pytest.approx(1.0, abs=CLOSE)


def test_what_an_estimator_depends_on():
    r = np.array([[0.0, 1, 1], [3.0, 5, 9]])
    moved = r + np.array([[0.0], [1.0]]) * np.array([0, 2, 5])
    for name, rule in GRAE.items():
        same = np.array_equal(rule(r)[0], rule(moved)[0])
        assert same == (couples(rule) == "group"), name
    assert couples(lambda returns: returns) == "group"


# --- exact expectations -------------------------------------------------------------------------

ARMS = (((0.5, 1.0),), ((1.5, 0.4), (0.0, 0.6)))


def expected_by_arm(rule, size):
    """E[Â | own arm] at π = (½, ½), by enumerating the others' arms and rewards."""
    atoms = [(value, prob / 2) for arm in ARMS for value, prob in arm]
    out = []
    for arm in ARMS:
        total = 0.0
        for own, own_prob in arm:
            for others in itertools.product(atoms, repeat=size - 1):
                prob = own_prob * math.prod(p for _, p in others)
                total += prob * rule(np.array([[own, *(v for v, _ in others)]]))[0, 0]
        out.append(total)
    return out


@pytest.mark.parametrize(
    ("size", "normalised", "plain"),
    [(2, 0.0707, 0.0250), (3, 0.0893, 0.0333), (4, 0.0772, 0.0375), (6, 0.0348, 0.0417)],
)
def test_group_std_has_the_wrong_sign_on_the_better_arm(size, normalised, plain):
    """Arm X pays 0.5 surely, arm Y 0.6 on average; dividing by the group's std prefers X."""
    np.testing.assert_allclose(
        expected_by_arm(Grae("mean", "group", std_eps=0.0), size),
        [normalised, -normalised],
        atol=PRINTED,
    )
    np.testing.assert_allclose(expected_by_arm(Grae("mean"), size), [-plain, plain], atol=PRINTED)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_mean_scales_the_gradient_and_leave_one_out_does_not(size):
    """E[ĝ] = (1 − 1/G) ∇J with the group mean, ∇J exactly with leave-one-out."""
    theta = np.array([0.3, -0.2, 0.5])
    reward = np.array([0.2, 1.0, -0.7])
    prob = np.exp(theta) / np.exp(theta).sum()
    true = prob * (reward - prob @ reward)
    for baseline, factor in (("mean", 1 - 1 / size), ("loo", 1.0), ("none", 1.0)):
        total = np.zeros(3)
        for actions in itertools.product(range(3), repeat=size):
            weight = prob[list(actions)].prod()
            advantage = grae(reward[list(actions)][None], baseline=baseline)[0]
            score = np.eye(3)[list(actions)] - prob
            total += weight * advantage @ score / size
        np.testing.assert_allclose(total, factor * true, atol=EXACT)
