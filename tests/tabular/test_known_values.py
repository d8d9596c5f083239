"""Numbers that can be checked by hand, and the shares of random instances that fail."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from bandits import SequentialBandit, random_bandit, random_policy, zoo
from seeupo_theory.rules.presets import PRESETS
from seeupo_theory.tabular.ensembles import Ensemble, iterate_all, sample
from seeupo_theory.tabular.evaluate import gradient
from seeupo_theory.tabular.lowering import lower
from seeupo_theory.tabular.shares import drops, share_of_stuck
from seeupo_theory.tabular.simulator import Simulator
from seeupo_theory.tabular.weights import PathSums

ATOL = 1e-12
FIGURES = 5e-5
"""Half a unit of the fourth decimal, as printed."""


def first_step(model, algorithm, policy=None, **sizes):
    """Gradient of the algorithm's expected objective at the sampling policy, in the logits."""
    simulator = Simulator(model, algorithm.replace(epochs=1), **sizes)
    theta = simulator.init(policy)
    moved = simulator.update(theta, lr=1.0).theta
    return [
        np.where(np.isfinite(a), np.nan_to_num(b) - np.nan_to_num(a), 0.0)
        for a, b in zip(theta, moved, strict=True)
    ]


# One logit for two contexts ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("normalise", "group", "wanted"),
    [
        ("none", np.inf, -0.05),
        ("none", 2, -0.025),
        ("group", np.inf, 0.10),
        ("group", 2, 0.0354),
        ("group", 4, 0.0700),
        ("group", 8, 0.0868),
    ],
)
def test_group_std_flips_the_sign_of_a_shared_logit(normalise, group, wanted):
    """Weights (0.6, 0.4), gaps (+1, −2), one logit: −0.05 exactly, +0.10 when standardised."""
    entry = zoo.get("shared-logit")
    a = PRESETS["grpo"].replace(normalise=normalise, std_eps=0.0)
    (found,) = first_step(entry.model, a, entry.policy, group_size=group)
    # a logit of action 1 against action 0: the difference moves by twice its derivative
    assert found[0, 1] == pytest.approx(wanted, abs=FIGURES)
    assert found[0, 0] == pytest.approx(-found[0, 1], abs=ATOL)


# The factor of a group that contains its own member ---------------------------------------------

MODELS = [random_bandit(0, 2, (2, 3), "bernoulli"), zoo.get("tool-use").model]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("preset", ["reinforce-grae", "ppo-grae", "dr-grpo"])
def test_own_reward_in_the_mean_shrinks_the_gradient(model, preset):
    """E[ĝ] = (1 − 1/G) ∇J, and exactly ∇J for leave-one-out, in every component."""
    policy = random_policy(1, model, 2.0)
    exact = gradient(model.graph(), policy)
    for group in (2, 3, 4) if preset == "reinforce-grae" else (3,):
        found = first_step(model, PRESETS[preset], policy, group_size=group)
        for mine, theirs in zip(found, exact, strict=True):
            assert_allclose(mine, (1 - 1 / group) * theirs, atol=ATOL)
    for mine, theirs in zip(
        first_step(model, PRESETS["rloo"], policy, group_size=3), exact, strict=True
    ):
        assert_allclose(mine, theirs, atol=ATOL)


# Signs of the expected advantage ----------------------------------------------------------------


@pytest.mark.parametrize(("group", "arm"), [(2, 0.0707), (3, 0.0893), (4, 0.0772), (6, 0.0348)])
def test_grpo_moves_the_wrong_way(group, arm):
    """At (½, ½) the logit of the better arm Y falls; its gradient is ¼ (Â_Y − Â_X) = −½ · arm."""
    entry = zoo.get("wrong-sign")
    (found,) = first_step(entry.model, PRESETS["grpo"], entry.policy, group_size=group)
    assert found[0, 1] == pytest.approx(-arm / 2, abs=FIGURES)
    (right,) = first_step(entry.model, PRESETS["dr-grpo"], entry.policy, group_size=group)
    assert right[0, 1] == pytest.approx((1 - 1 / group) * 0.025, abs=ATOL)


def test_grpo_lowers_j_with_deterministic_rewards_in_two_turns():
    entry = zoo.get("two-turn-std")
    found = first_step(entry.model, PRESETS["grpo"], entry.policy, group_size=4)
    exact = gradient(entry.graph(), entry.policy)
    assert exact[0][0, 1] > 0 > found[0][0, 1]


# Shared weights ---------------------------------------------------------------------------------

EQUATIONS = PRESETS["seeupo"].replace(normalise="none")
OFFICIAL = PRESETS["seeupo-official"].replace(normalise="none", epochs=20)
TRAJECTORY = PRESETS["trajectory-ppo"].replace(guard=False)
N = 1000


