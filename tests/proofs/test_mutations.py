"""Change one formula of the rules: a property that ties it to a proof must fail.

`MUTATIONS.md` lists the mutations for readers; a test keeps the two together.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from seeupo_theory.rules import advantages, factor, improvement, objectives

from . import test_backward_induction as backward
from . import test_baseline_invariance as baseline
from . import test_batch_normalisation as batch
from . import test_clipped_lower_bound as clipped
from . import test_discounting as discounting
from . import test_group_std as group_std
from . import test_performance_difference as difference


@dataclass(frozen=True)
class Mutation:
    """A formula in its module, what is put in its place, and the properties that notice."""

    name: str
    module: Any
    attribute: str
    mutate: Callable[[Any], Any]
    noticed_by: tuple[Callable[[], None], ...]


def divisor_of_the_others(original):
    """The mean divides by G - 1 instead of G."""

    def centred(xp, values, axis):
        shifted = values - xp.min(values, axis=axis, keepdims=True)
        axes = (axis,) if isinstance(axis, int) else axis
        count = int(np.prod([values.shape[a] for a in axes]))
        return shifted - xp.sum(shifted, axis=axis, keepdims=True) / max(count - 1, 1)

    return centred


def own_reward_left_out(original):
    """The mean baseline is silently the leave-one-out one."""

    def grae(returns, *, baseline="mean", **options):
        return original(returns, baseline="loo" if baseline == "mean" else baseline, **options)

    return grae


def own_reward_left_in(original):
    """Leave-one-out is silently the group mean."""

    def grae(returns, *, baseline="mean", **options):
        return original(returns, baseline="mean" if baseline == "loo" else baseline, **options)

    return grae


def population_divisor(original):
    """The standard deviation ignores ddof."""
    return lambda xp, values, axis, ddof: original(xp, values, axis, 0)


def own_group_only(original):
    """The batch standard deviation is taken over the own group."""
    return lambda xp, values, axis, ddof: original(xp, values, -1, ddof)


def maximum_for_minimum(original):
    """The surrogate takes the larger branch: flat where it should move."""

    def branches(xp, change, advantage, logs):
        above, below, beyond = original(xp, change, -advantage, logs)
        return above, below, beyond & False

    return branches


def clip_at_the_other_side(original):
    """The upper boundary is put at 1 + low."""
    return lambda low, high, dual: original(low, low, dual)


def ratio_upside_down(original):
    """The running factor multiplies by old / new."""

    def log_ratio(new, old, *arguments, **options):
        return -original(new, old, *arguments, **options)

    return log_ratio


def undiscounted(original):
    """GAE forgets the discount."""
    return lambda rewards, values, *, discount, **options: original(
        rewards, values, discount=1.0, **options
    )


def worst_action(original):
    """The ideal step takes the smallest advantage."""
    return lambda prob, advantage, mask=None: original(prob, -advantage, mask)


def losses_ignored(original):
    """The water-filling drops E[A-]."""
    return lambda prob, up, down, *options: original(prob, up, 0 * down, *options)


MUTATIONS = (
    Mutation(
        "group mean divides by G - 1",
        advantages,
        "_centred",
        divisor_of_the_others,
        (baseline.test_group_mean_scales_by_its_factor, baseline.test_expected_gradient),
    ),
    Mutation(
        "group mean leaves the own reward out",
        advantages,
        "grae",
        own_reward_left_out,
        (baseline.test_group_mean_scales_by_its_factor, clipped.test_parts_are_the_simulator_s),
    ),
    Mutation(
        "leave-one-out keeps the own reward",
        advantages,
        "grae",
        own_reward_left_in,
        (baseline.test_leave_one_out_is_unbiased,),
    ),
    Mutation(
        "standard deviation with divisor G",
        advantages,
        "_std",
        population_divisor,
        (group_std.test_expected_advantage_given_the_own_reward, batch.test_one_law),
    ),
    Mutation(
        "batch std of the own group only",
        advantages,
        "_std",
        own_group_only,
        (batch.test_two_contexts, batch.test_shared_logit),
    ),
    Mutation(
        "clip takes the larger branch",
        objectives,
        "_branches",
        maximum_for_minimum,
        (clipped.test_clip_is_the_proof_s_surrogate_and_a_lower_bound,),
    ),
    Mutation(
        "clip at 1 + low",
        objectives,
        "_bounds",
        clip_at_the_other_side,
        (clipped.test_clip_with_unequal_sides,),
    ),
    Mutation(
        "running factor upside down",
        factor,
        "log_ratio",
        ratio_upside_down,
        (
            difference.test_running_factor_gives_every_turn_its_gain,
            difference.test_reverse_factor_is_eq_4,
        ),
    ),
    Mutation(
        "GAE without the discount",
        advantages,
        "gae",
        undiscounted,
        (
            difference.test_gae_telescopes,
            discounting.test_gae_follows_the_update_without_the_discount,
        ),
    ),
    Mutation(
        "greedy takes the worst action",
        improvement,
        "greedy",
        worst_action,
        (
            backward.test_one_reverse_sweep_of_the_rules_is_optimal,
            backward.test_greedy_is_an_argmax,
        ),
    ),
    Mutation(
        "ideal clip step ignores losses",
        improvement,
        "clip_argmax",
        losses_ignored,
        (clipped.test_simultaneous_ideal_step_keeps_the_return,),
    ),
)
PAIRS = [
    pytest.param(mutation, check, id=f"{mutation.name}: {check.__name__}")
    for mutation in MUTATIONS
    for check in mutation.noticed_by
]


EXAMPLES = 300
"""Random examples in which a property must fail; without shrinking, whose result nobody reads."""


def fails_as_a_property(check, examples=EXAMPLES):
    """Run a property until it fails by an assertion; any other error is raised."""
    source = Random(0)
    try:
        if not hasattr(check, "hypothesis"):
            check()
        else:
            for _ in range(examples):
                check.hypothesis.fuzz_one_input(source.randbytes(2048))
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize(("mutation", "check"), PAIRS)
def test_the_mutation_is_noticed(mutation, check, monkeypatch):
    original = getattr(mutation.module, mutation.attribute)
    monkeypatch.setattr(mutation.module, mutation.attribute, mutation.mutate(original))
    assert fails_as_a_property(check)


def test_the_documentation_lists_them():
    text = (Path(__file__).parent / "MUTATIONS.md").read_text()
    for mutation in MUTATIONS:
        assert mutation.name in text
        assert mutation.mutate.__doc__.rstrip(".") in text
        for check in mutation.noticed_by:
            assert check.__name__ in text
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    assert len(rows) == len(MUTATIONS) + 1


def test_a_mutation_that_breaks_a_call_is_not_counted(monkeypatch):
    def broken(returns, **options):
        raise TypeError("no such option")

    monkeypatch.setattr(advantages, "grae", broken)
    with pytest.raises(TypeError, match="no such option"):
        fails_as_a_property(baseline.test_leave_one_out_is_unbiased)


CHECKS = sorted(
    {check for mutation in MUTATIONS for check in mutation.noticed_by},
    key=lambda check: check.__name__,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_without_a_mutation_nothing_fails(check):
    assert not fails_as_a_property(check, examples=20)
