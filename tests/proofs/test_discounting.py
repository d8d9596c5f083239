"""GAE's discounted advantages are those of the update that drops the discount."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proofs
from proofs.discounting import RESULTS, components, pessimal, value
from seeupo_theory.rules import advantages


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: r.name)
def test_theorem(result):
    assert proofs.run(result).status == "exact"


@st.composite
def processes(draw):
    """Two or three binary turns with a reward a history, probabilities of action 1, a discount."""
    turns = draw(st.integers(2, 3))
    rewards, probs = {}, {}
    for t in range(turns):
        for h in itertools.product((0, 1), repeat=t):
            probs[h] = Fraction(draw(st.integers(1, 4)), 5)
            for a in (0, 1):
                rewards[(*h, a)] = Fraction(draw(st.integers(-3, 3)))
    return turns, rewards, probs, draw(st.sampled_from([Fraction(1, 2), Fraction(9, 10)]))


def from_rule(turns, rewards, probs, gamma, estimate):
    """Sum over paths of probability times score times the rule's advantage, per probability."""
    found = dict.fromkeys(probs, 0.0)
    for path in itertools.product((0, 1), repeat=turns):
        weight = 1.0
        for t, a in enumerate(path):
            p = float(probs[path[:t]])
            weight *= p if a else 1 - p
        step_rewards = np.array([float(rewards[path[: t + 1]]) for t in range(turns)])
        values = np.array(
            [float(value(rewards, probs, gamma, turns, path[:t])) for t in range(turns)]
        )
        advantage = estimate(step_rewards, np.append(values, 0.0))
        for t, a in enumerate(path):
            p = float(probs[path[:t]])
            found[path[:t]] += weight * (1 / p if a else -1 / (1 - p)) * advantage[t]
    return found


@given(processes(), st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=30)
def test_gae_follows_the_update_without_the_discount(process, lam):
    """With exact values the expectation is the same for every lambda."""
    turns, rewards, probs, gamma = process

    def estimate(step_rewards, values):
        return advantages.gae(step_rewards, values, discount=float(gamma), lam=lam)

    found = from_rule(turns, rewards, probs, gamma, estimate)
    for h, exact in components(rewards, probs, gamma, turns, 1).items():
        assert found[h] == pytest.approx(float(exact), abs=1e-11)


@given(processes())
@settings(max_examples=30)
def test_reward_to_go_weighted_by_the_discount_is_the_gradient(process):
    turns, rewards, probs, gamma = process
    powers = float(gamma) ** np.arange(turns)

    def estimate(step_rewards, _):
        return powers * advantages.discounted_returns(step_rewards, float(gamma))

    found = from_rule(turns, rewards, probs, gamma, estimate)
    for h, exact in components(rewards, probs, gamma, turns, gamma).items():
        assert found[h] == pytest.approx(float(exact), abs=1e-11)
        step = Fraction(1, 10**6)
        up, down = ({**probs, h: probs[h] + s * step} for s in (1, -1))
        slope = (value(rewards, up, gamma, turns) - value(rewards, down, gamma, turns)) / (2 * step)
        assert slope == exact  # multilinear in the probabilities: central differences are exact


@given(st.fractions(Fraction(1, 10), Fraction(9, 10), max_denominator=10))
def test_the_trap_with_the_rule(p):
    """One probability for both turns: GAE points down, the gradient up, at every p."""
    rewards, gamma = pessimal()
    probs = dict.fromkeys([(), (0,), (1,)], p)

    def plain(step_rewards, values):
        return advantages.gae(step_rewards, values, discount=float(gamma), lam=1.0)

    def weighted(step_rewards, values):
        return float(gamma) ** np.arange(2) * plain(step_rewards, values)

    assert sum(from_rule(2, rewards, probs, gamma, plain).values()) == pytest.approx(-1, abs=1e-11)
    assert sum(from_rule(2, rewards, probs, gamma, weighted).values()) == pytest.approx(
        1, abs=1e-11
    )
