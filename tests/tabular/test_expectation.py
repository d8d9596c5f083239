"""Expected group advantages against brute force over ordered groups, limits and Monte Carlo."""

import itertools
import math
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from seeupo_theory.rules.advantages import ESTIMATORS
from seeupo_theory.rules.presets import PRESETS, Algorithm
from seeupo_theory.tabular import expectation
from seeupo_theory.tabular.expectation import Law, expected_parts, plan
from seeupo_theory.tabular.multisets import companions, multisets

from . import groups

ATOL = 1e-12
"""Sums of a few thousand terms of order 1, in another order."""

BETA = [0.3, 0.7]
SUPPORT = [[0.0, 1.0, 3.0], [1.0, 2.5, 2.5]]
PROBS = [[0.2, 0.5, 0.3], [0.6, 0.4, 0.0]]  # the second context has two rewards, padded to three
PAIR = ([0.3, 0.7], [[0.0, 1.0], [-1.0, 0.5]], [[0.2, 0.8], [0.6, 0.4]])
"""(context probabilities, distinct rewards, their probabilities) of two small problems."""


def algorithm(name, **switches):
    e = ESTIMATORS[name]
    return Algorithm(baseline=e.baseline, normalise=e.normalise).replace(**switches)


@partial(jax.jit, static_argnums=0)
def compiled(laws, beta, support, probs, key):
    return [expected_parts(law, beta, support, probs, key) for law in laws]


def every(laws, beta, support, probs, key=None):
    """Parts of several laws, from one compiled program."""
    beta, support, probs = (np.asarray(x, dtype=float) for x in (beta, support, probs))
    return jax.tree.map(np.asarray, compiled(tuple(laws), beta, support, probs, key))


def parts(algorithm, beta, support, probs, group=math.inf, batch=math.inf, key=None):
    return every([Law(algorithm, group, batch)], beta, support, probs, key)[0]


def plain(a):
    """The algorithm's estimator on lists."""
    return lambda batch: groups.advantages(
        batch, a.baseline, a.normalise, a.std_eps, a.advantage_clip
    )


def agree(found, positive, negative, probs):
    possible = np.asarray(probs) > 0
    assert_allclose(np.asarray(found.positive)[possible], positive[possible], atol=ATOL)
    assert_allclose(np.asarray(found.negative)[possible], negative[possible], atol=ATOL)
    assert_array_equal(found.standard_error, 0.0)


SWITCHES = [{"std_eps": 0.0}, {"std_eps": 1e-6, "advantage_clip": 0.8}]
BASELINES = ("mean", "loo", "batch", "none")


@pytest.mark.parametrize("group", [1, 2, 3, 6])
def test_group_estimators_match_all_ordered_groups(group):
    names = ("none", "grae", "rloo", "grpo")
    rules = [algorithm(name, **switches) for name in names for switches in SWITCHES]
    rules += [Algorithm(baseline=b, normalise="group") for b in ("loo", "none")]
    found = every([Law(a, group) for a in rules], BETA, SUPPORT, PROBS)
    for a, mine in zip(rules, found, strict=True):
        agree(mine, *groups.expected(BETA, SUPPORT, PROBS, group, 1, plain(a)), PROBS)


@pytest.mark.parametrize(("group", "batch"), [(1, 1), (3, 1), (2, 2), (1, 3), (2, 3)])
def test_batch_estimators_match_all_ordered_batches(group, batch):
    rules = [Algorithm(baseline=b, normalise="batch", **SWITCHES[1]) for b in BASELINES]
    rules += [Algorithm(baseline=b, normalise="batch", **SWITCHES[0]) for b in BASELINES]
    rules += [Algorithm(baseline="batch", normalise=n) for n in ("none", "group")]
    found = every([Law(a, group, batch) for a in rules], *PAIR)
    for a, mine in zip(rules, found, strict=True):
        agree(mine, *groups.expected(*PAIR, group, batch, plain(a)), PAIR[2])


@pytest.mark.parametrize("group", [1, 2, 4])
def test_infinite_batch_uses_population_statistics(group):
    rules = [
        Algorithm(baseline=b, normalise=n, std_eps=0.0, advantage_clip=1.5)
        for b in BASELINES
        for n in ("none", "group", "batch")
    ]
    found = every([Law(a, group) for a in rules], BETA, SUPPORT, PROBS)
    for a, mine in zip(rules, found, strict=True):
        rule = groups.infinite_batch(BETA, SUPPORT, PROBS, group, a)
        agree(mine, *groups.expected(BETA, SUPPORT, PROBS, group, 1, rule), PROBS)


