"""One iteration of an algorithm, trajectory by trajectory: slow, literal, independent.

Models are walked directly (never through a decision graph), every trajectory is a row, companions
of a group are enumerated as ordered tuples (`groups`), and the surrogate of a turn is written down
as in the paper,

    Σ_τ π_k(τ) Σ_others P(others) min(ρ_t M, clip(ρ_t, 1 − low, 1 + high) M),   M = factor(τ) · Â,

with M a number a trajectory and group.  Only the gradient is taken by `jax.grad`.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
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


def log_softmax(logits, mask=None):
    if mask is not None:
        logits = jnp.where(mask, logits, -jnp.inf)
    top = jnp.max(logits, axis=-1, keepdims=True)
    return logits - top - jnp.log(jnp.sum(jnp.exp(logits - top), axis=-1, keepdims=True))


def tabular(masks=None):
    def log_prob(theta, turn, row, action):
        mask = None if masks is None else masks[turn]
        return log_softmax(theta[turn], mask)[row, action]

    return log_prob


def shared(theta, turn, row, action):
    return log_softmax(theta)[row, action]


def log_linear(features):
    return lambda theta, turn, row, action: log_softmax(features[turn] @ theta)[row, action]


def tokens(vocabulary, length):
    """Two-level indexing by hand: token j of an action, given the tokens before it."""

    def log_prob(theta, turn, row, action):
        columns = []
        for j in range(length):
            before = action // vocabulary ** (length - j)
            symbol = action // vocabulary ** (length - j - 1) % vocabulary
            table = log_softmax(theta[turn][j])
            columns.append(table[row * vocabulary**j + before, symbol])
        return jnp.stack(columns, axis=-1)

    return log_prob


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


def objective(a, ratio, log_ratio, m):
    """One sample's surrogate with the number M."""
    if callable(a.objective):
        return a.objective(log_ratio, jnp.zeros_like(log_ratio), m, jnp.ones_like(log_ratio))
    if a.objective == "reinforce":
        return log_ratio * m
    low, high = a.clip_range
    term = jnp.minimum(ratio * m, jnp.clip(ratio, 1 - low, 1 + high) * m)
    if a.dual_clip is not None:
        term = jnp.where(m < 0, jnp.maximum(term, a.dual_clip * m), term)
    return term


def penalty(kind, mine, reference):
    u = reference - mine
    return {"k1": -u, "k2": u**2 / 2, "k3": jnp.exp(u) - 1 - u}[kind]


class Iteration:
    """One iteration of algorithm `a` from θ; see the module."""

    def __init__(
        self, data, a, log_prob, theta, lr, group=math.inf, batch=math.inf, reference=None
    ):
        self.data, self.a, self.log_prob = data, a, log_prob
        self.rows, self.actions = np.array(data.rows), np.array(data.actions)
        self.active = np.array(data.active)
        self.turns = self.rows.shape[1]
        self.group, self.batch, self.lr = group, batch, lr
        self.theta, self.start = theta, theta
        self.reference = theta if reference is None else reference
        self.values, self.gains = [], []

    def taken(self, theta, turn):
        """Log-probability of each trajectory's action, [P] or [P, L]; 0 at no-op turns."""
        out = self.log_prob(theta, turn, self.rows[:, turn], self.actions[:, turn])
        active = self.active[:, turn]
        return jnp.where(active if out.ndim == 1 else active[:, None], out, 0.0)

    def whole(self, theta, turn):
        out = self.taken(theta, turn)
        return jnp.sum(out, axis=-1) if out.ndim == 2 else out

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

    def surrogate(self, theta, turn, old, weights, m):
        new, old = self.taken(theta, turn), self.taken(old, turn)
        active = jnp.asarray(self.active[:, turn], dtype=float)
        change = new - old
        if change.ndim == 2 and self.a.level == "sequence":
            change = jnp.sum(change, axis=-1)
        elif change.ndim == 2 and self.a.level == "length-normalised":
            change = jnp.mean(change, axis=-1)
        if change.ndim == 2:
            change, m = change[:, None, :], m[:, :, None]
            terms = jnp.sum(objective(self.a, jnp.exp(change), change, m), axis=-1)
        else:
            change = change[:, None]
            terms = objective(self.a, jnp.exp(change), change, m)
        total = jnp.sum(self.mass * active * jnp.sum(weights * terms, axis=1))
        return total - self.kl(theta, turn)

    def kl(self, theta, turn):
        if not self.a.kl_coef:
            return 0.0
        each = penalty(self.a.kl_kind, self.whole(theta, turn), self.whole(self.reference, turn))
        active = jnp.asarray(self.active[:, turn], dtype=float)
        return self.a.kl_coef * jnp.sum(self.mass * active * each)

    def climb(self, function):
        step = jax.jit(jax.grad(function))
        start = float(function(self.theta))
        for _ in range(self.a.epochs):
            gradient = step(self.theta)
            rate = self.lr
            if self.a.guard:
                floor = max(float(function(self.theta)), 0.0)
                while function(self.moved(gradient, rate)) < floor and rate > 1e-13 * self.lr:
                    rate /= 2
            self.theta = self.moved(gradient, rate)
        self.gains.append(float(function(self.theta)) - start)
        self.values.append(self.value(self.theta))

    def moved(self, gradient, rate):
        return jax.tree.map(
            lambda x, g: jnp.where(jnp.isfinite(x), x + rate * g, x), self.theta, gradient
        )

    def advance(self, turn, old):
        change = np.asarray(self.taken(self.theta, turn) - self.taken(old, turn))
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
        old = sum(self.whole(self.start, t) for t in range(self.turns))

        def function(theta):
            change = (sum(self.whole(theta, t) for t in range(self.turns)) - old)[:, None]
            terms = objective(self.a, jnp.exp(change), change, advantage)
            penalties = sum(self.kl(theta, t) for t in range(self.turns))
            return jnp.sum(self.mass * jnp.sum(weights * terms, axis=1)) - penalties

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
            self.climb(
                lambda theta, old=old, fixed=fixed: sum(
                    self.surrogate(theta, t, old, *fixed[t]) for t in fixed
                )
            )
            if order is not None and not self.a.resample:
                for t in turns:
                    self.advance(t, old)
        return self.theta
