"""Cooperative games of OpenSpiel as models.

A sequential game in which all players are always paid the same is a decision problem of one team.
Chance moves before the first decision are the contexts; turn t is the t-th decision, whoever makes
it; the row seen is the information state of the player to move, so that private cards stay private.
Games that end early are padded with no-op turns.

OpenSpiel is optional and is imported when first needed. Shapes: T turns, as in `graph`.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .aliasing import AliasedModel, alias
from .errors import ModelError, fail, first_line, missing
from .exact import IntArray
from .graph import DecisionGraph, Layer, is_tree
from .limits import MAX_NODES
from .sequential import SequentialBandit, require_merge

# States of a game that are walked one by one in Python: a few seconds.
MAX_GAME_STATES = 200_000


@dataclass(frozen=True, eq=False, repr=False)
class ImportedGame:
    """A game that is no sequential bandit: its tree as a decision graph.

    text: how it was loaded; lowered: the graph.
    """

    text: str
    lowered: DecisionGraph = field(compare=False)

    @property
    def name(self) -> str:
        """Name of the game."""
        return self.text

    @property
    def turns(self) -> int:
        """T."""
        return self.lowered.turns

    @property
    def horizon(self) -> int:
        """T."""
        return self.lowered.turns

    @property
    def actions(self) -> tuple[int, ...]:
        """(A_1, …, A_T)."""
        return self.lowered.actions

    @property
    def contexts(self) -> int:
        """C."""
        return self.lowered.contexts

    def graph(self, merge: str = "return", max_nodes: float = MAX_NODES) -> DecisionGraph:
        """Return the game's tree; nothing is merged."""
        require_merge(merge)
        return self.lowered

    def __eq__(self, other: object) -> bool:
        """Whether both were loaded from the same text."""
        return self.text == other.text if isinstance(other, ImportedGame) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"from_openspiel({self.text!r})"


def from_openspiel(text: str, **params: Any) -> AliasedModel | ImportedGame:
    """Import a sequential, fully cooperative OpenSpiel game by walking its whole tree.

    Args: text: a name that pyspiel loads, such as "tiny_hanabi". params: the game's parameters.
    A game of fixed length, with chance moves at its start only and the same legal actions
    everywhere in a turn, becomes a bandit seen through information states; others become a graph
    with masks, edges and no-op turns.
    Raises ModelError where OpenSpiel or the game is missing, or the game does not fit.
    """
    try:
        import pyspiel
    except ImportError:
        raise missing("open_spiel (pyspiel)", "openspiel") from None
    short = text.partition("(")[0]
    kinds = {kind.short_name: kind for kind in pyspiel.registered_games()}
    if short not in kinds:
        fail(f"openspiel:{text}", "is no game of OpenSpiel, should be one such as tiny_hanabi")
    kind = kinds[short]
    for key in params:
        if key not in kind.parameter_specification:
            known = ", ".join(sorted(kind.parameter_specification)) or "none"
            fail(f"openspiel:{text}", f"has no parameter {key!r}, should be one of: {known}")
    if kind.utility == pyspiel.GameType.Utility.ZERO_SUM and kind.min_num_players > 1:
        fail(f"openspiel:{text}", "is zero-sum, should pay all players the same")
    try:
        game = pyspiel.load_game(text, params) if params else pyspiel.load_game(text)
    except Exception as error:  # pyspiel raises its own class and RuntimeError
        raise ModelError(f"openspiel:{text} cannot be loaded: {first_line(error)}") from None
    kind = game.get_type()  # that of the game as loaded
    if kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        fail(f"openspiel:{text}", "has simultaneous moves, should be sequential")
    if not kind.provides_information_state_string:
        fail(f"openspiel:{text}", "has no information states, should provide their strings")
    if params:
        text = str(game)
    return _GameWalk(text).model(game)


