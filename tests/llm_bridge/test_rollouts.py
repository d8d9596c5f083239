"""Rollouts: seeds, stop conditions, flags, returns over trajectories."""

import pytest
import torch

from llm_bridge.environments import TabularText
from llm_bridge.environments.base import StepResult
from llm_bridge.policies.tiny import tiny_policy
from llm_bridge.rollouts import Sampling, collect, factory


class Count:
    """Ends after `task` turns; pays 1 a turn; remembers what it was told."""

    open = 0

    def __init__(self, truncate=False):
        self.truncate = truncate
        type(self).open += 1

    def reset(self, task, seed):
        self.left, self.seed = task, seed
        return [{"role": "user", "content": "go"}]

    def step(self, text):
        self.left -= 1
        done = self.left == 0
        more = [] if done else [{"role": "user", "content": "go on " + "x" * 30}]
        return StepResult(more, 1.0, done, {"truncated": done and self.truncate})

    def close(self):
        type(self).open -= 1


@pytest.fixture(scope="module")
def policy():
    return tiny_policy(0, characters="abc gonx")


SAMPLING = Sampling(max_turns=3, max_tokens=3, discount=0.5)


def test_shorter_episodes_are_padded_with_noops(policy):
    batch = collect(policy, Count, [1, 2, 3], 2, 0, SAMPLING)
    assert batch.active.sum(dim=1).tolist() == [1, 1, 2, 2, 3, 3]
    assert batch.turns[1][0] is None and batch.turns[2][4] is not None
    assert batch.returns.tolist() == [1, 1, 1.5, 1.5, 1.75, 1.75]
    assert batch.groups == ((0, 0), (0, 0), (0, 1), (0, 1), (0, 2), (0, 2))
    assert not bool(batch.truncated.any()) and batch.bootstrap is None


def test_the_turn_limit_truncates_and_leaves_a_prompt_to_go_on_from(policy):
    batch = collect(policy, Count, [3, 5], 1, 0, SAMPLING)
    assert batch.truncated.tolist() == [False, True]
    assert batch.bootstrap is not None and batch.bootstrap[0] is None
    last = batch.turns[2][1]
    assert batch.bootstrap[1][: len(last.prompt_ids)] == last.prompt_ids
    assert float(batch.returns[1]) == 1.75


def test_the_environment_may_say_that_it_truncated(policy):
    batch = collect(policy, lambda: Count(truncate=True), [1], 1, 0, SAMPLING)
    assert batch.truncated.tolist() == [True]


def test_the_token_limit_cuts_a_reply_not_the_episode(policy):
    batch = collect(policy, Count, [2] * 20, 1, 0, SAMPLING)
    cut = [t for t in batch.turns[0] if t.truncated]
    assert cut and all(len(t.ids) == 3 for t in cut)
    assert not bool(batch.truncated.any())


def test_the_context_limit_ends_the_episode():
    policy = tiny_policy(0, characters="abc gonx", max_context=40)
    batch = collect(policy, Count, [3], 2, 0, SAMPLING)
    assert batch.truncated.tolist() == [True, True]
    assert batch.active.tolist() == [[True, False, False]] * 2
    assert batch.returns.tolist() == [1.0, 1.0]


def test_the_same_seed_is_the_same_batch(policy):
    first, again, other = (collect(policy, Count, [3, 2], 3, s, SAMPLING) for s in (1, 1, 2))
    assert first.turns == again.turns
    assert first.turns != other.turns
    ids = [t.ids for t in first.turns[0]]
    assert len(set(ids)) > 1  # members of a group differ


def test_rows_of_one_task_do_not_depend_on_the_other_tasks(policy):
    alone = collect(policy, Count, [3], 2, 1, SAMPLING)
    beside = collect(policy, Count, [3, 2, 1], 2, 1, SAMPLING)
    assert [t.ids for t in alone.turns[2]] == [t.ids for t in beside.turns[2][:2]]


def test_environments_are_closed_also_after_an_error(policy):
    class Broken(Count):
        def step(self, text):
            raise RuntimeError("broken")

    for cls in (Count, Broken):
        cls.open = 0
        try:
            collect(policy, cls, [2], 3, 0, SAMPLING)
        except RuntimeError:
            assert cls is Broken
        assert cls.open == 0


def test_instances_are_copied_and_classes_called():
    one = Count()
    assert factory(one)() is not one and isinstance(factory(Count)(), Count)
    with pytest.raises(TypeError, match="reset, step and close"):
        factory(3)


def test_prompts_hold_the_whole_conversation_and_replies_only_the_own_tokens(policy):
    batch = collect(policy, Count, [2], 1, 0, SAMPLING)
    first, second = batch.turns[0][0], batch.turns[1][0]
    assert second.prompt_ids[: len(first.prompt_ids)] == first.prompt_ids
    assert len(second.prompt_ids) > len(first.prompt_ids) + 30  # the reply of the environment
    assert len(second.ids) <= 3


@pytest.mark.parametrize("options", [{"max_turns": 0}, {"temperature": -1}, {"discount": 2}])
def test_wrong_limits_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Sampling(**options)


def test_reordering_keeps_rows_together(policy):
    batch = collect(policy, Count, [1, 2, 3], 1, 0, SAMPLING)
    moved = batch.take([2, 0, 1])
    assert moved.row_ids[0] == batch.row_ids[2]
    assert moved.turns[2][0] == batch.turns[2][2]
    assert torch.equal(moved.returns, batch.returns[torch.tensor([2, 0, 1])])


def test_a_row_is_the_same_whoever_plays_it():
    game = TabularText("zoo:xor")
    policy = tiny_policy(0)
    whole = collect(policy, game, [0, 0], 3, 5, Sampling(max_turns=2, max_tokens=2))
    keys = [(0, 2), (1, 0)]
    some = collect(policy, game, {0: 0, 1: 0}, 3, 5, Sampling(max_turns=2, max_tokens=2), keys=keys)
    at = [whole.row_ids.index(row) for row in some.row_ids]
    assert at == [2, 3] and some.groups == ((0, 0), (0, 1))
    for pool, everyone in zip(some.turns, whole.turns, strict=True):
        for reply, i in zip(pool, at, strict=True):
            other = everyone[i]
            assert (reply is None) == (other is None)
            assert reply is None or (reply.prompt_ids, reply.ids) == (other.prompt_ids, other.ids)
