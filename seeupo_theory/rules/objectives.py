r"""Policy objectives: what is *maximised*, sample by sample.

Each objective is ``f(log_prob, log_prob_old, advantage, weight=1, **options)`` and returns one
number a sample.  It is positively homogeneous in the advantage, f(cA) = c f(A) for c > 0, so that
an exact expectation over a group needs only :math:`E[\hat A^+]` and :math:`E[\hat A^-]`:
:math:`E f(\hat A) = E[\hat A^+] f(1) + E[\hat A^-] f(-1)`.

*At the kinks.*  The clipped surrogate is written with explicit masks, not with ``min`` and
``clip``, because the libraries' subgradients differ exactly at the boundary.  Here the boundary
belongs to the unclipped branch: at ρ = 1 ± ε the gradient flows.  The comparison happens in log
space and allows `KINK_ULPS` units in the last place, so that a ratio computed as
exp(log(1 + ε)) is on the boundary in every library.

*Extremes.*  A sample whose advantage or weight is exactly 0 contributes 0 to value and gradient,
even when its log-probability is -inf or its ratio overflows.  On the flat branches the ratio is not
computed at all.  What remains can be infinite only where the objective itself is: A < 0 and a ratio
beyond the largest float, without a dual clip.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

from seeupo_theory.rules._arrays import (
    Array,
    as_mask,
    choice,
    floating,
    keep,
    like,
    namespace,
    number,
    same_shape,
    tame,
)

__all__ = [
    "AGGREGATIONS",
    "KINK_ULPS",
    "OBJECTIVES",
    "Objective",
    "aggregate",
    "clip",
    "clip_fraction",
    "clip_mask",
    "linear",
    "reinforce",
]

KINK_ULPS = 8
"""Width of the boundary in units of the dtype's epsilon: the difference of two log-probabilities of
size up to 8, and log(1 + ε) itself, are each rounded by at most so much."""

AGGREGATIONS = ("sum", "mean", "sequence-mean", "constant")


class Objective(Protocol):
    """A per-sample objective, to be maximised."""

    def __call__(
        self,
        log_prob: Array,
        log_prob_old: Array,
        advantage: Array | float,
        weight: Array | float = 1.0,
        /,
    ) -> Array:
        """Value of each sample."""


def _samples(
    log_prob: Array, log_prob_old: Array, advantage: Array | float, weight: Array | float
) -> tuple[Any, Array, Array, Array, Array]:
    """Library, log ratio, advantage, weight, and where the sample is inert (times exact 0)."""
    xp = namespace(log_prob=log_prob, log_prob_old=log_prob_old, advantage=advantage, weight=weight)
    same_shape(log_prob=log_prob, log_prob_old=log_prob_old)
    log_prob = floating(xp, log_prob, "log_prob")
    log_prob_old = floating(xp, log_prob_old, "log_prob_old")
    advantage = like(xp, advantage, log_prob, "advantage")
    weight = like(xp, weight, log_prob, "weight")
    advantage = keep(xp, (weight != 0) | xp.isfinite(advantage), advantage)
    inert = (advantage == 0) | (weight == 0)
    exists = xp.isfinite(log_prob) & xp.isfinite(log_prob_old)
    log_prob = keep(xp, ~inert | exists, log_prob)
    log_prob_old = keep(xp, ~inert | exists, log_prob_old)
    return xp, log_prob - log_prob_old, advantage, weight, inert


def reinforce(
    log_prob: Array,
    log_prob_old: Array,
    advantage: Array | float,
    weight: Array | float = 1.0,
) -> Array:
    r"""Score-function objective :math:`w\,A\,(\log \pi_\theta - \log \pi_{old})`.

    The second logarithm does not depend on θ: the gradient is that of :math:`w A \log \pi_\theta`,
    and the value is 0 at the sampling policy, so that a rise can be read off.

    Shapes: all broadcast; numbers are allowed for advantage and weight.
    Source: Williams 1992.

    >>> import numpy as np
    >>> float(reinforce(np.array(-1.0), np.array(-1.5), 2.0))
    1.0
    """
    _, change, advantage, weight, _ = _samples(log_prob, log_prob_old, advantage, weight)
    return weight * advantage * change


def linear(
    log_prob: Array,
    log_prob_old: Array,
    advantage: Array | float,
    weight: Array | float = 1.0,
) -> Array:
    r"""Importance-weighted gain :math:`w\,\rho A`, without a clip.

    It is what the clipped surrogate bounds from below.  Source: Kakade and Langford 2002.

    >>> import numpy as np
    >>> float(linear(np.log(np.array(1.5)), np.array(0.0), -2.0))
    -3.0
    """
    xp, change, advantage, weight, inert = _samples(log_prob, log_prob_old, advantage, weight)
    return weight * advantage * xp.exp(tame(xp, inert, change))


def _bounds(low: float, high: float, dual: float | None) -> tuple[float, float, float]:
    """Logarithms of the three boundaries."""
    number(low, "low", 0.0, 1.0)
    number(high, "high", 0.0, infinite=True)
    if dual is not None:
        number(dual, "dual", 1.0, open_low=True)
    return (
        math.log(1.0 - low) if low < 1.0 else -math.inf,
        math.log(1.0 + high),
        math.inf if dual is None else math.log(dual),
    )


def _branches(
    xp: Any, change: Array, advantage: Array, logs: tuple[float, float, float]
) -> tuple[Array, Array, Array]:
    """Where the surrogate is flat: at 1 + high, at 1 − low, at the dual bound."""
    slack = KINK_ULPS * float(xp.finfo(change.dtype).eps)
    up, down = advantage > 0, advantage < 0
    return (
        up & (change > logs[1] + slack),
        down & (change < logs[0] - slack),
        down & (change > logs[2] + slack),
    )


def clip(
    log_prob: Array,
    log_prob_old: Array,
    advantage: Array | float,
    weight: Array | float = 1.0,
    *,
    low: float = 0.2,
    high: float = 0.2,
    dual: float | None = None,
) -> Array:
    r"""Clipped surrogate :math:`w \min(\rho A, \operatorname{clip}(\rho, 1-low, 1+high) A)`.

    With ``dual = c`` it is at least :math:`w c A` where A < 0, and unchanged where A > 0.

    Args:
        log_prob, log_prob_old: log-probabilities of the samples, of one shape.
        advantage, weight: numbers, or arrays that broadcast.
        low, high: half-widths of the clip interval, 0 ≤ low ≤ 1, high ≥ 0 (inf: no upper clip).
        dual: bound c > 1 on the ratio of negative advantages, or None.

    Returns:
        Objective of each sample; gradient 0 on the flat branches only.

    Source: PPO 1707.06347 Eq. 7; dual clip 1912.09729; asymmetric clip 2503.14476.

    >>> import numpy as np
    >>> log_ratio = np.log(np.array([0.5, 1.5, 0.5, 1.5]))
    >>> clip(log_ratio, 0 * log_ratio, np.array([1.0, 1.0, -1.0, -1.0])).round(12).tolist()
    [0.5, 1.2, -0.8, -1.5]
    """
    logs = _bounds(low, high, dual)
    xp, change, advantage, weight, inert = _samples(log_prob, log_prob_old, advantage, weight)
    above, below, beyond = _branches(xp, change, advantage, logs)
    ratio = xp.exp(keep(xp, ~(above | below | beyond), tame(xp, inert, change)))
    ratio = keep(xp, ~above, ratio, 1.0 + high)
    ratio = keep(xp, ~below, ratio, 1.0 - low)
    if dual is not None:
        ratio = keep(xp, ~beyond, ratio, dual)
    return weight * advantage * ratio


def clip_mask(
    log_prob: Array,
    log_prob_old: Array,
    advantage: Array | float,
    weight: Array | float = 1.0,
    *,
    low: float = 0.2,
    high: float = 0.2,
    dual: float | None = None,
) -> Array:
    """Where `clip` cuts the gradient of a sample that has one (weight and advantage not 0)."""
    logs = _bounds(low, high, dual)
    xp, change, advantage, weight, inert = _samples(log_prob, log_prob_old, advantage, weight)
    above, below, beyond = _branches(xp, change, advantage, logs)
    return (above | below | beyond) & ~inert


def clip_fraction(
    log_prob: Array,
    log_prob_old: Array,
    advantage: Array | float,
    weight: Array | float = 1.0,
    *,
    low: float = 0.2,
    high: float = 0.2,
    dual: float | None = None,
) -> Array:
    r"""Share of the active samples whose gradient is cut, :math:`\sum |w| c / \sum |w|`.

    Exactly 0 at the sampling policy, and 0 when no sample is active.  A diagnostic: not
    differentiable.

    >>> import numpy as np
    >>> float(clip_fraction(np.log(np.array([1.5, 1.0])), np.zeros(2), 1.0))
    0.5
    """
    cut = clip_mask(log_prob, log_prob_old, advantage, weight, low=low, high=high, dual=dual)
    xp, _, _, weight, _ = _samples(log_prob, log_prob_old, advantage, weight)
    share = xp.broadcast_to(xp.abs(weight), tuple(cut.shape))
    total = xp.sum(share)
    return xp.sum(keep(xp, cut, share)) / keep(xp, total > 0, total, 1.0)


def bound_clip(low: float, high: float, dual: float | None) -> Objective:
    """`clip` with its options bound."""

    def clipped(
        log_prob: Array,
        log_prob_old: Array,
        advantage: Array | float,
        weight: Array | float = 1.0,
        /,
    ) -> Array:
        return clip(log_prob, log_prob_old, advantage, weight, low=low, high=high, dual=dual)

    return clipped


OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {"reinforce": reinforce, "linear": linear, "clip": clip}
)
"""The objectives that are ascended; the ideal tabular steps are in `improvement`."""


def aggregate(
    per_token: Array,
    mask: Array | None = None,
    how: str = "mean",
    *,
    constant: float | None = None,
    normaliser: float | None = None,
) -> Array:
    r"""One number from per-token (or per-turn) values [..., L], under a mask.

    ======================= =================================================================
    how                     value
    ======================= =================================================================
    ``"sum"``               sum over all own tokens
    ``"mean"``              that sum over the number of own tokens (PPO, DAPO)
    ``"sequence-mean"``     mean over rows of each row's mean (GRPO, GSPO)
    ``"constant"``          sum over rows × `constant` (Dr. GRPO)
    ======================= =================================================================

    Rows without own tokens count neither above nor below the line, and masked values are not read,
    so environment tokens change nothing.  Nothing left gives 0.

    Args:
        per_token: values [..., L].
        mask: [..., L], None means all.
        how: see the table.
        constant: tokens a row is divided by, for "constant".
        normaliser: number to divide by instead of this call's own count (tokens for "mean", rows
            for the others).  With the whole batch's count, micro-batches of any split add up to
            the whole batch's value.

    >>> import numpy as np
    >>> values, mask = np.array([[1.0, 1.0], [3.0, 9.0]]), np.array([[1, 1], [1, 0]])
    >>> [round(float(aggregate(values, mask, how)), 6) for how in ("sum", "mean", "sequence-mean")]
    [5.0, 1.666667, 2.0]
    """
    choice(how, "how", AGGREGATIONS)
    if (constant is None) == (how == "constant"):
        raise ValueError(
            f"constant is {constant!r} with how={how!r}; a constant belongs to how='constant' only"
        )
    if constant is not None:
        number(constant, "constant", 0.0, open_low=True)
    if normaliser is not None:
        number(normaliser, "normaliser", 0.0, open_low=True)
    xp = namespace(per_token=per_token, mask=mask)
    per_token = floating(xp, per_token, "per_token")
    if per_token.ndim == 0:
        raise ValueError("per_token has no axis; it should be [..., tokens]")
    if mask is None:
        own = xp.ones_like(per_token) > 0
    else:
        own = as_mask(xp, mask, per_token.shape)
        per_token = keep(xp, own, per_token)
    if how == "sum":
        total = xp.sum(per_token)
        return total if normaliser is None else total / normaliser
    tokens = xp.sum(xp.astype(own, per_token.dtype), axis=-1)
    rows = xp.sum(per_token, axis=-1)
    count = xp.sum(tokens) if how == "mean" else xp.sum(xp.astype(tokens > 0, tokens.dtype))
    if how == "sequence-mean":
        rows = rows / keep(xp, tokens > 0, tokens, 1.0)
    elif how == "constant":
        rows = rows / constant
    if normaliser is not None:
        return xp.sum(rows) / normaliser
    return xp.sum(rows) / keep(xp, count > 0, count, 1.0)
