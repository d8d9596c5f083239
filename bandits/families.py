"""Random models and policies, reproducible from a seed.

Every function takes a seed (or a NumPy Generator) and draws from `np.random.default_rng`; the
same seed gives the same model on every machine.

Reward families of leaves:

* "normal": standard normal. "uniform": uniform on [0, 1]. "binary": 0 or 1, each with probability
  1/2.
* "grid": multiples of 1/4 from 0 to 1 (exact in binary, and with ties).
* "bernoulli": pays 1 with a uniformly drawn probability. "distribution": three normal values with
  probabilities uniform on the simplex.

Shapes: C contexts, A_t actions of turn t, S states, A actions.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import fail
from .exact import FloatArray, parse_integer
from .graph import DecisionGraph
from .limits import require_array_fits
from .mdp import TabularMDP
from .sequential import SequentialBandit

REWARDS = ("normal", "uniform", "binary", "grid", "bernoulli", "distribution")
_ATOMS = 3
Seed = int | np.random.Generator


def random_bandit(
    seed: Seed,
    contexts: int = 1,
    actions: Sequence[int] = (2, 2),
    reward: str = "normal",
    *,
    uniform_contexts: bool = False,
) -> SequentialBandit:
    """Draw a bandit with `contexts` contexts and actions (A_1, …, A_T).

    Context probabilities are uniform on the simplex unless `uniform_contexts`.
    Raises ModelError for an unknown family, counts below 1, and sizes that do not fit into memory.

    >>> random_bandit(0, contexts=2, actions=(2, 3), reward="binary").reward_means.shape
    (2, 2, 3)
    """
    rng = np.random.default_rng(seed)
    counts = tuple(parse_integer(f"actions[{t}]", a, least=1) for t, a in enumerate(actions))
    if not counts:
        fail("actions", "is empty, should have one number a turn")
    shape = (parse_integer("contexts", contexts, least=1), *counts)
    rewards = _rewards(rng, reward, shape)
    probs = None if uniform_contexts else rng.dirichlet(np.ones(shape[0]))
    return SequentialBandit(rewards, probs, name=f"random-{reward}")


def random_mdp(
    seed: Seed,
    states: int = 3,
    actions: int = 2,
    horizon: int = 3,
    discount: float = 1.0,
    reward: str = "grid",
    *,
    branching: int | None = None,
    absorbing: int = 0,
    masked: bool = False,
    by_turn: bool = False,
) -> TabularMDP:
    """Draw an MDP.

    Args: branching: next states of each (s, a), all by default. absorbing: how many of the last
    states end the episode. masked: forbid about a quarter of the actions. by_turn: draw tables
    anew for every turn.
    Raises ModelError for an unknown family, counts out of range, and sizes that do not fit into
    memory.

    >>> random_mdp(0, states=4, absorbing=1).absorbing.tolist()
    [False, False, False, True]
    """
    rng = np.random.default_rng(seed)
    size = parse_integer("states", states, least=1)
    count = parse_integer("actions", actions, least=1)
    turns = parse_integer("horizon", horizon, least=1)
    ends = parse_integer("absorbing", absorbing, least=0)
    targets = size if branching is None else parse_integer("branching", branching, least=1)
    if ends >= size or targets > size:
        fail(f"absorbing = {ends}, branching = {targets}", f"should fit states = {size}")
    shape = (turns, size, count) if by_turn else (size, count)
    require_array_fits((*shape, size), f"transitions of shape {(*shape, size)}")
    probs = rng.dirichlet(np.ones(targets), size=shape)
    order = rng.permuted(np.broadcast_to(np.arange(size), (*shape, size)), axis=-1)
    table = np.zeros((*shape, size))
    np.put_along_axis(table, order[..., :targets], probs, axis=-1)
    rewards = _rewards(rng, reward, shape)
    if ends:
        table[..., -ends:, :, :] = np.eye(size)[-ends:, None, :]
        _silence(rewards, size - ends)
    mask = None
    if masked:
        mask = rng.random(shape) > 0.25
        mask[..., 0] |= ~mask.any(axis=-1)
    initial = np.zeros(size)
    initial[: size - ends] = rng.dirichlet(np.ones(size - ends))
    return TabularMDP(table, rewards, initial, turns, discount, mask=mask, name="random-mdp")


def random_policy(
    seed: Seed, model: DecisionGraph | Any, concentration: float = 1.0
) -> list[FloatArray]:
    """Draw policy tables [O_t, A_t] that keep the model's masks.

    Rows are symmetric Dirichlet with this concentration: 1 is uniform on the simplex, small
    values give nearly deterministic rows, large ones nearly uniform.

    >>> [table.shape for table in random_policy(0, random_bandit(0, actions=(2, 3)))]
    [(1, 2), (2, 3)]
    """
    graph = model if isinstance(model, DecisionGraph) else model.graph()
    rng = np.random.default_rng(seed)
    if not concentration > 0:
        fail(f"concentration = {concentration}", "should be positive")
    out = []
    for layer in graph.layers:
        shape = (layer.observations, layer.actions)
        # log of a Gamma(c) draw, as Gamma(c + 1) · U^(1/c): rows do not underflow for small c
        log = np.log(rng.standard_gamma(concentration + 1, shape))
        log += np.log1p(-rng.random(shape)) / concentration
        if layer.mask is not None:
            log = np.where(layer.mask, log, -np.inf)
        weight = np.exp(log - log.max(axis=1, keepdims=True))
        out.append(weight / weight.sum(axis=1, keepdims=True))
    return out


def uniform_policy(model: DecisionGraph | Any) -> list[FloatArray]:
    """Return the policy tables [O_t, A_t] that are uniform over the allowed actions.

    >>> uniform_policy(random_bandit(0, actions=(2,)))[0].tolist()
    [[0.5, 0.5]]
    """
    graph = model if isinstance(model, DecisionGraph) else model.graph()
    out = []
    for layer in graph.layers:
        weight = np.ones((layer.observations, layer.actions))
        if layer.mask is not None:
            weight *= layer.mask
        out.append(weight / weight.sum(axis=1, keepdims=True))
    return out


def _rewards(rng: np.random.Generator, family: str, shape: tuple[int, ...]) -> Any:
    if family not in REWARDS:
        fail(f"reward = {family!r}", f"should be one of {', '.join(REWARDS)}")
    atoms = {"distribution": 2 * _ATOMS, "bernoulli": 4}.get(family, 1)
    require_array_fits((*shape, atoms), f"rewards of shape {shape}")
    if family == "normal":
        return rng.standard_normal(shape)
    if family == "uniform":
        return rng.random(shape)
    if family == "binary":
        return rng.integers(0, 2, shape).astype(np.float64)
    if family == "grid":
        return rng.integers(0, 5, shape) / 4
    if family == "bernoulli":
        win = rng.random(shape)
        values = np.broadcast_to(np.array([0.0, 1.0]), (*shape, 2)).copy()
        return {"values": values, "probs": np.stack([1 - win, win], axis=-1)}
    values = rng.standard_normal((*shape, _ATOMS))
    return {"values": values, "probs": rng.dirichlet(np.ones(_ATOMS), size=shape)}


def _silence(rewards: Any, first: int) -> None:
    """Set the rewards of the states from `first` on to 0; the arrays are our own."""
    if isinstance(rewards, dict):
        values: NDArray[np.float64] = rewards["values"]
        values[..., first:, :, :] = 0.0
    else:
        rewards[..., first:, :] = 0.0
