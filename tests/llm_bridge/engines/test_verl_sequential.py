"""The sequential schedule in verl: the update of `llm_bridge.update`, with verl's losses and trainer."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl is not installed", allow_module_level=True)

import transfer_queue
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils import tensordict_utils
from verl.workers.config import ActorConfig, PolicyLossConfig
from verl.workers.utils.losses import ppo_loss

import llm_bridge.engines.verl  # noqa: F401  (registers)
from llm_bridge import tiny_policy
from llm_bridge.advantages import advantages
from llm_bridge.engines.verl_sequential import algorithm_of, sequential, turn_index
from llm_bridge.options import Options
from llm_bridge.rollouts import Sampling, collect
from llm_bridge.rows import score_batch, score_turn
from llm_bridge.update import Updater
from seeupo_theory.rules.presets import get
from tests.llm_bridge.engines.game import CHARACTERS, flat, game

SAME_RTOL = 2e-4
"""Of the largest movement: gradients in float32, summed in another order."""

OPTIONS = Options(aggregation="sum", importance_cap=None)

EPOCHS, LR = 2, 0.05


def played():
    policy = tiny_policy(3, characters=CHARACTERS)
    batch = collect(policy, game(), list("abcd"), 4, 0, Sampling(max_turns=3, max_tokens=2))
    assert not bool(batch.active.all())
    return policy, batch


class Flat:
    """A batch as verl has it: the tokens of all turns in a row, another's token between two turns."""

    def __init__(self, policy, batch, algorithm, how="seq-mean-token-sum"):
        self.policy, self.batch, self.algorithm, self.how = policy, batch, algorithm, how
        parts = [score_batch(policy, batch, t, OPTIONS)[:2] for t in range(batch.horizon)]
        self.widths = [p.shape[1] for p, _ in parts]
        self.mask = self.joined([m.double() for _, m in parts]).long()
        self.old = self.joined([p for p, _ in parts])
        self.given = advantages(batch, policy, algorithm, OPTIONS, None)[0][:, 0]
        self.optimiser = torch.optim.SGD(policy.parameters(), lr=LR)
        self.config = ActorConfig(
            strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1,
            clip_ratio=algorithm.clip_range[0], clip_ratio_low=algorithm.clip_range[0],
            clip_ratio_high=algorithm.clip_range[1], loss_agg_mode=how,
            policy_loss=PolicyLossConfig(loss_mode=f"seeupo_{algorithm.level.replace('-', '_')}"),
        )  # fmt: skip
        self.config.global_batch_info.update(
            dp_size=1, batch_num_tokens=None, global_batch_size=len(batch), loss_scale_factor=None
        )

    def joined(self, parts):
        return torch.cat([torch.nn.functional.pad(p, (0, 1)) for p in parts], dim=1)

    def log_probs(self):
        horizon = range(self.batch.horizon)
        return self.joined([score_batch(self.policy, self.batch, t, OPTIONS)[0] for t in horizon])

    def current(self):
        """Log-probabilities [R, L] with their gradients."""
        new = []
        for t, width in enumerate(self.widths):
            live = [i for i, on in enumerate(self.batch.active[:, t].tolist()) if on]
            part = torch.zeros(len(self.batch), width)
            scored = score_turn(self.policy, self.batch, t, live, OPTIONS).log_prob
            found = torch.nn.functional.pad(scored, (0, width - scored.shape[1]))
            new.append(part.index_copy(0, torch.tensor(live), found))
        return self.joined(new)

    def update(self, mask, old, advantages):
        """What verl's worker does with a batch: epochs of the loss, backward, a step."""
        self.config.global_batch_info["batch_num_tokens"] = float(mask.sum())
        name = f"seeupo_{self.algorithm.level.replace('-', '_')}"
        for _ in range(EPOCHS):
            loss, _ = core_algos.get_policy_loss_fn(name)(
                old, self.current(), advantages, mask, loss_agg_mode=self.how, config=self.config
            )
            self.step(loss)

    def step(self, loss):
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()


def gap(algorithm, run, aggregation="sum"):
    """Largest difference from the plain updater, in units of the largest movement."""
    options = Options(aggregation=aggregation, importance_cap=None)
    how = {"sum": "seq-mean-token-sum", "mean": "token-mean"}[aggregation]
    policy, batch = played()
    other, same = played()
    start = flat(policy)
    Updater(policy, algorithm, options=options)(batch, rng=np.random.default_rng(0))
    run(Flat(other, same, algorithm, how))
    moved = float((flat(policy) - start).abs().max())
    assert moved > 1e-3, "nothing moved; the comparison would say nothing"
    return float((flat(other) - flat(policy)).abs().max()) / moved


