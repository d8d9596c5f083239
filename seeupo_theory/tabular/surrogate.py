r"""Expected surrogates: of one turn's table, and of whole trajectories.

A turn's surrogate is a sum over the rows of its table, given the signed weights of
`seeupo_theory.tabular.weights`; the trajectory's has one ratio, the product over all turns.  Both
call the objective of `seeupo_theory.rules` with advantage ±1 and E[Â^±] in the weight.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array

from seeupo_theory.rules.kl import kl_penalty
from seeupo_theory.rules.objectives import clip_fraction
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.tabular.dynamics import backup, joint, leaf_mean, probabilities
from seeupo_theory.tabular.gae import gae_leaves
from seeupo_theory.tabular.lowering import Lowered
from seeupo_theory.tabular.weights import Weights, joint_path, leaf_parts, needs_paths

__all__ = [
    "clip_share",
    "cut_share",
    "gae_leaves",
    "leaf_parts",
    "needs_paths",
    "row_surrogate",
    "trajectory_clip_share",
    "trajectory_surrogate",
    "value",
]

Tables = Sequence[Array]


def value(lowered: Lowered, tables: Tables) -> Array:
    """Expected return J."""
    mean = leaf_mean(lowered, lowered.leaf_values)
    values, _ = backup(lowered, probabilities(lowered, tables), mean)
    return jnp.sum(lowered.context_probs * values[0])


def _samples(
    algorithm: Algorithm, new: Array, old: Array, weights: Weights
) -> tuple[Array, Array, Array, Array]:
    """(new, old, W⁺, W⁻) of what the objective calls one sample: [O, A], or [O, A, L] a token."""
    allowed = jnp.isfinite(old)
    new, old = jnp.where(allowed, new, 0.0), jnp.where(allowed, old, 0.0)
    positive, negative, _ = weights
    if new.ndim == 3 and algorithm.level == "token":
        positive, negative = (jnp.broadcast_to(w[..., None], new.shape) for w in weights[:2])
    elif new.ndim == 3:
        collapse = jnp.mean if algorithm.level == "length-normalised" else jnp.sum
        new, old = collapse(new, axis=-1), collapse(old, axis=-1)
    return new, old, positive, negative


def _signed(algorithm: Algorithm, new: Array, old: Array, plus: Array, minus: Array) -> Array:
    """W⁺ f(ρ, 1) + W⁻ f(ρ, −1) of each sample, from one call of the objective."""
    weight = jnp.stack([plus, minus])
    sign = jnp.stack([jnp.ones_like(plus), -jnp.ones_like(minus)])
    new, old = jnp.broadcast_to(new, weight.shape), jnp.broadcast_to(old, weight.shape)
    return jnp.sum(algorithm.objective_rule()(new, old, sign, weight), axis=0)


def row_surrogate(
    algorithm: Algorithm, new: Array, old: Array, weights: Weights, reference: Array | None = None
) -> Array:
    """Expected surrogate of every row of a turn's table, [O_t].

    Args:
        algorithm: objective, level and KL coefficient.
        new, old: candidate and denominator tables, [O, A] or [O, A, L].
        weights: signed weights [O, A].
        reference: table of the KL penalty's reference policy; what it never does is not penalised.
    """
    total = _signed(algorithm, *_samples(algorithm, new, old, weights))
    out = jnp.sum(total.reshape(total.shape[0], -1), axis=-1)
    if algorithm.kl_coef and reference is not None:
        usable = jnp.isfinite(joint(reference)) & jnp.isfinite(joint(old))
        penalty = kl_penalty(
            jnp.where(usable, joint(new), 0.0),
            jnp.where(usable, joint(reference), 0.0),
            algorithm.kl_kind,
        )
        out = out - algorithm.kl_coef * jnp.sum(weights.visit * penalty, axis=-1)
    return out


def cut_share(algorithm: Algorithm, new: Array, old: Array, plus: Array, minus: Array) -> Array:
    """Share of Σ (W⁺ + W⁻) whose gradient the clip cuts."""
    if algorithm.objective != "clip":
        return jnp.zeros(())
    low, high = algorithm.clip_range
    new, old = jnp.concatenate([new, new]), jnp.concatenate([old, old])
    sign = jnp.concatenate([jnp.ones_like(plus), -jnp.ones_like(minus)])
    weight = jnp.concatenate([plus, minus])
    return clip_fraction(new, old, sign, weight, low=low, high=high, dual=algorithm.dual_clip)


def clip_share(algorithm: Algorithm, new: Tables, old: Tables, weights: Sequence[Weights]) -> Array:
    """Share of the sampled |advantage| of some turns whose gradient the clip cuts."""
    each = [_samples(algorithm, *turn) for turn in zip(new, old, weights, strict=True)]
    flat = [jnp.concatenate([jnp.ravel(x) for x in part]) for part in zip(*each, strict=True)]
    return cut_share(algorithm, *flat)


def _whole_paths(lowered: Lowered, new: Tables, old: Tables) -> tuple[Array, Array, Array]:
    """Log-probabilities of whole histories under two policies, and π_old(τ), each [N]."""
    assert lowered.paths is not None
    theirs = jnp.sum(jnp.stack([joint_path(lowered, old, t) for t in range(lowered.turns)]), 0)
    mine = jnp.sum(jnp.stack([joint_path(lowered, new, t) for t in range(lowered.turns)]), 0)
    mass = lowered.paths.environment_prob * jnp.exp(theirs)
    reached = jnp.isfinite(theirs)
    return jnp.where(reached, mine, 0.0), jnp.where(reached, theirs, 0.0), mass


def trajectory_surrogate(
    algorithm: Algorithm,
    lowered: Lowered,
    new: Tables,
    old: Tables,
    positive: Array,
    negative: Array,
    reference: Tables | None = None,
) -> Array:
    r"""F(θ') = E_π[min(ρÂ, clip(ρ)Â)] with ρ the product of all turns' ratios.

    A lower bound of J(θ') − J(θ) for every parametrisation, because min(ρÂ, clip(ρ)Â) ≤ ρÂ and the
    environment's probabilities cancel in ρ.  `positive`, `negative` are E[Â^±] at the leaves [N].
    With a KL coefficient its penalty is subtracted turn by turn.
    """
    mine, theirs, mass = _whole_paths(lowered, new, old)
    gain = _signed(algorithm, mine, theirs, mass * positive, mass * negative)
    if algorithm.kl_coef and reference is not None:
        for t in range(lowered.turns):
            wanted = joint_path(lowered, reference, t)
            usable = (mass > 0) & jnp.isfinite(wanted)
            own = jnp.where(usable, joint_path(lowered, new, t), 0.0)
            penalty = kl_penalty(own, jnp.where(usable, wanted, 0.0), algorithm.kl_kind)
            gain = gain - algorithm.kl_coef * mass * penalty
    return jnp.sum(gain)


def trajectory_clip_share(
    algorithm: Algorithm,
    lowered: Lowered,
    new: Tables,
    old: Tables,
    positive: Array,
    negative: Array,
) -> Array:
    """Share of the absolute advantages whose gradient is cut in `trajectory_surrogate`."""
    mine, theirs, mass = _whole_paths(lowered, new, old)
    return cut_share(algorithm, mine, theirs, mass * positive, mass * negative)
