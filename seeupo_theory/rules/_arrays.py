r"""What every rule shares: which array library, which dtype, and guards that survive tracing.

The rules use the Python array API standard only, through `array_api_compat`.  Four traps that this
module closes once, for all of them:

- ``torch.where(c, 1.2, 0.8)`` is float32 whatever the data: constants are always made by
  `full_like` of an array whose dtype is to be kept.
- A branch that is not taken still sends a gradient: :math:`0 \cdot \infty` is NaN.  The *argument*
  of an unsafe function is replaced first (`keep`), and only then is the function applied.
- A check of values is possible on concrete arrays only.  `truth` answers None while a library
  traces (``jax.jit``, ``jax.vmap``, ``torch.func.vmap``), and passes any real error on.
- A mask may be boolean, integer or floating: `as_mask` makes it boolean.
"""

from __future__ import annotations

import math
from difflib import get_close_matches
from numbers import Real
from typing import Any, TypeAlias

import array_api_compat
import numpy as np

__all__ = ["Array"]

Array: TypeAlias = Any
"""An array of NumPy, JAX, torch or any other library that follows the array API standard."""

LOG_LIMIT = {16: 11.0, 32: 88.0, 64: 709.0}
"""Largest whole number whose exponential is finite, by the width of the dtype in bits."""

_TRACING = frozenset({"TracerBoolConversionError", "ConcretizationTypeError"})


def namespace(**arrays: Any) -> Any:
    """Array library of the arguments (numbers and None are skipped).

    Raises:
        TypeError: an argument is not an array, or the libraries differ.
    """
    known: list[Any] = []
    scalars = []
    for name, value in arrays.items():
        if isinstance(value, np.generic):
            scalars.append(value)
            continue
        if value is None or isinstance(value, bool | int | float):
            continue
        if not array_api_compat.is_array_api_obj(value):
            raise TypeError(
                f"{name} is a {type(value).__name__}; it should be an array "
                "(NumPy, JAX, torch or another array API library)"
            )
        known.append(value)
    known = known or scalars
    if not known:
        raise TypeError(f"one of {', '.join(arrays)} should be an array; all are plain numbers")
    try:
        return array_api_compat.array_namespace(*known)
    except TypeError as error:
        kinds = ", ".join(f"{k} ({type(v).__module__})" for k, v in arrays.items())
        raise TypeError(f"the arrays come from different libraries: {kinds}") from error


def floating(xp: Any, value: Array, name: str) -> Array:
    """The array itself if it is real floating, else converted to the default real dtype."""
    if xp.isdtype(value.dtype, "real floating"):
        return value
    if not xp.isdtype(value.dtype, ("bool", "integral")):
        raise TypeError(f"{name} has dtype {value.dtype}; it should be real")
    default = xp.__array_namespace_info__().default_dtypes()["real floating"]
    return xp.astype(value, default)


def like(xp: Any, value: Array | float, model: Array, name: str) -> Array:
    """`value` as an array that broadcasts with `model`: a number, or as many axes as `model`."""
    if isinstance(value, bool | int | float | np.generic):
        return xp.full_like(model, float(value))
    value = floating(xp, value, name)
    if value.ndim not in (0, model.ndim) or not _broadcasts(value.shape, model.shape):
        raise ValueError(
            f"{name} has shape {tuple(value.shape)}; it should be a number or have "
            f"{model.ndim} axes that broadcast with {tuple(model.shape)}"
        )
    return value


def _broadcasts(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return not one or all(a == b or 1 in (a, b) for a, b in zip(one, other, strict=True))


def same_shape(**arrays: Array) -> None:
    """Raise ValueError unless all arrays have one shape."""
    for name, value in arrays.items():
        if not hasattr(value, "shape"):
            raise TypeError(f"{name} is {value!r}; it should be an array")
    shapes = {name: tuple(value.shape) for name, value in arrays.items()}
    if len(set(shapes.values())) > 1:
        text = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"shapes differ: {text}; they should be equal")


