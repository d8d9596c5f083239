"""Every rule with arguments to try it on, and every array library: the laws run over both.

A new rule needs one `Entry` here to be held to all the laws of `test_laws`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import torch

from seeupo_theory.rules import advantages, factor, improvement, kl, objectives, ratios

jax.config.update("jax_enable_x64", True)

DTYPES = ("float64", "float32")
VALUE_TOLERANCE = {"float64": 1e-13, "float32": 1e-5}
"""About 500 rounding errors of the dtype (sums over at most 12 terms), relative to size 1 to 10."""
LIBRARY_TOLERANCE = {"float64": 1e-13, "float32": 1e-5}
"""The libraries round exp, log and sums differently, by a few units in the last place each."""
DIFFERENCE_TOLERANCE = 1e-7
"""A central difference with step 1e-6 on values of size 1: h² + eps/h."""


@dataclass(frozen=True)
class Backend:
    """An array library: how to enter and leave it."""

    name: str
    array: Callable[[np.ndarray], Any]
    numpy: Callable[[Any], np.ndarray]


BACKENDS = (
    Backend("numpy", lambda x: x.copy(), np.asarray),
    Backend("jax", jnp.asarray, np.asarray),
    Backend("torch", lambda x: torch.tensor(x), lambda x: x.detach().numpy()),
    Backend("strict", lambda x: array_api_strict.asarray(x.copy()), np.asarray),
)


@dataclass(frozen=True)
class Entry:
    """A rule, its arguments by dtype, and which of them it is differentiated in."""

    name: str
    rule: Callable[..., Any]
    arguments: Callable[[np.random.Generator], tuple[np.ndarray, ...]]
    gradient: tuple[int, ...] = ()

    def draw(self, dtype: str, seed: int = 0) -> tuple[np.ndarray, ...]:
        """Arguments with every floating array in the dtype; read-only."""
        out = []
        for x in self.arguments(np.random.default_rng(seed)):
            x = x.astype(dtype) if x.dtype.kind == "f" else x.copy()
            x.setflags(write=False)
            out.append(x)
        return tuple(out)


@cache
def compiled(entry: Entry) -> tuple[Callable[..., Any], list[tuple[Any, ...]]]:
    """The rule under ``jax.jit``, and a list that grows by one dtype signature with each trace."""
    traces: list[tuple[Any, ...]] = []

    def rule(*arguments):
        traces.append(tuple(x.dtype for x in arguments))
        return entry.rule(*arguments)

    return jax.jit(rule), traces


@cache
def compiled_gradient(entry: Entry) -> Callable[..., Any]:
    """Gradient of the sum of outputs, weighted 1, 2, 3, …, under ``jax.jit``."""

    def total(*x):
        out = entry.rule(*x)
        return jnp.sum(out * jnp.arange(1, out.size + 1).reshape(out.shape))

    return jax.jit(jax.grad(total, argnums=entry.gradient))


def run(entry: Entry, backend: Backend, arguments: tuple[np.ndarray, ...]) -> np.ndarray:
    """Value of the rule in a library, back in NumPy."""
    rule = compiled(entry)[0] if backend.name == "jax" else entry.rule
    return backend.numpy(rule(*(backend.array(x) for x in arguments)))


def jax_gradients(entry: Entry, arguments: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """Gradient of the weighted sum of outputs by JAX."""
    return [np.asarray(g) for g in compiled_gradient(entry)(*map(jnp.asarray, arguments))]


def torch_gradients(entry: Entry, arguments: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """The same by torch's autograd."""
    given = [torch.tensor(x) for x in arguments]
    for i in entry.gradient:
        given[i].requires_grad_()
    out = entry.rule(*given)
    (out * torch.arange(1, out.numel() + 1).reshape(out.shape)).sum().backward()
    return [given[i].grad.numpy() for i in entry.gradient]


