"""The loop: resuming bit for bit, being killed, what is logged, an own environment."""

import copy
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from llm_bridge import checkpoints
from llm_bridge.config import Config, ConfigError, build
from llm_bridge.environments.base import StepResult
from llm_bridge.environments.functions import FunctionEnvironment
from llm_bridge.environments.tabular_text import TabularText
from llm_bridge.logs import read
from llm_bridge.policies.tabular import TabularPolicy
from llm_bridge.policies.tiny import tiny_policy
from llm_bridge.policies.warm import warm_start
from llm_bridge.trainer import Trainer, train
from seeupo_theory.rules.presets import PRESETS

ROOT = Path(__file__).resolve().parents[2]

QUIET = {"progress": False, "tensorboard": False}

TOML = """
preset = "seeupo"
iterations = {iterations}
tasks = 2
group = 4
epochs = 2
lr = 2e-3
max_tokens = 2
bound_tasks = 2
tensorboard = false
progress = false
threads = 1
output = "{output}"

[switches]
kl_coef = 0.01

[policy]
kind = "tiny"
characters = "abc0nextu"
warm_start = 25

[environment]
kind = "tabular"
model = "zoo:xor"
"""


def configured(tmp_path, name, **changes):
    path = tmp_path / "run.toml"
    path.write_text(TOML.format(iterations=5, output=tmp_path / name))
    return Config.load(path).replace(**changes)


def weights(policy):
    return torch.cat([p.detach().ravel() for p in policy.parameters()])


def timeless(records):
    """Records without what a clock says."""
    clocks = ("seconds", "tokens_per_second", "rollout_tokens_per_second")
    return [{k: v for k, v in r.items() if k not in clocks} for r in records]


def test_resuming_is_not_having_stopped(tmp_path):
    """Bit for bit, parameters and records, with Adam's state, a reference and a value head."""
    changes = {"preset": "ppo", "switches": {"kl_coef": 0.01}, "mini_batches": 2}
    whole = Trainer(configured(tmp_path, "whole", **changes))
    whole.train()
    first = Trainer(configured(tmp_path, "parts", **changes, iterations=2))
    first.train()
    second = Trainer(configured(tmp_path, "parts", **changes))
    second.train(resume=True)
    assert torch.equal(weights(whole.policy), weights(second.policy))
    a, b = (read(tmp_path / n / "metrics.jsonl") for n in ("whole", "parts"))
    assert timeless(a) == timeless(b)
    assert [r["iteration"] for r in b if r["kind"] == "iteration"] == list(range(5))


def test_a_killed_run_goes_on(tmp_path):
    """SIGKILL at an unprepared moment; the resumed run ends where the unkilled one does."""
    whole = Trainer(configured(tmp_path, "whole"))
    whole.train()
    path = tmp_path / "killed.toml"
    path.write_text(TOML.format(iterations=5, output=tmp_path / "killed"))
    code = f"from llm_bridge.trainer import train; train({str(path)!r})"
    run = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    try:
        while run.poll() is None:
            found = checkpoints.latest(tmp_path / "killed")
            if found is not None and found.name >= "checkpoint-000002.pt":
                break
            time.sleep(0.01)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    found = checkpoints.latest(tmp_path / "killed")
    assert found is not None and checkpoints.load(found)["iteration"] >= 2
    result = train(path, resume=True)
    assert (result.status, result.iterations) == ("finished", 5)
    state = checkpoints.load(tmp_path / "killed" / "checkpoint-000005.pt")
    other = checkpoints.load(tmp_path / "whole" / "checkpoint-000005.pt")
    for name, value in other["policy"]["model"].items():
        assert torch.equal(value, state["policy"]["model"][name])
    assert timeless(read(tmp_path / "killed" / "metrics.jsonl")) == timeless(
        read(tmp_path / "whole" / "metrics.jsonl")
    )


