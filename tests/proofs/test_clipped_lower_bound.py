"""The simulator's clip is the lower bound of the proof, and its ideal step improves where it says."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proofs
from proofs._trees import histories, paths
from proofs.clipped_lower_bound import (
    EPSILON,
    RESULTS,
    advantage_parts,
    blind_instance,
    clipped,
    surrogates,
)
from proofs.group_std import SURE_OR_GAMBLE
from seeupo_theory.rules import advantages, improvement, objectives

from .groups import ROUNDING, given_own_reward, trees

numbers = st.fractions(-3, 3, max_denominator=20)
ratios = st.fractions(Fraction(1, 20), 4, max_denominator=20)


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: r.name)
def test_theorem(result):
    assert proofs.run(result).status == "exact"


def rule(ratio, advantage, **options):
    log_ratio = np.log(np.array(float(ratio)))
    return float(objectives.clip(log_ratio, np.array(0.0), float(advantage), **options))


@given(ratios, numbers)
def test_clip_is_the_proof_s_surrogate_and_a_lower_bound(ratio, advantage):
    found = rule(ratio, advantage)
    assert found == pytest.approx(float(clipped(ratio, advantage)), abs=ROUNDING)
    assert found <= float(ratio * advantage) + ROUNDING
    assert rule(1, advantage) == pytest.approx(float(advantage), abs=ROUNDING)


@given(
    ratios, numbers, st.fractions(0, 1, max_denominator=8), st.fractions(0, 3, max_denominator=8)
)
def test_clip_with_unequal_sides(ratio, advantage, low, high):
    found = rule(ratio, advantage, low=float(low), high=float(high))
    assert found == pytest.approx(float(clipped(ratio, advantage, low, high)), abs=ROUNDING)


def test_dual_clip_is_no_lower_bound():
    assert rule(25, -1, dual=3.0) == pytest.approx(-3.0) and clipped(25, -1) == -25


def ideal_step(tree, old, parts):
    """Every history's maximiser of the expected surrogate, by the simulator's water-filling."""
    new = {}
    for h in histories(tree.actions):
        size = tree.actions[len(h)]
        weight = {p: tree.reach(old, p) for p in parts if p[: len(h)] == h}
        split = np.zeros((2, size))
        for path, chance in weight.items():
            action = path[len(h)]
            share = chance / (tree.reach(old, h) * old[h][action])
            split[:, action] += [float(share * part) for part in parts[path]]
        prob = np.array([float(x) for x in old[h]])
        found = improvement.clip_argmax(prob, split[0], split[1])
        new[h] = tuple(Fraction(x) for x in found.tolist())
    return new


@given(trees(shapes=((2,), (3,), (2, 2), (2, 3), (2, 2, 2))), st.sampled_from([None, 2]))
@settings(max_examples=25)
def test_simultaneous_ideal_step_keeps_the_return(instance, group):
    """Theorem 1: the maximisers lower the surrogate at no history, so the return does not fall."""
    tree, old = instance
    group = group if len(list(paths(tree.actions))) <= 6 else None
    parts = advantage_parts(tree, old, group)
    new = ideal_step(tree, old, parts)
    start = surrogates(tree, old, old, parts)
    rise = {h: float(v - start[h]) for h, v in surrogates(tree, old, new, parts).items()}
    factor = 1.0 if group is None else 1 - 1 / group
    bound = sum(
        float(tree.reach(new, h) / tree.reach(old, h)) * gain / factor for h, gain in rise.items()
    )
    assert min(rise.values()) >= -ROUNDING
    assert float(tree.value(new) - tree.value(old)) >= bound - ROUNDING


@given(trees(shapes=((2,), (3,))), st.integers(2, 3))
@settings(max_examples=20)
def test_parts_are_the_simulator_s(instance, group):
    """E[A+], E[A-] of the proof against the rule, over all groups."""
    tree, old = instance
    law = {}
    for path, reward in tree.rewards.items():
        law[reward] = law.get(reward, Fraction(0)) + tree.reach(old, path)
    parts = advantage_parts(tree, old, group)
    for index, sign in ((0, 1), (1, -1)):
        found = given_own_reward(
            lambda r, sign=sign: np.maximum(sign * advantages.grae(r), 0), [law], group
        )
        for path, reward in tree.rewards.items():
            assert found[reward] == pytest.approx(float(parts[path][index]), abs=ROUNDING)


@pytest.mark.parametrize(("normalise", "falls"), [("none", False), ("group", True)])
def test_the_ideal_step_on_the_gamble(normalise, falls):
    """The same step with the group's std lowers the exact return."""
    arms = SURE_OR_GAMBLE
    split = np.zeros((2, 2))
    for index, sign in ((0, 1), (1, -1)):
        found = given_own_reward(
            lambda r, sign=sign: np.maximum(
                sign * advantages.grae(r, normalise=normalise, std_eps=0.0), 0
            ),
            [arms.mixture()],
            2,
        )
        for arm, law in enumerate((arms.x, arms.y)):
            split[index, arm] = sum(float(p) * found[r] for r, p in law.items())
    new = improvement.clip_argmax(np.array([0.5, 0.5]), split[0], split[1])
    gain = (new[0] - 0.5) * float(arms.gap)
    assert (gain < 0) == falls and abs(gain) > 1e-3


def test_blind_turns_with_the_simulator_s_clip():
    tree, old, new = blind_instance()
    value = tree.value(old)
    rise = 0.0
    for path in paths(tree.actions):
        for t, action in enumerate(path):
            ratio = new[path[:t]][action] / old[path[:t]][action]
            gap = tree.rewards[path] - value
            rise += float(tree.reach(old, path)) * (rule(ratio, gap) - float(gap))
    assert rise == pytest.approx(3 / 625, abs=ROUNDING)
    assert tree.value(new) - value == Fraction(-3, 1250)


def test_sequential_ideal_sweep_keeps_the_return_of_blind_turns():
    """Theorem 2 with the simulator: turns that do not see the past, updated one after the other."""
    from bandits.aliasing import alias
    from bandits.zoo import get
    from seeupo_theory.rules.presets import PRESETS
    from seeupo_theory.tabular.simulator import Simulator

    model = alias(get("xor").model, "turn")
    algorithm = PRESETS["ppo-grae"].replace(order="reverse", epochs=3, lr=0.3)
    simulator = Simulator(model, algorithm, group_size=2)
    for start in ([0.48, 0.52], [0.3, 0.7], [0.55, 0.45]):
        theta = simulator.init([[start], [start]])
        outcome = simulator.update(theta, order=(1, 0))
        values = [float(outcome.value_before), *map(float, outcome.values)]
        for before, after, gain in zip(values, values[1:], outcome.surrogate_gain, strict=False):
            assert float(gain) >= -ROUNDING
            # A group of two has the factor 1/2: the true gain is at least twice the surrogate's.
            assert after - before >= 2 * float(gain) - ROUNDING


def test_epsilon_is_the_preset_s():
    from seeupo_theory.rules.presets import Algorithm

    assert float(EPSILON) == Algorithm().clip
