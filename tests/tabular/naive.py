"""One iteration of an algorithm, trajectory by trajectory: slow, literal, independent.

Models are walked directly (never through a decision graph), every trajectory is a row, companions
of a group are enumerated as ordered tuples (`groups`), and the surrogate of a turn is written down
as in the paper,

    Σ_τ π_k(τ) Σ_others P(others) min(ρ_t M, clip(ρ_t, 1 − low, 1 + high) M),   M = factor(τ) · Â,

with M a number a trajectory and group.  Gradients are by hand: the derivative of each sample in its
log-probability times ∂ log π(a|row) / ∂ logit[row, b] = [a = b] − π(b|row).  NumPy alone.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from bandits import SequentialBandit, TabularMDP

from . import groups

# Trajectories -----------------------------------------------------------------------------------


@dataclass
class Paths:
    """P trajectories. `prob` is that of context, environment and reward, without the policy."""

    context: list = field(default_factory=list)
    prob: list = field(default_factory=list)
    rows: list = field(default_factory=list)  # [P][T] rows of the policy table
    actions: list = field(default_factory=list)  # [P][T]
    active: list = field(default_factory=list)  # [P][T]
    rewards: list = field(default_factory=list)  # [P][T]
    prefix: list = field(default_factory=list)  # [P][T] everything seen before the action
    context_probs: list = field(default_factory=list)
    discount: float = 1.0

    def add(self, context, prob, steps):
        self.context.append(context)
        self.prob.append(prob)
        for name, column in zip(
            ("rows", "actions", "active", "rewards", "prefix"),
            zip(*steps, strict=True),
            strict=True,
        ):
            getattr(self, name).append(column)

    @property
    def returns(self):
        return [
            math.fsum(self.discount**t * r for t, r in enumerate(rewards))
            for rewards in self.rewards
        ]


def bandit_paths(model, observation=None):
    """`observation[t]` maps a history (row-major) to a row; None is the history itself."""
    out = Paths(context_probs=model.context_probs.tolist())
    shape = (model.contexts, *model.actions)
    for index in np.ndindex(shape):
        atoms = zip(model.reward_values[index], model.reward_probs[index], strict=True)
        for value, p in atoms:
            if p == 0:
                continue
            steps, history = [], index[0]
            for t, action in enumerate(index[1:]):
                row = history if observation is None else int(observation[t][history])
                reward = float(value) if t + 1 == model.turns else 0.0
                steps.append((row, action, True, reward, index[: t + 1]))
                history = history * model.actions[t] + action
            out.add(index[0], model.context_probs[index[0]] * float(p), steps)
    return out


def mdp_paths(model):
    starts = np.flatnonzero(model.initial > 0)
    out = Paths(context_probs=model.initial[starts].tolist(), discount=model.discount)

    def walk(context, turn, state, prob, steps, seen):
        if turn == model.horizon:
            out.add(context, prob, steps)
            return
        values, probs = model.reward_atoms_by_turn(turn)
        over = bool(model.absorbing[state])
        for action in range(model.action_count):
            if not model.mask_by_turn(turn)[state, action]:
                continue
            for following, p in enumerate(model.transitions_by_turn(turn)[state, action]):
                for value, q in zip(values[state, action], probs[state, action], strict=True):
                    if p * q > 0:
                        step = (state, action, not over, float(value), seen)
                        later = (*seen, action, float(value), following)
                        walk(context, turn + 1, following, prob * p * q, [*steps, step], later)
            if over:
                break  # a no-op turn: whatever is done, the same follows

    for context, state in enumerate(starts):
        walk(context, 0, int(state), model.initial[state], [], (int(state),))
    return out


def paths(model, observation=None):
    if isinstance(model, SequentialBandit):
        return bandit_paths(model, observation)
    assert isinstance(model, TabularMDP)
    return mdp_paths(model)


# Policies ---------------------------------------------------------------------------------------


def log_softmax(logits):
    top = logits.max(axis=-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))


def score(logits, row, action, weight):
    """Σ_i weight_i ∂ log softmax(logits)[row_i, action_i] / ∂ logits."""
    out = np.zeros_like(logits)
    np.add.at(out, (row, action), weight)
    mass = np.zeros(len(logits))
    np.add.at(mass, row, weight)
    return out - mass[:, None] * np.exp(log_softmax(logits))


class Tabular:
    """Independent logits a turn; forbidden actions have logit -inf."""

    def __init__(self, masks=None):
        self.masks = masks

    def logits(self, theta, turn):
        if self.masks is None:
            return theta[turn]
        return np.where(self.masks[turn], theta[turn], -np.inf)

    def log_prob(self, theta, turn, row, action):
        return log_softmax(self.logits(theta, turn))[row, action]

    def gradient(self, theta, turn, row, action, weight):
        out = [np.zeros_like(x) for x in theta]
        out[turn] = score(self.logits(theta, turn), row, action, weight)
        return tuple(out)


class Shared:
    """One logit table for all turns."""

    def log_prob(self, theta, turn, row, action):
        return log_softmax(theta)[row, action]

    def gradient(self, theta, turn, row, action, weight):
        return score(theta, row, action, weight)


class LogLinear:
    """Logits are features times θ."""

    def __init__(self, features):
        self.features = features

    def log_prob(self, theta, turn, row, action):
        return log_softmax(self.features[turn] @ theta)[row, action]

    def gradient(self, theta, turn, row, action, weight):
        logits = score(self.features[turn] @ theta, row, action, weight)
        return np.einsum("oa,oad->d", logits, self.features[turn])


class Tokens:
    """Independent logits a token; log-probabilities come out as [P, L]."""

    def __init__(self, vocabulary, length):
        self.vocabulary, self.length = vocabulary, length

    def places(self, row, action):
        for j in range(self.length):
            before = action // self.vocabulary ** (self.length - j)
            symbol = action // self.vocabulary ** (self.length - j - 1) % self.vocabulary
            yield j, row * self.vocabulary**j + before, symbol

    def log_prob(self, theta, turn, row, action):
        columns = [log_softmax(theta[turn][j])[r, a] for j, r, a in self.places(row, action)]
        return np.stack(columns, axis=-1)

    def gradient(self, theta, turn, row, action, weight):
        out = [[np.zeros_like(x) for x in token] for token in theta]
        for j, r, a in self.places(row, action):
            out[turn][j] = score(theta[turn][j], r, a, weight[:, j])
        return tuple(map(tuple, out))


def add(x, y, scale=1.0):
    """x + scale · y for arrays or nested tuples; infinite entries of x stay."""
    if isinstance(x, tuple):
        return tuple(add(a, b, scale) for a, b in zip(x, y, strict=True))
    return np.where(np.isfinite(x), x + scale * np.where(np.isfinite(x), y, 0.0), x)


# Advantages -------------------------------------------------------------------------------------


def reward_law(data, policy):
    """Distinct returns of each context and their probabilities, padded with probability 0."""
    law = [defaultdict(float) for _ in data.context_probs]
    for c, p, q, r in zip(data.context, data.prob, policy, data.returns, strict=True):
        law[c][r] += p * q / data.context_probs[c]
    width = max(map(len, law))
    support = [[*d, *[next(iter(d))] * (width - len(d))] for d in law]
    probs = [[*d.values(), *[0.0] * (width - len(d))] for d in law]
    return support, probs


def infinite(support, probs, beta, context, own, a):
    """Advantage in an infinite group and an infinite batch."""
    mean = [
        math.fsum(p * s for p, s in zip(*x, strict=True)) for x in zip(probs, support, strict=True)
    ]
    cells = [
        (b * p, s, m)
        for b, ps, ss, m in zip(beta, probs, support, mean, strict=True)
        for p, s in zip(ps, ss, strict=True)
    ]
    overall = math.fsum(w * s for w, s, _ in cells)
    base = {
        "mean": lambda m: m,
        "loo": lambda m: m,
        "batch": lambda m: overall,
        "none": lambda m: 0.0,
    }
    out = own - base[a.baseline](mean[context])
    if a.normalise == "group":
        m = mean[context]
        pairs = zip(probs[context], support[context], strict=True)
        out = groups.over(out, math.sqrt(math.fsum(p * (s - m) ** 2 for p, s in pairs)), a.std_eps)
    elif a.normalise == "batch":
        centred = [(w, s - base[a.baseline](m)) for w, s, m in cells]
        first = math.fsum(w * x for w, x in centred)
        sigma = math.sqrt(math.fsum(w * (x - first) ** 2 for w, x in centred))
        out = groups.over(out - first, sigma, a.std_eps)
    limit = math.inf if a.advantage_clip is None else a.advantage_clip
    return max(-limit, min(limit, out))


def group_advantages(data, policy, a, group, batch):
    """[P] lists of (probability, advantage) of each trajectory over its companions."""
    support, probs = reward_law(data, policy)
    beta = data.context_probs
    statistics = None
    if batch == math.inf and group < math.inf and a.couples == "batch":
        statistics = groups.infinite_batch(beta, support, probs, group, a)

    def advantages(lists):
        if callable(a.estimator):
            return np.asarray(a.estimator(np.array(lists)))
        if statistics is not None:
            return statistics(lists)
        return groups.advantages(lists, a.baseline, a.normalise, a.std_eps, a.advantage_clip)

    found = {}
    for c, r in set(zip(data.context, data.returns, strict=True)):
        if group == math.inf:
            found[c, r] = [(1.0, infinite(support, probs, beta, c, r, a))]
            continue
        members = 1 if batch == math.inf else batch
        found[c, r] = [
            (p, float(advantages([[r, *rest], *others])[0][0]))
            for p, rest, others in groups.companions(beta, support, probs, c, group, members)
        ]
    return [found[key] for key in zip(data.context, data.returns, strict=True)]


def to_go(data, policy, discount):
    """V of the discounted reward to go at each trajectory's prefix, [P][T]."""
    turns = len(data.rows[0])
    mass, total = defaultdict(float), defaultdict(float)
    weights = [p * q for p, q in zip(data.prob, policy, strict=True)]
    for w, prefix, rewards in zip(weights, data.prefix, data.rewards, strict=True):
        for t in range(turns):
            later = math.fsum(discount ** (s - t) * rewards[s] for s in range(t, turns))
            mass[prefix[t]] += w
            total[prefix[t]] += w * later
    return [[total[x] / mass[x] if mass[x] else 0.0 for x in prefix] for prefix in data.prefix]


