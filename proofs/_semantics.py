r"""What a certificate's algorithm does, in rational and interval arithmetic.

`Play` evaluates a policy, `estimates` is the exact expectation of an advantage estimator over all
groups, `iterate` one iteration of the algorithm, `sweep` one round of argmax steps. The semantics
are stated in ``proofs/verifier.py``. Standard library only.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from proofs._certificate import Model, Policy, demand
from proofs.intervals import ONE, ZERO, Number, at_most, clamp, log, sign, sqrt

MAX_GROUPS = 1_000  # multisets of rewards in one context
Table = list[list[Number]]
Parts = list[list[tuple[Number, Number]]]


def pair_up(left: Iterable[Number], right: Iterable[Number]) -> Number:
    """Σ x y."""
    return sum((x * y for x, y in zip(left, right, strict=True)), ZERO)


def product(factors: Iterable[Number]) -> Number:
    """Π x."""
    result: Number = ONE
    for x in factors:
        result = result * x
    return result


class Play:
    """A model under a policy table: probabilities, values, advantages, gradients."""

    def __init__(self, model: Model, policy: Policy, table: Table) -> None:
        self.model, self.policy, self.table = model, policy, table
        self.returns = [tr.total for tr in model.trajectories]
        self.paths = [
            [(policy.rows[turn][node], action) for turn, node, action in tr.moves]
            for tr in model.trajectories
        ]

    def weights(self) -> list[Number]:
        """The probability of each trajectory."""
        return [
            tr.chance * product(self.table[row][a] for row, a in path)
            for tr, path in zip(self.model.trajectories, self.paths, strict=True)
        ]

    def value(self) -> Number:
        """J, the expected return."""
        return pair_up(self.weights(), self.returns)

    def gains(self, turn: int, payoff: Sequence[Number]) -> dict[int, list[Number]]:
        """Per node of a turn: d(node) E[payoff | node, a] for each action.

        The own probability is left out of the product, so that actions never taken count too.
        """
        gains: dict[int, list[Number]] = {}
        for tr, path, x in zip(self.model.trajectories, self.paths, payoff, strict=True):
            for j, (t, node, action) in enumerate(tr.moves):
                if t == turn:
                    others = product(self.table[row][a] for row, a in path[:j] + path[j + 1 :])
                    cell = gains.setdefault(node, [ZERO] * self.model.actions[turn])
                    cell[action] = cell[action] + tr.chance * others * x
        return gains

    def reach(self, turn: int, factors: Sequence[Number] | None = None) -> dict[int, Number]:
        """The probability of each node of a turn that can be reached."""
        cells = self.gains(turn, factors or [ONE] * len(self.paths))
        return {node: cell[0] for node, cell in cells.items() if cell[0] != 0}

    def advantages(
        self, turn: int, payoff: Sequence[Number], factors: Sequence[Number] | None = None
    ) -> dict[int, list[Number]]:
        """E[payoff | node, a] - E[payoff | node] at each node of a turn that is reached.

        `factors` reweight the trajectories to turns that follow a newer policy.
        """
        if factors is not None:
            payoff = [x * f for x, f in zip(payoff, factors, strict=True)]
        gains, result = self.gains(turn, payoff), {}
        for node, reach in self.reach(turn, factors).items():
            q = [gain / reach for gain in gains[node]]
            mean = pair_up(self.table[self.policy.rows[turn][node]], q)
            result[node] = [x - mean for x in q]
        return result

    def ascent(self, terms: Iterable[tuple[int, int, Number]]) -> list[Number]:
        """Σ c ∇θ log π(a | row) over the given (row, a, c)."""
        totals: dict[int, list[Number]] = {}
        for row, a, c in terms:
            cell = totals.setdefault(row, [ZERO] * len(self.table[row]))
            cell[a] = cell[a] + c
        gradient: list[Number] = [ZERO] * len(self.policy.theta)
        for row, cell in totals.items():
            everything = sum(cell, ZERO)
            for p, c, phi in zip(self.table[row], cell, self.policy.features[row], strict=True):
                for i, f in phi.items():
                    gradient[i] = gradient[i] + (c - p * everything) * f
        return gradient

    def policy_gradient(self, payoff: Sequence[Sequence[Number]]) -> list[Number]:
        """E[Σ_t payoff_t ∇θ log π(a_t | h_t)], the payoff given per trajectory and move."""
        return self.ascent(
            (row, a, w * x)
            for w, path, xs in zip(self.weights(), self.paths, payoff, strict=True)
            for (row, a), x in zip(path, xs, strict=True)
        )


# Advantage estimates ----------------------------------------------------------------------------


def groups(
    probs: dict[Fraction, Number], alg: dict[str, Any], bits: int
) -> Iterator[tuple[Fraction, Number, Number]]:
    """(own return, probability of the other members, Â) for every group of one context."""
    size = alg["group_size"]
    rest = 0 if size == math.inf else size - 1
    demand(
        math.comb(len(probs) + rest - 1, rest) <= MAX_GROUPS, "algorithm.group_size is too large"
    )
    centre = pair_up(probs, probs.values())
    variance = pair_up([(r - centre) * (r - centre) for r in probs], probs.values())
    for own, others in itertools.product(
        probs, itertools.combinations_with_replacement(sorted(probs), rest)
    ):
        repeats = math.prod(math.factorial(n) for n in Counter(others).values())
        chance = product(probs[r] for r in others) * Fraction(math.factorial(rest), repeats)
        if size != math.inf:
            members = (own, *others)
            centre = sum(members, ZERO) / size
            squares = sum(((r - centre) * (r - centre) for r in members), ZERO)
            variance = squares / max(size - alg["ddof"], 1)
            if alg["baseline"] == "loo":
                centre = sum(others, ZERO) / max(rest, 1)
        own_group = alg["baseline"] in ("mean", "loo")
        estimate = own - centre if own_group else own
        if own_group and (size == 1 or len(probs) == 1):
            estimate = ZERO
        elif alg["normalise"] == "group":
            estimate = divide(estimate, variance, alg["std_eps"], bits)
        yield own, chance, estimate


def divide(x: Number, variance: Number, eps: Fraction, bits: int) -> Number:
    """x / (std + eps), and 0 where the variance is 0."""
    return ZERO if variance == 0 else x / (sqrt(variance, bits) + eps)


def estimates(
    play: Play, alg: dict[str, Any], bits: int, factors: Sequence[Number] | None = None
) -> Parts:
    """Per trajectory and move: E[Â⁺] and E[Â⁻] given that trajectory.

    An exact advantage is that of the policy whose updated turns are new, which `factors` express.
    """
    trajectories = play.model.trajectories
    if alg["estimator"] == "exact":
        gamma = play.model.discount if alg["discounting"] == "dropped" else ONE
        turns = range(len(play.model.nodes))
        exact = [play.advantages(t, play.returns, factors) for t in turns]
        signed = [
            [exact[t][node][a] / gamma**t if node in exact[t] else ZERO for t, node, a in tr.moves]
            for tr in trajectories
        ]
        return [[(clamp(x, ZERO, None), clamp(-x, ZERO, None)) for x in row] for row in signed]
    joint: dict[int, dict[Fraction, Number]] = {}
    for tr, w in zip(trajectories, play.weights(), strict=True):
        context = joint.setdefault(tr.context, {})
        context[tr.total] = context.get(tr.total, ZERO) + w
    draws = []  # (context, own return, probability of own return, of the others, Â)
    for c, spread in joint.items():
        share = sum(spread.values(), ZERO)
        probs = {r: w / share for r, w in spread.items()}
        draws += [(c, r, spread[r], p, x) for r, p, x in groups(probs, alg, bits)]
    if "batch" in (alg["baseline"], alg["normalise"]):
        mean = sum((own * p * x for _, _, own, p, x in draws), ZERO)
        draws = [(c, r, own, p, x - mean) for c, r, own, p, x in draws]
        if alg["normalise"] == "batch":
            variance = sum((own * p * (x * x) for _, _, own, p, x in draws), ZERO)
            eps = alg["std_eps"]
            draws = [(c, r, own, p, divide(x, variance, eps, bits)) for c, r, own, p, x in draws]
    parts: dict[tuple[int, Fraction], tuple[Number, Number]] = {}
    bound = alg["advantage_clip"]
    for c, r, _, p, x in draws:
        x = x if bound is None else clamp(x, -bound, bound)
        plus, minus = parts.get((c, r), (ZERO, ZERO))
        parts[c, r] = plus + p * clamp(x, ZERO, None), minus + p * clamp(-x, ZERO, None)
    return [
        [parts.get((tr.context, tr.total), (ZERO, ZERO))] * len(tr.moves) for tr in trajectories
    ]


def means(parts: Parts) -> list[list[Number]]:
    """E[Â] = E[Â⁺] - E[Â⁻]."""
    return [[plus - minus for plus, minus in row] for row in parts]


# One iteration ----------------------------------------------------------------------------------


def slope(ratio: Number, plus: Number, minus: Number, alg: dict[str, Any]) -> Number:
    """Derivative by log π of E[Â⁺] min(ρ, 1+high) - E[Â⁻] max(ρ, 1-low), or of E[Â] log ρ."""
    if alg["objective"] == "reinforce":
        return plus - minus
    low, high = alg["clip"]
    return ratio * (plus * at_most(ratio, 1 + high) - minus * at_most(-ratio, low - 1))


def height(ratio: Number, plus: Number, minus: Number, alg: dict[str, Any], bits: int) -> Number:
    """E[Â⁺] min(ρ, 1+high) - E[Â⁻] max(ρ, 1-low), or E[Â] log ρ."""
    if alg["objective"] == "reinforce":
        return (plus - minus) * log(ratio, bits)
    low, high = alg["clip"]
    return plus * clamp(ratio, None, 1 + high) - minus * clamp(ratio, 1 - low, None)


def around_one(x: Number, width: Fraction | None) -> Number:
    """x clamped to [1 - width, 1 + width]."""
    return x if width is None else clamp(x, 1 - width, 1 + width)


class Surrogate:
    """What one update ascends: Σ_τ p(τ) factor(τ) E[min(ρ Â, clip(ρ) Â)] over the updated turns."""

    def __init__(self, sampling: Play, parts: Parts, alg: dict[str, Any]) -> None:
        self.paths, self.parts, self.alg = sampling.paths, parts, alg
        self.moves = [tr.moves for tr in sampling.model.trajectories]
        self.scale = sampling.weights()  # p(τ) times the factors of the turns updated so far
        self.factors: list[Number] = [ONE] * len(self.paths)

    def terms(
        self, turns: list[int], table: Table, old: Table
    ) -> Iterator[tuple[int, int, Number, Number, Number, Number]]:
        """(row, action, weight, ratio, E[Â⁺], E[Â⁻]) of every move of these turns."""
        for k, (moves, path) in enumerate(zip(self.moves, self.paths, strict=True)):
            ratios = [table[row][a] / old[row][a] for row, a in path]
            if self.alg["credit"] == "trajectory":
                ratios = [product(ratios)] * len(path)
            weight = self.scale[k] * self.factors[k]
            for (t, _, _), (row, a), ratio, part in zip(
                moves, path, ratios, self.parts[k], strict=True
            ):
                if t in turns:
                    yield row, a, weight, ratio, *part

    def value(self, turns: list[int], table: Table, old: Table, bits: int) -> Number:
        """The surrogate; a ratio of the whole trajectory counts once."""
        total: Number = ZERO
        whole = self.alg["credit"] == "trajectory"
        shares = [len(moves) if whole else 1 for moves in self.moves for _ in moves]
        terms = self.terms(turns, table, old)
        for share, (_, _, weight, ratio, plus, minus) in zip(shares, terms, strict=False):
            total = total + weight * height(ratio, plus, minus, self.alg, bits) / share
        return total

    def advance(self, turns: list[int], new: Table, old: Table) -> None:
        """Multiply the factors by the ratios of the turns just updated."""
        for k, (moves, path) in enumerate(zip(self.moves, self.paths, strict=True)):
            for (t, _, _), (row, a) in zip(moves, path, strict=True):
                if t in turns:
                    ratio = around_one(new[row][a] / old[row][a], self.alg["factor_clip"])
                    self.factors[k] = around_one(self.factors[k] * ratio, self.alg["product_clip"])


def iterate(
    model: Model, policy: Policy, alg: dict[str, Any], bits: int
) -> tuple[Table, list[Number]]:
    """The policy table after one iteration, and what each update gained in its own surrogate."""
    theta, table = list(policy.theta), policy.table(policy.theta, bits)
    sampling, old, gained = Play(model, policy, table), table, []
    for row, chosen in enumerate(table):
        positive = all(sign(p) > 0 for p in chosen)
        demand(positive, f"policy: row {row} has a probability of 0, a ratio needs positive ones")
    surrogate = Surrogate(sampling, estimates(sampling, alg, bits), alg)
    for turns in alg["order"]:
        if alg["reference"] == "current":
            old = table
        if alg["estimator"] == "exact":
            surrogate.parts = estimates(sampling, alg, bits, surrogate.factors)
        before = surrogate.value(turns, table, old, bits)
        for _ in range(alg["epochs"]):
            terms = [
                (row, a, weight * slope(ratio, plus, minus, alg))
                for row, a, weight, ratio, plus, minus in surrogate.terms(turns, table, old)
            ]
            gradient = Play(model, policy, table).ascent(terms)
            theta = [x + alg["lr"] * g for x, g in zip(theta, gradient, strict=True)]
            table = policy.table(theta, bits)
        gained.append(surrogate.value(turns, table, old, bits) - before)
        surrogate.advance(turns, table, old)
    return table, gained


def best_rows(play: Play, turn: int) -> dict[int, list[bool]]:
    """For each row of a turn that is reached: which actions maximise the expected return."""
    rows, gains = play.policy.rows, play.gains(turn, play.returns)
    sums: dict[int, list[Number]] = {}
    for node in play.reach(turn):
        row = rows[turn][node]
        elsewhere = any(row in other for t, other in enumerate(rows) if t != turn)
        demand(not elsewhere, "policy: an argmax step needs rows that belong to one turn")
        old = sums.get(row, [ZERO] * len(gains[node]))
        sums[row] = [x + g for x, g in zip(old, gains[node], strict=True)]
    return {
        row: [all(x == y or sign(x - y) >= 0 for y in cell) for x in cell]
        for row, cell in sums.items()
    }


def sweep(model: Model, policy: Policy, table: Table, order: list[list[int]]) -> Table:
    """One argmax step a turn on the reached rows; ties keep their old proportions."""
    for turns in order:
        new = [list(row) for row in table]
        for row, best in (
            item for t in turns for item in best_rows(Play(model, policy, table), t).items()
        ):
            kept = [p if top else ZERO for p, top in zip(table[row], best, strict=True)]
            if sum(kept, ZERO) == 0:
                kept = [ONE if top else ZERO for top in best]
            new[row] = [p / sum(kept, ZERO) for p in kept]
        table = new
    return table
