r"""Exact expectations of group estimators: what GRPO & co. compute *on average*, without sampling.

A member of a group of G trajectories of one context gets an advantage
:math:`\hat A_i = f(r_1, …, r_G)`.  Given its own reward, the other members are G − 1 independent
draws from the context's reward law, so

.. math:: E[g(\hat A_i) \mid c, r_i = s] = \sum_{\text{others}} P(\text{others} \mid c)\, g(f(s, \text{others}))

and a surrogate that is positively homogeneous in the advantage (REINFORCE, the PPO clip, dual
clip) needs only :math:`g(x) = x^+` and :math:`g(x) = x^-`.  An estimator treats the members alike,
hence the sum runs over *multisets* of the S distinct rewards: :math:`\binom{S+G-1}{G}` of them
instead of :math:`S^G` groups.  The estimator is called as it stands, on all multisets at once.

Batch statistics couple the groups of a batch of B contexts (drawn independently from the context
distribution).  They are exact

* for B = ∞, where the statistics are constants of the population;
* for finite B as long as the multisets of B groups can be enumerated;

and are estimated by Monte Carlo otherwise, with a standard error.  `Law.method` always says which.

Shapes: C contexts, S distinct rewards a context, M multisets, G members, B contexts a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from seeupo_theory.rules.advantages import grae
from seeupo_theory.rules.presets import Algorithm

__all__ = ["MAX_ENTRIES", "Law", "LawPlan", "Parts", "expected_parts", "plan"]

MAX_ENTRIES = 4_000_000
"""Largest number of array entries enumerated a context before Monte Carlo takes over (32 MB)."""

MONTE_CARLO_GROUPS = 4096
"""Groups (or batches) drawn for each own reward when enumeration is not affordable."""

Estimator = Callable[[Array], Array]


class Parts(NamedTuple):
    """Conditional expectations given context and own reward, each [C, S]."""

    positive: Array  # E[Â⁺]
    negative: Array  # E[Â⁻], non-negative
    standard_error: Array  # of E[Â]; zero where exact

    @property
    def mean(self) -> Array:
        """E[Â | context, own reward]."""
        return self.positive - self.negative


@dataclass(frozen=True)
class LawPlan:
    """How an expectation is computed, decided from the sizes alone (before any work).

    Attributes:
        method: "exact" or "monte-carlo".
        reason: one sentence for the reader of a result.
    """

    method: str
    reason: str


@dataclass(frozen=True)
class Law:
    """The estimator together with the sizes of its group and batch (``math.inf`` allowed)."""

    algorithm: Algorithm
    group_size: float = math.inf
    contexts_per_batch: float = math.inf

    def __post_init__(self) -> None:
        for name in ("group_size", "contexts_per_batch"):
            value = getattr(self, name)
            whole = value == math.inf or float(value).is_integer()
            if not whole or value < 1:
                raise ValueError(
                    f"{name} is {value}; expected a whole number of at least 1, or inf"
                )


@lru_cache(maxsize=64)
def _multisets(symbols: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """All multisets [M, size] of `symbols`, and the coefficient of each position.

    With m the multiset and i a position, coefficient[m, i] · ∏_{j≠i} p[m_j] is the probability
    that the other size − 1 draws complete the multiset; 0 at repeated positions.
    """
    sets = np.array(list(combinations_with_replacement(range(symbols), size)), dtype=np.int32)
    first = np.ones(sets.shape, dtype=bool)
    first[:, 1:] = sets[:, 1:] != sets[:, :-1]
    count = (sets[:, :, None] == sets[:, None, :]).sum(axis=2)
    factorial = np.array([math.factorial(k) for k in range(size + 1)], dtype=float)
    # ∏ over distinct symbols of count!: each position contributes count!^(1/count)
    log_product = np.where(first, np.log(factorial[count]), 0.0).sum(axis=1)
    log_others = math.lgamma(size) - log_product[:, None] + np.log(count)
    return sets, np.where(first, np.rint(np.exp(log_others)), 0.0)


def _others(probs: Array) -> Array:
    """Product over the other positions of the last axis."""
    size = probs.shape[-1]
    ones = jnp.ones_like(probs[..., :1])
    before = jnp.cumprod(jnp.concatenate([ones, probs[..., : size - 1]], axis=-1), axis=-1)
    reverse = jnp.flip(probs, axis=-1)
    after = jnp.cumprod(jnp.concatenate([ones, reverse[..., : size - 1]], axis=-1), axis=-1)
    return before * jnp.flip(after, axis=-1)


def _entries(symbols: int, size: float) -> int:
    return math.comb(symbols + int(size) - 1, int(size)) * int(size)


def plan(law: Law, contexts: int, support: int) -> LawPlan:
    """Say whether the expectation will be exact, before anything is computed.

    Raises:
        ValueError: a custom estimator with an infinite group or batch, whose limit is unknown.
    """
    algorithm, size, batch = law.algorithm, law.group_size, law.contexts_per_batch
    custom = callable(algorithm.estimator)
    coupled = algorithm.couples == "batch"
    if size == math.inf:
        if custom:
            raise ValueError(
                "group_size is inf, but the limit of a custom estimator is unknown; give a number"
            )
        return LawPlan("exact", "infinite groups: statistics of the population")
    groups = _entries(support, size)
    if custom and coupled and batch == math.inf:
        raise ValueError(
            "contexts_per_batch is inf, but the limit of a custom batch estimator is unknown; "
            "give a number"
        )
    if not coupled or batch == math.inf:
        if _linear(algorithm) and not coupled:
            return LawPlan("exact", "closed form: the objective is linear in the advantage")
        if groups <= MAX_ENTRIES:
            return LawPlan("exact", f"enumerated {groups // int(size)} multisets of {int(size)}")
        return LawPlan("monte-carlo", f"{groups} entries exceed {MAX_ENTRIES}")
    types = contexts * math.comb(support + int(size) - 1, int(size))
    entries = _entries(types, batch) * int(size)
    if entries <= MAX_ENTRIES:
        return LawPlan("exact", f"enumerated all batches of {int(batch)} groups")
    return LawPlan("monte-carlo", f"{entries:.3g} entries of all batches exceed {MAX_ENTRIES}")


def _linear(algorithm: Algorithm) -> bool:
    """The surrogate needs E[Â] only, and E[Â | own reward] has a closed form."""
    return (
        algorithm.objective == "reinforce"
        and not callable(algorithm.estimator)
        and algorithm.normalise == "none"
        and algorithm.advantage_clip is None
        and algorithm.baseline in ("mean", "loo", "none")
    )


def _split(advantage: Array) -> Parts:
    zero = jnp.zeros_like(advantage)
    return Parts(jnp.maximum(advantage, zero), jnp.maximum(-advantage, zero), zero)


def _population(law: Law, context_probs: Array, support: Array, probs: Array) -> Parts:
    """Groups of infinite size: every statistic is the population's."""
    a = law.algorithm
    mean = jnp.sum(probs * support, axis=1, keepdims=True)
    overall = jnp.sum(context_probs[:, None] * mean)
    baseline = {"mean": mean, "loo": mean, "batch": overall, "none": jnp.zeros_like(mean)}
    centred = support - baseline[a.baseline]
    if a.normalise == "group":
        scale = jnp.sqrt(jnp.sum(probs * (support - mean) ** 2, axis=1, keepdims=True))
    elif a.normalise == "batch":
        weight = context_probs[:, None] * probs
        centred = centred - jnp.sum(weight * centred)
        scale = jnp.sqrt(jnp.sum(weight * centred**2))
    else:
        return _split(_clamp(centred, a.advantage_clip))
    return _split(_clamp(_divide(centred, scale + a.std_eps), a.advantage_clip))


