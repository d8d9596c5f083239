r"""Signed weights: everything that one turn's surrogate needs of the rest of the problem.

For a surrogate :math:`f(\rho, A)` that is positively homogeneous in the advantage,

.. math::
   \sum_\tau \pi_k(\tau)\, E[f(\rho_t, M)] =
   \sum_{o, a} W^+_t(o, a)\, f(\rho_t, 1) + W^-_t(o, a)\, f(\rho_t, -1),

where :math:`W^\pm_t(o, a)` collects the probability of reaching (o, a) under the sampling policy
times the running factor of the turns already updated times :math:`E[\hat A^\pm]`.  Computing W
costs one pass over the problem; after that, an inner step touches one table only.

Two routes give the same W: `Sweeps` (works on merged graphs, needs a factor that is a product of
turn factors) and `PathSums` (one entry a history; any factor, and advantages that differ by turn).
`LocalAdvantage` is `Sweeps` with the true advantage of the turn in place of Â.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from seeupo_theory.rules import factor as factor_rule
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.tabular.dynamics import (
    active_weight,
    at_nodes,
    at_rows,
    joint,
    leaf_mean,
    path_log_prob,
    probabilities,
    pull,
    reach,
)
from seeupo_theory.tabular.expectation import Law, Parts, expected_parts
from seeupo_theory.tabular.gae import gae_leaves
from seeupo_theory.tabular.lowering import Lowered

__all__ = [
    "LocalAdvantage",
    "PathSums",
    "Sweeps",
    "Weights",
    "expected_leaves",
    "joint_path",
    "leaf_parts",
    "needs_paths",
    "with_tokens",
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


def expected_leaves(
    lowered: Lowered, tables: Tables, law: Law, discount: float, key: Array | None
) -> tuple[list[Array], Array]:
    """E[Â_t] of an estimator at the leaves, T arrays [N], and its largest standard error."""
    if law.algorithm.estimator == "gae":
        parts = gae_leaves(lowered, tuple(tables), law.algorithm, discount, None)
        return [p - n for p, n in zip(*parts, strict=True)], jnp.zeros(())
    positive, negative, each = leaf_parts(lowered, tables, law, key)
    return [positive - negative] * lowered.turns, jnp.max(each.standard_error)


class Sweeps:
    """Weights by one backward and one forward sweep (any graph)."""

    def __init__(self, lowered: Lowered, tables: Tables, *leaves: Array):
        self.lowered = lowered
        self.rows = [table.shape[0] for table in tables]
        self.policy = probabilities(lowered, tables)
        self.leaves = leaves
        self.visits = reach(lowered, self.policy)
        self.weighted = list(self.policy)  # sampling policy times the factors recorded so far

    def _later(self, turn: int, leaf: Array) -> Array:
        """Leaf function summed over what follows (node, action), times the factors: [N_t, A_t]."""
        for s in range(self.lowered.turns - 1, turn, -1):
            shape = self.policy[s].shape
            leaf = jnp.sum(self.weighted[s] * pull(self.lowered.layers[s], leaf, shape), axis=1)
        return pull(self.lowered.layers[turn], leaf, self.policy[turn].shape)

    def _flow(self, turn: int) -> Array:
        """How often a node is reached, times the factors of the turns before: [N_t]."""
        return reach(self.lowered, self.weighted)[turn]

    def _collect(self, turn: int, weight: Array) -> Array:
        layer = self.lowered.layers[turn]
        return at_rows(layer, active_weight(layer, weight), self.rows[turn])

    def weights(self, turn: int) -> Weights:
        """Signed weights of a turn, given the factors recorded so far."""
        sampled = self._flow(turn)[:, None] * self.policy[turn]
        positive, negative = (
            self._collect(turn, sampled * self._later(turn, leaf)) for leaf in self.leaves
        )
        visit = self._collect(turn, self.visits[turn][:, None] * self.policy[turn])
        return Weights(positive, negative, visit)

    def advance(self, turn: int, new: Array, old: Array, algorithm: Algorithm) -> None:
        """Record the factor of an updated turn (Eq. 8), from its tables after and before."""
        layer = self.lowered.layers[turn]
        new, old = at_nodes(layer, with_tokens(new)), at_nodes(layer, with_tokens(old))
        allowed = jnp.isfinite(old)
        active = None if layer.active is None else layer.active[:, None]
        self.weighted[turn] = self.policy[turn] * factor_rule.advance(
            jnp.ones(new.shape[:2]),
            new,
            old,
            allowed,
            active=active,
            level=algorithm.factor_level,
            factor_clip=algorithm.factor_clip,
        )


class LocalAdvantage(Sweeps):
    r"""Weights by the true advantage of a turn (estimator "exact").

    :math:`A_t(n, a) = Q_t(n, a) - \sum_b \pi_k(b|n) Q_t(n, b)`, with Q the expected return when
    the turns already updated follow their new policies: their factors turn :math:`\pi_k` into it.
    The return is discounted by the model, so that A_t is γ^t times the advantage that `gae_leaves`
    estimates, and the gradient is that of J.
    """

    def __init__(self, lowered: Lowered, tables: Tables):
        super().__init__(lowered, tables, leaf_mean(lowered, lowered.leaf_values))

    def advance(self, turn: int, new: Array, old: Array, algorithm: Algorithm) -> None:
        """As `Sweeps.advance`; an ideal step may also take up an action never taken before."""
        super().advance(turn, new, old, algorithm)
        fresh = at_nodes(self.lowered.layers[turn], jnp.exp(joint(new)))
        known = self.policy[turn] > 0
        self.weighted[turn] = jnp.where(known, self.weighted[turn], fresh)

    def advantage(self, turn: int) -> Array:
        """A_t at the nodes, [N_t, A_t]."""
        actions = self._later(turn, self.leaves[0])
        return actions - jnp.sum(self.policy[turn] * actions, axis=1, keepdims=True)

    def weights(self, turn: int) -> Weights:
        """Signed weights of a turn, given the factors recorded so far."""
        advantage, sampled = self.advantage(turn), self._flow(turn)[:, None] * self.policy[turn]
        return Weights(
            self._collect(turn, sampled * jnp.maximum(advantage, 0.0)),
            self._collect(turn, sampled * jnp.maximum(-advantage, 0.0)),
            self._collect(turn, self.visits[turn][:, None] * self.policy[turn]),
        )

    def gaps(self, turn: int, *, everywhere: bool, explore: bool) -> Weights:
        """Weights for an ideal step, which may know more than samples of the policy show.

        Here `visit` counts like the other two, so that their ratio is the mean advantage of a row.

        Args:
            everywhere: nodes of rows that are never reached count 1 each.
            explore: allowed actions count alike, instead of as often as they are taken.
        """
        layer, policy, flow = self.lowered.layers[turn], self.policy[turn], self._flow(turn)
        advantage = self.advantage(turn)
        if explore:
            mask = layer.mask
            allowed = jnp.ones_like(policy) if mask is None else at_nodes(layer, 1.0 * mask)
            policy = allowed / jnp.sum(allowed, axis=1, keepdims=True)
        if everywhere:
            reached = jnp.sum(self._collect(turn, flow[:, None] * policy), axis=1) > 0
            flow = jnp.where(at_nodes(layer, reached), flow, 1.0)
        taken = flow[:, None] * policy
        return Weights(
            self._collect(turn, taken * jnp.maximum(advantage, 0.0)),
            self._collect(turn, taken * jnp.maximum(-advantage, 0.0)),
            self._collect(turn, taken),
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
            tables[turn] = with_tokens(table)
            paths.append(path_log_prob(self.lowered, tables, turn))
        self.factor = factor_rule.advance(
            self.factor,
            paths[0],
            paths[1],
            jnp.isfinite(paths[1]),
            level=algorithm.factor_level,
            factor_clip=algorithm.factor_clip,
            product_clip=algorithm.product_clip,
        )


def joint_path(lowered: Lowered, tables: Tables, turn: int) -> Array:
    """Log-probability of a whole turn's action along each history, [N]."""
    path = path_log_prob(lowered, tables, turn)
    return jnp.sum(path, axis=-1) if path.ndim == 2 else path


def with_tokens(table: Array) -> Array:
    """The table with a token axis: [O, A] becomes [O, A, 1]."""
    return table if table.ndim == 3 else table[..., None]
