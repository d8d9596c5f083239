"""Do the ground truths of BFCL earn 1, and do wrong last calls earn 0? All 800 tasks, counted.

For every task three episodes are played by `BFCLMultiTurn`: the ground truth; the same without its
last call; the same with a call of an unknown function as the last. Run as
`python -m llm_bridge.environments.bfcl_check`, about a minute.

A last call with another *argument* can be right: the checkers see states and results only, and some
arguments change neither (the text of `contact_customer_support`, say).
"""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .bfcl import BFCLMultiTurn, ground_truth_texts
from .bfcl_data import CATEGORIES, BFCLTask, load_tasks
from .bfcl_parser import Call

__all__ = ["GroundTruths", "check_ground_truths", "play", "with_last_call"]


@dataclass(frozen=True)
class GroundTruths:
    """Counts of a category: tasks, and ids of those whose scores are not as they should be."""

    category: str
    tasks: int
    rejected: tuple[str, ...]
    accepted_without_last_call: tuple[str, ...]
    accepted_with_wrong_last_call: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether every ground truth earned 1 and every wrong one 0."""
        return not (
            self.rejected or self.accepted_without_last_call or self.accepted_with_wrong_last_call
        )


def with_last_call(task: BFCLTask, replacement: Sequence[Call]) -> BFCLTask:
    """Return the task with other calls in the place of its last one."""
    turn = max(index for index, calls in enumerate(task.ground_truth) if calls)
    changed = list(task.ground_truth)
    changed[turn] = (*changed[turn][:-1], *replacement)
    return dataclasses.replace(task, ground_truth=tuple(changed))


def play(environment: BFCLMultiTurn, task: str, texts: Sequence[str]) -> float:
    """Return the sum of rewards of an episode that plays these texts."""
    environment.reset(task)
    total = 0.0
    for text in texts:
        result = environment.step(text)
        total += result.reward
        if result.done:
            break
    return total


def check_ground_truths(category: str, tasks: Sequence[str] | None = None) -> GroundTruths:
    """Play the ground truths of a category and their two wrong variants."""
    every = load_tasks(category)
    ids = list(every) if tasks is None else list(tasks)
    environment = BFCLMultiTurn(category)
    wrong = (Call("no_such_function"),)
    try:
        earned = [
            (
                name,
                play(environment, name, ground_truth_texts(every[name])),
                play(environment, name, ground_truth_texts(with_last_call(every[name], ()))),
                play(environment, name, ground_truth_texts(with_last_call(every[name], wrong))),
            )
            for name in ids
        ]
    finally:
        environment.close()
    return GroundTruths(
        category,
        len(ids),
        tuple(name for name, right, _, _ in earned if right != 1.0),
        tuple(name for name, _, without, _ in earned if without != 0.0),
        tuple(name for name, _, _, other in earned if other != 0.0),
    )


def _reports() -> Iterator[GroundTruths]:
    for category in CATEGORIES:
        yield check_ground_truths(category)


def main() -> int:
    """Print a line a category; the exit code is 1 if any is not as it should be."""
    wrong = 0
    for report in _reports():
        wrong += not report.holds
        print(
            f"{report.category}: {report.tasks - len(report.rejected)} of {report.tasks} ground truths "
            f"earn 1; without the last call {len(report.accepted_without_last_call)} do, "
            f"with a wrong one {len(report.accepted_with_wrong_last_call)}"
        )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
