r"""The exact expectation of a group estimator against enumerating the groups.

64 contexts, 4 turns of 4 actions, groups of 8.  A context has 4^4 = 256 trajectories, hence 256^8 ≈
1.8·10^19 ordered groups of trajectories, which nobody enumerates.  The rival here is far better: it
enumerates ordered groups of the distinct *rewards* only (6 of them: 6^8 = 1.7 million), weighted by
their probabilities, in NumPy, with the table of groups made beforehand, and it looks at the first
member alone, since all are alike.  It does a few of the contexts; its time is scaled up to all,
which is fair because contexts are independent and take equally long.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np

from benchmarks.measure import Row, compare, require_equal
from seeupo_theory.rules import presets
from seeupo_theory.tabular.expectation import Law, expected_parts, plan

__all__ = ["rows"]

CONTEXTS, TURNS, ACTIONS, GROUP, REWARDS = 64, 4, 4, 8, 6
ENUMERATED_CONTEXTS = 1

GROUP_ATOL = 1e-9
"""Small standard deviations are divided by, which amplifies the roundings of a mean."""


def reward_laws(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Distinct rewards and their probabilities [C, S] under a random policy of a random bandit."""
    rng = np.random.default_rng(seed)
    paths = np.ones((CONTEXTS, 1))
    for turn in range(TURNS):
        policy = rng.dirichlet(np.ones(ACTIONS), size=(CONTEXTS, ACTIONS**turn))
        paths = (paths[:, :, None] * policy).reshape(CONTEXTS, -1)
    reward = rng.integers(REWARDS, size=paths.shape)
    probs = np.stack([np.bincount(r, p, REWARDS) for r, p in zip(reward, paths, strict=True)])
    return np.tile(np.linspace(0.0, 1.0, REWARDS), (CONTEXTS, 1)), probs


class Enumeration:
    """GRPO's advantages of all ordered groups of rewards."""

    def __init__(self) -> None:
        groups = np.unravel_index(np.arange(REWARDS**GROUP), (REWARDS,) * GROUP)
        self.groups = np.stack(groups)  # [G, S^G]

    def parts(
        self, values: np.ndarray, probs: np.ndarray, std_eps: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """E[Â⁺] and E[Â⁻] given the own reward, each [S], of one context."""
        rewards = values[self.groups]
        weight = probs[self.groups[1:]].prod(axis=0)
        advantage = rewards[0] - rewards.mean(axis=0)
        advantage /= rewards.std(axis=0, ddof=1) + std_eps
        own = self.groups[0]
        return (
            np.bincount(own, weight * np.maximum(advantage, 0.0), REWARDS),
            np.bincount(own, weight * np.maximum(-advantage, 0.0), REWARDS),
        )


def rows(repeats: int) -> Iterator[Row]:
    """E[Â⁺] and E[Â⁻] of GRPO's estimator for all contexts."""
    algorithm = presets.get("grpo")
    law = Law(algorithm, group_size=GROUP)
    chosen = plan(law, CONTEXTS, REWARDS)
    if chosen.method != "exact":
        raise AssertionError(f"the expectation is not exact: {chosen.reason}")
    support, probs = reward_laws()
    context_probs = np.full(CONTEXTS, 1.0 / CONTEXTS)
    exact = jax.jit(lambda c, s, p: expected_parts(law, c, s, p))
    enumeration = Enumeration()

    def enumerate_some() -> list[tuple[np.ndarray, np.ndarray]]:
        return [
            enumeration.parts(support[c], probs[c], algorithm.std_eps)
            for c in range(ENUMERATED_CONTEXTS)
        ]

    ours = exact(context_probs, support, probs)
    for c, (positive, negative) in enumerate(enumerate_some()):
        require_equal(
            f"context {c}", [ours.positive[c], ours.negative[c]], [positive, negative], GROUP_ATOL
        )
    yield compare(
        f"exact E[Â±], G = {GROUP}, {TURNS} turns of {ACTIONS} actions, {CONTEXTS} contexts",
        ("expected_parts", lambda: jax.block_until_ready(exact(context_probs, support, probs))),
        (f"all {REWARDS}^{GROUP} groups of rewards", enumerate_some),
        repeats,
        goal=1000.0,
        note=f"rival timed on {ENUMERATED_CONTEXTS} of {CONTEXTS} contexts and scaled; "
        f"groups of trajectories would be {ACTIONS**TURNS}^{GROUP}",
        scale=CONTEXTS / ENUMERATED_CONTEXTS,
        warm_up=1,
    )
