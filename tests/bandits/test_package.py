"""The package as a whole: what it imports, its names, sizes and one-line errors."""

import subprocess
import sys
from pathlib import Path

import pytest

import bandits
from bandits import limits
from bandits.errors import ModelError, fail, path, show

SOURCES = sorted(Path(bandits.__file__).parent.glob("*.py"))


def loaded(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_else():
    assert not {"numpy", "jax", "torch", "bandits.zoo", "gymnasium"} & loaded("import bandits")


def test_models_need_numpy_only():
    code = "import bandits\nfor name in dir(bandits): getattr(bandits, name)"
    modules = loaded(code)
    assert "numpy" in modules and "bandits.zoo" in modules
    heavy = {
        "jax",
        "torch",
        "scipy",
        "sympy",
        "gymnasium",
        "pyspiel",
        "seeupo_theory",
        "matplotlib",
    }
    assert not heavy & modules


def test_public_names():
    for name in bandits.__all__:
        assert getattr(bandits, name).__doc__
    assert set(bandits.__all__) <= set(dir(bandits))
    assert bandits.zoo.names()
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = bandits.nothing


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.stem)
def test_modules_are_short_and_have_a_text(source):
    text = source.read_text(encoding="utf-8")
    assert text.startswith('"""') and len(text.splitlines()) <= 400


def test_errors_are_one_line_value_errors():
    with pytest.raises(ValueError, match=r"^x\[0\]\[1\] has 2 entries"):
        fail(path("x", (0, 1)), "has 2 entries")
    assert issubclass(ModelError, ValueError)
    assert "\n" not in show("a\nb" * 100) and len(show("a" * 1000)) <= 60
    assert show(10**10_000) == "a int too long to print"


def test_sizes():
    assert limits.human(0) == "0 bytes" and limits.human(12_345_678_901) == "12.3 GB"
    free = limits.available_bytes()
    assert free is None or free > 0
    limits.require_fits(0, "nothing")
    with pytest.raises(
        ModelError, match=r"^x would need over 1000 EB, .* are available: should be"
    ):
        limits.require_fits(10**30, "x")
    assert limits.require_array_fits((3, 4), "y", itemsize=2) == 24


def test_memory_is_read_from_the_system(monkeypatch):
    def missing(*args, **kwargs):
        raise OSError

    monkeypatch.setattr("builtins.open", missing)
    free = limits.available_bytes()
    assert free is None or free > 0
    monkeypatch.setattr("os.sysconf", missing)
    assert limits.available_bytes() is None
    limits.require_fits(10**30, "x")  # an unknown memory limits nothing
