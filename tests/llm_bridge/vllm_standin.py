"""A stand-in for vLLM, with the part of its interface that TRL and the bridge use."""

import copy
import importlib.util
import warnings
from types import SimpleNamespace

import torch

from llm_bridge.policies import vllm as module
from llm_bridge.policies.tiny import tiny_policy

REAL = importlib.util.find_spec("vllm") is not None
"""Whether vLLM itself is here; it is then used instead."""


class SamplingParams:
    """The fields that are read here; an unknown one is an error, as in vLLM."""

    def __init__(
        self, *, temperature, max_tokens, logprobs, seed=None, ignore_eos=False, stop_token_ids=(),
        n=1, repetition_penalty=1.0, top_p=1.0, top_k=0, min_p=0.0,
    ):  # fmt: skip
        assert seed is None or 0 <= seed < 2**63
        assert (n, repetition_penalty, top_p, top_k, min_p, logprobs) == (1, 1.0, 1.0, 0, 0.0, 0)
        self.seed, self.temperature, self.max_tokens = seed, temperature, max_tokens
        self.stop, self.ignore_eos = set(stop_token_ids), ignore_eos


class LLM:
    """vLLM's offline engine, as far as it is documented and used here; its weights are its own."""

    def __init__(self, model, **options):
        from transformers import AutoModelForCausalLM

        self.options, self.loads, self.awake = options, 0, {"weights", "kv_cache"}
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        self.rng = torch.Generator().manual_seed(options["seed"])
        runner = SimpleNamespace(model=SimpleNamespace(load_weights=self.load))
        worker = SimpleNamespace(model_runner=runner)
        self.llm_engine = SimpleNamespace(model_executor=SimpleNamespace(driver_worker=worker))

    @torch.no_grad()
    def load(self, named):
        """Weights one by one, as TRL hands them over."""
        for name, value in named:
            self.model.get_parameter(name).copy_(value)

    def collective_rpc(self, method, kwargs):
        assert method == "reload_weights" and "weights" in self.awake
        self.loads += 1
        own = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, value in kwargs["weights_iterator"]:
                own.pop(name).copy_(value)
        assert not own, f"weights that nobody handed over: {sorted(own)}"

    def reset_prefix_cache(self):
        pass

    def sleep(self, level):
        assert level == 2
        self.awake = set()
        with torch.no_grad():
            for p in self.model.parameters():
                p.fill_(float("nan"))

    def wake_up(self, tags):
        self.awake |= set(tags)

    @torch.no_grad()
    def generate(self, prompts, sampling_params, use_tqdm):
        assert self.awake == {"weights", "kv_cache"}
        out, each = [], sampling_params
        if not isinstance(each, list):
            each = [each] * len(prompts)
        for prompt, how in zip(prompts, each, strict=True):
            own, ids, scores = torch.Generator(), [], []
            rng = self.rng if how.seed is None else own.manual_seed(how.seed)
            stop = how.stop | (set() if how.ignore_eos else {self.model.config.eos_token_id})
            while len(ids) < how.max_tokens and not (ids and ids[-1] in stop):
                seen = torch.tensor([prompt["prompt_token_ids"] + ids])
                logits = self.model(input_ids=seen).logits[0, -1]
                spread = torch.log_softmax(logits / (how.temperature or 1.0), dim=-1)
                token = int(torch.multinomial(spread.exp(), 1, generator=rng))
                token = token if how.temperature else int(spread.argmax())
                ids.append(token)
                scores.append({token: SimpleNamespace(logprob=float(spread[token]), rank=1)})
            answer = SimpleNamespace(token_ids=ids, logprobs=scores)
            known = prompt["prompt_token_ids"]
            out.append(SimpleNamespace(prompt_token_ids=known, outputs=[answer]))
        return out


def install(monkeypatch, folder):
    """A tiny model on disk, its head untied; and vLLM, or what stands in for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from trl.generation import vllm_generation as engine

    policy = tiny_policy(3, hidden=64)
    config = copy.deepcopy(policy.model.config)
    config.tie_word_embeddings = False
    torch.manual_seed(0)
    type(policy.model)(config).save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    if REAL:
        monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    else:
        monkeypatch.setattr(engine, "is_vllm_available", lambda: True)
        monkeypatch.setattr(engine, "LLM", LLM, raising=False)
        monkeypatch.setattr(engine, "SamplingParams", SamplingParams, raising=False)
        monkeypatch.setattr(module, "_on_cpu", lambda: True)
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            monkeypatch.setenv(name, "")  # TRL writes them; this puts them back after the test
            monkeypatch.delenv(name)
    return str(folder)
