r"""A causal language model of `transformers` as a policy.

**Own tokens only.**  A row is laid out as prompt, then reply.  Prompts are padded on the left and
replies on the right, so that every reply begins in the same column and the logits of the last
L + 1 columns are all that is computed; ``padding="right"`` packs each row to the left instead.
Positions count the row's own tokens, so that both give the same numbers, and what a prompt or the
padding holds never enters a score as a reply.

**Generation** is a function of its own (`llm_bridge.policies.generation`): through transformers, or
through vLLM where it is installed.

Log-probabilities at generation and by a forward pass differ by rounding (about 1e-6 in float32,
1e-2 in bfloat16); `update` measures the difference and corrects for it.

Dropout is switched off for good: with it, the ratio of a policy to itself would not be 1.
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from llm_bridge.policies.base import Ids, Scored, Turn, row_seeds
from llm_bridge.policies.generation import (
    Generator,
    cached,
    check_temperature,
    padded_left,
    positions,
    prefill,
    wide,
)

__all__ = ["CausalPolicy"]

JOINER = "\u2060"
"""Invisible and without a width: it keeps the letters on its two sides apart."""


class CausalPolicy:
    """A model and its tokenizer.

    Args:
        model: a causal language model of transformers (or of peft).
        tokenizer: with a chat template, a padding token and an end token.
        stop_ids: tokens that end a reply (default: the tokenizer's end token).
        max_context: most tokens of prompt and reply (default: what the model can hold).
        padding: "left" or "right", the side on which prompts are padded when scoring.
        generator: what writes replies (see `llm_bridge.policies.generation`).
        generate_rows: most rows generated at once by transformers.
        compile: whether scoring runs through `torch.compile` with shapes left open (True, or the
            name of a backend). It pays on a GPU, for many updates of one model; generation, whose
            cache grows with each token, stays as it is.
        seed: of the value head.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        stop_ids: Sequence[int] | None = None,
        max_context: int | None = None,
        padding: str = "left",
        generator: Generator = cached,
        generate_rows: int = 64,
        compile: bool | str = False,
        seed: int = 0,
    ) -> None:
        if padding not in ("left", "right"):
            raise ValueError(f"padding is {padding!r}; it should be left or right")
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError("tokenizer has no chat_template; a conversation cannot be rendered")
        ends = (tokenizer.eos_token_id,) if stop_ids is None else tuple(stop_ids)
        if None in ends:
            raise ValueError("tokenizer has no eos_token; give stop_ids")
        self.model, self.tokenizer, self.padding = model, tokenizer, padding
        self.stop_ids: tuple[int, ...] = ends
        self._control = _control_tokens(tokenizer)
        self.pad_id = ends[0] if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        limit = getattr(model.config, "max_position_embeddings", None)
        self.max_context = int(max_context or limit or 1 << 30)
        self.generator, self.generate_rows = generator, generate_rows
        self._compiled: Any = None
        if compile:
            backend = "inductor" if compile is True else compile
            self._compiled = torch.compile(model, dynamic=True, backend=backend)
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        model.eval()
        width = model.config.get_text_config().hidden_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            last = nn.Linear(width, 1)
            head = nn.Sequential(nn.Linear(width, width), nn.Tanh(), last)
        nn.init.zeros_(last.weight)
        self.value_head = head.to(self.device, torch.float32)
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        known = inspect.signature(base.forward).parameters
        self.cache_name = "cache" if "cache" in known else "past_key_values"
        self._checkpointing = any(
            getattr(m, "gradient_checkpointing", False) for m in base.modules()
        )
        self._adapter = any("lora_" in name for name, _ in model.named_parameters())

    @classmethod
    def from_pretrained(
        cls,
        path: str,
        *,
        dtype: str | torch.dtype = "float32",
        device: str = "cpu",
        trust_remote_code: bool = False,
        **options: Any,
    ) -> CausalPolicy:
        """Load a model by path or hub id; further options are those of `prepared`.

        Raises:
            NotADirectoryError: a path that leads nowhere.
            NotInstalledError: vLLM is asked for and missing.
        """
        from transformers import AutoModelForCausalLM, AutoTokenizer

        path = os.path.expanduser(path)
        if path.startswith((".", os.sep)) and not os.path.isdir(path):
            raise NotADirectoryError(f"path is {path!r}; there is no such folder")
        if options.get("vllm") is not None:
            from llm_bridge.policies.vllm import require

            require()
        kind = getattr(torch, dtype) if isinstance(dtype, str) else dtype
        load = {"trust_remote_code": trust_remote_code}
        tokenizer = AutoTokenizer.from_pretrained(path, **load)
        model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=kind, **load)
        model = model.to(device)
        return cls.prepared(model, tokenizer, **options)

    @classmethod
    def prepared(
        cls,
        model: Any,
        tokenizer: Any,
        *,
        lora: Mapping[str, Any] | None = None,
        gradient_checkpointing: bool = False,
        vllm: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> CausalPolicy:
        """A loaded model with what was asked for switched on.

        Args:
            model, tokenizer, options: see `CausalPolicy`.
            lora: options of peft's LoraConfig.
            gradient_checkpointing: recompute activations in the backward pass.
            vllm: options of `llm_bridge.policies.vllm.VLLMGenerator`, which then writes replies.
        """
        if gradient_checkpointing:
            name = "activation_checkpointing_enable"  # the older name is gradient_…
            name = name if hasattr(model, name) else "gradient_checkpointing_enable"
            getattr(model, name)({"use_reentrant": False})
        if lora is not None:
            from peft import LoraConfig, get_peft_model

            model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **dict(lora)))
        if vllm is not None:
            from llm_bridge.policies.vllm import VLLMGenerator

            options["generator"] = VLLMGenerator(model, tokenizer, **dict(vllm))
        return cls(model, tokenizer, **options)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    # -- text ----------------------------------------------------------------------------------

    def encode(
        self, conversation: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None
    ) -> tuple[int, ...]:
        """Ids of a conversation, up to where the assistant begins to write.

        What a message says stays text: the name of a control token in it (``<|im_end|>``, say) is
        broken by a word joiner, U+2060, so that no tool output can end a turn or begin another.
        """
        text = self.tokenizer.apply_chat_template(
            [{**m, "content": self._defused(m["content"])} for m in conversation],
            tools=list(tools) if tools else None,
            add_generation_prompt=True,
            tokenize=False,
        )
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _defused(self, text: str) -> str:
        for name in self._control:
            if name in text:
                text = text.replace(name, f"{name[0]}{JOINER}{name[1:]}")
        return text

    def decode(self, ids: Sequence[int]) -> str:
        """Text of a reply, without the stop token at its end."""
        own = list(ids[:-1]) if ids and ids[-1] in self.stop_ids else list(ids)
        return str(
            self.tokenizer.decode(
                own, skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    # -- scores --------------------------------------------------------------------------------

    def score(
        self,
        prompts: Sequence[Ids],
        ids: Sequence[Ids],
        *,
        temperature: float = 1.0,
        entropy: bool = False,
    ) -> Scored:
        """Log-probabilities [R, L] of the replies' tokens in float32 at least, differentiable."""
        check_temperature(temperature)
        rows, width = _padded(prompts, ids)
        logits = self._logits(prompts, ids, width)
        target = torch.full((rows, width), self.pad_id, device=self.device)
        mask = torch.zeros((rows, width), dtype=torch.bool, device=self.device)
        for i, row in enumerate(ids):
            target[i, : len(row)] = torch.tensor(row, device=self.device)
            mask[i, : len(row)] = True
        spread = torch.log_softmax(wide(logits) / temperature, dim=-1)
        picked = spread.gather(-1, target[..., None])[..., 0]
        zero = torch.zeros_like(picked)
        disorder = None
        if entropy:
            disorder = torch.where(mask, -(spread.detach().exp() * spread.detach()).sum(-1), zero)
        return Scored(torch.where(mask, picked, zero), mask, disorder)

    def log_probs(
        self, prompts: Sequence[Ids], ids: Sequence[Ids], *, temperature: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """(log_prob [R, L], mask [R, L]) of the replies' tokens."""
        scored = self.score(prompts, ids, temperature=temperature)
        return scored.log_prob, scored.mask

    def _logits(self, prompts: Sequence[Ids], ids: Sequence[Ids], width: int) -> Tensor:
        """Logits [R, width, V] that predict each token of the replies."""
        longest = max(len(p) for p in prompts)
        left = self.padding == "left"
        size = longest + width
        tokens = torch.full((len(ids), size), self.pad_id)
        attend = torch.zeros((len(ids), size), dtype=torch.long)
        for i, (p, r) in enumerate(zip(prompts, ids, strict=True)):
            first = longest - len(p) if left else 0
            tokens[i, first : first + len(p) + len(r)] = torch.tensor((*p, *r))
            attend[i, first : first + len(p) + len(r)] = 1
        tokens, attend = tokens.to(self.device), attend.to(self.device)
        if self._checkpointing and torch.is_grad_enabled():
            self.model.train()
        try:
            out = (self.model if self._compiled is None else self._compiled)(
                input_ids=tokens,
                attention_mask=attend,
                position_ids=positions(attend),
                use_cache=False,
                logits_to_keep=width + 1 if left else 0,
            ).logits
        finally:
            self.model.eval()
        if left:
            return out[:, -width - 1 : -1]
        start = torch.tensor([len(p) - 1 for p in prompts], device=self.device)
        column = (start[:, None] + torch.arange(width, device=self.device)).clamp(max=size - 1)
        return out.gather(1, column[..., None].expand(-1, -1, out.shape[-1]))

    @torch.no_grad()
    def continuation_log_probs(
        self, prompts: Sequence[Ids], continuations: Sequence[Ids], *, temperature: float = 1.0
    ) -> Tensor:
        """Log-probability of every continuation after every prompt, [prompts, continuations].

        The prompts are read once; their cache is shared by all continuations.
        """
        check_temperature(temperature)
        width = max(len(c) for c in continuations)
        rows, many = len(prompts), len(continuations)
        target = torch.full((many, width), self.pad_id)
        own = torch.zeros((many, width), dtype=torch.bool)
        for i, c in enumerate(continuations):
            target[i, : len(c)], own[i, : len(c)] = torch.tensor(c), True
        target, own = target.to(self.device), own.to(self.device)
        logits, cache, attend = prefill(self, prompts, width)
        first = torch.log_softmax(wide(logits) / temperature, dim=-1)
        total = first[:, target[:, 0]]
        if width == 1:
            return total
        cache.batch_repeat_interleave(many)
        attend = attend.repeat_interleave(many, dim=0)
        tokens = target.repeat(rows, 1)
        length = attend.shape[1] - width
        out = self.model(
            input_ids=tokens[:, :-1],
            attention_mask=attend[:, :-1],
            position_ids=positions(attend)[:, length:-1],
            use_cache=True,
            **{self.cache_name: cache},
        ).logits
        spread = torch.log_softmax(wide(out) / temperature, dim=-1)
        later = spread.gather(-1, tokens[:, 1:, None])[..., 0].reshape(rows, many, width - 1)
        return total + torch.where(own[:, 1:], later, torch.zeros_like(later)).sum(dim=-1)

    # -- generation ----------------------------------------------------------------------------

    @torch.no_grad()
    def generate(
        self,
        conversations: Sequence[Sequence[Mapping[str, Any]]],
        *,
        max_tokens: int,
        temperature: float = 1.0,
        seed: int | Sequence[Any] = 0,
        tools: Sequence[Any] | None = None,
    ) -> list[Turn]:
        """One reply a conversation.  Where prompt and reply do not fit: an empty, truncated turn.

        `tools` holds one list of function schemas a conversation, or None.
        """
        each = [None] * len(conversations) if tools is None else list(tools)
        prompts = [self.encode(c, t) for c, t in zip(conversations, each, strict=True)]
        seeds = row_seeds(seed, len(prompts))
        out = [Turn(p, (), (), "", truncated=True) for p in prompts]
        fits = [i for i, p in enumerate(prompts) if len(p) + max_tokens <= self.max_context]
        written = self.generator(
            self,
            [prompts[i] for i in fits],
            max_tokens=max_tokens,
            temperature=temperature,
            seeds=[seeds[i] for i in fits],
        )
        for i, (ids, log_probs) in zip(fits, written, strict=True):
            whole = bool(ids) and ids[-1] in self.stop_ids
            out[i] = Turn(prompts[i], ids, log_probs, self.decode(ids), truncated=not whole)
        return out

    # -- value head, parameters ----------------------------------------------------------------

    def values(self, prompts: Sequence[Ids]) -> Tensor:
        """Value head at the last token of each prompt, [R]; the model itself gets no gradient."""
        tokens, attend = padded_left(self, prompts)
        with torch.no_grad():
            hidden = self.model(
                input_ids=tokens,
                attention_mask=attend,
                position_ids=positions(attend),
                use_cache=False,
                output_hidden_states=True,
                logits_to_keep=1,
            ).hidden_states[-1][:, -1]
        return self.value_head(hidden.to(torch.float32))[:, 0]

    def parameters(self) -> Iterator[nn.Parameter]:
        """Trainable parameters of the model (of the adapter, where there is one)."""
        return (p for p in self.model.parameters() if p.requires_grad)

    def value_parameters(self) -> Iterator[nn.Parameter]:
        """Parameters of the value head."""
        return self.value_head.parameters()

    def reference(self) -> CausalPolicy:
        """The policy as it is, frozen; with an adapter, the same weights without it."""
        other = copy.copy(self)
        other._compiled = None
        if self._adapter:
            other.model = WithoutAdapter(self.model)
            return other
        other.model = copy.deepcopy(self.model)
        for p in other.model.parameters():
            p.requires_grad_(False)
        return other

    def state_dict(self) -> dict[str, Any]:
        """Weights that training moves (the adapter's alone where there is one), and the head."""
        names = {n for n, p in self.model.named_parameters() if p.requires_grad}
        whole = self.model.state_dict()
        model = {n: v for n, v in whole.items() if not self._adapter or n in names}
        return {"model": model, "value_head": self.value_head.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`."""
        found = self.model.load_state_dict(state["model"], strict=not self._adapter)
        if found.unexpected_keys:
            raise ValueError(f"checkpoint holds unknown weights: {found.unexpected_keys[:3]}")
        self.value_head.load_state_dict(state["value_head"])

    def save_pretrained(self, path: str) -> None:
        """Write model (or adapter) and tokenizer in the format of transformers."""
        self.model.save_pretrained(path)
        self.tokenizer.save_pretrained(path)


class WithoutAdapter:
    """A peft model that answers with its adapters switched off."""

    def __init__(self, model: Any):
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, **inputs: Any) -> Any:
        with self._model.disable_adapter():
            return self._model(**inputs)


def _control_tokens(tokenizer: Any) -> tuple[str, ...]:
    """Texts that a tokenizer reads as one control token, the longest first."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    names = {str(t) for t in added if getattr(t, "special", False)} | set(
        tokenizer.all_special_tokens
    )
    return tuple(sorted((n for n in names if len(n) > 1), key=lambda n: (-len(n), n)))


def _padded(prompts: Sequence[Ids], ids: Sequence[Ids]) -> tuple[int, int]:
    if len(prompts) != len(ids) or not ids:
        raise ValueError(f"{len(prompts)} prompts for {len(ids)} replies; should be equal, not 0")
    if any(not p for p in prompts):
        raise ValueError("a prompt is empty; the first token of a reply needs one before it")
    return len(ids), max(1, max(len(r) for r in ids))
