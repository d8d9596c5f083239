"""Laws that every preset passes in the bridge: masks, no-ops, loss scale, ratios, KL.

The policy here is the simplest that has tokens: one logit a symbol, whatever came before.  So
tokens can be inserted, masked and moved, and what should not change must not change.
"""

import copy

import numpy as np
import pytest
import torch

from llm_bridge.policies.base import Scored, Turn
from llm_bridge.policies.tiny import tiny_policy
from llm_bridge.rows import Rows
from llm_bridge.turns import TurnBatch
from llm_bridge.update import Options, Updater
from seeupo_theory.rules.presets import PRESETS, get

SYMBOLS = 5
ROUNDING = 1e-12
"""Sums of a few doubles in another order."""

PRESET_NAMES = [
    name for name, a in PRESETS.items() if not a.ideal and a.estimator != "exact" and not a.resample
]


class Symbols(torch.nn.Module):
    """π(token) = softmax(θ), for every token of every turn alike."""

    def __init__(self, theta=(0.3, -0.2, 0.1, 0.0, -0.1)):
        super().__init__()
        self.theta = torch.nn.Parameter(torch.tensor(theta, dtype=torch.float64))
        self.value = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))

    def score(self, prompts, ids, *, temperature=1.0, entropy=False):
        width = max(1, *(len(r) for r in ids), 1)
        spread = torch.log_softmax(self.theta / temperature, -1)
        out, mask = [], torch.zeros((len(ids), width), dtype=torch.bool)
        for i, row in enumerate(ids):
            picked = spread[torch.tensor(row, dtype=torch.long)]
            out.append(torch.nn.functional.pad(picked, (0, width - len(row))))
            mask[i, : len(row)] = True
        disorder = -(spread.exp() * spread).sum().detach()
        return Scored(torch.stack(out), mask, mask * disorder if entropy else None)

    def values(self, prompts):
        return self.value.expand(len(prompts))

    def parameters(self, recurse=True):
        return iter([self.theta])

    def value_parameters(self):
        return iter([self.value])

    def reference(self):
        return copy.deepcopy(self)


def turn(ids, mask=None, log_probs=None):
    return Turn((0,), tuple(ids), log_probs, "", mask=mask)


def batch(returns, *pools, groups=None, **extra):
    """Rows with these returns; rewards are paid at the last turn of each."""
    rows, horizon = len(returns), len(pools)
    rewards = torch.zeros((rows, horizon), dtype=torch.float64)
    for i, r in enumerate(returns):
        last = max([t for t in range(horizon) if pools[t][i] is not None], default=0)
        rewards[i, last] = r
    return TurnBatch(
        row_ids=tuple(f"r{i}" for i in range(rows)),
        groups=tuple([0] * rows if groups is None else groups),
        turns=pools,
        rewards=rewards,
        returns=torch.tensor(returns, dtype=torch.float64),
        truncated=torch.zeros(rows, dtype=torch.bool),
        **extra,
    )


def example(duplicate=1):
    """Two turns, four rows of two tasks; the third row ends after its first turn."""
    first = [turn([0, 1]), turn([2]), turn([3, 1, 4]), turn([0])]
    second = [turn([1]), turn([2, 2]), None, turn([3, 0])]
    returns = [1.0, 0.0, 0.3, 0.8]
    groups = [0, 0, 1, 1]
    if duplicate > 1:
        groups = [g + 2 * k for k in range(duplicate) for g in groups]
        return batch(returns * duplicate, first * duplicate, second * duplicate, groups=groups)
    return batch(returns, first, second, groups=groups)


def step(algorithm, rows, policy=None, options=None, **extra):
    """Parameters after one iteration, and its reports."""
    policy = policy or Symbols()
    updater = Updater(policy, algorithm, options=options or Options(), **extra)
    updater.reference = updater.reference or Symbols((0.0,) * SYMBOLS)
    reports = updater(rows, rng=np.random.default_rng(0))
    return policy.theta.detach().clone(), reports


def light(name, **switches):
    return get(name).replace(epochs=2, lr=0.5, **switches)


