"""Real input: Gymnasium's tables and OpenSpiel's games against the packages' own answers."""

import builtins
from itertools import product

import numpy as np
import pytest

from bandits import AliasedModel, ModelError, SequentialBandit, TabularMDP
from bandits.families import random_policy, uniform_policy
from bandits.games import _GameWalk
from bandits.imports import ImportedGame, from_gym, from_openspiel, mdp_from_table

from .oracle import deterministic_policies, graph_value, mdp_value, tree_value


def table_value(env_id, horizon, policy, **kwargs):
    """Value of a stationary table policy straight from env.unwrapped.P, ending at termination."""
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make(env_id, **kwargs).unwrapped
    value = np.zeros(len(env.P))
    for _ in range(horizon):
        new = np.zeros_like(value)
        for s, row in env.P.items():
            for a, outcomes in row.items():
                for prob, following, reward, over in outcomes:
                    new[s] += policy[s, a] * prob * (reward + (0 if over else value[following]))
        value = new
    return float(env.initial_state_distrib @ value)


@pytest.mark.parametrize(
    ("env_id", "horizon", "kwargs", "states"),
    [
        ("FrozenLake-v1", 12, {}, 16),
        ("FrozenLake-v1", 8, {"is_slippery": False}, 16),
        ("FrozenLake-v1", 6, {"map_name": "8x8"}, 64),
        ("CliffWalking-v1", 14, {}, 48),
        ("Taxi-v4", 4, {}, 500),
    ],
)
def test_gym_values_agree_with_the_table(env_id, horizon, kwargs, states):
    pytest.importorskip("gymnasium")
    mdp = from_gym(env_id, horizon=horizon, **kwargs)
    assert mdp.states == states and mdp.horizon == horizon and mdp.name == env_id
    for policy in (uniform_policy(mdp)[0], random_policy(0, mdp)[0]):
        expected = table_value(env_id, horizon, policy, **kwargs)
        assert mdp_value(mdp, [policy] * horizon) == pytest.approx(expected, abs=1e-11)
        assert graph_value(mdp.graph(), [policy] * horizon) == pytest.approx(expected, abs=1e-11)


def test_gym_known_answers():
    pytest.importorskip("gymnasium")
    lake = from_gym("FrozenLake-v1", is_slippery=False, horizon=6)
    assert lake.graph().leaf_means().tolist() == [0.0, 1.0]  # six steps are just enough
    assert from_gym("FrozenLake-v1", is_slippery=False, horizon=5).graph().leaf_means().max() == 0
    cliff = from_gym("CliffWalking-v1", horizon=13)
    assert cliff.graph().leaf_means().max() == -13.0 and cliff.absorbing[47]
    assert cliff.absorbing.sum() == 1
    taxi = from_gym("Taxi-v4", horizon=1)
    assert taxi.contexts == 300 and taxi.absorbing.sum() == 4  # one drop-off a place
    one = from_gym("Taxi-v4", horizon=3, start=328)
    assert one.contexts == 1 and one.initial[328] == 1.0
    assert from_gym("FrozenLake-v1").horizon == 100  # the environment's own limit
    assert lake.on_transition is False and from_gym("FrozenLake-v1").on_transition is True


@pytest.mark.parametrize(
    ("env_id", "options", "message"),
    [
        ("CliffWalking-v1", {}, "gym:CliffWalking-v1 has no limit of steps"),
        ("Taxi-v3", {"horizon": 3}, "gym:Taxi-v3 cannot be made: Environment version v3"),
        ("Blackjack-v1", {"horizon": 3}, "gym:Blackjack-v1 has no transition table"),
        ("Nope-v1", {"horizon": 3}, "gym:Nope-v1 cannot be made:"),
        ("FrozenLake-v1", {"map_name": "9x9"}, "gym:FrozenLake-v1 cannot be made: KeyError: '9x9'"),
        ("FrozenLake-v1", {"slippery": True}, "gym:FrozenLake-v1 cannot be made:"),
        ("FrozenLake-v1", {"start": 16}, "start = 16: should be a state from 0 to 15"),
        ("FrozenLake-v1", {"start": -1}, "start = -1: should be an integer"),
        ("FrozenLake-v1", {"horizon": 0}, "horizon = 0"),
    ],
)
def test_wrong_environments(env_id, options, message):
    pytest.importorskip("gymnasium")
    with pytest.raises(ModelError) as error:
        from_gym(env_id, **options)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_an_end_that_is_also_passed_through_becomes_one_more_state():
    # from 0: go to 1 and on, or to 1 and end; 1 pays
    table = {
        0: {0: [(1.0, 1, 0.0, False)], 1: [(1.0, 1, 5.0, True)]},
        1: {0: [(1.0, 1, 2.0, False)], 1: [(1.0, 1, 2.0, False)]},
    }
    mdp = mdp_from_table(table, np.array([1.0, 0.0]), 3)
    assert mdp.states == 3 and mdp.absorbing.tolist() == [False, False, True]
    assert mdp.graph().leaf_means().tolist() == [4.0, 5.0]


