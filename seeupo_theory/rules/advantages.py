r"""Advantage estimators: how much better was this trajectory than what it is compared with?

**Without a critic** (group-relative): G trajectories are drawn from each of B contexts and their
returns compared,

.. math::
   \hat A_{bi} = \frac{r_{bi} - \text{baseline}_{bi}}{\sigma + \epsilon}.

The *baseline* is the mean of the group (GRPO; it contains :math:`r_{bi}` itself, so that
:math:`E[\hat A \nabla \log \pi] = (1 - 1/G) \nabla J`), the mean of the others (RLOO; unbiased), the
mean of the whole batch (REINFORCE++) or nothing.  The *scale* σ is 1, the standard deviation of the
group's returns (GRPO) or that of the batch's advantages (REINFORCE++, SeeUPO), which are centred
first: :math:`\tilde A = (\hat A - \mu_B)/\sigma_B`.

Conventions, the same on every path:

- Equal returns give advantages of exactly 0, whatever their size and dtype: the minimum is
  subtracted before anything is averaged.  (With ``baseline="none"`` and no normalisation nothing
  is compared, and the return is the advantage.)
- A group of one has no others: its group-relative advantage is 0.
- A standard deviation of 0 gives 0, also at ``std_eps = 0``; it never divides.
- For the baselines "mean" and "loo" the batch mean μ_B is identically 0 and is not subtracted
  again, so that a group of equal returns keeps its exact 0 inside a batch.
- NaN or infinite returns are an error that names the index (not while a library traces).

**With a critic**: `gae`, over the turns or the tokens of one trajectory (from `returns`).

Shapes: B contexts, G group members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from seeupo_theory.rules._arrays import (
    Array,
    choice,
    floating,
    keep,
    namespace,
    number,
)
from seeupo_theory.rules.returns import (
    discounted_returns,
    gae,
    masked_return,
    require_finite,
    returns_from_advantages,
    token_rewards,
)

__all__ = [
    "BASELINES",
    "ESTIMATORS",
    "NORMALISATIONS",
    "Estimator",
    "Grae",
    "couples",
    "discounted_returns",
    "estimator",
    "gae",
    "grae",
    "masked_return",
    "require_finite",
    "returns_from_advantages",
    "token_rewards",
    "zero_variance_share",
]

Estimator = Callable[[Array], Array]
"""Any function returns[..., B, G] → advantages[..., B, G].

