"""Replies written by vLLM: against a stand-in with vLLM's interface, and vLLM itself where it is."""

import warnings

import pytest
import torch

from llm_bridge import Config, FunctionEnvironment, Trainer
from llm_bridge.environments.base import NotInstalledError
from llm_bridge.policies import vllm as module
from llm_bridge.policies.causal import CausalPolicy
from llm_bridge.policies.tiny import tiny_policy
from tests.llm_bridge.vllm_standin import REAL, install

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("trl")
    from trl.generation import vllm_generation as engine

pytestmark = pytest.mark.filterwarnings("ignore")  # the engine's own

ASK = [[{"role": "user", "content": text}] for text in ("hello", "a", "bc" * 10)]

OPTIONS = {"max_model_length": 256, "gpu_memory_utilization": 0.1}

ATOL = 0.05 if REAL else 1e-5
"""Of a token's log-probability: vLLM holds the weights in bfloat16 there, the stand-in in float32."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return install(monkeypatch, tmp_path)


def difference(policy, turns, temperature):
    scored = policy.score(
        [t.prompt_ids for t in turns], [t.ids for t in turns], temperature=temperature
    )
    rows = zip(turns, scored.log_prob.detach(), strict=True)
    return max(float((torch.tensor(t.log_probs) - s[: len(t.ids)]).abs().max()) for t, s in rows)


def test_replies_are_the_models_own_before_and_after_a_change_of_weights(folder):
    policy = CausalPolicy.from_pretrained(folder, vllm=OPTIONS)
    how = {"max_tokens": 12, "temperature": 0.8}
    first = policy.generate(ASK, seed=3, **how)
    assert difference(policy, first, 0.8) < ATOL
    before = policy.reference()
    with torch.no_grad():
        for p in policy.parameters():
            p.mul_(1.5)
    second = policy.generate(ASK, seed=3, **how)
    assert difference(policy, second, 0.8) < ATOL
    assert difference(before, second, 0.8) > 5 * ATOL  # else the check above would say nothing
    alone = policy.generate(ASK[1:2], seed=[(3, 1)], **how)  # a row's seed is its own
    assert alone[0].ids == second[1].ids
    assert all(len(t.ids) == 12 or t.ids[-1] in policy.stop_ids for t in second)
    assert [t.truncated for t in second] == [t.ids[-1] not in policy.stop_ids for t in second]


def test_rows_of_one_prompt_differ(folder):
    policy = CausalPolicy.from_pretrained(folder, vllm=OPTIONS)
    turns = policy.generate(ASK[:1] * 8, max_tokens=6, temperature=1.0, seed=0)
    assert len({t.ids for t in turns}) > 4


@pytest.mark.skipif(REAL, reason="sleep needs a GPU, and the count is the stand-in's")
def test_weights_are_handed_over_once_a_change_and_at_each_waking(folder):
    plain = CausalPolicy.from_pretrained(folder, vllm=OPTIONS)
    llm = plain.generator.engine.llm
    for _ in range(2):
        plain.generate(ASK, max_tokens=3, temperature=1.0, seed=0)
    assert llm.loads == 1
    dozing = CausalPolicy.from_pretrained(folder, vllm={**OPTIONS, "enable_sleep_mode": True})
    first = dozing.generate(ASK, max_tokens=3, temperature=1.0, seed=0)
    again = dozing.generate(ASK, max_tokens=3, temperature=1.0, seed=0)
    assert dozing.generator.engine.llm.loads == 2
    assert first == again and difference(dozing, again, 1.0) < ATOL


@pytest.mark.skipif(REAL, reason="adapters are merged by TRL; the stand-in checks the names")
def test_adapters_are_merged(folder):
    policy = CausalPolicy.from_pretrained(
        folder, lora={"r": 2, "target_modules": ["q_proj", "v_proj"]}, vllm=OPTIONS
    )
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(0.3)
    turns = policy.generate(ASK, max_tokens=8, temperature=1.0, seed=1)
    assert difference(policy, turns, 1.0) < ATOL
    with policy.model.disable_adapter():
        assert difference(policy, turns, 1.0) > 5 * ATOL


def test_it_trains(folder):
    config = Config(
        preset="seeupo", iterations=3, tasks=2, group=8, lr=0.01, max_turns=2, max_tokens=2,
        progress=False, tensorboard=False, importance_cap=2.0,
    )  # fmt: skip
    policy = CausalPolicy.from_pretrained(folder, vllm=OPTIONS)
    environment = FunctionEnvironment(
        lambda task, texts: float(sum(t[:1] < "M" for t in texts)),
        lambda task, texts: "on" if len(texts) < 2 else None,
        tasks=["a", "b"],
    )
    start = [p.detach().clone() for p in policy.parameters()]
    done = Trainer(config, policy, environment).train()
    assert done.status == "finished"
    assert any(not torch.equal(a, b) for a, b in zip(start, policy.parameters(), strict=True))


def test_what_is_missing_is_said_before_anything_is_loaded(monkeypatch):
    policy = tiny_policy()
    monkeypatch.setattr(engine, "is_vllm_available", lambda: False)
    with pytest.raises(NotInstalledError, match=r"seeupo\[vllm\]"):
        CausalPolicy.prepared(policy.model, policy.tokenizer, vllm={})
    with pytest.raises(NotInstalledError, match=r"seeupo\[vllm\]"):
        CausalPolicy.from_pretrained("a-hub/model", vllm={})  # before anything is looked for
    monkeypatch.setattr(engine, "is_vllm_available", lambda: True)
    monkeypatch.setattr(module, "_on_cpu", lambda: True)
    with pytest.raises(ValueError, match="name_or_path"):
        CausalPolicy.prepared(policy.model, policy.tokenizer, vllm={})
    policy.model.config._name_or_path = policy.model.name_or_path = "somewhere"
    with pytest.raises(ValueError, match="tied embeddings"):
        CausalPolicy.prepared(policy.model, policy.tokenizer, vllm={})
