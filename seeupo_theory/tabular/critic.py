r"""A tabular learnt critic for GAE: one value a policy row, regressed on what the policy earns.

.. math:: \hat V \leftarrow \hat V + \kappa\,(V^\pi_{\text{row}} - \hat V)

in exact expectation (`expected_targets`: the visitation-weighted mean of the reward to go over the
nodes that share a row), or towards the mean sampled reward to go (`sampled_targets`).  κ = 1 in
exact expectation is the exact critic of the previous policy.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from seeupo_theory.tabular.dynamics import backup, leaf_mean, probabilities, reach
from seeupo_theory.tabular.lowering import Lowered
from seeupo_theory.tabular.policies import Tables
from seeupo_theory.tabular.sampling import Batch

__all__ = ["expected_targets", "fit", "sampled_targets", "zeros"]

Targets = list[tuple[Array, Array]]


def zeros(tables: Tables) -> Tables:
    """A critic that knows nothing: T arrays [O_t]."""
    return tuple(jnp.zeros(table.shape[0]) for table in tables)


def _rows(index: Array | None, weight: Array, total: Array, rows: int) -> tuple[Array, Array]:
    if index is None:
        return total, weight
    sums = (jax.ops.segment_sum(x, index, num_segments=rows) for x in (total, weight))
    total, weight = sums
    return jnp.where(weight > 0, total / jnp.where(weight > 0, weight, 1.0), 0.0), weight


def expected_targets(lowered: Lowered, tables: Tables, discount: float) -> Targets:
    """(target [O_t], visitation [O_t]) of every turn."""
    probs = probabilities(lowered, tables)
    states, _ = backup(lowered, probs, leaf_mean(lowered, lowered.leaf_values))
    visits = reach(lowered, probs)
    out = []
    for t, (layer, table) in enumerate(zip(lowered.layers, tables, strict=True)):
        paid = 0.0 if lowered.node_return is None else lowered.node_return[t]
        to_go = (states[t] - paid) / discount**t
        if layer.observation is None:
            out.append((to_go, visits[t]))
        else:
            rows = table.shape[0]
            out.append(_rows(layer.observation, visits[t], visits[t] * to_go, rows))
    return out


def sampled_targets(lowered: Lowered, tables: Tables, batch: Batch, discount: float) -> Targets:
    """Mean sampled reward to go of every row, and how often the row was seen."""
    out = []
    for t, table in enumerate(tables):
        paid = 0.0 if lowered.node_return is None else lowered.node_return[t][batch.node[t]]
        to_go = (batch.returns - paid) / discount**t
        seen = batch.active[t].astype(float)
        out.append(_rows(batch.rows[t], seen, seen * to_go, table.shape[0]))
    return out


def fit(critic: Tables, targets: Targets, rate: float | Array) -> Tables:
    """Move every visited row towards its target."""
    return tuple(
        jnp.where(weight > 0, v + rate * (target - v), v)
        for v, (target, weight) in zip(critic, targets, strict=True)
    )
