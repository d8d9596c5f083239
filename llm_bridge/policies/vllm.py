r"""Replies written by vLLM (extra ``vllm``), for `CausalPolicy`.

    CausalPolicy.from_pretrained(path, dtype="bfloat16", device="cuda", vllm={})

or, in a TOML file, a table ``[policy.vllm]``.  Starting vLLM and handing weights over (adapters
merged) are those of TRL's `VLLMGeneration`, whose options the table holds: ``mode = "colocate"``
(default) runs vLLM in this process, ``mode = "server"`` asks a ``vllm serve`` elsewhere.

- *Weights.*  They are handed over before the first reply after a change of parameters.
- *Seeds.*  In this process each row has a seed of its own, so that its text depends neither on the
  rows beside it nor on what was played before, but for rounding: vLLM's kernels add in an order that
  depends on the batch.  A server draws from one generator; a run on it is not repeatable.
- *Log-probabilities* are those after temperature, by vLLM's kernels.  They differ from a forward
  pass of transformers; `llm_bridge.rows` measures the difference and corrects for it
  (``importance_cap``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llm_bridge.environments.base import NotInstalledError
from llm_bridge.policies.base import Ids, hashed_seed
from llm_bridge.policies.generation import Written

__all__ = ["VLLMGenerator", "require"]

INSTALL = "pip install 'seeupo[vllm]'"


class VLLMGenerator:
    """A generator of `CausalPolicy`.

    Args:
        model: the model that is trained; vLLM loads it from ``model.name_or_path``.
        tokenizer: its tokenizer.
        options: of TRL's `VLLMGeneration`, such as mode, gpu_memory_utilization,
            tensor_parallel_size, max_model_length, enable_sleep_mode, server_base_url.

    Raises:
        NotInstalledError: vLLM or TRL is missing.
        ValueError: the model is not on disk or on a hub, where vLLM looks for it; or it has tied
            embeddings and vLLM runs on a CPU, where it keeps a packed copy of the head that new
            weights do not reach (seen with vLLM 0.31).
    """

    def __init__(self, model: Any, tokenizer: Any, **options: Any) -> None:
        from accelerate import Accelerator

        engine = require()
        if not getattr(model, "name_or_path", ""):
            raise ValueError("the model has no name_or_path; vLLM loads a model by path or hub id")
        if getattr(model.config, "tie_word_embeddings", False) and _on_cpu():
            raise ValueError(
                "the model has tied embeddings; vLLM on a CPU would go on with its first head: use a "
                "GPU, or untie them"
            )
        self.engine = engine.VLLMGeneration(
            model=model, accelerator=Accelerator(), processing_class=tokenizer, **options
        )
        self._module, self._given = engine, dict(self.engine.generation_kwargs)
        self._seen: tuple[int, ...] = ()

    def __call__(
        self,
        policy: Any,
        prompts: Sequence[Ids],
        *,
        max_tokens: int,
        temperature: float,
        seeds: Sequence[Any],
    ) -> list[Written]:
        """One reply a prompt, under the parameters as they are."""
        if not prompts:
            return []
        rows = [list(p) for p in prompts]
        self._sync(policy)
        # ends are the policy's own, whatever the model's files call an end
        own = {"ignore_eos": True, "stop_token_ids": list(policy.stop_ids), **self._given}
        if self.engine.mode == "server":
            return self._ask(rows, max_tokens, temperature, own)
        limits = {"temperature": temperature, "max_tokens": max_tokens, "logprobs": 0}
        options: dict[str, Any] = {**limits, **own}
        params = self._module.SamplingParams
        llm = self.engine.llm
        if self.engine.enable_sleep_mode:
            llm.wake_up(tags=["kv_cache"])
        answers = llm.generate(
            [{"prompt_token_ids": ids} for ids in rows],
            sampling_params=[params(seed=hashed_seed(s, 8), **options) for s in seeds],
            use_tqdm=False,
        )
        if self.engine.enable_sleep_mode:
            llm.sleep(level=2)
        return [_written(answer.outputs[0]) for answer in answers]

    def _sync(self, policy: Any) -> None:
        """Hand the weights over where they moved, or where a sleeping engine let go of them."""
        engine, now = self.engine, tuple(p._version for p in policy.model.parameters())
        if now == self._seen and not engine.enable_sleep_mode:
            return
        if engine.mode == "server":
            engine.sync_weights()
        else:
            if engine.enable_sleep_mode:
                engine.llm.wake_up(tags=["weights"])
            named = {"weights_iterator": engine._iter_named_params()}
            engine.llm.collective_rpc("reload_weights", kwargs=named)
            engine.llm.reset_prefix_cache()
        self._seen = now

    def _ask(
        self, prompts: list[list[int]], max_tokens: int, temperature: float, own: dict[str, Any]
    ) -> list[Written]:
        self.engine.max_completion_length, self.engine.temperature = max_tokens, temperature
        self.engine.generation_kwargs = own
        _, ids, log_probs, _ = self.engine.generate(prompts, None, 1)
        return [
            (tuple(row), tuple(score[0] for score in scores))
            for row, scores in zip(ids, log_probs, strict=True)
        ]


def require() -> Any:
    """TRL's module for vLLM; raises NotInstalledError where either is missing."""
    try:
        from trl.generation import vllm_generation as engine
    except ImportError as error:
        raise NotInstalledError("trl", INSTALL) from error
    if not engine.is_vllm_available():
        raise NotInstalledError("vllm", INSTALL)
    return engine


def _on_cpu() -> bool:
    """Whether vLLM runs on a CPU."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def _written(output: Any) -> Written:
    """Ids and log-probabilities of one of vLLM's completions."""
    ids = tuple(int(i) for i in output.token_ids)
    scores = tuple(float(s[i].logprob) for i, s in zip(ids, output.logprobs, strict=True))
    return ids, scores
