"""Models that others wrote: Gymnasium's tables, and OpenSpiel's games (see `games`).

* `from_gym`: an environment with a transition table, `env.unwrapped.P` (FrozenLake-v1,
  CliffWalking-v1, Taxi-v4), cut off at a finite horizon. Termination becomes an absorbing state:
  the states that end an episode, where they are reached in no other way, else one more state at
  the end.
* `from_openspiel`: a sequential game whose players are always paid the same.

Both packages are optional and are imported when first needed.

Shapes: S states, A actions, T turns, as in `mdp`.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np

from .errors import ModelError, fail, first_line, missing
from .exact import FloatArray, parse_integer
from .games import ImportedGame, from_openspiel
from .limits import require_array_fits
from .mdp import TabularMDP

__all__ = ["ImportedGame", "from_gym", "from_openspiel", "mdp_from_table"]


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
        raise missing("gymnasium", "gym") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            env = gymnasium.make(env_id, **kwargs)
    except Exception as error:  # Gymnasium raises errors of many classes
        raise ModelError(f"gym:{env_id} cannot be made: {first_line(error)}") from None
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
