"""Any bandit or MDP of `bandits` as a conversation in words.

The context is the first user message, an action is a word that the assistant replies, and what the
environment shows after it is the next user message (for a bandit always the same word, for an MDP
the state). A reply counts as an action if the *whole* text is the action's word; anything else is
the no-op: the episode ends there and pays `noop_reward`. So the game, as the policy meets it, has
one action more at every turn, and `TabularText.graph` is exactly that: the model's tree with an
extra last action at each node that leads to a leaf of its own.

Because a reply is compared as a whole, the probability of an action under a language model is a sum
over finitely many token sequences, and `llm_bridge.exact` can add them up.

A text policy sees the whole conversation, its own words included: the rows of the policy table are
the distinct conversations of a turn (and one more row for turns after the end, where nothing is
chosen).

Shapes: T turns, N_t nodes, O_t conversations (rows), A_t words of turn t, without the no-op.
"""

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from bandits.errors import ModelError
from bandits.exact import BoolArray, FloatArray, IntArray
from bandits.graph import DecisionGraph, Layer

from .base import EnvironmentFault, Message, StateError, StepResult, TaskError

__all__ = ["TabularText", "default_words"]


def default_words(count: int) -> tuple[str, ...]:
    """Short distinct words: a … z, then aa, ab, …

    >>> default_words(3)
    ('a', 'b', 'c')
    """
    letters = "abcdefghijklmnopqrstuvwxyz"
    sizes = itertools.count(1)
    words = ("".join(w) for n in sizes for w in itertools.product(letters, repeat=n))
    return tuple(itertools.islice(words, count))


