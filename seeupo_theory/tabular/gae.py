r"""GAE(γ, λ) in exact expectation: one advantage a turn and history.

The total return of a history is all that a leaf stores; the reward of turn t is the rise of the
return paid so far, over :math:`\gamma^t`.  Advantages are those of the turn's own clock, as PPO
computes them: the policy gradient of J would weight turn t by :math:`\gamma^t` (the discounted
update is not a gradient; Nota and Thomas 2020).

Shapes: T turns, N leaves or histories, N_t nodes, O_t rows, K reward atoms.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array

from seeupo_theory.rules.advantages import gae
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.tabular.dynamics import at_nodes, backup, leaf_mean, probabilities
from seeupo_theory.tabular.lowering import Lowered
from seeupo_theory.tabular.policies import Tables

__all__ = ["critic_values", "gae_leaves", "turn_advantages"]


def critic_values(
    lowered: Lowered,
    tables: Tables,
    discount: float,
    critic: Tables | None,
    nodes: Sequence[Array],
) -> Array:
    """Value before each turn at `nodes` (T arrays [R]), [R, T]; None means the exact critic."""
    if critic is not None:
        rows = zip(lowered.layers, critic, nodes, strict=True)
        return jnp.stack([at_nodes(layer, v)[node] for layer, v, node in rows], axis=-1)
    leaf = leaf_mean(lowered, lowered.leaf_values)
    states, _ = backup(lowered, probabilities(lowered, tables), leaf)
    paid = lowered.node_return or [jnp.zeros(())] * lowered.turns
    to_go = [(v - p) / discount**t for t, (v, p) in enumerate(zip(states, paid, strict=True))]
    return jnp.stack([v[node] for v, node in zip(to_go, nodes, strict=True)], axis=-1)


def gae_leaves(
    lowered: Lowered,
    tables: Tables,
    algorithm: Algorithm,
    discount: float,
    critic: Tables | None,
) -> tuple[list[Array], list[Array]]:
    """E[Â_t⁺] and E[Â_t⁻] of GAE(γ, λ) at the leaves, T arrays [N] each.

    `critic` holds T value tables [O_t] (expected discounted reward to go); None means exact.
    """
    assert lowered.paths is not None
    nodes = [step // table.shape[1] for step, table in zip(lowered.paths.step, tables, strict=True)]
    values = critic_values(lowered, tables, discount, critic, nodes)
    advantage = turn_advantages(lowered, algorithm, discount, nodes, lowered.leaf_values, values)
    turns = range(lowered.turns)
    positive = [leaf_mean(lowered, jnp.maximum(advantage[..., t], 0.0)) for t in turns]
    negative = [leaf_mean(lowered, jnp.maximum(-advantage[..., t], 0.0)) for t in turns]
    return positive, negative


def turn_advantages(
    lowered: Lowered,
    algorithm: Algorithm,
    discount: float,
    nodes: Sequence[Array],
    returns: Array,
    values: Array,
) -> Array:
    """GAE of every turn, [R, K, T], for histories through `nodes` (T arrays [R]); clamped if asked.

    Args:
        returns: [R, K] total return; values: [R, T] critic before each turn.
    """
    turns = lowered.turns
    if lowered.node_return is None:
        rewards = jnp.zeros((*returns.shape, turns)).at[..., -1].set(returns)
    else:
        before = [lowered.node_return[t][nodes[t]] for t in range(turns)]
        collected = jnp.broadcast_to(
            jnp.stack(before, axis=-1)[:, None, :], (*returns.shape, turns)
        )
        total = jnp.concatenate([collected, returns[..., None]], axis=-1)
        rewards = jnp.diff(total, axis=-1) / discount ** jnp.arange(turns)
    ends = jnp.concatenate([values, jnp.zeros((values.shape[0], 1))], axis=-1)
    spread = jnp.broadcast_to(ends[:, None, :], (*returns.shape, turns + 1))
    advantage = gae(rewards, spread, discount=discount, lam=algorithm.gae_lambda)
    limit = algorithm.advantage_clip
    return advantage if limit is None else jnp.clip(advantage, -limit, limit)
