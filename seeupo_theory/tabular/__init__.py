"""The exact simulator: every quantity of a finite problem, to the last bit of a double.

Reading order:

* a problem and a policy: ``lowering`` (a decision graph as arrays), ``dynamics`` (the two sweeps
  everything is made of), ``policies`` (θ → log-probability tables), ``evaluate`` and ``enumerate``
  (values, advantages, optimum, by recursion and by walking trajectories);
* an expected advantage: ``expectation`` with ``multisets``, ``population`` and ``monte_carlo``
  (group estimators), ``gae`` and ``critic``;
* one iteration: ``weights`` (what a turn needs of the rest of the problem), ``surrogate``,
  ``update``; ``sampling`` is the same iteration from samples;
* many: ``simulator`` (bound to a model, compiled), ``run`` and ``trace``, ``diagnostics``;
  ``ensembles`` and ``shares`` (thousands of random problems), ``kernels`` (large bandits, fast).

Importing this package switches JAX to 64-bit floats and keeps compiled programs in the user's
cache folder, so that a second process starts fast.
"""

import os
from pathlib import Path

import jax


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "seeupo" / "jax"


jax.config.update("jax_enable_x64", True)
if (
    getattr(jax.config, "jax_compilation_cache_dir", None) is None
    and os.environ.get("SEEUPO_CACHE", "1") != "0"
):
    jax.config.update("jax_compilation_cache_dir", str(_cache_folder()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
