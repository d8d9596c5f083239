r"""Presets: the published algorithms as switches of one `Algorithm`.

Each row of the paper's Table 1 (arXiv:2602.06554) and the neighbours it is compared with:

==================== ======================= =========== =============== ====================
preset               advantage               objective   order           ratio level
==================== ======================= =========== =============== ====================
reinforce            return                  reinforce   simultaneous    sequence
reinforce-grae       group mean              reinforce   simultaneous    sequence
rloo                 leave-one-out           reinforce   simultaneous    sequence
reinforce++          batch mean and std      clip        simultaneous    token
grpo                 group mean and std      clip        simultaneous    token
dr-grpo              group mean              clip        simultaneous    token
gspo                 group mean and std      clip        simultaneous    length-normalised
ppo                  GAE, exact critic       clip        simultaneous    token
ppo-grae             group mean              clip        simultaneous    sequence
seeupo               group mean, batch std   clip        reverse         sequence
seeupo-official      the same, clamped ±3    clip        reverse         length-normalised
happo                exact                   clip        random          sequence
haml, haml-greedy,   exact                   ideal step  reverse         sequence
haml-kl
trajectory-ppo       group mean              clip        simultaneous    product of all turns
==================== ======================= =========== =============== ====================

and ablations of SeeUPO: ``seeupo-loo`` (unbiased baseline), ``seeupo-no-factor`` (the running
factor is 1), ``seeupo-resample`` (fresh evaluation after each turn instead of the factor), and
``dynamic-pg`` (each turn trained to the end, the last first).

Step counts and step sizes are those of the exact tabular study (20 plain gradient steps of 0.5),
not of the papers' language-model runs; so is ``kl_coef = 0``, where the papers use a small β.

**SeeUPO's official code differs from the paper's equations** (modelscope/AgentEvolver, branch
``seeupo``, as read).  ``seeupo-official`` models four differences; each is a switch of its own:

1. the old log-probabilities are recomputed within the loop over turns: ``reference="current"``
   against θ_k in Eq. 6 and 8;
2. the ratio is length-normalised, in the factor too, and each factor as well as the running product
   is clamped to [1 − ε, 1 + ε]: ``level``, ``factor_clip``, ``product_clip``;
3. one epoch and one mini-batch a turn, so that the only step is taken at ratio 1 and the clip never
   binds: ``epochs=1``;
4. advantages are clamped to ±3 after batch normalisation: ``advantage_clip=3`` (one success in a
   batch of 256 with G = 8: 14.94 becomes 3).

The other differences are faults rather than choices and cannot be expressed here: factors carried
by row position (`rows.Batch` keys everything by row id), no-op turns that multiply the factor
(`factor.advance` keeps them at 1), an unknown order that silently becomes another (an error), and
the raw reward as the advantage of a group of one (0 here).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from seeupo_theory.rules._algorithm import Algorithm
from seeupo_theory.rules._arrays import unknown
from seeupo_theory.rules._imports import load

__all__ = ["PRESETS", "Algorithm", "get"]

_JOINT = Algorithm(order="simultaneous")
_SEEUPO = Algorithm(
    "seeupo",
    normalise="batch",
    summary="SeeUPO, arXiv:2602.06554 Alg. 1, Eq. 6–9: reverse order, running factor, batch std",
)
_HAML = Algorithm(
    "haml",
    estimator="exact",
    objective="clip-argmax",
    summary="HAML (2304.09870), reverse order: ideal argmax with the clipped surrogate's drift",
)

_ALL = (
    _JOINT.replace(
        name="reinforce",
        baseline="none",
        objective="reinforce",
        epochs=1,
        summary="REINFORCE (Williams 1992) on the raw return, no baseline",
    ),
    _JOINT.replace(
        name="reinforce-grae",
        objective="reinforce",
        epochs=1,
        summary="REINFORCE with the group mean as baseline: gradient (1 − 1/G) ∇J (claim C1)",
    ),
    _JOINT.replace(
        name="rloo",
        baseline="loo",
        objective="reinforce",
        epochs=1,
        summary="RLOO (2402.14740), Table 1: leave-one-out baseline, gradient exactly ∇J",
    ),
    _JOINT.replace(
        name="reinforce++",
        baseline="batch",
        normalise="batch",
        level="token",
        summary="REINFORCE++ (2501.03262), Table 1: batch mean and std, PPO clip a token",
    ),
    _JOINT.replace(
        name="grpo",
        normalise="group",
        level="token",
        summary="GRPO (2402.03300), Table 1: group mean and std, PPO clip a token",
    ),
    _JOINT.replace(
        name="dr-grpo",
        level="token",
        summary="Dr. GRPO (2503.20783): GRPO without the std (its length term does not arise here)",
    ),
    _JOINT.replace(
        name="gspo",
        normalise="group",
        level="length-normalised",
        summary="GSPO (2507.18071), Table 1: one length-normalised ratio a response",
    ),
    _JOINT.replace(
        name="ppo",
        estimator="gae",
        level="token",
        summary="PPO (1707.06347), Table 1: GAE with a critic, clip a token",
    ),
    _JOINT.replace(
        name="ppo-grae",
        summary="PPO clip with the group mean instead of a critic, no std (claim C2)",
    ),
    _SEEUPO,
    _SEEUPO.replace(
        name="seeupo-official",
        level="length-normalised",
        reference="current",
        epochs=1,
        factor_clip=0.2,
        product_clip=0.2,
        advantage_clip=3.0,
        summary="SeeUPO as its official code computes it; differences are listed in the module",
    ),
    _SEEUPO.replace(
        name="seeupo-loo",
        baseline="loo",
        summary="SeeUPO with the leave-one-out baseline",
    ),
    _SEEUPO.replace(
        name="seeupo-no-factor",
        factor_clip=0.0,
        summary="SeeUPO with every factor clamped to 1: M = Â in all turns",
    ),
    _SEEUPO.replace(
        name="seeupo-resample",
        resample=True,
        reference="current",
        summary="SeeUPO evaluated afresh after each turn's update (compare RTPO, 2608.18682)",
    ),
    Algorithm(
        "dynamic-pg",
        estimator="exact",
        objective="reinforce",
        resample=True,
        reference="current",
        epochs=200,
        summary="Dynamic policy gradient (2310.02671): the last turn trained first, then the next",
    ),
    Algorithm(
        "happo",
        estimator="exact",
        order="random",
        summary="HAPPO (2109.11251): random order, exact advantage, PPO clip",
    ),
    _HAML,
    _HAML.replace(
        name="haml-greedy",
        objective="greedy",
        summary="HAML without drift: each turn jumps to the greedy action, the last first",
    ),
    _HAML.replace(
        name="haml-kl",
        objective="mirror",
        summary="HAML with the KL drift: a mirror step a turn, the last first",
    ),
    _JOINT.replace(
        name="trajectory-ppo",
        credit="trajectory",
        guard=True,
        summary="One clipped ratio a trajectory (the product over turns), step guarded to F ≥ 0",
    ),
)

PRESETS: Mapping[str, Algorithm] = MappingProxyType({a.name: a for a in _ALL})
"""The algorithms by name."""


def get(name: str | Algorithm) -> Algorithm:
    """The preset of this name, or a user's own as "package.module:attribute".

    What the attribute is decides what is made of it: an `Algorithm` is taken as it is; a function
    of one argument is an estimator returns[..., B, G] → advantages; a function of three or four is
    an objective (log_prob, log_prob_old, advantage, weight).  The other switches are then those of
    ``Algorithm()``.  The working directory is searched too.

    Raises:
        ValueError: an unknown name (the message lists the known ones), or an import path that does
            not lead to something of these forms.

    >>> get("seeupo").order
    'reverse'
    >>> get("grop")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: algorithm is 'grop' (did you mean 'grpo'?); it should be one of reinforce, ...
    """
    if isinstance(name, Algorithm):
        return name
    if not isinstance(name, str):
        raise TypeError(f"algorithm is {name!r}; it should be a name or an Algorithm")
    if name in PRESETS:
        return PRESETS[name]
    if ":" in name:
        return load(name)
    raise ValueError(unknown(name, "algorithm", PRESETS) + ", or module:function")
