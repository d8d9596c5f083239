r"""What writes a policy's replies: a function from prompts to tokens.

A `Generator` is called with the policy, R prompts (ids), ``max_tokens``, ``temperature`` and one
seed a row, and returns for each row its ids, stop token included, and their log-probabilities at
that temperature (None where it does not know them).  `cached` is that of transformers, with a cache
of keys and values; `llm_bridge.policies.vllm` has another.

`cached` draws by inversion from one uniform number a token that depends on the row's seed alone: a
row's text does not depend on the rows beside it, but for rounding.  At temperature 0 the likeliest
token is taken and nothing is divided; log-probabilities are then those at temperature 1.

Shapes: R rows, S tokens of the longest prompt, V words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from llm_bridge.policies.base import Ids, row_uniforms

__all__ = [
    "Generator",
    "Written",
    "cache_of",
    "cached",
    "check_temperature",
    "padded_left",
    "positions",
    "prefill",
    "wide",
]

Written = tuple[tuple[int, ...], tuple[float, ...] | None]
"""Ids of a reply, and the log-probability of each, or None."""

Generator = Callable[..., list[Written]]


@torch.no_grad()
def cached(
    policy: Any,
    prompts: Sequence[Ids],
    *,
    max_tokens: int,
    temperature: float,
    seeds: Sequence[Any],
) -> list[Written]:
    """Replies by the model itself, rows of similar length together."""
    out: list[Written] = [((), None)] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for start in range(0, len(order), policy.generate_rows):
        part = order[start : start + policy.generate_rows]
        uniforms = row_uniforms([seeds[i] for i in part], len(part), max_tokens)
        rows = _sample(policy, [prompts[i] for i in part], uniforms, temperature)
        for i, written in zip(part, rows, strict=True):
            out[i] = written
    return out


def _sample(
    policy: Any, prompts: Sequence[Ids], uniforms: Any, temperature: float
) -> list[Written]:
    room = uniforms.shape[1]
    logits, cache, attend = prefill(policy, prompts, room)
    length = attend.shape[1] - room
    position = attend[:, :length].sum(dim=1, keepdim=True)
    draws = torch.as_tensor(uniforms, device=policy.device)
    stops = torch.tensor(policy.stop_ids, device=policy.device)
    done = torch.zeros(len(prompts), dtype=torch.bool, device=policy.device)
    tokens, scores, written = [], [], []
    for step in range(room):
        picked, log_prob = _draw(logits, draws[:, step], temperature)
        tokens.append(picked)
        scores.append(log_prob)
        written.append(~done)
        done = done | torch.isin(picked, stops)
        if step + 1 == room or bool(done.all()):
            break
        step_out = policy.model(
            input_ids=picked[:, None],
            attention_mask=attend[:, : length + step + 1],
            position_ids=position + step,
            use_cache=True,
            **{policy.cache_name: cache},
        )
        logits, cache = step_out.logits[:, -1], cache_of(step_out)
    counts = torch.stack(written).sum(dim=0).tolist()
    ids, log_probs = torch.stack(tokens, dim=1).tolist(), torch.stack(scores, dim=1).tolist()
    return [(tuple(ids[i][:n]), tuple(log_probs[i][:n])) for i, n in enumerate(counts)]


def _draw(logits: Tensor, uniform: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Token and log-probability of each row, by inversion of the distribution function."""
    if temperature == 0:
        picked = logits.argmax(dim=-1)
        spread = torch.log_softmax(wide(logits), dim=-1)
    else:
        check_temperature(temperature)
        spread = torch.log_softmax(wide(logits) / temperature, dim=-1)
        total = spread.double().exp().cumsum(dim=-1)
        mark = uniform[:, None] * total[:, -1:]
        picked = torch.searchsorted(total, mark, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
    return picked, spread.gather(-1, picked[:, None])[:, 0]


def prefill(policy: Any, prompts: Sequence[Ids], room: int) -> tuple[Tensor, Any, Tensor]:
    """Logits after each prompt [R, V], the cache, and the attention mask [R, S + room]."""
    tokens, attend = padded_left(policy, prompts)
    out = policy.model(
        input_ids=tokens,
        attention_mask=attend,
        position_ids=positions(attend),
        use_cache=True,
        logits_to_keep=1,
    )
    return out.logits[:, -1], cache_of(out), torch.nn.functional.pad(attend, (0, room), value=1)


def padded_left(policy: Any, prompts: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    """Prompts that end in one column, and their attention mask, each [R, S]."""
    longest = max(len(p) for p in prompts)
    tokens = torch.full((len(prompts), longest), policy.pad_id)
    attend = torch.zeros((len(prompts), longest), dtype=torch.long)
    for i, p in enumerate(prompts):
        tokens[i, longest - len(p) :], attend[i, longest - len(p) :] = torch.tensor(p), 1
    return tokens.to(policy.device), attend.to(policy.device)


def cache_of(out: Any) -> Any:
    """Keys and values of an answer, by its name in this or an older version of transformers."""
    return out["cache"] if "cache" in out else out["past_key_values"]


def wide(logits: Tensor) -> Tensor:
    """Logits in float32 at least."""
    return logits if logits.dtype == torch.float64 else logits.float()


def positions(attend: Tensor) -> Tensor:
    """Position of each token among its row's own, [R, S]."""
    return (attend.cumsum(dim=1) - 1).clamp(min=0)


def check_temperature(temperature: float) -> None:
    """A temperature that scores are divided by."""
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}; it should be above 0 to be divided by")
