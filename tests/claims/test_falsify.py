"""Falls of J from nothing: found, simplified, certified, and shown again by other routes."""

import json
import shlex
from fractions import Fraction

import numpy as np
import pytest

from proofs.verifier import verify
from seeupo_theory import cli
from seeupo_theory.claims.falsify import falsify
from seeupo_theory.rules.presets import Algorithm, get

BUDGET = 120.0
"""Seconds; no search below needs more than a few, unless the machine is busy."""


INTERVAL = 2e-12
"""A certificate's interval is two decimals in the 12th place; floats are far better than that."""

REDISCOVERIES = {
    "grpo, one turn, random reward": ("grpo", {"turns": 1, "reward": "random"}),
    "grpo, two turns, deterministic reward": (
        "grpo",
        {"reward": "deterministic", "keep_turns": True},
    ),
    "seeupo, log-linear": ("seeupo", {"param": "log-linear", "reward": "deterministic"}),
    "official, shared table": ("seeupo-official", {"param": "shared", "keep_turns": True}),
}


def number(claim):
    """A claim of a certificate as a float."""
    return float(claim[0]) if isinstance(claim, list) else float(Fraction(claim))


@pytest.mark.parametrize("case", REDISCOVERIES)
def test_rediscovers_a_certified_fall(case, tmp_path, monkeypatch, capsys):
    name, options = REDISCOVERIES[case]
    result = falsify(name, actions=2, group_size=2, budget=BUDGET, **options)
    assert result.found and result.status == "certified", result.note
    assert result.effect > 0 and result.instance["surrogate_rose"]
    assert result.instance["surrogate_rise_exact"]
    if options.get("keep_turns"):
        assert len(result.instance["policy"]["probs"]) == 2

    # the verifier, which imports nothing of the search or of the simulator
    stored = json.loads(json.dumps(result.to_dict(), allow_nan=False))["certificate"]
    verdict = verify(stored)
    assert verdict.accepted, verdict.message
    claim = stored["claim"]
    longer = {**claim, "drop_at_least": "9" + claim["drop_at_least"]}
    assert not verify({**stored, "claim": longer}).accepted
    assert all(number(gain) > 0 for gain in claim["surrogate_gains"])
    assert result.instance["value_before"] == pytest.approx(
        number(claim["value_before"]), abs=INTERVAL
    )
    assert result.instance["value_after"] == pytest.approx(
        number(claim["value_after"]), abs=INTERVAL
    )
    fall = result.instance["value_before"] - result.instance["value_after"]
    assert fall >= float(claim["drop_at_least"]) > 0

    # the Python code of the result
    scope = {}
    exec(result.instance["python"], scope)
    assert scope["result"].value_after == pytest.approx(result.instance["value_after"], abs=1e-12)
    assert not scope["result"].monotone and scope["result"].surrogate_rose
    capsys.readouterr()

    # the command line of the result, with its files
    result.save(tmp_path)
    if result.instance["command"] is None:
        assert options["param"] == "log-linear"
        return
    monkeypatch.chdir(tmp_path)
    cli.main([*shlex.split(result.instance["command"])[1:], "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert shown["per_turn"] == pytest.approx(result.instance["per_turn"], abs=1e-12)
    assert not shown["monotone"] and shown["surrogate_rose"]


def test_what_is_found_is_small():
    result = falsify("grpo", turns=2, actions=3, contexts=2, group_size=2, budget=BUDGET)
    rewards = result.instance["model"]["rewards"]
    assert len(rewards) == 1  # one context
    assert np.ndim(np.empty_like(rewards, dtype=object)) <= 3
    assert len(json.dumps(result.instance["model"])) < 300


def test_an_algorithm_object_with_switches_is_reproduced():
    rule = Algorithm(order="simultaneous", normalise="group", std_eps=0.0)
    result = falsify(rule, turns=1, actions=2, group_size=2, budget=BUDGET)
    assert result.status == "certified" and result.instance["command"] is None
    scope = {}
    exec(result.instance["python"], scope)
    assert not scope["result"].monotone


def test_a_switch_without_a_flag_leaves_the_python_code():
    rule = get("seeupo-official").replace(advantage_clip=None)
    result = falsify(rule, actions=2, param="shared", group_size=2, budget=BUDGET)
    assert result.status == "certified" and result.instance["command"] is None
    scope = {}
    exec(result.instance["python"], scope)
    assert not scope["result"].monotone and scope["result"].surrogate_rose
