r"""The law of improvement: one iteration in exact expectation does not lower J.

Bandits with independent tables take a fast route: one compiled program for all bandits of a shape
(`seeupo_theory.tabular.ensembles`), so that an example of Hypothesis costs a millisecond instead of
a compilation.  Everything else goes through `seeupo_theory.step`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bandits.sequential import SequentialBandit
from seeupo_theory.rules import presets
from seeupo_theory.rules.orders import turn_order
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.testing._report import command, problem, step_call

__all__ = ["OVERSHOOTS", "Overshoot", "assert_monotone"]

MONOTONE_TOLERANCE = 1e-10
"""A fall of J below this, relative to the largest reward (at least 1), is taken for rounding: a
hundred gradient steps, each a sum over some thousand leaves."""

OVERSHOOT_TOLERANCE = 1e-12
"""A surrogate that misses its start by less than this, relative likewise, did not fall."""

OVERSHOOTS = ("reject", "fail", "allow")


STEP_OPTIONS = frozenset(
    ("group_size", "contexts_per_batch", "seed", "param", "options", "theta", "observe")
)
"""What `seeupo_theory.step` takes besides switches of the algorithm."""


class Overshoot(AssertionError):
    """J fell, but a step so long that it lowers its own surrogate is covered by no theorem."""


def assert_monotone(
    algorithm: str | Algorithm,
    model: Any,
    policy: Any = None,
    *,
    each_update: bool = True,
    overshoot: str = "reject",
    tolerance: float = MONOTONE_TOLERANCE,
    **options: Any,
) -> None:
    r"""One iteration from the policy does not lower J: :math:`J(\pi_{k+1}) \ge J(\pi_k)`.

    **Overshoots.**  Improvement theorems speak of steps that raise the surrogate they ascend.  A
    gradient step can be so long that it lowers it, in some row of the policy table; where J falls
    after such a step the algorithm's *step size* is at fault, not the claim.  `overshoot` says what
    happens then:

    * "reject" (default): inside a Hypothesis test the example is discarded, as `assume` does, and
      counted as the event "overshoot" in the statistics (if nearly all examples are, Hypothesis
      fails its health check); elsewhere nothing was tested, and `Overshoot` is raised;
    * "fail": `Overshoot`, an AssertionError, is raised everywhere;
    * "allow": the test passes.

    Args:
        algorithm: a preset's name, "module:function", or an `Algorithm` (with a function of the
            user's as ``estimator`` or ``objective``).
        policy: T tables [O_t, A_t]; None for uniform.
        each_update: J should not fall after any single turn's update either.
        tolerance: fall of J that counts as rounding, relative to the largest reward (at least 1).
        options: all that `seeupo_theory.step` takes: group_size, contexts_per_batch, seed, param,
            options, theta, observe, and switches of the algorithm (lr, epochs, clip, …).

    Raises:
        AssertionError: J before and after, model, policy, and the call and the command that
            repeat the step.
        ValueError: an argument that does not fit, or an expectation that would need Monte Carlo
            and could assert nothing.

    >>> model = SequentialBandit([[[0, 1], ["1/2", "1/2"]]])
    >>> assert_monotone("seeupo", model, lr=0.5)
    """
    if overshoot not in OVERSHOOTS:
        raise ValueError(f"overshoot is {overshoot!r}; it should be one of {', '.join(OVERSHOOTS)}")
    chosen, options = _split(presets.get(algorithm), options)
    path, rose, order = _fast(chosen, model, policy, options) or _plain(
        chosen, model, policy, options
    )
    scale = max(1.0, float(np.abs(_leaf_values(model)).max()))
    falls = path[:-1] - path[1:] if each_update else path[:1] - path[-1:]
    if falls.max() <= tolerance * scale:
        return
    if rose >= -OVERSHOOT_TOLERANCE * scale:
        raise AssertionError(_message(chosen, model, policy, options, path, order))
    _overshot(overshoot, _message(chosen, model, policy, options, path, order))


Options = dict[str, Any]
Measured = tuple[np.ndarray, float, tuple[int, ...] | None]
"""J before and after each update [1 + U], the worst rise of a row's surrogate, and the order."""