class TabularText:
    """A finite game in words; see the module.

    Args:
        model: a bandit, an MDP, an aliased model, a `DecisionGraph` that is a tree, a MODEL string
            such as "zoo:xor", or the nested rewards [context][a1]…[aT] of a bandit.
        contexts: one word a context (default c0, c1, …).
        actions: words of the actions, one list for all turns or one list a turn (default a, b, …).
        replies: words shown for the observations of later turns (default s0, s1, …).
        reply: what is shown where the model has no observation of its own (a bandit).
        instruction: system message at the start, "" for none.
        noop_reward: paid when the text is none of the words, and the episode ends (default: the
            smallest return of the game, at most 0).

    Raises:
        EnvironmentFault: words that are missing, repeated or empty.

    >>> game = TabularText("zoo:xor")
    >>> game.reset(0, seed=1)
    [{'role': 'user', 'content': 'c0'}]
    >>> game.step("a").messages, game.step("b").reward
    ([{'role': 'user', 'content': 'next'}], 1.0)
    """

    def __init__(
        self,
        model: Any,
        *,
        contexts: Sequence[str] | None = None,
        actions: Sequence[Any] | None = None,
        replies: Sequence[str] | None = None,
        reply: str = "next",
        instruction: str = "",
        noop_reward: float | None = None,
    ) -> None:
        if isinstance(model, str):
            from bandits.load import load

            model = load(model)
        elif isinstance(model, list | tuple):
            from bandits.sequential import SequentialBandit

            model = SequentialBandit(model)
        self.model = model
        self.base = model if isinstance(model, DecisionGraph) else model.graph(merge="none")
        if not self.base.is_tree:
            raise EnvironmentFault('model: should be a tree, graph(merge="none")')
        self.instruction = str(instruction)
        self.reply = str(reply)
        states = max(layer.observations for layer in self.base.layers)
        self.context_words = _words("contexts", contexts, self.base.contexts, "c")
        self.state_words = _words("replies", replies, states, "s")
        self.action_words = _by_turn(actions, self.base.actions)
        least = min(0.0, float(self.base.leaf_values.min()))
        self.noop_reward = float(least if noop_reward is None else noop_reward)
        if not np.isfinite(self.noop_reward):
            raise EnvironmentFault(f"noop_reward = {noop_reward!r}: should be a finite number")
        self._node: int | None = None
        self._turn = 0

    # -- the game as a policy meets it ---------------------------------------------------------

    @property
    def turns(self) -> int:
        """T."""
        return self.base.turns

    @property
    def discount(self) -> float:
        """γ."""
        return self.base.discount

    @property
    def tasks(self) -> range:
        """Contexts that `reset` takes."""
        return range(self.base.contexts)

    @property
    def task_probs(self) -> FloatArray:
        """Probability of each context [C]."""
        return self.base.context_probs

    @cached_property
    def graph(self) -> DecisionGraph:
        """The model's tree with the no-op as last action, rows being conversations."""
        return _extended(self.base, self.noop_reward, self._rows)

    @cached_property
    def conversations(self) -> tuple[tuple[list[Message], ...], ...]:
        """Conversation before each row of each turn: T tuples, without the row of ended episodes."""
        return tuple(
            tuple(self._messages(turn, key) for key in keys)
            for turn, (keys, _) in enumerate(self._rows)
        )

    def locate(self, conversation: Sequence[Message]) -> tuple[int, int]:
        """(turn, row) of a conversation of this game."""
        skip = 1 if self.instruction else 0
        key = tuple(str(m["content"]) for m in conversation[skip:])
        turn = len(key) // 2
        if turn >= self.turns or key not in self._index[turn]:
            raise EnvironmentFault(f"conversation {key!r}: should be one of this game's")
        return turn, self._index[turn][key]

    @cached_property
    def _index(self) -> tuple[dict[tuple[str, ...], int], ...]:
        return tuple({key: i for i, key in enumerate(keys)} for keys, _ in self._rows)

    @cached_property
    def _rows(self) -> tuple[tuple[list[tuple[str, ...]], IntArray], ...]:
        """Per turn: the distinct conversations, and the row of each node of the model (−1: over)."""
        told: list[tuple[str, ...]] = [(w,) for w in self.context_words]
        out = []
        for turn, layer in enumerate(self.base.layers):
            keys: dict[tuple[str, ...], int] = {}
            rows = np.full(layer.nodes, -1)
            for n in map(int, np.flatnonzero(layer.acting())):
                rows[n] = keys.setdefault(told[n], len(keys))
            out.append((list(keys), rows))
            if turn + 1 < self.turns:
                up = self.base.parents(turn)
                later: list[tuple[str, ...]] = [()] * self.base.layers[turn + 1].nodes
                for n, (parent, action) in enumerate(zip(up.source, up.action, strict=True)):
                    if action >= 0:
                        word = self.action_words[turn][action]
                        later[n] = (*told[int(parent)], word, self._shown(turn + 1, n))
                told = later
        return tuple(out)

    def _shown(self, turn: int, node: int) -> str:
        seen = self.base.layers[turn].observation
        return self.reply if seen is None else self.state_words[seen[node]]

    def _messages(self, turn: int, key: tuple[str, ...]) -> list[Message]:
        head = [{"role": "system", "content": self.instruction}] if self.instruction else []
        roles = itertools.cycle(("user", "assistant"))
        return [*head, *({"role": r, "content": w} for r, w in zip(roles, key, strict=False))]

    # -- one episode ---------------------------------------------------------------------------

    def spawn(self) -> "TabularText":
        """Another environment of the same game, with an episode of its own."""
        other = object.__new__(TabularText)
        other.__dict__.update(self.__dict__)
        other._node, other._turn = None, 0
        return other

    def reset(self, task: Any, seed: int) -> list[Message]:
        """Begin an episode in context `task`, or in one drawn from the model's where None."""
        rng = np.random.default_rng(seed)
        if task is None:
            task = int(rng.choice(self.base.contexts, p=self.base.context_probs))
        if isinstance(task, bool) or not isinstance(task, int | np.integer):
            raise TaskError(f"task = {task!r}: should be a context, a whole number")
        if not 0 <= task < self.base.contexts:
            raise TaskError(f"task = {task}: should be from 0 to {self.base.contexts - 1}")
        self._rng, self._node, self._turn = rng, int(task), 0
        return self._messages(0, (self.context_words[int(task)],))

    def step(self, text: str) -> StepResult:
        """Take a reply: one of the words, or the no-op that ends the episode."""
        if self._node is None:
            raise StateError("step: the episode has not begun or is over; should call reset first")
        node, turn, layer = self._node, self._turn, self.base.layers[self._turn]
        word = self.action_words[turn].index(text) if text in self.action_words[turn] else -1
        if word >= 0 and not layer.allowed()[node, word]:
            word = -1
        info = {"turn": turn, "node": node, "action": word, "noop": word < 0}
        paid = 0.0 if self.base.node_return is None else float(self.base.node_return[turn][node])
        if word < 0:
            self._node = None
            return StepResult([], self.noop_reward, True, info)
        node = self._move(turn, node, word)
        turn += 1
        while turn < self.turns and not self.base.layers[turn].acting()[node]:
            node = self._move(turn, node, int(self.base.layers[turn].allowed()[node].argmax()))
            turn += 1
        scale = self.discount**self._turn
        if turn == self.turns:
            atom = self._rng.choice(self.base.atoms, p=self.base.leaf_probs[node])
            total = float(self.base.leaf_values[node, atom])
            self._node = None
            return StepResult([], (total - paid) / scale if scale else 0.0, True, info)
        later = 0.0 if self.base.node_return is None else float(self.base.node_return[turn][node])
        self._node, self._turn = node, turn
        shown = [{"role": "user", "content": self._shown(turn, node)}]
        return StepResult(shown, (later - paid) / scale if scale else 0.0, False, info)

    def _move(self, turn: int, node: int, action: int) -> int:
        layer = self.base.layers[turn]
        flat = node * layer.actions + action
        if layer.edge_source is None or layer.edge_target is None or layer.edge_prob is None:
            return flat
        first, last = np.searchsorted(layer.edge_source, [flat, flat + 1])
        prob = layer.edge_prob[first:last]
        return int(layer.edge_target[first + self._rng.choice(last - first, p=prob / prob.sum())])

    def close(self) -> None:
        """Forget the episode."""
        self._node = None


