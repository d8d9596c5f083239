r"""Ideal steps: the argmax that the theorems speak of, solved in closed form on table rows.

HAML (SeeUPO Eq. 3) asks for :math:`\arg\max_{\bar\pi} E_{\bar\pi}[A] - D(\bar\pi)`.  For a table, one
row at a time, three choices of the drift D have an exact solution:

- no drift: `greedy`, all mass on the best actions;
- :math:`D = KL(\bar\pi \| \pi)/\eta`: `mirror_step`,
  :math:`\bar\pi(a) \propto \pi(a) e^{\eta A(a)}`;
- the drift of the clipped surrogate: `clip_argmax`, a separable concave piecewise linear problem
  on the simplex, solved by water-filling.

All work on rows [..., A] and are batched over the leading axes.
"""

from __future__ import annotations

from typing import Any

import array_api_compat

from seeupo_theory.rules._arrays import (
    Array,
    as_mask,
    floating,
    forbid,
    keep,
    namespace,
    number,
    same_shape,
    truth,
)

__all__ = ["SUM_TOLERANCE", "clip_argmax", "clip_value", "greedy", "mirror_step"]

SUM_TOLERANCE = 1e-3
"""Rows of probabilities must sum to 1 within this: it tells a wrong argument from float16 noise."""


def _rows(xp: Any, prob: Array, name: str) -> Array:
    prob = floating(xp, prob, name)
    if prob.ndim == 0 or prob.shape[-1] == 0:
        raise ValueError(f"{name} has shape {tuple(prob.shape)}; it should be [..., actions]")
    forbid(xp, ~(prob >= 0), prob, name, "a probability, at least 0")
    total = xp.sum(prob, axis=-1)
    forbid(xp, xp.abs(total - 1) > SUM_TOLERANCE, total, f"the sum of {name}", "1 in every row")
    return prob


def greedy(prob_old: Array, advantage: Array, mask: Array | None = None) -> Array:
    """All mass on the actions of greatest advantage.

    Args:
        prob_old: [..., A] current probabilities; ties keep their proportions under it, and share
            evenly if it gives all of them 0.
        advantage: [..., A]; -inf excludes an action.
        mask: [..., A], non-zero on allowed actions.

    Returns:
        Probabilities [..., A].

    >>> import numpy as np
    >>> greedy(np.array([0.2, 0.2, 0.6]), np.array([1.0, 1.0, 0.0])).tolist()
    [0.5, 0.5, 0.0]
    """
    xp = namespace(prob_old=prob_old, advantage=advantage, mask=mask)
    same_shape(prob_old=prob_old, advantage=advantage)
    prob_old = _rows(xp, prob_old, "prob_old")
    advantage = floating(xp, advantage, "advantage")
    if mask is not None:
        allowed = as_mask(xp, mask, prob_old.shape)
        if truth(xp.any(~xp.any(allowed, axis=-1))):
            raise ValueError("mask forbids every action of a row; each needs at least one")
        advantage = keep(xp, allowed, advantage, -float("inf"))
    else:
        allowed = xp.ones_like(prob_old) > 0
    forbid(xp, xp.isnan(advantage), advantage, "advantage", "a number")
    best = (advantage == xp.max(advantage, axis=-1, keepdims=True)) & allowed
    share = keep(xp, best, prob_old)
    total = xp.sum(share, axis=-1, keepdims=True)
    even = xp.astype(best, prob_old.dtype)
    even = even / xp.sum(even, axis=-1, keepdims=True)
    return xp.where(total > 0, share / keep(xp, total > 0, total, 1.0), even)


def mirror_step(log_prob_old: Array, advantage: Array, step: float | Array) -> Array:
    r"""Log-probabilities of :math:`\arg\max E_{\bar\pi}[A] - KL(\bar\pi\|\pi)/\eta`.

    The solution is :math:`\log\pi + \eta A` minus its log-sum-exp; actions of probability 0 stay so.

    Shapes: log_prob_old, advantage [..., A], step η ≥ 0 a number or an array of no axes → [..., A].

    Source: Mirror Learning 2201.02373; natural policy gradient for softmax tables,
    Agarwal et al. 2021.

    >>> import numpy as np
    >>> new = mirror_step(np.log(np.array([0.5, 0.5])), np.array([1.0, 0.0]), np.log(3.0).item())
    >>> np.exp(new).round(12).tolist()
    [0.75, 0.25]
    """
    xp = namespace(log_prob_old=log_prob_old, advantage=advantage, step=step)
    if isinstance(step, bool | int | float):
        number(step, "step", 0.0)
    elif step.ndim:
        raise ValueError(f"step has shape {tuple(step.shape)}; it should be a number")
    same_shape(log_prob_old=log_prob_old, advantage=advantage)
    log_prob_old = floating(xp, log_prob_old, "log_prob_old")
    advantage = floating(xp, advantage, "advantage")
    taken = log_prob_old > -float("inf")
    score = keep(xp, taken, log_prob_old) + step * keep(xp, taken, advantage)
    top = xp.max(keep(xp, taken, score, -float("inf")), axis=-1, keepdims=True)
    score = score - keep(xp, xp.isfinite(top), top)
    mass = xp.sum(keep(xp, taken, xp.exp(keep(xp, taken, score))), axis=-1, keepdims=True)
    return keep(xp, taken, score - xp.log(keep(xp, mass > 0, mass, 1.0)), -float("inf"))