def gae(data, policy, a, critic=None):
    """[P][T] advantages, from the definition Σ_l (γλ)^l δ_{t+l}."""
    values = to_go(data, policy, data.discount) if critic is None else critic
    out = []
    for rewards, v in zip(data.rewards, values, strict=True):
        turns = len(rewards)
        following = [*v[1:], 0.0]
        delta = [r + data.discount * n - x for r, n, x in zip(rewards, following, v, strict=True)]
        row = [
            math.fsum((data.discount * a.gae_lambda) ** (s - t) * delta[s] for s in range(t, turns))
            for t in range(turns)
        ]
        limit = math.inf if a.advantage_clip is None else a.advantage_clip
        out.append([max(-limit, min(limit, x)) for x in row])
    return out


def local(data, turn, probabilities):
    """Q(h, a) − V(h) of the total return, the turns following `probabilities` [P][T]."""
    mass, total = defaultdict(float), defaultdict(float)
    for p, q, r, prefix, action in zip(
        data.prob, probabilities, data.returns, data.prefix, data.actions, strict=True
    ):
        weight = p * math.prod(q)
        for key in (prefix[turn], (prefix[turn], action[turn])):
            mass[key] += weight
            total[key] += weight * r
    return [
        total[prefix[turn], action[turn]] / mass[prefix[turn], action[turn]]
        - total[prefix[turn]] / mass[prefix[turn]]
        for prefix, action in zip(data.prefix, data.actions, strict=True)
    ]


