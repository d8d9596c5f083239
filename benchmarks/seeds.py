"""10,000 seeds × 200 exact updates of a bandit with 3 turns of 3 actions, against vmap and scan."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks.gradient import expected_reward
from benchmarks.measure import Row, compare, require_equal
from seeupo_theory.tabular.kernels_seeds import run_seeds

__all__ = ["rows"]

SEEDS, ITERATIONS, ACTIONS, TURNS, LR = 10_000, 200, 3, 3, 0.5

RUN_ATOL = 1e-10
"""200 updates of order-1 logits, each off by a few roundings."""


def rows(repeats: int) -> Iterator[Row]:
    """Updates a second of `run_seeds` and of the program a user would write."""
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=(1, *(ACTIONS,) * TURNS))
    logits = [rng.normal(size=(SEEDS, ACTIONS**t, ACTIONS)) for t in range(TURNS)]
    probs = np.ones(1)
    gradient = jax.value_and_grad(expected_reward)

    @jax.jit
    @jax.vmap
    def plain(logits: list[Array]) -> tuple[list[Array], Array]:
        def update(logits: list[Array], _: None) -> tuple[list[Array], Array]:
            j, slope = gradient(logits, jnp.asarray(rewards), jnp.asarray(probs))
            return [x + LR * g for x, g in zip(logits, slope, strict=True)], j

        return jax.lax.scan(update, logits, None, length=ITERATIONS)

    ours = run_seeds(rewards, logits, LR, ITERATIONS, probs)
    final, values = plain(logits)
    require_equal("runs", [ours.values[:, :-1], *ours.logits], [values, *final], RUN_ATOL)
    row = compare(
        f"{SEEDS:,} seeds × {ITERATIONS} updates, {TURNS} turns of {ACTIONS} actions",
        ("run_seeds", lambda: run_seeds(rewards, logits, LR, ITERATIONS, probs)),
        ("jit of vmap of scan", lambda: jax.block_until_ready(plain(logits))),
        repeats,
        goal=1.0,
        warm_up=1,
    )
    rates = [SEEDS * ITERATIONS / x / 1e6 for x in (row.ours_figure, row.other_figure)]
    note = f"{rates[0]:.1f} against {rates[1]:.1f} million exact updates a second"
    yield Row(**{**row.__dict__, "note": note})
