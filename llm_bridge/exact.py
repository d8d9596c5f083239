r"""What a language model is worth, exactly: the companion of `TabularText`.

At every conversation of a game, the probability of each word is the sum over all token sequences
that the environment would read as that word,

.. math:: \pi_t(a|h) = \sum_{s:\ \text{text}(s) = a} \prod_l p(s_l | h, s_{<l}),

each followed by a stop token, or cut at the token limit.  Tokenisers can spell a word in several
ways, and a sampled policy uses them all, so all are counted; the rest, :math:`1 - \sum_a \pi_t(a|h)`,
is the no-op.  Prompts are read once each and their cache is shared by all words.

With the tables known, the value, action values, advantages and visitation follow from one sweep
through the game's tree, and an update can be judged: did J rise?

Shapes: N_t nodes, O_t rows, A_t actions (the no-op last), T turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bandits.graph import DecisionGraph
from llm_bridge.policies.base import Turn
from llm_bridge.policies.tabular import TabularPolicy
from seeupo_theory.rules import factor as factor_rule
from seeupo_theory.rules.presets import Algorithm

__all__ = [
    "DROP_RTOL",
    "Evaluation",
    "Exact",
    "LocalAdvantage",
    "evaluate",
    "spellings",
    "verdict",
]

FloatArray = NDArray[np.float64]

DROP_RTOL = 1e-5
"""A change of J below this share of the game's largest return is no verdict: probabilities of a
model in float32 are sums of rounded terms."""

MASS_ATOL = 1e-4
"""Words may have more than probability 1 together by so much, again from float32."""


class Evaluation(NamedTuple):
    """value J; states T arrays [N_t] V; actions T arrays [N_t, A_t] Q; visits T arrays [N_t]."""

    value: float
    states: list[FloatArray]
    actions: list[FloatArray]
    visits: list[FloatArray]

    @property
    def advantages(self) -> list[FloatArray]:
        """Q − V, T arrays [N_t, A_t]."""
        pairs = zip(self.actions, self.states, strict=True)
        return [q - v[:, None] for q, v in pairs]


def evaluate(graph: DecisionGraph, tables: Sequence[FloatArray]) -> Evaluation:
    """Exact evaluation of probability tables [O_t, A_t] by one sweep back and one forth.

    >>> from bandits import SequentialBandit
    >>> evaluate(SequentialBandit([[[0, 1], [1, 0]]]).graph(), [[[.5, .5]], [[1, 0], [0, 1]]]).value
    0.0
    """
    policy = at_nodes(graph, tables)
    later = graph.leaf_means()
    states: list[FloatArray] = []
    actions: list[FloatArray] = []
    for layer, prob in zip(reversed(graph.layers), reversed(policy), strict=True):
        q = _pull(layer, later)
        later = (prob * q).sum(axis=1)
        actions.insert(0, q)
        states.insert(0, later)
    visits = [np.asarray(graph.context_probs, dtype=np.float64)]
    for t, (layer, prob) in enumerate(zip(graph.layers[:-1], policy[:-1], strict=True)):
        visits.append(_push(layer, visits[t][:, None] * prob, graph.layers[t + 1].nodes))
    return Evaluation(float(graph.context_probs @ states[0]), states, actions, visits)


def at_nodes(graph: DecisionGraph, tables: Sequence[Any]) -> list[FloatArray]:
    """T arrays [N_t, A_t] of T tables [O_t, A_t]."""
    pairs = zip(graph.layers, tables, strict=True)
    return [np.asarray(table, dtype=np.float64)[layer.rows()] for layer, table in pairs]


def _pull(layer: Any, later: FloatArray) -> FloatArray:
    edges = layer.edges()
    flat = edges.source * layer.actions + edges.action
    size = layer.nodes * layer.actions
    total = np.bincount(flat, edges.prob * later[edges.target], minlength=size)
    return np.asarray(total.reshape(layer.nodes, layer.actions))


def _push(layer: Any, flow: FloatArray, nodes: int) -> FloatArray:
    edges = layer.edges()
    weight = flow[edges.source, edges.action] * edges.prob
    return np.asarray(np.bincount(edges.target, weight, minlength=nodes))


class LocalAdvantage:
    """Advantage of a turn while the turns already updated follow their new policies.

    The same quantity as estimator "exact" of the tabular simulator: updated turns enter through
    their factors (`seeupo_theory.rules.factor`).
    """

    def __init__(self, graph: DecisionGraph, tables: Sequence[FloatArray]):
        self.graph = graph
        self.policy = at_nodes(graph, tables)
        self.weighted = list(self.policy)

    def advantage(self, turn: int) -> FloatArray:
        """A_t at the nodes, [N_t, A_t]."""
        later = self.graph.leaf_means()
        for t in range(self.graph.turns - 1, turn, -1):
            later = (self.weighted[t] * _pull(self.graph.layers[t], later)).sum(axis=1)
        q = _pull(self.graph.layers[turn], later)
        return q - (self.policy[turn] * q).sum(axis=1, keepdims=True)

    def advance(self, turn: int, new: FloatArray, old: FloatArray, algorithm: Algorithm) -> None:
        """Record an updated turn, from its probability tables after and before."""
        layer = self.graph.layers[turn]
        after, before = (np.asarray(x, dtype=np.float64)[layer.rows()] for x in (new, old))
        taken = (before > 0) & (after > 0)
        active = None if layer.active is None else layer.active[:, None]
        ratio = factor_rule.advance(
            np.ones_like(after),
            np.log(np.where(taken, after, 1.0)),
            np.log(np.where(taken, before, 1.0)),
            active=active,
            level=algorithm.factor_level,
            factor_clip=algorithm.factor_clip,
        )
        self.weighted[turn] = np.where(before > 0, self.policy[turn] * ratio, after)


def spellings(policy: Any, word: str, limit: int = 4096) -> list[tuple[int, ...]]:
    """All token sequences that decode to the word, by the pieces that its tokeniser has.

    Raises:
        ValueError: the tokeniser cannot write the word, or decodes pieces differently together.
    """
    pieces = _pieces(policy)
    ends: list[list[tuple[int, ...]]] = [[()], *([] for _ in word)]
    for start in range(len(word)):
        for stop in range(start + 1, len(word) + 1):
            for token in pieces.get(word[start:stop], ()):
                ends[stop] += [(*head, token) for head in ends[start]]
        if len(ends[start + 1]) > limit:
            raise ValueError(f"word {word!r} has more than {limit} spellings; use a shorter one")
    out = [ids for ids in ends[-1] if policy.decode(ids) == word]
    if not out:
        raise ValueError(f"word {word!r} cannot be written by this tokeniser")
    return out


def _pieces(policy: Any) -> dict[str, list[int]]:
    """Tokens by their text, without those that end a reply."""
    known = getattr(policy, "_pieces", None)
    if known is None:
        known = {}
        for token in range(len(policy.tokenizer)):
            if token not in policy.stop_ids:
                known.setdefault(policy.decode((token,)), []).append(token)
        policy._pieces = known
    return known


@dataclass(frozen=True)
class Exact:
    """Exact evaluation of policies on a game.

    Attributes:
        game: a `TabularText`, or a `DecisionGraph` for a `TabularPolicy` on it.
        max_tokens, temperature: of generation; they are part of what the policy is.
        chunk: conversations read at once.
    """

    game: Any
    max_tokens: int = 8
    temperature: float = 1.0
    chunk: int = 32

    @property
    def graph(self) -> DecisionGraph:
        """The game as the policy meets it."""
        return self.game if isinstance(self.game, DecisionGraph) else self.game.graph

    def tables(self, policy: Any) -> list[FloatArray]:
        """π_t(a | history) of every conversation, T arrays [O_t, A_t]."""
        if isinstance(policy, TabularPolicy):
            return policy.tables()
        graph = self.graph
        out = [np.zeros((layer.observations, layer.actions)) for layer in graph.layers]
        for t, conversations in enumerate(self.game.conversations):
            sequences, owner = self._sequences(policy, self.game.action_words[t])
            prompts = [policy.encode(c) for c in conversations]
            table = out[t]
            if not sequences:
                table[: len(prompts), -1] = 1.0
                prompts = []
            for first in range(0, len(prompts), self.chunk):
                part = prompts[first : first + self.chunk]
                log_prob = policy.continuation_log_probs(
                    part, sequences, temperature=self.temperature
                )
                mass = np.exp(log_prob.double().cpu().numpy())
                for a in range(table.shape[1] - 1):
                    table[first : first + len(part), a] = mass[:, owner == a].sum(axis=1)
            mask = graph.layers[t].mask
            if mask is not None:
                table[:, :-1] *= mask[:, :-1]
            rest = 1.0 - table[:, :-1].sum(axis=1)
            if (rest < -MASS_ATOL).any():
                raise ValueError(f"words of turn {t} have probability {1 - rest.min()} together")
            table[:, -1] = np.maximum(rest, 0.0)
            table /= table.sum(axis=1, keepdims=True)
        return out

    def _sequences(
        self, policy: Any, words: Sequence[str]
    ) -> tuple[list[tuple[int, ...]], NDArray[np.int64]]:
        """Token sequences that are read as a word, and the word of each."""
        sequences, owner = [], []
        for a, word in enumerate(words):
            for ids in spellings(policy, word):
                if len(ids) < self.max_tokens:
                    ends = [(*ids, stop) for stop in policy.stop_ids]
                else:  # cut at the limit, complete as it is
                    ends = [ids] if len(ids) == self.max_tokens else []
                sequences += ends
                owner += [a] * len(ends)
        return sequences, np.array(owner, dtype=np.int64)

    def value(self, policy: Any) -> float:
        """J of the policy."""
        return self.evaluate(policy).value

    def evaluate(self, policy: Any) -> Evaluation:
        """Value, action values and visitation of the policy."""
        return evaluate(self.graph, self.tables(policy))

    def action(self, turn: int, reply: Turn, node: int) -> int:
        """Index of the action that a reply is read as at a node; forbidden words are the no-op."""
        if isinstance(self.game, DecisionGraph):
            return int(reply.ids[0])
        words = self.game.action_words[turn]
        found = words.index(reply.text) if reply.text in words else len(words)
        layer = self.graph.layers[turn]
        row = node if layer.observation is None else int(layer.observation[node])
        return found if layer.mask is None or layer.mask[row, found] else len(words)


def verdict(before: float, after: float, scale: float = 1.0) -> str:
    """ "improved", "lowered" or "unchanged" (within `DROP_RTOL` of the scale).

    >>> verdict(0.5, 0.25), verdict(0.5, 0.5 + 1e-9)
    ('lowered', 'unchanged')
    """
    if abs(after - before) <= DROP_RTOL * scale:
        return "unchanged"
    return "improved" if after > before else "lowered"
