r"""Exact expectations of group estimators: what GRPO & co. compute *on average*, without sampling.

A member of a group of G trajectories of one context gets an advantage
:math:`\hat A_i = f(r_1, …, r_G)`.  Given its own reward, the other members are G − 1 independent
draws from the context's reward law, so

.. math:: E[g(\hat A_i) \mid c, r_i = s] = \sum_{\text{others}} P(\text{others} \mid c)\, g(f(s, \text{others}))

and a surrogate that is positively homogeneous in the advantage (REINFORCE, the PPO clip, dual
clip) needs only :math:`g(x) = x^+` and :math:`g(x) = x^-`.  An estimator treats the members alike,
hence the sum runs over *multisets* of the S distinct rewards (`multisets`).  The estimator is
called as it stands, on all multisets at once.

Batch statistics couple the groups of a batch of B contexts, drawn independently from the context
distribution.  For B = ∞ they are constants of the population (`population`), for finite B the
multisets of B groups are enumerated.  Where an enumeration would be too large, companions are
drawn (`monte_carlo`) and the result has a standard error.  `plan` says which, before any work.

Shapes: C contexts, S distinct rewards a context, M multisets, G members, B contexts a batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from seeupo_theory.rules.advantages import Estimator
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.tabular import population
from seeupo_theory.tabular.monte_carlo import sampled_parts
from seeupo_theory.tabular.multisets import companions, count, multisets
from seeupo_theory.tabular.population import Parts, split

__all__ = ["MAX_ENTRIES", "Law", "LawPlan", "Parts", "expected_parts", "plan"]

MAX_MEMBERS = 100_000
"""Largest finite batch: more members differ from the infinite one by less than Monte Carlo sees."""

MAX_ENTRIES = 4_000_000
"""Largest number of array entries enumerated a context before Monte Carlo takes over (32 MB)."""

CACHED_ENTRIES = 16_384
"""Entries enumerated at once (128 kB an array): contexts beyond that follow one another."""


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

        finite = [v for v in (self.group_size, self.contexts_per_batch) if v != math.inf]
        if math.prod(finite) > MAX_MEMBERS:
            raise ValueError(
                f"group_size × contexts_per_batch is {math.prod(finite):.3g}; expected at most "
                f"{MAX_MEMBERS}, or inf for the limit"
            )

    @property
    def coupled(self) -> bool:
        """Whether an advantage depends on the other groups of a finite batch."""
        return self.algorithm.couples == "batch" and self.contexts_per_batch != math.inf


def _judge(entries: int, what: str) -> LawPlan:
    if entries <= MAX_ENTRIES:
        return LawPlan("exact", f"enumerated {what}")
    return LawPlan("monte-carlo", f"{entries:.3g} entries of {what} exceed {MAX_ENTRIES}")


def plan(law: Law, contexts: int, support: int) -> LawPlan:
    """Say whether the expectation will be exact, before anything is computed.

    Raises:
        ValueError: a custom estimator with an infinite group or batch, whose limit is unknown.
    """
    algorithm, size, batch = law.algorithm, law.group_size, law.contexts_per_batch
    if callable(algorithm.estimator) and size == math.inf:
        raise ValueError(
            "group_size is inf, but the limit of a custom estimator is unknown; give a number"
        )
    if callable(algorithm.estimator) and algorithm.couples == "batch" and batch == math.inf:
        raise ValueError(
            "contexts_per_batch is inf, but the limit of a custom batch estimator is unknown; "
            "give a number"
        )
    if size == math.inf:
        if not law.coupled or contexts == 1:
            return LawPlan("exact", "infinite groups: statistics of the population")
        entries = count(contexts, int(batch)) * int(batch) * support
        return _judge(entries, f"all batches of {int(batch)} infinite groups")
    if not law.coupled:
        if _linear(algorithm):
            return LawPlan("exact", "closed form: the objective is linear in the advantage")
        if _own_reward(algorithm):
            return LawPlan("exact", "the advantage depends on the own reward only")
        groups = count(support, int(size))
        return _judge(groups * int(size), f"{groups} multisets of {int(size)}")
    kinds = contexts * count(support, int(size))
    entries = count(kinds, int(batch)) * int(batch) * int(size)
    return _judge(entries, f"all batches of {int(batch)} groups of {int(size)}")


def _linear(algorithm: Algorithm) -> bool:
    """The surrogate needs E[Â] only, and E[Â | own reward] has a closed form."""
    return (
        algorithm.objective == "reinforce"
        and not callable(algorithm.estimator)
        and algorithm.normalise == "none"
        and algorithm.advantage_clip is None
        and algorithm.baseline in ("mean", "loo", "none")
    )


def _own_reward(algorithm: Algorithm) -> bool:
    """In an infinite batch the other members of the group do not matter."""
    return (
        not callable(algorithm.estimator)
        and algorithm.baseline in ("batch", "none")
        and algorithm.normalise != "group"
    )


def expected_parts(
    law: Law, context_probs: Array, support: Array, probs: Array, key: Array | None = None
) -> Parts:
    """E[Â⁺] and E[Â⁻] given context and own reward.

    With objective "reinforce", which is linear in the advantage, only the difference of the two is
    that of the estimator.

    Args:
        law: estimator, group size and contexts a batch.
        context_probs: [C].
        support: [C, S] distinct rewards of each context.
        probs: [C, S] their probabilities under the current policy.
        key: random key for the Monte Carlo fallback; needed only where `plan` says so.

    Raises:
        ValueError: as `plan`; or Monte Carlo is needed and no key is given.
    """
    chosen = plan(law, *support.shape)
    probs = probs / jnp.sum(probs, axis=1, keepdims=True)
    context_probs = context_probs / jnp.sum(context_probs)
    if chosen.method == "exact":
        key = None
    elif key is None:
        raise ValueError(f"Monte Carlo is needed ({chosen.reason}), so a random key must be given")
    if law.group_size == math.inf:
        batch = int(law.contexts_per_batch) if law.coupled and support.shape[0] > 1 else None
        rule = partial(population.infinite_group, law.algorithm)
        if batch is None:
            return split(rule(context_probs, support, probs))
        if key is None:
            return _context_batches(rule, batch, context_probs, support, probs)
        return _drawn_contexts(rule, batch, context_probs, support, probs, key)
    size = int(law.group_size)
    if not law.coupled and _linear(law.algorithm):
        return split(population.linear_mean(law.algorithm, size, support, probs))
    f = law.algorithm.advantage_rule()
    if law.algorithm.couples == "batch" and not law.coupled:
        f = population.infinite_batch(law.algorithm, size, context_probs, support, probs)
    if not law.coupled and _own_reward(law.algorithm):
        return split(f(support[..., None])[..., 0])
    if key is not None:
        batch = int(law.contexts_per_batch) if law.coupled else 1
        return sampled_parts(f, size, batch, context_probs, support, probs, key)
    if law.coupled:
        batch = int(law.contexts_per_batch)
        return _enumerate_batches(f, size, batch, context_probs, support, probs)
    return _enumerate_groups(f, size, support, probs)


def _positive(x: Array) -> Array:
    return jnp.maximum(x, 0.0)


def _reduce(advantage: Array, weight: Array, index: Array, shape: tuple[int, int]) -> Parts:
    """Add weighted parts up by own (context, reward)."""

    def total(x: Array) -> Array:
        flat = jnp.reshape(weight * x, (-1,))
        summed = jax.ops.segment_sum(flat, jnp.reshape(index, (-1,)), shape[0] * shape[1])
        return jnp.reshape(summed, shape)

    return Parts(total(_positive(advantage)), total(_positive(-advantage)), jnp.zeros(shape))


def _enumerate_groups(f: Estimator, size: int, support: Array, probs: Array) -> Parts:
    """All multisets of one group, context by context where they are many."""
    symbols = support.shape[1]
    sets, log_coefficient = map(jnp.asarray, multisets(symbols, size))

    def one(values: Array, log_p: Array) -> Parts:
        advantage = f(values[sets][:, None, :])[:, 0, :]  # [M, G]
        weight = companions(log_coefficient, log_p[sets])
        return jax.tree.map(lambda x: x[0], _reduce(advantage, weight, sets, (1, symbols)))

    contexts = support.shape[0]

    def fits(count: int) -> bool:
        return count == 1 or count * sets.size <= CACHED_ENTRIES

    at_once = max(d for d in range(1, contexts + 1) if contexts % d == 0 and fits(d))
    if at_once == contexts:
        return jax.vmap(one)(support, jnp.log(probs))
    return jax.lax.map(lambda pair: one(*pair), (support, jnp.log(probs)), batch_size=at_once)


def _enumerate_batches(
    f: Estimator, size: int, batch: int, context_probs: Array, support: Array, probs: Array
) -> Parts:
    """All multisets of B groups, each group a (context, multiset of rewards)."""
    contexts, symbols = support.shape
    sets, log_position = multisets(symbols, size)
    context = jnp.asarray(np.repeat(np.arange(contexts), len(sets)))  # [kinds]
    member = jnp.asarray(np.tile(sets, (contexts, 1)))  # [kinds, G]
    log_member = jnp.asarray(np.tile(log_position, (contexts, 1)))
    batches, log_group = map(jnp.asarray, multisets(contexts * len(sets), batch))
    log_p = jnp.log(probs)[context[:, None], member]
    in_group = companions(log_member, log_p)
    # P(kind) = β(c) · P(own = first symbol) · P(the others complete the multiset) · G / its count
    first = log_member[:, 0] + jnp.sum(log_p, axis=1)
    times = jnp.sum(member == member[:, :1], axis=1)
    log_kind = jnp.log(context_probs)[context] + first + jnp.log(size / times)
    weight = companions(log_group, log_kind[batches])[..., None] * in_group[batches]  # [M, B, G]
    advantage = f(support[context[:, None], member][batches])
    index = (context[:, None] * symbols + member)[batches]
    return _reduce(advantage, weight, index, (contexts, symbols))


def _context_batches(
    rule: population.GroupRule, batch: int, context_probs: Array, support: Array, probs: Array
) -> Parts:
    """All multisets of B contexts, each with an infinite group."""
    contexts, symbols = support.shape
    sets, log_coefficient = map(jnp.asarray, multisets(contexts, batch))
    weight = companions(log_coefficient, jnp.log(context_probs)[sets])  # [M, B]

    def one(drawn: Array) -> Array:
        share = jnp.zeros(contexts).at[drawn].add(1.0 / batch)
        return rule(share, support, probs)[drawn]  # [B, S]

    advantage = jax.vmap(one)(sets)  # [M, B, S]
    index = sets[..., None] * symbols + jnp.arange(symbols)
    spread = jnp.broadcast_to(weight[..., None], advantage.shape)
    return _reduce(advantage, spread, index, (contexts, symbols))


def _drawn_contexts(
    rule: population.GroupRule,
    batch: int,
    context_probs: Array,
    support: Array,
    probs: Array,
    key: Array,
) -> Parts:
    """Sampled batches of B contexts, each with an infinite group."""
    contexts, symbols = support.shape
    draws = max(64, min(4096, MAX_ENTRIES // (contexts * symbols)))
    others = jax.random.choice(key, contexts, (draws, batch - 1), p=context_probs)

    def own(c: Array) -> Parts:
        def one(drawn: Array) -> Array:
            share = jnp.zeros(contexts).at[drawn].add(1.0 / batch).at[c].add(1.0 / batch)
            return rule(share, support, probs)[c]

        advantage = jax.vmap(one)(others)  # [draws, S]
        error = jnp.std(advantage, axis=0, ddof=1) / math.sqrt(draws)
        return Parts(
            jnp.mean(_positive(advantage), axis=0), jnp.mean(_positive(-advantage), axis=0), error
        )

    return jax.lax.map(own, jnp.arange(contexts))
