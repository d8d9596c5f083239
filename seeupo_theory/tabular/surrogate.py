r"""The exact expected surrogate of one turn, as weights on a policy table.

For a surrogate :math:`f(\rho, A)` that is positively homogeneous in the advantage,

.. math::
   \sum_\tau \pi_k(\tau)\, E[f(\rho_t, M)] =
   \sum_{o, a} W^+_t(o, a)\, f(\rho_t, 1) + W^-_t(o, a)\, f(\rho_t, -1),

where :math:`W^\pm_t(o, a)` collects the probability of reaching (o, a) under the sampling policy
times the running factor of the turns already updated times :math:`E[\hat A^\pm]`.  Computing W
costs one pass over the problem; after that, an inner step touches one table only.

Two routes give the same W: `Sweeps` (works on merged graphs, needs a factor that is a product of
turn factors) and `PathSums` (one entry a history; any factor, and advantages that differ by turn).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from seeupo_theory.rules import factor as factor_rule
from seeupo_theory.rules.advantages import gae
from seeupo_theory.rules.kl import kl_penalty
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.tabular.dynamics import (
    active_weight,
    at_nodes,
    at_rows,
    backup,
    joint,
    leaf_mean,
    path_log_prob,
    probabilities,
    pull,
    reach,
)
from seeupo_theory.tabular.expectation import Law, Parts, expected_parts
from seeupo_theory.tabular.lowering import Lowered

__all__ = [
    "PathSums",
    "Sweeps",
    "Weights",
    "gae_leaves",
    "leaf_parts",
    "local_advantage",
    "needs_paths",
    "row_surrogate",
    "value",
]

Tables = Sequence[Array]


class Weights(NamedTuple):
    """Signed weights of one turn's table, each [O_t, A_t]; `visit` is the sampling measure."""

    positive: Array
    negative: Array
    visit: Array


def needs_paths(algorithm: Algorithm) -> bool:
    """Whether the algorithm can only be evaluated with one leaf a history."""
    return (
        algorithm.estimator == "gae"
        or algorithm.product_clip is not None
        or algorithm.credit == "trajectory"
    )


def value(lowered: Lowered, tables: Tables) -> Array:
    """Expected return J."""
    mean = leaf_mean(lowered, lowered.leaf_values)
    values, _ = backup(lowered, probabilities(lowered, tables), mean)
    return jnp.sum(lowered.context_probs * values[0])


def leaf_parts(
    lowered: Lowered, tables: Tables, law: Law, key: Array | None
) -> tuple[Array, Array, Parts]:
    """E[Â⁺] and E[Â⁻] at the leaves, each [N], and the parts [C, S] they come from."""
    contexts, width = lowered.support.shape
    conditional = lowered._replace(context_probs=jnp.ones(contexts))
    leaf_prob = reach(conditional, probabilities(lowered, tables))[-1]
    column = lowered.leaf_context[:, None] * width + lowered.support_index
    probs = jax.ops.segment_sum(
        jnp.reshape(leaf_prob[:, None] * lowered.leaf_probs, (-1,)),
        jnp.reshape(column, (-1,)),
        num_segments=contexts * width,
    ).reshape(contexts, width)
    parts = expected_parts(law, lowered.context_probs, lowered.support, probs, key)
    positive = leaf_mean(lowered, parts.positive.reshape(-1)[column])
    negative = leaf_mean(lowered, parts.negative.reshape(-1)[column])
    return positive, negative, parts


def local_advantage(
    lowered: Lowered, tables: Tables, turn: int, *, uniform_visit: bool = False
) -> Weights:
    """True advantage A^π of one turn, split by sign and weighted by visitation.

    With `uniform_visit` every node counts 1 instead of how often it is visited.
    """
    probs = probabilities(lowered, tables)
    mean = leaf_mean(lowered, lowered.leaf_values)
    values, actions = backup(lowered, probs, mean)
    layer = lowered.layers[turn]
    flow = jnp.ones_like(values[turn]) if uniform_visit else reach(lowered, probs)[turn]
    visit = active_weight(layer, flow[:, None] * probs[turn])
    advantage = actions[turn] - values[turn][:, None]
    rows = tables[turn].shape[0]
    return Weights(
        at_rows(layer, visit * jnp.maximum(advantage, 0.0), rows),
        at_rows(layer, visit * jnp.maximum(-advantage, 0.0), rows),
        at_rows(layer, visit, rows),
    )