def test_a_checkpoint_cut_off_in_writing_is_not_seen(tmp_path, monkeypatch):
    checkpoints.save(tmp_path, 1, {"iteration": 1})

    def full(*args):
        raise OSError("no space left")

    monkeypatch.setattr(checkpoints.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        checkpoints.save(tmp_path, 2, {"iteration": 2})
    assert checkpoints.load(checkpoints.latest(tmp_path))["iteration"] == 1


def test_old_checkpoints_are_removed(tmp_path):
    for k in range(5):
        checkpoints.save(tmp_path, k, {"iteration": k}, keep=2)
    assert [p.name for p in sorted(tmp_path.iterdir())] == [
        "checkpoint-000003.pt",
        "checkpoint-000004.pt",
    ]


def test_another_configuration_does_not_resume(tmp_path):
    Trainer(configured(tmp_path, "run", iterations=1)).train()
    with pytest.raises(ConfigError, match="lr is"):
        Trainer(configured(tmp_path, "run", lr=1e-4)).train(resume=True)
    with pytest.raises(ConfigError, match="holds checkpoints"):
        Trainer(configured(tmp_path, "run")).train()


def test_every_number_is_logged(tmp_path):
    seen = []
    config = configured(tmp_path, "run", iterations=2, tensorboard=True)
    Trainer(config, callbacks=[seen.append]).train()
    records = read(tmp_path / "run" / "metrics.jsonl")
    assert len(seen) == len(records) == 2 * 3
    turn, last = records[0], records[2]
    for key in (
        "J", "J_before", "verdict", "kl", "kl_reference", "entropy", "clip_fraction", "surrogate",
        "ratio_quantiles", "gradient_norm", "tokens_per_second", "mismatch",
    ):  # fmt: skip
        assert turn[key] is not None, key
    for key in ("reward", "success", "truncated", "J", "F", "F_lower", "zero_variance_groups"):
        assert last[key] is not None, key
    assert (turn["turns"], records[1]["turns"], last["kind"]) == ([1], [0], "iteration")
    assert last["F_fresh"] and last["F_lower"] <= last["F"]
    assert turn["J"] == records[1]["J_before"] and records[1]["J"] == last["J"]
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))


def test_the_bound_has_no_limit_on_the_batch_of_the_update(tmp_path):
    trainer = Trainer(configured(tmp_path, "", output="", bound_tasks=0))
    record = trainer.step()[-1]
    assert record["F_fresh"] is False and "F_lower" not in record


@pytest.fixture(scope="module")
def warm():
    game = TabularText("zoo:xor")
    policy = tiny_policy(0, characters="abc0next")
    warm_start(policy, game, steps=30, max_tokens=2)
    return game, policy


@pytest.mark.parametrize("name", [n for n, a in PRESETS.items() if not a.ideal])
def test_every_preset_trains_a_transformer(name, warm):
    game, policy = copy.deepcopy(warm)
    config = Config(preset=name, iterations=1, tasks=2, group=8, max_tokens=2, **QUIET)
    before = weights(policy).clone()
    result = Trainer(config, policy, game).train()
    assert result.status == "finished"
    assert torch.isfinite(weights(policy)).all()
    assert not torch.equal(weights(policy), before)


def test_a_table_learns_a_game():
    game = TabularText("zoo:xor")
    policy = TabularPolicy(game)
    config = Config(
        preset="seeupo", iterations=30, tasks=4, group=8, epochs=4, lr=0.3, optimiser="sgd", **QUIET
    )
    trainer = Trainer(config, policy, game)
    before = trainer.exact.value(policy)
    trainer.train()
    assert before < 0.3 and trainer.exact.value(policy) > 0.85


def test_an_own_environment_in_a_few_lines():
    class Echo:
        def reset(self, task, seed):
            self.wanted = "ab"[seed % 2]
            return [{"role": "user", "content": self.wanted}]

        def step(self, text):
            return StepResult([], float(text == self.wanted), True)

        def close(self):
            pass

    config = Config(
        preset="grpo", iterations=1, tasks=4, group=4, max_turns=1, max_tokens=2, **QUIET
    )
    result = Trainer(config, tiny_policy(0, characters="ab"), Echo()).train()
    assert result.status == "finished" and 0 <= result.records[-1]["reward"] <= 1


OWN = """
from llm_bridge import FunctionEnvironment

def step(task, texts):
    return "again" if len(texts) < 2 else None

def reward(task, texts):
    return sum(task in text for text in texts) / 2

def make():
    return FunctionEnvironment(reward, step, tasks=["a", "b"])
"""


