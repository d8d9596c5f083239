r"""Laws of any rule on arrays: estimators, objectives, ratios, factors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seeupo_theory.rules._arrays import choice
from seeupo_theory.rules.objectives import OBJECTIVES
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.testing._estimators import BATCHES, resolve
from seeupo_theory.testing._report import label

__all__ = [
    "assert_does_not_write",
    "assert_lower_bound",
    "assert_no_nan",
    "assert_same_rule",
]

LIBRARY_TOLERANCE = {8: 1e-10, 4: 1e-4, 2: 1e-2}
"""Two libraries round exp, log and sums of a thousand terms differently, by the bytes of a float."""

RATIO_GRID = (0.01, 0.5, 0.75, 0.8, 0.9, 1.0, 1.1, 1.2, 1.25, 2.0, 100.0)
"""Ratios on, inside and far outside the usual clip intervals."""

ADVANTAGE_GRID = (-3.0, -0.5, 0.0, 0.5, 3.0)

Rule = Callable[..., Any]


def assert_same_rule(
    jax_fn: Rule,
    torch_fn: Rule,
    *arguments: Any,
    gradients: bool = True,
    tolerance: float | None = None,
) -> None:
    r"""A JAX function and a torch function are the same rule: values and gradients agree.

    NumPy arrays among the arguments become arrays of each library, with the same dtype; everything
    else is passed as it is.  Gradients are those of :math:`\sum_k w_k f_k` with fixed weights w, in
    every floating array, so that each sample's share is seen.  Try the kinks too: at a clip
    boundary the libraries' own ``min`` and ``clip`` choose different subgradients.  JAX compiles
    each operation for each shape: draw many numbers, but few shapes.

    Args:
        jax_fn, torch_fn: functions of the same arguments; they return an array, or a tuple or list
            of arrays.
        arguments: NumPy arrays, numbers, strings, None.
        gradients: compare gradients too.
        tolerance: allowed difference, relative to the largest entry (at least 1); default 1e-10
            for float64, 1e-4 for float32.

    Raises:
        AssertionError: names the output or the argument, the index, and both numbers; a NaN never
            agrees.
        ModuleNotFoundError: torch is not installed.

    >>> from seeupo_theory.rules.objectives import clip
    >>> log_prob, advantage = np.log([0.5, 0.3]), np.array([1.0, -1.0])
    >>> assert_same_rule(clip, clip, log_prob, log_prob - 0.5, advantage)
    """
    torch = _torch()
    import jax
    import jax.numpy as jnp

    import seeupo_theory.tabular  # noqa: F401  switches JAX to 64-bit floats

    arrays = {i: np.asarray(a) for i, a in enumerate(arguments) if isinstance(a, np.ndarray)}
    floats = [i for i, a in arrays.items() if a.dtype.kind == "f"]
    given = [arrays.get(i, a) for i, a in enumerate(arguments)]

    def call(rule: Rule, make: Callable[[Any], Any], replaced: dict[int, Any]) -> list[Any]:
        full = [
            replaced[i] if i in replaced else make(a) if i in arrays else a
            for i, a in enumerate(given)
        ]
        return _flat(rule(*full))

    ours = [np.asarray(x) for x in call(jax_fn, jnp.asarray, {})]
    inputs = {i: torch.tensor(arrays[i], requires_grad=True) for i in floats}
    outputs = [torch.as_tensor(x) for x in call(torch_fn, torch.tensor, inputs)]
    theirs = [x.detach().numpy() for x in outputs]
    if len(ours) != len(theirs):
        raise AssertionError(f"JAX returns {len(ours)} arrays, torch {len(theirs)}")
    shown = f"\narguments = {_shown(given)}"
    for k, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        _same(f"output {k}" if len(ours) > 1 else "value", one, other, tolerance, shown)
    smooth = [k for k, x in enumerate(ours) if x.dtype.kind == "f"]
    if not gradients or not floats or not smooth:
        return
    weights = [np.cos(np.arange(1, ours[k].size + 1)).reshape(ours[k].shape) for k in smooth]
    weights = [w.astype(ours[k].dtype) for w, k in zip(weights, smooth, strict=True)]

    def traced(*values: Any) -> list[Any]:
        out = call(jax_fn, jnp.asarray, dict(zip(floats, values, strict=True)))
        return [out[k] for k in smooth]

    _, pull = jax.vjp(traced, *(jnp.asarray(arrays[i]) for i in floats))
    ours = [np.asarray(g) for g in pull([jnp.asarray(w) for w in weights])]
    reached = [(outputs[k], w) for k, w in zip(smooth, weights, strict=True)]
    reached = [(x, w) for x, w in reached if x.requires_grad]
    found: Sequence[Any] = [None] * len(floats)
    if reached:
        found = torch.autograd.grad(
            [x for x, _ in reached],
            list(inputs.values()),
            [torch.tensor(w) for _, w in reached],
            allow_unused=True,
        )
    for i, one, other in zip(floats, ours, found, strict=True):
        tensor = np.zeros_like(arrays[i]) if other is None else other.numpy()
        _same(f"gradient in argument {i}", one, tensor, tolerance, shown)


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise ModuleNotFoundError(
            "assert_same_rule compares with torch, which is not installed; install it with "
            "pip install 'seeupo[torch]'"
        ) from error
    return torch


def _flat(out: Any) -> list[Any]:
    if isinstance(out, (tuple, list)):
        return [x for part in out for x in _flat(part)]
    return [out]


def _shown(arguments: Sequence[Any]) -> str:
    return repr([a.tolist() if hasattr(a, "tolist") else a for a in arguments])


def _same(
    what: str, one: NDArray[Any], other: NDArray[Any], tolerance: float | None, shown: str
) -> None:
    if one.shape != other.shape or one.dtype != other.dtype:
        raise AssertionError(
            f"{what}: JAX gives shape {one.shape} of {one.dtype}, torch {other.shape} of "
            f"{other.dtype}; they should be equal{shown}"
        )
    if one.dtype.kind == "f":
        near = LIBRARY_TOLERANCE[one.dtype.itemsize] if tolerance is None else tolerance
        size = max(1.0, float(np.max(abs(one), initial=0.0, where=np.isfinite(one))))
        with np.errstate(invalid="ignore"):
            wrong = ~((one == other) | (abs(one - other) <= near * size))
    else:
        wrong = one != other
    if wrong.any():
        at = np.unravel_index(int(wrong.argmax()), wrong.shape) if wrong.ndim else ()
        index = [int(i) for i in at]
        raise AssertionError(
            f"{what}{index if index else ''}: JAX gives {one[at]!s}, torch {other[at]!s}{shown}"
        )


def _cases(rule: Any, arguments: tuple[Any, ...]) -> tuple[Rule, list[tuple[Any, ...]]]:
    """The function and the argument lists to try; without arguments it is an estimator."""
    if arguments:
        return rule, [arguments]
    return resolve(rule), [(batch,) for batch in BATCHES]


def assert_no_nan(rule: Any, *arguments: Any, infinite: bool = False) -> None:
    """The rule's values are finite; no warning, no NaN for equal rewards or a group of one.

    Args:
        rule: any function of arrays that returns an array, or a tuple or list of them.
        arguments: what it is called with; without any the rule is taken for an estimator and tried
            on `BATCHES`.
        infinite: ±inf is allowed.

    Raises:
        AssertionError: names the index, with the arguments.

    >>> assert_no_nan("grpo")
    >>> assert_no_nan(lambda returns: returns / returns.std(axis=-1, keepdims=True))
    Traceback (most recent call last):
    ...
    AssertionError: <lambda> gives nan at [0, 0]
    arguments = [[[0.0, 0.0, 0.0]]]
    """
    function, cases = _cases(rule, arguments)
    for case in cases:
        with np.errstate(all="ignore"):
            outputs = [_numpy(x) for x in _flat(function(*_copies(case)))]
        for k, out in enumerate(outputs):
            wrong = np.isnan(out) if infinite else ~np.isfinite(out)
            if wrong.any():
                index = [int(i) for i in np.argwhere(np.atleast_1d(wrong))[0]]
                place = f"{index} of output {k}" if len(outputs) > 1 else f"{index}"
                raise AssertionError(
                    f"{label(rule)} gives {np.atleast_1d(out)[tuple(index)]!s} at {place}\n"
                    f"arguments = {_shown(case)}"
                )


def assert_does_not_write(rule: Any, *arguments: Any) -> None:
    """The rule leaves its arguments as they were.

    Args:
        rule, arguments: as `assert_no_nan`; NumPy arrays, torch tensors, lists.  The rule is called
            with writable copies.

    Raises:
        AssertionError: names the argument, before and after.

    >>> assert_does_not_write("seeupo")
    """
    function, cases = _cases(rule, arguments)
    for case in cases:
        before, given = _copies(case), _copies(case)
        function(*given)
        for i, (was, now) in enumerate(zip(before, given, strict=True)):
            if not _unchanged(was, now):
                raise AssertionError(
                    f"{label(rule)} writes into argument {i}: {_shown([was])[1:-1]} became "
                    f"{_shown([now])[1:-1]}; it should leave it alone"
                )


def _copies(case: Sequence[Any]) -> list[Any]:
    return [copy.deepcopy(a.detach() if hasattr(a, "detach") else a) for a in case]


def _numpy(value: Any) -> NDArray[Any]:
    return np.asarray(value.detach() if hasattr(value, "detach") else value)


def _unchanged(was: Any, now: Any) -> bool:
    if not hasattr(was, "dtype"):
        return repr(was) == repr(now)
    one, other = _numpy(was), _numpy(now)
    return (
        one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()
    )


def assert_lower_bound(
    objective: Any,
    ratio: Any = None,
    advantage: Any = None,
    *,
    tolerance: float = 1e-12,
) -> None:
    r"""The objective is at most the linear gain: :math:`f(\rho, A) \le \rho A`.

    This is what makes a clipped surrogate safe: whatever raises f raises the expected
    :math:`\rho A`, and with it J.  A dual clip breaks it (large ratios of bad actions).

    Args:
        objective: a function (log_prob, log_prob_old, advantage, weight) → one value a sample, an
            `Algorithm`, or a name ("clip", "reinforce", "linear").
        ratio: positive numbers, any shape; default `RATIO_GRID`.
        advantage: numbers of the same shape, or one; default all of `ADVANTAGE_GRID` at each ratio.
        tolerance: allowed excess, relative to ρ|A| (at least 1).

    Raises:
        AssertionError: names ratio, advantage and value where the excess is largest.

    >>> assert_lower_bound("clip")
    """
    rule = objective
    if isinstance(objective, Algorithm):
        rule = objective.objective_rule()
    elif isinstance(objective, str):
        rule = OBJECTIVES[choice(objective, "objective", OBJECTIVES)]
    ratios = np.asarray(RATIO_GRID if ratio is None else ratio, dtype=np.float64).reshape(-1)
    wrong = ~(np.isfinite(ratios) & (ratios > 0))
    if wrong.any():
        raise ValueError(f"ratio is {ratios[wrong.argmax()]}; it should be positive and finite")
    if advantage is None:
        ratios, sizes = (x.reshape(-1) for x in np.meshgrid(ratios, ADVANTAGE_GRID))
    else:
        sizes = np.asarray(advantage, dtype=np.float64).reshape(-1)
        if sizes.size != ratios.size and 1 not in (sizes.size, ratios.size):
            raise ValueError(
                f"advantage has {sizes.size} entries; it should have 1 or {ratios.size}, as ratio"
            )
        ratios, sizes = np.broadcast_arrays(ratios, sizes)
    log_ratio = np.log(ratios)
    old = np.minimum(0.0, -log_ratio) - np.log(2.0)  # both probabilities are at most 1/2
    out = _numpy(rule(old + log_ratio, old, sizes.copy(), np.ones(ratios.shape)))
    if out.shape != ratios.shape:
        raise AssertionError(
            f"{label(objective)} returns shape {out.shape} for {ratios.size} samples; it should "
            "return one value each"
        )
    excess = (out - ratios * sizes) / np.maximum(1.0, abs(ratios * sizes))
    excess = np.where(np.isnan(excess), np.inf, excess)
    worst = int(excess.argmax())
    if excess[worst] > tolerance:
        raise AssertionError(
            f"{label(objective)} exceeds the linear gain: {out[worst]:.12g} at ratio "
            f"{ratios[worst]:.12g} and advantage {sizes[worst]:.12g}, it should be at most "
            f"{ratios[worst] * sizes[worst]:.12g}"
        )
