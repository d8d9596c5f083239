"""Ideal steps against independent optimisers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from seeupo_theory.rules.improvement import clip_argmax, clip_value, greedy, mirror_step
from seeupo_theory.rules.kl import kl_divergence

from .catalogue import VALUE_TOLERANCE

EXACT = VALUE_TOLERANCE["float64"]
SOLVER = 1e-8
"""HiGHS solves to a feasibility of 1e-7 by default on rows of size 1; its optimum is exact to less
because the solution is a vertex."""


@st.composite
def surrogates(draw):
    """(prob_old, positive, negative, low, high): small grids, so that slopes tie often."""
    actions = draw(st.integers(1, 5))
    counts = draw(st.lists(st.integers(0, 4), min_size=actions, max_size=actions).filter(any))
    grid = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0]), min_size=actions, max_size=actions)
    positive, negative = draw(grid), draw(grid)
    low, high = draw(st.sampled_from([0.0, 0.2, 1.0])), draw(st.sampled_from([0.0, 0.2, 0.28, 3.0]))
    prob = np.array(counts, float)
    return prob / prob.sum(), np.array(positive), np.array(negative), low, high


def linear_program(prob, positive, negative, low, high):
    """Optimum of the clipped surrogate over the simplex: p, u ≤ min, v ≥ max."""
    n = len(prob)
    eye, zero = np.eye(n), np.zeros((n, n))
    seen = prob > 0
    cost = np.concatenate([np.zeros(n), -positive * seen, negative * seen])
    above = np.block([[-eye, eye, zero], [eye, zero, -eye]])
    bounds = [(0, 1 if s else 0) for s in seen]
    bounds += [(None, (1 + high) * p) for p in prob] + [((1 - low) * p, None) for p in prob]
    solved = linprog(
        cost,
        A_ub=above,
        b_ub=np.zeros(2 * n),
        A_eq=np.concatenate([np.ones(n), np.zeros(2 * n)])[None],
        b_eq=[1.0],
        bounds=bounds,
    )
    assert solved.success
    return -solved.fun


@given(surrogates())
@settings(max_examples=150)
def test_water_filling_is_optimal(problem):
    prob, positive, negative, low, high = problem
    new = clip_argmax(*problem)
    assert np.all(new >= 0)
    assert new.sum() == pytest.approx(1.0, abs=EXACT)
    np.testing.assert_array_equal(new[prob == 0], 0.0)
    value = float(clip_value(new, prob, positive, negative, low, high))
    assert value == pytest.approx(linear_program(*problem), abs=SOLVER)


@given(surrogates(), st.integers(0, 99))
def test_water_filling_follows_the_labels(problem, seed):
    prob, positive, negative, low, high = problem
    order = np.random.default_rng(seed).permutation(len(prob))
    moved = clip_argmax(prob[order], positive[order], negative[order], low, high)
    np.testing.assert_allclose(moved, clip_argmax(*problem)[order], atol=EXACT)


def test_batched_rows_are_solved_apart():
    rng = np.random.default_rng(0)
    prob = rng.dirichlet(np.ones(4), (3, 5))
    gain, loss = rng.uniform(size=(2, 3, 5, 4))
    out = clip_argmax(prob, gain, loss)
    for at in np.ndindex(3, 5):
        np.testing.assert_allclose(out[at], clip_argmax(prob[at], gain[at], loss[at]), atol=EXACT)


def test_nothing_to_gain_changes_nothing():
    prob = np.array([0.5, 0.3, 0.2])
    np.testing.assert_allclose(clip_argmax(prob, np.zeros(3), np.zeros(3)), prob, atol=EXACT)


def test_the_value_at_the_old_policy_is_the_linear_one():
    prob, gain, loss = np.array([0.5, 0.5]), np.array([1.0, 0.0]), np.array([0.25, 2.0])
    assert clip_value(prob, prob, gain, loss) == pytest.approx(np.sum(prob * (gain - loss)))


# --- greedy -------------------------------------------------------------------------------------


def test_greedy_ties_and_actions_without_mass():
    prob = np.array([[0.2, 0.6, 0.2], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    advantage = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, -1.0], [2.0, 2.0, 0.0]])
    np.testing.assert_allclose(
        greedy(prob, advantage), [[0.25, 0.75, 0.0], [0, 1, 0], [0.5, 0.5, 0]], atol=EXACT
    )


def test_greedy_respects_masks():
    prob, advantage = np.array([0.5, 0.5, 0.0]), np.array([9.0, 1.0, 2.0])
    out = greedy(prob, advantage, np.array([0, 1, 1]))
    np.testing.assert_array_equal(out, [0, 0, 1])
    out = greedy(prob, np.array([-np.inf, 1.0, 0.0]))
    np.testing.assert_array_equal(out, [0, 1, 0])


@given(seed=st.integers(0, 99), actions=st.integers(1, 5))
def test_greedy_attains_the_maximum(seed, actions):
    rng = np.random.default_rng(seed)
    prob = rng.dirichlet(np.ones(actions))
    advantage = rng.integers(-2, 3, actions).astype(float)
    new = greedy(prob, advantage)
    assert new.sum() == pytest.approx(1.0, abs=EXACT)
    assert new @ advantage == pytest.approx(advantage.max(), abs=EXACT)


# --- mirror step --------------------------------------------------------------------------------


@given(seed=st.integers(0, 99), actions=st.integers(2, 5), step=st.floats(0.01, 10))
def test_mirror_step_beats_every_other_policy(seed, actions, step):
    """E[A] − KL/η at the solution is log E[exp(ηA)]/η and no sampled policy exceeds it."""
    rng = np.random.default_rng(seed)
    old = np.log(rng.dirichlet(np.ones(actions)))
    advantage = rng.normal(size=actions)

    def objective(log_prob):
        return np.exp(log_prob) @ advantage - kl_divergence(log_prob, old) / step

    new = mirror_step(old, advantage, step)
    best = objective(new)
    assert np.exp(new).sum() == pytest.approx(1.0, abs=EXACT)
    assert best == pytest.approx(
        np.log(np.exp(old) @ np.exp(step * advantage)) / step, abs=1e-10 / step
    )
    for other in rng.dirichlet(np.ones(actions), 20):
        assert objective(np.log(other)) <= best + EXACT / step


def test_mirror_step_limits():
    with np.errstate(divide="ignore"):
        old = np.log(np.array([0.25, 0.75, 0.0]))
    np.testing.assert_allclose(mirror_step(old, np.array([1.0, 2.0, 9.0]), 0.0), old)
    sharp = np.exp(mirror_step(old, np.array([3.0, 2.0, np.nan]), 1e6))
    np.testing.assert_array_equal(sharp, [1.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: clip_argmax(p * 2, p, p), "the sum of prob_old is 2.0; it should be 1"),
        (lambda p: clip_argmax(-p, p, p), r"prob_old\[0\] is -0.5"),
        (lambda p: clip_argmax(p, -p, p), r"positive\[0\] is -0.5; .*at least 0"),
        (lambda p: clip_argmax(p, p, p * np.nan), r"negative\[0\] is nan"),
        (lambda p: clip_argmax(p, p[:1], p), "shapes differ"),
        (lambda p: clip_argmax(p, p, p, 2.0), "low is 2.0"),
        (lambda p: clip_argmax(p, p, p, 0.1, -1.0), "high is -1.0"),
        (lambda p: greedy(p, p * np.nan), r"advantage\[0\] is nan"),
        (lambda p: greedy(p, p, 0 * p), "mask forbids every action"),
        (lambda p: greedy(p, p, p[:1]), "mask has shape"),
        (lambda p: greedy(p[:0], p[:0]), "actions"),
        (lambda p: mirror_step(p, p, -1.0), "step is -1.0"),
        (lambda p: mirror_step(p, p, p), "step has shape"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.array([0.5, 0.5]))
