"""C1: REINFORCE + GRAE can converge.  C3: nothing critic-free converges in multi-turn problems."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from bandits import zoo
from bandits.aliasing import AliasedModel
from seeupo_theory.claims.checks._tools import Effort, bars, find_drop
from seeupo_theory.claims.ledger import Row
from seeupo_theory.rules.presets import PRESETS
from seeupo_theory.tabular.ensembles import Ensemble
from seeupo_theory.tabular.evaluate import optimum
from seeupo_theory.tabular.run import run_simulator
from seeupo_theory.tabular.simulator import Simulator

__all__ = ["check_c1", "check_c3"]

IDENTITY_RTOL = 1e-9
"""An expected gradient equals a multiple of ∇J up to the rounding of sums over a few hundred
trajectories."""

GAP = 1e-2


QUICK = ("wrong-sign", "xor")


def _entries(effort: Effort) -> list[Any]:
    """Zoo entries whose policies see everything, small enough to run often."""
    chosen = [zoo.get(n) for n in QUICK] if effort.quick else zoo.entries()
    return [e for e in chosen if not isinstance(e.model, AliasedModel) and e.graph().leaves <= 256]


def gradient_factor(effort: Effort, group_size: int, baseline: str) -> tuple[float, float]:
    """(factor c, largest relative error) of E[ĝ] = c ∇J over the zoo, at the entries' policies."""
    algorithm = PRESETS["reinforce-grae"].replace(baseline=baseline, lr=1.0)
    factors, errors = [], []
    for entry in _entries(effort):
        simulator = Simulator(entry.model, algorithm, group_size=group_size)
        theta = simulator.init(entry.policy)
        step = simulator.update(theta, key=jax.random.key(0)).theta
        free = np.isfinite(_flat(theta))
        moved = _flat(step)[free] - _flat(theta)[free]  # −inf marks actions that are not allowed
        true = _flat(jax.grad(simulator.value)(theta))[free]
        size = float(true @ true)
        if size > 0:
            factor = float(moved @ true) / size
            factors.append(factor)
            errors.append(float(np.abs(moved - factor * true).max() / np.abs(true).max()))
    spread = max(factors) - min(factors)
    return float(np.mean(factors)), max([spread, *errors])


def _flat(tables: Any) -> np.ndarray:
    return np.concatenate([np.asarray(table).ravel() for table in tables])


def check_c1(effort: Effort) -> list[Row]:
    """C1, split into the gradient identity, convergence of tables, and what breaks it."""
    sizes = (2,) if effort.quick else (2, 3, 4, 8)
    factors = {g: gradient_factor(effort, g, "mean") for g in sizes}
    loo = {g: gradient_factor(effort, g, "loo") for g in sizes[:1]}
    error = max(e for _, e in [*factors.values(), *loo.values()])
    right = all(abs(f - (1 - 1 / g)) < IDENTITY_RTOL for g, (f, _) in factors.items())
    right &= all(abs(f - 1) < IDENTITY_RTOL for f, _ in loo.values())
    right &= error < IDENTITY_RTOL
    rows = [
        Row(
            id="C1.gradient",
            claim="C1",
            statement="E[ĝ] = (1 − 1/G) ∇J with the group mean, = ∇J with leave-one-out",
            source="abstract, §3",
            paper="REINFORCE + GRAE follows the policy gradient",
            assumptions=("any differentiable policy", "undiscounted total return"),
            verdict="holds" if right else "refuted",
            established="proof" if right else "instance",
            evidence=", ".join(f"G={g}: {f:.6f}" for g, (f, _) in factors.items())
            + f"; largest deviation {error:.1e}",
            numbers={
                "factor_mean": {g: f for g, (f, _) in factors.items()},
                "factor_loo": {g: f for g, (f, _) in loo.items()},
                "largest_deviation": error,
            },
            differs=not right,
            proofs=("baseline-invariance",) if right else (),
            figure={
                "kind": "lines",
                "x": list(factors),
                "series": {
                    "measured": [f for f, _ in factors.values()],
                    "1 − 1/G": [1 - 1 / g for g in factors],
                },
                "xlabel": "group size G",
                "ylabel": "E[ĝ] / ∇J",
            },
        )
    ]
    rows += _convergence(effort)
    rows.append(_discount())
    return rows


def _runs(effort: Effort, name: str, lr: float) -> dict[str, float]:
    """Relative gap of every zoo entry at the end of a run."""
    gaps = {}
    for entry in _entries(effort):
        simulator = Simulator(entry.model, PRESETS[name].replace(lr=lr))
        trace = run_simulator(simulator, 4 * effort.iterations)
        spread = max(float(np.ptp(simulator.graph.leaf_values)), 1e-12)
        gaps[entry.name] = float(optimum(simulator.graph).value - trace.values[0, -1]) / spread
    return gaps


