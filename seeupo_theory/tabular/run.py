"""Many iterations, recorded: `run_simulator`.

Iterations run in compiled blocks (`jax.lax.scan`) over all seeds at once; a random order, which
changes from one iteration to the next, is one program an order.  The result is a
`seeupo_theory.tabular.trace.Trace`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax import Array

from bandits.limits import require_fits
from seeupo_theory.tabular import critic as critics
from seeupo_theory.tabular.diagnostics import divergence, entropy
from seeupo_theory.tabular.evaluate import optimum
from seeupo_theory.tabular.lowering import Lowered
from seeupo_theory.tabular.sampling import draw
from seeupo_theory.tabular.simulator import Simulator
from seeupo_theory.tabular.surrogate import value
from seeupo_theory.tabular.trace import DROP_RTOL, GAP_TOLERANCE, Trace

__all__ = ["GAP_TOLERANCE", "Trace", "run_simulator"]

BLOCK = 50
"""Iterations compiled into one scan, after which progress is reported."""


class _State(NamedTuple):
    theta: Any
    critic: Any


def _stack(tree: Any, seeds: int) -> Any:
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (seeds, *jnp.shape(x))), tree)


def run_simulator(
    simulator: Simulator,
    iterations: int,
    *,
    theta: Any = None,
    stacked: bool = False,
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
        theta: starting parameters of all seeds (default: the uniform policy).
        stacked: θ has a leading axis of seeds, one start each.
        seed: of all random numbers; random orders draw one permutation an iteration for all seeds.
        sampled: updates from samples instead of exact expectations.
        critic_rate: κ of the learnt critic, where the algorithm has one.
        tolerance: gap that counts as converged, relative to the spread of the returns.  The gap is
            to the optimum of full information, which a policy that sees less may never reach.
        progress: called with the number of finished iterations, after every block.

    Raises:
        ValueError: counts below 1, a stacked θ of another number of seeds.
    """
    for name, count in (("iterations", iterations), ("seeds", seeds)):
        if count < 1:
            raise ValueError(f"{name} is {count}; expected at least 1")
    start = simulator.init() if theta is None else theta
    numbers = 8 * seeds * (iterations + 1)
    settings = simulator.settings
    if sampled:
        members = settings.group_size * settings.contexts_per_batch
        if math.isfinite(members):
            rows = int(8 * seeds * members * simulator.graph.turns)
            require_fits(rows, f"batches of {members:g} trajectories for {seeds} seeds")
    require_fits(numbers, f"the record of {iterations} iterations and {seeds} seeds")
    for leaf in jax.tree.leaves(start) if stacked else ():
        if not jnp.ndim(leaf) or len(leaf) != seeds:
            raise ValueError(
                f"theta has a leaf of shape {jnp.shape(leaf)}; stacked, it should have a leading "
                f"axis of {seeds} seeds"
            )
    many = start if stacked else _stack(start, seeds)
    tables = jax.vmap(simulator.param.log_probs)(many)
    state = _State(many, jax.vmap(critics.zeros)(tables) if _learns(simulator) else None)
    reference = tables if simulator.algorithm.kl_coef else None
    rates = jnp.asarray(float(simulator.algorithm.lr)), jnp.asarray(float(critic_rate))
    describe = simulator.compiled(
        "describe", lambda: jax.jit(jax.vmap(partial(_describe, simulator), in_axes=(None, 0)))
    )
    first = describe(simulator.lowered, many)
    rng, key = np.random.default_rng(seed), jax.random.key(seed)
    random = sampled or simulator.plan.method == "monte-carlo"
    length = (
        1 if simulator.algorithm.order == "random" else -(-iterations // -(-iterations // BLOCK))
    )
    records, turns, done = [], [], 0
    while done < iterations:
        order = simulator.order(rng)
        steps = np.arange(done, done + length)
        keys = None
        if random:
            # one stream a seed, whatever the number of seeds and iterations
            keys = jax.vmap(lambda k: jax.vmap(lambda s: _fold(key, k, s))(np.arange(seeds)))(steps)
        block = simulator.compiled(
            ("run", order, sampled), partial(_program, simulator, order, sampled)
        )
        state, record = block(simulator.lowered, rates, state, keys, steps < iterations, reference)
        kept = min(length, iterations - done)
        records.append({k: np.asarray(v)[:kept] for k, v in record.items()})
        turns += [[-1] if order is None else list(order)] * kept
        done += kept
        if progress is not None:
            progress(done)
    whole = {k: np.moveaxis(np.concatenate([r[k] for r in records]), 0, 1) for k in records[0]}
    whole["value"], whole["entropy"] = (
        np.concatenate([np.asarray(x)[:, None], whole[k]], axis=1)
        for k, x in zip(("value", "entropy"), first, strict=True)
    )
    attrs = {"expectation": "sampled" if sampled else simulator.plan.method, "first_seed": seed}
    data = _dataset(simulator, whole, turns, tolerance, attrs)
    final = jax.vmap(simulator.param.log_probs)(state.theta)
    policy = [np.exp(np.asarray(t).sum(-1) if t.ndim == 4 else np.asarray(t)) for t in final]
    return Trace(data, policy)


def _fold(key: Array, step: Array, seed: Array) -> Array:
    return jax.random.fold_in(jax.random.fold_in(key, step), seed)


def _learns(simulator: Simulator) -> bool:
    return simulator.algorithm.estimator == "gae" and simulator.algorithm.critic == "tabular"


def _describe(simulator: Simulator, lowered: Lowered, theta: Any) -> tuple[Array, Array]:
    """(J, entropy) of one seed."""
    tables = simulator.param.log_probs(theta)
    return value(lowered, tables), entropy(lowered, tables)


def _fitted(
    simulator: Simulator, sampled: bool, lowered: Lowered, state: _State, key: Any, rate: Array
) -> Any:
    """The learnt critic after one more fit to the policy that is about to be updated."""
    settings, tables = simulator.settings, simulator.param.log_probs(state.theta)
    if sampled:
        shape = (int(settings.contexts_per_batch), int(settings.group_size))
        batch = draw(lowered, tables, *shape, key)
        targets = critics.sampled_targets(lowered, tables, batch, settings.discount)
    else:
        targets = critics.expected_targets(lowered, tables, settings.discount)
    return critics.fit(state.critic, targets, rate)


def _program(simulator: Simulator, order: tuple[int, ...] | None, sampled: bool) -> Any:
    """Some iterations of all seeds, compiled: (state, records [iteration, seed, ...])."""
    step, param = simulator.step(order, sampled=sampled), simulator.param

    def one(
        lowered: Lowered, rates: tuple[Array, Array], live: Array, state: _State, key: Any, ref: Any
    ) -> tuple[_State, dict[str, Array]]:
        before, critic = param.log_probs(state.theta), None
        if state.critic is not None:
            key, key_critic = (None, None) if key is None else tuple(jax.random.split(key))
            critic = _fitted(simulator, sampled, lowered, state, key_critic, rates[1])
        outcome = step(lowered, state.theta, rates[0], key=key, reference=ref, critic=critic)
        after = param.log_probs(outcome.theta)
        record = {
            "value": outcome.values[-1],
            "entropy": entropy(lowered, after),
            "kl": divergence(lowered, after, before),
            "update_value": outcome.values,
            "surrogate_gain": outcome.surrogate_gain,
            "worst_row_gain": outcome.worst_row_gain,
            "clip_fraction": outcome.clip_fraction,
            "standard_error": outcome.standard_error,
        }
        new = _State(outcome.theta, critic)
        return jax.tree.map(lambda a, b: jnp.where(live, a, b), new, state), record

    def block(
        lowered: Lowered, rates: Any, state: _State, keys: Any, live: Array, ref: Any
    ) -> tuple[_State, dict[str, Array]]:
        def body(carry: _State, at: tuple[Any, Array]) -> Any:
            each = jax.vmap(partial(one, lowered, rates, at[1]))
            return each(carry, at[0], ref)

        return jax.lax.scan(body, state, (keys, live))

    return jax.jit(block)


def _dataset(
    simulator: Simulator,
    whole: dict[str, np.ndarray],
    turns: list[list[int]],
    tolerance: float,
    attrs: dict[str, Any],
) -> xr.Dataset:
    graph, settings = simulator.graph, simulator.settings
    best = optimum(graph).value
    values = whole["value"]
    whole["gap"] = best - values
    largest = float(np.abs(graph.leaf_values).max())
    spread = max(float(np.ptp(graph.leaf_values)), np.finfo(float).tiny)
    path = np.concatenate([values[:, :-1, None], whole["update_value"]], axis=2)
    whole["drop"] = (np.diff(path, axis=2) < -DROP_RTOL * largest).astype(np.int8)
    finite = np.isfinite(values).all(axis=1)
    close = whole["gap"][:, -1] <= tolerance * spread
    status = np.where(~finite, "non-finite", np.where(close, "converged", "out-of-steps"))
    inner = ("seed", "iteration", "update")
    dims = {"value": ("seed", "step"), "gap": ("seed", "step"), "entropy": ("seed", "step")}
    dims |= {"kl": inner[:2], "standard_error": inner[:2]}
    variables: dict[str, Any] = {k: (dims.get(k, inner), v) for k, v in whole.items()}
    variables["updated_turn"] = (inner[1:], np.asarray(turns))
    variables["status"] = (inner[:1], status)
    return xr.Dataset(
        variables,
        coords={"seed": np.arange(values.shape[0]), "step": np.arange(values.shape[1])},
        attrs={
            "title": "seeupo trace",
            "model": graph.name or "unnamed",
            "algorithm": simulator.algorithm.name,
            "switches": repr(simulator.algorithm),
            "parametrisation": settings.param.name,
            "group_size": str(settings.group_size),
            "contexts_per_batch": str(settings.contexts_per_batch),
            "optimal_value": best,
            "drop_tolerance": DROP_RTOL * largest,
            **attrs,
        },
    )
