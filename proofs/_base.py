r"""What a proof is made of: steps that assert, results that name them, a runner that times them.

A module of this package states one theorem in its docstring and defines ``RESULTS``, a tuple of
`Result`. Each `Step` is a function without arguments that raises `ProofError` where the identity it
claims does not hold, and returns a line that says what it established. A step is ``exact`` when
its conclusion follows from symbolic or rational arithmetic alone, ``numerical`` when it compares
floating-point numbers within a tolerance that it states; a result with one numerical step is
reported as numerical.

The checks are calls, not ``assert`` statements, so that ``python -O`` does not switch them off.
"""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

Kind = Literal["exact", "numerical"]
Status = Literal["exact", "numerical", "failed"]


class ProofError(AssertionError):
    """A claimed identity or inequality does not hold."""


@dataclass(frozen=True)
class Step:
    """One named claim; `check` raises `ProofError` or returns a line that says what was found."""

    name: str
    check: Callable[[], str | None]
    kind: Kind = "exact"

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(
                f"step {self.name!r}: kind is {self.kind!r}, must be one of {get_args(Kind)}"
            )


def step(name: str, *, kind: Kind = "exact") -> Callable[[Callable[[], str | None]], Step]:
    """Turn a function into a `Step`: ``@step("the baseline cancels")``."""

    def wrap(check: Callable[[], str | None]) -> Step:
        return Step(name, check, kind)

    return wrap


@dataclass(frozen=True)
class Result:
    """A theorem: its statement, where it comes from, what it assumes, and the steps that prove it.

    `stops` says where the theorem ends: which hypothesis cannot be dropped, and the counterexample.
    """

    name: str
    statement: str
    source: str
    assumptions: tuple[str, ...]
    steps: tuple[Step, ...]
    stops: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.assumptions, str):
            raise TypeError(f"result {self.name!r}: assumptions must be a tuple of strings")
        for index, item in enumerate(self.steps):
            if not isinstance(item, Step):
                raise TypeError(
                    f"result {self.name!r}: steps[{index}] is {item!r}, must be a Step; "
                    "decorate the function with @step(name)"
                )
        if not self.steps:
            raise ValueError(f"result {self.name!r}: has no steps, so it would prove nothing")


@dataclass(frozen=True)
class StepOutcome:
    """What came of one step: the line it returned, or the failure."""

    step: Step
    seconds: float
    finding: str
    failure: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of one result."""

    result: Result
    steps: tuple[StepOutcome, ...]

    @property
    def seconds(self) -> float:
        """Wall time of all steps."""
        return sum(item.seconds for item in self.steps)

    @property
    def failures(self) -> tuple[StepOutcome, ...]:
        """The steps that did not hold."""
        return tuple(item for item in self.steps if item.failure is not None)

    @property
    def status(self) -> Status:
        """What the result rests on: exact arithmetic, floating point somewhere, or nothing."""
        if self.failures:
            return "failed"
        return "numerical" if any(i.step.kind == "numerical" for i in self.steps) else "exact"


def run(result: Result) -> Outcome:
    """Run every step of a result; a failing step is recorded and the others still run."""
    return Outcome(result, tuple(_run_step(item) for item in result.steps))


def _run_step(item: Step) -> StepOutcome:
    from sympy.core.random import seed

    seed(0)  # SymPy draws evaluation points; a run should do what the last one did
    start = time.perf_counter()
    finding, failure = "", None
    try:
        finding = item.check() or ""
    except ProofError as error:
        failure = str(error) or "does not hold"
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    return StepOutcome(item, time.perf_counter() - start, finding, failure)


def discover() -> dict[str, Result]:
    """All results of this package by name: every module here that defines ``RESULTS``."""
    return collect(_modules())


def _modules() -> Iterator[Any]:
    package = importlib.import_module("proofs")
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda item: item.name):
        if not info.name.startswith("_"):
            yield importlib.import_module(f"proofs.{info.name}")


def collect(modules: Iterable[Any]) -> dict[str, Result]:
    """The results of some modules by name; two results of one name are an error."""
    found: dict[str, Result] = {}
    for module in modules:
        for result in getattr(module, "RESULTS", ()):
            if result.name in found:
                raise ValueError(f"{module.__name__}: a result named {result.name!r} exists twice")
            found[result.name] = result
    return found


def require(condition: Any, message: str) -> None:
    """Raise `ProofError` unless the condition is true (a SymPy truth value must be decided).

    >>> require(1 + 1 == 2, "arithmetic")
    """
    if not bool(condition):
        raise ProofError(message)


def identical(left: Any, right: Any, message: str) -> None:
    """Raise `ProofError` unless two rational or symbolic expressions are the same function.

    Rational numbers are compared as they are; SymPy expressions by bringing their difference to
    canonical form: zero exactly when the two rational functions are equal.

    >>> import sympy as sp
    >>> x = sp.Symbol("x")
    >>> identical((x**2 - 1) / (x - 1), x + 1, "factorised")
    """
    import sympy as sp

    difference = sp.sympify(left) - sp.sympify(right)
    if difference == 0:
        return
    if sp.expand(difference) == 0 or sp.cancel(sp.together(difference)) == 0:
        return
    rest = sp.simplify(difference)
    if rest != 0:
        raise ProofError(f"{message}: the sides differ by {rest}")
