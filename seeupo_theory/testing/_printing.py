"""How Hypothesis prints models and algorithms: as the code that rebuilds them.

Hypothesis lists the fields of a dataclass, parsed arrays and all; here it is told to use the
models' own ``repr``, and for algorithms the preset and the switches that differ from it.
"""

from __future__ import annotations

from typing import Any

from hypothesis.vendor.pretty import RepresentationPrinter, for_type_by_name

from bandits.aliasing import AliasedModel
from bandits.mdp import TabularMDP
from bandits.sequential import SequentialBandit
from seeupo_theory.rules.presets import Algorithm
from seeupo_theory.testing._report import algorithm_code

__all__ = ["register"]


def _code(value: Any, printer: RepresentationPrinter, cycle: bool) -> None:
    printer.text(algorithm_code(value) if isinstance(value, Algorithm) else repr(value))


def register() -> None:
    """Tell Hypothesis; calling it again changes nothing."""
    for kind in (SequentialBandit, TabularMDP, AliasedModel, Algorithm):
        for_type_by_name(kind.__module__, kind.__name__, _code)