# -- masks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregation", ["sum", "mean", "sequence-mean"])
@pytest.mark.parametrize("name", [*PRESET_NAMES])
def test_foreign_tokens_between_own_ones_change_nothing(name, aggregation):
    """Neither loss, gradient nor length normaliser (verifiers #11, TRL #2810)."""
    first = [turn([0, 1]), turn([2, 4])]
    longer = [turn([0, 3, 3, 3, 1], (True, False, False, False, True)), turn([2, 4])]
    second = [turn([1]), turn([2, 2])]
    options = Options(aggregation=aggregation)
    algorithm = light(name, kl_coef=0.1)
    plain, _ = step(algorithm, batch([1.0, 0.0], first, second), options=options)
    masked, _ = step(algorithm, batch([1.0, 0.0], longer, second), options=options)
    assert (plain - masked).abs().max() < ROUNDING
    assert (plain - Symbols().theta).abs().max() > 1e-3


@pytest.mark.parametrize("name", PRESET_NAMES)
def test_a_masked_token_has_ratio_one_and_no_gradient(name):
    """Whatever its log-probability at generation was (Flash-RL #19)."""
    rows = batch(
        [1.0, 0.0],
        [turn([0, 3], (True, False), (-1.0, -50.0)), turn([2])],
    )
    other = batch([1.0, 0.0], [turn([0], None, (-1.0,)), turn([2])])
    a, _ = step(light(name, kl_coef=0.1), rows)
    b, _ = step(light(name, kl_coef=0.1), other)
    assert (a - b).abs().max() < ROUNDING


@pytest.mark.parametrize("name", PRESET_NAMES)
def test_fully_masked_rows_and_batches_are_finite_and_still(name):
    """TRL #5826: nothing to train on is nothing trained."""
    none = (False, False)
    rows = batch([1.0, 0.0], [turn([0, 1], none), turn([2, 3], none)])
    after, reports = step(light(name, kl_coef=0.1), rows)
    assert torch.equal(after, Symbols().theta.detach())
    assert all(np.isfinite(r.metrics["surrogate"]) for r in reports)


# -- no-ops ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESET_NAMES)
def test_a_turn_of_noops_alone_changes_nothing(name):
    """Factor exactly 1, no KL, no gradient: a third turn nobody reached does not exist."""
    rows = example()
    padded = batch(rows.returns.tolist(), *rows.turns, [None] * 4, groups=rows.groups)
    algorithm = light(name, kl_coef=0.1)
    a, _ = step(algorithm, rows)
    b, _ = step(algorithm, padded)
    assert (a - b).abs().max() < ROUNDING


@pytest.mark.parametrize("name", ["seeupo", "seeupo-official"])
def test_a_noop_has_factor_exactly_one(name):
    algorithm = light(name, order="reverse")
    policy = Symbols()
    updater = Updater(policy, algorithm)
    rows = Rows(updater, example(), None)
    with torch.no_grad():
        policy.theta[1] += 1.0
    rows.advance(1)
    factor = rows.factor
    assert float(factor["r2"]) == 1.0
    assert all(float(factor[r]) != 1.0 for r in ("r0", "r1", "r3"))


def test_the_factor_is_the_product_of_the_turns_ratios():
    """Eq. 8 by hand, with length-2 replies; reordered rows keep their own."""
    policy = Symbols()
    updater = Updater(policy, light("seeupo"))
    order = [2, 0, 3, 1]
    rows, moved = Rows(updater, example(), None), Rows(updater, example().take(order), None)
    before = torch.log_softmax(policy.theta.detach(), -1)
    with torch.no_grad():
        policy.theta[1] += 0.7
    after = torch.log_softmax(policy.theta.detach(), -1)
    change = (after - before).exp()
    for part in (rows, moved):
        part.advance(1)
        part.advance(0)
        assert float(part.factor["r0"]) == pytest.approx(float(change[1] * change[0] * change[1]))
        assert float(part.factor["r2"]) == pytest.approx(float(change[3] * change[1] * change[4]))


# -- loss scale ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("name", PRESET_NAMES)
def test_any_split_into_micro_batches_is_the_same_step(name, size):
    a, _ = step(light(name, kl_coef=0.1), example())
    b, _ = step(light(name, kl_coef=0.1), example(), options=Options(micro_batch=size))
    assert (a - b).abs().max() < ROUNDING


