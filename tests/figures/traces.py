"""Traces made by hand: what a run records, with numbers one can check in one's head."""

import numpy as np
import xarray as xr

from seeupo_theory.tabular.trace import Trace


def trace(gaps, algorithm="seeupo", *, updates=None, turns=None, optimum=1.0):
    """A trace of these gaps [seed, step]; `updates` is J after each update [seed, iteration, u]."""
    gaps = np.atleast_2d(np.asarray(gaps, dtype=float))
    values = optimum - gaps
    inside = values[:, 1:, None] if updates is None else np.asarray(updates, dtype=float)
    turns = [[-1] * inside.shape[2]] * inside.shape[1] if turns is None else turns
    data = xr.Dataset(
        {
            "value": (("seed", "step"), values),
            "gap": (("seed", "step"), gaps),
            "entropy": (("seed", "step"), gaps),
            "update_value": (("seed", "iteration", "update"), inside),
            "updated_turn": (("iteration", "update"), np.asarray(turns)),
        },
        coords={"seed": np.arange(len(gaps)), "step": np.arange(gaps.shape[1])},
        attrs={"algorithm": algorithm, "optimal_value": optimum},
    )
    return Trace(data, [])
