"""Tabular MDPs: unrolling in both ways against the recursion over states, and refusals."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bandits import ModelError, TabularMDP, random_mdp, random_policy, zoo
from bandits.families import uniform_policy

from .oracle import graph_value, mdp_trajectories, mdp_value, tree_value
from .strategies import mdps, seeds, tables

STAY, LEAVE = [1, 0], [0, 1]


def two_state(**options) -> TabularMDP:
    return TabularMDP(
        [[STAY, LEAVE], [LEAVE, LEAVE]], [[1, 5], [0, 0]], [1, 0], **{"horizon": 3, **options}
    )


def test_absorbing_states_are_found_and_end_the_episode():
    mdp = two_state()
    assert mdp.absorbing.tolist() == [False, True]
    graph = mdp.graph()
    assert [layer.acting().tolist() for layer in graph.layers] == [
        [True],
        [True, False],
        [True, False, False],
    ]
    assert graph.leaf_means().tolist() == [3.0, 5.0, 6.0, 7.0]
    assert [r.tolist() for r in graph.node_return] == [[0.0], [1.0, 5.0], [2.0, 5.0, 6.0]]
    paying = TabularMDP([[STAY, LEAVE], [LEAVE, LEAVE]], [[1, 5], [0, 1]], [1, 0], 3)
    assert not paying.absorbing.any()


def test_no_op_turns_have_one_child():
    for merge in ("return", "none"):
        for layer in two_state().graph(merge).layers:
            edges = layer.edges()
            for node in np.flatnonzero(~layer.acting()):
                mine = edges.source == node
                assert mine.sum() == 2 and len(set(edges.target[mine])) == 1


def test_a_reward_of_zero_in_two_ways_is_one_outcome():
    nothing = {"values": [0, 0], "probs": [0.5, 0.5]}
    mdp = TabularMDP([[LEAVE], [LEAVE]], [[1], [nothing]], [1, 0], 3)
    assert mdp.absorbing.tolist() == [False, True]
    tree = mdp.graph("none")
    assert [layer.edge_prob.tolist() for layer in tree.layers] == [[1.0], [1.0], [1.0]]


def test_returns_that_differ_by_rounding_are_merged():
    assert 0.1 + 0.2 + 0.3 != 0.3 + 0.2 + 0.1
    rewards = [[[0.1, 0.3]], [[0.2, 0.2]], [[0.3, 0.1]]]
    mdp = TabularMDP([[[1], [1]]], rewards, [1], 3)
    np.testing.assert_allclose(mdp.graph().leaf_means(), [0.4, 0.6, 0.8], rtol=1e-15)
    assert mdp.graph("none").leaves == 8


def test_nearby_returns_are_kept_apart():
    mdp = TabularMDP([[[1], [1]]], [[1.0, 1.0 + 1e-9]], [1], 1)
    assert mdp.graph().leaves == 2


@given(mdps().flatmap(lambda m: tables(m).map(lambda p: (m, p))))
@settings(max_examples=60)
def test_four_routes_to_the_value_agree(mdp_and_policy):
    mdp, policy = mdp_and_policy
    expected = mdp_value(mdp, policy)
    tree = mdp.graph("none")
    assert graph_value(mdp.graph(), policy) == pytest.approx(expected, abs=1e-12)
    assert graph_value(tree, policy) == pytest.approx(expected, abs=1e-12)
    assert tree_value(tree, policy) == pytest.approx(expected, abs=1e-12)
    paths = mdp_trajectories(
        mdp.transitions_by_turn,
        mdp.rewards_by_turn,
        mdp.initial,
        mdp.horizon,
        mdp.discount,
        lambda turn, state: policy[turn][state],
    )
    assert sum(p * r for p, r in paths) == pytest.approx(expected, abs=1e-12)


def _distribution(graph, policy):
    """Distribution of the return, by context: {(context, return): probability}."""
    reach = graph.context_probs
    for layer, table in zip(graph.layers, policy, strict=True):
        edges = layer.edges()
        flow = (reach * 1.0)[edges.source] * table[layer.rows()[edges.source], edges.action]
        size = layer.children
        reach = np.bincount(edges.target, flow * edges.prob, minlength=size)
    out = {}
    for c, v, p in zip(graph.leaf_contexts(), graph.leaf_means(), reach, strict=True):
        key = (int(c), round(float(v), 9) + 0.0)
        out[key] = out.get(key, 0.0) + p
    return {k: p for k, p in out.items() if p > 1e-15}


@given(mdps().flatmap(lambda m: tables(m).map(lambda p: (m, p))))
@settings(max_examples=60)
def test_merging_keeps_the_distribution_of_returns(mdp_and_policy):
    mdp, policy = mdp_and_policy
    merged, tree = (_distribution(mdp.graph(m), policy) for m in ("return", "none"))
    assert merged.keys() == tree.keys()
    for key, prob in merged.items():
        assert prob == pytest.approx(tree[key], abs=1e-12)


@given(mdps())
def test_repr_rebuilds_the_model(mdp):
    again = eval(repr(mdp), {"TabularMDP": TabularMDP})
    assert again == mdp and hash(again) == hash(mdp) and again.name == mdp.name


@given(mdps())
def test_every_node_is_reached_and_masks_are_kept(mdp):
    graph = mdp.graph()
    for turn, layer in enumerate(graph.layers):
        edges = layer.edges()
        size = graph.layers[turn + 1].nodes if turn + 1 < graph.turns else graph.leaves
        assert set(edges.target.tolist()) == set(range(size))
        assert (edges.prob > 0).all()
        assert mdp.mask_by_turn(turn)[layer.rows()[edges.source], edges.action].all()
        assert layer.observations == mdp.states
    assert (np.diff(graph.layers[0].rows()) > 0).all() or graph.contexts == 1


def test_mask_limits_what_is_reached():
    mask = [[True, False], [True, True]]
    graph = two_state(mask=mask).graph()
    assert graph.nodes == (1, 1, 1) and graph.leaf_means().tolist() == [3.0]
    assert graph.layers[0].mask.tolist() == mask
    by_turn = two_state(mask=[mask, mask, [[True, True]] * 2])
    assert not by_turn.stationary
    assert by_turn.graph().leaf_means().tolist() == [3.0, 7.0]


def test_contexts_are_initial_states_of_positive_probability():
    mdp = TabularMDP([[[1, 0, 0]]] * 3, [[1], [2], [3]], ["1/4", 0, "3/4"], 2)
    graph = mdp.graph()
    assert mdp.contexts == graph.contexts == 2
    assert graph.context_probs.tolist() == [0.25, 0.75]
    assert graph.layers[0].rows().tolist() == [0, 2]
    assert graph.leaf_means().tolist() == [2.0, 4.0]


def test_discount_weights_each_turn():
    mdp = TabularMDP([[[1]]], [[1]], [1], 4, discount="1/2")
    assert mdp.graph().leaf_means().tolist() == [1 + 0.5 + 0.25 + 0.125]
    assert [r.tolist() for r in mdp.graph().node_return] == [[0], [1], [1.5], [1.75]]
    assert TabularMDP([[[1]]], [[1]], [1], 4, discount=0).graph().leaf_means().tolist() == [1.0]


def test_rewards_on_transitions_go_with_the_next_state():
    half = [0.5, 0.5]
    on_next = TabularMDP([[half], [[0, 1]]], [[[0, 1]], [[0, 0]]], [1, 0], 3, on_transition=True)
    assert on_next.absorbing.tolist() == [False, True]
    assert on_next.rewards_by_turn(0).tolist() == [[0.5], [0.0]]
    graph = on_next.graph()
    assert graph.leaf_means().tolist() == [0.0, 1.0]  # never paid twice
    value = graph_value(graph, uniform_policy(graph))
    assert value == pytest.approx(mdp_value(on_next, uniform_policy(graph)), abs=1e-15) == 0.875
    mixed = TabularMDP(
        [[half], [[0, 1]]],
        [[[0, {"values": [1, 3], "probs": [0.5, 0.5]}]], [[0, 0]]],
        [1, 0],
        1,
        on_transition=True,
    )
    assert sorted(mixed.graph().leaf_means()) == [0.0, 1.0, 3.0]


def test_random_rewards_branch():
    coin = {"values": [0, 1], "probs": ["1/4", "3/4"]}
    graph = TabularMDP([[[1]]], [[coin]], [1], 2).graph()
    assert graph.leaf_means().tolist() == [0.0, 1.0, 2.0] and graph.atoms == 1
    reach = graph.layers[0].edge_prob
    assert reach.tolist() == [0.25, 0.75]


@given(seeds, st.booleans())
def test_tables_by_turn_agree_with_stationary_ones(seed, paid_only):
    mdp = random_mdp(seed, states=3, actions=2, horizon=3)
    transitions, rewards = mdp.transitions, mdp.rewards.means
    by_turn = TabularMDP(
        transitions if paid_only else np.stack([transitions] * 3),
        np.stack([rewards] * 3),
        mdp.initial,
        3,
    )
    assert mdp.stationary and not by_turn.stationary
    policy = random_policy(seed, mdp)
    mine, theirs = by_turn.graph(), mdp.graph()
    assert mine.nodes == theirs.nodes
    assert graph_value(mine, policy) == graph_value(theirs, policy)


def test_exact_views():
    mdp = zoo.get("tool-use").model
    assert (mdp.exact_transitions().sum(axis=-1) == 1).all()
    assert mdp.exact_initial().tolist() == [1, 0, 0, 0]
    assert mdp.rewards.exact_means()[1, 0] == Fraction(9, 10)
    assert (mdp.exact_reward_probs().sum(axis=-1) == 1).all()
    assert mdp.exact_rewards().shape == (4, 3, 2)
    assert mdp.actions == (3,) * 4 and mdp.turns == 4


def test_explicit_absorbing_flags():
    assert not two_state(absorbing=[False, False]).absorbing.any()
    plain, flagged = two_state(absorbing=[False, False]), two_state()
    assert plain != flagged
    assert eval(repr(plain)) == plain
    assert plain.graph().layers[1].active is None
    policy = random_policy(0, flagged)
    assert graph_value(plain.graph(), policy) == pytest.approx(
        graph_value(flagged.graph(), policy), abs=1e-12
    )


BASE = {
    "transitions": [[STAY, LEAVE], [LEAVE, LEAVE]],
    "rewards": [[1, 5], [0, 0]],
    "initial": [1, 0],
    "horizon": 3,
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 0}, "horizon = 0: should be an integer of at least 1"),
        ({"horizon": 2.5}, "horizon = 2.5: should be an integer"),
        ({"horizon": True}, "horizon = True: should be an integer"),
        ({"discount": 1.5}, "discount = 1.5: should be a number from 0 to 1"),
        ({"discount": -0.1}, "discount = -0.1: should be a number from 0 to 1"),
        ({"discount": "x"}, "discount[0] = 'x'"),
        ({"transitions": [[STAY, [0.5, 0.25]], [LEAVE, LEAVE]]}, "transitions[0][1] sums to 0.75"),
        ({"transitions": [[STAY, [1.5, -0.5]], [LEAVE, LEAVE]]}, "transitions[0][1][1] = -0.5"),
        ({"transitions": [[STAY, LEAVE]]}, "transitions has shape (1, 2, 2), should be [S][A][S]"),
        ({"transitions": [[STAY, LEAVE], [LEAVE]]}, "transitions[1] has 1 entries, expected 2"),
        (
            {"transitions": [BASE["transitions"]] * 2},
            "transitions has 2 turns, should have horizon",
        ),
        ({"transitions": STAY}, "transitions has shape (2,)"),
        ({"rewards": [[1, 5]]}, "rewards has shape (1, 2), should be (2, 2), or (3, 2, 2) by turn"),
        ({"rewards": [[1, np.nan], [0, 0]]}, "rewards[0][1] = nan"),
        ({"on_transition": True}, "rewards has shape (2, 2), should be (2, 2, 2)"),
        ({"initial": [1]}, "initial has shape (1,), should be (2,)"),
        ({"initial": [0.5, 0.4]}, "initial sums to 0.9, should sum to 1"),
        ({"mask": [[True, False]]}, "mask has shape (1, 2) of bool"),
        ({"mask": [[1, 0], [1, 1]]}, "mask has shape (2, 2) of int64"),
        ({"mask": [[False, False], [True, True]]}, "mask[0] allows no action"),
        ({"absorbing": [True, True]}, "absorbing[0] = True: should be a state"),
        ({"absorbing": [0, 1]}, "absorbing is [0, 1], should be 2 booleans"),
        ({"name": 1}, "name = 1"),
    ],
)
def test_wrong_mdps(changes, message):
    with pytest.raises(ModelError) as error:
        TabularMDP(**{**BASE, **changes})
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_sizes_are_checked_before_anything_is_built():
    many = TabularMDP(np.full((30, 4, 30), 1 / 30), np.zeros((30, 4)), np.full(30, 1 / 30), 10)
    for mdp, merge, message in [
        (two_state(horizon=10**9), "return", "needs a graph of at least 1000000001 nodes"),
        (two_state(horizon=10**9), "none", "needs a graph of at least 1000000001 nodes"),
        (many, "none", "gives a tree of 5.228e+07 nodes by turn 3"),
    ]:
        with pytest.raises(ModelError) as error:
            mdp.graph(merge)
        assert message in str(error.value) and "max_nodes = 5000000" in str(error.value)
    with pytest.raises(ModelError, match="one entry for each of horizon"):
        _ = two_state(horizon=10**12).actions
    with pytest.raises(
        ModelError, match="gives 10 nodes by turn 3, should need at most max_nodes = 7"
    ):
        TabularMDP(np.full((2, 1, 2), 0.5), [[1], [2]], [1, 0], 3).graph(max_nodes=7)
    with pytest.raises(ModelError, match="edges at turn 1"):
        random_mdp(0, states=6, actions=6, horizon=1).graph(max_nodes=12)


@given(mdps())
def test_the_tree_is_counted_exactly_before_it_is_built(mdp):
    tree = mdp.graph("none")
    total = sum(tree.nodes) + tree.leaves
    assert mdp.graph("none", max_nodes=max(total, (mdp.horizon + 1) * mdp.contexts)).leaves
    assume(total > (mdp.horizon + 1) * mdp.contexts)
    with pytest.raises(ModelError, match="gives a tree of"):
        mdp.graph("none", max_nodes=total - 1)


def test_callers_arrays_are_left_alone():
    arrays = [
        np.array(BASE["transitions"], float),
        np.array([[1.0, 5], [0, 0]]),
        np.array([1.0, 0]),
    ]
    copies = [a.copy() for a in arrays]
    mdp = TabularMDP(*arrays, horizon=2)
    mdp.graph(), mdp.graph("none")
    assert all(
        np.array_equal(a, b) and a.flags.writeable for a, b in zip(arrays, copies, strict=True)
    )
    arrays[1][:] = 9
    assert mdp == TabularMDP(*copies, horizon=2)
