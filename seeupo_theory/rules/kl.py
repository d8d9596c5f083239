r"""Kullback–Leibler penalties: estimators of :math:`KL(\pi_\theta \| \pi_{ref})` from samples.

With :math:`u = \log \pi_{ref}(a) - \log \pi_\theta(a)` for an action drawn from π_θ,

====  =======================  ==================================================================
kind  value                    what differentiating it as a loss gives, in expectation
====  =======================  ==================================================================
k1    :math:`-u`               0: it is unbiased as a value, but :math:`E[\nabla\log\pi] = 0`
k2    :math:`u^2/2`            :math:`\nabla KL(\pi_\theta\|\pi_{ref})`: the valid loss
k3    :math:`e^u - 1 - u`      :math:`\nabla KL(\pi_{ref}\|\pi_\theta)`, the other direction
====  =======================  ==================================================================

The samples come from the policy, and a loss that differentiates through the estimator alone does
not see that.  So a good estimator of the *value* (k1, k3) need not be a good *loss*: `LOSS_KIND` is
k2.  k3 still pulls towards the reference (both directions vanish there only) and is what GRPO and
SeeUPO's experiments use; k1 as a loss does nothing on average.

Example: two actions, π = (σ(0.3), 1 − σ(0.3)), reference (0.2, 0.8).  The true derivative of the KL
in the logit is 0.41223; the estimators give 0 (k1), 0.41223 (k2), 0.37444 (k3).

Source: Schulman's note "Approximating KL divergence" (2020) for k1–k3; GRPO 2402.03300 Eq. 4.
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

__all__ = ["KL_KINDS", "LOSS_KIND", "kl_divergence", "kl_penalty"]

KL_KINDS = ("k1", "k2", "k3")

LOSS_KIND = "k2"
"""The kind whose gradient on the policy's own samples is that of KL(π‖ref)."""


def kl_penalty(
    log_prob: Array, log_prob_ref: Array, kind: str = LOSS_KIND, mask: Array | None = None
) -> Array:
    r"""Per-sample estimate of :math:`KL(\pi_\theta\|\pi_{ref})`, to be subtracted from an objective.

    Args:
        log_prob, log_prob_ref: log-probabilities of the sampled actions, of one shape.
        kind: "k1", "k2" (valid as a loss) or "k3"; see the module.
        mask: where 0 (environment tokens, no-op turns) the penalty and its gradient are 0.

    >>> import numpy as np
    >>> [round(float(kl_penalty(np.log(np.array(0.5)), np.log(np.array(0.25)), k)), 4)
    ...  for k in KL_KINDS]
    [0.6931, 0.2402, 0.1931]
    """
    choice(kind, "kind", KL_KINDS)
    xp = namespace(log_prob=log_prob, log_prob_ref=log_prob_ref, mask=mask)
    same_shape(log_prob=log_prob, log_prob_ref=log_prob_ref)
    log_prob = floating(xp, log_prob, "log_prob")
    log_prob_ref = floating(xp, log_prob_ref, "log_prob_ref")
    if mask is not None:
        own = as_mask(xp, mask, log_prob.shape)
        log_prob, log_prob_ref = keep(xp, own, log_prob), keep(xp, own, log_prob_ref)
    u = log_prob_ref - log_prob
    if kind == "k1":
        return -u
    if kind == "k2":
        return u * u / 2
    return xp.expm1(u) - u


def kl_divergence(log_probs: Array, log_probs_ref: Array) -> Array:
    r"""Exact :math:`\sum_a \pi(a) (\log\pi(a) - \log\pi_{ref}(a))` over the last axis.

    Shapes: [..., A] → [...].  Actions of probability 0 contribute 0; inf where only the reference
    is 0.

    >>> import numpy as np
    >>> float(kl_divergence(np.log(np.array([0.5, 0.5])), np.log(np.array([0.5, 0.5]))))
    0.0
    """
    xp = namespace(log_probs=log_probs, log_probs_ref=log_probs_ref)
    same_shape(log_probs=log_probs, log_probs_ref=log_probs_ref)
    log_probs = floating(xp, log_probs, "log_probs")
    log_probs_ref = floating(xp, log_probs_ref, "log_probs_ref")
    taken = xp.exp(log_probs) > 0
    new, ref = keep(xp, taken, log_probs), keep(xp, taken, log_probs_ref)
    return xp.sum(keep(xp, taken, xp.exp(new) * (new - ref)), axis=-1)
