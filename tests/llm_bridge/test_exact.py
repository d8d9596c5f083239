"""The exact companion: all spellings counted, and Monte Carlo agrees."""

import numpy as np
import pytest
import torch

from llm_bridge.environments.tabular_text import TabularText
from llm_bridge.exact import Exact, LocalAdvantage, evaluate, spellings, verdict
from llm_bridge.policies.causal import CausalPolicy
from llm_bridge.policies.tiny import tiny_policy
from llm_bridge.policies.warm import warm_start
from llm_bridge.rollouts import Sampling, collect

SIGMAS = 4.5
"""Deviations of a Monte Carlo mean that chance exceeds once in 100 000 times."""


def pieces_policy(seed):
    """A tiny model whose tokeniser can spell "ab" in two ways: a-b, and ab."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

    base = tiny_policy(seed, characters="ab")
    words = ["<pad>", "<end>", "<unk>", "<user>", "<assistant>", "a", "b", "ab"]
    core = Tokenizer(models.BPE({w: i for i, w in enumerate(words)}, [("a", "b")]))
    core.pre_tokenizer = pre_tokenizers.Split("<", "isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<end>",
        unk_token="<unk>",
        additional_special_tokens=["<user>", "<assistant>"],
        chat_template=base.tokenizer.chat_template,
    )
    config = base.model.config
    config.vocab_size = len(words)
    torch.manual_seed(seed)
    return CausalPolicy(Qwen3ForCausalLM(config), tokenizer)


def check_against_rollouts(policy, game, max_tokens, temperature=1.0, rows=1500):
    """Frequencies of actions and the mean return of rollouts against the exact numbers."""
    exact = Exact(game, max_tokens, temperature)
    tables = exact.tables(policy)
    value = evaluate(game.graph, tables).value
    sampling = Sampling(
        max_turns=game.turns, max_tokens=max_tokens, temperature=temperature, discount=game.discount
    )
    batch = collect(policy, game, [None] * rows, 1, 0, sampling)
    for t in range(game.turns):
        for row in range(len(game.conversations[t])):
            prompt = policy.encode(game.conversations[t][row])
            taken = [
                exact.action(t, r, int(batch.nodes[t][i]))
                for i, r in enumerate(batch.turns[t])
                if r is not None and r.prompt_ids == prompt
            ]
            if len(taken) < 50:
                continue
            share = np.bincount(taken, minlength=tables[t].shape[1]) / len(taken)
            error = np.sqrt(tables[t][row] * (1 - tables[t][row]) / len(taken))
            assert (np.abs(share - tables[t][row]) <= SIGMAS * error + 1e-3).all()
    error = float(batch.returns.std()) / np.sqrt(rows)
    assert abs(float(batch.returns.mean()) - value) <= SIGMAS * error + 1e-6
    return tables, value


def test_a_random_model_that_spells_in_two_ways():
    policy = pieces_policy(0)
    game = TabularText([[[0.0, 1.0], [0.5, 0.2]]], contexts=["a"], actions=["ab", "b"], reply="b")
    assert sorted(spellings(policy, "ab")) == [(5, 6), (7,)]
    tables, value = check_against_rollouts(policy, game, max_tokens=3)
    assert 0.01 < tables[0][0, 0] < 0.5 and 0 < value < 1


def test_a_word_at_the_token_limit_counts_without_its_stop():
    policy = pieces_policy(1)
    game = TabularText([[[0.0, 1.0], [0.5, 0.2]]], contexts=["a"], actions=["ab", "b"], reply="b")
    limited, _ = check_against_rollouts(policy, game, max_tokens=1, temperature=1.5)
    assert limited[0][0, 0] > Exact(game, 3, 1.5).tables(policy)[0][0, 0]


def test_a_trained_model_on_a_game_with_random_replies():
    game = TabularText("zoo:tool-use")
    policy = tiny_policy(0, characters="abcs0123")
    warm_start(policy, game, steps=40, max_tokens=2)
    _, value = check_against_rollouts(policy, game, max_tokens=2, rows=600)
    assert np.isfinite(value)


def test_probabilities_add_up_and_the_rest_is_the_noop():
    game = TabularText("zoo:mixed")
    for table in Exact(game, 3).tables(tiny_policy(0)):
        assert np.abs(table.sum(axis=1) - 1).max() < 1e-12
        assert (table[:-1, -1] > 0.9).all()  # a random model rarely writes a word


def test_evaluation_is_consistent():
    game = TabularText("zoo:tool-use")
    rng = np.random.default_rng(0)
    tables = []
    for layer in game.graph.layers:
        raw = rng.random((layer.observations, layer.actions))
        raw = raw if layer.mask is None else raw * layer.mask
        tables.append(raw / raw.sum(axis=1, keepdims=True))
    out = evaluate(game.graph, tables)
    for t, layer in enumerate(game.graph.layers):
        policy = tables[t][layer.rows()]
        assert out.visits[t].sum() == pytest.approx(1.0)
        assert out.visits[t] @ out.states[t] == pytest.approx(out.value)
        assert np.abs((policy * out.advantages[t]).sum(axis=1)).max() < 1e-12
        local = LocalAdvantage(game.graph, tables).advantage(t)
        assert np.abs(local - out.advantages[t]).max() < 1e-12


def test_a_word_that_cannot_be_written_is_an_error():
    with pytest.raises(ValueError, match="cannot be written"):
        spellings(tiny_policy(0, characters="ab"), "é")


def test_verdicts():
    assert verdict(0.0, 1.0) == "improved"
    assert verdict(1.0, 0.0) == "lowered"
    assert verdict(1.0, 1.0 + 1e-8) == "unchanged"