def _divide(x: Array, scale: Array) -> Array:
    safe = jnp.where(scale > 0, scale, 1.0)
    return jnp.where(scale > 0, x / safe, 0.0)


def _clamp(x: Array, limit: float | None) -> Array:
    return x if limit is None else jnp.clip(x, -limit, limit)


def _enumerate_groups(
    size: int, support: Array, probs: Array, functions: list[Callable[[Array], Array]], f: Estimator
) -> list[Array]:
    """E[g(Â) | context, own reward] for each g, [C, S], over all multisets."""
    symbols = support.shape[1]
    sets_np, coefficient_np = _multisets(symbols, size)
    sets, coefficient = jnp.asarray(sets_np), jnp.asarray(coefficient_np)

    def one(values: Array, p: Array) -> list[Array]:
        advantage = f(values[sets][:, None, :])[:, 0, :]  # [M, G]
        weight = coefficient * _others(p[sets])
        flat = jnp.reshape(sets, (-1,))
        return [
            jax.ops.segment_sum(
                jnp.reshape(weight * g(advantage), (-1,)), flat, num_segments=symbols
            )
            for g in functions
        ]

    if support.shape[0] * sets_np.size <= MAX_ENTRIES:
        return jax.vmap(one)(support, probs)
    return jax.lax.map(lambda pair: one(*pair), (support, probs))


