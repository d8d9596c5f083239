r"""Advantages in infinite groups and infinite batches: statistics become constants.

With rewards s of probability p in context c, mean :math:`m_c` and variance :math:`\sigma_c^2`,

* an infinite group centres by :math:`m_c` and divides by :math:`\sigma_c`;
* an infinite batch of *finite* groups has mean 0 and variance
  :math:`\sum_c \beta_c \sigma_c^2 (1 - 1/G)` after centring by the group's mean, and
  :math:`\sum_c \beta_c \sigma_c^2\, G/(G-1)` after centring by the mean of the others.

Deviations are taken from the least reward first: equal rewards give advantages of exactly 0, and a
standard deviation of 0 gives 0 for every `std_eps`, as in `seeupo_theory.rules.advantages`.

Shapes: C contexts, S distinct rewards a context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from seeupo_theory.rules.advantages import Estimator, grae
from seeupo_theory.rules.presets import Algorithm

__all__ = ["GroupRule", "Parts", "infinite_batch", "infinite_group", "linear_mean", "split"]

GroupRule = Callable[[Array, Array, Array], Array]
"""(share of each context in the batch, support, probs) → advantages [C, S]."""


class Parts(NamedTuple):
    """Conditional expectations given context and own reward, each [C, S]."""

    positive: Array  # E[Â⁺]
    negative: Array  # E[Â⁻], non-negative
    standard_error: Array  # of E[Â], at least that of either part; zero where exact

    @property
    def mean(self) -> Array:
        """E[Â | context, own reward]."""
        return self.positive - self.negative


def split(advantage: Array) -> Parts:
    """Parts of an advantage that is a constant given context and own reward."""
    zero = jnp.zeros_like(advantage)
    return Parts(jnp.maximum(advantage, zero), jnp.maximum(-advantage, zero), zero)


def _centred(values: Array, weight: Array, axis: int | None) -> tuple[Array, Array]:
    """(values − mean, mean − least value) under weights; exactly 0 where all values are equal."""
    above = values - jnp.min(values, axis=axis, keepdims=True)
    mean = jnp.sum(weight * above, axis=axis, keepdims=True)
    return above - mean, mean


def _divide(x: Array, sigma: Array, eps: float) -> Array:
    return jnp.where(sigma > 0, x / (jnp.where(sigma > 0, sigma, 1.0) + eps), 0.0)


def _clamp(x: Array, limit: float | None) -> Array:
    return x if limit is None else jnp.clip(x, -limit, limit)


def _deviation(centred: Array, weight: Array, axis: int | None) -> Array:
    size = jnp.max(jnp.abs(centred), axis=axis, keepdims=True)  # its square may overflow
    unit = centred / jnp.where(size > 0, size, 1.0)
    return size * jnp.sqrt(jnp.sum(weight * unit**2, axis=axis, keepdims=True))


def infinite_group(a: Algorithm, share: Array, support: Array, probs: Array) -> Array:
    """Advantages [C, S] of infinite groups in a batch where context c is a `share` of all groups.

    The share is that of the population in an infinite batch, and a count over B in a finite one.
    """
    own, _ = _centred(support, probs, 1)
    weight = share[:, None] * probs
    if a.baseline in ("mean", "loo"):
        out = own
    elif a.baseline == "batch":
        out, _ = _centred(support, weight, None)
    else:
        out = support
    if a.normalise == "group":
        out = _divide(out, _deviation(own, probs, 1), a.std_eps)
    elif a.normalise == "batch":
        if a.baseline in ("batch", "none"):
            out, _ = _centred(support, weight, None)
        out = _divide(out, _deviation(out, weight, None), a.std_eps)
    return _clamp(out, a.advantage_clip)


def infinite_batch(
    a: Algorithm, size: int, context_probs: Array, support: Array, probs: Array
) -> Estimator:
    """The estimator of finite groups in an infinite batch, [..., B, G] → [..., B, G]."""
    weight = context_probs[:, None] * probs
    overall, above = _centred(support, weight, None)
    above, lowest = jnp.reshape(above, ()), jnp.min(support)
    if a.baseline in ("mean", "loo"):
        own, _ = _centred(support, probs, 1)
        spread = _deviation(own, weight, None)
        factor = 1 - 1 / size if a.baseline == "mean" else (size / (size - 1) if size > 1 else 0.0)
        sigma = jnp.reshape(spread, ()) * factor**0.5
    else:
        sigma = jnp.reshape(_deviation(overall, weight, None), ())

    def estimator(returns: Array) -> Array:
        if a.baseline in ("mean", "loo"):
            x = grae(returns, baseline=a.baseline)
        elif a.baseline == "batch" or a.normalise == "batch":
            x = (returns - lowest) - above
        else:
            x = returns
        if a.normalise == "batch":
            x = _divide(x, sigma, a.std_eps)
        elif a.normalise == "group":
            x = grae(x, baseline="none", normalise="group", std_eps=a.std_eps)
        return _clamp(x, a.advantage_clip)

    return estimator


def linear_mean(a: Algorithm, size: int, support: Array, probs: Array) -> Array:
    """E[Â | context, own reward], [C, S], without normalisation: (1 − 1/G)(s − m) for the mean."""
    if a.baseline == "none":
        return support
    own, _ = _centred(support, probs, 1)
    scale = 1.0 - 1.0 / size if a.baseline == "mean" else float(size > 1)
    return scale * own
