r"""One iteration from samples: B contexts, G trajectories each, the same rules on the rows.

Where `seeupo_theory.tabular.update` sums over everything that could be sampled, this module draws
a batch and calls the same estimator, objective and running factor on its rows, as a training run
does.  It is the independent Monte Carlo route of the tests, and what `run(expectation="sampled")`
repeats over many seeds with `jax.vmap`.

Scaling: the surrogate of a turn is the *mean* over the B·G rows, the sample version of
:math:`\sum_\tau \pi_k(\tau)`, so step sizes mean the same as in the exact update.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from seeupo_theory.rules import factor as factor_rule
from seeupo_theory.rules.kl import kl_penalty
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.tabular.dynamics import at_nodes, backup, joint, leaf_mean, probabilities
from seeupo_theory.tabular.lowering import Lowered
from seeupo_theory.tabular.policies import Tables
from seeupo_theory.tabular.surrogate import turn_advantages, value
from seeupo_theory.tabular.update import Outcome, Settings, _ascend

__all__ = ["Batch", "draw", "iterate_sampled"]


class Batch(NamedTuple):
    """Sampled rows: R = B·G trajectories, in the order context-major.

    Attributes:
        context: [R].
        rows: T arrays [R], the policy row seen.
        actions: T arrays [R].
        active: T arrays [R], False at no-op turns.
        returns: [R] total (discounted) return.
        node: T arrays [R], the node visited.
    """

    context: Array
    rows: tuple[Array, ...]
    actions: tuple[Array, ...]
    active: tuple[Array, ...]
    returns: Array
    node: tuple[Array, ...]


def draw(lowered: Lowered, tables: Tables, contexts: int, group: int, key: Array) -> Batch:
    """Draw `contexts` contexts with replacement and `group` trajectories of each."""
    keys = jax.random.split(key, 2 * lowered.turns + 2)
    c = jax.random.choice(
        keys[0], lowered.context_probs.shape[0], (contexts,), p=lowered.context_probs
    )
    node = jnp.repeat(c, group)
    context, rows, actions, active, nodes = node, [], [], [], []
    for t, (layer, table) in enumerate(zip(lowered.layers, tables, strict=True)):
        row = node if layer.observation is None else layer.observation[node]
        action = jax.random.categorical(keys[2 * t + 1], joint(table)[row], axis=-1)
        rows.append(row)
        actions.append(action)
        nodes.append(node)
        on = jnp.ones(node.shape, bool) if layer.active is None else layer.active[node]
        active.append(on)
        flat = node * table.shape[1] + action
        if layer.source is None or layer.target is None or layer.prob is None:
            node = flat
        else:
            node = _follow(layer.source, layer.target, layer.prob, flat, keys[2 * t + 2])
    atom = jax.random.categorical(keys[-1], jnp.log(lowered.leaf_probs[node]), axis=-1)
    returns = jnp.take_along_axis(lowered.leaf_values[node], atom[:, None], axis=1)[:, 0]
    return Batch(context, tuple(rows), tuple(actions), tuple(active), returns, tuple(nodes))


def _follow(source: Array, target: Array, prob: Array, flat: Array, key: Array) -> Array:
    """Sample an edge of each flat (node, action); edges are sorted by source."""
    total = jnp.cumsum(prob)
    first = jnp.searchsorted(source, flat, side="left")
    last = jnp.searchsorted(source, flat, side="right") - 1
    floor = jnp.where(first > 0, total[first - 1], 0.0)
    mark = floor + jax.random.uniform(key, flat.shape) * (total[last] - floor)
    edge = jnp.clip(jnp.searchsorted(total, mark, side="right"), first, last)
    return target[edge]


def iterate_sampled(
    settings: Settings,
    order: Sequence[int] | None,
    lowered: Lowered,
    theta: Any,
    lr: Array,
    *,
    key: Array,
    reference: Tables | None = None,
    critic: Tables | None = None,
) -> Outcome:
    """One iteration on a sampled batch; arguments as `seeupo_theory.tabular.update.iterate`.

    `settings.group_size` and `settings.contexts_per_batch` must be finite: they are the batch.
    The reported values are exact, the step is not.
    """
    algorithm, param = settings.algorithm, settings.param
    contexts, group = int(settings.contexts_per_batch), int(settings.group_size)
    sampling = param.log_probs(theta)
    reference = sampling if reference is None else reference
    batch = draw(lowered, sampling, contexts, group, key)
    before = value(lowered, sampling)
    advantages = _row_advantages(settings, lowered, sampling, batch, critic)
    ascend = partial(_ascend, lr=lr, epochs=algorithm.epochs, guard=algorithm.guard)
    values, gains, worst = [], [], []

    def record(new: Any, start: Array, end: Array) -> None:
        values.append(value(lowered, param.log_probs(new)))
        gains.append(end - start)
        worst.append(end - start)

    if algorithm.credit == "trajectory":

        def bound(x: Any) -> Array:
            tables = param.log_probs(x)
            new = sum(_taken(batch, tables, t, "sequence") for t in range(lowered.turns))
            old = sum(_taken(batch, sampling, t, "sequence") for t in range(lowered.turns))
            one = jnp.ones_like(advantages[0])
            return jnp.mean(algorithm.objective_rule()(new, old, advantages[0], one))

        start = bound(theta)
        theta = ascend(bound, theta)
        record(theta, start, bound(theta))
        return Outcome(theta, before, *map(jnp.stack, (values, gains, worst)), jnp.zeros(()))

    running = jnp.ones(contexts * group)
    groups = [list(range(lowered.turns))] if order is None else [[t] for t in order]
    for turns in groups:
        current = param.log_probs(theta)
        old = current if algorithm.reference == "current" else sampling

        def objective(
            x: Any, turns: list[int] = turns, old: Tables = old, running: Array = running
        ) -> Array:
            tables = param.log_probs(x)
            total = jnp.zeros(())
            for t in turns:
                total += _row_mean(
                    algorithm, batch, tables, old, reference, running * advantages[t], t
                )
            return total

        start = objective(theta)
        theta = ascend(objective, theta)
        record(theta, start, objective(theta))
        tables = param.log_probs(theta)
        if order is not None:
            for t in turns:
                level = "sequence" if algorithm.level == "token" else algorithm.level
                running = factor_rule.advance(
                    running,
                    _taken(batch, tables, t, "token"),
                    _taken(batch, old, t, "token"),
                    active=batch.active[t],
                    level=level,
                    factor_clip=algorithm.factor_clip,
                    product_clip=algorithm.product_clip,
                )
    return Outcome(theta, before, *map(jnp.stack, (values, gains, worst)), jnp.zeros(()))


def _taken(batch: Batch, tables: Tables, turn: int, level: str) -> Array:
    """Log-probability of the sampled actions of a turn: [R], or [R, L] at token level."""
    table = tables[turn]
    if table.ndim == 2:
        table = table[..., None]
    picked = table[batch.rows[turn], batch.actions[turn]]
    if level == "token":
        return picked
    return (jnp.mean if level == "length-normalised" else jnp.sum)(picked, axis=-1)


def _row_mean(
    algorithm: Algorithm,
    batch: Batch,
    tables: Tables,
    old: Tables,
    reference: Tables,
    advantage: Array,
    turn: int,
) -> Array:
    """Sampled surrogate of a turn: the mean over rows, no-op turns counting 0."""
    new_rows = _taken(batch, tables, turn, algorithm.level)
    old_rows = _taken(batch, old, turn, algorithm.level)
    weight = batch.active[turn].astype(float)
    if new_rows.ndim == 2:
        advantage, weight = advantage[:, None], weight[:, None]
    one = jnp.ones_like(new_rows)
    terms = algorithm.objective_rule()(new_rows, old_rows, advantage * one, weight * one)
    total = jnp.sum(terms)
    if algorithm.kl_coef:
        penalty = kl_penalty(
            _taken(batch, tables, turn, "sequence"),
            _taken(batch, reference, turn, "sequence"),
            algorithm.kl_kind,
        )
        total -= algorithm.kl_coef * jnp.sum(jnp.where(batch.active[turn], penalty, 0.0))
    return total / batch.returns.shape[0]


def _row_advantages(
    settings: Settings, lowered: Lowered, tables: Tables, batch: Batch, critic: Tables | None
) -> list[Array]:
    """Advantage of every row at every turn, T arrays [R]."""
    algorithm = settings.algorithm
    shape = (int(settings.contexts_per_batch), int(settings.group_size))
    if algorithm.estimator not in ("gae", "exact"):
        rows = algorithm.advantage_rule()(batch.returns.reshape(shape)).reshape(-1)
        return [rows] * lowered.turns
    states, actions = backup(
        lowered, probabilities(lowered, tables), leaf_mean(lowered, lowered.leaf_values)
    )
    if algorithm.estimator == "exact":
        return [
            actions[t][batch.node[t], batch.actions[t]] - states[t][batch.node[t]]
            for t in range(lowered.turns)
        ]
    values = []
    for t, layer in enumerate(lowered.layers):
        if critic is not None:
            values.append(at_nodes(layer, critic[t])[batch.node[t]])
        else:
            paid = 0.0 if lowered.node_return is None else lowered.node_return[t]
            values.append((states[t] - paid)[batch.node[t]] / settings.discount**t)
    advantage = turn_advantages(
        lowered,
        algorithm,
        settings.discount,
        batch.node,
        batch.returns[:, None],
        jnp.stack(values, axis=-1),
    )[:, 0, :]
    limit = algorithm.advantage_clip
    if limit is not None:
        advantage = jnp.clip(advantage, -limit, limit)
    return [advantage[:, t] for t in range(lowered.turns)]
