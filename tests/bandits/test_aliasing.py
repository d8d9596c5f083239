"""Observation maps: named, as functions, as arrays; shared numbering; refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bandits import AliasedModel, ModelError, SequentialBandit, TabularMDP, alias, random_mdp, zoo
from bandits.aliasing import NAMES

from .oracle import bandit_value, graph_value, tree_value
from .strategies import bandits, mdps, seeds

MODEL = SequentialBandit(np.arange(16.0).reshape(2, 2, 2, 2))


def rows(model, *args, **kwargs):
    return [layer.rows().tolist() for layer in alias(model, *args, **kwargs).graph().layers]


def test_named_maps_of_a_bandit():
    assert rows(MODEL, "full") == rows(MODEL, "state") == [[0, 1], list(range(4)), list(range(8))]
    assert rows(MODEL, "turn") == rows(MODEL, "none") == [[0] * 2, [0] * 4, [0] * 8]
    assert rows(MODEL, "context") == [[0, 1], [0, 0, 1, 1], [0] * 4 + [1] * 4]
    assert rows(MODEL, "last-action") == [[0, 0], [1, 2, 1, 2], [1, 2, 1, 2, 1, 2, 1, 2]]


def test_shared_numbering():
    assert rows(MODEL, "full", shared=True) == [[0, 1], [2, 3, 4, 5], list(range(6, 14))]
    assert rows(MODEL, "turn", shared=True) == [[0] * 2, [1] * 4, [2] * 8]
    assert rows(MODEL, "none", shared=True) == [[0] * 2, [0] * 4, [0] * 8]
    assert alias(MODEL, "full", shared=True).graph().observations == (14, 14, 14)
    assert alias(MODEL, "turn", shared=True).graph().observations == (3, 3, 3)
    assert alias(MODEL, "none", shared=True).graph().observations == (1, 1, 1)
    assert alias(MODEL, "last-action", shared=True).graph().observations == (3, 3, 3)


def test_functions_number_rows_by_first_appearance():
    seen = []

    def last(turn, history):
        seen.append((turn, history))
        return history[-1] if turn else "start"

    model = alias(MODEL, last)
    assert [r.tolist() for r in model.observe] == [[0, 0], [0, 1, 0, 1], [0, 1, 0, 1, 0, 1, 0, 1]]
    assert seen[:6] == [(0, (0,)), (0, (1,)), (1, (0, 0)), (1, (0, 1)), (1, (1, 0)), (1, (1, 1))]
    assert [r.tolist() for r in alias(MODEL, last, shared=True).observe] == [
        [0, 0],
        [1, 2, 1, 2],
        [1, 2, 1, 2, 1, 2, 1, 2],
    ]


@given(bandits(), st.sampled_from(["full", "turn", "context", "last-action"]))
def test_named_maps_are_the_functions_they_describe(model, name):
    function = {
        "full": lambda turn, history: history,
        "turn": lambda turn, history: turn,
        "context": lambda turn, history: history[0],
        "last-action": lambda turn, history: history[-1] if turn else -1,
    }[name]
    named, called = alias(model, name).graph(), alias(model, function).graph()
    for mine, theirs in zip(named.layers, called.layers, strict=True):
        # equal up to renumbering: the same nodes see the same row
        pairs = set(zip(mine.rows().tolist(), theirs.rows().tolist(), strict=True))
        assert len(pairs) == len({p for p, _ in pairs}) == len({q for _, q in pairs})


@given(bandits(), seeds)
def test_aliased_values_are_those_of_the_spread_out_policy(model, seed):
    graph = alias(model, "context").graph()
    rng = np.random.default_rng(seed)
    policy = [rng.dirichlet(np.ones(a), size=graph.contexts) for a in graph.actions]
    full = [table[layer.rows()] for table, layer in zip(policy, graph.layers, strict=True)]
    expected = float(bandit_value(model.reward_means, model.context_probs, full))
    assert graph_value(graph, policy) == pytest.approx(expected, abs=1e-12)


def test_arrays_and_equality_and_repr():
    model = alias(MODEL, [[0, 1], [0, 0, 1, 1], np.zeros(8, int)])
    assert isinstance(model, AliasedModel)
    assert model.graph().observations == (2, 2, 1)
    assert model == alias(MODEL, [[0, 1], [0, 0, 1, 1], [0] * 8]) != alias(MODEL, "turn")
    assert alias(MODEL, "turn") != alias(MODEL, "turn", shared=True)
    names = {"SequentialBandit": SequentialBandit, "TabularMDP": TabularMDP, "alias": alias}
    for one in (model, alias(MODEL, "none", shared=True), zoo.get("tool-use-aliased").model):
        again = eval(repr(one), names)
        assert again == one and hash(again) == hash(one)
    assert (model.turns, model.horizon, model.contexts, model.actions) == (3, 3, 2, (2, 2, 2))
    assert alias(model, "turn") == alias(MODEL, "turn")  # the map is of the model itself


def test_graphs_can_be_aliased_directly():
    graph = alias(MODEL.graph(), "context")
    assert graph.observations == (2, 2, 2)
    again = alias(graph, "full")
    assert all(layer.observation is None for layer in again.layers)


@given(mdps())
def test_functions_see_states_and_actions_of_an_mdp(mdp):
    def state(turn, history):
        assert len(history) == 2 * turn + 1
        return history[-1]

    tree = mdp.graph("none")
    mine = alias(mdp, state).graph("none")
    for layer, given_layer in zip(mine.layers, tree.layers, strict=True):
        pairs = set(zip(layer.rows().tolist(), given_layer.rows().tolist(), strict=True))
        assert len(pairs) == len({p for p, _ in pairs}) == len({q for _, q in pairs})


@given(mdps(), st.sampled_from(["full", "state"]))
@settings(max_examples=40)
def test_named_maps_of_an_mdp_keep_values(mdp, name):
    for merge in ("return", "none"):
        graph = alias(mdp, name).graph(merge)
        own = mdp.graph(merge)
        rng = np.random.default_rng(0)
        table = [rng.random((own.observations[0], a)) + 0.1 for a in own.actions]
        table = [np.where(mdp.mask_by_turn(t), p, 0) for t, p in enumerate(table)]
        table = [p / p.sum(1, keepdims=True) for p in table]
        spread = [p[layer.rows()] for p, layer in zip(table, own.layers, strict=True)]
        policy = spread if name == "full" else table
        assert graph_value(graph, policy) == pytest.approx(graph_value(own, table), abs=1e-12)
        if merge == "none":
            assert tree_value(graph, policy) == pytest.approx(graph_value(own, table), abs=1e-12)


def test_state_shared_is_one_stationary_table():
    mdp = random_mdp(0, states=3, horizon=4, absorbing=1)
    graph = alias(mdp, "state", shared=True).graph()
    assert graph.observations == (3,) * 4
    own = mdp.graph()
    for mine, theirs in zip(graph.layers, own.layers, strict=True):
        assert np.array_equal(mine.rows(), theirs.rows())


def test_a_map_of_states():
    mdp = random_mdp(1, states=3, horizon=3)
    graph, own = alias(mdp, [0, 1, 1]).graph(), mdp.graph()
    assert graph.observations == (2, 2, 2)
    for mine, theirs in zip(graph.layers, own.layers, strict=True):
        assert np.array_equal(mine.rows(), np.array([0, 1, 1])[theirs.rows()])
    assert alias(mdp, [0, 0, 4]).graph().observations == (5, 5, 5)


def test_masks_follow_the_rows():
    mask = np.array([[True, False], [True, False], [True, True]])
    mdp = TabularMDP(np.full((3, 2, 3), 1 / 3), np.zeros((3, 2)), [1, 0, 0], 2, mask=mask)
    graph = alias(mdp, [0, 0, 1]).graph()
    assert graph.layers[1].mask.tolist() == [[True, False], [True, True]]
    with pytest.raises(ModelError, match=r"^observe at turn 1, node \d shares row 0 with"):
        alias(mdp, "turn").graph()


def test_no_op_turns_as_last_action():
    mdp = zoo.get("early-stop", turns=3).model
    tree = alias(mdp, "last-action").graph("none")
    assert [layer.rows().tolist() for layer in tree.layers] == [[0], [1, 2], [0, 1, 2]]
    clash = TabularMDP([[[1], [1]]], [[0, 0]], [1], 2, absorbing=[False])
    with pytest.raises(ModelError, match=r'follows two actions.*merge="none"'):
        alias(clash, "last-action").graph()


@pytest.mark.parametrize(
    ("observe", "shared", "message"),
    [
        ("nothing", False, f"observe = 'nothing': should be one of {', '.join(NAMES)}"),
        ([[0, 1], [0] * 4], False, "observe has rows for [2, 4] nodes, should have [2, 4, 8]"),
        ([[0, 1], [0] * 4, [0] * 7], False, "observe has rows for [2, 4, 7] nodes"),
        ([[0, -1], [0] * 4, [0] * 8], False, "observe[0] = [0, -1]: should be a list of non-neg"),
        ([[0, 0.5], [0] * 4, [0] * 8], False, "observe[0] = [0, 0.5]: should be a list"),
        ([0, 1], False, "observe has rows for [2] nodes"),
    ],
)
def test_wrong_maps(observe, shared, message):
    with pytest.raises(ModelError) as error:
        alias(MODEL, observe, shared=shared)
    assert str(error.value).startswith(message)


def test_other_refusals():
    unequal = SequentialBandit(np.zeros((1, 2, 3)))
    with pytest.raises(
        ModelError, match=r"^shared = True with actions \(2, 3\): should have as many"
    ):
        alias(unequal, "turn", shared=True)
    with pytest.raises(ModelError, match=r'needs a tree, graph\(merge="none"\)'):
        alias(random_mdp(0, horizon=3), lambda turn, history: 0).graph()
