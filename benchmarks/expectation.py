r"""The exact expectation of a group estimator against enumerating the groups.

64 contexts, 4 turns of 4 actions, groups of 8.  A context has 4^4 = 256 trajectories, hence 256^8 ≈
1.8·10^19 ordered groups of trajectories, which nobody enumerates.  The rival here is far better: it
enumerates ordered groups of the S distinct *rewards* only, weighted by their probabilities, in
NumPy, with the table of groups made beforehand, and it looks at the first member alone, since all
are alike.  What is saved grows with S: S^8 ordered groups against (S + 7 choose 8) multisets.  The
rival does one context; its time is scaled up to all, which is fair because contexts are independent
and take equally long.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np

from benchmarks.measure import Row, compare, require_equal
from seeupo_theory.rules import presets
from seeupo_theory.tabular.expectation import Law, expected_parts, plan

__all__ = ["rows"]

CONTEXTS, TURNS, ACTIONS, GROUP = 64, 4, 4, 8
DISTINCT_REWARDS = {4: None, 6: 1000.0}
"""Distinct rewards of a context, and how many times faster the exact expectation should be."""

GROUP_ATOL = 1e-9
"""Small standard deviations are divided by, which amplifies the roundings of a mean."""


def reward_laws(distinct: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rewards and their probabilities [C, S] under a random policy of a random bandit."""
    rng = np.random.default_rng(seed)
    paths = np.ones((CONTEXTS, 1))
    for turn in range(TURNS):
        policy = rng.dirichlet(np.ones(ACTIONS), size=(CONTEXTS, ACTIONS**turn))
        paths = (paths[:, :, None] * policy).reshape(CONTEXTS, -1)
    reward = rng.integers(distinct, size=paths.shape)
    probs = np.stack([np.bincount(r, p, distinct) for r, p in zip(reward, paths, strict=True)])
    return np.tile(np.linspace(0.0, 1.0, distinct), (CONTEXTS, 1)), probs


class Enumeration:
    """GRPO's advantages of all ordered groups of `distinct` rewards."""

    def __init__(self, distinct: int) -> None:
        self.distinct = distinct
        self.groups = np.stack(np.unravel_index(np.arange(distinct**GROUP), (distinct,) * GROUP))

    def parts(
        self, values: np.ndarray, probs: np.ndarray, std_eps: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """E[Â⁺] and E[Â⁻] given the own reward, each [S], of one context."""
        rewards = values[self.groups]  # [G, S^G]
        weight = probs[self.groups[1:]].prod(axis=0)
        advantage = rewards[0] - rewards.mean(axis=0)
        advantage /= rewards.std(axis=0, ddof=1) + std_eps
        own = self.groups[0]
        return (
            np.bincount(own, weight * np.maximum(advantage, 0.0), self.distinct),
            np.bincount(own, weight * np.maximum(-advantage, 0.0), self.distinct),
        )


def rows(repeats: int) -> Iterator[Row]:
    """E[Â⁺] and E[Â⁻] of GRPO's estimator for all contexts."""
    algorithm = presets.get("grpo")
    law = Law(algorithm, group_size=GROUP)
    exact = jax.jit(lambda c, s, p: expected_parts(law, c, s, p))
    context_probs = np.full(CONTEXTS, 1.0 / CONTEXTS)
    for distinct, goal in DISTINCT_REWARDS.items():
        chosen = plan(law, CONTEXTS, distinct)
        if chosen.method != "exact":
            raise AssertionError(f"the expectation is not exact: {chosen.reason}")
        arguments = (context_probs, *reward_laws(distinct))
        enumeration = Enumeration(distinct)

        def ours(arguments=arguments):
            return jax.block_until_ready(exact(*arguments))

        def first_context(arguments=arguments, enumeration=enumeration):
            return enumeration.parts(arguments[1][0], arguments[2][0], algorithm.std_eps)

        result = ours()
        require_equal(
            "first context",
            [result.positive[0], result.negative[0]],
            first_context(),
            GROUP_ATOL,
        )
        yield compare(
            f"exact E[Â±], G = {GROUP}, {TURNS} turns of {ACTIONS} actions, {CONTEXTS} contexts, "
            f"{distinct} distinct rewards",
            ("expected_parts", ours),
            (f"all {distinct}^{GROUP} groups of rewards", first_context),
            repeats,
            goal=goal,
            note=f"the rival does one context, times {CONTEXTS}; "
            f"groups of trajectories would be {ACTIONS**TURNS}^{GROUP}",
            scale=float(CONTEXTS),
            warm_up=1,
        )
