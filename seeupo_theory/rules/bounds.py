r"""Confidence bounds: what a batch of samples says about the improvement of a step.

With ρ the ratio of a whole trajectory (the product over its turns) and Â its advantage, the
trajectory-level surrogate bounds the improvement from below for every parametrisation:

.. math:: F(\theta') = E_{\pi_k}[\min(\rho \hat A, \operatorname{clip}(\rho) \hat A)]
          \le E_{\pi_k}[\rho \hat A] = c\,(J(\theta') - J(\theta_k)),

c = 1 for the leave-one-out baseline and 1 − 1/G for the mean of a group of G (``proofs/``).  So a
step is safe as soon as F ≥ 0, and this module bounds F from below by a sample of it.

**The unit is the group.**  Members of a group share a baseline and a context, so their terms are
dependent; groups are independent.  The batch must be *fresh*: drawn from π_k independently of θ'.
On the batch that θ' was fitted to, the mean is too high and no bound here is valid.

**Two bounds.**

* `student_bound`: mean − t s/√n.  Right as n grows; no finite sample is covered, and where the
  distribution has a heavy lower tail (long trajectories, hence large ρ with Â < 0) it is too
  optimistic until n is large.
* `bernstein_bound`: the empirical Bernstein inequality, for values in [low, high],

  .. math:: E[X] \ge \bar X - \sqrt{\frac{2 V \log(2/\delta)}{n}}
            - \frac{7 (high - low) \log(2/\delta)}{3 (n - 1)} ,

  valid for every n.  It needs bounded values, and F's terms are not bounded below: for Â < 0 they
  are −\|Â\| max(ρ, 1 − ε).  `bounded_terms` removes that without knowing the largest ratio.  Since
  E[ρ] = 1 is known, R(ρ − 1) may be added to a term, R ≥ \|Â\|; what is unbounded then has a
  positive coefficient, (R − Â⁻) ρ, and cutting it at a level only lowers the expectation.

Shapes: B groups (contexts, drawn independently), G members.
Sources: Maurer and Pontil 2009, Theorem 4 (empirical Bernstein); Student 1908.
"""

from __future__ import annotations

import math
from typing import Any

from seeupo_theory.rules._arrays import (
    Array,
    choice,
    floating,
    forbid,
    keep,
    like,
    namespace,
    number,
    same_shape,
)
from seeupo_theory.rules.objectives import clip

__all__ = [
    "METHODS",
    "bernstein_bound",
    "bounded_range",
    "bounded_terms",
    "improvement_bound",
    "student_bound",
    "trajectory_terms",
]

METHODS = ("bernstein", "student")


def trajectory_terms(
    log_ratio: Array, advantage: Array, *, low: float = 0.2, high: float = 0.2
) -> Array:
    r"""F's terms :math:`\min(\rho \hat A, \operatorname{clip}(\rho, 1-low, 1+high) \hat A)`.

    Args:
        log_ratio: [...] logarithm of the trajectory's ratio, summed over all its turns.
        advantage: [...] one advantage a trajectory.

    Returns:
        Terms of the same shape.

    >>> import numpy as np
    >>> trajectory_terms(np.log(np.array([1.5, 1.5])), np.array([1.0, -1.0])).round(12).tolist()
    [1.2, -1.5]
    """
    xp = namespace(log_ratio=log_ratio, advantage=advantage)
    same_shape(log_ratio=log_ratio, advantage=advantage)
    log_ratio = floating(xp, log_ratio, "log_ratio")
    return clip(log_ratio, xp.zeros_like(log_ratio), advantage, low=low, high=high)


def bounded_terms(
    log_ratio: Array,
    advantage: Array,
    bound: float,
    *,
    low: float = 0.2,
    high: float = 0.2,
    truncate: float | None = None,
) -> Array:
    r"""Terms in a known range whose expectation is at most F.

    .. math:: \hat A^+ \min(\rho, 1 + high) - \hat A^- (1 - low - \rho)^+
              + (R - \hat A^-) \min(\rho, c) - R

    Args:
        log_ratio, advantage: [...], as in `trajectory_terms`.
        bound: R, at least every \|Â\| that can occur; the range of the rewards will do.
        truncate: c; None means 1 + high, and then nothing is lost while ratios stay in the clip.

    Returns:
        Terms of the same shape, in `bounded_range`.

    Raises:
        ValueError: an advantage beyond the bound.

    >>> import numpy as np
    >>> bounded_terms(np.log(np.array([1.1, 1.1])), np.array([1.0, -1.0]), 1.0).round(12).tolist()
    [1.2, -1.0]
    """
    xp = namespace(log_ratio=log_ratio, advantage=advantage)
    same_shape(log_ratio=log_ratio, advantage=advantage)
    number(bound, "bound", 0.0)
    number(low, "low", 0.0, 1.0)
    number(high, "high", 0.0)
    level = 1.0 + high if truncate is None else number(truncate, "truncate", 0.0)
    log_ratio = floating(xp, log_ratio, "log_ratio")
    advantage = like(xp, advantage, log_ratio, "advantage")
    slack = 1.0 + 8 * float(xp.finfo(log_ratio.dtype).eps)  # advantages are rounded means
    wrong = ~(xp.abs(advantage) <= bound * slack)
    forbid(xp, wrong, advantage, "advantage", f"at most bound = {bound:g} in size")
    gain, loss = keep(xp, advantage > 0, advantage), keep(xp, advantage < 0, -advantage)

    def capped(limit: float) -> Array:
        if limit == 0.0:
            return xp.zeros_like(log_ratio)
        top = math.log(limit)
        return xp.exp(keep(xp, log_ratio < top, log_ratio, top))

    below = (1.0 - low) - capped(1.0 - low)
    spare = bound - loss
    return gain * capped(1.0 + high) - loss * below + spare * capped(level) - bound