def test_a_configuration_file_may_name_a_file_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "my_own_words.py").write_text(OWN)
    (tmp_path / "run.toml").write_text(
        'preset = "seeupo"\niterations = 1\ntasks = 2\ngroup = 2\nmax_turns = 2\nmax_tokens = 3\n'
        'progress = false\ntensorboard = false\noutput = "out"\n'
        '[environment]\nkind = "my_own_words:make"\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    result = train("run.toml")
    assert result.status == "finished"
    assert (tmp_path / "out" / "checkpoint-000001.pt").is_file()
    assert "J" not in result.records[-1]


def test_a_run_that_breaks_says_so(tmp_path):
    game = TabularText("zoo:xor")
    policy = TabularPolicy(game)
    config = Config(iterations=3, optimiser="sgd", lr=1.0, output=str(tmp_path), **QUIET)
    trainer = Trainer(config, policy, game)

    def spoil(record):
        if record["kind"] == "iteration" and record["iteration"] == 1:
            with torch.no_grad():
                next(policy.parameters()).fill_(float("nan"))

    trainer.callbacks = [spoil]
    result = trainer.train()
    assert (result.status, result.iterations) == ("non-finite", 2)
    assert checkpoints.load(checkpoints.latest(tmp_path))["iteration"] == 1


# -- configuration ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"presett": "grpo"}, "did you mean 'preset'"),
        ({"preset": "grop"}, "did you mean 'grpo'"),
        ({"switches": {"ordr": "forward"}}, "did you mean 'order'"),
        ({"switches": {"order": "sequential"}}, "reverse"),
        ({"switches": {"order": [0, 0]}}, "exactly once"),
        ({"switches": {"lr": 0.1}}, "the key lr itself"),
        ({"switches": 3}, "should be a table"),
        ({"iterations": 0}, "at least 1"),
        ({"optimiser": "adam"}, "adamw"),
        ({"temperature": 0.0}, "above 0"),
        ({"critic": "exakt"}, "value-head"),
        ({"aggregation": "constant"}, "constant"),
        ({"bound_tasks": 1}, "at least 2"),
        ({"kl_reference": "none", "switches": {"kl_coef": 0.1}}, "kl_coef"),
        ({"mini_batches": 0}, "at least 1"),
    ],
)
def test_wrong_configurations_are_refused(table, words):
    with pytest.raises(ValueError, match=words):
        Config.of(table)


def test_no_tasks_are_refused():
    with pytest.raises(ConfigError, match="tasks is empty"):
        Trainer(Config(), tiny_policy(), FunctionEnvironment(lambda task, texts: 0.0, tasks=[]))


def test_a_model_that_is_not_there_is_refused():
    for path in ("/nowhere", "./nowhere", "~/nowhere"):
        table = {"policy": {"kind": "causal", "path": path}, "environment": {"kind": "bfcl"}}
        with pytest.raises(ConfigError, match=r"policy: path is .*nowhere'; there is no such"):
            build(Config.of(table))


def test_wrong_files_are_refused(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("preset = ")
    with pytest.raises(ConfigError, match=r"run\.toml"):
        Config.load(path)
    with pytest.raises(ConfigError, match=r"environment\.kind"):
        build(Config())
    with pytest.raises(ConfigError, match=r"policy\.kind"):
        build(Config(policy={"kind": "tny"}, environment={"kind": "tabular", "model": "zoo:xor"}))


def test_a_configuration_survives_json():
    config = Config(preset="grpo", switches={"clip": [0.2, 0.28]}, policy={"kind": "tiny"})
    assert Config.of(json.loads(json.dumps(config.table()))) == config
    assert config.algorithm.clip_range == (0.2, 0.28)


def test_discount_and_turns_must_be_the_games():
    game = TabularText("zoo:discount-trap")
    with pytest.raises(ConfigError, match=r"the game's is 0\.5"):
        Trainer(Config(**QUIET), TabularPolicy(game), game)
    with pytest.raises(ConfigError, match="the game has 2"):
        Trainer(Config(max_turns=1, discount=0.5, **QUIET), TabularPolicy(game), game)
