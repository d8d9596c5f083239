"""The plug-in against verl's own core algorithms; `make test-verl` runs these."""

import importlib.util

import numpy as np
import pytest
import torch

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl is not installed", allow_module_level=True)

from verl.trainer.ppo import core_algos
from verl.workers.config import ActorConfig

import llm_bridge.engines.verl  # noqa: F401  (registers)
from seeupo_theory.rules import returns as return_rule

ATOL = 1e-5
"""verl computes advantages in float32 and adds its 1e-6 in the same place."""


def batch():
    torch.manual_seed(0)
    mask = torch.ones(8, 6)
    mask[1, 4:] = 0
    mask[6, 2:] = 0
    rewards = torch.zeros(8, 6)
    rewards[:, 1] = torch.randn(8)
    old = -torch.rand(8, 6) * 2
    new = (old + 0.3 * torch.randn(8, 6)).requires_grad_(True)
    return rewards, mask, np.array([0] * 4 + [1] * 4), old, new


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rloo", {}),
        ("grpo", {}),
        ("dr-grpo", {"norm_adv_by_std_in_grpo": False}),
    ],
)
def test_advantages_are_equal(name, options):
    rewards, mask, index, *_ = batch()
    mine = core_algos.get_adv_estimator_fn(f"seeupo_{name}")(rewards, mask, index=index)[0]
    theirs = {"dr-grpo": "grpo"}.get(name, name)
    wanted = core_algos.get_adv_estimator_fn(theirs)(rewards, mask, index=index, **options)[0]
    torch.testing.assert_close(mine, wanted, atol=ATOL, rtol=0)


def test_gae_is_equal_before_verl_whitens_it():
    rewards, mask, *_ = batch()
    values = torch.randn(8, 6)
    how = {"gamma": 0.9, "lam": 0.8}
    theirs, targets = core_algos.compute_gae_advantage_return(rewards, values, mask, **how)
    after = torch.nn.functional.pad(values, (0, 1))  # nothing follows the last token
    mine = return_rule.gae(rewards, after, discount=0.9, lam=0.8, mask=mask)
    own = mask.bool()
    torch.testing.assert_close((mine + values)[own], targets[own], atol=ATOL, rtol=0)
    white = (mine - mine[own].mean()) / (mine[own].var() + 1e-8).sqrt()
    torch.testing.assert_close(white[own], theirs[own], atol=ATOL, rtol=0)


@pytest.mark.parametrize(
    ("level", "theirs", "how"),
    [
        ("token", "vanilla", "token-mean"),
        ("token", "vanilla", "seq-mean-token-mean"),
        ("length_normalised", "gspo", "seq-mean-token-mean"),
    ],
)
def test_losses_and_gradients_are_equal(level, theirs, how):
    rewards, mask, index, old, new = batch()
    advantages = core_algos.get_adv_estimator_fn("rloo")(rewards, mask, index=index)[0]
    config = ActorConfig(
        strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, clip_ratio_c=1e6
    )
    out = []
    for name in (f"seeupo_{level}", theirs):
        value, _ = core_algos.get_policy_loss_fn(name)(
            old, new, advantages, mask, loss_agg_mode=how, config=config
        )
        out.append((value, *torch.autograd.grad(value, new)))
    assert float(out[1][1].abs().max()) > 1e-3
    for mine, wanted in zip(*out, strict=True):
        torch.testing.assert_close(mine, wanted, atol=ATOL, rtol=0)
