"""SeeUPO on Qwen3-14B and BFCL v4, on TRL: 8 GPUs, the paper's hyper-parameters.

    pip install 'seeupo[vllm]' && pip install --no-deps bfcl-eval
    accelerate launch --config_file examples/qwen3-14b/fsdp.yaml examples/qwen3-14b/train_trl.py

Never run as it stands: it needs 8 GPUs of 80 GB.  What of it was run on a CPU, and what it needs in
memory and time, is in docs/engines.md.
"""

from __future__ import annotations

import argparse
from typing import Any

MODEL = "Qwen/Qwen3-14B"

SETTINGS: dict[str, Any] = {
    # the algorithm; the paper: clip 0.2 at the ratio of GSPO, KL 0.002, low-variance estimator
    "preset": "seeupo",
    "switches": {"level": "length-normalised", "clip": 0.2, "kl_coef": 0.002, "kl_kind": "k3"},
    "epochs": 1,
    "learning_rate": 1e-6,
    "lr_scheduler_type": "constant",
    "max_grad_norm": 1.0,
    # 32 tasks, 8 rollouts each: 32 rows on each of 8 GPUs, one at a time
    "num_generations": 8,
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 32,
    "max_turns": 10,
    "max_completion_length": 1024,
    "temperature": 0.9,
    # replies by vLLM in the same processes, asleep while the weights move
    "use_vllm": True,
    "vllm_mode": "colocate",
    "vllm_tensor_parallel_size": 2,
    "vllm_gpu_memory_utilization": 0.5,
    "vllm_enable_sleep_mode": True,
    "vllm_max_model_length": 16_384,
    "bf16": True,
    "gradient_checkpointing": False,  # fsdp.yaml has activation checkpointing
    "save_strategy": "steps",
    "save_steps": 100,  # a multiple of the 10 optimiser steps of an iteration
    "logging_steps": 10,
    "report_to": ["tensorboard"],
}


def main() -> None:
    """Train; `--resume` goes on from the last checkpoint."""
    from transformers import AutoTokenizer

    from llm_bridge.engines.trl import SeeUPOConfig, SeeUPOTrainer
    from llm_bridge.environments import BFCLMultiTurn

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--out", default="runs/qwen3-14b")
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args()
    steps = given.iterations * SETTINGS["max_turns"] * SETTINGS["epochs"]
    trainer = SeeUPOTrainer(
        given.model,
        BFCLMultiTurn("base", tools_in="template"),
        args=SeeUPOConfig(given.out, max_steps=steps, **SETTINGS),
        processing_class=AutoTokenizer.from_pretrained(given.model),
    )
    trainer.train(resume_from_checkpoint=given.resume)


if __name__ == "__main__":
    main()