class _GameWalk:
    """Walks a game breadth first, one turn a layer."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.states = 0

    def model(self, game: Any) -> AliasedModel | ImportedGame:
        start = self._settle(game.new_initial_state())
        probs = np.array([p for p, _ in start])
        nodes = [state for _, state in start]
        context = np.arange(len(nodes))
        layers: list[Layer] = []
        uniform = True
        while not all(self._over(state) for state in nodes):
            layer, nodes, parent, regular = self._layer(nodes)
            uniform &= regular
            layers.append(layer)
            context = context[parent]
        if not layers:
            fail(f"openspiel:{self.text}", "has no decision, should have at least one")
        returns = np.array([self._paid(state) for state in nodes])
        if uniform:
            counts = tuple(layer.actions for layer in layers)
            bandit = SequentialBandit(returns, probs, name=self.text, actions=counts)
            rows = [layer.rows() for layer in layers]
            return alias(bandit, rows)
        graph = DecisionGraph(
            context_probs=probs,
            layers=tuple(layers),
            leaf_context=context,
            leaf_values=returns[:, None],
            leaf_probs=np.ones((len(returns), 1)),
            is_tree=is_tree(tuple(layers)),
            name=self.text,
        )
        return ImportedGame(self.text, graph)

    def _settle(self, state: Any) -> list[tuple[float, Any]]:
        """Play out chance moves: probabilities and the states where somebody decides or all is over."""
        self.states += 1
        if self.states > MAX_GAME_STATES:
            fail(f"openspiel:{self.text}", f"has over {MAX_GAME_STATES} states, should have fewer")
        if not state.is_chance_node():
            return [(1.0, state)]
        out = []
        for move, prob in state.chance_outcomes():
            if prob > 0:
                out += [(prob * p, s) for p, s in self._settle(state.child(move))]
        return out

    @staticmethod
    def _over(state: Any) -> bool:
        return bool(state.is_terminal())

    def _layer(self, nodes: list[Any]) -> tuple[Layer, list[Any], IntArray, bool]:
        """Return the layer of these nodes, the next nodes, their parents, and whether it is regular.

        Regular: a full tree without chance, masks or no-op turns.
        """
        legal = [[] if self._over(s) else list(s.legal_actions()) for s in nodes]
        moves = sorted({move for some in legal for move in some})
        rows: dict[Any, int] = {}
        seen = []
        for state in nodes:
            if self._over(state):
                what: Any = None  # a row of its own for no-op turns
            else:
                player = state.current_player()
                what = (player, state.information_state_string(player))
            seen.append(rows.setdefault(what, len(rows)))
        mask = np.ones((len(rows), len(moves)), dtype=np.bool_)
        source: list[int] = []
        prob: list[float] = []
        target: list[int] = []
        following: list[Any] = []
        parent: list[int] = []
        for n, state in enumerate(nodes):
            if self._over(state):
                source += [n * len(moves) + a for a in range(len(moves))]
                target += [len(following)] * len(moves)
                prob += [1.0] * len(moves)
                following.append(state)
                parent.append(n)
                continue
            mask[seen[n]] = np.isin(moves, legal[n])
            for move in legal[n]:
                for p, child in self._settle(state.child(move)):
                    source.append(n * len(moves) + moves.index(move))
                    target.append(len(following))
                    prob.append(p)
                    following.append(child)
                    parent.append(n)
        over = np.array([self._over(state) for state in nodes])
        layer = Layer(
            nodes=len(nodes),
            actions=len(moves),
            observations=len(rows),
            observation=np.array(seen),
            mask=None if mask.all() else mask,
            active=~over if over.any() else None,
            edge_source=np.array(source),
            edge_target=np.array(target),
            edge_prob=np.array(prob),
        )
        regular = bool(mask.all()) and not over.any() and len(following) == len(nodes) * len(moves)
        return layer, following, np.array(parent), regular

    def _paid(self, state: Any) -> float:
        returns = [float(x) for x in state.returns()]
        if any(x != returns[0] for x in returns):
            fail(
                f"openspiel:{self.text}",
                f"pays {returns} after {state.history_str()}, should pay all players the same",
            )
        return returns[0]
