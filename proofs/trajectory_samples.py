r"""The trajectory-level bound from samples: a lower confidence bound of F, and its coverage.

$F = \mathbb E_{\theta_k}[\min(\rho \hat A, \operatorname{clip}(\rho) \hat A)]$, $\rho$ the ratio of a
whole trajectory, is at most $c\,(J(\theta') - J(\theta_k))$ (``trajectory_bound``). A batch of groups
gives an unbiased mean of $F$; a guard needs a bound that is rarely above $F$.

**Theorem.** For $R \ge |\hat A|$ and any $c \ge 0$,

$$F \ge \mathbb E\bigl[\hat A^+ \min(\rho, 1 + \varepsilon^+) - \hat A^- (1 - \varepsilon^- - \rho)^+
  + (R - \hat A^-) \min(\rho, c)\bigr] - R,$$

with equality if $c \ge \rho$ always, and the variable in brackets lies in $[-R (1 - \varepsilon^-),
R (1 + \varepsilon^+ + c)]$ whatever $\rho$ does. *Proof.* $\hat A^- \max(\rho, 1 - \varepsilon^-) =
\hat A^- \rho + \hat A^- (1 - \varepsilon^- - \rho)^+$. Add $R(\rho - 1)$, which has mean 0; the only
unbounded term is then $(R - \hat A^-) \rho$, whose coefficient is not negative, so that cutting it
lowers the mean.

So the empirical Bernstein inequality over groups gives a lower confidence bound of $F$ for every
number of groups, although $F$'s own terms are not bounded below. Student's interval has no such
guarantee: where a trajectory that is rare under $\theta_k$ becomes likely and pays badly, a sample of
usual size does not contain it. Both coverages are measured below
(``seeupo_theory/rules/bounds.py``); Bernstein's bound is far from tight in small batches.

**Where it stops.** Groups must be independent, and drawn independently of $\theta'$: on the batch
that $\theta'$ was fitted to, the sample mean is biased upwards, as is every quantile of it.
$\mathbb E[\rho] = 1$ needs a policy that stays in the support; outside it $\mathbb E[\rho] < 1$, the
bound of $F$ holds, but $F$ no longer bounds the improvement.

**Source.** Maurer and Pontil 2009, Theorem 4; Student 1908.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import sympy as sp

from proofs._base import Result, identical, require, step


@step("pathwise: term - bounded term = R(1 - rho) + (R - A^-)(rho - c)^+, all regions")
def bounded_identity() -> str:
    bound, size, rho, over = sp.symbols("R A rho s", nonnegative=True)
    low, level = sp.symbols("epsilon_low c", nonnegative=True)
    for sign, capped, under in itertools.product((1, -1), (False, True), (False, True)):
        at = level + over if capped else rho  # the ratio, beyond c by s or below c
        short = 1 - low - at if under else 0  # how far it is below 1 - low
        loss = size if sign < 0 else 0  # A >= 0: the first term is the same on both sides
        term = -loss * (at + short)  # -A^- max(rho, 1 - low)
        bounded = -loss * short + (bound - loss) * (level if capped else at) - bound
        excess = (bound - loss) * (over if capped else 0)
        identical(term - bounded, bound * (1 - at) + excess, f"{sign}, {capped}, {under}")
    return "its expectation is E[(R - A^-)(rho - c)^+] >= 0, since E[rho] = 1"


@step("the bounded terms stay in their range for every ratio")
def bounded_ends() -> str:
    bound, low, high, level = Fraction(2), Fraction(1, 5), Fraction(3, 10), Fraction(3, 2)
    least, most = -bound * (2 - low), bound * (high + level)
    for n, k in itertools.product(range(201), range(-20, 21)):
        value = bounded_term(Fraction(n, 20), Fraction(k, 10), bound, low, high, level)
        require(least <= value <= most, f"rho = {n}/20, A = {k}/10: {value}")
    require(bounded_term(Fraction(0), -bound, bound, low, high, level) == least, "least is taken")
    require(bounded_term(Fraction(9), bound, bound, low, high, level) == most, "most is taken")
    return "piecewise linear in rho and A: the corners decide; both ends are attained"


def bounded_term(
    rho: Fraction, advantage: Fraction, bound: Fraction, low: Any, high: Any, level: Any
) -> Fraction:
    r"""$\hat A^+ \min(\rho, 1+h) - \hat A^- (1 - l - \rho)^+ + (R - \hat A^-) \min(\rho, c) - R$."""
    gain, loss = max(advantage, Fraction(0)), max(-advantage, Fraction(0))
    below = max(1 - low - rho, Fraction(0))
    return gain * min(rho, 1 + high) - loss * below + (bound - loss) * min(rho, level) - bound


@dataclass(frozen=True)
class Coins:
    """T blind binary turns: action 1 with probability `old`, then `new`; win on some counts.

    With a win worth 1 and a group mean everything depends on the own count of ones and the number
    of other winners, so that F is a finite sum for any T and G.
    """

    turns: int
    old: float
    new: float
    wins: tuple[int, ...]
    group: int = 8

    def counts(self, prob: float) -> np.ndarray:
        """Distribution of the number of ones."""
        k = np.arange(self.turns + 1)
        choose = np.array([math.comb(self.turns, int(i)) for i in k], dtype=float)
        return choose * prob**k * (1 - prob) ** (self.turns - k)

    def log_ratio(self, count: np.ndarray) -> np.ndarray:
        """log rho of a trajectory with so many ones."""
        up, down = math.log(self.new / self.old), math.log((1 - self.new) / (1 - self.old))
        return count * up + (self.turns - count) * down

    def reward(self, count: np.ndarray) -> np.ndarray:
        """1 for a win."""
        return np.isin(count, self.wins).astype(float)

    def surrogate(self) -> float:
        """F, the exact expectation over groups."""
        own, probs = np.arange(self.turns + 1), self.counts(self.old)
        win = float(probs @ self.reward(own))
        rho = np.exp(self.log_ratio(own))
        total = 0.0
        for others in range(self.group):
            rest = self.group - 1
            chance = math.comb(rest, others) * win**others * (1 - win) ** (rest - others)
            advantage = self.reward(own) - (self.reward(own) + others) / self.group
            terms = np.minimum(rho * advantage, np.clip(rho, 0.8, 1.2) * advantage)
            total += chance * float(probs @ terms)
        return total

    def batches(self, runs: int, groups: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Log-ratios and advantages of seeded batches, [runs, groups, members]."""
        rng = np.random.default_rng(seed)
        count = rng.binomial(self.turns, self.old, (runs, groups, self.group))
        reward = self.reward(count)
        return self.log_ratio(count), reward - reward.mean(axis=-1, keepdims=True)


