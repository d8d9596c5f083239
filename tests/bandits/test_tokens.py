"""Two views of one model: turns and tokens."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bandits import ModelError, SequentialBandit, TokenView, random_bandit, random_policy, zoo
from bandits.aliasing import alias
from bandits.families import random_mdp
from bandits.tokens import token_graph

from .oracle import bandit_value, graph_value
from .strategies import seeds


@st.composite
def views(draw):
    turns = draw(st.integers(1, 2))
    lengths = draw(st.lists(st.integers(1, 3), min_size=turns, max_size=turns))
    vocab = draw(st.lists(st.integers(1, 2), min_size=turns, max_size=turns))
    actions = [v**n for v, n in zip(vocab, lengths, strict=True)]
    return TokenView(random_bandit(draw(seeds), draw(st.integers(1, 2)), actions), lengths, vocab)


@given(views(), seeds)
def test_values_of_both_views_agree(view, seed):
    tokens = random_policy(seed, view.token_model)
    turns = view.turn_tables(tokens)
    assert [t.shape for t in turns] == [
        (h, a) for h, a in zip(view.turn_model.histories, view.turn_model.actions, strict=True)
    ]
    means, probs = view.turn_model.reward_means, view.turn_model.context_probs
    expected = float(bandit_value(means, probs, turns))
    assert graph_value(view.token_model.graph(), tokens) == pytest.approx(expected, abs=1e-12)
    assert graph_value(view.turn_model.graph(), turns) == pytest.approx(expected, abs=1e-12)


@given(views(), seeds)
def test_tables_convert_both_ways(view, seed):
    turns = random_policy(seed, view.turn_model)
    for there, back in zip(turns, view.turn_tables(view.token_tables(turns)), strict=True):
        np.testing.assert_allclose(there, back, atol=1e-14)
    tokens = random_policy(seed, view.token_model)
    for there, back in zip(tokens, view.token_tables(view.turn_tables(tokens)), strict=True):
        np.testing.assert_allclose(there, back, atol=1e-12)


@given(views(), seeds)
def test_rows_and_tokens_gather_the_same_probability(view, seed):
    tables = random_policy(seed, view.token_model)
    turns = view.turn_tables(tables)
    first = 0
    for turn, table in enumerate(turns):
        history, action = np.indices(table.shape)
        rows, tokens = view.token_rows(turn, history, action), view.tokens(turn, action)
        factors = [
            tables[first + j][rows[..., j], tokens[..., j]] for j in range(view.lengths[turn])
        ]
        np.testing.assert_allclose(np.prod(factors, axis=0), table, atol=1e-14)
        assert np.array_equal(view.action(turn, tokens), action)
        first += view.lengths[turn]


def test_layout():
    view = TokenView(zoo.get("tokens").model, lengths=2, vocab=2)
    assert view.token_actions == (2, 2, 2, 2)
    assert view.turn_of_token.tolist() == [0, 0, 1, 1]
    assert view.token_model.turns == 4 and view.token_model.contexts == 1
    assert view.tokens(0, 2).tolist() == [1, 0]
    assert view.token_model.reward_means[0, 0, 1, 1, 0] == 1.0  # 01 answered by 10
    with_probs = SequentialBandit([[0, "1/3"], [1, 2]], ["1/4", "3/4"], name="n")
    token_model = TokenView(with_probs, 1, 2).token_model
    assert token_model == with_probs and token_model.name == "n"


def test_a_prefix_of_probability_zero_is_uniform():
    view = TokenView(SequentialBandit([[0, 1, 2, 3]]), 2, 2)
    tables = view.token_tables([[[0.25, 0.75, 0.0, 0.0]]])
    assert tables[0].tolist() == [[1.0, 0.0]]
    assert tables[1].tolist() == [[0.25, 0.75], [0.5, 0.5]]


@given(views(), seeds)
def test_token_graph_of_a_bandit_is_the_token_model(view, seed):
    graph = token_graph(view.turn_model.graph(), view.lengths, view.vocab)
    own = view.token_model.graph()
    assert graph.nodes == own.nodes and graph.observations == own.observations
    policy = random_policy(seed, own)
    assert graph_value(graph, policy) == graph_value(own, policy)


@given(seeds, st.booleans(), st.sampled_from(["return", "none"]), st.booleans())
@settings(max_examples=60)
def test_token_graph_of_an_mdp(seed, masked, merge, stateful):
    mdp = random_mdp(seed, 3, 4, 3, 0.9, absorbing=1, masked=masked, branching=1)
    graph = mdp.graph(merge)
    if not stateful:
        graph = alias(graph, "full")
    spelt = token_graph(graph, 2, 2)
    assert spelt.turns == 6 and spelt.leaves == graph.leaves
    tokens = random_policy(seed, spelt)
    turns = [
        (tokens[2 * t].reshape(-1, 1) * tokens[2 * t + 1]).reshape(layer.observations, 4)
        for t, layer in enumerate(graph.layers)
    ]
    expected = graph_value(graph, turns)
    assert graph_value(spelt, tokens) == pytest.approx(expected, abs=1e-12)
    for t, layer in enumerate(graph.layers):
        if layer.mask is not None:
            assert (turns[t][~layer.mask] == 0).all()
    for node_return, layer in zip(spelt.node_return, spelt.layers, strict=True):
        assert len(node_return) == layer.nodes


@pytest.mark.parametrize(
    ("lengths", "vocab", "message"),
    [
        (2, 3, "vocab[0]^lengths[0] = 3^2: should be the 4 actions"),
        ([2, 2, 2], 2, "lengths has 3 entries, should have 2"),
        (0, 2, "lengths = 0: should be an integer of at least 1"),
        (2, [2, 2.5], "vocab[1] = 2.5: should be an integer"),
    ],
)
def test_wrong_views(lengths, vocab, message):
    with pytest.raises(ModelError) as error:
        TokenView(zoo.get("tokens").model, lengths, vocab)
    assert str(error.value).startswith(message)


def test_wrong_tables():
    view = TokenView(zoo.get("tokens").model, 2, 2)
    for call, message in [
        (lambda: view.turn_tables([[[1, 0]]]), "token_tables has 1 tables, should have 4"),
        (lambda: view.turn_tables([np.ones((2, 2))] * 4), "token_tables[0] has shape (2, 2)"),
        (lambda: view.token_tables([[[1, 0]]]), "turn_tables has 1 tables, should have 2"),
        (lambda: view.token_tables([np.ones((1, 2))] * 2), "turn_tables[0] has shape (1, 2)"),
    ]:
        with pytest.raises(ModelError) as error:
            call()
        assert str(error.value).startswith(message)
