"""The fast kernels against routes that share no code with them."""

import hashlib
import itertools
import os
import subprocess
import sys
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from seeupo_theory.tabular import kernels
from seeupo_theory.tabular.kernels import (
    COLUMNS,
    policy_gradient,
    policy_value,
    value,
    value_and_gradient,
)
from seeupo_theory.tabular.kernels_seeds import SEEDS_PER_CHUNK, run_seeds

ATOL = 1e-12
"""A few hundred roundings of numbers of order 1; a wrong term would be off by 1e-3 or more."""

SHAPES = [
    (1, (2,)),
    (3, (1,)),
    (2, (3, 2)),
    (3, (2, 3, 4)),
    (2, (1, 5, 1)),
    (1, (2, 2, 2, 2, 2, 2)),
    (2, (COLUMNS, 2)),
    (2, (2, COLUMNS + 1, 2)),
]


def problem(contexts, actions, seed=0, spread=1.5):
    rng = np.random.default_rng(seed)
    sizes = contexts * np.cumprod([1, *actions[:-1]])
    return (
        rng.normal(size=(contexts, *actions)),
        [spread * rng.normal(size=(h, a)) for h, a in zip(sizes, actions, strict=True)],
        rng.dirichlet(np.ones(contexts)),
    )


def softmax(row):
    """One row in extended precision."""
    weight = np.exp(row.astype(np.longdouble) - row.max())
    return weight / weight.sum()


def by_trajectories(rewards, logits, probs):
    """J as a sum over all trajectories, and its gradient Σ_τ P(τ) r(τ) ∇ log P(τ)."""
    total = np.longdouble(0)
    gradients = [np.zeros(table.shape, dtype=np.longdouble) for table in logits]
    for context, *actions in itertools.product(*(range(n) for n in rewards.shape)):
        history, rows, weight = context, [], np.longdouble(probs[context])
        for table, action in zip(logits, actions, strict=True):
            policy = softmax(table[history])
            rows.append((history, action, policy))
            weight = weight * policy[action]
            history = history * table.shape[1] + action
        weight = weight * rewards[(context, *actions)]
        total += weight
        for gradient, (h, action, policy) in zip(gradients, rows, strict=True):
            gradient[h] -= weight * policy
            gradient[h, action] += weight
    return total, gradients


def by_recursion(logits, rewards, probs):
    """J as a user would write it, for automatic differentiation."""
    values = rewards
    for table in reversed(logits):
        values = jnp.sum(jax.nn.softmax(table) * values.reshape(table.shape), axis=-1)
    return probs @ values


@pytest.mark.parametrize(("contexts", "actions"), SHAPES)
def test_sum_over_trajectories(contexts, actions):
    rewards, logits, probs = problem(contexts, actions)
    expected, expected_gradients = by_trajectories(rewards, logits, probs)
    j, gradients = value_and_gradient(rewards, logits, probs)
    assert j == pytest.approx(float(expected), abs=ATOL)
    assert value(rewards, logits, probs) == pytest.approx(float(expected), abs=ATOL)
    assert [g.shape for g in gradients] == [x.shape for x in logits]
    for gradient, e in zip(gradients, expected_gradients, strict=True):
        assert_allclose(gradient, e.astype(float), rtol=0, atol=ATOL)


@pytest.mark.parametrize(("contexts", "actions"), [*SHAPES, (64, (4, 4, 4)), (1, (10, 10, 10))])
def test_automatic_differentiation(contexts, actions):
    rewards, logits, probs = problem(contexts, actions, seed=1, spread=4.0)
    expected = jax.jit(jax.grad(by_recursion))(logits, rewards, probs)
    through_value = jax.jit(jax.grad(policy_value, argnums=1))(rewards.ravel(), logits, probs)
    _, gradients = value_and_gradient(rewards, logits, probs)
    for gradient, e, v in zip(gradients, expected, through_value, strict=True):
        assert_allclose(gradient, e, rtol=0, atol=ATOL)
        assert_allclose(gradient, v, rtol=0, atol=ATOL)


def test_uniform_policy_in_fractions():
    rewards = np.arange(12.0).reshape(2, 2, 3) ** 2
    exact = [Fraction(k * k) for k in range(12)]
    j, (first, second) = value_and_gradient(rewards, [np.zeros((2, 2)), np.zeros((4, 3))])
    assert j == pytest.approx(float(sum(exact) / 12), rel=1e-15)
    leaf = [
        Fraction(1, 12) * (exact[3 * h + a] - sum(exact[3 * h : 3 * h + 3]) / 3)
        for h in range(4)
        for a in range(3)
    ]
    mean = [sum(exact[3 * h : 3 * h + 3]) / 3 for h in range(4)]
    node = [
        Fraction(1, 4) * (mean[2 * c + a] - (mean[2 * c] + mean[2 * c + 1]) / 2)
        for c in range(2)
        for a in range(2)
    ]
    assert_allclose(np.ravel(second), [float(x) for x in leaf], rtol=1e-14)
    assert_allclose(np.ravel(first), [float(x) for x in node], rtol=1e-14)