def test_rewards_of_one_next_state_become_a_distribution():
    table = {
        0: {0: [(0.25, 0, 1.0, False), (0.25, 0, 3.0, False), (0.5, 1, 0.0, True)]},
        1: {0: []},
    }
    mdp = mdp_from_table(table, np.array([1.0, 0.0]), 1)
    assert mdp.on_transition and mdp.rewards_by_turn(0)[0, 0] == 1.0
    graph = mdp.graph()
    assert graph.leaf_means().tolist() == [0.0, 1.0, 3.0]
    assert sorted(graph.layers[0].edge_prob) == [0.25, 0.25, 0.5]
    with pytest.raises(ModelError, match=r"^P\[0\]\[0\] is empty"):
        mdp_from_table({0: {0: []}}, np.array([1.0]), 1)
    with pytest.raises(ModelError, match=r"^initial has shape"):
        mdp_from_table({0: {0: []}}, np.ones(2), 1)


def game_value(name, choose):
    """Value of a policy by walking the game: choose(player, information state, legal) → {action: p}."""
    pyspiel = pytest.importorskip("pyspiel")

    def walk(state):
        if state.is_terminal():
            return state.returns()[0]
        if state.is_chance_node():
            return sum(p * walk(state.child(a)) for a, p in state.chance_outcomes())
        player = state.current_player()
        probs = choose(player, state.information_state_string(player), state.legal_actions())
        return sum(p * walk(state.child(a)) for a, p in probs.items())

    return walk(pyspiel.load_game(name).new_initial_state())


def test_tiny_hanabi():
    pytest.importorskip("pyspiel")
    model = from_openspiel("tiny_hanabi")
    assert isinstance(model, AliasedModel) and isinstance(model.model, SequentialBandit)
    graph = model.graph()
    assert (
        graph.contexts == 4
        and graph.actions == (3, 3)
        and graph.context_probs.tolist() == [0.25] * 4
    )
    assert graph.observations == (2, 6)
    # player 1 sees its own card alone, player 2 its own card and the first action
    assert graph.layers[0].rows().tolist() == [0, 0, 1, 1]
    assert len(set(graph.layers[1].rows()[:6])) == 6
    best = 0.0
    for first in product(range(3), repeat=2):  # the second player's best reply, row by row
        table = np.eye(3)[list(first)]
        reach = graph.context_probs[:, None] * table[graph.layers[0].rows()]
        gain = np.zeros((6, 3))
        np.add.at(
            gain, graph.layers[1].rows(), reach.reshape(-1, 1) * graph.leaf_means().reshape(-1, 3)
        )
        best = max(best, gain.max(axis=1).sum())
    assert best == 10.0  # the known optimum of the game


@pytest.mark.parametrize("name", ["tiny_hanabi", "cliff_walking(horizon=4)", "lewis_signaling"])
def test_games_agree_with_a_walk_of_their_own_states(name):
    pytest.importorskip("pyspiel")
    model = from_openspiel(name)
    graph = model.graph()
    tables = random_policy(3, graph)
    rows: dict = {}
    pyspiel = pytest.importorskip("pyspiel")
    # recover which information state each row stands for by walking layer by layer
    frontier = [pyspiel.load_game(name).new_initial_state()]

    def settle(state):
        if state.is_chance_node():
            return [s for a, _ in state.chance_outcomes() for s in settle(state.child(a))]
        return [state]

    nodes = [s for state in frontier for s in settle(state)]
    for turn, layer in enumerate(graph.layers):
        following = []
        for node, state in enumerate(nodes):
            if state.is_terminal():
                following.append(state)
                continue
            key = (state.current_player(), state.information_state_string(state.current_player()))
            rows[key] = tables[turn][layer.rows()[node]]
            following += [s for a in state.legal_actions() for s in settle(state.child(a))]
        nodes = following

    def choose(player, information, legal):
        probs = rows[player, information]
        return {a: probs[a] for a in legal}

    expected = game_value(name, choose)
    assert graph_value(graph, tables) == pytest.approx(expected, abs=1e-12)
    assert tree_value(graph, tables) == pytest.approx(expected, abs=1e-12)