def _convergence(effort: Effort) -> list[Row]:
    gaps = _runs(effort, "rloo", 4.0)
    turns = {entry.name: entry.graph().turns for entry in _entries(effort)}
    rows = []
    for kind, mark in (("ST", "✓"), ("MT", "✗")):
        chosen = {n: g for n, g in gaps.items() if (turns[n] == 1) == (kind == "ST")}
        done = [n for n, g in chosen.items() if g <= GAP]
        everything = len(done) == len(chosen)
        slow = {n: round(g, 4) for n, g in chosen.items() if g > GAP}
        rows.append(
            Row(
                id=f"C1.convergence.{kind}",
                claim="C1",
                statement="REINFORCE + GRAE reaches the optimum of every zoo problem whose policies "
                "see the whole history, from the uniform policy, in exact expectation",
                source="abstract, §3; Table 1",
                paper=mark,
                assumptions=(
                    "independent tables a history",
                    "undiscounted",
                    "step 4 at rewards of size 1; a step too large for the rewards saturates the "
                    "softmax and stays there",
                ),
                verdict="holds" if everything else "inconclusive",
                established="exhaustive" if everything else "search",
                evidence=f"{len(done)} of {len(chosen)} zoo problems within {GAP:.0%}"
                + (f"; still on the way: {slow}" if slow else ""),
                numbers={"gaps": chosen, "iterations": 4 * effort.iterations},
                proofs=("baseline-invariance", "backward-induction", "softmax-gradient"),
            )
        )
    return rows


def _discount() -> Row:
    """Dropping γ^t from the update (as GAE implementations do) against keeping it."""
    entry = zoo.get("discount-trap")
    algorithm = PRESETS["ppo"].replace(epochs=1, lr=1.0, clip=1.0)
    simulator = Simulator(entry.model, algorithm)
    theta = simulator.init(entry.policy)
    true = jax.grad(simulator.value)(theta)
    step = simulator.update(theta).theta
    moved, exact = _flat(step) - _flat(theta), _flat(true)
    cosine = float(moved @ exact / max(np.linalg.norm(moved) * np.linalg.norm(exact), 1e-300))
    broken = cosine < 1 - IDENTITY_RTOL
    return Row(
        id="C1.undiscounted",
        claim="C1",
        statement="the restriction to undiscounted returns is needed: the usual update with γ < 1, "
        "which drops γ^t, is not along ∇J",
        source="abstract",
        paper="stated for undiscounted returns",
        assumptions=("γ < 1", "two states share a row"),
        verdict="holds" if broken else "inconclusive",
        established="proof" if broken else "search",
        evidence=f"on zoo:discount-trap the cosine between the expected step and ∇J is {cosine:.4f}",
        numbers={"cosine": cosine},
        differs=False if broken else None,
        proofs=("dropped-discount",),
        certificates=("dropped-discount-gradient", "dropped-discount-fixed-point"),
        instance={"name": "discount-trap", "command": "seeupo inspect zoo:discount-trap"},
    )


def check_c3(effort: Effort) -> list[Row]:
    """C3: is there a critic-free backbone with a guarantee in multi-turn problems?"""
    ensembles = [Ensemble((2, 2), atoms=2)]
    rows: list[Row] = []
    least: dict[str, float] = {}
    for name, param, proofs in (
        ("ppo-grae", "tabular", ("clipped-lower-bound", "performance-difference")),
        ("trajectory-ppo", "log-linear", ("trajectory-bound",)),
    ):
        shapes = [Ensemble(e.actions, atoms=2, param=param) for e in ensembles]
        drop = find_drop(PRESETS[name], shapes, effort.instances, lrs=(0.05, 0.5, 2.0))
        least[name] = drop.margin
        family = "independent tables" if param == "tabular" else "weights shared by all turns"
        improves = drop.found is None
        rows.append(
            Row(
                id=f"C3.{name}",
                claim="C3",
                statement=f"no critic-free update improves at every iteration in multi-turn "
                f"problems; candidate: {name} with {family}",
                source="abstract, §3",
                paper="no mainstream backbone is both critic-free and convergent",
                assumptions=(
                    family,
                    "exact expectation",
                    "no std normalisation",
                    "steps that lower the surrogate of no row (a longer step overshoots)",
                ),
                verdict="refuted" if improves else "inconclusive",
                established="proof" if improves else "search",
                evidence=f"{name} lowered J in none of {drop.instances} steps that lowered no "
                f"surrogate (smallest change {drop.margin:+.2e}), and is proved not to",
                numbers=drop.numbers(),
                differs=True if improves else None,
                proofs=proofs,
            )
        )
    figure = bars("of a step that lowered no surrogate", least, "candidate", "least change of J")
    return [replace(rows[0], figure=figure), *rows[1:]]
