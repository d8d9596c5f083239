r"""Along one trajectory: rewards, returns, and advantages from a critic.

Steps are turns, or tokens.  In a token sequence only some positions are the policy's own (mask 1);
the others are observations: tool output, the environment's replies, padding.  They carry no reward,
are not discounted, and what is written there (even NaN) is never read.

*Returns and advantages are separate outputs*: `gae` gives advantages, `returns_from_advantages` the
critic's targets.

Shapes: T steps, L tokens.
"""

from __future__ import annotations

from seeupo_theory.rules._arrays import (
    Array,
    as_mask,
    floating,
    forbid,
    keep,
    namespace,
    number,
    same_shape,
)

__all__ = [
    "discounted_returns",
    "gae",
    "masked_return",
    "require_finite",
    "returns_from_advantages",
    "token_rewards",
]


def require_finite(values: Array, name: str = "returns") -> None:
    """Raise ValueError that names the first NaN or infinite entry; silent while tracing.

    >>> import numpy as np
    >>> require_finite(np.array([[0.0, np.nan]]))
    Traceback (most recent call last):
    ...
    ValueError: returns[0, 1] is nan; it should be finite
    """
    xp = namespace(**{name: values})
    if xp.isdtype(values.dtype, "real floating"):
        forbid(xp, ~xp.isfinite(values), values, name, "finite")


def gae(
    rewards: Array,
    values: Array,
    *,
    discount: float,
    lam: float,
    bootstrap: bool = True,
    mask: Array | None = None,
) -> Array:
    r"""Generalised advantage estimate
    :math:`\hat A_t = \delta_t + \gamma\lambda \hat A_{t+1}`,
    :math:`\delta_t = r_t + \gamma V_{t+1} - V_t`.

    Args:
        rewards: [..., T].
        values: [..., T + 1]; the last is the value after the last step.
        discount, lam: γ and λ, each in [0, 1].
        bootstrap: whether the last value counts; False ends the episode there (value 0).
        mask: [..., T]; where 0 (an observation token) no step of the policy happens: the value and
            the advantage carry across from the step after it unchanged, undiscounted, and the
            reward and value written there (even NaN) are not read.

    Returns:
        Advantages [..., T].  At a masked position this is the carried value, so mask the loss too.
        The critic's targets are a separate output: `returns_from_advantages`.

    Source: Schulman et al. 2016 (1506.02438), Eq. 16.

    >>> import numpy as np
    >>> gae(np.array([0.0, 1.0]), np.zeros(3), discount=1.0, lam=1.0).tolist()
    [1.0, 1.0]
    """
    number(discount, "discount", 0.0, 1.0)
    number(lam, "lam", 0.0, 1.0)
    xp = namespace(rewards=rewards, values=values, mask=mask)
    rewards, values = floating(xp, rewards, "rewards"), floating(xp, values, "values")
    if rewards.ndim == 0 or rewards.shape[-1] == 0:
        raise ValueError(f"rewards has shape {tuple(rewards.shape)}; it should be [..., steps]")
    steps = rewards.shape[-1]
    if tuple(values.shape) != (*rewards.shape[:-1], steps + 1):
        raise ValueError(
            f"values has shape {tuple(values.shape)}; for rewards {tuple(rewards.shape)} it should "
            f"be {(*rewards.shape[:-1], steps + 1)}, one value more than steps"
        )
    if mask is not None:
        mask = as_mask(xp, mask, rewards.shape)
        rewards = keep(xp, mask, rewards)
        values = xp.concat([keep(xp, mask, values[..., :steps]), values[..., steps:]], axis=-1)
    if not bootstrap:
        values = xp.concat([values[..., :steps], xp.zeros_like(values[..., steps:])], axis=-1)
    require_finite(rewards, "rewards")
    require_finite(values, "values")
    later_value = values[..., steps]
    later = xp.zeros_like(later_value)
    out = []
    for t in range(steps - 1, -1, -1):
        delta = rewards[..., t] + discount * later_value - values[..., t]
        here, value = delta + discount * lam * later, values[..., t]
        if mask is not None:
            here = xp.where(mask[..., t], here, later)
            value = xp.where(mask[..., t], value, later_value)
        later, later_value = here, value
        out.append(later)
    return xp.stack(out[::-1], axis=-1)


def returns_from_advantages(advantages: Array, values: Array) -> Array:
    """The critic's targets: advantage + value, kept apart from the advantages.

    Shapes: advantages [..., T], values [..., T] or [..., T + 1] (the last is not used) → [..., T].
    """
    xp = namespace(advantages=advantages, values=values)
    steps = advantages.shape[-1] if advantages.ndim else 0
    if values.ndim and values.shape[-1] == steps + 1:
        values = values[..., :steps]
    same_shape(advantages=advantages, values=values)
    return floating(xp, advantages, "advantages") + floating(xp, values, "values")


def discounted_returns(rewards: Array, discount: float, mask: Array | None = None) -> Array:
    r"""Reward to go :math:`R_t = r_t + \gamma R_{t+1}`, [..., T] → [..., T].

    Masked steps carry no reward and are not discounted; there the later return is repeated.

    >>> import numpy as np
    >>> discounted_returns(np.array([1.0, 0.0, 4.0]), 0.5).tolist()
    [2.0, 2.0, 4.0]
    """
    xp = namespace(rewards=rewards, mask=mask)
    rewards = floating(xp, rewards, "rewards")
    if rewards.ndim == 0:
        raise ValueError("rewards has no axis; it should be [..., steps]")
    zeros = xp.zeros_like(rewards[..., :1])
    values = xp.concat([xp.zeros_like(rewards), zeros], axis=-1)
    return gae(rewards, values, discount=discount, lam=1.0, bootstrap=False, mask=mask)


def masked_return(rewards: Array, mask: Array) -> Array:
    """Return of each row: the sum of rewards on the policy's own tokens; others carry none.

    Shapes: rewards, mask [..., L] → [...].  A row without own tokens returns 0.
    """
    xp = namespace(rewards=rewards, mask=mask)
    rewards = floating(xp, rewards, "rewards")
    return xp.sum(keep(xp, as_mask(xp, mask, rewards.shape), rewards), axis=-1)


def token_rewards(reward: Array, mask: Array) -> Array:
    """The scalar reward of a row, written on its last own token.

    Shapes: reward [...], mask [..., L] → [..., L].  A row without own tokens carries no reward.

    >>> import numpy as np
    >>> token_rewards(np.array([3.0]), np.array([[1, 1, 0]])).tolist()
    [[0.0, 3.0, 0.0]]
    """
    xp = namespace(reward=reward, mask=mask)
    reward = floating(xp, reward, "reward")
    if tuple(mask.shape[:-1]) != tuple(reward.shape) or mask.ndim != reward.ndim + 1:
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}; it should be {tuple(reward.shape)} and tokens"
        )
    own = as_mask(xp, mask, mask.shape)
    later = xp.flip(xp.cumulative_sum(xp.astype(xp.flip(own, axis=-1), xp.int32), axis=-1), axis=-1)
    last = own & (later == 1)
    spread = xp.broadcast_to(xp.expand_dims(reward, axis=-1), tuple(mask.shape))
    return keep(xp, last, spread)