@pytest.mark.parametrize("batch", [1, 2, 3, math.inf])
def test_infinite_groups_in_a_batch_of_contexts(batch):
    beta, support, probs = map(np.array, PAIR)
    means = (probs * support).sum(axis=1)
    variances = (probs * support**2).sum(axis=1) - means**2
    for baseline in ("mean", "batch", "none"):
        a = Algorithm(baseline=baseline, normalise="batch", std_eps=0.0)
        positive, negative = np.zeros((2, 2)), np.zeros((2, 2))
        for c in range(2):
            for more in range(batch) if batch < math.inf else [None]:
                share = beta  # of the groups of a batch; `more` others are of context 0
                weight = 1.0
                if more is not None:
                    weight = math.comb(batch - 1, more) * beta[0] ** more
                    weight *= beta[1] ** (batch - 1 - more)
                    share = np.array([more + (c == 0), batch - 1 - more + (c == 1)]) / batch
                centre = share @ means
                own = means[c] if baseline == "mean" else centre
                shift = 0.0 if baseline == "mean" else (means - centre) ** 2
                advantage = (support[c] - own) / math.sqrt(share @ (variances + shift))
                positive[c] += weight * np.maximum(advantage, 0)
                negative[c] += weight * np.maximum(-advantage, 0)
        agree(parts(a, *PAIR, math.inf, batch), positive, negative, probs)


def distances(laws, limit, problem):
    """Largest difference of E[Â] from the limit's, one a law."""
    found = every([*laws, limit], *problem)
    return [np.abs(mine.mean - found[-1].mean).max() for mine in found[:-1]]


def halves(errors, low=0.4, high=0.6):
    """Errors at doubling sizes fall like 1/size: each is about half the one before."""
    ratio = np.array(errors[1:]) / np.array(errors[:-1])
    assert ((low < ratio) & (ratio < high)).all(), ratio


@pytest.mark.parametrize("name", ["grae", "grpo", "seeupo"])
def test_finite_groups_approach_infinite_ones_at_rate_one_over_g(name):
    a = algorithm(name, std_eps=0.0)
    halves(distances([Law(a, size) for size in (24, 48, 96)], Law(a), PAIR))


@pytest.mark.parametrize("group", [2, math.inf])
def test_finite_batches_approach_infinite_ones_at_rate_one_over_b(group):
    one = ([1.0], [[0.0, 1.0]], [[0.25, 0.75]]) if group == 2 else PAIR
    a = algorithm("seeupo", std_eps=0.0)
    halves(distances([Law(a, group, b) for b in (16, 32, 64)], Law(a, group), one))


def test_large_groups_neither_overflow_nor_underflow():
    """Binomial weights of G = 1500: coefficients beyond 1e400, products below 1e-400."""
    size, p = 1500, 0.3
    found = parts(Algorithm(), [1.0], [[0.0, 1.0]], [[1 - p, p]], size)
    assert_allclose(found.mean[0], (1 - 1 / size) * np.array([-p, 1 - p]), rtol=1e-9)


def test_coefficients_of_multisets_sum_to_one():
    sets, log_coefficient = multisets(3, 4)
    p = jnp.log(jnp.asarray([0.2, 0.5, 0.3]))[jnp.asarray(sets)]
    weight = np.asarray(companions(jnp.asarray(log_coefficient), p))
    for own in range(3):
        assert weight[sets == own].sum() == pytest.approx(1.0, abs=1e-14)


# Degenerate rewards -----------------------------------------------------------------------------


@pytest.mark.parametrize("reward", [0.0, 0.1, 1.0, 1e8, -3.0])
def test_equal_rewards_give_exactly_nothing(reward):
    rules = [
        Algorithm(baseline=b, normalise=n, std_eps=eps)
        for b, n, eps in itertools.product(BASELINES, ("none", "group", "batch"), (0.0, 1e-6))
        # where nothing is compared the return is the advantage
        if (b, n) != ("none", "none") and (n != "none" or eps == 0)
    ]
    laws = [Law(a, group) for a in rules for group in (2, math.inf)]
    for found in every(laws, [1 / 3, 2 / 3], [[reward] * 2] * 2, [[0.1, 0.9], [1 / 3, 2 / 3]]):
        assert_array_equal(found.positive, 0.0)
        assert_array_equal(found.negative, 0.0)


