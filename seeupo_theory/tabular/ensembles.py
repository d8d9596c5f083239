"""Thousands of random bandits of one shape, updated at once.

A claim such as "every iteration improves" is tested on many instances of the same shape.  An
`Ensemble` fixes the shape and the policy family; `sample` draws `Instances` whose numbers lie on a
small grid (so that an instance can be printed, typed and certified); `iterate_all` applies one
iteration of an algorithm to all of them in one compiled program; `instance` turns one row back into
a model, a policy and the options that rebuild it.

Shapes: n instances, C contexts, T turns, N leaves, K atoms, d features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bandits.aliasing import alias
from bandits.graph import DecisionGraph
from bandits.sequential import SequentialBandit
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.tabular import policies
from seeupo_theory.tabular.evaluate import optimum
from seeupo_theory.tabular.lowering import Lowered, lower, with_rewards
from seeupo_theory.tabular.surrogate import needs_paths
from seeupo_theory.tabular.update import Outcome, Settings, iterate

__all__ = ["CHUNK", "Ensemble", "Instances", "instance", "iterate_all", "sample", "take"]

CHUNK = 64
"""Instances in one compiled batch; smaller numbers are padded, so that a shape is compiled once."""

REWARDS = ("deterministic", "random")


@dataclass(frozen=True)
class Ensemble:
    """A shape and a policy family.

    Attributes:
        actions: A_1, …, A_T.
        contexts: C.
        atoms: reward atoms a leaf, 1 for deterministic rewards.
        param: "tabular", "shared" or "log-linear".
        observe: named observation map, "full" for none.
        dimension: features of the log-linear family.
    """

    actions: tuple[int, ...]
    contexts: int = 1
    atoms: int = 1
    param: str = "tabular"
    observe: str = "full"
    dimension: int = 2

    @property
    def leaves(self) -> int:
        """Number of leaves N."""
        return self.contexts * math.prod(self.actions)


class Instances(NamedTuple):
    """n instances; θ is what the policy family takes, features only for "log-linear"."""

    context_probs: np.ndarray  # [n, C]
    leaf_values: np.ndarray  # [n, N, K]
    leaf_probs: np.ndarray  # [n, N, K]
    theta: Any  # pytree of [n, ...]
    features: tuple[np.ndarray, ...] | None  # T arrays [n, O_t, A_t, d]


@lru_cache(maxsize=64)
def base_graph(ensemble: Ensemble) -> DecisionGraph:
    """The decision graph of the shape, with all rewards 0."""
    shape = (ensemble.contexts, *ensemble.actions)
    model: Any = SequentialBandit(np.zeros(shape))
    if ensemble.observe != "full":
        model = alias(model, ensemble.observe, shared=ensemble.param == "shared")
    return model.graph()


def _simplex(
    rng: np.random.Generator, shape: tuple[int, ...], grid: int, concentration: Any = 1.0
) -> np.ndarray:
    """Positive probabilities in multiples of 1/grid, last axis summing to 1.

    `concentration` (a number, or an array of the leading axes) below 1 makes them lopsided.
    """
    width = shape[-1]
    gamma = rng.standard_gamma(np.broadcast_to(np.asarray(concentration)[..., None], shape))
    gamma = np.maximum(gamma, np.finfo(float).tiny)
    raw = gamma / gamma.sum(axis=-1, keepdims=True) * (grid - width)
    whole = np.floor(raw)
    short = np.rint(grid - width - whole.sum(axis=-1)).astype(int)
    rank = (raw - whole).argsort(axis=-1)[..., ::-1].argsort(axis=-1)
    return (whole + (rank < short[..., None]) + 1) / grid


def sample(
    ensemble: Ensemble,
    n: int,
    seed: int,
    *,
    reward: str = "random",
    reward_grid: int = 10,
    prob_grid: int = 50,
) -> Instances:
    """Draw n instances on a grid.

    Rewards are multiples of 1/reward_grid, in [0, 1] for two instances in three and in [−3, 1] for
    the third (rare disasters are what misleads a normalised advantage); probabilities multiples of
    1/prob_grid, from nearly uniform to nearly deterministic; features and θ multiples of 1/10.

    Args:
        reward: "random", or "deterministic" (all atoms of a leaf are equal).

    Raises:
        ValueError: an unknown kind of reward, or a grid too coarse for the number of actions.
    """
    if reward not in REWARDS:
        raise ValueError(f"reward is {reward!r}; expected one of {REWARDS}")
    widest = max((*ensemble.actions, ensemble.atoms, ensemble.contexts))
    if prob_grid <= widest:
        raise ValueError(f"prob_grid is {prob_grid}; expected more than {widest}")
    rng = np.random.default_rng(seed)
    graph = base_graph(ensemble)
    shape = (n, ensemble.leaves, ensemble.atoms)
    low = np.where(np.arange(n) % 3 == 0, -3 * reward_grid, 0)[:, None, None]
    values = rng.integers(low, reward_grid + 1, size=shape) / reward_grid
    if reward == "deterministic":
        values = np.repeat(values[:, :, :1], ensemble.atoms, axis=2)
    shapes = 2.0 ** rng.uniform(-3, 2, size=(n, 1))

    def simplex(size: tuple[int, ...]) -> np.ndarray:
        spread = np.broadcast_to(shapes, (n, math.prod(size[1:-1]))).reshape(size[:-1])
        return _simplex(rng, size, prob_grid, spread)

    probs = np.ones(shape) if ensemble.atoms == 1 else simplex(shape)
    contexts = _simplex(rng, (n, ensemble.contexts), prob_grid)
    if ensemble.param == "log-linear":
        features = tuple(
            np.round(
                rng.standard_normal((n, layer.observations, layer.actions, ensemble.dimension)), 1
            )
            for layer in graph.layers
        )
        theta: Any = np.round(rng.standard_normal((n, ensemble.dimension)), 1)
        return Instances(contexts, values, probs, theta, features)
    tables = [np.log(simplex((n, layer.observations, layer.actions))) for layer in graph.layers]
    if ensemble.param == "shared":
        most = max(tables, key=lambda t: t.shape[1])
        return Instances(contexts, values, probs, most, None)
    return Instances(contexts, values, probs, tuple(tables), None)


@lru_cache(maxsize=256)
def _program(
    ensemble: Ensemble,
    algorithm: Algorithm,
    group_size: float,
    contexts_per_batch: float,
    order: tuple[int, ...] | None,
) -> Any:
    graph = base_graph(ensemble)
    base: Lowered = lower(graph, paths=needs_paths(algorithm))

    def one(row: Instances, lr: Array) -> Outcome:
        lowered = with_rewards(
            base,
            jnp.asarray(row.leaf_values),
            jnp.asarray(row.leaf_probs),
            jnp.asarray(row.context_probs),
        )
        if row.features is None:
            family = policies.make(ensemble.param, graph)
        else:
            family = policies.log_linear(graph, row.features)
        settings = Settings(algorithm, family, group_size, contexts_per_batch)
        return iterate(settings, order, lowered, row.theta, lr)

    return jax.jit(jax.vmap(one, in_axes=(0, None)))


def iterate_all(
    ensemble: Ensemble,
    algorithm: Algorithm,
    instances: Instances,
    *,
    lr: float | None = None,
    order: Sequence[int] | None = None,
    group_size: float = math.inf,
    contexts_per_batch: float = math.inf,
) -> Outcome:
    """One iteration on every instance; all entries of the result have a leading axis n (NumPy).

    Args:
        order: turns in update order, 0-based; None means all at once.

    Raises:
        ValueError: the expectation would need Monte Carlo (see `expectation.plan`).
    """
    step = jnp.asarray(float(algorithm.lr if lr is None else lr))
    name = None if order is None else tuple(order)
    # an action here is one token, so the level of the ratio makes no difference; nor do names
    same = algorithm.replace(level="sequence", name="", summary="")
    program = _program(ensemble, same, group_size, contexts_per_batch, name)
    n = instances.leaf_values.shape[0]
    parts = []
    for start in range(0, n, CHUNK):
        index = np.minimum(np.arange(start, start + CHUNK), n - 1)
        kept = min(CHUNK, n - start)
        out = program(take(instances, index), step)
        parts.append(jax.tree.map(lambda x, kept=kept: np.asarray(x)[:kept], out))
    return jax.tree.map(lambda *xs: np.concatenate(xs), *parts)


def take(instances: Instances, index: Any) -> Instances:
    """The instances at `index`, in that order."""
    return jax.tree.map(lambda x: np.asarray(x)[index], instances)


def instance(
    ensemble: Ensemble, instances: Instances, i: int
) -> tuple[SequentialBandit, Any, dict[str, Any]]:
    """Instance i as (bandit, θ, options of `policies.make`)."""
    row = take(instances, i)
    shape = (ensemble.contexts, *ensemble.actions, ensemble.atoms)
    values, probs = row.leaf_values.reshape(shape), row.leaf_probs.reshape(shape)
    model = SequentialBandit({"values": values, "probs": probs}, context_probs=row.context_probs)
    options = {} if row.features is None else {"features": row.features}
    return model, row.theta, options


def best_values(ensemble: Ensemble, instances: Instances) -> np.ndarray:
    """J* of every instance, [n]."""
    return np.array(
        [
            optimum(instance(ensemble, instances, i)[0].graph()).value
            for i in range(instances.leaf_values.shape[0])
        ]
    )
