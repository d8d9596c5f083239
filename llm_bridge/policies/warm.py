r"""A warm start: teach a model to answer with the words of a game, each as likely as the others.

A random model writes a word with a probability of about one in the size of its vocabulary a
character, and nothing can be learnt from rewards that never come.  `warm_start` minimises

.. math:: -\sum_h \sum_a q(a|h) \log p(\text{word}_a, \text{stop} \mid h)

over all conversations of the game by AdamW, with q uniform unless given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["warm_start"]


def warm_start(
    policy: Any,
    game: Any,
    *,
    steps: int = 100,
    lr: float = 5e-3,
    max_tokens: int = 8,
    tables: Sequence[Any] | None = None,
) -> float:
    """Train a policy towards the words; returns the last cross-entropy a conversation.

    Args:
        tables: T arrays [conversations, words] of probabilities q (default: uniform).

    Raises:
        ValueError: an environment that cannot be enumerated, or a word over the token limit.
    """
    if not hasattr(game, "conversations"):
        raise ValueError("warm_start needs a TabularText game, whose conversations it can list")
    prompts, replies, shares = [], [], []
    for t, conversations in enumerate(game.conversations):
        words = game.action_words[t]
        for row, conversation in enumerate(conversations):
            prompt = policy.encode(conversation)
            for a, word in enumerate(words):
                ids = policy.tokenizer(word, add_special_tokens=False)["input_ids"]
                if len(ids) > max_tokens:
                    raise ValueError(f"word {word!r} has {len(ids)} tokens; at most {max_tokens}")
                shares.append(1 / len(words) if tables is None else float(tables[t][row][a]))
                prompts.append(prompt)
                replies.append((*ids, policy.stop_ids[0])[:max_tokens])
    optimiser = torch.optim.AdamW(list(policy.parameters()), lr=lr, weight_decay=0.0)
    share, loss = torch.tensor(shares) / sum(shares), torch.zeros(())
    for _ in range(steps):
        optimiser.zero_grad(set_to_none=True)
        loss = -(share * policy.score(prompts, replies).log_prob.sum(dim=1)).sum()
        loss.backward()
        optimiser.step()
    return float(loss.detach())
