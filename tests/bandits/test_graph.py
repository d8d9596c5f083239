"""The lowered form: validation, paths of trees, implicit and explicit layers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from bandits import DecisionGraph, Layer, ModelError, SequentialBandit, random_bandit
from bandits.graph import is_tree

from .oracle import graph_value, tree_value
from .strategies import bandits, mdps, tables


def explicit(graph: DecisionGraph) -> DecisionGraph:
    """The same graph with every edge written out."""
    layers = []
    for layer in graph.layers:
        edges = layer.edges()
        layers.append(
            replace(
                layer,
                edge_source=edges.source * layer.actions + edges.action,
                edge_target=edges.target,
                edge_prob=np.array(edges.prob),
            )
        )
    return replace(graph, layers=tuple(layers), leaf_context=graph.leaf_contexts())


def small() -> DecisionGraph:
    return SequentialBandit(np.arange(12.0).reshape(2, 2, 3)).graph()


def test_properties():
    graph = small()
    assert (graph.contexts, graph.turns, graph.leaves, graph.atoms) == (2, 2, 12, 1)
    assert graph.actions == (2, 3) and graph.nodes == (2, 4) and graph.observations == (2, 4)
    assert graph.implicit and graph.is_tree
    assert graph.leaf_contexts().tolist() == [0] * 6 + [1] * 6
    assert [n.tolist() for n in graph.node_contexts()] == [[0, 1], [0, 0, 1, 1]]
    assert graph.leaf_means().tolist() == list(range(12))
    assert repr(graph).startswith("<DecisionGraph contexts=2")


def test_ancestors_of_an_implicit_tree_are_its_row_major_digits():
    path = small().ancestors()
    digits = np.unravel_index(np.arange(12), (2, 2, 3))
    assert np.array_equal(path.actions[0], digits[1]) and np.array_equal(path.actions[1], digits[2])
    assert np.array_equal(path.nodes[0], digits[0])
    assert np.array_equal(path.nodes[1], digits[0] * 2 + digits[1])
    assert (path.prob == 1).all()


@given(bandits().flatmap(lambda m: tables(m).map(lambda p: (m, p))))
def test_explicit_edges_say_the_same(model_and_policy):
    model, policy = model_and_policy
    graph = model.graph()
    written = explicit(graph)
    assert not written.implicit and written.is_tree
    assert graph_value(written, policy) == pytest.approx(graph_value(graph, policy), abs=1e-12)
    assert tree_value(written, policy) == pytest.approx(tree_value(graph, policy), abs=1e-12)
    for mine, theirs in zip(written.ancestors(), graph.ancestors(), strict=True):
        assert np.array_equal(mine, theirs)
    for mine, theirs in zip(written.node_contexts(), graph.node_contexts(), strict=True):
        assert np.array_equal(mine, theirs)


@given(mdps())
def test_parents_of_a_tree_are_its_edges(mdp):
    graph = mdp.graph("none")
    for turn, layer in enumerate(graph.layers):
        up, edges = graph.parents(turn), layer.edges()
        assert np.array_equal(up.source[edges.target], edges.source)
        assert np.array_equal(up.prob[edges.target], edges.prob)
        acting = layer.acting()[edges.source]
        assert np.array_equal(up.action[edges.target][acting], edges.action[acting])
        assert (up.action[edges.target][~acting] == -1).all()
        assert np.array_equal(up.target, np.arange(up.source.size))


def test_leaf_means_of_random_leaves():
    model = random_bandit(0, 2, (2, 3), "distribution")
    expected = (model.reward_values * model.reward_probs).sum(-1).reshape(-1)
    np.testing.assert_allclose(model.graph().leaf_means(), expected, rtol=1e-15)


EDGES = {
    "edge_source": np.array([0, 1]),
    "edge_target": np.array([0, 1]),
    "edge_prob": np.array([1.0, 1.0]),
}


def layer(**changes) -> Layer:
    return Layer(**{"nodes": 1, "actions": 2, "observations": 1, **EDGES, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": 0}, "layer has 0 nodes"),
        ({"observations": 2}, "observation is None with 2 rows for 1 nodes"),
        ({"observation": np.array([1])}, "observation[0] = 1: should be an index from 0 to 1"),
        ({"observation": np.array([0.0])}, "observation has shape (1,) and dtype float64"),
        ({"mask": np.array([[1, 0]])}, "mask has shape (1, 2) of int64, should be (1, 2) of bool"),
        ({"mask": np.array([[False, False]])}, "mask[0] allows no action"),
        ({"mask": np.array([[True, False]])}, "edges of node 0, action 1 sum to 1.0"),
        ({"active": np.array([True, True])}, "active has shape (2,)"),
        ({"edge_source": np.array([1, 0])}, "edge_source should be in ascending order"),
        ({"edge_source": np.array([0, 2])}, "edge_source[1] = 2: should be an index"),
        ({"edge_target": None}, "edge_target, edge_prob should be given"),
        ({"edge_source": None}, "edge_source is None, should be given"),
        ({"edge_target": np.array([0, -1])}, "edge_target[1] = -1: should be an index"),
        ({"edge_prob": np.array([1.0, 0.5])}, "edges of node 0, action 1 sum to 0.5"),
        ({"edge_prob": np.array([2.0, np.nan])}, "edge_prob should be non-negative"),
        ({"edge_prob": np.array([1.0])}, "edge_prob has shape (1,)"),
    ],
)
def test_wrong_layers(changes, message):
    with pytest.raises(ModelError) as error:
        layer(**changes)
    assert (
        str(error.value)
        .replace(": should be in", " should be in")
        .replace("prob: should", "prob should")
        .startswith(message)
    )


def test_wrong_graphs():
    graph = small()
    written = explicit(graph)
    for change, message in [
        ({"layers": ()}, "layers is empty"),
        ({"context_probs": np.array([0.5, 0.6])}, "context_probs sum to 1.1"),
        ({"context_probs": np.array([1.0])}, "context_probs has shape (1,)"),
        (
            {"leaf_values": np.zeros((13, 1)), "leaf_probs": np.ones((13, 1))},
            "layers[1] leads to 12",
        ),
        ({"leaf_values": np.zeros(12)}, "leaf_values has shape (12,)"),
        ({"leaf_probs": np.ones((12, 2))}, "leaf_probs has shape (12, 2)"),
        ({"leaf_context": np.full(12, 2)}, "leaf_context[0] = 2"),
        ({"node_return": (np.zeros(2),)}, "node_return"),
    ]:
        with pytest.raises(ModelError) as error:
            replace(graph, **change)
        assert str(error.value).startswith(message)
    with pytest.raises(ModelError, match=r"^leaf_context is None"):
        replace(written, leaf_context=None)
    with pytest.raises(ModelError, match=r"^layers\[1\] leads to 12 nodes, the next has 11"):
        replace(
            written,
            leaf_values=np.zeros((11, 1)),
            leaf_probs=np.ones((11, 1)),
            leaf_context=np.zeros(11, np.int64),
        )


def test_a_graph_that_is_no_tree():
    meet = layer(edge_target=np.array([0, 0]))
    graph = DecisionGraph(
        context_probs=np.array([1.0]),
        layers=(meet,),
        leaf_context=np.array([0]),
        leaf_values=np.ones((1, 1)),
        leaf_probs=np.ones((1, 1)),
        is_tree=False,
    )
    assert not is_tree((meet,))
    for wrong in (graph.ancestors, lambda: graph.parents(0)):
        with pytest.raises(ModelError, match=r'graph\(merge="none"\)'):
            wrong()
    with pytest.raises(ModelError, match=r"^is_tree is True, but"):
        replace(graph, is_tree=True)
    noop = replace(meet, active=np.array([False]))
    assert is_tree((noop,))


def test_a_node_of_two_contexts():
    two = Layer(
        nodes=2,
        actions=1,
        observations=2,
        edge_source=np.array([0, 1]),
        edge_target=np.array([0, 0]),
        edge_prob=np.ones(2),
    )
    graph = DecisionGraph(
        context_probs=np.array([0.5, 0.5]),
        layers=(two, Layer(nodes=1, actions=1, observations=1)),
        leaf_context=np.array([0]),
        leaf_values=np.ones((1, 1)),
        leaf_probs=np.ones((1, 1)),
        is_tree=False,
    )
    with pytest.raises(ModelError, match=r"^layers\[1\] has a node that two contexts share"):
        graph.node_contexts()


def test_arrays_cannot_be_written_to():
    graph = explicit(small())
    for array in (graph.leaf_values, graph.context_probs, graph.layers[0].edge_prob):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
