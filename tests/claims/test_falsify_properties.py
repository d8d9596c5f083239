"""Wrong signs, biased gradients, fixed points and falling runs, against independent routes."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from proofs.verifier import verify
from seeupo_theory.claims.falsify import falsify
from seeupo_theory.rules.presets import get

BUDGET = 120.0
"""Seconds; no search below needs more than a few, unless the machine is busy."""


def number(claim):
    """A claim of a certificate as a float."""
    return float(claim[0]) if isinstance(claim, list) else float(Fraction(claim))


def enumerated_advantage(rewards, probs, size):
    """E[Â | a] of GRPO in one turn and one context, over all groups, in plain Python."""
    atoms = [
        (a, float(Fraction(v)), float(Fraction(p)) * probs[a])
        for a, leaf in enumerate(rewards)
        for v, p in (
            zip(leaf["values"], leaf["probs"], strict=True)
            if isinstance(leaf, dict)
            else [(leaf, 1)]
        )
    ]
    total = [0.0] * len(rewards)
    for group in itertools.product(atoms, repeat=size):
        chance = math.prod(p for _, _, p in group)
        returns = np.array([r for _, r, _ in group])
        std = returns.std(ddof=1)
        own = (returns[0] - returns.mean()) / (std + 1e-6) if std > 0 else 0.0
        total[group[0][0]] += chance / probs[group[0][0]] * own
    return total


def test_wrong_sign_agrees_with_enumeration():
    result = falsify("grpo", "sign", turns=1, actions=2, group_size=3, budget=BUDGET)
    assert result.status == "certified" and verify(result.certificate).accepted
    found = result.instance
    probs = [float(Fraction(p)) for p in found["policy"]["probs"][0][0]]
    size = found["switches"]["group_size"]
    expected = enumerated_advantage(found["model"]["rewards"][0], probs, size)
    action = found["witness"]["action"]
    centred = expected[action] - np.dot(probs, expected)
    assert centred == pytest.approx(found["expected"], abs=1e-9)
    assert centred * found["exact"] < 0
    assert number(result.certificate["claim"]["expected"]) == pytest.approx(centred, abs=1e-9)


def test_biased_gradient():
    result = falsify("grpo", "unbiased", turns=1, actions=2, group_size=2, budget=BUDGET)
    assert result.status == "certified" and verify(result.certificate).accepted
    claim = result.certificate["claim"]
    inner = sum(
        number(a) * number(b) for a, b in zip(claim["expected"], claim["gradient"], strict=True)
    )
    norms = [math.sqrt(sum(number(x) ** 2 for x in claim[k])) for k in ("expected", "gradient")]
    assert inner / math.prod(norms) == pytest.approx(result.instance["cosine"], abs=1e-6)
    assert claim["relation"] == result.instance["relation"]


@pytest.mark.parametrize(("name", "factor"), [("ppo-grae", 1 / 2), ("rloo", 1.0)])
def test_a_constant_factor_is_no_bias(name, factor):
    result = falsify(name, "unbiased", actions=2, group_size=2, instances=1024, budget=BUDGET)
    assert not result.found
    assert f"between {factor:g} and {factor:g} times it" in result.note


def test_suboptimal_fixed_point_of_a_shared_table():
    result = falsify("seeupo", "global-optimum", actions=2, param="shared", budget=BUDGET)
    assert result.status == "certified" and verify(result.certificate).accepted
    assert result.instance["better_value"] > result.instance["value"]


def test_a_run_that_falls_is_numerical():
    result = falsify(
        "grpo", "global-optimum", turns=1, actions=2, group_size=2, lr=0.25, budget=BUDGET
    )
    assert result.status == "numerical" and result.certificate is None
    values = result.instance["values"]
    assert values[-1] < values[len(values) // 2] < result.instance["better_value"]


def test_greedy_steps_get_stuck_forwards_and_not_backwards():
    greedy = get("haml-greedy").replace(support="reached")
    stuck = falsify(greedy, "global-optimum", actions=2, order="forward", budget=BUDGET)
    assert stuck.status == "certified" and verify(stuck.certificate).accepted
    free = falsify(greedy, "global-optimum", actions=2, instances=4096, budget=BUDGET)
    assert not free.found
