r"""Value and policy gradient of a sequential bandit, as fast as memory allows.

With independent softmax tables, one row a history h, everything is two sweeps over the histories:

.. math::
    d_1 = \beta, \quad d_{t+1}(h a) = d_t(h)\, \pi_t(a|h), \qquad
    V_{T+1} = r, \quad V_t(h) = \sum_a \pi_t(a|h)\, V_{t+1}(h a),

then :math:`J = \sum_c \beta_c V_1(c)` and, by the policy-gradient theorem (Sutton et al., 2000),

.. math:: \partial J / \partial \theta_t(h, a) = d_t(h)\, \pi_t(a|h)\, (V_{t+1}(h a) - V_t(h)).

Three choices make this several times faster than differentiating the recursion:

* the gradient is written down, so no intermediate is stored for a backward pass;
* π is never formed: weights :math:`e = \exp(\theta - \max\theta)` and their row sums are enough;
* a sum over a short last axis is written as a sum of columns, which vectorises over histories.

Any axes behind the action axis are a batch.  With the batch *last*, thousands of small problems
vectorise as well as one large one (`seeupo_theory.tabular.kernels_seeds`).  No sum crosses histories or batch
members before the final one over contexts, so results do not depend on the number of threads.

Shapes: C contexts, T turns, A_t actions, H_t = C·A_1···A_{t-1} histories (row-major),
N = C·A_1···A_T leaves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from operator import add

import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from seeupo_theory.tabular.kernels_checks import checked, diagnose

__all__ = ["policy_gradient", "policy_value", "value", "value_and_gradient"]

COLUMNS = 32
"""Most actions for which a row sum is unrolled; beyond, compiling takes longer than it saves."""


def _row_sum(x: Array, y: Array | None = None) -> Array:
    """Σ_a x[h, a] y[h, a] over axis 1, in the order of the actions: [H, A, ...] → [H, ...]."""
    width = x.shape[1]
    if width > COLUMNS:
        return jnp.sum(x if y is None else x * y, axis=1)
    return reduce(add, (x[:, a] if y is None else x[:, a] * y[:, a] for a in range(width)))


def _weights(logits: Array) -> tuple[Array, Array]:
    """Unnormalised policy [H, A, ...] (the largest weight of a row is 1) and its row sums."""
    weight = jnp.exp(logits - jnp.max(logits, axis=1, keepdims=True))
    return weight, _row_sum(weight)


def _as_table(values: Array, like: Array) -> Array:
    """Values of the next turn's histories [H·A, ...] as a table [H, A, ...]."""
    return jnp.reshape(values, like.shape[:2] + values.shape[1:])


def policy_value(rewards: Array, logits: Sequence[Array], context_probs: Array) -> Array:
    """J for use inside traced code; arguments as in `policy_gradient`."""
    values = rewards
    for table in reversed(logits):
        weight, total = _weights(table)
        values = _row_sum(weight, _as_table(values, table)) / total
    return jnp.sum(context_probs * values, axis=0)


def policy_gradient(
    rewards: Array, logits: Sequence[Array], context_probs: Array
) -> tuple[Array, list[Array]]:
    r"""J and ∂J/∂θ for use inside traced code (jit, vmap, scan); nothing is checked.

    Args:
        rewards: [N, ...] mean rewards of the leaves.
        logits: T tables [H_t, A_t, ...]; the trailing batch axes broadcast with those of rewards.
        context_probs: [C, ...].

    Returns:
        J of the batch shape, and T gradients shaped like the logits.
    """
    visits, weights, scales, totals = context_probs, [], [], []
    for t, table in enumerate(logits):
        weight, total = _weights(table)
        scale = visits / total
        if t + 1 < len(logits):
            visits = jnp.reshape(scale[:, None] * weight, (-1, *weight.shape[2:]))
        weights.append(weight)
        totals.append(total)
        scales.append(scale)
    values, gradients = rewards, []
    for weight, total, scale in zip(weights[::-1], totals[::-1], scales[::-1], strict=True):
        action_values = _as_table(values, weight)
        values = _row_sum(weight, action_values) / total
        gradients.append(weight * (action_values - values[:, None]) * scale[:, None])
    return jnp.sum(context_probs * values, axis=0), gradients[::-1]


@jax.jit
def _policy_value(rewards: Array, logits: list[Array], context_probs: Array) -> Array:
    return policy_value(jnp.reshape(rewards, (-1,)), logits, context_probs)


@jax.jit
def _policy_gradient(
    rewards: Array, logits: list[Array], context_probs: Array
) -> tuple[Array, list[Array]]:
    return policy_gradient(jnp.reshape(rewards, (-1,)), logits, context_probs)


def value(
    rewards: ArrayLike, logits: Sequence[ArrayLike], context_probs: ArrayLike | None = None
) -> float:
    r"""Exact expected reward of a softmax policy, :math:`J = \sum_c \beta_c V_1(c)`.

    Arguments and errors as `value_and_gradient`.

    >>> round(value([[0.0, 1.0]], [[[0.0, 1.0]]]), 6)
    0.731059
    """
    means, tables, probs = checked(rewards, logits, context_probs)
    result = float(_policy_value(means, tables, probs))
    if not math.isfinite(result):
        diagnose(means, tables, result)
    return result


def value_and_gradient(
    rewards: ArrayLike, logits: Sequence[ArrayLike], context_probs: ArrayLike | None = None
) -> tuple[float, list[Array]]:
    r"""J and :math:`\partial J / \partial \theta_t = d_t\, \pi_t\, (Q_t - V_t)`, exactly.

    JAX arrays are used where they are; NumPy arrays are copied once.

    Args:
        rewards: [C, A_1, ..., A_T] mean rewards.
        logits: T tables [H_t, A_t]; -inf forbids an action.
        context_probs: [C]; uniform by default.

    Returns:
        J, and T gradients [H_t, A_t].

    Raises:
        ValueError: shapes that do not fit; context_probs that are no probabilities; NaN or
            infinite rewards; NaN or +inf logits, or a history without an allowed action.

    >>> j, (gradient,) = value_and_gradient([[0.0, 1.0]], [[[0.0, 0.0]]])
    >>> j, gradient.tolist()
    (0.5, [[-0.25, 0.25]])
    """
    means, tables, probs = checked(rewards, logits, context_probs)
    array, gradients = _policy_gradient(means, tables, probs)
    result = float(array)
    # Every value enters J with a weight, and 0 · NaN = 0 · inf = NaN: J is finite only if all are.
    if not math.isfinite(result):
        diagnose(means, tables, result)
    return result, gradients
