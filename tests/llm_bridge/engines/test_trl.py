"""The trainer on TRL: the update of `llm_bridge.update`, in one process and in two, sharded or not."""

import copy
import os
import socket
import subprocess
import sys
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("trl")
    from llm_bridge.engines.trl import SeeUPOConfig, SeeUPOTrainer

from peft import LoraConfig
from torch.distributed.fsdp import FSDPModule

from llm_bridge import tiny_policy
from llm_bridge.policies.causal import CausalPolicy
from llm_bridge.rollouts import environment_seed
from llm_bridge.update import Updater
from tests.llm_bridge.engines.game import CHARACTERS, flat, game
from tests.llm_bridge.vllm_standin import REAL, install

pytestmark = pytest.mark.filterwarnings("ignore")  # the engine's own: hints, deprecations

ROOT = Path(__file__).resolve().parents[3]

SAME_RTOL = 2e-4
"""Of the largest movement: gradients in float32, summed in another order and at other paddings."""


def trainer(
    folder,
    preset="seeupo",
    switches=None,
    rows=16,
    accumulate=1,
    epochs=2,
    steps=None,
    model=None,
    peft=None,
    **more,
):
    policy = tiny_policy(3, characters=CHARACTERS)
    if preset == "trajectory-free":
        preset, switches = "trajectory-ppo", {"guard": False}
    settings = {
        "max_completion_length": 2,
        "learning_rate": 0.05,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "optim": "sgd",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_strategy": "no",
    }
    args = SeeUPOConfig(
        str(folder),
        preset=preset,
        switches=switches or {},
        epochs=epochs,
        max_turns=3,
        num_generations=4,
        per_device_train_batch_size=rows // accumulate,
        gradient_accumulation_steps=accumulate,
        temperature=1.0,
        max_steps=steps or (1 if preset in JOINT else 3) * epochs,
        **(settings | more),
    )
    return SeeUPOTrainer(
        policy.model if model is None else model,
        game(),
        args=args,
        processing_class=policy.tokenizer if model is None else None,
        peft_config=peft,
    )


JOINT = ("grpo", "dr-grpo", "rloo", "gspo", "reinforce++", "trajectory-ppo")


def close(found, wanted, start):
    moved = float((wanted - start).abs().max())
    assert moved > 1e-3, "nothing moved; the comparison would say nothing"
    assert float((found - wanted).abs().max()) <= SAME_RTOL * moved


def played(mine):
    """Train, and return the batches that were played."""
    batches, collect = [], mine.collect
    mine.collect = lambda *a: batches.append(collect(*a)) or batches[-1]
    mine.train()
    return batches


def updated(mine, state, batch, optimiser=None, lora=None):
    """Parameters after the plain updater's iteration on a batch, and before it."""
    policy = tiny_policy(3, characters=CHARACTERS)
    policy = CausalPolicy.prepared(policy.model, policy.tokenizer, lora=lora)
    policy.model.load_state_dict(state)
    model, start = policy.model, flat(policy.model)
    algorithm = mine.algorithm.replace(lr=0.05)
    rng = np.random.default_rng(environment_seed(mine.args.seed, "update", 0))
    reference = policy.reference() if algorithm.kl_coef else None
    Updater(policy, algorithm, optimiser, mine.options, reference=reference)(batch, rng=rng)
    return flat(model), start


@pytest.mark.parametrize(
    ("preset", "switches"),
    [
        ("seeupo", {}),
        ("seeupo", {"kl_coef": 0.5, "order": "forward"}),
        ("seeupo", {"order": "random", "level": "token"}),
        ("seeupo-official", {}),
        ("grpo", {}),
        ("rloo", {}),
        ("gspo", {}),
        ("trajectory-free", {}),
    ],
)
def test_an_iteration_is_that_of_the_plain_updater(tmp_path, preset, switches):
    mine = trainer(tmp_path, preset, switches)
    state = copy.deepcopy(mine.policy.model.state_dict())
    (batch,) = played(mine)
    assert not bool(batch.active.all())  # some rows end early
    close(flat(mine.model), *updated(mine, state, batch))


def test_adam(tmp_path):
    mine = trainer(tmp_path, optim="adamw_torch", adam_epsilon=1e-2)  # no division by noise
    state = copy.deepcopy(mine.policy.model.state_dict())
    (batch,) = played(mine)
    adam = partial(torch.optim.AdamW, lr=0.05, eps=1e-2, weight_decay=0.0)
    close(flat(mine.model), *updated(mine, state, batch, adam))


@pytest.mark.parametrize("switches", [{}, {"kl_coef": 0.5}])
def test_adapters(tmp_path, switches):
    lora = {"r": 2, "target_modules": ["q_proj", "v_proj"], "init_lora_weights": False}
    mine = trainer(tmp_path, "seeupo", switches, peft=LoraConfig(**lora))
    state = copy.deepcopy(mine.policy.model.state_dict())
    (batch,) = played(mine)
    names = {n for n, p in mine.model.named_parameters() if p.requires_grad}
    assert names and all("lora_" in n for n in names)
    close(flat(mine.model), *updated(mine, state, batch, lora=lora))


def test_gradient_checkpointing_changes_nothing(tmp_path):
    start = flat(tiny_policy(3, characters=CHARACTERS).model)
    plain, thrifty = trainer(tmp_path / "a"), trainer(tmp_path / "b", gradient_checkpointing=True)
    plain.train()
    thrifty.train()
    close(flat(thrifty.model), flat(plain.model), start)


