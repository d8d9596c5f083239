"""A user's own estimator or objective: searched where it fits the protocol, refused by name where not."""

import sys
import textwrap

import numpy as np
import pytest

from bandits.files import model_from_dict
from seeupo_theory import api
from seeupo_theory.claims.falsify import falsify

BUDGET = 120.0
"""Seconds; no search below needs more than a few, unless the machine is busy."""


RULES = """
    from array_api_compat import array_namespace

    def flipped(returns):
        xp = array_namespace(returns)
        return xp.mean(returns, axis=-1, keepdims=True) - returns

    def flipped_objective(log_prob, log_prob_old, advantage, weight=1):
        xp = array_namespace(log_prob)
        return -weight * advantage * xp.exp(log_prob - log_prob_old)

    def wrong_axis(returns):
        xp = array_namespace(returns)
        axis = 1 if returns.ndim > 1 else 0
        return returns - xp.mean(returns, axis=axis, keepdims=True)

    def branches(returns):
        return returns - returns.mean(axis=-1, keepdims=True) if returns.max() > 0 else returns

    def first_is_special(returns):
        return returns - returns[..., :1]

    def whole_batch(returns):
        xp = array_namespace(returns)
        return returns - xp.mean(returns, axis=(-2, -1), keepdims=True)

    def declared(returns):
        return whole_batch(returns)

    declared.couples = "batch"
"""


@pytest.fixture
def rules(tmp_path, monkeypatch):
    (tmp_path / "own_rules.py").write_text(textwrap.dedent(RULES))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_rules", raising=False)
    return "own_rules"


@pytest.mark.parametrize("function", ["flipped", "flipped_objective"])
def test_an_own_rule_with_a_sign_bug_is_falsified(rules, function):
    result = falsify(f"{rules}:{function}", actions=3, contexts=2, group_size=2, budget=BUDGET)
    assert result.found
    if function == "flipped":
        assert result.status == "numerical" and "user's own" in result.note
        rewards = result.instance["model"]["rewards"]
        assert np.array(rewards, dtype=object).shape == (1, 2)  # one context, one turn, two actions
        step = api.step(
            model_from_dict(result.instance["model"]),
            algorithm=f"{rules}:{function}",
            group_size=2,
            lr=0.1,
            epochs=1,
        )
        assert step.value_after < step.value_before


def test_an_own_estimator_of_the_batch_is_searched(rules):
    result = falsify(
        f"{rules}:declared", "sign", actions=2, turns=1, group_size=2, instances=512, budget=BUDGET
    )
    assert not result.found
    assert result.searched["settings"][0]["contexts_per_batch"] == 2


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("wrong_axis", "reduce over the last axes only"),
        ("branches", "fails on JAX arrays"),
        ("first_is_special", "does not treat the members of a group alike"),
        ("whole_batch", "couples = 'batch'"),
    ],
)
def test_a_broken_protocol_is_named(rules, function, message):
    with pytest.raises(ValueError, match=message):
        falsify(f"{rules}:{function}", "sign")