def plain(f):
    sequential(f.mask, f.old, f.given, f.algorithm, f.update, f.log_probs, np.random.default_rng(0))


VARIANTS = [
    ("seeupo", {}),
    ("seeupo", {"order": "forward"}),
    ("seeupo", {"order": "random"}),
    ("seeupo", {"level": "token"}),
    ("seeupo", {"level": "token", "aggregation": "mean"}),
    ("seeupo", {"level": "length-normalised", "factor_clip": 0.2}),
    ("seeupo-official", {}),
]


def variant(preset, switches):
    own = {k: v for k, v in switches.items() if k != "aggregation"}
    return get(preset).replace(epochs=EPOCHS, lr=LR, **own)


@pytest.mark.parametrize(("preset", "switches"), VARIANTS)
def test_an_iteration_is_that_of_the_plain_updater(preset, switches):
    how = switches.get("aggregation", "sum")
    assert gap(variant(preset, switches), plain, how) < SAME_RTOL


def test_a_schedule_gone_wrong_is_noticed():
    def without_factor(f):
        def update(mask, old, advantages):
            f.update(mask, old, mask * f.given[:, None])

        sequential(f.mask, f.old, f.given, f.algorithm, update, f.log_probs)

    def over_acting_rows(f):
        f.config.global_batch_info["global_batch_size"] = None  # verl's default: rows with tokens
        plain(f)

    for wrong in (without_factor, over_acting_rows):
        assert gap(variant("seeupo", {}), wrong) > 10 * SAME_RTOL


def test_turns_are_runs_of_own_tokens():
    mask = torch.tensor([[1, 1, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0], [0, 1, 1, 0, 0, 1]])
    assert turn_index(mask).tolist() == [
        [0, 0, -1, 1, -1, -1],
        [-1] * 6,
        [-1, 0, 0, -1, -1, 1],
    ]
    nothing = torch.zeros(2, 3)
    assert sequential(nothing, nothing, torch.ones(2), get("seeupo"), None, None) == {}


CONFIG = {
    "seeupo": {"preset": "seeupo"},
    "data": {"train_batch_size": 4},
    "distillation": None,
    "actor_rollout_ref": {
        "rollout": {"n": 4, "temperature": 1.0},
        "actor": {
            "ppo_mini_batch_size": 4, "policy_loss": {"loss_mode": "seeupo_sequence"},
            "calculate_entropy": False, "entropy_coeff": 0.0, "ppo_epochs": EPOCHS,
            "data_loader_seed": 1, "shuffle": False,
        },
    },
}  # fmt: skip


class Store(dict):
    """What the trainer and its workers share: fields of rows, as nested tensors."""

    def get(self, keys, partition_id, select_fields):
        return TensorDict({f: self[f] for f in select_fields}, batch_size=len(keys))

    def put(self, keys, partition_id, fields):
        self.update(dict(fields.items()))


def nested(matrix, lengths):
    rows = [row[:n] for row, n in zip(matrix, lengths, strict=True)]
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


class Workers:
    """The actor's workers, in this process; prompts of two tokens before every response."""

    def __init__(self, f, store, lengths):
        self.f, self.store, self.lengths = f, store, lengths

    def whole(self, matrix):
        """Responses with their prompts, one token to the left, as a model puts them out."""
        return nested(torch.nn.functional.pad(matrix, (1, 1)), [n + 2 for n in self.lengths])

    def compute_log_prob(self, batch):
        self.store["log_probs"] = self.whole(self.f.log_probs())
        return batch

    def update_actor(self, batch):
        """verl's loss, from what the store holds, in two micro-batches."""
        info = batch.extra_info
        assert info["global_batch_size"] == 16 and info["epochs"] == EPOCHS
        config = self.f.config
        for _ in range(EPOCHS):
            new, total = self.whole(self.f.current()), 0.0
            for part in (range(0, 8), range(8, 16)):
                rows = {
                    f: nested_rows(self.store[f], part)
                    for f in (
                        "response_mask",
                        "old_log_probs",
                        "advantages",
                        "responses",
                        "prompts",
                    )
                }
                data = TensorDict(rows, batch_size=8)
                tensordict_utils.assign_non_tensor(
                    data, dp_size=1, global_batch_size=info["global_batch_size"],
                    batch_num_tokens=float(self.store["loss_mask"].values().sum()),
                )  # fmt: skip
                loss, _ = ppo_loss(config, {"log_probs": nested_rows(new, part)}, data)
                total = total + loss
            self.f.step(total)
        return {"metrics": {"mfu": [0.0], "loss": [0.0]}}


