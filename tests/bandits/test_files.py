"""The file format: round trips, and every wrong file on one line."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandits import ModelError, SequentialBandit, alias, limits, zoo
from bandits.families import random_policy, uniform_policy
from bandits.files import (
    load_model,
    load_policy,
    model_from_dict,
    model_to_dict,
    read_policy,
    save_model,
    save_policy,
)

from .strategies import bandits, mdps

BANDIT = {"format": "seeupo-model/1", "kind": "bandit", "rewards": [[[0, 1], ["1/2", 0.25]]]}
MDP = {
    "format": "seeupo-model/1",
    "kind": "mdp",
    "horizon": 2,
    "discount": 1,
    "initial": [1, 0],
    "transitions": [[[1, 0], [0, 1]], [[0, 1], [0, 1]]],
    "rewards": [[1, {"values": [0, 3], "probs": ["1/3", "2/3"]}], [0, 0]],
}


def write(tmp_path, content):
    path = tmp_path / "file.json"
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return path


def test_documented_bandit(tmp_path):
    model = load_model(write(tmp_path, {**BANDIT, "rewards": [[0, "3/10"], [1, 2]]}))
    assert model.context_probs.tolist() == [0.5, 0.5]
    assert model.exact_means()[0, 1] == Fraction(3, 10)
    probs = ["1/3", "2/3"]
    weighted = load_model(
        write(tmp_path, {**BANDIT, "rewards": [[0], [1]], "context_probs": probs, "name": "b"})
    )
    assert weighted.exact_context_probs().tolist() == [Fraction(1, 3), Fraction(2, 3)]
    assert weighted.name == "b"


def test_documented_mdp(tmp_path):
    model = load_model(write(tmp_path, MDP))
    assert model.horizon == 2 and model.rewards.exact_means()[0, 1] == 2
    by_turn = {k: v for k, v in MDP.items() if k not in ("transitions", "rewards")}
    by_turn["transitions_by_turn"] = [MDP["transitions"]] * 2
    by_turn["rewards_by_turn"] = [MDP["rewards"]] * 2
    other = load_model(write(tmp_path, by_turn))
    assert not other.stationary
    policy = uniform_policy(model)
    assert np.array_equal(policy[0], uniform_policy(other)[0])
    assert other.graph().leaf_means().tolist() == model.graph().leaf_means().tolist()
    no_discount = {k: v for k, v in MDP.items() if k != "discount"}
    assert load_model(write(tmp_path, no_discount)) == model


def test_rewards_on_transitions_and_masks_and_absorbing(tmp_path):
    content = {
        **MDP,
        "rewards": [[[1, 0], [0, "1/3"]], [[0, 0], [0, 0]]],
        "mask": [[True, True], [True, False]],
        "absorbing": [False, False],
        "discount": "9/10",
    }
    model = load_model(write(tmp_path, content))
    assert model.on_transition and model.mask.tolist() == content["mask"]
    assert not model.absorbing.any() and model.discount == 0.9
    by_turn = {**content, "mask_by_turn": [content["mask"]] * 2}
    del by_turn["mask"]
    assert load_model(write(tmp_path, by_turn)).mask.shape == (2, 2, 2)


@given(st.one_of(bandits(), mdps()))
def test_content_round_trip(model):
    content = json.loads(json.dumps(model_to_dict(model)))
    again = model_from_dict(content)
    assert again == model and again.name == model.name
    assert model_to_dict(again) == content


@pytest.mark.parametrize("name", zoo.names())
def test_file_round_trip(tmp_path, name):
    model = zoo.get(name).model
    path = tmp_path / "model.json"
    save_model(model, path)
    assert load_model(path) == model == load_model(str(path))
    assert [p.name for p in tmp_path.iterdir()] == ["model.json"]


def test_maps_of_rows_are_written(tmp_path):
    model = alias(zoo.get("mixed").model, lambda turn, history: history[-1])
    save_model(model, tmp_path / "m.json")
    assert load_model(tmp_path / "m.json") == model
    function = alias(zoo.get("tool-use").model, lambda turn, history: history[-1])
    with pytest.raises(ModelError, match=r"^observe is a function"):
        save_model(function, tmp_path / "n.json")
    with pytest.raises(ModelError, match=r"^model is a int"):
        model_to_dict(3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty, should hold a JSON object"),
        (" \n", "is empty, should hold a JSON object"),
        ('{"a": 1,\n "b" 2}', "line 2, column 6: is no valid JSON"),
        ("[1, 2]", "the file holds a list, should hold a JSON object"),
        ("NaN", "NaN is no JSON number"),
        ('{"format": "seeupo-model/1", "rewards": [[Infinity]]}', "Infinity is no JSON number"),
        ('{"format": 1, "format": 2}', '"format" is given twice'),
        ("[" * 100_000, "is nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "has a number too long to read"),
        ({}, '"format" = missing: should be "seeupo-model/1"'),
        ({**BANDIT, "format": "seeupo-model/2"}, "\"format\" = 'seeupo-model/2': should be"),
        ({**BANDIT, "kind": "game"}, "\"kind\" = 'game': should be \"bandit\" or \"mdp\""),
        ({**BANDIT, "kind": []}, '"kind" = []: should be'),
        ({**BANDIT, "reward": []}, '"reward" is an unknown key, should be one of context_probs'),
        ({**BANDIT, "horizon": 3}, '"horizon" is an unknown key'),
        ({"format": "seeupo-model/1", "kind": "bandit"}, '"rewards" is missing'),
        ({**BANDIT, "rewards": 3}, '"rewards" = 3: should be a list'),
        ({**BANDIT, "rewards": [[0, 1], [2]]}, "rewards[1] has 1 entries, expected 2"),
        ({**BANDIT, "rewards": [[0, True]]}, "rewards[0][1] = True: should be a finite number"),
        ({**BANDIT, "rewards": [[0, None]]}, "rewards[0][1] = None: should be a finite number"),
        ({**BANDIT, "rewards": [[0, "x"]]}, "rewards[0][1] = 'x': should be a finite number"),
        ({**BANDIT, "rewards": [[0, {}]]}, "rewards[0][1].probs is missing"),
        ('{"format": "seeupo-model/1", "kind": "bandit", "rewards": [[1e999]]}', "rewards[0][0] = inf"),
        ({**BANDIT, "context_probs": [0.5]}, "context_probs sums to 0.5"),
        ({**BANDIT, "context_probs": 1}, "context_probs = 1.0: should be a list of probabilities"),
        ({**BANDIT, "name": 3}, "name = 3: should be a string"),
        ({**BANDIT, "shared": True}, '"shared" is true, should come with "observe"'),
        ({**BANDIT, "shared": 1}, '"shared" = 1: should be true or false'),
        ({**BANDIT, "observe": 1}, '"observe" = 1: should be a name or lists'),
        ({**BANDIT, "observe": "nope"}, "observe = 'nope': should be one of full"),
        ({**BANDIT, "observe": [[0]]}, "observe has rows for [1] nodes"),
        ({**MDP, "horizon": 0}, "horizon = 0: should be an integer of at least 1"),
        ({**MDP, "horizon": True}, "horizon = True: should be an integer"),
        ({**MDP, "horizon": 2.0}, "horizon = 2.0: should be an integer"),
        ({**MDP, "discount": 2}, "discount = 2: should be a number from 0 to 1"),
        ({**MDP, "discount": True}, "discount[0] = True"),
        ({**MDP, "initial": [1, 1]}, "initial sums to 2.0, should sum to 1"),
        ({**MDP, "initial": None}, '"initial" = None: should be a list'),
        ({**MDP, "rewards_by_turn": []}, '"rewards" and "rewards_by_turn" are both given'),
        ({k: v for k, v in MDP.items() if k != "rewards"}, '"rewards" and "rewards_by_turn" are missing'),
        ({k: v for k, v in MDP.items() if k != "horizon"}, '"horizon" is missing'),
        ({**MDP, "transitions": [[1, 0]]}, "\"transitions\" has 2 levels, should be [s][a][s']"),
        ({**MDP, "rewards": [1]}, "\"rewards\" has 1 levels, should be [s][a] or [s][a][s']"),
        ({**MDP, "transitions": [[[0.5, 0.4]]]}, "transitions[0][0] sums to 0.9"),
        ({**MDP, "mask": [[1, 1], [1, 1]]}, "mask should be lists of true and false"),
        ({**MDP, "mask": [[True], [True, False]]}, "mask should be lists of true and false"),
        ({**MDP, "mask": [[False, False], [True, True]]}, "mask[0] allows no action"),
        ({**MDP, "absorbing": [True, True]}, "absorbing[0] = True"),
        ({**MDP, "absorbing": "x"}, "absorbing should be lists of true and false"),
        ({**MDP, "rewards": [[1, 2, 3], [0, 0, 0]]}, "rewards has shape (2, 3), should be (2, 2)"),
    ],
)  # fmt: skip
def test_wrong_files_give_one_line_that_begins_with_the_path(tmp_path, content, message):
    path = write(tmp_path, content)
    with pytest.raises(ModelError) as error:
        load_model(path)
    text = str(error.value)
    assert text.startswith(f"{path}") and "\n" not in text
    found = text.removeprefix(f"{path}: ").removeprefix(f"{path} ")
    assert found.replace(": should be lists", " should be lists").startswith(message)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ModelError, match=r"none\.json: cannot be read \(No such file"):
        load_model(tmp_path / "none.json")
    with pytest.raises(ModelError, match="cannot be read"):
        load_model(tmp_path)
    binary = tmp_path / "b.json"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ModelError, match="is no text in UTF-8"):
        load_model(binary)
    with pytest.raises(ModelError, match="cannot be written"):
        save_model(zoo.get("xor").model, tmp_path / "no" / "m.json")


def test_a_file_too_large_for_the_memory_is_not_read(tmp_path, monkeypatch):
    path = write(tmp_path, BANDIT)
    monkeypatch.setattr(limits, "available_bytes", lambda: 100)
    with pytest.raises(ModelError, match=r"reading \d+ bytes of JSON would need .*, 50 bytes are"):
        load_model(path)


def test_policies(tmp_path):
    model = zoo.get("stuck-tree").model
    path = write(
        tmp_path,
        {"format": "seeupo-policy/1", "probs": [[["1/3", "2/3"]], [[0.5, 0.5], [1, 0]]]},
    )
    tables = load_policy(path, model)
    assert [t.shape for t in tables] == [(1, 2), (2, 2)]
    assert load_policy(path)[1].tolist() == [[0.5, 0.5], [1, 0]]
    assert load_policy(path, model.graph())[0][0, 0] == 1 / 3
    assert read_policy(path)[0].exact().tolist() == [[Fraction(1, 3), Fraction(2, 3)]]


@given(st.one_of(bandits(), mdps()))
def test_policy_round_trip(tmp_path_factory, model):
    path = tmp_path_factory.mktemp("policy") / "p.json"
    tables = random_policy(0, model)
    save_policy(tables, path)
    for mine, theirs in zip(load_policy(path, model), tables, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-15)
    exact = read_policy(path)
    save_policy(exact, path)
    assert all(a.same(b) for a, b in zip(read_policy(path), exact, strict=True))


POLICY = {"format": "seeupo-policy/1", "probs": [[[0.5, 0.5]], [[0.5, 0.5], [1, 0]]]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({**POLICY, "format": "seeupo-model/1"}, "\"format\" = 'seeupo-model/1': should be"),
        ({**POLICY, "extra": 1}, '"extra" is an unknown key'),
        ({"format": "seeupo-policy/1"}, '"probs" is missing'),
        ({**POLICY, "probs": []}, '"probs" is an empty list'),
        ({**POLICY, "probs": [[0.5, 0.5]]}, "probs[0] should be a table"),
        ({**POLICY, "probs": [[[0.5, 0.4]]]}, "probs[0][0] sums to 0.9"),
        ({**POLICY, "probs": [[[1.5, -0.5]]]}, "probs[0][0][1] = -0.5"),
        ({**POLICY, "probs": [[[0.5, "1/2"], [1]]]}, "probs[0][1] has 1 entries, expected 2"),
        ({**POLICY, "probs": POLICY["probs"][:1]}, "policy has 1 turns, should have 2"),
        ({**POLICY, "probs": [[[1]], [[1], [1]]]}, "policy[0] has shape (1, 1), should be (1, 2)"),
    ],
)
def test_wrong_policies(tmp_path, content, message):
    path = write(tmp_path, content)
    with pytest.raises(ModelError) as error:
        load_policy(path, zoo.get("stuck-tree").model)
    found = str(error.value).removeprefix(f"{path}: ")
    assert found.replace("[0]: should", "[0] should").startswith(message) and "\n" not in found


def test_a_whole_array_of_distributions_is_code():
    model = SequentialBandit({"values": np.zeros((1, 2, 2)), "probs": [[[1, 0], [0.5, 0.5]]]})
    assert model_from_dict(model_to_dict(model)) == model