def _split(algorithm: Algorithm, given: Options) -> tuple[Algorithm, Options]:
    """The algorithm with its switches set, and what `seeupo_theory.step` takes besides."""
    switches = {key: value for key, value in given.items() if key not in STEP_OPTIONS}
    options = {key: value for key, value in given.items() if key in STEP_OPTIONS}
    return (algorithm.replace(**switches) if switches else algorithm), options


def _leaf_values(model: Any) -> np.ndarray:
    from seeupo_theory import api

    loaded = api.load(model)
    return np.asarray((loaded.graph() if hasattr(loaded, "graph") else loaded).leaf_values)


def _fast(algorithm: Algorithm, model: Any, policy: Any, options: Options) -> Measured | None:
    """One compiled program a shape; None where the problem is not of that kind."""
    known = {"group_size", "contexts_per_batch", "seed", "param"}
    if not isinstance(model, SequentialBandit) or not set(options) <= known:
        return None
    if options.get("param", "tabular") != "tabular" or isinstance(policy, str):
        return None
    from seeupo_theory.tabular.ensembles import Ensemble, Instances, iterate_all
    from seeupo_theory.tabular.evaluate import check_policy, uniform_policy
    from seeupo_theory.tabular.expectation import Law, plan

    graph = model.graph()
    size, batch = (options.get(k, math.inf) for k in ("group_size", "contexts_per_batch"))
    if algorithm.estimator not in ("gae", "exact"):
        per_context = graph.leaves * graph.atoms // graph.contexts
        if plan(Law(algorithm, size, batch), graph.contexts, per_context).method != "exact":
            return None
    tables = uniform_policy(graph) if policy is None else check_policy(graph, policy)
    with np.errstate(divide="ignore"):
        theta = tuple(np.log(table)[None] for table in tables)
    order = None
    if not algorithm.simultaneous:
        rng = np.random.default_rng(options.get("seed", 0))
        order = turn_order(algorithm.order, graph.turns, rng)
    out = iterate_all(
        Ensemble(graph.actions, graph.contexts, graph.atoms),
        algorithm.replace(lr=0.0),  # the step size is an argument: one program for all of them
        Instances(
            np.array(graph.context_probs)[None],
            np.array(graph.leaf_values)[None],
            np.array(graph.leaf_probs)[None],
            theta,
            None,
        ),
        lr=algorithm.lr,
        order=order,
        group_size=size,
        contexts_per_batch=batch,
    )
    path = np.concatenate([out.value_before, out.values[0]])
    if not np.isfinite(path).all():
        raise ValueError(f"the step is not finite (J: {path.tolist()}); use a smaller lr")
    return path, float(out.worst_row_gain.min()), order


def _plain(algorithm: Algorithm, model: Any, policy: Any, options: Options) -> Measured:
    from seeupo_theory import api

    step = api.step(model, policy, algorithm=algorithm, **options)
    if step.method != "exact":
        raise ValueError(
            f"the expectation is {step.method} (standard error {step.standard_error:.2g}), which "
            "asserts nothing; take a smaller group_size or contexts_per_batch, or inf"
        )
    path = np.array([step.value_before, *step.per_turn])
    order = None if step.updated == ["all"] else tuple(t - 1 for t in step.updated)
    return path, 0.0 if step.surrogate_rose else -math.inf, order


def _message(
    algorithm: Algorithm,
    model: Any,
    policy: Any,
    options: Options,
    path: np.ndarray,
    order: tuple[int, ...] | None,
) -> str:
    at = int((path[:-1] - path[1:]).argmax())
    start, end = (path[0], path[-1]) if path[-1] < path[0] else (path[at], path[at + 1])
    turn = f" in the update of turn {order[at] + 1}" if order and path[-1] >= path[0] else ""
    shown = " → ".join(f"{j:.12g}" for j in path)
    text = (
        f"{algorithm.name} lowers J by {start - end:.6g}{turn}: {start:.12g} before, {end:.12g} after "
        f"(the whole iteration: {shown})\n{problem(model, policy)}\n{step_call(algorithm, options)}"
    )
    line = command(algorithm, options)
    return text if line is None else f"{text}\n{line}"


def _overshot(overshoot: str, message: str) -> None:
    if overshoot == "allow":
        return
    if overshoot == "reject":
        import hypothesis

        if hypothesis.currently_in_test_context():
            hypothesis.event("overshoot")
            hypothesis.reject()
    raise Overshoot(f"an inner step lowers its own surrogate, and {message}")