def bounded_range(
    bound: float, *, low: float = 0.2, high: float = 0.2, truncate: float | None = None
) -> tuple[float, float]:
    r"""Smallest and largest value of `bounded_terms`: :math:`-R(2 - low)` and :math:`R(high + c)`.

    >>> bounded_range(1.0)
    (-1.8, 1.4)
    """
    number(bound, "bound", 0.0)
    level = 1.0 + high if truncate is None else number(truncate, "truncate", 0.0)
    return -bound * (2.0 - low), bound * (high + level)


def bernstein_bound(values: Array, low: float, high: float, *, confidence: float = 0.95) -> Array:
    r"""Lower confidence bound of a mean from n independent values in [low, high].

    Args:
        values: [..., n], n at least 2; independent and identically distributed along the axis.
        low, high: what every value that can occur lies between.
        confidence: 1 − δ.

    Returns:
        [...] numbers that are below the mean with at least this probability.

    Raises:
        ValueError: fewer than two values, or one outside the range.

    >>> import numpy as np
    >>> float(bernstein_bound(np.full(1000, 0.5), 0.0, 1.0).round(4))
    0.4914
    """
    xp, values, count = _sample(values, confidence)
    number(high - low, "high - low", 0.0)
    slack = 64 * float(xp.finfo(values.dtype).eps) * max(abs(low), abs(high))  # sums of a group
    wrong = ~((values >= low - slack) & (values <= high + slack))
    forbid(xp, wrong, values, "values", f"in [{low:g}, {high:g}]")
    log_term = math.log(2.0 / (1.0 - confidence))
    spread = xp.sqrt(_variance(xp, values, count) * (2.0 * log_term / count))
    return xp.mean(values, axis=-1) - spread - 7.0 * (high - low) * log_term / (3.0 * (count - 1))


def student_bound(values: Array, *, confidence: float = 0.95) -> Array:
    r"""Lower end of Student's one-sided interval, :math:`\bar X - t_{n-1} s / \sqrt n`.

    Exact for normal values, otherwise only as n grows.

    Args:
        values: [..., n], n at least 2; independent and identically distributed along the axis.
        confidence: 1 − δ.

    Returns:
        [...].

    >>> import numpy as np
    >>> float(student_bound(np.array([0.0, 1.0, 2.0])).round(4))
    -0.6859
    """
    from scipy.special import stdtrit  # array libraries have no quantiles

    xp, values, count = _sample(values, confidence)
    quantile = float(stdtrit(count - 1, confidence))
    deviation = xp.sqrt(_variance(xp, values, count))
    return xp.mean(values, axis=-1) - deviation * (quantile / math.sqrt(count))


def _sample(values: Array, confidence: float) -> tuple[Any, Array, int]:
    xp = namespace(values=values)
    values = floating(xp, values, "values")
    if values.ndim == 0 or values.shape[-1] < 2:
        raise ValueError(
            f"values has shape {tuple(values.shape)}; it should be [..., n] with n of at least 2"
        )
    number(confidence, "confidence", 0.0, 1.0, open_low=True)
    if confidence == 1.0:
        raise ValueError("confidence is 1.0; it should be less than 1")
    forbid(xp, ~xp.isfinite(values), values, "values", "finite")
    return xp, values, int(values.shape[-1])


def _variance(xp: Any, values: Array, count: int) -> Array:
    centred = values - xp.mean(values, axis=-1, keepdims=True)
    return xp.sum(centred * centred, axis=-1) / (count - 1)


def improvement_bound(
    log_ratio: Array,
    advantage: Array,
    *,
    method: str = "bernstein",
    bound: float | None = None,
    low: float = 0.2,
    high: float = 0.2,
    truncate: float | None = None,
    confidence: float = 0.95,
) -> Array:
    r"""Lower confidence bound of F from a fresh batch; the unit is the group.

    At confidence 1 − δ, F ≥ the result, and the improvement J(θ') − J(θ_k) ≥ F / c with c = 1 − 1/G
    for the group mean and 1 for leave-one-out: a positive result certifies the step.

    Args:
        log_ratio: [..., B, G] logarithm of the ratio of each trajectory.
        advantage: [..., B, G], centred by a baseline of the own group, not scaled.
        method: "bernstein" (any B) or "student" (large B).
        bound: largest \|Â\| that can occur. For "bernstein".
        truncate: see `bounded_terms`. For "bernstein".

    Returns:
        [...].

    Raises:
        ValueError: fewer than two groups, or "bernstein" without `bound`.

    >>> import numpy as np
    >>> gain = improvement_bound(np.zeros((400, 2)), np.tile([0.5, -0.5], (400, 1)), bound=1.0)
    >>> float(gain.round(4))
    -0.069
    """
    choice(method, "method", METHODS)
    xp = namespace(log_ratio=log_ratio, advantage=advantage)
    same_shape(log_ratio=log_ratio, advantage=advantage)
    if log_ratio.ndim < 2 or 0 in log_ratio.shape[-2:]:
        raise ValueError(
            f"log_ratio has shape {tuple(log_ratio.shape)}; it should be [..., groups, members]"
        )
    if method == "student":
        terms = trajectory_terms(log_ratio, advantage, low=low, high=high)
        return student_bound(xp.mean(terms, axis=-1), confidence=confidence)
    if bound is None:
        raise ValueError(
            "bound is None; method 'bernstein' needs the largest |advantage| that can occur"
        )
    terms = bounded_terms(log_ratio, advantage, bound, low=low, high=high, truncate=truncate)
    least, most = bounded_range(bound, low=low, high=high, truncate=truncate)
    return bernstein_bound(xp.mean(terms, axis=-1), least, most, confidence=confidence)