def clip_value(
    prob_new: Array,
    prob_old: Array,
    positive: Array,
    negative: Array,
    low: float = 0.2,
    high: float = 0.2,
) -> Array:
    r"""Expected clipped surrogate of a row,
    :math:`\sum_a \pi [E^+ \min(\rho, 1+high) - E^- \max(\rho, 1-low)]` with
    :math:`\rho = \bar\pi/\pi`.

    Shapes: all [..., A] → [...].  Actions of probability 0 under π contribute nothing.
    """
    number(low, "low", 0.0, 1.0)
    number(high, "high", 0.0)
    xp = namespace(prob_new=prob_new, prob_old=prob_old, positive=positive, negative=negative)
    same_shape(prob_new=prob_new, prob_old=prob_old, positive=positive, negative=negative)
    gain = positive * xp.minimum(prob_new, (1 + high) * prob_old)
    loss = negative * xp.maximum(prob_new, (1 - low) * prob_old)
    return xp.sum(keep(xp, prob_old > 0, gain - loss), axis=-1)


def clip_argmax(
    prob_old: Array, positive: Array, negative: Array, low: float = 0.2, high: float = 0.2
) -> Array:
    r"""Exact maximiser over the simplex of the expected clipped surrogate `clip_value`.

    In :math:`p = \bar\pi(a)` the surrogate is concave and piecewise linear with slopes
    :math:`E^+` up to :math:`(1-low)\pi`, then :math:`E^+ - E^-` up to :math:`(1+high)\pi`, then
    :math:`-E^-`.  One unit of mass is therefore poured into the segments in the order of their
    slopes.  Where slopes tie, mass that stays below goes first, and equals share in proportion to
    π: among the maximisers this one moves little, and relabelling actions relabels it.

    Args:
        prob_old: [..., A] current probabilities π.  An action of probability 0 is never sampled and
            has no ratio; it keeps probability 0.
        positive, negative: [..., A], :math:`E[\hat A^+ | a]` and :math:`E[\hat A^- | a]`, both ≥ 0.
        low, high: half-widths of the clip interval.

    Returns:
        Probabilities [..., A].  Costs O(A²) a row.

    Source: SeeUPO (arXiv:2602.06554) Eq. 3 with the drift of the clipped surrogate
    (PPO's drift in Mirror Learning, 2201.02373).

    >>> import numpy as np
    >>> gain, loss = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    >>> clip_argmax(np.array([0.5, 0.5]), gain, loss).round(12).tolist()
    [0.6, 0.4]
    """
    number(low, "low", 0.0, 1.0)
    number(high, "high", 0.0)
    xp = namespace(prob_old=prob_old, positive=positive, negative=negative)
    same_shape(prob_old=prob_old, positive=positive, negative=negative)
    prob = _rows(xp, prob_old, "prob_old")
    positive, negative = floating(xp, positive, "positive"), floating(xp, negative, "negative")
    for name, part in (("positive", positive), ("negative", negative)):
        forbid(xp, ~(part >= 0), part, name, "the mean of a positive part, at least 0")
    kept, middle = (1 - low) * prob, (low + high) * prob
    reachable = xp.astype(prob > 0, prob.dtype)
    slope = xp.concat([positive, positive - negative, -negative], axis=-1)
    share = xp.concat([kept, middle, prob], axis=-1)
    room = xp.concat([kept, middle, reachable], axis=-1)  # one unit is all that there is
    actions = prob.shape[-1]
    level = xp.asarray(
        [k for k in range(3) for _ in range(actions)], device=array_api_compat.device(prob)
    )
    mine, other = xp.expand_dims(slope, axis=-1), xp.expand_dims(slope, axis=-2)
    lower = xp.expand_dims(level, axis=-2) < xp.expand_dims(level, axis=-1)
    equal = xp.expand_dims(level, axis=-2) == xp.expand_dims(level, axis=-1)
    tied = (mine == other) & equal
    earlier = (other > mine) | ((mine == other) & lower)
    rooms, shares = xp.expand_dims(room, axis=-2), xp.expand_dims(share, axis=-2)
    before = xp.sum(xp.where(earlier, rooms, xp.zeros_like(rooms)), axis=-1)
    width = xp.sum(xp.where(tied, rooms, xp.zeros_like(rooms)), axis=-1)
    parts = xp.sum(xp.where(tied, shares, xp.zeros_like(shares)), axis=-1)
    left = 1 - before
    poured = xp.minimum(keep(xp, left > 0, left), width)
    fill = share / keep(xp, parts > 0, parts, 1.0) * poured
    new = fill[..., :actions] + fill[..., actions : 2 * actions] + fill[..., 2 * actions :]
    return new / xp.sum(new, axis=-1, keepdims=True)
