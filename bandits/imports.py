"""Models that others wrote: Gymnasium's tables and OpenSpiel's cooperative games.

* `from_gym`: an environment with a transition table, `env.unwrapped.P` (FrozenLake-v1,
  CliffWalking-v1, Taxi-v4), cut off at a finite horizon. Termination becomes an absorbing state:
  the states that end an episode, where they are reached in no other way, else one more state at
  the end.
* `from_openspiel`: a sequential game in which all players are always paid the same. Chance moves
  before the first decision are the contexts; turn t is the t-th decision, whoever makes it; the
  row seen is the information state of the player to move, so that private cards stay private.

Both packages are optional and are imported when first needed.

Shapes: S states, A actions, T turns, as in `mdp` and `graph`.
"""

import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .aliasing import AliasedModel, alias
from .errors import ModelError, fail
from .exact import FloatArray, IntArray, parse_integer
from .graph import DecisionGraph, Layer, is_tree
from .limits import MAX_NODES, require_array_fits
from .mdp import TabularMDP
from .sequential import SequentialBandit, require_merge

# States of a game that are walked one by one in Python: a few seconds.
MAX_GAME_STATES = 200_000


def _missing(package: str, extra: str) -> ModelError:
    return ModelError(f"{package} is not installed: pip install 'seeupo[{extra}]'")


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    if isinstance(error, LookupError) or not text:
        text = f"{type(error).__name__}: {text}"
    return text.splitlines()[0]


# Gymnasium --------------------------------------------------------------------------------------


def from_gym(
    env_id: str,
    *,
    horizon: int | None = None,
    discount: Any = 1.0,
    start: int | None = None,
    **kwargs: Any,
) -> TabularMDP:
    """Import a Gymnasium environment that has a transition table.

    Args: horizon: T, by default the environment's own limit of steps. start: begin in this state
    instead of the environment's distribution. kwargs: the environment's options, such as
    is_slippery=False.
    Raises ModelError where Gymnasium or the environment is missing, an option is wrong, or there
    is no table.
    """
    try:
        import gymnasium
    except ImportError:
        raise _missing("gymnasium", "gym") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            env = gymnasium.make(env_id, **kwargs)
    except Exception as error:  # Gymnasium raises errors of many classes
        raise ModelError(f"gym:{env_id} cannot be made: {_first_line(error)}") from None
    try:
        table = getattr(env.unwrapped, "P", None)
        if not isinstance(table, dict):
            fail(f"gym:{env_id}", "has no transition table, should have env.unwrapped.P")
        limit = None if env.spec is None else env.spec.max_episode_steps
        initial = np.array(getattr(env.unwrapped, "initial_state_distrib", ()), dtype=float)
    finally:
        env.close()
    turns = limit if horizon is None else horizon
    if turns is None:
        fail(f"gym:{env_id}", "has no limit of steps, should be given one: ?horizon=T")
    if start is not None:
        parse_integer("start", start, least=0)
        if start >= len(table):
            fail(f"start = {start}", f"should be a state from 0 to {len(table) - 1}")
        initial = np.zeros(len(table))
        initial[start] = 1.0
    return mdp_from_table(table, initial, turns, discount, name=env_id)


class _Outcome(NamedTuple):
    state: int
    action: int
    next_state: int
    prob: float
    reward: float


def mdp_from_table(
    table: dict[int, dict[int, list[tuple[float, int, float, bool]]]],
    initial: FloatArray,
    horizon: int,
    discount: Any = 1.0,
    *,
    name: str = "",
) -> TabularMDP:
    """Build an MDP of a table P[s][a] = [(probability, next state, reward, terminated), …].

    initial: [S]. Outcomes with the same next state are merged; their rewards become a distribution.

    >>> table = {0: {0: [(1.0, 0, 1.0, False)], 1: [(1.0, 1, 5.0, True)]}, 1: {0: [], 1: []}}
    >>> mdp_from_table(table, np.array([1.0, 0.0]), horizon=2).graph().leaf_means().tolist()
    [2.0, 5.0, 6.0]
    """
    states, actions = len(table), len(table[0])
    if initial.shape != (states,):
        fail("initial", f"has shape {initial.shape}, should be ({states},), one entry a state")
    outcomes, ends = _outcomes(table, _terminal(table, initial))
    size = states + (max(ends, default=-1) == states)
    require_array_fits((size, actions, size), f"transitions of {size} states")
    transitions = np.zeros((size, actions, size))
    for o in outcomes:
        transitions[o.state, o.action, o.next_state] += o.prob
    for s in ends:
        transitions[s, :, s] = 1.0
    rewards, on_transition = _rewards(outcomes, transitions)
    start = np.concatenate([initial, np.zeros(size - states)])
    return TabularMDP(
        transitions, rewards, start, horizon, discount, on_transition=on_transition, name=name
    )


def _terminal(table: dict[int, Any], initial: FloatArray) -> set[int]:
    """Return the states that only termination leads to; {S} where one is also reached otherwise."""
    ends = {
        o[1] for row in table.values() for out in row.values() for o in out if o[3] and o[0] > 0
    }
    frontier = [int(s) for s in np.flatnonzero(initial)]
    seen = set(frontier)
    while frontier:
        for out in table[frontier.pop()].values():
            for prob, following, _, over in out:
                if prob > 0 and not over and int(following) not in seen:
                    seen.add(int(following))
                    frontier.append(int(following))
    return {int(s) for s in ends} if not ends & seen else {len(table)}


def _outcomes(table: dict[int, Any], ends: set[int]) -> tuple[list[_Outcome], set[int]]:
    extra = len(table) in ends
    outcomes = []
    for state, row in table.items():
        if state in ends:
            continue
        for action, out in row.items():
            if not out:
                fail(f"P[{state}][{action}]", "is empty, should have an outcome")
            for prob, following, reward, over in out:
                target = len(table) if over and extra else int(following)
                if prob > 0:
                    outcomes.append(_Outcome(state, action, target, float(prob), float(reward)))
    return outcomes, ends


def _rewards(outcomes: list[_Outcome], transitions: FloatArray) -> tuple[Any, bool]:
    """Return rewards [S, A] if they do not depend on the next state, else [S, A, S] (atoms last)."""
    size, actions, _ = transitions.shape
    paid: dict[tuple[int, int, int], dict[float, float]] = {}
    for o in outcomes:
        atoms = paid.setdefault((o.state, o.action, o.next_state), {})
        atoms[o.reward] = atoms.get(o.reward, 0.0) + o.prob
    values: dict[tuple[int, int], set[float]] = {}
    for (s, a, _), atoms in paid.items():
        values.setdefault((s, a), set()).update(atoms)
    if all(len(v) == 1 for v in values.values()):
        rewards = np.zeros((size, actions))
        for (s, a), v in values.items():
            rewards[s, a] = next(iter(v))
        return rewards, False
    count = max(map(len, paid.values()))
    require_array_fits((size, actions, size, 2 * count), f"rewards of {size} states")
    value = np.zeros((size, actions, size, count))
    prob = np.zeros((size, actions, size, count))
    prob[..., 0] = 1.0
    for key, atoms in paid.items():
        value[key][: len(atoms)] = list(atoms)
        weights = np.array(list(atoms.values()))
        prob[key][: len(atoms)] = weights / weights.sum()
    return (value[..., 0], True) if count == 1 else ({"values": value, "probs": prob}, True)


# OpenSpiel --------------------------------------------------------------------------------------


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
        raise _missing("open_spiel (pyspiel)", "openspiel") from None
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
        raise ModelError(f"openspiel:{text} cannot be loaded: {_first_line(error)}") from None
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
