"""Turns as sequences of tokens: two views of one model.

At turn t the policy writes L_t tokens from V_t symbols; the turn's action is the whole sequence.
In the *turn view* it is one action out of A_t = V_t^{L_t}, numbered row-major (first token most
significant); in the *token view* every token is an action of its own turn, and Σ_t L_t turns of
V_t actions result. Both views have the same leaves in the same order. Tables of one view convert
to the other:

    π_t(a | h) = Π_{j=1}^{L_t} π_{t,j}(k_j | h, k_1 … k_{j−1}),   a = (k_1, …, k_{L_t}),

and the row of (h, k_1 … k_{j−1}) is h·V_t^{j−1} + (k_1 … k_{j−1}) read as a number in base V_t.
So token-level and sequence-level updates can be compared on the same rewards.

Shapes: turn tables [H_t, A_t], T of them; token tables [H_t·V_t^{j−1}, V_t], ΣL_t of them, in
order of time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from .errors import fail
from .exact import BoolArray, FloatArray, IntArray, parse_integer
from .graph import DecisionGraph, Layer, is_tree
from .sequential import SequentialBandit


@dataclass(frozen=True, init=False)
class TokenView:
    """A bandit whose turn-t action is a sequence of lengths[t] tokens from vocab[t] symbols.

    model: a SequentialBandit with A_t = vocab[t]^lengths[t]. lengths, vocab: one number for all
    turns or one a turn. Raises ModelError where they do not fit.

    >>> view = TokenView(SequentialBandit([[0, 1, 2, 3]]), lengths=2, vocab=2)
    >>> view.token_model
    SequentialBandit([[[0, 1], [2, 3]]])
    >>> view.turn_tables([[[0.5, 0.5]], [[1, 0], [0.25, 0.75]]])[0].tolist()
    [[0.5, 0.0, 0.125, 0.375]]
    """

    turn_model: SequentialBandit
    lengths: tuple[int, ...]
    vocab: tuple[int, ...]

    def __init__(
        self, model: SequentialBandit, lengths: int | Sequence[int], vocab: int | Sequence[int]
    ) -> None:
        object.__setattr__(self, "turn_model", model)
        object.__setattr__(self, "lengths", _per_turn("lengths", lengths, model.actions))
        object.__setattr__(self, "vocab", _per_turn("vocab", vocab, model.actions))
        _require_fit(model.actions, self.lengths, self.vocab)

    @property
    def token_model(self) -> SequentialBandit:
        """The model with one turn a token, ΣL_t turns."""
        return SequentialBandit(
            self.turn_model.rewards.reshape((self.turn_model.contexts, *self.token_actions)),
            self.turn_model.contexts_exact,
            name=self.turn_model.name,
        )

    @property
    def token_actions(self) -> tuple[int, ...]:
        """Number of symbols of every token [ΣL_t]."""
        pairs = zip(self.lengths, self.vocab, strict=True)
        return tuple(v for length, v in pairs for _ in range(length))

    @property
    def turn_of_token(self) -> IntArray:
        """The turn, from 0, that each token belongs to [ΣL_t]."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def tokens(self, turn: int, action: ArrayLike) -> IntArray:
        """Return the tokens […, L_t] of actions […] of a turn."""
        found = np.unravel_index(np.asarray(action), (self.vocab[turn],) * self.lengths[turn])
        return np.stack(found, axis=-1)

    def action(self, turn: int, tokens: ArrayLike) -> IntArray:
        """Return the actions […] that tokens […, L_t] of a turn make up."""
        parts = np.moveaxis(np.asarray(tokens), -1, 0)
        shape = (self.vocab[turn],) * self.lengths[turn]
        return np.asarray(np.ravel_multi_index(tuple(parts), shape))

    def token_rows(self, turn: int, history: ArrayLike, action: ArrayLike) -> IntArray:
        """Return the row [.., L_t] of each token table of the turn that (history, action) passes."""
        base, length = self.vocab[turn], self.lengths[turn]
        power = base ** np.arange(length)
        prefix = np.asarray(action)[..., None] // power[::-1] // base
        return np.asarray(np.asarray(history)[..., None] * power + prefix)

    def turn_tables(self, token_tables: Sequence[ArrayLike]) -> list[FloatArray]:
        """Return the turn tables [H_t, A_t] of token tables: products along the tokens."""
        tables = [np.asarray(table, dtype=np.float64) for table in token_tables]
        if len(tables) != sum(self.lengths):
            fail("token_tables", f"has {len(tables)} tables, should have {sum(self.lengths)}")
        out, k = [], 0
        for turn, rows in enumerate(self.turn_model.histories):
            product = np.ones((rows, 1))
            for _ in range(self.lengths[turn]):
                shape = (product.size, self.vocab[turn])
                if tables[k].shape != shape:
                    fail(f"token_tables[{k}]", f"has shape {tables[k].shape}, should be {shape}")
                product = (product.reshape(-1, 1) * tables[k]).reshape(rows, -1)
                k += 1
            out.append(product)
        return out

    def token_tables(self, turn_tables: Sequence[ArrayLike]) -> list[FloatArray]:
        """Return the token tables of turn tables: conditional probabilities of the next token.

        Rows whose prefix has probability 0 are uniform: the turn table says nothing about them.
        """
        tables = [np.asarray(table, dtype=np.float64) for table in turn_tables]
        if len(tables) != len(self.lengths):
            fail("turn_tables", f"has {len(tables)} tables, should have {len(self.lengths)}")
        out: list[FloatArray] = []
        for turn, (rows, table) in enumerate(zip(self.turn_model.histories, tables, strict=True)):
            shape, base = (rows, self.turn_model.actions[turn]), self.vocab[turn]
            if table.shape != shape:
                fail(f"turn_tables[{turn}]", f"has shape {table.shape}, should be {shape}")
            for j in range(self.lengths[turn]):
                mass = table.reshape(rows * base**j, base, -1).sum(axis=-1)
                total = mass.sum(axis=1, keepdims=True)
                safe = np.where(total > 0, total, 1.0)
                out.append(np.where(total > 0, mass / safe, 1.0 / base))
        return out