def plausible(share, wanted):
    """Both are shares of 1000 draws, of which ours and theirs differ by less than 3 errors."""
    pooled = max((share + wanted) / 2, 1 / N)
    return abs(share - wanted) <= 3 * np.sqrt(2 * pooled * (1 - pooled) / N)


@pytest.mark.parametrize(
    ("lr", "equations", "official"), [(0.5, 0.063, 0.052), (0.1, 0.006, 0.006), (0.02, 0.0, 0.0)]
)
def test_shares_of_drops_under_one_log_linear_policy(lr, equations, official):
    mine, theirs = drops(EQUATIONS, lr), drops(OFFICIAL, lr)
    assert plausible(mine.share, equations) and plausible(theirs.share, official)
    if lr == 0.5:
        assert mine.worst < -0.02 and mine.share > 0.04
    assert drops("ppo-grae", lr).share == 0.0
    assert drops(TRAJECTORY, lr).share == 0.0


@pytest.mark.parametrize("lr", [0.02, 0.5, 2.0, 10.0])
def test_the_trajectory_surrogate_is_a_lower_bound(lr):
    free = drops(TRAJECTORY, lr)
    bound = free.surrogate_gain[:, -1]
    assert (bound <= free.change + ATOL).all()
    fell = free.change < -ATOL
    assert (bound[fell] < 0).all()  # every drop is announced
    if lr == 2.0:
        assert plausible(fell.mean(), 0.019) and plausible((bound < -ATOL).mean(), 0.034)
    guarded = drops("trajectory-ppo", lr)
    assert (guarded.surrogate_gain >= -ATOL).all()
    assert guarded.share == 0.0 and guarded.worst >= -ATOL


# Lower bounds with independent tables -----------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "order", "group"),
    [("seeupo", (1, 0), 2), ("seeupo", (0, 1), np.inf), ("trajectory-ppo", None, 3)],
)
def test_a_surrogate_never_promises_more_than_j_rises(preset, order, group):
    """min(ρM, clip(ρ)M) ≤ ρM: the rise of J after each update times 1 − 1/G is at least its rise.

    In every order, for every tables with full history, whatever the step; group std breaks it.
    """
    ensemble = Ensemble((2, 3), contexts=2, atoms=2)
    instances = sample(ensemble, 300, seed=1)
    share = 1 - 1 / group
    for normalise, holds in (("none", True), ("group", False)):
        a = PRESETS[preset].replace(normalise=normalise, guard=False, epochs=6)
        out = iterate_all(ensemble, a, instances, lr=3.0, order=order, group_size=group)
        path = np.concatenate([out.value_before[:, None], out.values], axis=1)
        margin = share * np.diff(path, axis=1) - out.surrogate_gain
        assert (margin.min() >= -ATOL) == holds, (normalise, margin.min())


# Greedy sweeps on reached histories -------------------------------------------------------------


def test_shares_of_stuck_trees():
    """Of 500 trees (A = 2, T = 4): 323 forward, 212 in random order, none in reverse."""
    assert share_of_stuck("reverse") == 0.0
    # 3 standard errors of the difference of two shares of 500
    assert share_of_stuck("forward") == pytest.approx(323 / 500, abs=0.091)
    assert share_of_stuck("random") == pytest.approx(212 / 500, abs=0.094)


@pytest.mark.parametrize("order", ["forward", "random"])
def test_no_tree_is_stuck_where_support_is_kept(order):
    assert share_of_stuck(order, keep=0.05) == 0.0


def test_experiments_need_an_order_they_can_follow():
    with pytest.raises(ValueError, match="'happo' has a random order or ideal steps"):
        drops("happo", 0.5, n=1)
    with pytest.raises(ValueError, match="order is 'sideways'"):
        share_of_stuck("sideways", n=1, turns=2)


# The running product ----------------------------------------------------------------------------


def test_running_product_with_and_without_the_clamp():
    """Ten turns whose ratio is 1.1 each: 1.1^10 = 2.594 by Eq. 8, 1.2 in the official code."""
    model = SequentialBandit(np.zeros((1, *(2,) * 10)))
    lowered = lower(model.graph(), paths=True)
    old = [jnp.log(jnp.full((2**t, 2), 0.5)) for t in range(10)]
    new = [jnp.log(jnp.tile(jnp.array([0.55, 0.45]), (2**t, 1))) for t in range(10)]
    nothing = jnp.zeros(2**10)
    for name, wanted in (("seeupo", 1.1**10), ("seeupo-official", 1.2)):
        source = PathSums(lowered, old, [nothing] * 10, [nothing] * 10)
        for t in reversed(range(10)):
            source.advance(t, new[t], old[t], PRESETS[name])
        assert float(source.factor[0]) == pytest.approx(wanted, rel=1e-12)
