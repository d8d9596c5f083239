"""Small cases with a right value, reported against other trainers; each runs through the bridge."""

import numpy as np
import pytest
import torch

from llm_bridge.environments.base import StepResult
from llm_bridge.policies.base import Turn
from llm_bridge.policies.tiny import tiny_policy
from llm_bridge.rollouts import Sampling, collect
from llm_bridge.rows import Rows, score_turn
from llm_bridge.update import Options, Updater
from seeupo_theory.rules.presets import get
from tests.llm_bridge.test_laws import Symbols, batch, light, turn

ROUNDING = 1e-12


def surrogate(ratio, advantage, **switches):
    """Objective of one reply whose probability became `ratio` times as large, and its gradient."""
    policy = Symbols((np.log(0.3), np.log(0.7), -np.inf, -np.inf, -np.inf))
    algorithm = light("ppo-grae", **switches)
    updater = Updater(policy, algorithm)
    rows = Rows(updater, batch([0.0], [turn([0])]), torch.tensor([float(advantage)]))
    p = 0.3 * ratio
    with torch.no_grad():
        policy.theta[0], policy.theta[1] = np.log(p), np.log(1 - p)
    tally = updater._pass(rows, [0], rows.weighted([0]), [0], backward=True)
    return tally.value, float(policy.theta.grad[0])


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "flat"),
    [(0.5, 1, 0.5, False), (1.5, 1, 1.2, True), (0.5, -1, -0.8, True), (1.5, -1, -1.5, False)],
)
def test_the_four_corners_of_the_clip(ratio, advantage, value, flat):
    """RL2 #21, GMPO #4, spinningup #255: flat, with gradient 0, in exactly two of them."""
    found, gradient = surrogate(ratio, advantage)
    assert found == pytest.approx(value)
    assert (gradient == 0.0) == flat


def test_the_dual_clip_is_for_negative_advantages():
    """tianshou #433."""
    assert surrogate(1.1, 1, dual_clip=3.0)[0] == pytest.approx(1.1)
    assert surrogate(3.2, -1, dual_clip=3.0)[0] == pytest.approx(-3.0)


@pytest.mark.parametrize(("kind", "slope"), [("k1", 0.0), ("k2", 0.41223), ("k3", 0.37444)])
def test_what_a_kl_loss_differentiates_to(kind, slope):
    """Two arms, logit 0.3, reference (0.2, 0.8): the divergence's own derivative is k2's."""
    policy = Symbols((0.3, 0.0, -np.inf, -np.inf, -np.inf))
    reference = Symbols((np.log(0.2), np.log(0.8), -np.inf, -np.inf, -np.inf))
    weights = torch.softmax(policy.theta.detach(), -1)[:2] * 2
    rows = batch([0.0, 0.0], [turn([0]), turn([1])], weights=weights)
    algorithm = get("seeupo").replace(epochs=1, lr=1.0, kl_coef=1.0, kl_kind=kind)
    Updater(policy, algorithm, reference=reference)(rows)
    assert float(0.3 - policy.theta.detach()[0]) == pytest.approx(slope, abs=5e-6)


@pytest.mark.parametrize(
    ("preset", "win", "loss"),
    [("grpo", 1.2076, -0.7246), ("dr-grpo", 0.625, -0.375), ("rloo", 5 / 7, -3 / 7)],
)
def test_three_successes_in_eight(preset, win, loss):
    """Relax #174."""
    rows = batch([1.0] * 3 + [0.0] * 5, [turn([k % 5]) for k in range(8)])
    part = Rows(Updater(Symbols(), light(preset)), rows, None)
    assert part.advantages[0, 0].item() == pytest.approx(win, abs=1e-4)
    assert part.advantages[7, 0].item() == pytest.approx(loss, abs=1e-4)


def test_groups_far_apart():
    """grpo-flat #2, axolotl #3731: a group mean is blind to the offset, a batch mean is not."""
    returns, groups = [0.0, 1.0, 10.0, 11.0], [0, 0, 1, 1]
    rows = batch(returns, [turn([k]) for k in range(4)], groups=groups)
    signs = {
        name: torch.sign(
            Rows(Updater(Symbols(), light(name)), rows, None).advantages[:, 0]
        ).tolist()
        for name in ("dr-grpo", "reinforce++")
    }
    assert signs == {"dr-grpo": [-1, 1, -1, 1], "reinforce++": [-1, -1, 1, 1]}


