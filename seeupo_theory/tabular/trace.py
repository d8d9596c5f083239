"""What a run leaves behind: `Trace`, an `xarray.Dataset` with named dimensions.

==================== ============================ ================================================
variable             dimensions                   meaning
==================== ============================ ================================================
value                seed, step                   J before the first and after every iteration
gap                  seed, step                   optimum of full information minus J
entropy              seed, step                   of a trajectory's actions, in nats
kl                   seed, iteration              of the new policy's trajectories from the old's
update_value         seed, iteration, update      J after each update inside an iteration
drop                 seed, iteration, update      1 where that update lowered J, beyond rounding
surrogate_gain       seed, iteration, update      rise of the updated turn's own surrogate
worst_row_gain       seed, iteration, update      least rise over the rows of its table
clip_fraction        seed, iteration, update      share of |advantage| that the clip cut
standard_error       seed, iteration              of the expected advantages, 0 where exact
updated_turn         iteration, update            0-based, −1 for all turns at once
status               seed                         converged, out-of-steps or non-finite
==================== ============================ ================================================
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

__all__ = ["DROP_RTOL", "GAP_TOLERANCE", "Trace"]

GAP_TOLERANCE = 1e-2
"""A run counts as converged below this gap, relative to the spread of the rewards."""

DROP_RTOL = 1e-12
"""A fall of J below this share of the largest |return| is rounding (sums over a tree of doubles)."""


@dataclass(frozen=True)
class Trace:
    """What a run left behind.

    Attributes:
        data: the record; see the module for its variables.
        policy: final policy of every seed, T tables [seeds, O_t, A_t].
    """

    data: xr.Dataset
    policy: list[np.ndarray]

    @property
    def values(self) -> np.ndarray:
        """J before the first and after every iteration, [seed, iteration + 1]."""
        return self.data["value"].values

    @property
    def status(self) -> list[str]:
        """One word a seed."""
        return [str(s) for s in self.data["status"].values]

    def save(self, path: str | Path) -> Path:
        """Write a netCDF file, whole or not at all.

        Raises:
            ValueError: the folder does not exist.
        """
        target = Path(path)
        if not target.parent.is_dir():
            raise ValueError(f"cannot write {target}: the folder {target.parent} does not exist")
        partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            self.data.to_netcdf(partial, engine="scipy")
            os.replace(partial, target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        return target

    def summary(self) -> dict[str, Any]:
        """The figures one asks for first.

        `share_of_drops` counts iterations that lowered J, `share_of_update_drops` single updates.
        """
        values, best = self.values, float(self.data.attrs["optimal_value"])
        change = np.diff(values, axis=1)
        status, count = np.unique(self.data["status"].values, return_counts=True)
        return {
            "iterations": values.shape[1] - 1,
            "seeds": values.shape[0],
            "value_first": float(values[:, 0].mean()),
            "value_last": float(values[:, -1].mean()),
            "value_last_std": float(values[:, -1].std(ddof=1)) if len(values) > 1 else 0.0,
            "optimal_value": best,
            "gap_last": best - float(values[:, -1].mean()),
            "worst_change": float(change.min()),
            "share_of_drops": float((change < -self.data.attrs["drop_tolerance"]).mean()),
            "share_of_update_drops": float(self.data["drop"].values.mean()),
            "status": {str(s): int(n) for s, n in zip(status, count, strict=True)},
        }