def _words(name: str, given: Sequence[str] | None, count: int, stem: str) -> tuple[str, ...]:
    words = tuple(f"{stem}{i}" for i in range(count)) if given is None else tuple(map(str, given))
    if len(words) < count or len(set(words)) < len(words) or not all(words):
        raise EnvironmentFault(f"{name} = {words!r}: should be {count} distinct words")
    return words


def _by_turn(given: Sequence[Any] | None, counts: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    if given is None:
        return tuple(default_words(n) for n in counts)
    if all(isinstance(w, str) for w in given):
        given = [given[:n] if len(given) > n else given for n in counts]
    if len(given) != len(counts):
        raise EnvironmentFault(f"actions: has {len(given)} turns, should have {len(counts)}")
    out = []
    for t, (row, n) in enumerate(zip(given, counts, strict=True)):
        words = _words(f"actions[{t}]", row, n, "")
        if len(words) != n:
            raise EnvironmentFault(f"actions[{t}] = {words!r}: should be {n} words")
        out.append(words)
    return tuple(out)


def _extended(
    base: DecisionGraph,
    noop_reward: float,
    rows: Sequence[tuple[list[tuple[str, ...]], IntArray]],
) -> DecisionGraph:
    """The tree with one action more at every turn, whose child is a leaf-to-be of its own."""
    layers: list[Layer] = []
    paid: list[FloatArray] = []  # by nodes that ended with a no-op
    dead = np.zeros(0)
    dead_context = np.zeros(0, np.int64)
    contexts = base.node_contexts()
    sizes = [*base.nodes[1:], base.leaves]
    for t, layer in enumerate(base.layers):
        n, width, size = layer.nodes, layer.actions + 1, sizes[t]
        acting, edges = layer.acting(), layer.edges()
        allowed = layer.allowed()[edges.source, edges.action]
        source = [(edges.source * width + edges.action)[allowed]]
        target, prob = [edges.target[allowed]], [np.asarray(edges.prob)[allowed]]
        idle, live = np.flatnonzero(~acting), np.flatnonzero(acting)
        ended = np.arange(len(dead))
        before = np.zeros(n) if base.node_return is None else base.node_return[t]
        # every action of an ended episode leads to the same child
        over_child = {int(s): int(e) for s, e in zip(edges.source, edges.target, strict=True)}
        for node in idle:
            missing = [
                a for a in range(width) if a >= layer.actions or not layer.allowed()[node, a]
            ]
            source.append(node * width + np.array(missing))
            target.append(np.full(len(missing), over_child[int(node)]))
            prob.append(np.ones(len(missing)))
        source.append(live * width + layer.actions)
        target.append(size + len(dead) + np.arange(len(live)))
        prob.append(np.ones(len(live)))
        source.append(np.repeat(n + ended, width) * width + np.tile(np.arange(width), len(ended)))
        target.append(np.repeat(size + ended, width))
        prob.append(np.ones(len(ended) * width))
        flat = np.concatenate(source)
        order = np.argsort(flat, kind="stable")
        keys, of_node = rows[t]
        some_over = len(idle) + len(dead) > 0
        seen = np.concatenate([of_node, np.full(len(dead), -1)])
        seen = np.where(seen < 0, len(keys), seen)
        mask = _mask(layer, of_node, len(keys), some_over)
        active = np.concatenate([acting, np.zeros(len(dead), bool)])
        layers.append(
            Layer(
                nodes=n + len(dead),
                actions=width,
                observations=len(keys) + some_over,
                observation=seen,
                mask=None if mask.all() else mask,
                active=None if active.all() else active,
                edge_source=flat[order],
                edge_target=np.concatenate(target)[order],
                edge_prob=np.concatenate(prob)[order],
            )
        )
        paid.append(np.concatenate([before, dead]))
        dead = np.concatenate([dead, before[live] + base.discount**t * noop_reward])
        dead_context = np.concatenate([dead_context, contexts[t][live]])
    atoms = base.atoms
    values = np.concatenate([base.leaf_values, np.repeat(dead[:, None], atoms, axis=1)])
    first = np.zeros((len(dead), atoms))
    first[:, 0] = 1.0
    return DecisionGraph(
        context_probs=base.context_probs,
        layers=tuple(layers),
        leaf_context=np.concatenate([base.leaf_contexts(), dead_context]),
        leaf_values=values,
        leaf_probs=np.concatenate([base.leaf_probs, first]),
        node_return=tuple(paid),
        discount=base.discount,
        is_tree=True,
        name=base.name,
    )


def _mask(layer: Layer, of_node: IntArray, rows: int, some_over: bool) -> BoolArray:
    mask = np.ones((rows + some_over, layer.actions + 1), bool)
    allowed = layer.allowed()
    for row in range(rows):
        same = allowed[of_node == row]
        if (same != same[0]).any():
            raise ModelError("mask: differs between nodes that the conversation cannot tell apart")
        mask[row, :-1] = same[0]
    return mask
