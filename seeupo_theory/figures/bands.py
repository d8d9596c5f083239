r"""Error bands over seeds: what is drawn around a mean, and the words that say so.

* "t": :math:`\bar x \pm t_{n-1} s/\sqrt n`, for means of roughly normal runs;
* "bootstrap": percentiles of the means of samples drawn again from the n runs, for skewed ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

__all__ = ["METHODS", "RESAMPLES", "Band", "interval"]

METHODS = ("t", "bootstrap")

RESAMPLES = 2000
"""Bootstrap samples: the 2.5 % percentile then rests on 50 of them."""

BOOTSTRAP_SEED = 0
"""Bands are figures of a run, not new experiments: the same run gives the same band."""


@dataclass(frozen=True)
class Band:
    """Mean of n runs and the bounds around it, each [steps]; `text` goes into the caption."""

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    runs: int
    text: str


def interval(runs: ArrayLike, method: str = "t", level: float = 0.95) -> Band:
    """Mean over runs [n, steps] and a confidence interval of it at every step.

    One run has no band: low and high are the run itself.

    Raises:
        ValueError: an unknown method, a level outside (0, 1), or anything but two dimensions.

    >>> interval([[1.0], [3.0]]).text
    'mean of 2 seeds; bands are 95 % t intervals of the mean'
    """
    values = np.asarray(runs, dtype=float)
    if values.ndim != 2 or not len(values):
        raise ValueError(
            f"runs has shape {values.shape}; expected [runs, steps] with a run at least"
        )
    if method not in METHODS:
        raise ValueError(f"band is {method!r}; expected one of {', '.join(METHODS)}")
    if not 0 < level < 1:
        raise ValueError(f"level is {level}; expected a number between 0 and 1")
    n, mean = len(values), values.mean(axis=0)
    if n == 1:
        return Band(mean, mean, mean, 1, "one run")
    percent = f"{100 * level:g} %"
    text = f"mean of {n} seeds; bands are {percent} "
    if method == "t":
        error = values.std(axis=0, ddof=1) / math.sqrt(n)
        half = float(stats.t.ppf((1 + level) / 2, n - 1)) * error
        return Band(mean, mean - half, mean + half, n, text + "t intervals of the mean")
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    drawn = rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES) / n
    low, high = np.percentile(drawn @ values, [50 * (1 - level), 50 * (1 + level)], axis=0)
    return Band(
        mean,
        low,
        high,
        n,
        f"{text}percentile bootstrap intervals of the mean ({RESAMPLES} resamples)",
    )
