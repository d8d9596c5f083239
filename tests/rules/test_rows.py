"""Rows: an advantage belongs to its trajectory through every reordering."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seeupo_theory.rules.advantages import ESTIMATORS, grae
from seeupo_theory.rules.rows import Batch, Keyed

from .catalogue import BACKENDS, VALUE_TOLERANCE

EXACT = VALUE_TOLERANCE["float64"]


def test_rollouts_of_one_source_are_one_group_whatever_their_prompt():
    """NeMo-RL #4013: two prompts of one source id are compared with each other."""
    batch = Batch(
        ["a", "b"],
        np.array([1.0, 0.0]),
        ["source-7", "source-7"],
        columns={"prompt": np.array([[1, 2], [3, 4]])},
    )
    out = batch.advantages("grae")
    assert (float(out["a"]), float(out["b"])) == (0.5, -0.5)


def test_trajectories_of_one_task_are_one_group():
    """rllm #667, in every library."""
    for b in BACKENDS:
        batch = Batch("abcd", b.array(np.array([1.0, 0, 0, 1])), ["task"] * 4)
        out = b.numpy(batch.advantages("grae").align(batch))
        np.testing.assert_array_equal(out, [0.5, -0.5, -0.5, 0.5])


@given(seed=st.integers(0, 99), name=st.sampled_from(sorted(ESTIMATORS)))
def test_reordering_before_or_after_is_the_same(seed, name):
    """verl #7956: A[i] belongs to row i after any shuffle of the batch, between and within groups."""
    rng = np.random.default_rng(seed)
    returns = rng.normal(size=12)
    groups = [f"task{i % 3}" for i in range(12)]
    batch = Batch(range(100, 112), returns, groups, columns={"length": np.arange(12)})
    shuffled = batch.take(rng.permutation(12))
    before, after = batch.advantages(name), shuffled.advantages(name)
    for row in batch.ids:
        assert float(before[row]) == pytest.approx(float(after[row]), abs=EXACT)
    np.testing.assert_allclose(before.align(shuffled), after.align(shuffled), atol=EXACT)
    np.testing.assert_array_equal(shuffled.returns, [returns[row - 100] for row in shuffled.ids])
    np.testing.assert_array_equal(shuffled.columns["length"], [row - 100 for row in shuffled.ids])
    want = ESTIMATORS[name](np.stack([returns[k::3] for k in range(3)]))
    np.testing.assert_allclose(before.align(batch), want.T.reshape(-1), atol=EXACT)


def test_a_part_of_the_batch_keeps_its_values():
    batch = Batch("abcd", np.array([4.0, 1, 2, 1]), [0, 0, 1, 1], contexts=[5, 5, 6, 6])
    out = batch.advantages("grae")
    part = batch.take([2, 0])
    assert part.ids == ("c", "a")
    assert part.contexts == (6, 5)
    np.testing.assert_array_equal(out.align(part), [0.5, 1.5])
    assert (len(batch), len(part), len(out)) == (4, 2, 4)


def test_groups_of_different_size():
    batch = Batch("abcde", np.array([1.0, 0, 3, 0, 0]), ["x", "x", "y", "y", "y"])
    for name in ("grae", "rloo", "grpo", "none"):
        out = batch.advantages(name).align(batch)
        for rows in ([0, 1], [2, 3, 4]):
            np.testing.assert_allclose(
                out[rows], ESTIMATORS[name](batch.returns[rows][None])[0], atol=EXACT
            )
    for name in ("seeupo", "reinforce++"):
        with pytest.raises(ValueError, match=r"different sizes \{'x': 2, 'y': 3\}"):
            batch.advantages(name)


def test_a_group_of_one_is_zero_here_too():
    batch = Batch("a", np.array([5.0]), ["task"])
    assert float(batch.advantages("grae")["a"]) == 0.0


def test_own_estimator_and_no_write():
    returns = torch.tensor([1.0, 2.0, 4.0])
    batch = Batch("abc", returns, [0, 0, 0])
    out = batch.advantages(lambda r: grae(r, baseline="loo"))
    assert out.values.dtype == torch.float32
    assert float(out["c"]) == 2.5
    assert returns.tolist() == [1.0, 2.0, 4.0]
    with pytest.raises(TypeError):
        batch.columns["x"] = returns  # type: ignore[index]


GOOD = {"ids": "ab", "returns": np.zeros(2), "groups": [0, 0]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": "aa"}, r"ids\[1\] is 'a' again"),
        ({"ids": ""}, "ids is empty"),
        ({"returns": np.zeros(3)}, r"returns has shape \(3,\); it should be \(2,\)"),
        ({"returns": np.zeros((2, 1))}, r"returns has shape \(2, 1\)"),
        ({"returns": np.array([0, np.nan])}, r"returns\[1\] is nan"),
        ({"groups": [0]}, "groups has 1 entries; it should have 2"),
        ({"contexts": [0, 1, 2]}, "contexts has 3 entries"),
        ({"columns": {"x": np.zeros(1)}}, r"columns\['x'\] has shape \(1,\)"),
    ],
)
def test_wrong_batches_are_errors(change, message):
    with pytest.raises(ValueError, match=message):
        Batch(**(GOOD | change))


def test_wrong_rows_are_errors():
    batch = Batch(**GOOD)
    with pytest.raises(ValueError, match="position 2 does not exist"):
        batch.take([0, 2])
    with pytest.raises(ValueError, match="position -1 does not exist"):
        batch.take([-1])
    with pytest.raises(ValueError, match="twice"):
        batch.take([0, 0])
    values = Keyed(("a",), np.zeros(1))
    with pytest.raises(KeyError, match="'b' has no value"):
        values.align(batch)
    with pytest.raises(KeyError, match="'b' has no value"):
        values["b"]
    with pytest.raises(ValueError, match="it should have 1 rows"):
        Keyed(("a",), np.zeros(2))