Its optional attribute ``couples`` says what an advantage depends on: "group" (the default: only on
its own group) or "batch" (on the other groups of the batch too).
"""

BASELINES = ("mean", "loo", "batch", "none")
NORMALISATIONS = ("none", "group", "batch")


def grae(
    returns: Array,
    *,
    baseline: str = "mean",
    normalise: str = "none",
    std_eps: float = 1e-6,
    ddof: int = 1,
    clamp: float | None = None,
) -> Array:
    r"""Group-relative advantage :math:`(r - \text{baseline})/(\sigma + \epsilon)`.

    Args:
        returns: [..., B, G]; one axis alone, [G], is one group.
        baseline: "mean" of the group, "loo" (mean of the others), "batch" mean, or "none".
        normalise: "none"; "group", by the std of the group's returns; "batch", centre and divide
            by the std of the advantages over B × G.
        std_eps: added to the standard deviation; 0 is allowed.
        ddof: 1 for the divisor n − 1, 0 for the population's.
        clamp: limit on the absolute advantage, applied last.

    Returns:
        Advantages of the same shape and dtype.

    Raises:
        ValueError: a wrong shape, option or a return that is not finite.

    Source: SeeUPO (arXiv:2602.06554) Eq. 9; GRPO 2402.03300; RLOO 2402.14740; Dr. GRPO 2503.20783;
    REINFORCE++ 2501.03262.

    >>> import numpy as np
    >>> grae(np.array([[1.0, 0.0, 0.0, 1.0]])).tolist()
    [[0.5, -0.5, -0.5, 0.5]]
    """
    choice(baseline, "baseline", BASELINES)
    choice(normalise, "normalise", NORMALISATIONS)
    number(std_eps, "std_eps", 0.0)
    if isinstance(ddof, bool) or ddof not in (0, 1):
        raise ValueError(f"ddof is {ddof!r}; it should be 0 or 1")
    if clamp is not None:
        number(clamp, "clamp", 0.0, open_low=True)
    xp = namespace(returns=returns)
    returns = floating(xp, returns, "returns")
    _require_groups(returns)
    require_finite(returns, "returns")
    group, batch = -1, (-1 if returns.ndim == 1 else (-2, -1))
    if baseline == "none":
        out = returns
    elif baseline == "batch":
        out = _centred(xp, returns, batch)
    else:
        out = _centred(xp, returns, group)
        if baseline == "loo" and returns.shape[-1] > 1:
            out = out * (returns.shape[-1] / (returns.shape[-1] - 1))
    if normalise == "group":
        out = _scaled(xp, out, _std(xp, returns, group, ddof), std_eps)
    elif normalise == "batch":
        sigma = _std(xp, out, batch, ddof)
        if baseline in ("batch", "none"):
            out = _centred(xp, out, batch)
        out = _scaled(xp, out, sigma, std_eps)
    if clamp is not None:
        out = xp.where(out > clamp, xp.full_like(out, clamp), out)
        out = xp.where(out < -clamp, xp.full_like(out, -clamp), out)
    return out


def _require_groups(returns: Array) -> None:
    if returns.ndim == 0 or 0 in returns.shape[-2:]:
        raise ValueError(
            f"returns has shape {tuple(returns.shape)}; it should be [..., contexts, group] "
            "with at least one context and one member"
        )


def _centred(xp: Any, values: Array, axis: int | tuple[int, ...]) -> Array:
    """Values minus their mean; exactly 0 where all are equal."""
    shifted = values - xp.min(values, axis=axis, keepdims=True)
    return shifted - xp.mean(shifted, axis=axis, keepdims=True)


def _std(xp: Any, values: Array, axis: int | tuple[int, ...], ddof: int) -> Array:
    """Standard deviation, kept dims; 0 for one value, with a finite gradient (0) at 0.

    Deviations are divided by their range before squaring: neither over- nor underflow.
    """
    axes = (axis,) if isinstance(axis, int) else axis
    count = 1
    for a in axes:
        count *= values.shape[a]
    shifted = values - xp.min(values, axis=axis, keepdims=True)
    spread = xp.max(shifted, axis=axis, keepdims=True)
    unit = shifted / keep(xp, spread > 0, spread, 1.0)
    deviation = unit - xp.mean(unit, axis=axis, keepdims=True)
    square = xp.sum(deviation * deviation, axis=axis, keepdims=True) / max(count - ddof, 1)
    return keep(xp, spread > 0, spread * xp.sqrt(keep(xp, square > 0, square, 1.0)))


def _scaled(xp: Any, values: Array, sigma: Array, eps: float) -> Array:
    """Values over σ + ε, and 0 where σ is 0."""
    scaled = values / (keep(xp, sigma > 0, sigma, 1.0) + eps)
    return xp.where(sigma > 0, scaled, xp.zeros_like(scaled))


@dataclass(frozen=True)
class Grae:
    """`grae` with its options bound: an `Estimator` that can be named, compared and printed.

    >>> import numpy as np
    >>> Grae(baseline="loo")(np.array([[1.0, 0.0]])).tolist()
    [[1.0, -1.0]]
    """

    baseline: str = "mean"
    normalise: str = "none"
    std_eps: float = 1e-6
    ddof: int = 1
    clamp: float | None = None

    @property
    def couples(self) -> str:
        """ "batch" when an advantage depends on other groups, else "group"."""
        return "batch" if "batch" in (self.baseline, self.normalise) else "group"

    def __call__(self, returns: Array) -> Array:
        """Advantages [..., B, G] of returns [..., B, G]."""
        return grae(
            returns,
            baseline=self.baseline,
            normalise=self.normalise,
            std_eps=self.std_eps,
            ddof=self.ddof,
            clamp=self.clamp,
        )


ESTIMATORS: Mapping[str, Grae] = MappingProxyType(
    {
        "none": Grae("none"),
        "grae": Grae("mean"),
        "dr-grpo": Grae("mean"),
        "rloo": Grae("loo"),
        "grpo": Grae("mean", "group"),
        "reinforce++": Grae("batch", "batch"),
        "seeupo": Grae("mean", "batch"),
    }
)
"""The named group-relative estimators."""


def estimator(name: str | Estimator) -> Estimator:
    """The named estimator, or the callable itself.

    >>> estimator("grpo").normalise
    'group'
    """
    if callable(name):
        return name
    return ESTIMATORS[choice(name, "estimator", ESTIMATORS)]


def couples(rule: Estimator) -> str:
    """What an estimator's advantage depends on: "group" (the default) or "batch"."""
    return choice(getattr(rule, "couples", "group"), "couples", ("group", "batch"))


def zero_variance_share(returns: Array) -> Array:
    """Share of groups whose returns are all equal, and which therefore teach nothing.

    Shapes: returns [..., B, G] → [...].  Two rewards that cancel give such a group too.

    >>> import numpy as np
    >>> float(zero_variance_share(np.array([[0.0, 0.0], [0.0, 1.0]])))
    0.5
    """
    xp = namespace(returns=returns)
    returns = floating(xp, returns, "returns")
    _require_groups(returns)
    require_finite(returns, "returns")
    equal = xp.max(returns, axis=-1) == xp.min(returns, axis=-1)
    share = xp.astype(equal, returns.dtype)
    return share if returns.ndim == 1 else xp.mean(share, axis=-1)
