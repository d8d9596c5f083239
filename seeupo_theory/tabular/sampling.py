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
from seeupo_theory.tabular.dynamics import joint
from seeupo_theory.tabular.gae import critic_values, turn_advantages
from seeupo_theory.tabular.lowering import Lowered
from seeupo_theory.tabular.policies import Tables
from seeupo_theory.tabular.surrogate import cut_share, value
from seeupo_theory.tabular.update import Outcome, Settings, ascend
from seeupo_theory.tabular.weights import LocalAdvantage, with_tokens

__all__ = ["Batch", "Rows", "draw", "iterate_sampled"]


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

    `settings.group_size` and `settings.contexts_per_batch` must be finite: they are the batch.  An
    algorithm that resamples draws such a batch before every turn's update.  The reported values are
    exact, the step is not; a sampled surrogate has no rows, so `worst_row_gain` is its whole rise.
    """
    algorithm, param = settings.algorithm, settings.param
    sampling = param.log_probs(theta)
    reference = sampling if reference is None else reference
    before = value(lowered, sampling)
    groups = [list(range(lowered.turns))] if order is None else [[t] for t in order]
    keys = jax.random.split(key, len(groups))
    rows = Rows(settings, lowered, sampling, critic, keys[0])
    climb = partial(ascend, lr=lr, epochs=algorithm.epochs, guard=algorithm.guard)
    values, gains, clipped = [], [], []
    for step, turns in enumerate(groups):
        current = param.log_probs(theta)
        old = current if algorithm.reference == "current" else sampling
        if algorithm.resample:
            old = current
            if step:
                rows = Rows(settings, lowered, current, critic, keys[step])
        if algorithm.credit == "trajectory":
            surrogate, cut = rows.trajectory, rows.trajectory_cut
        else:
            weighted = {t: rows.weighted(t) for t in turns}
            surrogate, cut = partial(rows.surrogate, weighted), partial(rows.cut, weighted)

        def objective(x: Any, surrogate: Any = surrogate, old: Tables = old) -> Array:
            return surrogate(param.log_probs(x), old, reference)

        start = objective(theta)
        theta, last = climb(objective, theta)
        tables = param.log_probs(theta)
        values.append(value(lowered, tables))
        gains.append(objective(theta) - start)
        clipped.append(cut(param.log_probs(last), old))
        if order is not None and not algorithm.resample:
            for t in turns:
                rows.advance(t, tables, old)
    rise = jnp.stack(gains)
    return Outcome(theta, before, jnp.stack(values), rise, rise, jnp.stack(clipped), jnp.zeros(()))


class Rows:
    """A batch with the advantage and the running factor of every row."""

    def __init__(
        self,
        settings: Settings,
        lowered: Lowered,
        tables: Tables,
        critic: Tables | None,
        key: Array,
    ):
        shape = (int(settings.contexts_per_batch), int(settings.group_size))
        self.algorithm = settings.algorithm
        self.batch = draw(lowered, tables, *shape, key)
        self.running = jnp.ones(shape[0] * shape[1])
        self.local: LocalAdvantage | None = None
        self.factors: dict[int, Array] = {}  # of the turns already updated
        if self.algorithm.estimator == "exact":
            self.local = LocalAdvantage(lowered, tables)
        elif self.algorithm.estimator == "gae":
            nodes, returns = self.batch.node, self.batch.returns[:, None]
            values = critic_values(lowered, tables, settings.discount, critic, nodes)
            every = turn_advantages(
                lowered, self.algorithm, settings.discount, nodes, returns, values
            )
            self.advantages = [every[:, 0, t] for t in range(lowered.turns)]
        else:
            rule = self.algorithm.advantage_rule()
            flat = jnp.reshape(rule(jnp.reshape(self.batch.returns, shape)), (-1,))
            self.advantages = [flat] * lowered.turns

    def weighted(self, turn: int) -> Array:
        """Advantage of a turn times the running factor, M [R].

        The true advantage already looks ahead through the updated turns, so that only the factors
        of the turns before this one remain.
        """
        if self.local is None:
            return self.running * self.advantages[turn]
        out = self.local.advantage(turn)[self.batch.node[turn], self.batch.actions[turn]]
        for t, factor in self.factors.items():
            out = out * factor if t < turn else out
        return out

    def advance(self, turn: int, new: Tables, old: Tables) -> None:
        """Multiply the running factor of every row by the ratio of an updated turn (Eq. 8)."""
        a = self.algorithm
        one = jnp.ones_like(self.running)
        paths = self.taken(new, turn, "token"), self.taken(old, turn, "token")
        step = partial(
            factor_rule.advance,
            active=self.batch.active[turn],
            level=a.factor_level,
            factor_clip=a.factor_clip,
        )
        self.factors[turn] = step(one, *paths)
        self.running = step(self.running, *paths, product_clip=a.product_clip)
        if self.local is not None:
            self.local.advance(turn, new[turn], old[turn], a)

    def taken(self, tables: Tables, turn: int, level: str) -> Array:
        """Log-probability of the sampled actions of a turn: [R], or [R, L] at token level."""
        picked = with_tokens(tables[turn])[self.batch.rows[turn], self.batch.actions[turn]]
        if level == "token":
            return picked
        return (jnp.mean if level == "length-normalised" else jnp.sum)(picked, axis=-1)

    def _samples(
        self, turn: int, weighted: Array, new: Tables, old: Tables
    ) -> tuple[Array, Array, Array, Array]:
        """(new, old, M, weight) of what the objective calls one sample, all [R] or [R, L]."""
        mine, theirs = (self.taken(x, turn, self.algorithm.level) for x in (new, old))
        pair = weighted, self.batch.active[turn].astype(float)
        advantage, weight = (
            jnp.broadcast_to(x[:, None], mine.shape) if mine.ndim == 2 else x for x in pair
        )
        return mine, theirs, advantage, weight

    def _penalty(self, turn: int, new: Tables, reference: Tables) -> Array:
        """KL penalty, summed over rows; no-op turns feel none."""
        if not self.algorithm.kl_coef:
            return jnp.zeros(())
        mine = self.taken(new, turn, "sequence")
        wanted = self.taken(reference, turn, "sequence")
        usable = self.batch.active[turn] & jnp.isfinite(wanted)
        penalty = kl_penalty(
            jnp.where(usable, mine, 0.0), jnp.where(usable, wanted, 0.0), self.algorithm.kl_kind
        )
        return self.algorithm.kl_coef * jnp.sum(penalty)

    def surrogate(
        self, weighted: dict[int, Array], new: Tables, old: Tables, reference: Tables
    ) -> Array:
        """Sampled surrogate of the turns that `weighted` holds M of: mean over rows, no-ops 0."""
        rule, total = self.algorithm.objective_rule(), jnp.zeros(())
        for t, m in weighted.items():
            terms = rule(*self._samples(t, m, new, old))
            total += jnp.sum(terms) - self._penalty(t, new, reference)
        return total / self.running.shape[0]

    def cut(self, weighted: dict[int, Array], new: Tables, old: Tables) -> Array:
        """Share of Σ |M| whose gradient the clip cuts."""
        each = [self._samples(t, m, new, old) for t, m in weighted.items()]
        flat = [jnp.concatenate([jnp.ravel(x) for x in part]) for part in zip(*each, strict=True)]
        return self._share(*flat)

    def _share(self, new: Array, old: Array, advantage: Array, weight: Array) -> Array:
        plus, minus = jnp.maximum(advantage, 0.0), jnp.maximum(-advantage, 0.0)
        return cut_share(self.algorithm, new, old, weight * plus, weight * minus)

    def _whole(self, tables: Tables) -> Array:
        each = [
            jnp.where(self.batch.active[t], self.taken(tables, t, "sequence"), 0.0)
            for t in range(len(tables))
        ]
        return jnp.sum(jnp.stack(each), axis=0)

    def trajectory(self, new: Tables, old: Tables, reference: Tables) -> Array:
        """Mean over rows of the surrogate with one ratio, the product over all turns."""
        advantage, one = self.advantages[0], jnp.ones_like(self.running)
        terms = self.algorithm.objective_rule()(self._whole(new), self._whole(old), advantage, one)
        penalties = [self._penalty(t, new, reference) for t in range(len(new))]
        return (jnp.sum(terms) - jnp.sum(jnp.stack(penalties))) / one.shape[0]

    def trajectory_cut(self, new: Tables, old: Tables) -> Array:
        """Share of the absolute advantages whose gradient the clip cuts in `trajectory`."""
        one = jnp.ones_like(self.running)
        return self._share(self._whole(new), self._whole(old), self.advantages[0], one)
