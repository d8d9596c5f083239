"""J and its full gradient: the kernel against what a user would write, and against a plain copy.

The copy reads and writes as many bytes as the computation must touch at least once: it reads the
rewards and tables and writes the gradients.  Memory is the peak of a process during one call, less
what it held before the arguments were made, as a multiple of the arguments.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks.measure import Row, compare, require_equal
from seeupo_theory.tabular.kernels import value, value_and_gradient

__all__ = ["rows"]

HIDDEN = 0.9
"""A measured peak below this share of arguments and results measured something else."""

SIZES = [(10, 6), (4, 10)]

Problem = tuple[Array, list[Array], Array]


def problem(actions: int, turns: int) -> Problem:
    """Random rewards and logits of one context."""
    rng = np.random.default_rng(0)
    rewards = jnp.asarray(rng.normal(size=(1, *(actions,) * turns)))
    logits = [jnp.asarray(rng.normal(size=(actions**t, actions))) for t in range(turns)]
    return rewards, logits, jnp.ones(1)


def expected_reward(logits: list[Array], rewards: Array, probs: Array) -> Array:
    """The six lines of a user."""
    values = rewards
    for table in reversed(logits):
        policy = jax.nn.softmax(table)
        values = (policy * values.reshape(table.shape)).sum(axis=-1)
    return probs @ values


def touched_bytes(rewards: Array, logits: list[Array]) -> int:
    """Rewards and tables once in, gradients once out."""
    return rewards.nbytes + 2 * sum(table.nbytes for table in logits)


def rows(repeats: int) -> Iterator[Row]:
    """Value and gradient at 10^6 and 4^10 leaves."""
    plain = jax.jit(jax.value_and_grad(expected_reward))
    plain_value = jax.jit(expected_reward)
    for actions, turns in SIZES:
        size = f"{actions}^{turns} leaves"
        rewards, logits, probs = problem(actions, turns)

        def ours(rewards=rewards, logits=logits, probs=probs):
            return jax.block_until_ready(value_and_gradient(rewards, logits, probs))

        def user(rewards=rewards, logits=logits, probs=probs):
            return jax.block_until_ready(plain(logits, rewards, probs))

        (j, gradients), (user_j, user_gradients) = ours(), user()
        require_equal(size, [j, *gradients], [user_j, *user_gradients])
        del gradients, user_gradients
        yield compare(
            f"J and gradient, {size}",
            ("value_and_gradient", ours),
            ("jitted jax.value_and_grad", user),
            repeats,
            goal=1.0,
        )
        source = np.ones(touched_bytes(rewards, logits) // 16)
        target = source.copy()
        yield compare(
            f"J and gradient, {size}",
            ("value_and_gradient", ours),
            ("copy touching as many bytes", lambda s=source, t=target: np.copyto(t, s)),  # type: ignore[misc]
            repeats,
            goal=0.5,
        )
        yield compare(
            f"J alone, {size}",
            ("value", lambda r=rewards, x=logits, p=probs: value(r, x, p)),  # type: ignore[misc]
            ("jitted recursion", lambda r=rewards, x=logits, p=probs: float(plain_value(x, r, p))),  # type: ignore[misc]
            repeats,
            goal=1.0,
        )
        peak = _peak(actions, turns)
        if peak is not None:
            held, most = peak
            yield Row(
                f"memory, {size}",
                "peak of one call, arguments included",
                "3 × (rewards + tables)",
                most,
                3.0 * held,
                3.0 * held / most,
                3.0 * held / most,
                3.0 * held / most,
                goal=1.0,
                note=f"{most / held:.2f} × the bytes of rewards and tables",
                unit="bytes",
            )


def _peak(actions: int, turns: int) -> tuple[int, int] | None:
    """(bytes of the arguments, peak with arguments) in a process of its own; None if unknown."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        return None
    environment = {
        **os.environ,
        "MALLOC_MMAP_THRESHOLD_": "65536",  # freed arrays go back to the system at once
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)]),
    }
    command = [sys.executable, "-m", "benchmarks.gradient", str(actions), str(turns)]
    found = []
    for _ in range(3):  # memory that an earlier call left and this one took again hides in the base
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        held, most = json.loads(done.stdout)
        found.append(most)
    return held, max(found)


def _status(field: str) -> int:
    text = Path("/proc/self/status").read_text()
    return 1024 * int(text.split(f"{field}:")[1].split()[0])


def _settled() -> int:
    """Resident bytes once freed memory is back with the system; JAX frees on threads of its own."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: 0)
    seen = [0]
    while len(seen) < 4 or len(set(seen[-3:])) > 1:
        gc.collect()
        trim(0)
        time.sleep(0.1)
        seen.append(_status("VmRSS"))
    return seen[-1]


def _measure_peak(actions: int, turns: int) -> None:
    for _ in range(2):  # compiles; what it leaves behind is no part of a call
        jax.block_until_ready(value_and_gradient(*problem(actions, turns)))
    before = _settled()
    arguments = problem(actions, turns)
    held = sum(x.nbytes for x in jax.tree.leaves(arguments))
    _settled()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    results = jax.block_until_ready(value_and_gradient(*arguments))
    most = _status("VmHWM") - before
    least = held + sum(x.nbytes for x in results[1])
    if most < HIDDEN * least:
        raise AssertionError(f"a peak of {most} bytes cannot hold {least}")
    print(json.dumps([held, most]))


if __name__ == "__main__":
    _measure_peak(int(sys.argv[1]), int(sys.argv[2]))
