r"""The running factor: what the turns already updated do to the advantage of the next one.

In a sequential update the advantage that turn t sees is the global advantage times the ratios of
the turns updated before it (SeeUPO Eq. 8),

.. math::
   M = F \cdot \hat A, \qquad F \leftarrow F \cdot \frac{\pi_{new}(a_t)}{\pi_{ref}(a_t)},

so that its expectation under the sampling policy is that of the updated suffix (Eq. 4).  F starts
at 1 and never depends on the advantage; keeping the two apart means that advantages cannot be
multiplied twice.

*Which reference.*  In the paper π_ref is the sampling policy θ_k; SeeUPO's official code recomputes
the old log-probabilities within the loop over turns, so that its reference is the policy just
before the turn's update.  Both are a matter of the argument `log_prob_ref`.

*Clamps.*  The official code clamps each factor and the running product to [1 − ε, 1 + ε]: ten turns
at ratio 1.1 give 2.594 by Eq. 8 and 1.2 with the product clamp.

A no-op turn (the episode is over) and a row without own tokens have factor exactly 1.
"""

from __future__ import annotations

from typing import Any

from seeupo_theory.rules._arrays import (
    Array,
    as_mask,
    boolean,
    choice,
    floating,
    keep,
    namespace,
    number,
    same_shape,
    spread,
    tame,
)
from seeupo_theory.rules.ratios import log_ratio

__all__ = ["FACTOR_LEVELS", "advance"]

FACTOR_LEVELS = ("sequence", "length-normalised")


def advance(
    factor: Array,
    log_prob_new: Array,
    log_prob_ref: Array,
    mask: Array | None = None,
    *,
    active: Array | None = None,
    level: str = "sequence",
    factor_clip: float | None = None,
    product_clip: float | None = None,
) -> Array:
    r"""Running factor after one more turn, :math:`F \cdot \pi_{new}(a_t) / \pi_{ref}(a_t)`.

    Args:
        factor: [...] one factor a row, 1 at the start.
        log_prob_new, log_prob_ref: [..., L] token log-probabilities of the turn's own action after
            its update and under the reference; or [...], one log-probability a whole action.
        mask: of the same shape, non-zero on own tokens.
        active: broadcasts with `factor`; where False the turn is a no-op and the row stays as it is.
        level: "sequence" (the true ratio, Eq. 8) or "length-normalised" (official code).
        factor_clip: clamp the turn's ratio to [1 − x, 1 + x].
        product_clip: clamp the product likewise.

    Returns:
        New factors; the argument is not written to.

    Source: SeeUPO (arXiv:2602.06554) Eq. 8; HAPPO (2109.11251), the same product.

    >>> import numpy as np
    >>> out = np.ones(1)
    >>> for _ in range(10):
    ...     out = advance(out, np.log(np.array([[1.1]])), np.zeros((1, 1)))
    >>> round(float(out[0]), 3)
    2.594
    """
    choice(level, "level", FACTOR_LEVELS)
    for name, bound in (("factor_clip", factor_clip), ("product_clip", product_clip)):
        if bound is not None:
            number(bound, name, 0.0, 1.0)
    xp = namespace(
        factor=factor, log_prob_new=log_prob_new, log_prob_ref=log_prob_ref, active=active
    )
    factor = floating(xp, factor, "factor")
    same_shape(log_prob_new=log_prob_new, log_prob_ref=log_prob_ref)
    if tuple(log_prob_new.shape) == tuple(factor.shape):
        log_prob_new = xp.expand_dims(log_prob_new, axis=-1)
        log_prob_ref = xp.expand_dims(log_prob_ref, axis=-1)
        mask = None if mask is None else xp.expand_dims(mask, axis=-1)
    elif tuple(log_prob_new.shape[:-1]) != tuple(factor.shape):
        raise ValueError(
            f"log_prob_new has shape {tuple(log_prob_new.shape)}; for factor "
            f"{tuple(factor.shape)} it should be the same, or with one axis of tokens more"
        )
    everywhere = xp.ones_like(factor) > 0
    live = everywhere if active is None else boolean(xp, active)
    live = spread(xp, live, factor.shape, "active")
    own = xp.ones_like(log_prob_new) == 1
    own = own if mask is None else as_mask(xp, mask, log_prob_new.shape)
    own = own & xp.expand_dims(live, axis=-1)
    change = log_ratio(log_prob_new, log_prob_ref, own, level=level)
    ratio = xp.exp(tame(xp, factor == 0, change))
    product = factor * _clamped(xp, ratio, factor_clip)
    return xp.where(live, _clamped(xp, product, product_clip), factor)


def _clamped(xp: Any, value: Array, width: float | None) -> Array:
    """Value in [1 − width, 1 + width]."""
    if width is None:
        return value
    value = keep(xp, ~(value > 1.0 + width), value, 1.0 + width)
    return keep(xp, ~(value < 1.0 - width), value, 1.0 - width)