def test_a_resumed_run_is_the_run_that_was_not_stopped(tmp_path):
    often = {"save_strategy": "steps", "save_steps": 6}
    whole = trainer(tmp_path / "a", steps=12, optim="adamw_torch")
    whole.train()
    trainer(tmp_path / "b", steps=6, optim="adamw_torch", **often).train()
    again = trainer(tmp_path / "b", steps=12, optim="adamw_torch", **often)
    again.train(resume_from_checkpoint=True)
    assert torch.equal(flat(again.model), flat(whole.model))


def test_a_run_resumed_within_an_iteration_is_refused(tmp_path):
    often = {"save_strategy": "steps", "save_steps": 4}
    trainer(tmp_path, steps=4, **often).train()
    with pytest.raises(RuntimeError, match="multiple of 6"):
        trainer(tmp_path, steps=12, **often).train(resume_from_checkpoint=True)


def test_micro_batches_change_nothing(tmp_path):
    start = flat(tiny_policy(3, characters=CHARACTERS).model)
    whole, parts = trainer(tmp_path / "a"), trainer(tmp_path / "b", accumulate=4)
    whole.train()
    parts.train()
    close(flat(parts.model), flat(whole.model), start)


def test_the_next_iteration_plays_again(tmp_path):
    mine = trainer(tmp_path, steps=12)
    assert [b.row_ids[0][0] for b in played(mine)] == [0, 1]
    assert mine.state.global_step == 12


SHARDED = {
    "fsdp": True,
    "fsdp_config": {
        "version": 2,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "transformer_layer_cls_to_wrap": ["Qwen3DecoderLayer"],
        "reshard_after_forward": True,
        "activation_checkpointing": True,
        "state_dict_type": "FULL_STATE_DICT",
        "cpu_ram_efficient_loading": False,
    },
}


def child(folder, world, preset, sharded):
    """What each process of a pair runs: an iteration, and then what it played and reached."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if sharded:
        allow_sharding_on_cpus()
    mine = trainer(Path(folder), preset, rows=16 // world, **(SHARDED if sharded else {}))
    (batch,) = played(mine)
    assert mine.accelerator.num_processes == world
    assert isinstance(mine.model, FSDPModule) == sharded
    end = flat(mine.accelerator.unwrap_model(mine.model))
    torch.save((end, batch), f"{folder}/{mine.accelerator.process_index}.pt")


def allow_sharding_on_cpus():
    """Accelerate shards on accelerators only; torch does on gloo, too."""
    from accelerate import PartialState
    from accelerate.utils import DistributedType

    begin = PartialState.__init__

    def init(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_XPU

    PartialState.__init__ = init


def pair(folder, preset="seeupo", sharded=False):
    """Two processes with gloo: (parameters at the end, batch) of each."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    code = (
        "from tests.llm_bridge.engines.test_trl import child; "
        f"child({str(folder)!r}, 2, {preset!r}, {sharded})"
    )
    processes = []
    for rank in range(2):
        env = dict(os.environ, ACCELERATE_USE_CPU="true", RANK=str(rank), LOCAL_RANK=str(rank))
        env |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", code], cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True
            )
        )
    for process in processes:
        _, errors = process.communicate(timeout=180)
        assert process.returncode == 0, errors[-2000:]
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


def test_two_processes_give_the_update_of_one(tmp_path):
    (first, _), (second, _) = pair(tmp_path)
    one = trainer(tmp_path)
    one.train()
    start = flat(tiny_policy(3, characters=CHARACTERS).model)
    assert torch.equal(first, second)
    close(first, flat(one.model), start)


@pytest.mark.parametrize("preset", ["seeupo", "trajectory-free"])
def test_a_sharded_model_is_updated_as_a_whole_one(tmp_path, preset):
    (first, a), (second, b) = pair(tmp_path, preset, sharded=True)
    mine = trainer(tmp_path / "one", preset)
    state = copy.deepcopy(mine.policy.model.state_dict())
    assert torch.equal(first, second)
    close(first, *updated(mine, state, together(a, b)))


@pytest.mark.skipif(REAL, reason="TRL's way of handing weights over needs a GPU")
def test_vllm_writes_replies_under_the_weights_of_the_moment(tmp_path, monkeypatch):
    model = install(monkeypatch, tmp_path / "model")
    how = {"model": model, "steps": 12, "use_vllm": True, "vllm_mode": "colocate"}
    mine = trainer(tmp_path, vllm_max_model_length=512, save_strategy="no", **how)
    seen, collect = [], mine.collect

    def watched(*args):
        batch = collect(*args)
        for t, pool in enumerate(batch.turns):
            for reply in pool:
                if reply is not None:
                    score = mine.policy.score([reply.prompt_ids], [reply.ids]).log_prob[0]
                    gap = (score.detach() - torch.tensor(reply.log_probs)).abs().max()
                    seen.append((t, float(gap)))
        return batch

    mine.collect = watched
    start = flat(mine.policy.model)
    mine.train()
    assert {t for t, _ in seen} == {0, 1, 2} and max(gap for _, gap in seen) < 1e-5
    assert float((flat(mine.model) - start).abs().max()) > 1e-3


def together(a, b):
    """Rows of two processes as one batch."""
    both = {
        name: torch.cat([getattr(a, name), getattr(b, name)])
        for name in ("rewards", "returns", "truncated", "success")
    }
    for name in ("row_ids", "groups", "contexts"):
        both[name] = getattr(a, name) + getattr(b, name)
    turns = tuple(x + y for x, y in zip(a.turns, b.turns, strict=True))
    return replace(a, turns=turns, bootstrap=None, **both)


def test_what_cannot_run_is_refused(tmp_path):
    for preset in ("ppo", "haml"):
        with pytest.raises(ValueError, match=r"use llm_bridge\.Trainer"):
            SeeUPOConfig(str(tmp_path), preset=preset, use_cpu=True)
