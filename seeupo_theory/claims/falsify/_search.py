"""The search itself: random problems, then an optimiser on the margin, then simplification.

Phases: *random* (batches of `_draw`, cycling through the settings), *optimiser* (SciPy's
differential evolution on the continuous numbers of the most promising points, a whole population
in one compiled call), and for every violation *shrink* and *certify*.  What is tried depends on the
seed alone; the budget only says where the sequence ends.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import differential_evolution

from seeupo_theory.claims.falsify import _exact
from seeupo_theory.claims.falsify._coding import Coding
from seeupo_theory.claims.falsify._draw import draw
from seeupo_theory.claims.falsify._instance import Instance
from seeupo_theory.claims.falsify._readings import MIN_EFFECT, Reading, Setting, entries, program
from seeupo_theory.claims.falsify._record import Count, Finding, Progress
from seeupo_theory.claims.falsify._shrink import cost, shrink
from seeupo_theory.claims.falsify._space import (
    Points,
    Space,
    embed,
    extract,
    places,
    stack,
    take,
    tight,
)

__all__ = ["Search", "batch_size"]

BATCH, BATCH_ENTRIES = 512, 2**21
"""Points of a compiled batch, fewer where one point is large: its arrays should stay in the cache."""

DRAW = 4
"""Batches drawn at once; a fourth of them with continuous numbers instead of grids."""

WARM_UP, LONG_WARM_UP = 2, 12
"""Draws before the next setting joins in: most violations show early, and each costs a compilation.
Longer before one of another scope, which is slower or says less."""

RANDOM_SHARE, OPTIMISER_SHARE = 0.6, 0.8
"""Shares of the budget at which the random search and the optimiser end; the rest is for shrinking."""

PATIENCE = 8
"""Draws (or runs of the optimiser) for which the search goes on once it knows a violation that is weak
or numerical."""

WEAK = 1e-3
"""A smaller effect is not followed by what simplifies well: rounding its numbers would lose it."""

ATTEMPTS, POOL = 12, 4
"""Violations followed up in all, and of one draw; each costs some tenths of a second."""

GENERATIONS = 60
STARTS = 8
"""Points kept of each setting as starts of the optimiser."""

KEEP_SHARE, KEEP_MOST = 0.25, 1e-3
"""Shrinking keeps this share of the effect, or an effect of this size, whichever is less."""


class Search:
    """One search; `run` does it all.

    Args:
        settings: (setting, space) pairs, cycled through.
        seed, budget: what is tried, and for how many seconds.
        lr: fixed step size, or None.
        fixed: what shrinking leaves alone: "lr", "epochs", "group_size", "turns".
        instances: end the random phase after so many instances, and the optimiser likewise.
    """

    def __init__(
        self,
        settings: Sequence[tuple[Setting, Space]],
        *,
        seed: int,
        budget: float,
        lr: float | None,
        fixed: frozenset[str] = frozenset(),
        instances: int | None = None,
        progress: Callable[[Progress], None] | None = None,
    ):
        self.settings = list(settings)
        self.rng = np.random.default_rng(seed)
        self.budget, self.lr, self.fixed = budget, lr, fixed
        self.instances, self.progress = instances, progress
        self.count = Count()
        self.start = time.monotonic()
        self.phase = "random"
        self.starts: list[list[tuple[float, Points]]] = [[] for _ in self.settings]
        self.attempts = 0
        self.kept: list[Finding] = []
        self.rounds, self.kept_at = 0, math.inf
        self.certifiable = any(not _exact.obstacles(s) for s, _ in self.settings)

    # Time -----------------------------------------------------------------------------------

    def elapsed(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self.start

    def over(self, share: float) -> bool:
        """Whether this share of the budget is spent."""
        return self.elapsed() >= share * self.budget

    def _report(self) -> None:
        if self.progress is not None:
            c = self.count
            self.progress(
                Progress(
                    self.phase, c.instances, c.instances + c.optimiser + c.shrink, c.worst,
                    self.elapsed(), self.budget,
                )
            )  # fmt: skip

    def _enter(self, phase: str) -> Callable[[], None]:
        before, self.phase, begin = self.phase, phase, time.monotonic()
        self._report()

        def leave() -> None:
            spent = self.count.seconds
            spent[phase] = spent.get(phase, 0.0) + time.monotonic() - begin
            self.phase = before

        return leave

    # Phases ---------------------------------------------------------------------------------

    def run(self) -> Finding | None:
        """The simplest certified finding, else the simplest numerical one, else None."""
        for phase in (self._random, self._optimise):
            phase()
            if self._settled():
                break
        found = sorted(self.kept, key=lambda f: (f.certificate is None, cost(f.instance)))
        return next((f for f in found if self._confirmed(f)), None)

    def _confirmed(self, finding: Finding) -> bool:
        """Whether the violation stands in the instance's own shape (a certificate is proof of it)."""
        if finding.certificate is not None:
            return True
        reading = self.read(finding.setting, tight(finding.instance), [finding.instance])
        if not reading.fails[0]:
            self.count.discarded += 1
        return bool(reading.fails[0])

    def _settled(self) -> bool:
        """Whether what was found so far is good enough, or was looked at for long enough."""
        good = [f for f in self.kept if f.certificate is not None or not self.certifiable]
        if any(f.effect >= WEAK for f in good):
            return True
        waited = self.rounds > self.kept_at + PATIENCE
        return waited or (bool(self.kept) and self.attempts >= ATTEMPTS)

    def _random(self) -> None:
        leave = self._enter("random")
        joins = [0]
        for (a, _), (b, _) in itertools.pairwise(self.settings):
            joins.append(joins[-1] + (WARM_UP if a.scope == b.scope else LONG_WARM_UP))
        while not self.over(RANDOM_SHARE) and not self._settled():
            if self.instances is not None and self.count.instances >= self.instances:
                break
            which = self.rounds % sum(start <= self.rounds for start in joins)
            setting, space = self.settings[which]
            pool: list[tuple[Points, Reading]] = []
            for k in range(DRAW):
                grid = k < DRAW - 1 or setting.scope == "rest"
                size = batch_size(setting, space)
                points = draw(self.rng, space, size, grid=grid, lr=self.lr)
                reading = program(setting, space)(points)
                self.count.add(reading, "random")
                pool.append((points, reading))
                self._remember(which, points, reading)
            self._follow(setting, space, pool)
            self.rounds += 1
            self._report()
        leave()

    def _remember(self, which: int, points: Points, reading: Reading) -> None:
        """Keep the most promising points as starts of the optimiser."""
        order = np.argsort(-np.where(reading.fails, -np.inf, reading.score))[:STARTS]
        best = [(float(reading.score[i]), take(points, i)) for i in order]
        merged = sorted(self.starts[which] + best, key=lambda pair: -pair[0])
        self.starts[which] = merged[:STARTS]

    def _optimise(self) -> None:
        leave = self._enter("optimiser")
        runs = [
            (setting, space, self.starts[i][k][1])
            for k in range(STARTS)
            for i, (setting, space) in enumerate(self.settings)
            if setting.scope != "rest" and k < len(self.starts[i])
        ]
        for setting, space, start in runs:
            enough = self.instances is not None and self.count.optimiser >= self.instances
            if enough or self.over(OPTIMISER_SHARE) or self._settled():
                break
            self._evolve(setting, space, start)
            self.rounds += 1
        leave()

    def _evolve(self, setting: Setting, space: Space, start: Points) -> None:
        coding = Coding(space, start, self.lr)
        self.count.optimiser_runs += 1
        hits: list[tuple[Points, Reading]] = []

        def objective(vectors: np.ndarray) -> np.ndarray:
            points = coding.decode(np.atleast_2d(vectors.T))
            reading = program(setting, space)(points)
            self.count.add(reading, "optimiser")
            if reading.fails.any():
                hits.append((points, reading))
            return -np.where(np.isfinite(reading.score), reading.score, -1e9)

        left = GENERATIONS
        if self.instances is not None:
            left = (self.instances - self.count.optimiser) // batch_size(setting, space)
        half = max(4, batch_size(setting, space) // 2)  # the whole population is one batch
        others = coding.encode(draw(self.rng, space, half, grid=False, lr=self.lr))
        near = coding.vector + 0.2 * self.rng.standard_normal((half, len(coding.vector)))
        low, high = np.array(coding.bounds).T
        population = np.clip(np.concatenate([coding.vector[None], near[1:], others]), low, high)

        def stop(*_: Any, **__: Any) -> bool:
            self._report()
            return bool(hits) or self.over(OPTIMISER_SHARE)

        differential_evolution(
            objective, coding.bounds, init=population, vectorized=True, updating="deferred",
            polish=False, maxiter=max(1, min(GENERATIONS, left)), tol=0, seed=self.rng, callback=stop,
        )  # fmt: skip
        self._follow(setting, space, hits)

    # Violations -----------------------------------------------------------------------------

    def _follow(
        self, setting: Setting, space: Space, pool: Sequence[tuple[Points, Reading]]
    ) -> None:
        """Simplify and certify the largest violations of a pool, and keep them."""
        if self.kept and _exact.obstacles(setting):
            return
        hits = [
            (-float(reading.effect[i]), k, int(i))
            for k, (_, reading) in enumerate(pool)
            for i in np.flatnonzero(reading.fails)
        ]
        for _, k, i in sorted(hits)[:POOL]:
            if self.kept and (self.attempts >= ATTEMPTS or self.over(1.0)):
                break
            self.attempts += 1
            instance = extract(space, pool[k][0], i)
            if setting.prop != "monotone" and setting.scope != "run":
                instance = replace(instance, lr=Fraction(1))  # not used
            found = self._simplify(setting, space, instance)
            if found is None:
                self.count.discarded += 1
                continue
            self.kept.append(found)
            self.kept_at = min(self.kept_at, self.rounds)

    def read(self, setting: Setting, space: Space, instances: Sequence[Instance]) -> Reading:
        """Readings of some instances, in batches of the search's own size (no new compilation)."""
        size = batch_size(setting, space)
        if len(instances) > size:
            parts = [self.read(setting, space, instances[:size])]
            parts.append(self.read(setting, space, instances[size:]))
            return Reading(*(np.concatenate(pair) for pair in zip(*parts, strict=True)))  # type: ignore[arg-type]
        points = stack([embed(space, instance) for instance in instances])
        index = np.minimum(np.arange(size), len(instances) - 1)
        reading = program(setting, space)(take(points, index))
        self.count.shrink += len(instances)
        return Reading(*(x[: len(instances)] for x in reading))

    def _simplify(self, setting: Setting, space: Space, instance: Instance) -> Finding | None:
        first = self.read(setting, space, [instance])
        if not first.fails[0]:
            return None  # lost in rounding to fractions
        keep = max(10 * MIN_EFFECT, min(KEEP_SHARE * float(first.effect[0]), KEEP_MOST))
        leave = self._enter("shrink")
        try:
            instance = self._shrunk(setting, space, instance, keep)
            for smaller in _smaller(setting, self.fixed):
                if not self.over(1.0) and self._stands(smaller, space, [instance], keep)[0]:
                    setting = smaller
                    instance = self._shrunk(setting, space, instance, keep)
            final = self.read(setting, space, [instance])
        finally:
            leave()
        leave = self._enter("certify")
        try:
            return self._certified(setting, space, instance, final)
        finally:
            leave()

    def _stands(
        self, setting: Setting, space: Space, instances: Sequence[Instance], keep: float
    ) -> list[bool]:
        reading = self.read(setting, space, instances)
        self._report()
        return [bool(x) for x in reading.fails & (reading.effect >= keep)]

    def _shrunk(self, setting: Setting, space: Space, instance: Instance, keep: float) -> Instance:
        return shrink(
            instance,
            lambda several: self._stands(setting, space, several, keep),
            stop=lambda: self.over(1.0),
            fixed_lr="lr" in self.fixed or setting.prop != "monotone",
            fixed_turns="turns" in self.fixed
            or isinstance(setting.algorithm.order, tuple)
            or (setting.algorithm.ideal and space.param == "shared"),
        )

    def _certified(
        self, setting: Setting, space: Space, instance: Instance, reading: Reading
    ) -> Finding | None:
        place = _own_place(space, instance, reading.place[0])
        certificate, rise, reason = None, None, ""
        try:
            self.count.certify += 1
            certificate = _exact.certify(setting, space, instance, place)
            if setting.prop == "monotone":
                rise = _exact.surrogates_rise(setting, instance)
                if rise is False:
                    return None  # an overshoot too small for floats to tell
        except _exact.NotCertified as error:
            reason = str(error)
        effect = float(reading.effect[0])
        return Finding(setting, space, instance, effect, place, certificate, rise, reason)


def _own_place(space: Space, instance: Instance, place: Any) -> tuple[int, int, int]:
    """(turn, history, action) in the instance's own numbering."""
    turn, node, action = map(int, place)
    offset = space.turns - instance.turns
    if turn < offset:
        return 0, 0, 0
    nodes = places(space, instance)[turn]
    return turn - offset, nodes.index(node) if node in nodes else 0, action


def _smaller(setting: Setting, fixed: frozenset[str]) -> list[Setting]:
    """Settings with fewer epochs or members, simplest first."""
    a = setting.algorithm
    out = []
    if setting.prop == "monotone" and "epochs" not in fixed and not a.ideal:
        for epochs in (1, 5):
            if epochs < a.epochs:
                out.append(replace(setting, algorithm=a.replace(epochs=epochs)))
    if "group_size" not in fixed and setting.group_size not in (1, 2, math.inf):
        out += [replace(setting, group_size=float(g)) for g in (2, 3) if g < setting.group_size]
    return out


def batch_size(setting: Setting, space: Space) -> int:
    """Points of a batch, a power of two."""
    fit = max(1, BATCH_ENTRIES // entries(space, setting))
    return min(BATCH, 2 ** int(math.log2(fit)))