MILD = Coins(turns=4, old=0.5, new=0.52, wins=(3, 4))
LONG = Coins(turns=30, old=0.5, new=0.55, wins=tuple(range(16, 31)))
TRAP = Coins(turns=20, old=0.5, new=0.75, wins=tuple(range(15)))
"""The step makes likely what loses and is rarely seen: 15 ones or more."""
RUNS, GROUPS = 2000, 64


@cache
def coverage(case: Coins, method: str, runs: int = RUNS, groups: int = GROUPS) -> float:
    """Share of seeded batches whose lower bound, at confidence 0.95, is at most F."""
    from seeupo_theory.rules.bounds import improvement_bound

    log_ratio, advantage = case.batches(runs, groups, seed=11)
    lower = improvement_bound(log_ratio, advantage, method=method, bound=1.0)
    return float(np.mean(np.asarray(lower) <= case.surrogate()))


SAMPLING = 4 * math.sqrt(0.95 * 0.05 / RUNS)
"""Four standard errors of a share of 0.95 in so many runs: crossed by chance once in 30,000."""


@step("coverage of the Bernstein bound: at least 0.95 in all three cases", kind="numerical")
def bernstein_coverage() -> str:
    found = [coverage(case, "bernstein") for case in (MILD, LONG, TRAP)]
    require(min(found) >= 0.95 - SAMPLING, f"coverage {found}")
    return f"{', '.join(f'{x:.3f}' for x in found)} ({GROUPS} groups of 8, {RUNS} batches)"


@step(
    "coverage of Student's bound: right for short trajectories, lost in the trap", kind="numerical"
)
def student_coverage() -> str:
    mild, long, trap = (coverage(case, "student") for case in (MILD, LONG, TRAP))
    require(abs(mild - 0.95) <= SAMPLING, f"T = 4: {mild}")
    require(trap < 0.9, f"T = 20, rare losses: {trap}")
    return f"T = 4: {mild:.3f}; T = 30: {long:.3f}; T = 20 with rare losses made likely: {trap:.3f}"


@step("stops: on the batch that chose the step the bounds do not cover", kind="numerical")
def reused_batch() -> str:
    found = reused_coverage("student")
    require(found < 0.95 - SAMPLING, f"coverage {found}")
    return f"the best of 20 steps that change nothing: Student's bound covers {found:.3f}"


def reused_coverage(method: str, runs: int = RUNS, groups: int = GROUPS) -> float:
    """Coverage where the largest of 20 lower bounds, of steps with F close to 0, is reported.

    Step i moves the odds of one coin of 20; the reward is a coin that no step touches, so that J
    does not change and F is at most 0 for each of them.
    """
    from seeupo_theory.rules.bounds import improvement_bound

    rng = np.random.default_rng(12)
    coins = rng.random((runs, groups, 8, 20)) < 0.5
    reward = (rng.random((runs, groups, 8)) < 0.5).astype(float)
    advantage = reward - reward.mean(axis=-1, keepdims=True)
    best = np.full(runs, -np.inf)
    for i in range(20):
        log_ratio = np.where(coins[..., i], math.log(1.1), math.log(0.9))
        lower = improvement_bound(log_ratio, advantage, method=method, bound=1.0)
        best = np.maximum(best, np.asarray(lower))
    return float(np.mean(best <= 0.0))  # F = E[rho A] = 0: the ratios 1.1 and 0.9 are not clipped


RESULTS = (
    Result(
        name="trajectory-bound-sampled",
        statement="A batch of independent groups gives a lower confidence bound of F for every "
        "number of groups, without a bound on the ratios",
        source="Maurer and Pontil 2009, Theorem 4; Student 1908",
        assumptions=(
            "independent groups, drawn independently of the new policy",
            "rewards of a known range",
            "the new policy stays in the support of the old one",
        ),
        steps=(bounded_identity, bounded_ends, bernstein_coverage, student_coverage, reused_batch),
        stops="the batch that the step was fitted to; Student's interval where rare trajectories "
        "become likely",
    ),
)