def _positive(x: Array) -> Array:
    return jnp.maximum(x, 0.0)


def _negative(x: Array) -> Array:
    return jnp.maximum(-x, 0.0)


def _infinite_batch(law: Law, context_probs: Array, support: Array, probs: Array) -> Estimator:
    """Finite groups in an infinite batch: the batch statistics are constants."""
    a, size = law.algorithm, int(law.group_size)
    weight = context_probs[:, None] * probs
    if a.baseline == "batch":
        location = jnp.sum(weight * support)
        raw: Estimator = lambda returns: returns - location  # noqa: E731
        second = jnp.sum(weight * (support - location) ** 2)
        first = jnp.zeros(())
    else:
        raw = lambda returns: grae(returns, baseline=a.baseline, normalise="none")  # noqa: E731
        moments = _enumerate_groups(size, support, probs, [lambda x: x, lambda x: x * x], raw)
        first, second = (jnp.sum(weight * m) for m in moments)
    scale = jnp.sqrt(jnp.maximum(second - first**2, 0.0)) + a.std_eps

    def estimator(returns: Array) -> Array:
        x = raw(returns)
        if a.normalise == "batch":
            x = _divide(x - first, scale)
        elif a.normalise == "group":
            raise ValueError("baseline 'batch' with normalise 'group' is not a known estimator")
        return _clamp(x, a.advantage_clip)

    return estimator


def _enumerate_batches(
    law: Law, context_probs: Array, support: Array, probs: Array, f: Estimator
) -> Parts:
    """All multisets of B groups, each group a (context, multiset of rewards)."""
    size, batch = int(law.group_size), int(law.contexts_per_batch)
    contexts, symbols = support.shape
    sets_np, member_np = _multisets(symbols, size)
    kinds = contexts * len(sets_np)
    batches_np, group_np = _multisets(kinds, batch)
    of_context = np.repeat(np.arange(contexts), len(sets_np))
    of_set = np.tile(sets_np, (contexts, 1))  # [kinds, G]
    member = jnp.asarray(np.tile(member_np, (contexts, 1)))
    # probability of a kind: context · multinomial
    own_first = jnp.asarray(of_context)
    p_members = probs[own_first[:, None], jnp.asarray(of_set)]  # [kinds, G]
    multinomial = jnp.asarray(
        [
            math.factorial(size)
            / math.prod(map(math.factorial, np.unique(s, return_counts=True)[1]))
            for s in of_set
        ]
    )
    kind_prob = context_probs[own_first] * multinomial * jnp.prod(p_members, axis=1)
    others_in_group = member * _others(p_members)  # [kinds, G]
    batches, group = jnp.asarray(batches_np), jnp.asarray(group_np)
    values = support[own_first[:, None], jnp.asarray(of_set)]  # [kinds, G]
    advantage = f(values[batches])  # [M, B, G]
    weight = (group * _others(kind_prob[batches]))[..., None] * others_in_group[batches]
    index = (own_first[:, None] * symbols + jnp.asarray(of_set))[batches]

    def reduce(x: Array) -> Array:
        flat = jax.ops.segment_sum(
            jnp.reshape(weight * x, (-1,)),
            jnp.reshape(index, (-1,)),
            num_segments=contexts * symbols,
        )
        return jnp.reshape(flat, (contexts, symbols))

    zero = jnp.zeros((contexts, symbols))
    return Parts(reduce(_positive(advantage)), reduce(_negative(advantage)), zero)


