"""A tiny language model, built on the spot: Qwen3 with two layers and a tokenizer of characters.

Nothing is downloaded.  The weights are random, so that its replies are noise until `warm_start`
(`llm_bridge.policies.warm`) or training makes them words; a forward pass takes milliseconds.
"""

from __future__ import annotations

import string
from typing import Any

import torch

from llm_bridge.policies.causal import CausalPolicy

__all__ = ["CHAT_TEMPLATE", "character_tokenizer", "tiny_policy"]

ROLES = ("<system>", "<user>", "<assistant>", "<tool>")

CHAT_TEMPLATE = (
    "{% if tools %}<system>{{ tools | tojson }}<end>{% endif %}"
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def character_tokenizer(characters: str = string.printable) -> Any:
    """Tokenizer with one token a character; others become <unk>.

    >>> tokenizer = character_tokenizer("abc")
    >>> tokenizer.decode(tokenizer.encode("cab"))
    'cab'
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<end>", "<unk>", *ROLES]
    vocabulary = {w: i for i, w in enumerate([*special, *dict.fromkeys(characters)])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<end>",
        unk_token="<unk>",
        additional_special_tokens=list(ROLES),
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def tiny_policy(
    seed: int = 0,
    *,
    characters: str = string.printable,
    hidden: int = 32,
    layers: int = 2,
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> CausalPolicy:
    """A random Qwen3 of two layers behind the Protocol; `options` go to `CausalPolicy`."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = character_tokenizer(characters)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=hidden // 2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = Qwen3ForCausalLM(config)
    return CausalPolicy(model.to(dtype), tokenizer, seed=seed, **options)