problems = st.builds(
    problem,
    st.sampled_from([1, 3]),
    st.sampled_from([(2,), (3, 2), (2, 1, 3)]),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 1.0, 30.0]),
)


@settings(max_examples=25, deadline=None)
@given(problems, st.floats(-1e3, 1e3))
def test_invariances(case, shift):
    rewards, logits, probs = case
    j, gradients = value_and_gradient(rewards, logits, probs)
    # A constant added to a row of logits changes nothing, so each row of the gradient sums to 0.
    for gradient in gradients:
        assert_allclose(np.sum(gradient, axis=1), 0, atol=ATOL)
    rounding = 1e-10  # the shift rounds logits to 1e3 · 2^-53
    moved, moved_gradients = value_and_gradient(rewards, [x + shift for x in logits], probs)
    assert moved == pytest.approx(j, abs=rounding)
    # A constant added to all rewards adds to J and leaves the gradient; J is linear in rewards.
    up, up_gradients = value_and_gradient(2 * rewards + 1, logits, probs)
    assert up == pytest.approx(2 * j + 1, abs=ATOL)
    for g, m, u in zip(gradients, moved_gradients, up_gradients, strict=True):
        assert_allclose(m, g, rtol=0, atol=rounding)
        assert_allclose(u, 2 * g, rtol=0, atol=ATOL)


def test_huge_logits_do_not_overflow():
    rewards = np.array([[[1.0, 2.0], [3.0, 5.0]]])
    logits = [np.array([[1e3, -1e3]]), np.array([[1e3, 1e3], [-1e3, -1e3]])]
    j, (first, second) = value_and_gradient(rewards, logits)
    assert j == 1.5
    assert_array_equal(first, 0.0)
    assert_allclose(second, [[-0.25, 0.25], [0.0, 0.0]], rtol=0, atol=0)


def test_forbidden_actions_equal_the_smaller_bandit():
    rewards, logits, probs = problem(2, (3, 3))
    forbidden = [np.insert(x, 1, -np.inf, axis=1) for x in logits]
    dead_rows = np.arange(2 * 4) % 4 == 1
    second = np.full((8, 4), 0.0)
    second[~dead_rows] = forbidden[1]
    wide = np.insert(np.insert(rewards, 1, 7.0, axis=1), 1, -9.0, axis=2)
    j, gradients = value_and_gradient(wide, [forbidden[0], second], probs)
    expected, expected_gradients = value_and_gradient(rewards, logits, probs)
    assert j == pytest.approx(expected, abs=ATOL)
    assert_allclose(np.delete(gradients[0], 1, axis=1), expected_gradients[0], atol=ATOL)
    assert_array_equal(gradients[0][:, 1], 0.0)
    alive = np.asarray(gradients[1])[~dead_rows]
    assert_allclose(np.delete(alive, 1, axis=1), expected_gradients[1], atol=ATOL)
    assert_array_equal(alive[:, 1], 0.0)
    assert_array_equal(np.asarray(gradients[1])[dead_rows], 0.0)


def test_arguments_stay_as_they_are_and_their_kind_does_not_matter():
    rewards, logits, probs = problem(3, (2, 3, 4))
    before = [x.copy() for x in (rewards, *logits, probs)]
    j, gradients = value_and_gradient(rewards, logits, probs)
    for x, old in zip((rewards, *logits, probs), before, strict=True):
        assert_array_equal(x, old)
        x.flags.writeable = False
    as_jax = value_and_gradient(jnp.asarray(rewards), [jnp.asarray(x) for x in logits], probs)
    as_list = value_and_gradient(rewards.tolist(), [x.tolist() for x in logits], probs.tolist())
    for other in (as_jax, as_list):
        assert other[0] == j
        for a, b in zip(other[1], gradients, strict=True):
            assert_array_equal(a, b)


def test_equal_shapes_share_one_program():
    value_and_gradient(*problem(2, (2, 5)))
    programs = kernels._policy_gradient._cache_size()
    for seed in range(3):
        value_and_gradient(*problem(2, (2, 5), seed))
    assert kernels._policy_gradient._cache_size() == programs