def token_graph(
    graph: DecisionGraph, lengths: int | Sequence[int], vocab: int | Sequence[int]
) -> DecisionGraph:
    """Return any graph, an MDP's too, with every turn spelt out in tokens.

    A node of the j-th token is (n, k_1 … k_{j−1}); it sees (o(n), k_1 … k_{j−1}), and a token is
    allowed if some allowed action begins with it. The last token of a turn has the edges of the
    turn itself.

    >>> graph = SequentialBandit([[0, 1, 2, 3]]).graph()
    >>> token_graph(graph, lengths=2, vocab=2)
    <DecisionGraph contexts=1, nodes=(1, 2), actions=(2, 2), leaves=4, tree=True>
    """
    length = _per_turn("lengths", lengths, graph.actions)
    base = _per_turn("vocab", vocab, graph.actions)
    _require_fit(graph.actions, length, base)
    layers: list[Layer] = []
    returns: list[FloatArray] = []
    for turn, layer in enumerate(graph.layers):
        if layer.mask is not None and layer.implicit:
            fail(
                f"layers[{turn}].mask", "on an implicit layer has no token view, should have edges"
            )
        kept = np.arange(layer.nodes)  # nodes (n, k_1 … k_j) as numbers in base V
        for j in range(length[turn]):
            made, following = _token_layer(layer, base[turn], j, length[turn], kept)
            layers.append(made)
            if graph.node_return is not None:
                returns.append(graph.node_return[turn][kept // base[turn] ** j])
            kept = following
    return replace(
        graph,
        layers=tuple(layers),
        node_return=tuple(returns) if graph.node_return is not None else None,
        is_tree=is_tree(tuple(layers)),
    )


def _token_layer(
    layer: Layer, base: int, j: int, length: int, kept: IntArray
) -> tuple[Layer, IntArray]:
    """Return the layer of the j-th token for the nodes in `kept`, and the nodes that follow."""
    prefixes = base**j
    node, prefix = np.divmod(kept, prefixes)
    rows = layer.observations * prefixes
    observation = None
    if layer.observation is not None or len(kept) < layer.nodes * prefixes:
        observation = layer.rows()[node] * prefixes + prefix
    flat = np.arange(len(kept) * base)  # (kept node, token)
    child = (kept[:, None] * base + np.arange(base)).reshape(-1)
    mask: BoolArray | None = None
    if layer.mask is not None:
        mask = np.asarray(layer.mask.reshape(rows, base, -1).any(axis=-1))
        allowed = (mask if observation is None else mask[observation]).reshape(-1)
        mask = mask | ~mask.any(axis=1, keepdims=True)  # rows of prefixes that cannot occur
        flat, child = flat[allowed], child[allowed]
    source = target = prob = None
    if j + 1 < length and layer.mask is not None:
        source, target, prob = flat, np.arange(len(flat)), np.ones(len(flat))
    elif j + 1 == length and layer.edge_source is not None:
        place = np.searchsorted(
            child, layer.edge_source
        )  # the edges of (n, a) leave its last token
        source, target, prob = flat[place], layer.edge_target, layer.edge_prob
    made = Layer(
        nodes=len(kept),
        actions=base,
        observations=rows,
        observation=observation,
        mask=mask,
        active=None if layer.active is None else layer.active[node],
        edge_source=source,
        edge_target=target,
        edge_prob=prob,
    )
    return made, child


def _per_turn(field: str, given: int | Sequence[int], actions: Sequence[int]) -> tuple[int, ...]:
    if np.ndim(given) == 0:
        return (parse_integer(field, given, least=1),) * len(actions)
    numbers = tuple(
        parse_integer(f"{field}[{t}]", n, least=1)
        for t, n in enumerate(given)  # type: ignore[arg-type]
    )
    if len(numbers) != len(actions):
        fail(field, f"has {len(numbers)} entries, should have {len(actions)}, one a turn")
    return numbers


def _require_fit(actions: Sequence[int], lengths: Sequence[int], vocab: Sequence[int]) -> None:
    for t, (count, length, base) in enumerate(zip(actions, lengths, vocab, strict=True)):
        if base**length != count:
            fail(
                f"vocab[{t}]^lengths[{t}] = {base}^{length}",
                f"should be the {count} actions of turn {t}",
            )
