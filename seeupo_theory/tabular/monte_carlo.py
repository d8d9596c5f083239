r"""Monte Carlo expectations of group estimators, where enumeration is not affordable.

The companions of a member (the rest of its group and, for batch statistics, the other groups of
its batch) are drawn n times a context, and every own reward of the context is put in front of the
same draws:

.. math:: E[\hat A^\pm \mid c, s] \approx \frac1n \sum_{i=1}^n f(s, \text{others}_i)^\pm

with standard error std / √n.  Errors of one context's own rewards are therefore dependent.

Shapes: C contexts, S distinct rewards a context, G members, B contexts a batch, n draws.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array

from seeupo_theory.rules.advantages import Estimator
from seeupo_theory.tabular.population import Parts

__all__ = ["DRAWS", "sampled_parts"]

DRAWS = 4096
"""Draws a context: a standard error of 1/64 of the advantage's standard deviation."""

MAX_NUMBERS = 4_000_000
"""Numbers held at once (32 MB); fewer draws are made of large batches, but at least 64."""


def inverse_cdf(probs: Array, uniform: Array) -> Array:
    """Index of each uniform number in [0, 1) under probabilities [S]; never one of probability 0."""
    total = jnp.cumsum(probs)
    mark = uniform * total[-1]
    found = jnp.searchsorted(total, mark, side="right")
    last = probs.shape[0] - 1 - jnp.argmax(jnp.flip(probs > 0))
    return jnp.minimum(found, last)


def sampled_parts(
    f: Estimator,
    size: int,
    batch: int,
    context_probs: Array,
    support: Array,
    probs: Array,
    key: Array,
) -> Parts:
    """Parts [C, S] of a group of `size` in a batch of `batch` contexts, from sampled companions."""
    contexts = support.shape[0]
    draws = max(64, min(DRAWS, MAX_NUMBERS // (batch * size)))

    def own_context(c: Array) -> Parts:
        key_c, key_r = jax.random.split(jax.random.fold_in(key, c))
        context = inverse_cdf(context_probs, jax.random.uniform(key_c, (draws, batch)))
        context = context.at[:, 0].set(c)
        mark = jax.random.uniform(key_r, (draws, batch, size))
        chosen = jax.vmap(jax.vmap(lambda x, u: inverse_cdf(probs[x], u)))(context, mark)
        returns = support[context[..., None], chosen]  # [n, B, G]

        def own_reward(value: Array) -> tuple[Array, Array, Array]:
            advantage = f(returns.at[:, 0, 0].set(value))[:, 0, 0]
            error = jnp.std(advantage, ddof=1) / math.sqrt(draws)
            positive, negative = jnp.maximum(advantage, 0.0), jnp.maximum(-advantage, 0.0)
            return jnp.mean(positive), jnp.mean(negative), error

        return Parts(*jax.lax.map(own_reward, support[c]))

    return jax.lax.map(own_context, jnp.arange(contexts))