def as_mask(xp: Any, mask: Array, shape: tuple[int, ...], name: str = "mask") -> Array:
    """Boolean mask of exactly `shape`; non-zero entries count as True."""
    if tuple(mask.shape) != tuple(shape):
        raise ValueError(f"{name} has shape {tuple(mask.shape)}; it should be {tuple(shape)}")
    return boolean(xp, mask)


def spread(xp: Any, value: Array, shape: tuple[int, ...], name: str) -> Array:
    """`value` broadcast to `shape`; ValueError where it does not fit."""
    missing = len(shape) - value.ndim
    if missing < 0 or any(
        a not in (1, b) for a, b in zip(value.shape, shape[missing:], strict=True)
    ):
        raise ValueError(
            f"{name} has shape {tuple(value.shape)}; it should broadcast to {tuple(shape)}"
        )
    return xp.broadcast_to(value, tuple(shape))


def boolean(xp: Any, mask: Array) -> Array:
    """`mask` as booleans."""
    return mask if xp.isdtype(mask.dtype, "bool") else mask != 0


def keep(xp: Any, condition: Array, value: Array, otherwise: float = 0.0) -> Array:
    """`value` where the condition holds, a constant of the same dtype elsewhere."""
    return xp.where(condition, value, xp.full_like(value, otherwise))


def tame(xp: Any, inert: Array, exponent: Array) -> Array:
    """Exponents of inert samples that exp cannot hold (or NaN) become 0; all others stay.

    A sample is inert when its ratio is multiplied by an exact 0: without this, 0 · exp(800) is NaN.
    """
    limit = LOG_LIMIT.get(xp.finfo(exponent.dtype).bits, 709.0)
    holds = xp.abs(exponent) < limit  # False for NaN
    return keep(xp, ~inert | holds, exponent)


def truth(condition: Array) -> bool | None:
    """The condition as a bool, or None while a library traces and no value exists."""
    try:
        return bool(condition)
    except Exception as error:
        for kind in type(error).__mro__:
            if kind.__name__ in _TRACING and kind.__module__.partition(".")[0] == "jax":
                return None
        if type(error) is RuntimeError and "data-dependent control flow" in str(error):
            return None  # torch.func.vmap
        raise


def first(xp: Any, wrong: Array) -> tuple[int, ...]:
    """Index of the first True entry of a concrete boolean array."""
    flat = int(xp.argmax(xp.astype(xp.reshape(wrong, (-1,)), xp.int32)))
    index = []
    for size in reversed(wrong.shape):
        flat, last = divmod(flat, size)
        index.append(last)
    return tuple(reversed(index))


def forbid(xp: Any, wrong: Array, value: Array, name: str, should: str) -> None:
    """Raise ValueError naming the first entry of `value` where `wrong`; silent while tracing."""
    if truth(xp.any(wrong)):
        at = first(xp, wrong)
        text = f"[{', '.join(map(str, at))}]" if at else ""
        raise ValueError(f"{name}{text} is {float(value[at])}; it should be {should}")


def number(
    value: Any,
    name: str,
    low: float,
    high: float = math.inf,
    *,
    open_low: bool = False,
    infinite: bool = False,
) -> float:
    """`value` as a float in [low, high]; ValueError or TypeError otherwise."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} is {value!r}; it should be a number")
    value = float(value)
    below = value <= low if open_low else value < low
    if math.isnan(value) or below or value > high or (math.isinf(value) and not infinite):
        sign, top = ("more than" if open_low else "at least"), ""
        if high < math.inf:
            top = f" and at most {high:g}"
        elif not infinite:
            top = " and finite"
        raise ValueError(f"{name} is {value}; it should be {sign} {low:g}{top}")
    return value


def choice(value: Any, name: str, known: Any) -> str:
    """`value` if it is one of the known names; the error lists them and suggests a near one."""
    if value in tuple(known):
        return str(value)
    raise ValueError(unknown(value, name, known))


def unknown(value: Any, name: str, known: Any) -> str:
    """Message about an unknown name, with the known ones and the closest."""
    near = get_close_matches(str(value), list(known), n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{name} is {value!r}{hint}; it should be one of {', '.join(known)}"