class Sweeps:
    """Weights by one backward and one forward sweep (any graph)."""

    def __init__(self, lowered: Lowered, tables: Tables, positive: Array, negative: Array):
        self.lowered = lowered
        self.rows = [table.shape[0] for table in tables]
        self.policy = probabilities(lowered, tables)
        self.leaf = (positive, negative)
        self.visits = reach(lowered, self.policy)
        self.factors = [jnp.ones_like(p) for p in self.policy]

    def weights(self, turn: int) -> Weights:
        """Signed weights of a turn, given the factors recorded so far."""
        weighted = [p * f for p, f in zip(self.policy, self.factors, strict=True)]
        layer, policy = self.lowered.layers[turn], self.policy[turn]
        flow = reach(self.lowered, weighted)[turn]
        out = []
        for leaf in self.leaf:
            later = leaf
            for s in range(self.lowered.turns - 1, turn, -1):
                shape = weighted[s].shape
                later = jnp.sum(weighted[s] * pull(self.lowered.layers[s], later, shape), axis=1)
            weight = flow[:, None] * policy * pull(layer, later, policy.shape)
            out.append(at_rows(layer, active_weight(layer, weight), self.rows[turn]))
        visit = active_weight(layer, self.visits[turn][:, None] * policy)
        return Weights(out[0], out[1], at_rows(layer, visit, self.rows[turn]))

    def advance(self, turn: int, new: Array, old: Array, algorithm: Algorithm) -> None:
        """Record the factor of an updated turn (Eq. 8), from its tables after and before."""
        layer = self.lowered.layers[turn]
        new, old = at_nodes(layer, _with_tokens(new)), at_nodes(layer, _with_tokens(old))
        allowed = jnp.isfinite(old)
        active = None if layer.active is None else layer.active[:, None]
        self.factors[turn] = factor_rule.advance(
            jnp.ones(new.shape[:2]),
            new,
            old,
            allowed,
            active=active,
            level=_factor_level(algorithm),
            factor_clip=algorithm.factor_clip,
        )


class PathSums:
    """Weights by summing over histories (trees only); leaf parts may differ by turn."""

    def __init__(
        self, lowered: Lowered, tables: Tables, positive: Sequence[Array], negative: Sequence[Array]
    ):
        assert lowered.paths is not None
        self.lowered = lowered
        self.tables = tables
        log_prob = sum(joint_path(lowered, tables, t) for t in range(lowered.turns))
        self.leaf_prob = lowered.paths.environment_prob * jnp.exp(log_prob)
        self.positive, self.negative = positive, negative
        self.factor = jnp.ones_like(self.leaf_prob)

    def weights(self, turn: int) -> Weights:
        """Signed weights of a turn, given the running factor recorded so far."""
        assert self.lowered.paths is not None
        layer, step = self.lowered.layers[turn], self.lowered.paths.step[turn]
        rows, actions = self.tables[turn].shape[:2]
        nodes = rows if layer.observation is None else layer.observation.shape[0]

        def collect(leaf: Array) -> Array:
            flat = jax.ops.segment_sum(leaf, step, num_segments=nodes * actions)
            weight = active_weight(layer, jnp.reshape(flat, (nodes, actions)))
            return at_rows(layer, weight, rows)

        mass = self.leaf_prob * self.factor
        return Weights(
            collect(mass * self.positive[turn]),
            collect(mass * self.negative[turn]),
            collect(self.leaf_prob),
        )

    def advance(self, turn: int, new: Array, old: Array, algorithm: Algorithm) -> None:
        """Multiply the running factor of every history (Eq. 8)."""
        tables = list(self.tables)
        paths = []
        for table in (new, old):
            tables[turn] = _with_tokens(table)
            paths.append(path_log_prob(self.lowered, tables, turn))
        self.factor = factor_rule.advance(
            self.factor,
            paths[0],
            paths[1],
            jnp.isfinite(paths[1]),
            level=_factor_level(algorithm),
            factor_clip=algorithm.factor_clip,
            product_clip=algorithm.product_clip,
        )


