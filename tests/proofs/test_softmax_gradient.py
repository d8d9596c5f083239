"""Bounds of the softmax gradient, on the simulator's own gradient."""

import numpy as np
import pytest
from hypothesis import given, settings

import proofs
from proofs.softmax_gradient import CONVERGING, RESULTS, ascend, gaps

from .groups import ROUNDING, bandit, tables, trees


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: r.name)
def test_theorem(result):
    expected = "numerical" if result.name == "softmax-gradient-zoo" else "exact"
    assert proofs.run(result).status == expected


@given(trees(shapes=((2,), (3,), (4,), (5,)), top=1))
@settings(max_examples=40)
def test_gradient_lies_between_its_bounds(instance):
    from seeupo_theory.tabular import evaluate

    tree, policy = instance
    graph = bandit(tree).graph()
    table = tables(tree, policy)
    gradient = evaluate.gradient(graph, table)[0][0]
    rewards = np.array([float(r) for r in tree.rewards.values()])
    delta = rewards.max() - float(table[0][0] @ rewards)
    best = table[0][0][int(rewards.argmax())]
    square = float(gradient @ gradient)
    assert (best * delta) ** 2 - ROUNDING <= square <= 2 * delta**2 + ROUNDING


@given(trees(shapes=((2,), (3,), (2, 2), (2, 3))))
@settings(max_examples=20)
def test_one_step_is_the_simulator_s_gradient(instance):
    """The ascent of the proof, restarted at the uniform policy, moves along the exact gradient."""
    from seeupo_theory.tabular import evaluate

    tree, _ = instance
    model = bandit(tree)
    graph = model.graph()
    start = evaluate.uniform_policy(graph)
    slope = sum(float((g**2).sum()) for g in evaluate.gradient(graph, start))
    values = {}
    ascend(model.reward_means, model.context_probs, 2, 1e-6, lambda t, v: values.update({t: v}))
    assert values[1] == pytest.approx(evaluate.evaluate(graph, start).value, abs=ROUNDING)
    # First order in the step: the rest is of order step times curvature.
    assert (values[2] - values[1]) / 1e-6 == pytest.approx(slope, abs=1e-4, rel=1e-4)


@pytest.mark.parametrize("gap", [0.1, 0.5, 1.0])
def test_two_arms_follow_the_closed_form(gap):
    """sinh d + d = Delta t along small gradient steps."""
    step, values = 0.01, {}
    ascend(np.array([[gap, 0.0]]), np.ones(1), 4001, step, lambda t, v: values.update({t: v / gap}))
    for t in (1, 1001, 4001):
        d = float(np.log(values[t] / (1 - values[t])))
        # The error of Euler steps is of the order of one step.
        assert np.sinh(d) + d == pytest.approx(gap * step * (t - 1), abs=gap * step, rel=1e-2)


def test_only_bandits_of_the_zoo():
    with pytest.raises(TypeError, match="must be a SequentialBandit"):
        gaps("tool-use", 1)
    assert "forward-staircase" not in CONVERGING
