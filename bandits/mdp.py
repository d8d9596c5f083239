"""Tabular finite-horizon Markov decision processes, and how they unroll into a decision graph.

At turn t = 1 … T in state s the policy draws an action a that `mask` allows, a reward is paid and
the next state is drawn from P_t(· | s, a). The return is Σ_t γ^{t−1} r_t.

    J(π) = E[ Σ_{t=1}^T γ^{t−1} r_t ],
    s_1 ~ initial,  a_t ~ π_t(· | s_t),  s_{t+1} ~ P_t(· | s_t, a_t)

Rewards belong to (s, a), each a number or a finite distribution drawn independently of the next
state; or, with `on_transition=True`, to (s, a, s'). An absorbing state (self-loop with
probability 1, reward 0, at every turn and action) ends the episode: turns spent there are no-ops.

Shapes: S states, A actions, T turns (`horizon`), K reward atoms.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import fail, path, show
from .exact import (
    BoolArray,
    ExactArray,
    FloatArray,
    ObjectArray,
    frozen,
    parse_array,
    parse_integer,
    parse_probabilities,
)
from .graph import DecisionGraph
from .limits import MAX_NODES, require_fits
from .rewards import Rewards, parse_rewards
from .sequential import REPR_LEAVES, set_name
from .unroll import unroll


@dataclass(frozen=True, eq=False, repr=False, init=False)
class TabularMDP:
    """A finite-horizon MDP given by tables.

    transitions: [S, A, S], or [T, S, A, S] one table a turn. rewards: [S, A] or [T, S, A], leaves
    as in `SequentialBandit`; with on_transition [S, A, S] or [T, S, A, S]. initial: [S]. horizon:
    T ≥ 1. discount: γ in [0, 1]. absorbing: bool [S], detected if left out. mask: bool [S, A] or
    [T, S, A].
    Raises ModelError (a ValueError) naming the field, the index, the value and what it should be.

    >>> stay, leave = [1, 0], [0, 1]
    >>> mdp = TabularMDP([[stay, leave], [leave, leave]], [[1, 5], [0, 0]], [1, 0], horizon=3)
    >>> mdp.absorbing.tolist(), mdp.graph().leaf_means().tolist()
    ([False, True], [3.0, 5.0, 6.0, 7.0])
    """

    transitions_exact: ExactArray
    rewards: Rewards
    initial_exact: ExactArray
    horizon: int
    discount_exact: ExactArray
    absorbing: BoolArray
    mask: BoolArray | None
    on_transition: bool
    name: str

    def __init__(
        self,
        transitions: Any,
        rewards: Any,
        initial: Any,
        horizon: int,
        discount: Any = 1.0,
        *,
        absorbing: Any = None,
        mask: Any = None,
        on_transition: bool = False,
        name: str = "",
    ) -> None:
        turns = parse_integer("horizon", horizon, least=1)
        gamma = parse_array("discount", [discount])
        if gamma.values.shape != (1,) or not 0 <= gamma.values[0] <= 1:
            fail(f"discount = {show(discount)}", "should be a number from 0 to 1")
        table = parse_probabilities("transitions", transitions)
        shape = table.values.shape
        if len(shape) not in (3, 4) or shape[-3] != shape[-1]:
            fail("transitions", f"has shape {shape}, should be [S][A][S], or [T][S][A][S] by turn")
        if len(shape) == 4 and shape[0] != turns:
            fail("transitions", f"has {shape[0]} turns, should have horizon = {turns}")
        states, actions = shape[-3], shape[-2]
        start = parse_probabilities("initial", initial)
        if start.values.shape != (states,):
            fail(
                "initial",
                f"has shape {start.values.shape}, should be ({states},), one entry a state",
            )
        paid = parse_rewards("rewards", rewards)
        one = (states, actions, states) if on_transition else (states, actions)
        if paid.shape not in (one, (turns, *one)):
            fail("rewards", f"has shape {paid.shape}, should be {one}, or {(turns, *one)} by turn")
        set_name(self, name)
        for key, value in (
            ("transitions_exact", table),
            ("rewards", paid),
            ("initial_exact", start),
            ("horizon", turns),
            ("discount_exact", gamma),
            ("on_transition", bool(on_transition)),
            ("mask", _parse_mask(mask, turns, states, actions)),
        ):
            object.__setattr__(self, key, value)
        object.__setattr__(self, "absorbing", self._absorbing(absorbing))

    @property
    def states(self) -> int:
        """S."""
        return int(self.initial_exact.values.shape[0])

    @property
    def action_count(self) -> int:
        """A."""
        return int(self.transitions_exact.values.shape[-2])

    @property
    def turns(self) -> int:
        """T."""
        return self.horizon

    @property
    def actions(self) -> tuple[int, ...]:
        """(A, …, A), one entry a turn."""
        require_fits(8 * self.horizon, f"one entry for each of horizon = {self.horizon} turns")
        return (self.action_count,) * self.horizon

    @property
    def contexts(self) -> int:
        """Number of initial states with positive probability."""
        return int((self.initial > 0).sum())

    @property
    def discount(self) -> float:
        """γ."""
        return float(self.discount_exact.values[0])

    @property
    def transitions(self) -> FloatArray:
        """P [S, A, S] or [T, S, A, S]."""
        return self.transitions_exact.values

    @property
    def initial(self) -> FloatArray:
        """Probabilities of the initial state [S]."""
        return self.initial_exact.values

    @property
    def stationary(self) -> bool:
        """Whether transitions, rewards and mask are the same at every turn."""
        mask = self.mask
        return not (self._by_turn or self._paid_by_turn or (mask is not None and mask.ndim == 3))

    @property
    def _by_turn(self) -> bool:
        return self.transitions.ndim == 4

    @property
    def _paid_by_turn(self) -> bool:
        return len(self.rewards.shape) == (4 if self.on_transition else 3)

    def transitions_by_turn(self, turn: int) -> FloatArray:
        """Return P_t [S, A, S]; turn counts from 0."""
        return self.transitions[turn] if self._by_turn else self.transitions

    def rewards_by_turn(self, turn: int) -> FloatArray:
        """Return the expected rewards r_t [S, A]; turn counts from 0."""
        means = self.rewards.means[turn] if self._paid_by_turn else self.rewards.means
        if self.on_transition:
            return np.asarray((means * self.transitions_by_turn(turn)).sum(axis=-1))
        return means

    def reward_atoms_by_turn(self, turn: int) -> tuple[FloatArray, FloatArray]:
        """Return values and probabilities of the reward atoms [S, A(, S), K]; turn from 0."""
        values, probs = self.rewards.values.values, self.rewards.probs.values
        return (values[turn], probs[turn]) if self._paid_by_turn else (values, probs)

    def mask_by_turn(self, turn: int) -> BoolArray:
        """Return the allowed actions [S, A]; turn counts from 0."""
        if self.mask is None:
            return np.broadcast_to(np.True_, (self.states, self.action_count))
        return self.mask[turn] if self.mask.ndim == 3 else self.mask

    def exact_transitions(self) -> ObjectArray:
        """Return P as fractions; each row sums to exactly 1."""
        return self.transitions_exact.exact()

    def exact_initial(self) -> ObjectArray:
        """Return the initial distribution as fractions."""
        return self.initial_exact.exact()

    def exact_rewards(self) -> ObjectArray:
        """Return the values of the reward atoms as fractions [.., K]."""
        return self.rewards.exact_values()

    def exact_reward_probs(self) -> ObjectArray:
        """Return the probabilities of the reward atoms as fractions [.., K]."""
        return self.rewards.exact_probs()

    def _absorbing(self, given: Any) -> BoolArray:
        found = self._detect_absorbing()
        if given is None:
            return frozen(found)
        flags = np.asarray(given)
        if flags.shape != (self.states,) or flags.dtype != np.bool_:
            fail("absorbing", f"is {show(given)}, should be {self.states} booleans, one a state")
        wrong = flags & ~found
        if wrong.any():
            fail(
                f"absorbing[{int(wrong.argmax())}] = True",
                "should be a state that every action keeps with probability 1 and reward 0",
            )
        return frozen(flags.copy())

    def _detect_absorbing(self) -> BoolArray:
        states = np.arange(self.states)
        loops = np.moveaxis(self.transitions[..., states, :, states], 0, -1)  # [.., A, S]
        found = (loops == 1).reshape(-1, self.states).all(axis=0)
        values, probs = self.rewards.values.values, self.rewards.probs.values
        if self.on_transition:  # only the loop's own reward can be paid
            values = np.moveaxis(values[..., states, :, states, :], 0, -3)
            probs = np.moveaxis(probs[..., states, :, states, :], 0, -3)
        paying = ((values != 0) & (probs > 0)).any(axis=(-1, -2))  # [.., S]
        return found & ~paying.reshape(-1, self.states).any(axis=0)

    def graph(self, merge: str = "return", max_nodes: float = MAX_NODES) -> DecisionGraph:
        """Unroll the model (see `bandits.unroll`); the row seen at a node is its state, O_t = S.

        Args: merge: "return" or "none". max_nodes: most nodes over all turns, with the leaves.
        Raises ModelError, before allocating, where the graph would be larger or would not fit.
        """
        return unroll(self, merge, max_nodes)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same model, number by number; names do not count."""
        if not isinstance(other, TabularMDP):
            return NotImplemented
        return (
            self.horizon == other.horizon
            and self.on_transition == other.on_transition
            and self.discount_exact.same(other.discount_exact)
            and self.initial_exact.same(other.initial_exact)
            and self.transitions_exact.same(other.transitions_exact)
            and self.rewards.same(other.rewards)
            and np.array_equal(self.absorbing, other.absorbing)
            and _same_mask(self.mask, other.mask)
        )

    def __hash__(self) -> int:
        return hash((self.transitions.shape, self.horizon, float(self.rewards.means.sum())))

    def __repr__(self) -> str:
        if self.transitions.size > REPR_LEAVES:
            return (
                f"<TabularMDP {self.name!r}: states={self.states}, actions={self.action_count}, "
                f"horizon={self.horizon}, discount={self.discount}>"
            )
        parts = (self.transitions_exact.code(), self.rewards.code(), self.initial_exact.code())
        text = ", ".join(map(repr, parts))
        text += f", horizon={self.horizon}, discount={self.discount_exact.code()[0]!r}"
        if not np.array_equal(self.absorbing, self._detect_absorbing()):
            text += f", absorbing={self.absorbing.tolist()}"
        if self.mask is not None:
            text += f", mask={self.mask.tolist()}"
        if self.on_transition:
            text += ", on_transition=True"
        if self.name:
            text += f", name={self.name!r}"
        return f"TabularMDP({text})"


def _parse_mask(mask: Any, turns: int, states: int, actions: int) -> BoolArray | None:
    if mask is None:
        return None
    flags = np.asarray(mask)
    shapes = ((states, actions), (turns, states, actions))
    if flags.dtype != np.bool_ or flags.shape not in shapes:
        fail(
            "mask",
            f"has shape {flags.shape} of {flags.dtype}, should be {shapes[0]} or {shapes[1]} of bool",
        )
    stuck = ~flags.any(axis=-1)
    if stuck.any():
        index = np.unravel_index(int(stuck.argmax()), stuck.shape)
        fail(path("mask", index), "allows no action, should allow at least one")
    return frozen(flags.copy())


def _same_mask(first: BoolArray | None, second: BoolArray | None) -> bool:
    if first is None or second is None:
        return (first is None or bool(first.all())) and (second is None or bool(second.all()))
    return first.shape == second.shape and bool((first == second).all())