def test_a_deterministic_policy_has_no_signal():
    """Probabilities that miss 1 by rounding must not turn into a standard deviation."""
    rules = [algorithm(name, std_eps=0.0) for name in ("grae", "grpo", "seeupo")]
    laws = [Law(a, group) for a in rules for group in (1, 3, math.inf)]
    for found in every(laws, [1.0], [[0.3, 0.7, 2.0]], [[0, 1 - 1e-16, 0]]):
        assert_array_equal(found.positive[0, 1], 0.0)
        assert_array_equal(found.negative[0, 1], 0.0)
        assert np.isfinite(found.mean).all()


@pytest.mark.parametrize("scale", [1e-150, 1e8, 1e150])
def test_standardised_advantages_do_not_depend_on_scale_or_shift(scale):
    rules = [algorithm(name, std_eps=0.0) for name in ("grpo", "seeupo")]
    laws = [Law(a, group) for a in rules for group in (3, math.inf)]
    beta, support, probs = map(np.array, PAIR)
    base = every(laws, *PAIR)
    scaled = every(laws, beta, scale * support, probs)
    shifted = every(laws, beta, 1e6 + support, probs)
    for one, two, three in zip(base, scaled, shifted, strict=True):
        assert_allclose(two.mean, one.mean, rtol=1e-9)
        assert_allclose(three.mean, one.mean, rtol=1e-8)


def test_splitting_an_atom_changes_nothing():
    laws = [Law(algorithm(name), 3) for name in ESTIMATORS]
    whole = every(laws, *PAIR)
    support = [[0.0, 1.0, 1.0], [-1.0, 0.5, 0.5]]
    cut = every(laws, PAIR[0], support, [[0.2, 0.3, 0.5], [0.6, 0.4, 0.0]])
    for one, two in zip(whole, cut, strict=True):
        assert_allclose(two.positive[:, :2], one.positive, atol=ATOL)
        assert_allclose(two.negative[:, 1], two.negative[:, 2], atol=ATOL)


# Estimators of the user's own -------------------------------------------------------------------


def above_the_best_other(returns):
    """A group estimator that no preset has: own return minus the best of the group."""
    return returns - returns.max(axis=-1, keepdims=True)


def among_group_means(returns):
    """A batch estimator: own return minus the best group mean."""
    return returns - returns.mean(axis=-1).max(axis=-1)[..., None, None]


among_group_means.couples = "batch"  # type: ignore[attr-defined]


def test_custom_group_estimator():
    a = Algorithm(estimator=above_the_best_other)
    wanted = groups.expected(
        BETA, SUPPORT, PROBS, 3, 1, lambda batch: [[x - max(batch[0]) for x in batch[0]]]
    )
    agree(parts(a, BETA, SUPPORT, PROBS, 3), *wanted, PROBS)
    with pytest.raises(ValueError, match="group_size is inf, but the limit of a custom"):
        parts(a, BETA, SUPPORT, PROBS)


def test_custom_batch_estimator():
    a = Algorithm(estimator=among_group_means)
    wanted = groups.expected(
        *PAIR, 2, 2, lambda batch: [[x - max(map(groups.mean, batch)) for x in g] for g in batch]
    )
    agree(parts(a, *PAIR, 2, 2), *wanted, PAIR[2])
    with pytest.raises(ValueError, match="contexts_per_batch is inf"):
        parts(a, *PAIR, 2)


# Monte Carlo ------------------------------------------------------------------------------------


@pytest.fixture
def tiny_limit(monkeypatch):
    monkeypatch.setattr(expectation, "MAX_ENTRIES", 0)


CASES = [("grpo", 3, math.inf), ("seeupo", 2, 2), ("seeupo", 3, math.inf), ("seeupo", math.inf, 3)]


@pytest.mark.parametrize(("name", "group", "batch"), CASES)
def test_monte_carlo_agrees_and_its_error_is_honest(name, group, batch, tiny_limit, monkeypatch):
    a = algorithm(name)
    law = Law(a, group, batch)
    assert plan(law, 2, 2).method == "monte-carlo"
    keys = jax.random.split(jax.random.key(0), 256)
    beta, support, probs = map(jnp.asarray, PAIR)
    found = jax.jit(jax.vmap(lambda k: expected_parts(law, beta, support, probs, k)))(keys)
    monkeypatch.undo()
    assert plan(law, 2, 2).method == "exact"
    exact = parts(a, *PAIR, group, batch)
    for estimate, true in (
        (found.mean, exact.mean),
        (found.positive, exact.positive),
        (found.negative, exact.negative),
    ):
        average = estimate.mean(axis=0)
        spread = estimate.std(axis=0, ddof=1)
        # the average of 256 estimates lies within 4.5 of its own standard errors
        assert (jnp.abs(average - true) <= 4.5 * spread / 16 + ATOL).all()
        # the stated error is not below the true spread (10 % is 2.3 of its standard errors)
        assert (spread <= 1.1 * found.standard_error.mean(axis=0) + ATOL).all()
    # and for the mean it is the true spread: 95 % intervals hold 95 % (4 standard errors: 5.4 %)
    noisy = np.asarray(exact.mean * 0 + found.mean.std(axis=0) > 1e-9)
    inside = jnp.abs(found.mean - exact.mean) <= 1.96 * found.standard_error
    share = np.asarray(inside.mean(axis=0))[noisy]
    assert ((share > 0.895) & (share <= 1.0)).all(), share


