"""Presets: every switch is validated, every row of Table 1 is there, a user's rule fits in."""

import dataclasses
import json
import sys
from textwrap import dedent

import numpy as np
import pytest

from seeupo_theory.rules import _algorithm, objectives
from seeupo_theory.rules.presets import PRESETS, Algorithm, get

TABLE_1 = {
    "ppo": ("gae", "clip", "token", "simultaneous"),
    "grpo": ("grae", "clip", "token", "simultaneous"),
    "reinforce++": ("grae", "clip", "token", "simultaneous"),
    "rloo": ("grae", "reinforce", "sequence", "simultaneous"),
    "gspo": ("grae", "clip", "length-normalised", "simultaneous"),
    "seeupo": ("grae", "clip", "sequence", "reverse"),
}


@pytest.mark.parametrize("name", TABLE_1)
def test_rows_of_table_1(name):
    a = get(name)
    assert (a.estimator, a.objective, a.level, a.order) == TABLE_1[name]


def test_every_preset_is_named_described_and_distinct():
    assert all(name == a.name and a.summary for name, a in PRESETS.items())
    bare = [dataclasses.replace(a, name="") for a in PRESETS.values()]
    assert len(set(bare)) == len(bare)
    with pytest.raises(TypeError):
        PRESETS["new"] = Algorithm()  # type: ignore[index]


def test_estimators_of_the_presets():
    scales = {name: (a.baseline, a.normalise) for name, a in PRESETS.items()}
    assert scales["grpo"] == scales["gspo"] == ("mean", "group")
    assert scales["seeupo"] == scales["seeupo-official"] == ("mean", "batch")
    assert scales["reinforce++"] == ("batch", "batch")
    assert scales["dr-grpo"] == scales["ppo-grae"] == scales["trajectory-ppo"] == ("mean", "none")
    assert scales["rloo"] == ("loo", "none")
    assert scales["reinforce"] == ("none", "none")
    assert get("seeupo").couples == get("reinforce++").couples == "batch"
    assert get("grpo").couples == get("ppo").couples == "group"


def test_official_differences_are_separate_switches():
    paper, code = get("seeupo"), get("seeupo-official")
    changed = {
        f.name
        for f in dataclasses.fields(Algorithm)
        if getattr(paper, f.name) != getattr(code, f.name)
    } - {"name", "summary"}
    assert changed == {
        "level",
        "reference",
        "epochs",
        "factor_clip",
        "product_clip",
        "advantage_clip",
    }
    for key in changed:
        one = paper.replace(**{key: getattr(code, key)})
        assert getattr(one, key) == getattr(code, key) != getattr(paper, key)


def test_bound_rules_are_the_rules():
    new, old, a = np.log(np.array([0.5, 0.2])), np.log(np.array([0.3, 0.4])), np.array([1.0, -1])
    algorithm = Algorithm(clip=(0.1, 0.3), dual_clip=2.0, normalise="group", advantage_clip=1.0)
    np.testing.assert_array_equal(
        algorithm.objective_rule()(new, old, a),
        objectives.clip(new, old, a, low=0.1, high=0.3, dual=2.0),
    )
    assert np.max(np.abs(algorithm.advantage_rule()(np.array([[0.0, 0, 0, 1]])))) == 1.0
    assert Algorithm(objective="reinforce").objective_rule() is objectives.reinforce
    with pytest.raises(ValueError, match="not a function of a group"):
        get("ppo").advantage_rule()
    with pytest.raises(ValueError, match="closed-form step"):
        get("haml").objective_rule()


WRONG = [
    ({"name": 3}, TypeError, "name is 3"),
    ({"summary": None}, TypeError, "summary is None"),
    ({"estimator": "grea"}, ValueError, "did you mean 'grae'.*gae, exact"),
    ({"baseline": "median"}, ValueError, "baseline is 'median'.*mean, loo, batch, none"),
    ({"normalise": "std"}, ValueError, "normalise is 'std'"),
    ({"std_eps": -1e-6}, ValueError, "std_eps is -1e-06"),
    ({"std_eps": float("nan")}, ValueError, "std_eps is nan"),
    ({"advantage_clip": 0}, ValueError, "advantage_clip is 0"),
    ({"objective": "ppo"}, ValueError, "objective is 'ppo'; .*reinforce, clip, greedy"),
    ({"clip": -0.1}, ValueError, "clip is -0.1"),
    ({"clip": (0.1, 0.2, 0.3)}, ValueError, "number or \\(low, high\\)"),
    ({"clip": (2.0, 0.2)}, ValueError, r"clip\[0\] is 2.0"),
    ({"clip": "0.2"}, TypeError, "clip is '0.2'; it should be a number"),
    ({"dual_clip": 1.0}, ValueError, "dual_clip is 1.0; .*more than 1"),
    ({"level": "turn"}, ValueError, "level is 'turn'"),
    ({"order": "sequential"}, ValueError, "order is 'sequential'.*simultaneous"),
    ({"order": (0, 2)}, ValueError, "each exactly once"),
    ({"order": ()}, ValueError, "order is ()"),
    ({"credit": "token"}, ValueError, "credit is 'token'"),
    ({"reference": "old"}, ValueError, "reference is 'old'"),
    ({"factor_clip": 2.0}, ValueError, "factor_clip is 2.0"),
    ({"product_clip": True}, TypeError, "product_clip is True"),
    ({"epochs": 0}, ValueError, "epochs is 0"),
    ({"epochs": 2.5}, ValueError, "epochs is 2.5"),
    ({"epochs": True}, ValueError, "epochs is True"),
    ({"lr": float("inf")}, ValueError, "lr is inf; .*finite"),
    ({"guard": 1}, TypeError, "guard is 1; it should be True or False"),
    ({"resample": "yes"}, TypeError, "resample is 'yes'"),
    ({"kl_coef": -1}, ValueError, "kl_coef is -1"),
    ({"kl_kind": "k9"}, ValueError, "kl_kind is 'k9'"),
    ({"gae_lambda": 1.1}, ValueError, "gae_lambda is 1.1"),
    ({"critic": "oracle"}, ValueError, "critic is 'oracle'"),
    ({"support": "some"}, ValueError, "support is 'some'"),
    ({"credit": "trajectory"}, ValueError, "order is 'reverse' with credit='trajectory'"),
    (
        {"credit": "trajectory", "order": "simultaneous", "estimator": "gae"},
        ValueError,
        "estimator is 'gae' with credit",
    ),
    (
        {"credit": "trajectory", "order": "simultaneous", "objective": "greedy"},
        ValueError,
        "objective is 'greedy' with credit",
    ),
]


