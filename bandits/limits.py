"""Sizes are computed before anything is allocated.

A description of a few bytes (a horizon of 10^9, 12 turns of 10 actions) can stand for an array of
many gigabytes. Whoever is about to allocate first states the number of bytes here; what does not
fit into the memory that is free raises a one-line error with both numbers instead of failing
half-way.
"""

import math
import os
from collections.abc import Iterable

from .errors import ModelError

# Nodes of an unrolled graph, over all turns: with its edges about 1 GB at six actions.
MAX_NODES = 5_000_000
# Share of the free memory that one model may take; the rest is for those who compute with it.
MEMORY_SHARE = 0.5


def available_bytes() -> int | None:
    """Return the memory that is free now in bytes, or None where the system does not say."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):
        return None


def human(nbytes: int) -> str:
    """Write a number of bytes for a reader.

    >>> human(8 * 10**9), human(1500)
    ('8 GB', '1.5 kB')
    """
    for unit, size in (
        ("EB", 10**18),
        ("PB", 10**15),
        ("TB", 10**12),
        ("GB", 10**9),
        ("MB", 10**6),
    ):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}" if nbytes < 1000 * size else f"over 1000 {unit}"
    return f"{nbytes / 1000:.3g} kB" if nbytes >= 1000 else f"{nbytes} bytes"


def require_fits(nbytes: int, what: str, *, share: float = MEMORY_SHARE) -> None:
    """Raise ModelError unless `nbytes` fit into `share` of the free memory.

    >>> require_fits(10**21, "rewards of shape (10, 10)")
    Traceback (most recent call last):
    ...
    bandits.errors.ModelError: rewards of shape (10, 10) would need over 1000 EB, ...
    """
    free = available_bytes()
    if free is not None and nbytes > share * free:
        raise ModelError(
            f"{what} would need {human(nbytes)}, {human(int(share * free))} are available: "
            "should be a smaller model (fewer turns, actions, states or contexts)"
        )


def require_array_fits(shape: Iterable[int], what: str, *, itemsize: int = 8) -> int:
    """Check an array of this shape before it is made; return its number of bytes.

    >>> require_array_fits((2, 3), "rewards")
    48
    """
    nbytes = itemsize * math.prod(int(n) for n in shape)
    require_fits(nbytes, what)
    return nbytes