def test_plan_says_which_and_a_key_is_needed():
    seeupo = algorithm("seeupo")
    assert plan(Law(seeupo, 8, 32), 4, 4).method == "monte-carlo"
    assert plan(Law(seeupo, 8), 4, 4).method == "exact"
    assert plan(Law(seeupo), 10**6, 10**3).method == "exact"
    assert plan(Law(algorithm("grpo"), 8), 1, 100).method == "monte-carlo"
    assert plan(Law(PRESETS["reinforce"], 8), 1, 10**6).method == "exact"
    assert plan(Law(algorithm("reinforce++"), 8), 1, 10**6).method == "exact"
    with pytest.raises(ValueError, match="a random key must be given"):
        parts(seeupo, *PAIR, 8, 32)  # 2 contexts × 9 multisets: 32 of 18 kinds


def test_infinite_batch_falls_back_where_groups_are_too_many(tiny_limit):
    found = parts(algorithm("seeupo"), *PAIR, 3, key=jax.random.key(1))
    assert float(found.standard_error.max()) > 0


@pytest.mark.parametrize("value", [0, -1, 2.5, math.nan])
@pytest.mark.parametrize("field", ["group_size", "contexts_per_batch"])
def test_sizes_are_checked(field, value):
    with pytest.raises(ValueError, match=f"{field} is"):
        Law(Algorithm(), **{field: value})


# Known values -----------------------------------------------------------------------------------

WRONG_SIGN = ([1.0], [[0.0, 0.5, 1.5]], [[0.3, 0.5, 0.2]])
"""Arm X pays 1/2 surely, arm Y 3/2 with probability 0.4, each taken half the time."""


@pytest.mark.parametrize(
    ("group", "normalised", "centred"),
    [
        (2, 0.0707, 0.025),
        (3, 0.0893, 0.1 / 3),
        (4, 0.0772, 0.0375),
        (6, 0.0348, 0.125 / 3),
    ],
)
def test_group_std_has_the_wrong_sign_where_the_mean_alone_has_the_right_one(
    group, normalised, centred
):
    x = np.array([0.0, 1.0, 0.0])
    y = np.array([0.6, 0.0, 0.4])
    grpo = np.asarray(parts(algorithm("grpo"), *WRONG_SIGN, group).mean[0])
    assert [x @ grpo, y @ grpo] == pytest.approx([normalised, -normalised], abs=5e-5)
    grae = np.asarray(parts(algorithm("grae"), *WRONG_SIGN, group).mean[0])
    assert [x @ grae, y @ grae] == pytest.approx([-centred, centred], abs=1e-12)


@pytest.mark.parametrize("group", [2, 3, 4])
def test_own_reward_in_the_mean_costs_a_factor(group):
    shrunk = parts(algorithm("grae"), *PAIR, group).mean
    full = parts(algorithm("rloo"), *PAIR, group).mean
    exact = parts(algorithm("grae"), *PAIR).mean
    assert_allclose(full, exact, atol=ATOL)
    assert_allclose(shrunk, (1 - 1 / group) * exact, atol=ATOL)


def test_closed_form_of_linear_objectives_is_the_enumeration():
    rules = [algorithm(name) for name in ("none", "grae", "rloo")]
    laws = [Law(a, group) for a in rules for group in (1, 2, 5)]
    linear = [Law(x.algorithm.replace(objective="reinforce"), x.group_size) for x in laws]
    found = every([*laws, *linear], *PAIR)
    for one, two in zip(found[: len(laws)], found[len(laws) :], strict=True):
        assert_allclose(two.mean, one.mean, atol=ATOL)


def test_namespace_of_named_estimators_is_covered():
    """A new named estimator must be added to the brute-force comparisons above."""
    covered = {"none", "grae", "dr-grpo", "rloo", "grpo", "reinforce++", "seeupo"}
    assert set(ESTIMATORS) == covered
    assert SimpleNamespace(**vars(ESTIMATORS["dr-grpo"])) == SimpleNamespace(
        **vars(ESTIMATORS["grae"])
    )
