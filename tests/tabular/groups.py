"""Group estimators by brute force: ordered groups and batches in plain Python.

Nothing here is shared with the package: estimators are written out on lists, and every ordered
tuple of companions is visited with its probability.
"""

import itertools
import math

import numpy as np


def mean(values):
    return math.fsum(values) / len(values)


def std(values):
    """Sample standard deviation, 0 for fewer than two values or equal ones."""
    if len(values) < 2 or max(values) == min(values):
        return 0.0
    m = mean(values)
    return math.sqrt(math.fsum((x - m) ** 2 for x in values) / (len(values) - 1))


def over(x, sigma, eps):
    return x / (sigma + eps) if sigma > 0 else 0.0


def advantages(batch, baseline, normalise, eps, clamp):
    """Lists of returns, one a group → lists of advantages."""
    everything = [x for group in batch for x in group]
    out = []
    for group in batch:
        size = len(group)
        row = []
        for i, x in enumerate(group):
            if baseline == "mean":
                row.append(x - mean(group))
            elif baseline == "loo":
                row.append(x - mean(group[:i] + group[i + 1 :]) if size > 1 else 0.0)
            else:
                row.append(x - mean(everything) if baseline == "batch" else x)
        out.append([over(x, std(group), eps) for x in row] if normalise == "group" else row)
    if normalise == "batch":
        flat = [x for row in out for x in row]
        out = [[over(x - mean(flat), std(flat), eps) for x in row] for row in out]
    limit = math.inf if clamp is None else clamp
    return [[max(-limit, min(limit, x)) for x in row] for row in out]


def companions(context_probs, support, probs, context, group, batch):
    """(probability, other members' rewards, other groups' rewards) of every ordered companion."""
    contexts, symbols = np.shape(support)

    def groups(c, size):
        for chosen in itertools.product(range(symbols), repeat=size):
            p = math.prod(probs[c][s] for s in chosen)
            if p > 0:
                yield p, [support[c][s] for s in chosen]

    others = [
        (context_probs[c] * p, rewards)
        for c in range(contexts)
        for p, rewards in groups(c, group)
        if batch > 1
    ]
    for p, rest in groups(context, group - 1):
        for chosen in itertools.product(others, repeat=batch - 1):
            weight = p * math.prod(q for q, _ in chosen)
            if weight > 0:
                yield weight, rest, [rewards for _, rewards in chosen]


def expected(context_probs, support, probs, group, batch, rule):
    """E[Â⁺] and E[Â⁻] given context and own reward, [C, S] each; `rule` maps lists to lists."""
    support, probs = np.asarray(support).tolist(), np.asarray(probs).tolist()
    shape = np.shape(support)
    positive, negative = np.zeros(shape), np.zeros(shape)
    for c, s in np.ndindex(shape):
        for p, rest, others in companions(context_probs, support, probs, c, group, batch):
            own = rule([[support[c][s], *rest], *others])[0][0]
            positive[c, s] += p * max(own, 0.0)
            negative[c, s] += p * max(-own, 0.0)
    return positive, negative


def batch_moments(context_probs, support, probs, group, baseline):
    """Mean and standard deviation of the baseline-corrected advantage over an infinite batch."""
    support, probs = np.asarray(support).tolist(), np.asarray(probs).tolist()
    location = math.fsum(
        context_probs[c] * p * s
        for c, (row, weights) in enumerate(zip(support, probs, strict=True))
        for s, p in zip(row, weights, strict=True)
    )
    cells = []
    for c, s in np.ndindex(np.shape(support)):
        for p, rest, _ in companions(context_probs, support, probs, c, group, 1):
            own = support[c][s]
            if baseline == "batch":
                value = own - location
            else:
                value = advantages([[own, *rest]], baseline, "none", 0.0, None)[0][0]
            cells.append((context_probs[c] * probs[c][s] * p, value))
    first = math.fsum(p * x for p, x in cells)
    return location, first, math.sqrt(math.fsum(p * (x - first) ** 2 for p, x in cells))


def infinite_batch(context_probs, support, probs, group, a):
    """Estimator of lists [[own group]] whose batch statistics are the population's."""
    location, first, sigma = batch_moments(context_probs, support, probs, group, a.baseline)
    shift, kept = (location, "none") if a.baseline == "batch" else (0.0, a.baseline)
    limit = math.inf if a.advantage_clip is None else a.advantage_clip

    def rule(batch):
        scale = "group" if a.normalise == "group" else "none"
        row = advantages([[x - shift for x in batch[0]]], kept, scale, a.std_eps, None)[0]
        if a.normalise == "batch":
            row = [over(x - first, sigma, a.std_eps) for x in row]
        return [[max(-limit, min(limit, x)) for x in row]]

    return rule
