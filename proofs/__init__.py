r"""Executable mathematics: one module a theorem, ``python -m proofs`` runs them all.

Every module states its theorem, the assumptions, the source and where the theorem stops, and
proves it in named steps by SymPy or by exact rational arithmetic. What rests on floating point is
marked ``numerical``. The property-based tests under ``tests/proofs`` tie the symbols to the
functions of the simulator.

>>> import proofs
>>> outcome = proofs.run(proofs.discover()["baseline-invariance"])
>>> outcome.status
'exact'
"""

from proofs._base import (
    Outcome,
    ProofError,
    Result,
    Step,
    StepOutcome,
    discover,
    identical,
    require,
    run,
    step,
)

__all__ = [
    "Outcome",
    "ProofError",
    "Result",
    "Step",
    "StepOutcome",
    "discover",
    "identical",
    "require",
    "run",
    "step",
]