def joint_path(lowered: Lowered, tables: Tables, turn: int) -> Array:
    """Log-probability of a whole turn's action along each history, [N]."""
    path = path_log_prob(lowered, tables, turn)
    return jnp.sum(path, axis=-1) if path.ndim == 2 else path


def _with_tokens(table: Array) -> Array:
    return table if table.ndim == 3 else table[..., None]


def _factor_level(algorithm: Algorithm) -> str:
    return "sequence" if algorithm.level == "token" else algorithm.level


def gae_leaves(
    lowered: Lowered, tables: Tables, algorithm: Algorithm, discount: float, critic: Tables | None
) -> tuple[list[Array], list[Array]]:
    """E[Â_t⁺] and E[Â_t⁻] of GAE(γ, λ) at the leaves, T arrays [N] each.

    `critic` holds T value tables [O_t] (expected discounted reward to go); None means exact.
    """
    assert lowered.paths is not None
    turns = lowered.turns
    nodes = [step // table.shape[1] for step, table in zip(lowered.paths.step, tables, strict=True)]
    states, _ = backup(
        lowered, probabilities(lowered, tables), leaf_mean(lowered, lowered.leaf_values)
    )
    values = []
    for t, (layer, node) in enumerate(zip(lowered.layers, nodes, strict=True)):
        if critic is not None:
            values.append(at_nodes(layer, critic[t])[node])
        elif lowered.node_return is None:
            values.append(states[t][node])
        else:
            values.append((states[t] - lowered.node_return[t])[node] / discount**t)
    advantage = turn_advantages(
        lowered, algorithm, discount, nodes, lowered.leaf_values, jnp.stack(values, axis=-1)
    )
    limit = algorithm.advantage_clip
    if limit is not None:
        advantage = jnp.clip(advantage, -limit, limit)
    positive = [leaf_mean(lowered, jnp.maximum(advantage[..., t], 0.0)) for t in range(turns)]
    negative = [leaf_mean(lowered, jnp.maximum(-advantage[..., t], 0.0)) for t in range(turns)]
    return positive, negative


def turn_advantages(
    lowered: Lowered,
    algorithm: Algorithm,
    discount: float,
    nodes: Sequence[Array],
    returns: Array,
    values: Array,
) -> Array:
    """GAE of every turn, [R, K, T], for histories through `nodes` (T arrays [R]).

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
    return gae(rewards, spread, discount=discount, lam=algorithm.gae_lambda)


def row_surrogate(
    algorithm: Algorithm, new: Array, old: Array, weights: Weights, reference: Array | None = None
) -> Array:
    """Expected surrogate of every row of a turn's table, [O_t].

    Args:
        algorithm: objective, level and KL coefficient.
        new, old: candidate and denominator tables, [O, A] or [O, A, L].
        weights: signed weights [O, A].
        reference: table of the KL penalty's reference policy.
    """
    allowed = jnp.isfinite(old)
    new_ok = jnp.where(allowed, new, 0.0)
    old_ok = jnp.where(allowed, old, 0.0)
    positive, negative, visit = weights
    if algorithm.level == "token" and new.ndim == 3:
        positive, negative = positive[..., None], negative[..., None]
    elif new.ndim == 3:
        collapse = jnp.mean if algorithm.level == "length-normalised" else jnp.sum
        new_ok, old_ok = collapse(new_ok, axis=-1), collapse(old_ok, axis=-1)
    one = jnp.ones_like(new_ok)
    objective = algorithm.objective_rule()
    total = objective(new_ok, old_ok, one, positive * one)
    total = total + objective(new_ok, old_ok, -one, negative * one)
    out = jnp.sum(total.reshape(total.shape[0], -1), axis=-1)
    if algorithm.kl_coef and reference is not None:
        usable = jnp.isfinite(joint(reference)) & jnp.isfinite(joint(old))
        penalty = kl_penalty(
            jnp.where(usable, joint(new), 0.0),
            jnp.where(usable, joint(reference), 0.0),
            algorithm.kl_kind,
        )
        out = out - algorithm.kl_coef * jnp.sum(visit * penalty, axis=-1)
    return out
