"""Many iterations, recorded: `run` and its `Trace`.

A trace is an `xarray.Dataset` with dimensions ``seed``, ``iteration`` and ``update`` (the updates
inside one iteration, in order), plus a status for every seed: ``converged`` (the gap to the optimum
fell below `tolerance`), ``out-of-steps`` or ``non-finite``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from seeupo_theory.tabular import critic as critics
from seeupo_theory.tabular.evaluate import optimum
from seeupo_theory.tabular.sampling import draw
from seeupo_theory.tabular.simulator import Simulator

__all__ = ["GAP_TOLERANCE", "Trace", "run_simulator"]

GAP_TOLERANCE = 1e-2
"""A run counts as converged below this gap, relative to the spread of the rewards."""


@dataclass(frozen=True)
class Trace:
    """What a run left behind.

    Attributes:
        data: the record; ``value`` [seed, iteration + 1], ``update_value``, ``surrogate_gain``,
            ``worst_row_gain`` [seed, iteration, update], ``updated_turn`` [iteration, update],
            ``status`` [seed].
        policy: final policy of every seed, T tables [seeds, O_t, A_t].
    """

    data: xr.Dataset
    policy: list[np.ndarray]

    @property
    def values(self) -> np.ndarray:
        """J before the first and after every iteration, [seed, iteration + 1]."""
        return self.data["value"].values

    @property
    def status(self) -> list[str]:
        """One word a seed."""
        return [str(s) for s in self.data["status"].values]

    def save(self, path: str | Path) -> Path:
        """Write a netCDF file, whole or not at all."""
        target = Path(path)
        if not target.parent.is_dir():
            raise ValueError(f"cannot write {target}: the folder {target.parent} does not exist")
        handle, name = tempfile.mkstemp(suffix=".nc", dir=target.parent)
        os.close(handle)
        try:
            self.data.to_netcdf(name, engine="scipy")
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        return target

    def summary(self) -> dict[str, Any]:
        """The figures one asks for first."""
        values = self.values
        drops = np.diff(values, axis=1)
        status, count = np.unique(self.data["status"].values, return_counts=True)
        return {
            "iterations": values.shape[1] - 1,
            "seeds": values.shape[0],
            "value_first": float(values[:, 0].mean()),
            "value_last": float(values[:, -1].mean()),
            "value_last_std": float(values[:, -1].std(ddof=1)) if len(values) > 1 else 0.0,
            "optimal_value": float(self.data.attrs["optimal_value"]),
            "gap_last": float(self.data.attrs["optimal_value"] - values[:, -1].mean()),
            "worst_change": float(drops.min()) if drops.size else 0.0,
            "share_of_drops": float((drops < -1e-12).mean()) if drops.size else 0.0,
            "status": {str(s): int(n) for s, n in zip(status, count, strict=True)},
        }


def _stack_seeds(theta: Any, seeds: int) -> Any:
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (seeds, *x.shape)), theta)


def run_simulator(
    simulator: Simulator,
    iterations: int,
    *,
    theta: Any = None,
    seeds: int = 1,
    seed: int = 0,
    sampled: bool = False,
    critic_rate: float = 0.5,
    tolerance: float = GAP_TOLERANCE,
    progress: Callable[[int], None] | None = None,
) -> Trace:
    """Run `iterations` iterations for every seed.

    Args:
        simulator: model and algorithm.
        theta: starting parameters (default: the uniform policy), the same for every seed, or with a
            leading axis of `seeds` when it was stacked by the caller.
        seed: of all random numbers; random orders draw one permutation an iteration for all seeds.
        sampled: updates from samples instead of exact expectations.
        critic_rate: κ of the learnt critic, where the algorithm has one.
        progress: called with the number of finished iterations.

    Raises:
        ValueError: counts below 1.
    """
    for name, count in (("iterations", iterations), ("seeds", seeds)):
        if count < 1:
            raise ValueError(f"{name} is {count}; expected at least 1")
    graph, algorithm = simulator.graph, simulator.algorithm
    single = simulator.init() if theta is None else theta
    state = _stack_seeds(single, seeds)
    rng = np.random.default_rng(seed)
    key = jax.random.key(seed)
    reference = simulator.param.log_probs(single) if algorithm.kl_coef else None
    learnt = algorithm.estimator == "gae" and algorithm.critic == "tabular"
    critic = None
    if learnt:
        critic = _stack_seeds(critics.zeros(simulator.param.log_probs(single)), seeds)
        fit_critic = jax.jit(jax.vmap(_critic_step(simulator, sampled, critic_rate)))
    random = sampled or simulator.plan.method == "monte-carlo"
    best = optimum(graph).value
    values = [np.asarray(jax.jit(jax.vmap(simulator.value))(state))]
    rows: dict[str, list[np.ndarray]] = {"values": [], "surrogate_gain": [], "worst_row_gain": []}
    turns: list[list[int]] = []
    for k in range(iterations):
        order = simulator.order(rng)
        keys = jax.random.split(jax.random.fold_in(key, k), seeds) if random else None
        if learnt:
            critic_keys = jax.random.split(jax.random.fold_in(key, iterations + k), seeds)
            critic = fit_critic(state, critic, critic_keys)
        outcome = simulator.update(
            state,
            order=order,
            key=keys,
            reference=reference,
            critic=critic,
            sampled=sampled,
            batched=True,
        )
        state = outcome.theta
        values.append(np.asarray(outcome.values[:, -1]))
        for name in rows:
            rows[name].append(np.asarray(getattr(outcome, name)))
        turns.append([-1] if order is None else list(order))
        if progress is not None:
            progress(k + 1)
    value = np.stack(values, axis=1)
    spread = max(float(np.ptp(graph.leaf_values)), np.finfo(float).tiny)
    finite = np.isfinite(value).all(axis=1)
    close = best - value[:, -1] <= tolerance * spread
    status = np.where(~finite, "non-finite", np.where(close, "converged", "out-of-steps"))
    data = xr.Dataset(
        {
            "value": (("seed", "step"), value),
            "update_value": (("seed", "iteration", "update"), np.stack(rows["values"], axis=1)),
            "surrogate_gain": (
                ("seed", "iteration", "update"),
                np.stack(rows["surrogate_gain"], axis=1),
            ),
            "worst_row_gain": (
                ("seed", "iteration", "update"),
                np.stack(rows["worst_row_gain"], axis=1),
            ),
            "updated_turn": (("iteration", "update"), np.asarray(turns)),
            "status": (("seed",), status),
        },
        coords={"seed": np.arange(seeds), "step": np.arange(iterations + 1)},
        attrs={
            "title": "seeupo trace",
            "model": graph.name or "unnamed",
            "algorithm": algorithm.name,
            "switches": repr(algorithm),
            "parametrisation": simulator.param.name,
            "group_size": str(simulator.settings.group_size),
            "contexts_per_batch": str(simulator.settings.contexts_per_batch),
            "expectation": "sampled" if sampled else simulator.plan.method,
            "first_seed": seed,
            "optimal_value": best,
        },
    )
    batched = jax.vmap(simulator.param.log_probs)(state)
    tables = [np.asarray(t).sum(-1) if t.ndim == 4 else np.asarray(t) for t in batched]
    return Trace(data, [np.exp(t) for t in tables])


def _critic_step(simulator: Simulator, sampled: bool, rate: float) -> Any:
    lowered, settings = simulator.lowered, simulator.settings

    def step(theta: Any, critic: Any, key: Any) -> Any:
        tables = simulator.param.log_probs(theta)
        if sampled:
            shape = (int(settings.contexts_per_batch), int(settings.group_size))
            batch = draw(lowered, tables, *shape, key)
            targets = critics.sampled_targets(lowered, tables, batch, settings.discount)
        else:
            targets = critics.expected_targets(lowered, tables, settings.discount)
        return critics.fit(critic, targets, rate)

    return step
