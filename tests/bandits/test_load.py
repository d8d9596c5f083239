"""MODEL strings."""

import pytest

from bandits import ModelError, TabularMDP, save_model, zoo
from bandits.load import load, load_entry, split_options


def test_each_kind(tmp_path):
    assert load("zoo:xor") == zoo.get("xor").model
    assert load("zoo:lock?turns=3&actions=4").actions == (4, 4, 4)
    path = tmp_path / "model.json"
    save_model(zoo.get("mixed").model, path)
    assert load(str(path)) == zoo.get("mixed").model


def test_real_input():
    pytest.importorskip("gymnasium")
    lake = load("gym:FrozenLake-v1?horizon=4&is_slippery=false&discount=0.5&map_name=8x8")
    assert isinstance(lake, TabularMDP)
    assert (lake.horizon, lake.discount, lake.states, lake.on_transition) == (4, 0.5, 64, False)
    pytest.importorskip("pyspiel")
    assert load("openspiel:tiny_hanabi").graph().leaf_means().max() == 10.0


def test_every_zoo_model_has_a_graph():
    for name in zoo.names():
        assert load(f"zoo:{name}").graph().turns >= 1


def test_entries():
    assert load_entry("zoo:stuck-tree").optimum == 1
    assert load_entry("zoo:needle?arms=5").model.actions == (5,)
    assert load_entry("model.json") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", ("a", {})),
        ("a?b=1", ("a", {"b": 1})),
        ("a?b=1.5&c=true&d=False&e=x=y", ("a", {"b": 1.5, "c": True, "d": False, "e": "x=y"})),
    ],
)
def test_options(text, expected):
    assert split_options(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "MODEL = '': should be a JSON file, zoo:NAME"),
        (None, "MODEL = None: should be"),
        ("zoo:", "MODEL = 'zoo:' has no name"),
        ("zoo:nope", "zoo:nope is unknown"),
        ("zoo:lock?turns", "option 'turns': should be key=value"),
        ("zoo:lock?turns=2&turns=3", "option 'turns' is given twice"),
        ("zoo:lock?turns=x", "turns = 'x': should be an integer"),
        ("zoo:lock?a b=3", "option 'a b=3': should be key=value"),
        ("atari:Pong", "MODEL = 'atari:Pong' has the unknown kind 'atari'"),
        ("missing.json", "missing.json: cannot be read"),
        (
            "gym:FrozenLake-v1?env_id=x",
            "gym:FrozenLake-v1?env_id=x: from_gym() got multiple values",
        ),
        ("openspiel:tiny_hanabi?text=x", "openspiel:tiny_hanabi?text=x: from_openspiel() got mult"),
    ],
)
def test_refusals(text, message):
    with pytest.raises(ModelError) as error:
        load(text)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)