def nested_rows(rows, part):
    each = rows.unbind()
    return torch.nested.as_nested_tensor([each[i] for i in part], layout=torch.jagged)


@pytest.mark.parametrize(("preset", "switches"), VARIANTS)
def test_verls_trainer_with_the_schedule(monkeypatch, preset, switches):
    algorithm, store = variant(preset, switches), Store()
    monkeypatch.setattr(transfer_queue, "kv_batch_get", store.get)
    monkeypatch.setattr(transfer_queue, "kv_batch_put", store.put)

    def run(f):
        lengths = [int(m.nonzero().max()) + 1 for m in f.mask]
        store["response_mask"] = store["loss_mask"] = nested(f.mask, lengths)
        store["responses"] = nested(f.mask, lengths)
        store["prompts"] = nested(torch.ones_like(f.mask), [2] * len(lengths))
        store["old_log_probs"] = nested(f.old, lengths)
        store["advantages"] = nested(f.given[:, None] * f.mask, lengths)
        before = {k: v.to_padded_tensor(0.0).clone() for k, v in store.items()}
        cls = get_trainer_cls("seeupo")
        trainer = cls.__new__(cls)
        trainer.seeupo, trainer.config = algorithm, OmegaConf.create(CONFIG)
        trainer.actor_rollout_wg, trainer.global_steps = Workers(f, store, lengths), 0
        keys = [str(i) for i in range(len(lengths))]
        batch = type("Batch", (), {"keys": keys, "partition_id": "train", "extra_info": {}})()
        metrics = {}
        trainer._update_actor(batch, metrics)
        assert metrics["seeupo/turn_0/factor_max"] > 0 and "actor/loss" in metrics
        for name, value in before.items():  # as before for the measures that follow
            assert torch.equal(store[name].to_padded_tensor(0.0), value)

    if algorithm.order == "random":
        pytest.skip("the trainer's own generator draws another order")
    assert gap(algorithm, run, switches.get("aggregation", "sum")) < SAME_RTOL


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seeupo": {"preset": "grpo"}}, "simultaneous"),
        ({"seeupo": {"guard": True}}, "guard is not read"),
        ({"seeupo": {"kl_coef": 0.1}}, "kl_coef is not read"),
        ({"seeupo": {"preset": "trajectory-ppo"}}, "at once"),
        ({"seeupo": {"level": "token"}}, "seeupo_token"),
        ({"data": {"train_batch_size": 8}}, "train_batch_size, 8"),
        ({"seeupo": {"order": "sideways"}}, "sideways"),
        ({"seeupo": {"ordr": "reverse"}}, "ordr"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(change, says):
    with pytest.raises((ValueError, TypeError), match=says):
        algorithm_of({**CONFIG, **change})


def test_the_file_switches_it_on():
    assert algorithm_of(CONFIG) == get("seeupo")
    assert algorithm_of({**CONFIG, "seeupo": {"order": [1, 0, 2]}}).order == (1, 0, 2)
    assert get_trainer_cls("seeupo") is not get_trainer_cls("sync")


def test_the_example_is_a_configuration_of_verl():
    from hydra import compose, initialize_config_dir
    from verl.utils.config import omega_conf_to_dataclass

    folder = str(Path(__file__).resolve().parents[3] / "examples" / "qwen3-14b")
    with initialize_config_dir(folder, version_base=None):
        config = compose("verl")
    whole = OmegaConf.to_container(config, resolve=True)
    a = algorithm_of(whole)
    assert (a.level, a.order) == ("length-normalised", "reverse")
    assert get_trainer_cls(config.trainer.v1.trainer_mode) is get_trainer_cls("seeupo")
    assert config.algorithm.adv_estimator == "seeupo_seeupo"
    core_algos.get_adv_estimator_fn(config.algorithm.adv_estimator)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert actor.kl_loss_coef == 0.002 and actor.clip_ratio_high == 0.2
    core_algos.get_policy_loss_fn(actor.policy_loss.loss_mode)
