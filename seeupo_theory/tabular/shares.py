r"""Two experiments on random instances: how often does an iteration fail?

**Drops under shared weights** (`drops`).  A log-linear policy
:math:`\pi_t(a|o) \propto \exp(\phi_t(o,a)\cdot\theta)` serves both turns of a two-turn bandit with
three actions and full history: features standard normal [2], θ normal with standard deviation 0.3,
rewards uniform on [0, 1].  A turn's update moves the other turn's policy, and nothing in its
objective holds it: SeeUPO's iteration can lower J although every surrogate rises.  The clipped ratio
of whole trajectories (`trajectory-ppo`) has a surrogate F ≤ ΔJ for every parametrisation, so that
a drop needs F < 0, which its guard refuses.

**Trees that stay stuck** (`share_of_stuck`).  Greedy steps on the true advantage, on the histories
that the policy reaches: a turn that commits itself before its suffix has improved never comes back.
Trees with rewards uniform on [0, 1], all histories reached at the start (softmax of standard normal
logits).  Where every action keeps some probability, none can get stuck.

>>> result = drops(Algorithm(normalise="none"), lr=0.5, n=64)
>>> result.values.shape, 0 <= result.share < 0.5
((64, 2), True)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seeupo_theory.rules.orders import turn_order
from seeupo_theory.rules.presets import Algorithm, get
from seeupo_theory.tabular.ensembles import Ensemble, Instances, iterate_all
from seeupo_theory.tabular.evaluate import TIE_ATOL
from seeupo_theory.tabular.trace import DROP_RTOL

__all__ = ["Drops", "drops", "random_trees", "share_of_stuck", "shared_instances"]

THETA_SPREAD = 0.3
"""Standard deviation of the starting θ: policies are neither uniform nor nearly deterministic."""


@dataclass(frozen=True)
class Drops:
    """One iteration of an algorithm on n instances of U updates.

    Attributes:
        value_before: [n] J before.
        values: [n, U] J after each update.
        surrogate_gain, worst_row_gain: [n, U], see `seeupo_theory.tabular.update.Outcome`.
    """

    value_before: np.ndarray
    values: np.ndarray
    surrogate_gain: np.ndarray
    worst_row_gain: np.ndarray

    @property
    def change(self) -> np.ndarray:
        """Change of J over the iteration, [n]."""
        return self.values[:, -1] - self.value_before

    @property
    def share(self) -> float:
        """Share of instances whose J fell, beyond rounding."""
        return float((self.change < -DROP_RTOL).mean())

    @property
    def worst(self) -> float:
        """Least change of J."""
        return float(self.change.min())


def shared_instances(
    n: int,
    seed: int,
    *,
    actions: tuple[int, ...] = (3, 3),
    dimension: int = 2,
    spread: float = THETA_SPREAD,
) -> tuple[Ensemble, Instances]:
    """Bandits with one context, uniform rewards, and one log-linear policy for all turns."""
    rng = np.random.default_rng(seed)
    ensemble = Ensemble(actions, param="log-linear", dimension=dimension)
    leaves = ensemble.leaves
    rows = np.cumprod([1, *actions[:-1]])
    rewards = rng.random((n, leaves, 1))
    features = tuple(
        rng.standard_normal((n, o, a, dimension)) for o, a in zip(rows, actions, strict=True)
    )
    theta = spread * rng.standard_normal((n, dimension))
    ones = np.ones((n, 1))
    return ensemble, Instances(ones, rewards, np.ones((n, leaves, 1)), theta, features)


def drops(
    algorithm: str | Algorithm,
    lr: float,
    n: int = 1000,
    seed: int = 0,
    *,
    actions: tuple[int, ...] = (3, 3),
    dimension: int = 2,
    spread: float = THETA_SPREAD,
) -> Drops:
    """One iteration on n random instances of `shared_instances`, in exact expectation.

    Raises:
        ValueError: an unknown algorithm, one with a random order or with ideal steps.
    """
    rule = get(algorithm)
    if rule.order == "random" or rule.ideal:
        raise ValueError(
            f"algorithm {rule.name!r} has a random order or ideal steps; expected gradient steps "
            "in a fixed order, or simultaneous"
        )
    ensemble, instances = shared_instances(
        n, seed, actions=actions, dimension=dimension, spread=spread
    )
    order = None if rule.simultaneous else turn_order(rule.order, len(actions))
    out = iterate_all(ensemble, rule, instances, lr=lr, order=order)
    return Drops(
        *map(np.asarray, (out.value_before, out.values, out.surrogate_gain, out.worst_row_gain))
    )


def random_trees(n: int, seed: int, turns: int, actions: int) -> tuple[Ensemble, Instances]:
    """Trees with one context, uniform rewards, and independent tables that reach everything."""
    rng = np.random.default_rng(seed)
    ensemble = Ensemble((actions,) * turns)
    leaves = ensemble.leaves
    rewards = rng.random((n, leaves, 1))
    logits = [rng.standard_normal((n, actions**t, actions)) for t in range(turns)]
    theta = tuple(x - np.log(np.exp(x).sum(axis=-1, keepdims=True)) for x in logits)
    return ensemble, Instances(np.ones((n, 1)), rewards, np.ones((n, leaves, 1)), theta, None)


def share_of_stuck(
    order: str,
    n: int = 500,
    seed: int = 0,
    *,
    turns: int = 4,
    actions: int = 2,
    keep: float = 0.0,
    sweeps: int | None = None,
) -> float:
    """Share of random trees whose greedy sweeps end below the optimum.

    Args:
        order: "reverse", "forward", or "random" (a permutation for each tree and sweep).
        keep: probability that is spread evenly over the actions after every step; the optimum is
            then that of the policies that keep it.
        sweeps: how many, default T + 1 (the order that needs most needs T).

    >>> share_of_stuck("reverse", n=32, turns=2)
    0.0
    """
    rule = get("haml-greedy").replace(support="reached")
    ensemble, instances = random_trees(n, seed, turns, actions)
    rng = np.random.default_rng(seed + 1)
    best = _best(instances.leaf_values[..., 0], turns, actions, keep)
    for _ in range(turns + 1 if sweeps is None else sweeps):
        orders = np.array([turn_order(order, turns, rng) for _ in range(n)])
        for place in range(turns):
            for turn in np.unique(orders[:, place]):
                chosen = orders[:, place] == turn
                out = iterate_all(ensemble, rule, instances, order=(int(turn),))
                with np.errstate(divide="ignore"):
                    table = np.log((1 - keep) * np.exp(out.theta[turn]) + keep / actions)
                theta = list(instances.theta)
                theta[turn] = np.where(chosen[:, None, None], table, theta[turn])
                instances = instances._replace(theta=tuple(theta))
    value = np.asarray(iterate_all(ensemble, rule, instances, order=(0,)).value_before)
    return float((value < best - TIE_ATOL).mean())


def _best(rewards: np.ndarray, turns: int, actions: int, keep: float) -> np.ndarray:
    """Best J when each action keeps probability keep / A, by backward induction, [n]."""
    for _ in range(turns):
        rewards = rewards.reshape(rewards.shape[0], -1, actions)
        rewards = (1 - keep) * rewards.max(axis=-1) + keep * rewards.mean(axis=-1)
    return rewards[:, 0]