def difference_gradients(entry: Entry, arguments: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """The same by central differences in NumPy."""
    step, found = 1e-6, []

    def total(x):
        out = np.asarray(entry.rule(*x))
        return np.sum(out * np.arange(1, out.size + 1).reshape(out.shape))

    for i in entry.gradient:
        slope = np.zeros(arguments[i].shape)
        for at in np.ndindex(slope.shape):
            ends = []
            for sign in (1, -1):
                moved = [x.copy() for x in arguments]
                moved[i][at] += sign * step
                ends.append(total(moved))
            slope[at] = (ends[0] - ends[1]) / (2 * step)
        found.append(slope)
    return found


def returns(rng):
    return (rng.normal(size=(3, 4)),)


def log_probs(rng, *shape):
    """Two log-probabilities whose ratio is well off the kinks at 0.8, 1.2, 1.28 and 3."""
    old = np.log(rng.uniform(0.2, 0.6, shape))
    ratio = rng.choice([0.3, 0.7, 0.95, 1.1, 1.6, 4.0], shape)
    return old + np.log(ratio), old


def samples(rng):
    return (*log_probs(rng, 12), rng.normal(size=12), rng.uniform(0.1, 1, 12))


def tokens(rng):
    mask = np.array([[1, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]])
    return (*log_probs(rng, 3, 4), mask)


def values(rng):
    return rng.normal(size=(2, 5)), rng.normal(size=(2, 6)), np.array([[1, 0, 1, 1, 0]] * 2)


def rows(rng):
    return rng.dirichlet(np.ones(4), 3), rng.normal(size=(3, 4))


def log_rows(rng):
    prob, advantage = rows(rng)
    return np.log(prob), advantage


def parts(rng):
    return rng.dirichlet(np.ones(4), 3), rng.uniform(0, 1, (3, 4)), rng.uniform(0, 1, (3, 4))


def new_parts(rng):
    return rng.dirichlet(np.ones(4), 3), *parts(rng)


def running(rng):
    new, old, mask = tokens(rng)
    return rng.uniform(0.5, 1.5, 3), new, old, mask, np.array([True, False, True])


def ends(rng):
    return rng.normal(size=2), np.array([[1, 1, 0], [0, 0, 0]])


def _gae(rewards, v, mask, **options):
    return advantages.gae(rewards, v, mask=mask, **options)


def _advance(running_factor, new, old, mask, active, **options):
    return factor.advance(running_factor, new, old, mask, active=active, **options)


GRAE = {
    f"grae-{baseline}-{scale}": advantages.Grae(baseline, scale, std_eps=0.0)
    for baseline in advantages.BASELINES
    for scale in advantages.NORMALISATIONS
}
OBJECTIVES: dict[str, Any] = {
    **objectives.OBJECTIVES,
    "clip-asymmetric": partial(objectives.clip, low=0.2, high=0.28),
    "clip-dual": partial(objectives.clip, dual=3.0),
}

CATALOGUE = (
    *(Entry(name, rule, returns, (0,)) for name, rule in GRAE.items()),
    Entry("grae-guarded", advantages.Grae("mean", "group", 0.1, 0, clamp=0.9), returns, (0,)),
    Entry("zero-variance-share", advantages.zero_variance_share, returns),
    Entry("gae", partial(_gae, discount=0.9, lam=0.8), values, (0, 1)),
    Entry("gae-ended", partial(_gae, discount=0.9, lam=0.8, bootstrap=False), values, (0, 1)),
    Entry(
        "returns-from-advantages", lambda a, v, m: advantages.returns_from_advantages(a, v), values
    ),
    Entry("masked-return", lambda a, b, m: advantages.masked_return(a, m), tokens, (0,)),
    Entry("token-rewards", advantages.token_rewards, ends, (0,)),
    Entry(
        "discounted-returns", lambda r, v, m: advantages.discounted_returns(r, 0.9, m), values, (0,)
    ),
    *(
        Entry(f"log-ratio-{k}", partial(ratios.log_ratio, level=k), tokens, (0, 1))
        for k in ratios.LEVELS
    ),
    *(Entry(name, rule, samples, (0, 2, 3)) for name, rule in OBJECTIVES.items()),
    Entry("clip-fraction", objectives.clip_fraction, samples),
    *(
        Entry(
            f"aggregate-{how}",
            lambda x, y, mask, how=how: objectives.aggregate(
                x, mask, how, constant=4.0 if how == "constant" else None
            ),
            tokens,
            (0,),
        )
        for how in objectives.AGGREGATIONS
    ),
    *(
        Entry(f"kl-{k}", lambda x, y, m, k=k: kl.kl_penalty(x, y, k, m), tokens, (0, 1))
        for k in kl.KL_KINDS
    ),
    Entry("kl-divergence", lambda a, b: kl.kl_divergence(a, b), log_rows, (0, 1)),
    Entry("factor", _advance, running, (0, 1, 2)),
    Entry(
        "factor-official",
        partial(_advance, level="length-normalised", factor_clip=0.2, product_clip=0.3),
        running,
        (0, 1, 2),
    ),
    Entry("greedy", improvement.greedy, rows),
    Entry("mirror-step", partial(improvement.mirror_step, step=0.7), log_rows, (0, 1)),
    Entry("clip-argmax", improvement.clip_argmax, parts),
    Entry("clip-value", improvement.clip_value, new_parts, (0,)),
)