@pytest.mark.parametrize("aggregation", ["sum", "mean", "sequence-mean", "constant"])
def test_micro_batches_and_aggregations_of_tokens(aggregation):
    options = {"aggregation": aggregation, "constant": 4.0 if aggregation == "constant" else None}
    out = [
        step(light("grpo", kl_coef=0.1), example(), options=Options(micro_batch=m, **options))[0]
        for m in (None, 1, 3)
    ]
    assert max((out[0] - x).abs().max() for x in out) < ROUNDING


@pytest.mark.parametrize("name", [n for n in PRESET_NAMES if get(n).normalise != "batch"])
def test_a_duplicated_batch_is_the_same_step(name):
    """verl #3741; a batch std with divisor n − 1 does depend on n."""
    a, _ = step(light(name, kl_coef=0.1), example())
    b, _ = step(light(name, kl_coef=0.1), example(duplicate=2))
    assert (a - b).abs().max() < ROUNDING


@pytest.mark.parametrize("name", PRESET_NAMES)
def test_permuted_rows_are_the_same_step(name):
    """TRL #3231, and verl #7956: an advantage belongs to a row."""
    a, _ = step(light(name, kl_coef=0.1), example())
    b, _ = step(light(name, kl_coef=0.1), example().take([3, 1, 0, 2]))
    assert (a - b).abs().max() < ROUNDING


def test_a_kl_a_token_is_added_under_the_mask():
    """open-instruct #535: mean of (objective − β kl) over own tokens."""
    rows = batch([1.0, 0.0], [turn([0, 1, 3], (True, True, False)), turn([2])])
    policy, reference = Symbols(), Symbols((0.0,) * SYMBOLS)
    algorithm = light("dr-grpo", kl_coef=0.5, kl_kind="k2")
    updater = Updater(policy, algorithm, options=Options(aggregation="mean"), reference=reference)
    part = Rows(updater, rows, None)
    value = updater._pass(part, [0], part.weighted([0]), range(2), backward=False).value
    mine = torch.log_softmax(policy.theta.detach(), -1)
    kl = ((mine - np.log(1 / SYMBOLS)) ** 2 / 2)[[0, 1, 2]]
    gain = torch.tensor([0.5, 0.5, -0.5])
    assert value == pytest.approx(float((gain - 0.5 * kl).mean()))


def test_at_ratio_one_the_loss_is_zero_and_the_gradient_is_not():
    """open-r1 #239."""
    policy = Symbols()
    updater = Updater(policy, light("ppo-grae"))
    rows = Rows(updater, batch([1.0, 0.0], [turn([0]), turn([2])]), None)
    tally = updater._pass(rows, [0], rows.weighted([0]), range(2), backward=True)
    assert abs(tally.value) < ROUNDING
    assert policy.theta.grad.abs().max() > 0.1


# -- ratios and clip -------------------------------------------------------------------------------


def test_sequence_ratios_do_not_weigh_by_length():
    """TRL #3823: lengths 2 and 20, A = ±1, ratio 1: loss 0, not 18/22."""
    rows = batch([2.0, 0.0], [turn([0] * 2), turn([1] * 20)])
    for name in ("ppo-grae", "gspo", "seeupo"):
        _, reports = step(get(name).replace(epochs=1, lr=0.0), rows)
        assert abs(reports[0].metrics["surrogate"]) < ROUNDING


@pytest.mark.parametrize(
    ("level", "ratio"), [("sequence", np.exp(1.2)), ("length-normalised", np.exp(0.012))]
)
def test_both_ratios_of_a_reply_exist_under_their_names(level, ratio):
    """TRL #5814: a hundred tokens of log ratio 0.012."""
    policy = Symbols((0.0, 0.0, -np.inf, -np.inf, -np.inf))
    updater = Updater(policy, light("seeupo", level=level))
    rows = Rows(updater, batch([1.0, 0.0], [turn([0] * 100), turn([1])]), None)
    p = 0.5 * np.exp(0.012)
    with torch.no_grad():
        policy.theta[0], policy.theta[1] = np.log(p), np.log(1 - p)
    rows.advance(0)
    assert float(rows.factor["r0"]) == pytest.approx(ratio)


@pytest.mark.parametrize("name", PRESET_NAMES)
def test_with_one_epoch_nothing_is_clipped(name):
    """verl #1477."""
    _, reports = step(get(name).replace(epochs=1, lr=1.0), example())
    assert reports[0].metrics["clip_fraction"] == 0.0