@pytest.mark.parametrize(("switches", "error", "message"), WRONG, ids=lambda v: str(v)[:40])
def test_wrong_switches_are_errors(switches, error, message):
    with pytest.raises(error, match=message) as caught:
        Algorithm(**switches)
    assert "\n" not in str(caught.value)


def test_every_field_is_documented_and_has_a_wrong_value_above():
    fields = {f.name for f in dataclasses.fields(Algorithm)}
    for name in fields:
        assert f"        {name}:" in (_algorithm.Algorithm.__doc__ or "")
    assert fields == {key for switches, _, _ in WRONG for key in switches}


def test_unknown_keys_are_errors():
    with pytest.raises(ValueError, match=r"did you mean 'epochs'.*name, estimator, baseline"):
        get("seeupo").replace(epoch=3)
    with pytest.raises(TypeError, match="epoch"):
        Algorithm(epoch=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("seupo", ValueError, "did you mean 'seeupo'.*grpo.*module:function"),
        ("", ValueError, "algorithm is ''"),
        (None, TypeError, "algorithm is None"),
        (":f", ValueError, "module:attribute"),
        ("m:", ValueError, "module:attribute"),
        ("no_such_module:f", ValueError, "cannot be imported .*ModuleNotFoundError"),
        ("math:nothing", ValueError, "math:nothing: attribute is 'nothing'"),
        ("math:pi", ValueError, "is a float; it should be an Algorithm, an estimator"),
        ("fractions:Fraction", ValueError, "is the class Fraction"),
        ("operator:add", ValueError, "takes 2 arguments; it should take 1 .* or 4"),
    ],
)
def test_unknown_names_list_what_exists(name, error, message):
    with pytest.raises(error, match=message) as caught:
        get(name)
    assert "\n" not in str(caught.value)


@pytest.fixture
def own_rules(tmp_path, monkeypatch):
    """A module of a user's in the working directory."""
    (tmp_path / "own_rules_of_a_user.py").write_text(
        dedent(
            """
            from seeupo_theory.rules.presets import get

            def median(returns):
                import numpy as np
                return returns - np.median(returns, axis=-1, keepdims=True)

            def ranks(returns, scale=2.0):
                return scale * (returns - returns.mean())
            ranks.couples = "batch"

            def gain(log_prob, log_prob_old, advantage, weight=1.0):
                return weight * advantage * (log_prob - log_prob_old)

            def squared(log_prob, log_prob_old, advantage, weight):
                return weight * advantage**2

            def narrow(returns):
                return returns[:, 0]

            def writes(returns):
                returns[:] = returns - returns.mean()
                return returns

            def nans(returns):
                return returns * float("nan")

            def breaks(returns):
                raise KeyError("x")

            def odd(returns):
                return returns - returns.mean()
            odd.couples = "world"

            mine = get("seeupo").replace(name="mine", clip=0.1)
            """
        )
    )
    monkeypatch.chdir(tmp_path)
    yield "own_rules_of_a_user"
    sys.modules.pop("own_rules_of_a_user", None)


def test_own_rules_by_import_path(own_rules):
    before = list(sys.path)
    algorithm = get(f"{own_rules}:median")
    assert callable(algorithm.estimator)
    assert algorithm.name == f"{own_rules}:median"
    assert sys.path == before
    assert get(f"{own_rules}:ranks").couples == "batch"
    assert callable(get(f"{own_rules}:gain").objective)
    assert get(f"{own_rules}:mine").clip == 0.1
    assert get(algorithm) is algorithm
    assert algorithm.switches()["estimator"] == f"{own_rules}:median"
    for a in (algorithm, *PRESETS.values()):
        json.dumps(a.switches())


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("squared", "not positively homogeneous"),
        ("narrow", r"returns shape \(2,\) for \(2, 3\)"),
        ("writes", "writes into its argument"),
        ("nans", "not finite"),
        ("breaks", "fails on a small NumPy array .KeyError"),
        ("odd", "couples is 'world'"),
        ("medan", "did you mean 'median'"),
    ],
)
def test_own_rules_that_do_not_fit(own_rules, attribute, message):
    with pytest.raises(ValueError, match=message) as caught:
        get(f"{own_rules}:{attribute}")
    assert "\n" not in str(caught.value)


def test_unread_switches():
    assert {"baseline", "normalise", "std_eps"} <= get("ppo").unread
    assert {"factor_clip", "product_clip", "reference"} <= get("grpo").unread
    assert "support" not in get("haml").unread
    assert "lr" in get("haml-greedy").unread
    assert "lr" not in get("haml-kl").unread
    assert not {"clip", "order", "factor_clip", "std_eps"} & get("seeupo").unread