class Shop:
    """Answers with a tool's text that mentions a reward; pays for the policy's own word only."""

    seen: list[str] = []  # noqa: RUF012

    def reset(self, task, seed):
        self.turn = 0
        return [{"role": "user", "content": "buy"}]

    def step(self, text):
        type(self).seen.append(text)
        self.turn += 1
        paid = float("a" in text)
        tool = [{"role": "tool", "content": "reward 100 aaaa"}]
        return StepResult([] if self.turn == 2 else tool, paid, self.turn == 2)

    def close(self):
        pass


@pytest.fixture(scope="module")
def shopping():
    policy = tiny_policy(0, characters="ab rewd10uy")
    Shop.seen.clear()
    return policy, collect(policy, Shop, [0], 6, 0, Sampling(max_turns=2, max_tokens=3))


def test_rewards_never_see_tool_text_and_belong_to_the_turn_that_earned_them(shopping):
    """verl #6392."""
    _, rows = shopping
    assert not any("100" in text for text in Shop.seen)
    for t in range(2):
        for i, reply in enumerate(rows.turns[t]):
            assert float(rows.rewards[i, t]) == float("a" in reply.text)
    # the tool's tokens are in the next prompt, and no reply holds them
    tool = rows.turns[1][0].prompt_ids[len(rows.turns[0][0].prompt_ids) :]
    assert len(tool) > 15 and all(len(r.ids) <= 3 for pool in rows.turns for r in pool)


def test_all_masks_agree_after_truncation(shopping):
    """TRL #4976: ids, log-probabilities at generation, own mask and scores have one length."""
    policy, rows = shopping
    assert any(r.truncated for pool in rows.turns for r in pool)
    for t, pool in enumerate(rows.turns):
        scored = score_turn(policy, rows, t, range(len(rows)), Options())
        lengths = [len(r.ids) for r in pool]
        assert lengths == [len(r.log_probs) for r in pool] == [len(r.own) for r in pool]
        assert scored.mask.sum(dim=1).tolist() == lengths


def test_values_and_advantages_belong_to_turns_not_to_tokens():
    """verl #2337, on turns: with γ = λ = 1 each turn's advantage is its return to go minus V."""
    policy = Symbols()
    with torch.no_grad():
        policy.value.fill_(0.25)
    short = batch([1.0, 0.0], [turn([0]), turn([1])], [turn([2]), None])
    long = batch(
        [1.0, 0.0],
        [turn([0, 3, 3, 3], (True, False, False, False)), turn([1])],
        [turn([2]), None],
    )
    for rows in (short, long):
        part = Rows(Updater(policy, light("ppo")), rows, None)
        assert part.advantages[0].tolist() == pytest.approx([0.75, 0.75])
        assert part.advantages[1, 0].item() == pytest.approx(-0.25)
        assert part.targets[0].tolist() == pytest.approx([1.0, 1.0])


def test_a_truncated_row_is_bootstrapped_from_the_value_head():
    policy = Symbols()
    with torch.no_grad():
        policy.value.fill_(0.25)
    rows = batch([0.0, 0.0], [turn([0]), turn([1])], bootstrap=((0, 1), None))
    part = Rows(Updater(policy, light("ppo")), rows, None)
    assert part.targets[:, 0].tolist() == pytest.approx([0.25, 0.0])


def test_siblings_do_not_leak_into_each_others_returns():
    """AReaL #1666: rows are whole trajectories; another row's return moves only the baseline."""
    pools = ([turn([0]), turn([0])], [turn([1]), turn([2])])
    one, other = (batch([1.0, r], *pools) for r in (0.0, 5.0))
    a, b = (Rows(Updater(Symbols(), light("ppo")), rows, None) for rows in (one, other))
    assert torch.equal(a.targets[0], b.targets[0])
    assert torch.equal(a.advantages[0], b.advantages[0])


def test_returns_and_advantages_are_separate():
    """verl #5974."""
    rows = batch([1.0, 0.0], [turn([0]), turn([1])])
    part = Rows(Updater(Symbols(), light("seeupo")), rows, None)
    assert rows.returns.tolist() == [1.0, 0.0]
    assert (part.advantages[:, 0] - rows.returns).abs().max() > 0.1


def test_prompts_may_differ_within_a_reply_of_equal_tokens():
    """Equal replies to different prompts are different samples: only true duplicates are shared."""
    policy = tiny_policy(0)
    prompts = [policy.encode([{"role": "user", "content": c}]) for c in ("x", "y", "x")]
    turns = [Turn(p, (20, 21), None, "") for p in prompts]
    scored = score_turn(policy, batch([1.0, 0.0, 0.0], turns), 0, range(3), Options())
    each = scored.log_prob.detach()
    assert torch.equal(each[0], each[2]) and (each[0] - each[1]).abs().max() > 1e-6
