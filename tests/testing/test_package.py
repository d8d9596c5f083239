"""The package as a whole: its documented example, its names, and what it loads."""

import doctest
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import Phase, settings

import seeupo_theory.testing as package

SOURCES = sorted(Path(package.__path__[0]).glob("*.py"))
MODULES = [f"{package.__name__}.{s.stem}" for s in SOURCES if s.stem != "__init__"]


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.fixture
def unexplained():
    """Without Hypothesis's explanations of a failure, which trace every line."""
    settings.register_profile(
        "unexplained", settings.get_profile("deterministic"), phases=set(Phase) - {Phase.explain}
    )
    settings.load_profile("unexplained")
    yield
    settings.load_profile("deterministic")


@pytest.mark.usefixtures("unexplained")
def test_the_documented_example_fails_with_a_small_model():
    """The ten lines of the package's text, and the model that Hypothesis shrinks to."""
    assert "model = SequentialBandit([[" in package.__doc__
    result = doctest.testmod(package, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0 and result.attempted >= 10


@pytest.mark.usefixtures("unexplained")
@pytest.mark.parametrize("name", MODULES)
def test_examples_of_the_modules(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
    assert result.attempted > 0 or name.endswith(("laws", "_printing"))


def test_every_public_name_is_documented():
    for name in package.__all__:
        thing = getattr(package, name)
        if inspect.isfunction(thing) or inspect.isclass(thing) or inspect.ismodule(thing):
            assert thing.__doc__, name
    assert set(package.laws.__all__) | set(package.strategies.__all__) <= set(dir(package))
    for name in package.strategies.__all__:
        assert getattr(package, name) is getattr(package.strategies, name)
    with pytest.raises(AttributeError, match="has no attribute 'assert_good'; it has"):
        _ = package.assert_good


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.stem)
def test_modules_are_short_and_have_a_text(source):
    text = source.read_text(encoding="utf-8")
    assert text.startswith(('"""', 'r"""')) and len(text.splitlines()) <= 400


def test_importing_loads_nothing_and_estimator_laws_need_no_jax():
    out = run("import sys, seeupo_theory.testing\nprint(*sys.modules)")
    assert not {"numpy", "jax", "torch", "hypothesis"} & set(out.stdout.split())
    out = run(
        "import sys\n"
        "from bandits import SequentialBandit\n"
        "from seeupo_theory.testing import assert_no_nan, assert_unbiased\n"
        "assert_unbiased('rloo', SequentialBandit([[0, 1]])), assert_no_nan('grpo')\n"
        "print(*sys.modules)"
    )
    assert "numpy" in out.stdout, out.stderr
    assert not {"jax", "torch", "hypothesis"} & set(out.stdout.split())


def test_a_missing_hypothesis_is_named():
    out = run(
        "import sys\n"
        "sys.modules['hypothesis'] = None\n"
        "from seeupo_theory.testing import assert_sign\n"
        "from seeupo_theory.testing import bandits"
    )
    assert "seeupo_theory.testing.bandits needs Hypothesis, which is not installed" in out.stderr