@pytest.mark.parametrize("name", PRESET_NAMES)
def test_with_step_size_zero_nothing_moves(name):
    """RLinf #1534: ratio 1, KL 0, clip fraction 0."""
    after, reports = step(light(name).replace(lr=0.0, kl_coef=0.1), example(), reference=Symbols())
    assert torch.equal(after, Symbols().theta.detach())
    for r in reports:
        assert set(r.metrics["ratio_quantiles"]) == {1.0}
        assert r.metrics["kl"] == r.metrics["clip_fraction"] == 0.0


@pytest.mark.parametrize("temperature", [0.6, 1.7])
def test_the_same_weights_at_a_temperature_have_ratio_one(temperature):
    """TRL #4159: on a transformer, generated and scored at the same temperature."""
    policy = tiny_policy(0)
    conversation = [{"role": "user", "content": "hello"}]
    turns = policy.generate([conversation] * 4, max_tokens=5, temperature=temperature, seed=0)
    rows = batch([1.0, 0.0, 0.5, 0.2], turns)
    algorithm = get("seeupo").replace(epochs=1, lr=0.0)
    updater = Updater(policy, algorithm, options=Options(temperature=temperature))
    report = updater(rows)[0].metrics
    assert set(report["ratio_quantiles"]) == {1.0}
    assert report["mismatch"] < 1e-5


def test_the_reference_of_the_ratio_has_two_names():
    """At the second turn "behaviour" is θ_k, "current" the parameters after the first update."""
    out = {}
    for kind in ("behaviour", "current"):
        _, reports = step(light("seeupo", reference=kind).replace(lr=3.0), example())
        out[kind] = reports[1].metrics["ratio_quantiles"]
    assert out["behaviour"] != out["current"]


GRADIENT_ATOL = 1e-6
"""Gradients of a float32 model, added up in another order."""


@pytest.mark.parametrize("name", ["seeupo", "grpo", "gspo", "trajectory-ppo"])
def test_micro_batches_leave_a_transformers_gradient_alone(name):
    """Rows of different lengths, an early end, KL: split into pieces of 1 and 3 (TRL #6024)."""
    policy = tiny_policy(0)
    texts = ["a", "a longer question", "b", "hm", "what now"]
    ask = [[{"role": "user", "content": t}] for t in texts]
    first = policy.generate(ask, max_tokens=6, temperature=1.0, seed=0)
    second = policy.generate(ask, max_tokens=3, temperature=1.0, seed=1)
    rows = batch([1.0, 0.0, 0.3, 0.7, 0.2], first, [*second[:3], None, second[4]])
    reference = tiny_policy(1)
    grads = []
    for size in (None, 1, 3):
        algorithm = get(name).replace(kl_coef=0.1, guard=False)
        options = Options(micro_batch=size)
        updater = Updater(policy, algorithm, options=options, reference=reference)
        part = Rows(updater, rows, None)
        updater.optimiser.zero_grad()
        updater._pass(part, [0, 1], part.weighted([0, 1]), range(5), backward=True)
        grads.append(torch.cat([p.grad.ravel() for p in policy.parameters()]))
    assert grads[0].abs().max() > 1e-2
    assert max((grads[0] - g).abs().max() for g in grads[1:]) < GRADIENT_ATOL


# -- importance weights of generation --------------------------------------------------------------


def test_a_mismatch_is_reported_and_corrected_up_to_the_cap():
    policy = Symbols()
    now = torch.log_softmax(policy.theta.detach(), -1)
    seen = (float(now[0]) - 0.1, float(now[1]) - 2.0)
    rows = batch([1.0, 0.0], [turn([0], None, seen[:1]), turn([1], None, seen[1:])])
    part = Rows(Updater(policy, light("seeupo"), options=Options(importance_cap=2.0)), rows, None)
    assert part.mismatch == pytest.approx(2.0)
    assert part.importance[0].tolist() == pytest.approx([np.exp(0.1), 2.0])
    off = Rows(Updater(policy, light("seeupo"), options=Options(importance_cap=None)), rows, None)
    assert off.importance[0].tolist() == [1.0, 1.0]


