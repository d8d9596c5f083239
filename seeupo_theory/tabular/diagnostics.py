r"""Figures that describe a policy or a step, none of which the algorithms use.

Both are those of whole trajectories: by the chain rule the entropy of the action choices, and the
divergence of two policies' trajectory laws (the environment's probabilities cancel), are sums over
turns, weighted by how often a node is visited,

.. math::
   H(\pi) = \sum_t \sum_n d_t(n) H(\pi_t(\cdot | n)), \quad
   KL(P_\pi \| P_{\pi'}) = \sum_t \sum_n d_t(n) KL(\pi_t(\cdot | n) \| \pi'_t(\cdot | n)).

No-op turns count 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array

from seeupo_theory.rules.kl import kl_divergence
from seeupo_theory.tabular.dynamics import at_nodes, joint, probabilities, reach
from seeupo_theory.tabular.lowering import Lowered

__all__ = ["divergence", "entropy"]

Tables = Sequence[Array]


def _by_visits(lowered: Lowered, tables: Tables, rows: Sequence[Array]) -> Array:
    """Sum over turns of row figures [O_t], weighted by the visits of acting nodes."""
    visits = reach(lowered, probabilities(lowered, tables))
    total = jnp.zeros(())
    for layer, flow, row in zip(lowered.layers, visits, rows, strict=False):
        acting = flow if layer.active is None else jnp.where(layer.active, flow, 0.0)
        figure = at_nodes(layer, row)
        total += jnp.sum(jnp.where(acting > 0, acting * figure, 0.0))
    return total


def entropy(lowered: Lowered, tables: Tables) -> Array:
    """Entropy of a trajectory's actions, in nats."""
    rows = []
    for table in map(joint, tables):
        taken = jnp.isfinite(table)
        rows.append(-jnp.sum(jnp.where(taken, jnp.exp(table) * table, 0.0), axis=1))
    return _by_visits(lowered, tables, rows)


def divergence(lowered: Lowered, tables: Tables, other: Tables) -> Array:
    """KL(P_tables ‖ P_other) of the trajectory laws, in nats."""
    rows = [kl_divergence(joint(p), joint(q)) for p, q in zip(tables, other, strict=True)]
    return _by_visits(lowered, tables, rows)
