"""Sequential bandits: a context, then T turns of actions, then one reward for all of them.

A context s0 is drawn with probability β(s0); at turn t the policy sees the history (s0, a_1, …,
a_{t−1}) and draws a_t; after turn T the team reward r(s0, a_1, …, a_T) is paid. There is no other
state: histories have an index (context-major, then a_1, a_2, … row-major), and nothing but the
rewards is stored.

    J(π) = Σ_{s0} β(s0) Σ_{a_1…a_T} Π_t π_t(a_t | s0, a_1, …, a_{t−1}) E r(s0, a_1, …, a_T)

Shapes: C contexts, T turns, A_t actions at turn t (they may differ), K reward atoms,
H_t = C·A_1⋯A_{t−1} histories at turn t.

Source: the sequentially executed multi-agent bandit of SeeUPO, arXiv:2602.06554, §4.1.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import fail
from .exact import (
    ExactArray,
    FloatArray,
    ObjectArray,
    parse_integer,
    parse_probabilities,
    uniform,
)
from .graph import DecisionGraph, Layer
from .limits import MAX_NODES
from .rewards import Rewards, parse_rewards

# Leaves (times atoms) up to which `repr` prints code; beyond, a summary.
REPR_LEAVES = 4096
MERGES = ("return", "none")


@dataclass(frozen=True, eq=False, repr=False, init=False)
class SequentialBandit:
    """A sequential bandit with a finite reward distribution at every leaf.

    rewards: nested lists or an array [C][a_1]…[a_T]; a leaf is a number, a fraction string
    "3/10", a `Fraction` or {"values": [..], "probs": [..]}. Also {"values": array, "probs":
    array}, both [C, A_1, …, A_T, K]. context_probs: [C], uniform if left out. actions: (A_1, …,
    A_T); with it `rewards` may be flat, [C·A_1⋯A_T], or [C][A_1⋯A_T], in row-major order.
    Raises ModelError (a ValueError) naming the field, the index, the value and what it should be.

    >>> model = SequentialBandit([[[0, 1], ["1/2", 0.25]]])
    >>> model.actions, model.histories, model.reward_means[0, 1].tolist()
    ((2, 2), (1, 2), [0.5, 0.25])
    >>> model
    SequentialBandit([[[0, 1], ['1/2', '1/4']]])
    """

    rewards: Rewards
    contexts_exact: ExactArray
    actions: tuple[int, ...]
    name: str

    def __init__(
        self,
        rewards: Any,
        context_probs: Any = None,
        *,
        name: str = "",
        actions: tuple[int, ...] | list[int] | None = None,
    ) -> None:
        parsed = parse_rewards("rewards", rewards)
        if actions is not None:
            parsed = _reshape(parsed, actions)
        if len(parsed.shape) < 2:
            fail("rewards", "should be nested lists [context][a1]…[aT] with at least one turn")
        contexts = parsed.shape[0]
        if context_probs is None:
            probs = uniform(contexts)
        else:
            probs = parse_probabilities("context_probs", context_probs)
            if probs.values.shape != (contexts,):
                fail(
                    "context_probs",
                    f"has shape {probs.values.shape}, should be ({contexts},), one entry a context",
                )
        set_name(self, name)
        object.__setattr__(self, "rewards", parsed)
        object.__setattr__(self, "contexts_exact", probs)
        object.__setattr__(self, "actions", parsed.shape[1:])

    @property
    def contexts(self) -> int:
        """C."""
        return self.rewards.shape[0]

    @property
    def turns(self) -> int:
        """T."""
        return len(self.actions)

    @property
    def horizon(self) -> int:
        """T, the number of turns."""
        return len(self.actions)

    @property
    def histories(self) -> tuple[int, ...]:
        """(H_1, …, H_T): rows of the policy table of each turn."""
        out = [self.contexts]
        for count in self.actions[:-1]:
            out.append(out[-1] * count)
        return tuple(out)

    @property
    def leaves(self) -> int:
        """C·A_1⋯A_T."""
        return math.prod(self.rewards.shape)

    @property
    def deterministic(self) -> bool:
        """Whether every leaf pays one value surely."""
        return self.rewards.deterministic

    @property
    def uniform_contexts(self) -> bool:
        """Whether all contexts have the same probability."""
        return self.contexts_exact.same(uniform(self.contexts))

    @property
    def context_probs(self) -> FloatArray:
        """β [C]."""
        return self.contexts_exact.values

    @property
    def reward_values(self) -> FloatArray:
        """Values of the reward atoms [C, A_1, …, A_T, K]."""
        return self.rewards.values.values

    @property
    def reward_probs(self) -> FloatArray:
        """Probabilities of the reward atoms [C, A_1, …, A_T, K]."""
        return self.rewards.probs.values

    @property
    def reward_means(self) -> FloatArray:
        """Mean rewards [C, A_1, …, A_T]."""
        return self.rewards.means

    def exact_context_probs(self) -> ObjectArray:
        """β as fractions [C]; they sum to exactly 1."""
        return self.contexts_exact.exact()

    def exact_rewards(self) -> ObjectArray:
        """Values of the reward atoms as fractions [C, A_1, …, A_T, K]."""
        return self.rewards.exact_values()

    def exact_reward_probs(self) -> ObjectArray:
        """Probabilities of the reward atoms as fractions [C, A_1, …, A_T, K]."""
        return self.rewards.exact_probs()

    def exact_means(self) -> ObjectArray:
        """Mean rewards as fractions [C, A_1, …, A_T]."""
        return self.rewards.exact_means()

    def graph(self, merge: str = "return", max_nodes: float = MAX_NODES) -> DecisionGraph:
        """Return the model as an implicit tree: nothing is copied, both arguments have no effect.

        >>> SequentialBandit([[[0, 1], [2, 3]]]).graph().leaf_means().tolist()
        [0.0, 1.0, 2.0, 3.0]
        """
        require_merge(merge)
        layers = tuple(
            Layer(nodes=h, actions=a, observations=h)
            for h, a in zip(self.histories, self.actions, strict=True)
        )
        atoms = self.reward_values.shape[-1]
        probs = np.broadcast_to(np.float64(1.0), (self.leaves, 1))
        return DecisionGraph(
            context_probs=self.context_probs,
            layers=layers,
            leaf_context=None,
            leaf_values=self.reward_values.reshape(-1, atoms),
            leaf_probs=probs if self.deterministic else self.reward_probs.reshape(-1, atoms),
            name=self.name,
        )

    def __eq__(self, other: object) -> bool:
        """Whether both are the same model, number by number; names do not count."""
        if not isinstance(other, SequentialBandit):
            return NotImplemented
        return (
            self.actions == other.actions
            and self.contexts_exact.same(other.contexts_exact)
            and self.rewards.same(other.rewards)
        )

    def __hash__(self) -> int:
        return hash((self.rewards.shape, float(self.reward_means.sum())))

    def __repr__(self) -> str:
        if self.reward_values.size > REPR_LEAVES:
            return (
                f"<SequentialBandit {self.name!r}: contexts={self.contexts}, "
                f"actions={self.actions}, leaves={self.leaves}>"
            )
        text = repr(self.rewards.code())
        if not self.uniform_contexts:
            text += f", context_probs={self.contexts_exact.code()!r}"
        if self.name:
            text += f", name={self.name!r}"
        return f"SequentialBandit({text})"


def require_merge(merge: str) -> None:
    """Raise ModelError unless `merge` is a known way to merge nodes."""
    if merge not in MERGES:
        fail(f"merge = {merge!r}", f"should be one of {', '.join(MERGES)}")


def set_name(owner: object, name: object) -> None:
    """Set the name of a frozen model; anything but a string is a ModelError."""
    if not isinstance(name, str):
        fail(f"name = {name!r}", "should be a string")
    object.__setattr__(owner, "name", name)


def _reshape(rewards: Rewards, actions: Any) -> Rewards:
    if isinstance(actions, (str, bytes)) or not hasattr(actions, "__iter__"):
        fail(f"actions = {actions!r}", "should be the numbers of actions (A_1, …, A_T)")
    counts = tuple(parse_integer(f"actions[{t}]", a, least=1) for t, a in enumerate(actions))
    if not counts:
        fail("actions", "is empty, should have one number a turn")
    leaves, each = math.prod(rewards.shape), math.prod(counts)
    if rewards.shape[1:] == counts:
        return rewards
    if (
        len(rewards.shape) > 2
        or leaves % each
        or (len(rewards.shape) == 2 and rewards.shape[1] != each)
    ):
        fail(
            "rewards",
            f"has shape {rewards.shape}, should be {('C', *counts)}, or flat, {each} a context",
        )
    return rewards.reshape((leaves // each, *counts))