def test_importance_weights_make_the_gradient_unbiased():
    """Samples of another distribution, weighted: the expected gradient is the policy's own."""
    policy, other = (
        Symbols(),
        torch.log_softmax(torch.tensor([0.0, 0.5, 0.0, 0.2, 0.1]).double(), -1),
    )
    reward = torch.tensor([1.0, 0.0, 0.3, 0.5, 0.2], dtype=torch.float64)
    rows = batch(
        reward.tolist(),
        [turn([a], None, (float(other[a]),)) for a in range(SYMBOLS)],
        weights=other.exp() * SYMBOLS,
    )
    algorithm = get("reinforce").replace(lr=1.0)
    after, _ = step(algorithm, rows, policy, Options(importance_cap=100.0))
    theta = Symbols().theta
    (torch.softmax(theta, -1) @ reward).backward()
    assert (after - theta.detach() - theta.grad).abs().max() < ROUNDING


# -- KL --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESET_NAMES)
def test_a_penalty_changes_the_step(name):
    """slime #1247."""
    a, _ = step(light(name), example())
    b, _ = step(light(name, kl_coef=0.5), example())
    assert (a - b).abs().max() > 1e-4


@pytest.mark.parametrize("name", PRESET_NAMES)
def test_without_advantage_a_step_lowers_the_kl(name):
    """RAGEN #58: A = 0 and β > 0."""
    ids = [[a] for a in range(SYMBOLS)]
    mine = torch.softmax(Symbols().theta.detach(), -1)
    rows = batch([0.0] * SYMBOLS, [turn(i) for i in ids], weights=mine * SYMBOLS)
    algorithm = get(name).replace(epochs=1, lr=0.05, kl_coef=1.0, kl_kind="k2")
    algorithm = algorithm.replace(guard=False)
    after, _ = step(algorithm, rows)

    def kl(theta):
        log_prob = torch.log_softmax(theta, -1)
        return float((log_prob.exp() * (log_prob + np.log(SYMBOLS))).sum())

    assert kl(after) < kl(Symbols().theta.detach()) - 1e-6


@pytest.mark.parametrize("name", PRESET_NAMES)
def test_a_step_makes_the_better_reply_likelier(name):
    """fla #1073, up to the preset without a baseline, which only sees rewards."""
    after, _ = step(get(name).replace(epochs=1, lr=0.1), batch([1.0, 0.0], [turn([0]), turn([1])]))
    change = torch.log_softmax(after, -1) - torch.log_softmax(Symbols().theta.detach(), -1)
    assert change[0] > 1e-4 and change[0] > change[1]


def test_the_reported_kl_is_that_from_the_sampling_policy():
    """Every symbol once, weighted equally under a uniform policy: the mean is the divergence."""
    policy = Symbols((0.0,) * SYMBOLS)
    rows = batch([1.0, 0.0, 0.0, 0.0, 0.0], [turn([a]) for a in range(SYMBOLS)])
    after, reports = step(get("ppo-grae").replace(epochs=1, lr=20.0), rows, policy)
    wanted = -np.log(SYMBOLS) - float(torch.log_softmax(after, -1).mean())
    assert wanted > 1 and reports[0].metrics["kl"] == pytest.approx(wanted)


# -- estimators on rows ----------------------------------------------------------------------------


def test_the_group_is_the_task_whatever_the_prompts():
    """rllm #667, NeMo-RL #4013."""
    turns = [Turn((k,), (0,), None, "") for k in range(4)]
    rows = batch([1.0, 0.0, 0.0, 1.0], turns, groups=["t"] * 4)
    part = Rows(Updater(Symbols(), light("ppo-grae")), rows, None)
    assert part.advantages[:, 0].tolist() == [0.5, -0.5, -0.5, 0.5]


@pytest.mark.parametrize("name", [n for n in PRESET_NAMES if n not in ("reinforce", "ppo")])
@pytest.mark.parametrize("value", [0.0, -3.0, 1e8])
def test_equal_returns_teach_nothing(name, value):
    """ai-agent-book #498: advantage, gradient and step exactly 0."""
    rows = example()
    same = batch([value] * 4, *rows.turns, groups=rows.groups)
    after, _ = step(light(name), same)
    assert torch.equal(after, Symbols().theta.detach())


