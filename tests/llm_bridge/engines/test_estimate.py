"""What a run needs, against counts made another way; and the configurations it is made for."""

import importlib.util
import sys
import warnings
from pathlib import Path

import pytest
import torch

from llm_bridge.engines.estimate import QWEN3_14B, Decoder, Work, main, memory, seconds

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "qwen3-14b"


@pytest.mark.parametrize("model", [QWEN3_14B, Decoder(3, 64, 96, 4, 2, 16, 100, tied=True)])
def test_weights_are_those_of_the_model_itself(model):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        num_hidden_layers=model.layers, hidden_size=model.hidden, head_dim=model.head_dim,
        intermediate_size=model.intermediate, num_attention_heads=model.heads,
        num_key_value_heads=model.kv_heads, vocab_size=model.vocabulary,
        tie_word_embeddings=model.tied,
    )  # fmt: skip
    with torch.device("meta"):
        whole = Qwen3ForCausalLM(config)
    assert model.weights == sum(p.numel() for p in whole.parameters())


def test_tokens_are_counted_turn_by_turn():
    work = Work(rows=3, turns=4, prompt=7, reply=5, answer=2)
    each = [7 + t * (5 + 2) + 5 for t in range(4)]
    assert work.scored == 3 * sum(each)
    assert work.longest == max(each)
    assert work.written == 3 * 4 * 5
    with pytest.raises(ValueError, match="turns is 0"):
        Work(turns=0)


def test_more_gpus_hold_less_and_are_faster():
    work = Work()
    few, many = memory(QWEN3_14B, work, 8), memory(QWEN3_14B, work, 16)
    assert many.states == few.states / 2 and many.logits == few.logits
    assert few.states * 8 == 16 * QWEN3_14B.weights
    assert seconds(QWEN3_14B, work, 16)[0] == seconds(QWEN3_14B, work, 8)[0] / 2
    assert few.update < 80e9 and few.rollouts < 80e9


def test_it_says_what_does_not_fit(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["estimate", "--gpus", "4"])
    main()
    assert "room for 0 in 80 GB" in capsys.readouterr().out


def example():
    spec = importlib.util.spec_from_file_location("train_trl", EXAMPLE / "train_trl.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")
def test_the_configuration_of_trl_is_one(tmp_path):
    pytest.importorskip("trl")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from llm_bridge.engines.trl import SeeUPOConfig

    settings = example().SETTINGS
    made = SeeUPOConfig(str(tmp_path), use_cpu=True, **{**settings, "bf16": False})
    assert made.algorithm.kl_coef == 0.002 and made.algorithm.clip_range == (0.2, 0.2)
    rows = settings["per_device_train_batch_size"] * settings["gradient_accumulation_steps"] * 8
    assert rows == 32 * settings["num_generations"] == Work().rows
    assert settings["save_steps"] % made.num_iterations == 0


def test_the_configuration_of_accelerate_is_one():
    from accelerate.commands.config import load_config_from_file

    found = load_config_from_file(str(EXAMPLE / "fsdp.yaml"))
    assert found.num_processes == 8 and found.fsdp_config["fsdp_version"] == 2
