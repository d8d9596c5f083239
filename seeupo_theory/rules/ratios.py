r"""Importance ratios: how much likelier has an action become?

A turn is a whole response of L tokens.  Three different quantities are all called "the ratio":

============================ ========================================= ===========================
level                        log ratio                                 who uses it
============================ ========================================= ===========================
``"sequence"``               :math:`\sum_l \log\pi(l) - \log\pi_k(l)`  the theory; SeeUPO Eq. 6–8
``"length-normalised"``      that sum divided by the token count       GSPO, SeeUPO's official code
``"token"``                  one ratio a token                         PPO, GRPO
============================ ========================================= ===========================

With 100 tokens of log ratio 0.012 they are 3.32, 1.012 and 1.012.  Only the first is the true
importance weight of the response; the second is its geometric mean a token.

All ratios stay in log space.  A masked token (not the policy's own) has log ratio exactly 0 and
gradient 0, whatever is written there, NaN and -inf included.
"""

from __future__ import annotations

from seeupo_theory.rules._arrays import (
    Array,
    as_mask,
    choice,
    floating,
    keep,
    namespace,
    same_shape,
)

__all__ = ["LEVELS", "log_ratio"]

LEVELS = ("sequence", "length-normalised", "token")


def log_ratio(
    log_prob: Array, log_prob_old: Array, mask: Array | None = None, *, level: str = "sequence"
) -> Array:
    r"""Log importance ratio :math:`\log \pi_\theta(a) - \log \pi_{old}(a)` of responses.

    Args:
        log_prob, log_prob_old: token log-probabilities [..., L] under the new and old policy.
        mask: [..., L], non-zero on the policy's own tokens; None means all.
        level: "sequence", "length-normalised" or "token".

    Returns:
        [...] for the first two levels (0 for a row without own tokens), [..., L] for "token".

    Raises:
        ValueError: shapes differ or an unknown level.

    Source: SeeUPO (arXiv:2602.06554) Eq. 6; GSPO 2507.18071 Eq. 7.

    >>> import numpy as np
    >>> new, old = np.full((1, 100), -1.0), np.full((1, 100), -1.012)
    >>> [round(float(np.exp(log_ratio(new, old, level=k))[0]), 3)
    ...  for k in ("sequence", "length-normalised")]
    [3.32, 1.012]
    """
    choice(level, "level", LEVELS)
    xp = namespace(log_prob=log_prob, log_prob_old=log_prob_old, mask=mask)
    same_shape(log_prob=log_prob, log_prob_old=log_prob_old)
    log_prob = floating(xp, log_prob, "log_prob")
    log_prob_old = floating(xp, log_prob_old, "log_prob_old")
    if log_prob.ndim == 0:
        raise ValueError("log_prob has no axis; it should be [..., tokens]")
    if mask is not None:
        own = as_mask(xp, mask, log_prob.shape)
        log_prob, log_prob_old = keep(xp, own, log_prob), keep(xp, own, log_prob_old)
    tokens = log_prob - log_prob_old
    if level == "token":
        return tokens
    total = xp.sum(tokens, axis=-1)
    if level == "sequence":
        return total
    if mask is None:
        return total / max(log_prob.shape[-1], 1)
    count = xp.sum(xp.astype(own, total.dtype), axis=-1)
    return total / keep(xp, count > 0, count, 1.0)
