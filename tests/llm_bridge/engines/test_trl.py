"""The trainer on TRL: the update of `llm_bridge.update`, in one process and in two."""

import os
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("trl")
    from llm_bridge.engines.trl import SeeUPOConfig, SeeUPOTrainer

from llm_bridge import FunctionEnvironment, tiny_policy
from llm_bridge.rollouts import environment_seed
from llm_bridge.update import Updater

pytestmark = pytest.mark.filterwarnings("ignore")  # the engine's own: hints, deprecations

ROOT = Path(__file__).resolve().parents[3]

SAME_RTOL = 2e-4
"""Of the largest movement: gradients in float32, summed in another order and at other paddings."""


def reward(task, texts):
    """More for letters of the task; a position that matters, so that returns differ."""
    return sum((k + 1) * (text[:1] == task) + 0.1 * text.count("c") for k, text in enumerate(texts))


def step(task, texts):
    """At most three turns; one that begins with b ends the episode."""
    return None if len(texts) == 3 or texts[-1][:1] == "b" else "on"


def game():
    return FunctionEnvironment(reward, step, tasks=["a", "b", "c", "d"])


def trainer(folder, preset="seeupo", switches=None, rows=16, accumulate=1, epochs=2, steps=None):
    policy = tiny_policy(3, characters="abcdon")
    args = SeeUPOConfig(
        str(folder),
        preset=preset,
        switches=switches or {},
        epochs=epochs,
        max_turns=3,
        num_generations=4,
        per_device_train_batch_size=rows // accumulate,
        gradient_accumulation_steps=accumulate,
        max_completion_length=2,
        temperature=1.0,
        max_steps=steps or (1 if preset in JOINT else 3) * epochs,
        learning_rate=0.05,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_strategy="no",
    )
    optimiser = torch.optim.SGD(policy.model.parameters(), lr=0.05)
    return SeeUPOTrainer(
        policy.model,
        game(),
        args=args,
        processing_class=policy.tokenizer,
        optimizers=(optimiser, torch.optim.lr_scheduler.ConstantLR(optimiser, 1.0)),
    )


JOINT = ("grpo", "dr-grpo", "rloo", "gspo", "reinforce++", "trajectory-ppo")


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()]).double()


def close(found, wanted, start):
    moved = float((wanted - start).abs().max())
    assert moved > 1e-3, "nothing moved; the comparison would say nothing"
    assert float((found - wanted).abs().max()) <= SAME_RTOL * moved


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
        ("trajectory-ppo", {"guard": False}),
    ],
)
def test_an_iteration_is_that_of_the_plain_updater(tmp_path, preset, switches):
    mine = trainer(tmp_path, preset, switches)
    batches = []
    collect = mine.collect
    mine.collect = lambda *a: batches.append(collect(*a)) or batches[-1]
    mine.train()
    (batch,) = batches
    assert not bool(batch.active.all())  # some rows end early
    policy = tiny_policy(3, characters="abcdon")
    start = flat(policy.model)
    algorithm = mine.algorithm.replace(lr=0.05)
    rng = np.random.default_rng(environment_seed(mine.args.seed, "update", 0))
    reference = policy.reference() if algorithm.kl_coef else None
    Updater(policy, algorithm, options=mine.options, reference=reference)(batch, rng=rng)
    close(flat(mine.model), flat(policy.model), start)


def test_micro_batches_change_nothing(tmp_path):
    start = flat(tiny_policy(3, characters="abcdon").model)
    whole, parts = trainer(tmp_path / "a"), trainer(tmp_path / "b", accumulate=4)
    whole.train()
    parts.train()
    close(flat(parts.model), flat(whole.model), start)


def test_the_next_iteration_plays_again(tmp_path):
    mine, seen = trainer(tmp_path, steps=12), []
    collect = mine.collect
    mine.collect = lambda *a: seen.append(collect(*a)) or seen[-1]
    mine.train()
    assert [b.row_ids[0][0] for b in seen] == [0, 1]
    assert mine.state.global_step == 12


def run(folder, rank=0, world=1, port=0, preset="seeupo"):
    code = (
        "import sys, warnings; warnings.simplefilter('ignore'); import torch; "
        "torch.set_num_threads(1); from tests.llm_bridge.engines.test_trl import trainer, flat; "
        f"t = trainer({str(folder)!r}, {preset!r}, rows={16 // world}); t.train(); "
        f"assert t.accelerator.num_processes == {world}; "
        f"torch.save(flat(t.accelerator.unwrap_model(t.model)), {str(folder / f'{rank}.pt')!r})"
    )
    env = dict(os.environ, ACCELERATE_USE_CPU="true")
    if world > 1:
        env |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True
    )


def test_two_processes_give_the_update_of_one(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    pair = [run(tmp_path, rank, 2, port) for rank in range(2)]
    for process in pair:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors[-2000:]
    one = trainer(tmp_path)
    one.train()
    start = flat(tiny_policy(3, characters="abcdon").model)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert torch.equal(first, second)
    close(first, flat(one.model), start)


def test_what_cannot_run_is_refused(tmp_path):
    for preset in ("ppo", "haml"):
        with pytest.raises(ValueError, match=r"use llm_bridge\.Trainer"):
            SeeUPOConfig(str(tmp_path), preset=preset, use_cpu=True)
