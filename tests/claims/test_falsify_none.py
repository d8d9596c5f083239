"""Searches that find nothing, overshoots, determinism, budgets and refused requests."""

import json

import pytest

from seeupo_theory.claims.falsify import Progress, falsify

BUDGET = 120.0
"""Seconds; no search below needs more than a few, unless the machine is busy."""


HOLDS = {
    "ppo-grae": {"param": "tabular", "epochs": 20},
    "seeupo": {"param": "tabular", "epochs": 20},
    "trajectory-ppo": {"param": "shared", "epochs": 2},
}


@pytest.mark.parametrize("name", HOLDS)
def test_not_found_says_how_much_was_searched(name):
    seen: list[Progress] = []
    result = falsify(
        name,
        actions=2,
        group_size=2,
        instances=2048,
        budget=BUDGET,
        progress=seen.append,
        **HOLDS[name],
    )
    assert not result.found and result.status == "not found"
    assert result.certificate is None and result.instance is None and result.statement == ""
    assert result.searched["instances"] >= 2048 and result.searched["optimiser"] > 0
    assert result.searched["violations"] == 0 and result.worst <= 1e-12
    assert str(result.searched["instances"]) in result.note
    assert "holds" not in json.dumps(result.to_dict())
    assert {p.phase for p in seen} == {"random", "optimiser"}
    assert seen[-1].instances == result.searched["instances"]


def test_overshoot_is_counted_apart():
    result = falsify(
        "seeupo", actions=2, group_size=2, lr=50.0, epochs=3, instances=4096, budget=BUDGET
    )
    assert not result.found and result.searched["violations"] == 0
    assert result.searched["overshoots"] > 0
    assert "overshoot" in result.note


def test_deterministic_given_the_seed():
    def run(seed):
        out = falsify("grpo", turns=1, actions=2, group_size=2, seed=seed, budget=BUDGET).to_dict()
        out["searched"].pop("seconds")
        return out

    assert run(3) == run(3)
    assert run(3)["instance"] != run(4)["instance"] or run(3)["searched"] != run(4)["searched"]


def test_a_budget_that_is_spent_at_once_is_not_found():
    result = falsify("grpo", turns=1, actions=2, group_size=2, budget=1e-9)
    assert not result.found and result.searched["instances"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"algorithm": "grop"}, "did you mean 'grpo'"),
        ({"property": "monotonic"}, "property is 'monotonic'"),
        ({"param": "network"}, "param is 'network'"),
        ({"reward": "binary"}, "reward is 'binary'"),
        ({"turns": 0}, "turns is 0; expected a whole number of at least 1"),
        ({"actions": 1}, r"actions\[0\] is 1; expected a whole number of at least 2"),
        ({"actions": [2, 3, 4]}, "actions has 3 entries; expected one for each of 2 turns"),
        ({"actions": [2, 3], "param": "shared"}, "needs equally many actions"),
        ({"contexts": 1.5}, "contexts is 1.5"),
        ({"turns": 9, "actions": 4}, "expected at most 4096"),
        ({"group_size": 0}, "group_size is 0"),
        ({"group_size": 600}, "too many to enumerate"),
        ({"budget": 0}, "budget is 0"),
        ({"instances": 0}, "instances is 0"),
        ({"ordr": "forward"}, "did you mean 'order'"),
        ({"algorithm": "haml-greedy", "param": "log-linear"}, "cannot represent"),
        ({"algorithm": "haml-greedy", "property": "unbiased"}, "is an ideal step"),
    ],
)
def test_wrong_requests_are_refused_before_any_work(arguments, message):
    request = {"algorithm": "grpo", **arguments}
    with pytest.raises((ValueError, TypeError), match=message):
        falsify(**request)


def test_ideal_steps_on_a_shared_table_are_shown_by_the_simulator():
    """A row written into a shared table by a trivial turn must not pass for a violation."""
    result = falsify("haml", actions=2, param="shared", instances=1024, budget=BUDGET)
    assert result.found and result.status == "numerical"
    values = [result.instance["value_before"], *result.instance["per_turn"]]
    assert values[-1] < values[0] and result.instance["surrogate_rose"]