def _monte_carlo(
    law: Law, context_probs: Array, support: Array, probs: Array, f: Estimator, key: Array
) -> Parts:
    """Averages over sampled companions of each own reward."""
    size = int(law.group_size)
    coupled = law.algorithm.couples == "batch" and law.contexts_per_batch != math.inf
    batch = int(law.contexts_per_batch) if coupled else 1
    contexts, symbols = support.shape
    draws = max(64, min(MONTE_CARLO_GROUPS, MAX_ENTRIES // (batch * size)))

    def one(pair: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        c, k = pair[0], pair[1]
        key_c, key_r = jax.random.split(jax.random.fold_in(key, c * symbols + k))
        context = jax.random.choice(key_c, contexts, (draws, batch), p=context_probs)
        context = context.at[:, 0].set(c)
        log_p = jnp.log(probs)[context]  # [n, B, S]
        chosen = jax.random.categorical(key_r, log_p[:, :, None, :], shape=(draws, batch, size))
        chosen = chosen.at[:, 0, 0].set(k)
        advantage = f(support[context[..., None], chosen])[:, 0, 0]
        error = jnp.std(advantage, ddof=1) / math.sqrt(draws)
        return jnp.mean(_positive(advantage)), jnp.mean(_negative(advantage)), error

    grid = jnp.meshgrid(jnp.arange(contexts), jnp.arange(symbols), indexing="ij")
    flat = jax.lax.map(one, (grid[0].reshape(-1), grid[1].reshape(-1)))
    return Parts(*(jnp.reshape(x, (contexts, symbols)) for x in flat))


def expected_parts(
    law: Law, context_probs: Array, support: Array, probs: Array, key: Array | None = None
) -> Parts:
    """E[Â⁺] and E[Â⁻] given context and own reward.

    Args:
        law: estimator, group size and contexts a batch.
        context_probs: [C].
        support: [C, S] distinct rewards of each context.
        probs: [C, S] their probabilities under the current policy.
        key: random key for the Monte Carlo fallback; needed only where `plan` says so.

    Raises:
        ValueError: as `plan`; or Monte Carlo is needed and no key is given.
    """
    algorithm = law.algorithm
    chosen = plan(law, *support.shape)
    if law.group_size == math.inf:
        return _population(law, context_probs, support, probs)
    size = int(law.group_size)
    if _linear(algorithm):
        mean = jnp.sum(probs * support, axis=1, keepdims=True)
        scale = {"mean": 1.0 - 1.0 / size, "loo": 1.0 if size > 1 else 0.0, "none": 1.0}
        shift = 0.0 if algorithm.baseline == "none" else mean
        return _split(scale[algorithm.baseline] * (support - shift))
    coupled = algorithm.couples == "batch"
    f = algorithm.advantage_rule()
    if coupled and law.contexts_per_batch == math.inf and chosen.method == "exact":
        f = _infinite_batch(law, context_probs, support, probs)
    if chosen.method == "exact":
        if coupled and law.contexts_per_batch != math.inf:
            return _enumerate_batches(law, context_probs, support, probs, f)
        positive, negative = _enumerate_groups(size, support, probs, [_positive, _negative], f)
        return Parts(positive, negative, jnp.zeros_like(positive))
    if key is None:
        raise ValueError(f"Monte Carlo is needed ({chosen.reason}), so a random key must be given")
    if coupled and law.contexts_per_batch == math.inf:
        raise ValueError(
            f"an infinite batch needs exact group moments, but {chosen.reason}; "
            "give contexts_per_batch as a number"
        )
    return _monte_carlo(law, context_probs, support, probs, f, key)
