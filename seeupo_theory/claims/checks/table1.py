"""Table 1, cell by cell: does the combination improve at every iteration, and where does it converge?

The paper gives each combination of estimator, objective and level one mark for single-turn (ST)
and one for multi-turn (MT) interaction.  Here a cell is split by what decides the answer:

{independent tables, shared parameters} × {exact group G = ∞, finite G} × {deterministic, random
reward} × {monotone improvement, global convergence}.

*Monotone*: J never falls over an iteration whose steps raise their own surrogate.  *Global*: the
algorithm ends at the best J that its policies can reach.  Shared parameters are a log-linear policy
whose weights serve all turns.  A turn is one token, so that token and sequence level coincide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seeupo_theory.claims.checks._tools import (
    Drop,
    Effort,
    describe,
    find_drop,
    fixed_order,
)
from seeupo_theory.claims.ledger import Row
from seeupo_theory.rules.presets import PRESETS, Algorithm
from seeupo_theory.tabular.ensembles import Ensemble, Instances, best_values, iterate_all, sample

__all__ = ["ROWS", "TableRow", "check"]

GROUP = 2
"""The finite group size of the grid, and the contexts of a finite batch."""

GAP = 1e-2
"""A run has converged when the gap is below this share of the spread of rewards."""

RUNS = (
    "step 2 (8 for REINFORCE), rewards in [−3, 1], probabilities of at least 1/8 at the start; "
    "a larger reward or step can saturate a softmax where no run recovers"
)

STILL = 1e-6
"""A run stands still when J moved less than this share of the spread in its last fifth."""


@dataclass(frozen=True)
class TableRow:
    """A row of the grid: a preset and the marks the paper gives its kind."""

    preset: str
    kind: str
    single_turn: str
    multi_turn: str


ROWS = (
    TableRow("ppo", "GAE + PPO clip, token", "✓", "✓"),
    TableRow("grpo", "GRAE + PPO clip, token", "✗", "✗"),
    TableRow("reinforce++", "GRAE + PPO clip, token", "✗", "✗"),
    TableRow("dr-grpo", "GRAE without std + PPO clip, token", "✗", "✗"),
    TableRow("rloo", "GRAE + REINFORCE, sequence", "✓", "✗"),
    TableRow("gspo", "GRAE + PPO clip, sequence", "✓", "✗"),
    TableRow("seeupo", "GRAE + HAML, reverse sequential", "—", "✓"),
    TableRow("seeupo-official", "SeeUPO, official code", "—", "✓"),
    TableRow("trajectory-ppo", "trajectory-level clip, guarded", "—", "—"),
)

SETTINGS: dict[str, dict[str, tuple[tuple[int, ...], ...]]] = {
    "ST": {"tabular": ((2,), (3,)), "log-linear": ((2,), (3,))},
    "MT": {"tabular": ((2, 2), (2, 3)), "log-linear": ((2, 2), (3, 3))},
}
CONTEXTS = {"ST": 2, "MT": 1}


def _scaled_only(a: Algorithm, group_size: float) -> bool:
    """E[Â] is a positive constant times the return less a baseline independent of the action.

    The constant and the baseline are one number a context, or a batch.
    """
    if a.estimator in ("gae", "exact"):
        return True
    if a.advantage_clip is not None or (a.baseline == "batch" and group_size != math.inf):
        return False
    return a.normalise == "none" or group_size == math.inf


def _theorem(a: Algorithm, turns: str, param: str, group_size: float) -> tuple[str, ...]:
    """Proofs that settle monotone improvement of this cell, if any.

    With weights shared by the contexts of a single turn the *sum* over contexts bounds the gain,
    provided that one constant scales them all, which a group's std does not.
    """
    if a.objective == "reinforce" and a.normalise == "none":
        return ("baseline-invariance", "shared-step-bound")
    if a.credit == "trajectory" and a.normalise == "none" and a.guard:
        return ("trajectory-bound",)
    plain_ratio = a.factor_clip is None and a.product_clip is None and a.reference == "behaviour"
    if param == "tabular" and plain_ratio and _scaled_only(a, group_size):
        return ("clipped-lower-bound", "performance-difference")
    if turns == "ST" and plain_ratio and a.normalise != "group" and _scaled_only(a, group_size):
        return ("clipped-lower-bound",)
    return ()


def _ensembles(turns: str, param: str) -> list[Ensemble]:
    return [
        Ensemble(shape, contexts=CONTEXTS[turns], atoms=2, param=param)
        for shape in SETTINGS[turns][param]
    ]


def _safe_lr(ensembles: list[Ensemble], count: int, reward: str) -> float:
    r"""A step of at most 1/L for REINFORCE on every instance that will be drawn.

    J is L-smooth with L = R (S² + H): R half the spread of rewards, S a bound of the norm of
    ∇ log π(τ), H one of its Hessian.  With features of norm at most b: S = 2 b T, H = b² T; with
    independent logits S² = 2 T, H = T.
    """
    smallest = math.inf
    for number, ensemble in enumerate(ensembles):
        instances = sample(ensemble, count, number, reward=reward)
        turns = len(ensemble.actions)
        spread = float(np.ptp(instances.leaf_values)) / 2
        if instances.features is None:
            bound = spread * 3 * turns
        else:
            b2 = max(float((f**2).sum(axis=-1).max()) for f in instances.features)
            bound = spread * (4 * b2 * turns**2 + b2 * turns)
        smallest = min(smallest, 1 / bound)
    return smallest


def _monotone(
    row: TableRow, a: Algorithm, cell: dict[str, Any], effort: Effort
) -> tuple[str, str, str, Drop, tuple[str, ...], dict[str, Any] | None]:
    ensembles = _ensembles(cell["turns"], cell["param"])
    if effort.quick:
        ensembles = ensembles[:1]
    proofs = _theorem(a, cell["turns"], cell["param"], cell["group_size"])
    lrs: tuple[float, ...] = (0.05, 0.5, 2.0)
    if a.objective == "reinforce":
        lrs = (_safe_lr(ensembles, effort.instances, cell["reward"]),)
    count = effort.instances // (4 if a.guard else 1)  # a guarded step tries many lengths
    drop = find_drop(
        a,
        ensembles,
        count,
        lrs=lrs,
        reward=cell["reward"],
        group_size=cell["group_size"],
        contexts_per_batch=cell["contexts_per_batch"],
        plant=_planted,
    )
    if drop.found is not None:
        shown = _shown(row, a, cell, drop.found, drop.values)
        text = (
            f"J falls from {drop.values[0]:.6f} to {drop.values[-1]:.6f} "
            f"({drop.drops} drops in {drop.instances} steps)"
        )
        return "refuted", "instance", text, drop, (), shown
    if proofs:
        text = f"no drop in {drop.instances} steps, smallest change {drop.margin:+.2e}"
        return "holds", "proof", text, drop, proofs, None
    text = f"searched {drop.instances} steps, smallest change {drop.margin:+.2e}; nothing proved"
    return "inconclusive", "search", text, drop, (), None


THREE_ARMS = (
    ((30.0, 1.0, 0.0), (0.01, 0.94, 0.05)),
    ((200.0, 1.0, 0.0), (0.0003, 0.984, 0.0157)),
)
"""Rewards and probabilities of three arms, a rare one of which pays most.  Divided by a group's std,
or cut at a bound, the rare reward no longer lifts the mean above the common arm's, and the update
moves towards the common arm.  Grids of random rewards and probabilities do not contain such."""


def _planted(ensemble: Ensemble, instances: Instances, reward: str) -> Instances:
    """Put the problems of `THREE_ARMS` first, where the last turn has three actions of its own."""
    if reward != "deterministic" or ensemble.param != "tabular" or ensemble.actions[-1] != 3:
        return instances
    values = instances.leaf_values.copy()
    theta = [np.copy(table) for table in instances.theta]
    for k, (rewards, probs) in enumerate(THREE_ARMS):
        values[k] = np.tile(rewards, values.shape[1] // 3)[:, None]
        theta[-1][k] = np.log(probs)
    return instances._replace(leaf_values=values, theta=tuple(theta))


def _with_wrong_sign(instances: Instances, reward: str) -> Instances:
    """Make the first instance the wrong-sign bandit at every leaf pair, from the uniform policy.

    The last turn chooses between 1/2 and a coin that pays 3/2 with probability 2/5.
    """
    if reward == "deterministic":
        return instances
    values, probs = instances.leaf_values.copy(), instances.leaf_probs.copy()
    values[0, 0::2], probs[0, 0::2] = (0.5, 0.5), (0.5, 0.5)
    values[0, 1::2], probs[0, 1::2] = (1.5, 0.0), (0.4, 0.6)
    theta = tuple(np.copy(table) for table in instances.theta)
    for table in theta:
        table[0] = -np.log(table.shape[-1])
    return instances._replace(leaf_values=values, leaf_probs=probs, theta=theta)


def _global_independent(
    row: TableRow, a: Algorithm, cell: dict[str, Any], effort: Effort
) -> tuple[str, str, str, dict[str, Any], tuple[str, ...], dict[str, Any] | None]:
    ensemble = _ensembles(cell["turns"], "tabular")[0]
    order = fixed_order(a, len(ensemble.actions))
    start = _with_wrong_sign(
        sample(ensemble, effort.runs, 7, reward=cell["reward"], prob_grid=8), cell["reward"]
    )
    lr = 8.0 if a.objective == "reinforce" else 2.0
    state, history = start, []
    for _ in range(effort.iterations):
        out = iterate_all(ensemble, a, state, lr=lr, order=order, **_sizes(cell))
        history.append(out.value_before)
        state = state._replace(theta=out.theta)
    values = np.stack([*history, out.values[:, -1]], axis=1)
    best = best_values(ensemble, start)
    spread = np.maximum(np.ptp(start.leaf_values.reshape(len(best), -1), axis=1), 1e-9)
    gap = (best - values[:, -1]) / spread
    fifth = max(1, effort.iterations // 5)
    moved = (values[:, -1] - values[:, -1 - fifth]) / spread
    stuck = (gap > GAP) & (moved < STILL)
    numbers = {
        "runs": len(gap),
        "iterations": effort.iterations,
        "lr": lr,
        "converged": int((gap <= GAP).sum()),
        "stuck": int(stuck.sum()),
        "worst_gap": float(gap.max()),
    }
    if stuck.any():
        i = int(np.where(stuck, gap, -np.inf).argmax())
        shown = _shown(row, a, cell, (ensemble, start, i, lr), values[i], effort.iterations)
        text = (
            f"{int(stuck.sum())} of {len(gap)} runs end below the optimum: "
            f"J = {values[i, -1]:.4f}, optimum {best[i]:.4f}"
        )
        return "refuted", "instance", text, numbers, (), shown
    proofs = _theorem(a, cell["turns"], "tabular", cell["group_size"])
    if (gap <= GAP).all() and proofs:
        text = (
            f"all {len(gap)} runs come within {GAP:.0%} of the optimum in {effort.iterations} "
            "iterations, and every stationary point of positive visitation is optimal"
        )
        return "holds", "argument", text, numbers, ("backward-induction", *proofs), None
    text = f"{int((gap <= GAP).sum())} of {len(gap)} runs converged, none stands still below the optimum"
    return "inconclusive", "search", text, numbers, (), None


@dataclass(frozen=True)
class Trap:
    """A shared-parameter problem with a basin that no local rule leaves."""

    ensemble: Ensemble
    start: Instances
    worse: float
    better: float


def trap(turns: str, reward: str) -> Trap:
    r"""One logit θ serves everything; both ends of it are attractive, and they pay differently.

    MT: both turns take action 1 with probability p = σ(θ) and are paid for agreeing, 1 for (0, 0)
    and 2 for (1, 1): J = (1 − p)² + 2p² falls until p = 1/3, so that from p < 1/3 every gradient
    leads to the end that pays 1.

    ST: two contexts of weight 1/2; action 1 has probability σ(θ) in the first, where it pays 1, and
    σ(−2θ) in the second, where it pays 2.  dJ/dθ = (σ'(θ) − 4 σ'(2θ)) / 2 is positive beyond
    θ ≈ 1.2, where J rises to 1/2; at θ = −4 it is already 0.98.

    With random rewards a leaf pays 0 or twice as much, each with probability one half.
    """
    if turns == "ST":
        ensemble = Ensemble((2,), contexts=2, atoms=2, param="log-linear")
        means, slopes = np.array([0.0, 1.0, 0.0, 2.0]), [np.array([1.0, -2.0])]
        theta, worse, better = 2.0, 0.5, 0.98
    else:
        ensemble = Ensemble((2, 2), atoms=2, param="log-linear")
        means, slopes = np.array([1.0, 0.0, 0.0, 2.0]), [np.ones(1), np.ones(2)]
        theta, worse, better = -2.0, 1.0, 2.0
    factor = np.array([1.0, 1.0] if reward == "deterministic" else [0.0, 2.0])
    values = (means[:, None] * factor)[None]
    features = []
    for slope in slopes:
        table = np.zeros((1, len(slope), 2, 2))
        table[0, :, 1, 0] = slope
        features.append(table)
    contexts = np.full((1, ensemble.contexts), 1 / ensemble.contexts)
    start = Instances(
        contexts, values, np.full(values.shape, 0.5), np.array([[theta, 0.0]]), tuple(features)
    )
    return Trap(ensemble, start, worse, better)


def _global_shared(
    row: TableRow, a: Algorithm, cell: dict[str, Any], effort: Effort
) -> tuple[str, str, str, dict[str, Any], tuple[str, ...], dict[str, Any] | None]:
    problem = trap(cell["turns"], cell["reward"])
    ensemble, start = problem.ensemble, problem.start
    order = fixed_order(a, len(ensemble.actions))
    state, values = start, []
    for _ in range(effort.iterations):
        out = iterate_all(ensemble, a, state, order=order, **_sizes(cell))
        values.append(float(out.value_before[0]))
        state = state._replace(theta=out.theta)
    values.append(float(out.values[0, -1]))
    numbers = {
        "iterations": effort.iterations,
        "value_first": values[0],
        "value_last": values[-1],
        "reached_elsewhere": problem.better,
        "theta_last": float(np.ravel(state.theta)[0]),
    }
    # an algorithm that had left the basin would be above what its worse end pays
    if np.isfinite(values).all() and values[-1] <= problem.worse + GAP:
        shown = _shown(row, a, cell, (ensemble, start, 0, a.lr), values, effort.iterations)
        text = (
            f"J ends at {values[-1]:.4f}, θ at {numbers['theta_last']:.2f}; the same family "
            f"reaches {problem.better:g} at the other end of θ"
        )
        return "refuted", "instance", text, numbers, (), shown
    text = f"J ends at {values[-1]:.4f} from a start in the worse basin"
    return "inconclusive", "search", text, numbers, (), None


def _sizes(cell: dict[str, Any]) -> dict[str, float]:
    return {name: cell[name] for name in ("group_size", "contexts_per_batch")}


def _switches(row: TableRow, a: Algorithm, cell: dict[str, Any]) -> dict[str, Any]:
    """Command-line switches of a cell."""
    out: dict[str, Any] = {"algorithm": row.preset}
    if cell["group_size"] != math.inf:
        out["group_size"] = int(cell["group_size"])
        if a.couples == "batch":
            out["contexts_per_batch"] = int(cell["contexts_per_batch"])
    return out


def _shown(
    row: TableRow,
    a: Algorithm,
    cell: dict[str, Any],
    found: tuple[Ensemble, Instances, int, float],
    values: Sequence[float],
    iterations: int | None = None,
) -> dict[str, Any]:
    """The instance of a refuted cell, with the command that replays it."""
    shown = describe(cell["id"], found, _switches(row, a, cell))
    shown["values"] = [float(values[0]), float(values[-1])]
    if iterations is not None:
        replay = f"seeupo run --iterations {iterations}"
        shown["command"] = shown["command"].replace("seeupo step", replay)
    return shown


def _cells(effort: Effort) -> Iterator[dict[str, Any]]:
    for turns in ("ST", "MT"):
        for param in ("tabular", "log-linear"):
            for size in (math.inf, GROUP):
                for reward in ("deterministic", "random"):
                    for question in ("monotone", "global"):
                        yield {
                            "turns": turns,
                            "param": param,
                            "group_size": size,
                            "contexts_per_batch": math.inf if size == math.inf else GROUP,
                            "reward": reward,
                            "question": question,
                        }


_NAMES = {"tabular": "independent", "log-linear": "shared"}
_ASK = {
    "monotone": "J does not fall over an iteration that lowers no surrogate, of a row where rows "
    "are independent, of an update where weights are shared",
    "global": "its stationary points of full support are optimal, and every run tried ends at the "
    "best J that its policies can reach",
}


def check(effort: Effort, row: TableRow) -> list[Row]:
    """All cells of one row of the grid."""
    algorithm = PRESETS[row.preset]
    out = []
    for cell in _cells(effort):
        group = "exact" if cell["group_size"] == math.inf else "finite"
        parts = (cell["turns"], _NAMES[cell["param"]], group, cell["reward"], cell["question"])
        cell["id"] = ".".join(("T1", row.preset, *parts))
        numbers: dict[str, Any]
        if cell["question"] == "monotone":
            verdict, how, text, drop, proofs, shown = _monotone(row, algorithm, cell, effort)
            numbers = drop.numbers()
        elif cell["param"] == "tabular":
            verdict, how, text, numbers, proofs, shown = _global_independent(
                row, algorithm, cell, effort
            )
        else:
            verdict, how, text, numbers, proofs, shown = _global_shared(
                row, algorithm, cell, effort
            )
        mark = row.single_turn if cell["turns"] == "ST" else row.multi_turn
        says = {"✓": "holds", "✗": "refuted"}.get(mark)
        assumptions = [
            "independent softmax tables a history"
            if cell["param"] == "tabular"
            else "log-linear policy, weights shared by all turns",
            f"groups of {GROUP}, exact expectation" if group == "finite" else "infinite groups",
            f"{cell['reward']} reward, undiscounted",
            "one token a turn",
        ]
        if algorithm.couples == "batch":
            many = GROUP if group == "finite" else "infinitely many"
            assumptions.append(f"statistics of a batch of {many} groups")
        if cell["question"] == "global":
            assumptions.append("steps, rewards and starts of the runs tried: " + RUNS)
        if cell["question"] == "monotone":
            assumptions.append(
                "step at most 1/L" if algorithm.objective == "reinforce" else "step 0.05, 0.5, 2"
            )
        out.append(
            Row(
                id=cell["id"],
                claim="T1",
                statement=f"{row.preset} ({row.kind}): {_ASK[cell['question']]}",
                source="Table 1",
                paper=mark,
                assumptions=tuple(assumptions),
                verdict=verdict,
                established=how,
                evidence=text,
                numbers=numbers,
                differs=None if says is None or verdict == "inconclusive" else says != verdict,
                proofs=proofs,
                instance=shown,
            )
        )
    return out