@pytest.mark.parametrize(
    "name", [n for n in PRESET_NAMES if n not in ("reinforce", "ppo", "reinforce++")]
)
def test_a_group_of_one_teaches_nothing(name):
    """verl, TRL: one documented answer on every path."""
    rows = batch([5.0, 3.0], [turn([0]), turn([1])], groups=[0, 1])
    after, _ = step(light(name), rows)
    assert torch.equal(after, Symbols().theta.detach())


def test_more_turns_do_not_change_a_batchs_statistics():
    """A row of two turns counts once, like a row of one."""
    part = Rows(Updater(Symbols(), light("seeupo")), example(), None)
    centred = np.array([0.5, -0.5, -0.25, 0.25])
    wanted = centred / (centred.std(ddof=1) + 1e-6)
    assert np.abs(part.advantages[:, 0].numpy() - wanted).max() < ROUNDING
    assert torch.equal(part.advantages[:, 0], part.advantages[:, 1])


# -- switches --------------------------------------------------------------------------------------


def test_an_order_that_is_no_permutation_is_an_error():
    updater = Updater(Symbols(), light("seeupo"))
    with pytest.raises(ValueError, match="exactly once"):
        updater(example(), order=(0, 0))


def test_a_closed_form_step_is_refused():
    with pytest.raises(ValueError, match="closed-form"):
        Updater(Symbols(), get("haml"))


def test_an_optimiser_can_forget_between_turns():
    out = []
    for flag in (False, True):
        policy = Symbols()
        algorithm = light("seeupo")
        updater = Updater(
            policy,
            algorithm,
            lambda p: torch.optim.Adam(p, lr=0.05),
            Options(reset_optimiser=flag),
        )
        updater(example())
        steps = updater.optimiser.state[policy.theta]["step"]
        out.append((policy.theta.detach().clone(), float(steps)))
    assert (out[0][0] - out[1][0]).abs().max() > 1e-4
    assert (out[0][1], out[1][1]) == (4.0, 2.0)


def test_mini_batches_take_one_step_each():
    policy = Symbols()
    updater = Updater(
        policy, light("grpo"), lambda p: torch.optim.Adam(p, lr=0.05), Options(mini_batches=2)
    )
    updater(example(), rng=np.random.default_rng(0))
    assert float(updater.optimiser.state[policy.theta]["step"]) == 4.0


def test_gradients_are_scaled_down_to_their_limit():
    free, _ = step(get("seeupo").replace(epochs=1, lr=1.0), example())
    held, _ = step(
        get("seeupo").replace(epochs=1, lr=1.0), example(), options=Options(max_grad_norm=1e-3)
    )
    start = Symbols().theta.detach()
    assert (held - start).norm() <= 2.001e-3 < (free - start).norm()


def test_a_guarded_step_never_ends_below_zero():
    """Two epochs at a step size at which the free ascent overshoots."""
    algorithm = get("trajectory-ppo").replace(epochs=2, lr=20.0)
    rows = batch([1.0, 0.0, 0.4], [turn([0, 1]), turn([1, 1]), turn([0, 0])])
    _, reports = step(algorithm, rows)
    assert reports[0].metrics["surrogate"] >= 0.0
    _, wild = step(algorithm.replace(guard=False), rows)
    assert wild[0].metrics["surrogate"] < 0.0


# -- batches ---------------------------------------------------------------------------------------


def test_episodes_do_not_resume():
    with pytest.raises(ValueError, match="after a no-op"):
        batch([1.0], [None], [turn([0])])


def test_row_ids_are_distinct():
    with pytest.raises(ValueError, match="distinct"):
        TurnBatch(
            row_ids=("a", "a"),
            groups=(0, 0),
            turns=((turn([0]), turn([1])),),
            rewards=torch.zeros((2, 1)),
            returns=torch.zeros(2),
            truncated=torch.zeros(2, dtype=torch.bool),
        )


def test_a_value_head_learns_the_return_to_go():
    policy = Symbols()
    algorithm = get("ppo").replace(epochs=1, lr=0.0)
    options = Options(critic_lr=0.1, critic_epochs=200)
    Updater(policy, algorithm, options=options)(batch([1.0, 0.0], [turn([0]), turn([1])]))
    assert float(policy.value.detach()) == pytest.approx(0.5, abs=0.02)
