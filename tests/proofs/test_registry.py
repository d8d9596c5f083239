"""The registry, the runner and the command."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

import proofs
from proofs import __main__ as command
from proofs._base import Result, Step, collect


def result(*steps, name="sample"):
    return Result(name, "statement", "source", ("assumption",), steps)


@proofs.step("holds")
def holds():
    proofs.require(True, "unused")
    return "found"


@proofs.step("fails")
def fails():
    proofs.require(1 + 1 == 3, "1 + 1 is 2")


@proofs.step("breaks")
def breaks():
    raise ZeroDivisionError("by zero")


@proofs.step("measured", kind="numerical")
def measured():
    return "0.1"


def test_status_and_findings():
    assert proofs.run(result(holds)).status == "exact"
    assert proofs.run(result(holds, measured)).status == "numerical"
    outcome = proofs.run(result(holds, fails, breaks, measured))
    assert outcome.status == "failed"
    assert [item.failure for item in outcome.steps] == [
        None,
        "1 + 1 is 2",
        "ZeroDivisionError: by zero",
        None,
    ]
    assert outcome.steps[0].finding == "found"


def test_identical_tells_functions_apart():
    import sympy as sp

    x = sp.Symbol("x")
    proofs.identical((x**2 - 1) / (x - 1), x + 1, "equal")
    proofs.identical(sp.sqrt(8), 2 * sp.sqrt(2), "equal")
    with pytest.raises(proofs.ProofError, match="differ by"):
        proofs.identical((x**2 + 1) / (x - 1), x + 1, "unequal")
    with pytest.raises(proofs.ProofError):
        proofs.identical(1, sp.Rational(10**9 + 1, 10**9), "close but unequal")


def test_a_result_must_prove_something():
    with pytest.raises(ValueError, match="no steps"):
        result()
    with pytest.raises(TypeError, match=r"steps\[0\]"):
        result(lambda: None)
    with pytest.raises(ValueError, match="kind"):
        Step("name", lambda: None, "guess")


def test_two_results_of_one_name():
    class Module:
        __name__ = "module"
        RESULTS = (result(holds), result(measured))

    with pytest.raises(ValueError, match="twice"):
        collect([Module])


def test_every_result_says_what_it_rests_on():
    found = proofs.discover()
    assert len(found) >= 14
    for name, item in found.items():
        assert name == item.name and name == name.lower() and " " not in name
        assert item.statement and item.source and item.assumptions


@pytest.fixture
def small(monkeypatch):
    found = {"good": result(holds, name="good"), "bad": result(fails, name="bad")}
    monkeypatch.setattr(command, "discover", lambda: found)


def test_command(small):
    runner = CliRunner()
    passed = runner.invoke(command.main, ["good", "--steps"])
    assert passed.exit_code == 0 and "holds: found" in passed.output and "1/1" in passed.output
    failed = runner.invoke(command.main, [])
    assert failed.exit_code == 1 and "1 + 1 is 2" in failed.output
    listed = runner.invoke(command.main, ["--list"])
    assert listed.exit_code == 0 and "statement" in listed.output
    unknown = runner.invoke(command.main, ["ugly"])
    assert unknown.exit_code == 2 and "good, bad" in unknown.output


def test_checks_survive_optimised_python():
    code = (
        "import proofs\ntry:\n proofs.require(False, 'off')\nexcept proofs.ProofError: print('on')"
    )
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "on"


def test_import_is_light():
    code = "import sys, proofs; print([m for m in ('sympy', 'numpy', 'jax') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