# One iteration ----------------------------------------------------------------------------------


def objective(a, change, m):
    """A sample's surrogate with the number M and its derivative, both in the log ratio."""
    if callable(a.objective):
        one = np.ones_like(change * m)
        return a.objective(change * one, 0 * one, m * one, one), a.objective.slope(change, m)
    if a.objective == "reinforce":
        return change * m, m * np.ones_like(change)
    low, high = a.clip_range
    ratio = np.exp(change)
    inside, outside = ratio * m, np.clip(ratio, 1 - low, 1 + high) * m
    value, slope = np.minimum(inside, outside), np.where(inside <= outside, inside, 0.0)
    if a.dual_clip is not None:
        floor = (m < 0) & (value < a.dual_clip * m)
        value, slope = np.where(floor, a.dual_clip * m, value), np.where(floor, 0.0, slope)
    return value, slope


def penalty(kind, mine, reference):
    """KL estimate of a sample and its derivative in the log-probability."""
    u = reference - mine
    return {
        "k1": (-u, np.ones_like(u)),
        "k2": (u**2 / 2, -u),
        "k3": (np.exp(u) - 1 - u, 1 - np.exp(u)),
    }[kind]


class Iteration:
    """One iteration of algorithm `a` from θ; see the module."""

    def __init__(self, data, a, family, theta, lr, group=math.inf, batch=math.inf, anchor=None):
        self.data, self.a, self.family = data, a, family
        self.rows, self.actions = np.array(data.rows), np.array(data.actions)
        self.active = np.array(data.active)
        self.turns = self.rows.shape[1]
        self.group, self.batch, self.lr = group, batch, lr
        self.theta, self.start = theta, theta
        self.anchor = theta if anchor is None else anchor
        self.values, self.gains = [], []

    def at(self, turn):
        return turn, self.rows[:, turn], self.actions[:, turn]

    def taken(self, theta, turn):
        """Log-probability of each trajectory's action, [P] or [P, L]; 0 at no-op turns."""
        out = self.family.log_prob(theta, *self.at(turn))
        active = self.active[:, turn]
        return np.where(active if out.ndim == 1 else active[:, None], out, 0.0)

    def whole(self, theta, turn):
        out = self.taken(theta, turn)
        return out.sum(axis=-1) if out.ndim == 2 else out

    def policy(self, theta):
        """Probability of each trajectory's actions, [P]."""
        return np.exp(np.sum([self.whole(theta, t) for t in range(self.turns)], axis=0))

    def value(self, theta):
        terms = zip(self.data.prob, self.policy(theta), self.data.returns, strict=True)
        return math.fsum(p * q * r for p, q, r in terms)

    def samples(self, theta):
        """Draw (exactly) from θ: probabilities, and advantages [T] of (companion prob., Â)."""
        self.base = theta
        self.mass = np.array(self.data.prob) * self.policy(theta)
        self.factor = np.ones(len(self.mass))
        self.factors = {}
        policy, a = self.policy(theta).tolist(), self.a
        if a.estimator == "exact":
            self.advantages = None
        elif a.estimator == "gae":
            each = np.array(gae(self.data, policy, a))
            self.advantages = [(np.ones((len(each), 1)), each[:, [t]]) for t in range(self.turns)]
        else:
            lists = group_advantages(self.data, policy, a, self.group, self.batch)
            width = max(map(len, lists))
            pairs = np.zeros((2, len(lists), width))
            for i, entries in enumerate(lists):
                pairs[:, i, : len(entries)] = np.transpose(entries)
            self.advantages = [(pairs[0], pairs[1])] * self.turns

    def multiplier(self, turn):
        """(companion probabilities, M), [P, J] each."""
        if self.advantages is None:
            mixed = [
                np.exp(self.whole(self.base, t)) * self.factors.get(t, np.ones(len(self.mass)))
                for t in range(self.turns)
            ]
            prefix = np.prod([f for t, f in self.factors.items() if t < turn], axis=0)
            advantage = np.array(local(self.data, turn, np.transpose(mixed)))
            return np.ones((len(advantage), 1)), (prefix * advantage)[:, None]
        weights, advantage = self.advantages[turn]
        return weights, self.factor[:, None] * advantage

    def spread(self, turn, weight, like):
        """Gradient of Σ weight_i log π(τ_i's action), weight [P] or [P, L]; no-ops feel nothing."""
        weight = np.where(self.active[:, turn], weight.T, 0.0).T
        if like.ndim == 2 and weight.ndim == 1:
            weight = np.repeat(weight[:, None], like.shape[1], axis=1)
        return self.family.gradient(self.theta, *self.at(turn), weight)

    def surrogate(self, turn, old, weights, m):
        """(value, gradient) at the present θ."""
        new = self.taken(self.theta, turn)
        change = new - self.taken(old, turn)
        share = 1.0
        if change.ndim == 2 and self.a.level != "token":
            share = 1.0 if self.a.level == "sequence" else 1 / change.shape[1]
            change = share * change.sum(axis=-1)
        if change.ndim == 2:
            change, m, weights = change[:, None, :], m[:, :, None], weights[:, :, None]
        else:
            change = change[:, None]
        value, slope = objective(self.a, change, m)
        mass = np.where(self.active[:, turn], self.mass, 0.0)
        total = mass @ (weights * value).sum(axis=1)
        pulled = self.mass * share * (weights * slope).sum(axis=1).T
        gradient = self.spread(turn, pulled.T, new)
        cost, toll = self.kl(turn)
        return float(np.sum(total)) - cost, add(gradient, toll, -1.0)

    def kl(self, turn):
        new = self.taken(self.theta, turn)
        each, slope = penalty(
            self.a.kl_kind, self.whole(self.theta, turn), self.whole(self.anchor, turn)
        )
        mass = self.a.kl_coef * np.where(self.active[:, turn], self.mass, 0.0)
        return float(mass @ each), self.spread(turn, mass * slope, new)

    def climb(self, function):
        """`function()` gives (value, gradient) at `self.theta`."""
        start, _ = function()
        for _ in range(self.a.epochs):
            now, gradient = function()
            here, rate = self.theta, self.lr
            self.theta = add(here, gradient, rate)
            while self.a.guard and function()[0] < max(now, 0.0):
                rate = rate / 2 if rate > 1e-13 * self.lr else 0.0
                self.theta = add(here, gradient, rate)
                if rate == 0.0:
                    break
        self.gains.append(function()[0] - start)
        self.values.append(self.value(self.theta))

    def advance(self, turn, old):
        change = self.taken(self.theta, turn) - self.taken(old, turn)
        if change.ndim == 2:
            collapse = np.mean if self.a.level == "length-normalised" else np.sum
            change = collapse(change, axis=-1)
        ratio = np.exp(change)
        if self.a.factor_clip is not None:
            ratio = np.clip(ratio, 1 - self.a.factor_clip, 1 + self.a.factor_clip)
        product = self.factor * ratio
        if self.a.product_clip is not None:
            product = np.clip(product, 1 - self.a.product_clip, 1 + self.a.product_clip)
        active = self.active[:, turn]
        self.factor = np.where(active, product, self.factor)
        self.factors[turn] = np.where(active, ratio, 1.0)

    def trajectory(self):
        weights, advantage = self.advantages[0]

        def function():
            paths = [
                self.whole(self.theta, t) - self.whole(self.start, t) for t in range(self.turns)
            ]
            value, slope = objective(self.a, np.sum(paths, axis=0)[:, None], advantage)
            total = float(self.mass @ (weights * value).sum(axis=1))
            pulled = self.mass * (weights * slope).sum(axis=1)
            parts = []
            for t in range(self.turns):
                cost, toll = self.kl(t)
                total -= cost
                parts.append(add(self.spread(t, pulled, self.taken(self.theta, t)), toll, -1.0))
            return total, sum_of(parts)

        self.climb(function)

    def run(self, order):
        """Update the turns in this order (None: all at once); returns the new θ."""
        self.samples(self.start)
        if self.a.credit == "trajectory":
            self.trajectory()
            return self.theta
        for turns in [tuple(range(self.turns))] if order is None else [(t,) for t in order]:
            old = self.theta if self.a.reference == "current" else self.start
            if self.a.resample:
                old = self.theta
                self.samples(self.theta)
            fixed = {t: self.multiplier(t) for t in turns}

            def function(old=old, fixed=fixed):
                values, gradients = zip(
                    *(self.surrogate(t, old, *fixed[t]) for t in fixed), strict=True
                )
                return math.fsum(values), sum_of(gradients)

            self.climb(function)
            if order is not None and not self.a.resample:
                for t in turns:
                    self.advance(t, old)
        return self.theta


def sum_of(parts):
    out = parts[0]
    for part in parts[1:]:
        out = add(out, part)
    return out