def test_a_game_of_different_lengths_is_a_graph():
    pytest.importorskip("pyspiel")
    model = from_openspiel("cliff_walking", horizon=4)
    assert isinstance(model, ImportedGame)
    graph = model.graph("none")
    assert any(layer.active is not None for layer in graph.layers)
    assert (model.turns, model.horizon, model.contexts) == (4, 4, 1) and len(model.actions) == 4
    again = eval(repr(model), {"from_openspiel": from_openspiel})
    assert again == model and hash(again) == hash(model) and model != "game"
    with pytest.raises(ModelError, match=r"^merge = 'x'"):
        model.graph("x")


class FakeState:
    """A game of two players with chance in the middle, illegal moves and an early end.

    Player 0 may stop (move 7, paid 2) or go on (move 3); a coin falls; player 1, who does not see
    it after move 3 alone, has moves 0 and 3, or only 3 if the coin shows 1.
    """

    def __init__(self, history=()):
        self.history = history

    def is_terminal(self):
        return self.history == (7,) or len(self.history) == 3

    def is_chance_node(self):
        return self.history == (3,)

    def chance_outcomes(self):
        return [(0, 0.25), (1, 0.75), (2, 0.0)]

    def current_player(self):
        return min(len(self.history), 1)

    def information_state_string(self, player):
        return str(self.history)

    def legal_actions(self):
        return [3, 7] if not self.history else [[0, 3], [3]][self.history[1]]

    def child(self, move):
        return FakeState((*self.history, move))

    def returns(self):
        paid = 2.0 if self.history == (7,) else float(sum(self.history) - 3)
        return [paid, paid]


class FakeGame:
    def new_initial_state(self):
        return FakeState()


def test_chance_in_the_middle_illegal_moves_and_an_early_end():
    model = _GameWalk("fake").model(FakeGame())
    graph = model.graph()
    assert graph.actions == (2, 2) and graph.nodes == (1, 3) and graph.leaves == 4
    assert graph.layers[0].edge_prob.tolist() == [0.25, 0.75, 1.0]
    last = graph.layers[1]
    assert last.acting().tolist() == [True, True, False]
    assert last.mask[last.rows()].tolist() == [[True, True], [False, True], [True, True]]
    assert graph.leaf_means().tolist() == [0.0, 3.0, 4.0, 2.0]
    policy = [np.array([[0.5, 0.5]]), np.array([[0.5, 0.5], [0.0, 1.0], [0.5, 0.5]])]
    expected = 0.5 * (0.25 * 1.5 + 0.75 * 4.0) + 0.5 * 2.0
    assert graph_value(graph, policy) == tree_value(graph, policy) == expected


def test_lewis_signaling_optimum():
    pytest.importorskip("pyspiel")
    graph = from_openspiel(
        "lewis_signaling", num_states=2, num_messages=2, payoffs="1,0,0,1"
    ).graph()
    best = max(graph_value(graph, p) for p in deterministic_policies(graph, shared=False))
    assert best == 1.0


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("nope", {}, "openspiel:nope is no game of OpenSpiel"),
        ("kuhn_poker", {}, "openspiel:kuhn_poker is zero-sum"),
        ("goofspiel", {}, "openspiel:goofspiel is zero-sum"),
        ("matrix_coordination", {}, "openspiel:matrix_coordination has simultaneous moves"),
        ("deep_sea", {}, "openspiel:deep_sea has no information states"),
        (
            "tiny_hanabi",
            {"cards": 2},
            "openspiel:tiny_hanabi has no parameter 'cards', should be one of",
        ),
        ("bargaining", {}, "openspiel:bargaining has over 200000 states"),
        ("sheriff", {"max_bribe": 1, "max_items": 1, "num_rounds": 1}, "openspiel:sheriff"),
    ],
)
def test_wrong_games(name, params, message):
    pytest.importorskip("pyspiel")
    with pytest.raises(ModelError) as error:
        from_openspiel(name, **params)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("call", "package", "extra"),
    [
        (lambda: from_gym("FrozenLake-v1"), "gymnasium", "gym"),
        (lambda: from_openspiel("tiny_hanabi"), "pyspiel", "openspiel"),
    ],
)
def test_a_missing_package_names_its_extra(call, package, extra, monkeypatch):
    original = builtins.__import__

    def without(name, *args, **kwargs):
        if name == package:
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModelError, match=rf"is not installed: pip install 'seeupo\[{extra}\]'$"):
        call()


def test_gym_models_are_mdps():
    pytest.importorskip("gymnasium")
    mdp = from_gym("FrozenLake-v1", horizon=3, discount="9/10")
    assert isinstance(mdp, TabularMDP) and mdp.discount == 0.9
    assert eval(repr(mdp)) == mdp