DIGEST = """
import os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])
import hashlib, numpy as np
from seeupo_theory.tabular.kernels import value_and_gradient
rng = np.random.default_rng(0)
sizes = [7 * 13**t for t in range(4)]
j, gradients = value_and_gradient(
    rng.normal(size=(7, *(13,) * 4)), [rng.normal(size=(n, 13)) for n in sizes])
print(hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in [np.float64(j), *gradients])).hexdigest())
"""


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two cores and a way to hide one",
)
def test_results_do_not_depend_on_the_number_of_cores(tmp_path):
    environment = {**os.environ, "SEEUPO_CACHE": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    digests = [
        subprocess.run(
            [sys.executable, "-c", DIGEST, cores],
            env=environment,
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for cores in ("1", "64")
    ]
    assert len(digests[0].strip()) == hashlib.sha256().digest_size * 2
    assert digests[0] == digests[1]


def test_last_axis_is_a_batch():
    rng = np.random.default_rng(3)
    rewards = rng.normal(size=(2 * 6, 5))
    logits = [rng.normal(size=(2, 2, 5)), rng.normal(size=(4, 3, 5))]
    probs = np.array([0.25, 0.75])
    j, gradients = jax.jit(policy_gradient)(rewards, logits, probs[:, None])
    assert j.shape == (5,)
    mapped, mapped_gradients = jax.vmap(policy_gradient, (-1, -1, None), (0, -1))(
        rewards, logits, probs
    )
    assert_allclose(j, mapped, rtol=0, atol=ATOL)
    for b in range(5):
        alone, alone_gradients = value_and_gradient(
            rewards[:, b].reshape(2, 2, 3), [x[..., b] for x in logits], probs
        )
        assert float(j[b]) == pytest.approx(alone, abs=ATOL)
        for g, m, e in zip(gradients, mapped_gradients, alone_gradients, strict=True):
            assert_allclose(g[..., b], e, rtol=0, atol=ATOL)
            assert_allclose(m[..., b], e, rtol=0, atol=ATOL)


GOOD = ([[[0.0, 1.0], [2.0, 3.0]]], [[[0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]], [1.0])


@pytest.mark.parametrize(
    ("argument", "wrong", "message"),
    [
        (0, [1.0, 2.0], r"rewards has shape \(2,\): should be \[C, A_1"),
        (0, np.empty((0, 2, 2)), r"rewards has shape \(0, 2, 2\)"),
        (0, [[[0.0, np.nan], [2.0, 3.0]]], r"rewards\[0, 0, 1\] = nan: should be a finite"),
        (0, [[[0.0, 1.0], [np.inf, 3.0]]], r"rewards\[0, 1, 0\] = inf: should be a finite"),
        (0, [[[1.7e308, 1.7e308], [1.7e308, 1.7e308]]], "so large that sums of them overflow"),
        (1, GOOD[1][:1], r"logits has 1 tables: should have 2"),
        (1, [GOOD[1][0], [[0.0, 0.0]]], r"logits\[1\] has shape \(1, 2\): should be \(2, 2\)"),
        (1, [[[np.nan, 0.0]], GOOD[1][1]], r"logits\[0\]\[0, 0\] = nan"),
        (1, [GOOD[1][0], [[0.0, 0.0], [0.0, np.inf]]], r"logits\[1\]\[1, 1\] = inf"),
        (1, [GOOD[1][0], [[0.0, 0.0], [-np.inf] * 2]], r"logits\[1\]\[1\] forbids all actions"),
        (1, [[[0.0, -np.inf]], [[0.0, 0.0], [-np.inf] * 2]], r"logits\[1\]\[1\] forbids"),
        (2, [0.5, 0.5], r"context_probs has shape \(2,\): should be \(1,\)"),
        (2, [0.9], r"context_probs = \[0.9\]: should be at least 0 and sum to 1"),
        (2, [np.nan], "should be at least 0 and sum to 1"),
    ],
)
@pytest.mark.parametrize("function", [value, value_and_gradient])
def test_wrong_arguments_are_named(function, argument, wrong, message):
    arguments = list(GOOD)
    arguments[argument] = wrong
    with pytest.raises(ValueError, match=message):
        function(*arguments)


def test_an_entry_that_is_never_reached_must_still_mean_something():
    logits = [[[0.0, -np.inf]], [[0.0, 0.0], [0.0, 0.0]]]
    with pytest.raises(ValueError, match=r"rewards\[0, 1, 0\] = nan"):
        value_and_gradient([[[0.0, 1.0], [np.nan, 3.0]]], logits)


def seeds_problem(seeds, contexts=2, actions=(2, 3), seed=0):
    rng = np.random.default_rng(seed)
    sizes = contexts * np.cumprod([1, *actions[:-1]])
    logits = [rng.normal(size=(seeds, h, a)) for h, a in zip(sizes, actions, strict=True)]
    return rng.normal(size=(seeds, contexts, *actions)), logits, rng.dirichlet(np.ones(contexts))


@pytest.mark.parametrize("own_rewards", [False, True])
@pytest.mark.parametrize("own_lr", [False, True])
def test_run_seeds_is_the_plain_loop(own_rewards, own_lr):
    seeds, iterations = 3, 4
    rewards, logits, probs = seeds_problem(seeds)
    lr = np.array([0.1, 1.0, 5.0]) if own_lr else 0.7
    runs = run_seeds(rewards if own_rewards else rewards[0], logits, lr, iterations, probs)
    assert runs.status == "finished"
    assert runs.values.shape == (seeds, iterations + 1)
    for s in range(seeds):
        r, tables = rewards[s if own_rewards else 0], [x[s] for x in logits]
        for k in range(iterations + 1):
            j, gradients = value_and_gradient(r, tables, probs)
            assert runs.values[s, k] == pytest.approx(j, abs=ATOL)
            if k < iterations:
                rate = np.broadcast_to(lr, seeds)[s]
                tables = [x + rate * g for x, g in zip(tables, gradients, strict=True)]
        for final, table in zip(runs.logits, tables, strict=True):
            assert_allclose(final[s], table, rtol=0, atol=ATOL)


def test_run_seeds_chunks_and_threads_leave_no_trace():
    rewards, logits, probs = seeds_problem(2 * SEEDS_PER_CHUNK + 1, contexts=1, actions=(2, 2))
    before = [x.copy() for x in logits]
    one = run_seeds(rewards, logits, 0.5, 3, probs, threads=1)
    two = run_seeds(rewards, logits, 0.5, 3, probs, threads=2)
    assert_array_equal(one.values, two.values)
    for a, b, x, old in zip(one.logits, two.logits, logits, before, strict=True):
        assert_array_equal(a, b)
        assert_array_equal(x, old)
    for s in (0, SEEDS_PER_CHUNK, 2 * SEEDS_PER_CHUNK):  # in each chunk, the padded one as well
        alone = run_seeds(rewards[s], [x[s : s + 1] for x in logits], 0.5, 3, probs)
        assert_allclose(one.values[s], alone.values[0], rtol=0, atol=ATOL)


def test_run_seeds_without_iterations_evaluates():
    rewards, logits, probs = seeds_problem(2)
    runs = run_seeds(rewards, logits, 0.1, 0, probs)
    for s in range(2):
        expected = value(rewards[s], [x[s] for x in logits], probs)
        assert runs.values[s].tolist() == [pytest.approx(expected, abs=ATOL)]
    for final, start in zip(runs.logits, logits, strict=True):
        assert_array_equal(final, start)


def test_run_seeds_reports_overflow():
    rewards, logits, probs = seeds_problem(2)
    huge = run_seeds(1e200 * rewards, logits, [0.0, 1e200], 3, probs)
    assert huge.status == "non-finite"
    assert np.isfinite(huge.values[0]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": []}, r"logits should be T tables \[S, H_t, A_t\]"),
        ({"logits": [np.zeros((1, 2))]}, r"not of shapes \[\(1, 2\)\]"),
        ({"logits": [np.zeros((2, 1, 2)), np.zeros((3, 2, 2))]}, r"not \[2, 3\]"),
        ({"logits": [np.zeros((2, 1, 2)), np.zeros((2, 1, 2))]}, r"logits\[1\] has shape"),
        ({"rewards": np.zeros((3, 1, 2, 2))}, "rewards has 3 seeds and logits have 2"),
        ({"rewards": np.full((1, 2, 2), np.nan)}, r"= nan: should be a finite number"),
        ({"iterations": -1}, "iterations = -1: should be"),
        ({"iterations": 1.5}, "iterations = 1.5: should be"),
        ({"iterations": 10**15}, "would need 16 PB"),
        ({"threads": 0}, "threads = 0: should be at least 1"),
        ({"lr": np.nan}, "lr should be one finite number or 2"),
        ({"lr": [0.1, 0.2, 0.3]}, "lr should be one finite number or 2"),
        ({"context_probs": [0.5]}, r"context_probs = \[0.5\]"),
    ],
)
def test_run_seeds_names_wrong_arguments(change, message):
    arguments = {
        "rewards": np.zeros((1, 2, 2)),
        "logits": [np.zeros((2, 1, 2)), np.zeros((2, 2, 2))],
        "lr": 0.1,
        "iterations": 1,
    }
    with pytest.raises(ValueError, match=message):
        run_seeds(**{**arguments, **change})
