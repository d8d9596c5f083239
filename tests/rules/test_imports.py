"""The rules load without JAX and torch, and never ask for them."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import seeupo_theory.rules as rules

HOME = Path(rules.__path__[0])


def test_rules_load_neither_jax_nor_torch():
    code = (
        "import sys, numpy as np\n"
        "from seeupo_theory.rules import advantages, presets, objectives, rows\n"
        "advantages.grae(np.array([[1.0, 0.0]])), presets.get('seeupo')\n"
        "heavy = {'jax', 'jaxlib', 'torch', 'scipy', 'matplotlib', 'xarray', 'sympy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("path", sorted(HOME.glob("*.py")), ids=lambda p: p.name)
def test_no_rule_names_another_array_library(path):
    found = re.findall(r"^\s*(?:from|import)\s+(\w+)", path.read_text(), re.MULTILINE)
    assert not {"jax", "torch", "tensorflow", "cupy", "importorskip"} & set(found)


def test_every_public_name_is_documented():
    for name in rules.__all__:
        module = getattr(rules, name)
        assert module.__doc__
        for symbol in module.__all__:
            thing = getattr(module, symbol)
            if isinstance(thing, type) or inspect.isfunction(thing):
                assert thing.__doc__, f"{name}.{symbol}"
