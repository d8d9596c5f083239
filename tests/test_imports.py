"""The dependency direction, checked on what a fresh interpreter has loaded.

bandits → rules → tabular → api and claims → cli: every package knows those to its left only.  What
a user pays for an import follows from it.
"""

import ast
import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = {"jax", "jaxlib", "matplotlib", "numpy", "rich", "scipy", "sympy", "torch", "xarray"}
GAMES = {"gymnasium", "pyspiel"}
EVERY_MODULE = """
import importlib, pkgutil
package = importlib.import_module({name!r})
for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not info.name.endswith("__main__"):
        importlib.import_module(info.name)
"""


@functools.cache
def loaded(code: str) -> frozenset[str]:
    """Modules that `code` adds to those of a bare interpreter."""
    script = (
        "import sys, json; before = set(sys.modules)\n"
        f"{code}\nprint(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return frozenset(json.loads(done.stdout.splitlines()[-1]))


def tops(modules: frozenset[str]) -> set[str]:
    """Top-level packages."""
    return {name.partition(".")[0] for name in modules}


def whole(name: str) -> str:
    """Code that imports every module of a package."""
    return EVERY_MODULE.format(name=name)


@pytest.mark.parametrize("name", ["seeupo_theory", "bandits", "proofs"])
def test_importing_a_package_loads_nothing_heavy(name):
    modules = loaded(f"import {name}")
    assert name in modules
    assert not (HEAVY | GAMES) & tops(modules)


def test_the_command_line_starts_light():
    assert not (HEAVY | GAMES) & tops(loaded("import seeupo_theory.cli"))


def test_the_measure_can_fail():
    assert {"numpy", "jax"} <= tops(loaded("import seeupo_theory.tabular"))


def test_bandits_need_numpy_only():
    modules = loaded(whole("bandits"))
    assert {"bandits.zoo", "bandits.files", "bandits.imports"} <= modules
    assert "numpy" in modules
    assert not (HEAVY - {"numpy"} | GAMES) & tops(modules)
    assert not {"seeupo_theory", "proofs"} & tops(modules)


def test_rules_need_neither_jax_nor_torch():
    modules = loaded(whole("seeupo_theory.rules"))
    assert {"seeupo_theory.rules.presets", "seeupo_theory.rules.objectives"} <= modules
    assert not (HEAVY - {"numpy"} | GAMES) & tops(modules)


def test_rules_know_nothing_above_them():
    modules = loaded(whole("seeupo_theory.rules"))
    ours = {m for m in modules if m.startswith("seeupo_theory.")}
    assert {m for m in ours if not m.startswith("seeupo_theory.rules")} == set()
    assert not {"bandits", "proofs"} & tops(modules)


@pytest.mark.parametrize("certificate", [False, True], ids=["import", "verify"])
def test_the_verifier_needs_the_standard_library_only(certificate):
    code = "import proofs.verifier"
    if certificate:
        code += (
            "; from pathlib import Path"
            "; paths = sorted(Path('proofs/certificates').glob('*.json'))"
            "; assert paths and proofs.verifier.main(paths[:3]) == 0"
        )
    modules = loaded(code)
    assert tops(modules) - set(sys.stdlib_module_names) == {"proofs"}
    assert {m for m in modules if m.startswith("proofs.")} <= {
        "proofs._base",
        "proofs._certificate",
        "proofs._semantics",
        "proofs.intervals",
        "proofs.verifier",
    }


# What each part may import; a function's own imports count too.
BELOW = {
    "bandits": set(),
    "seeupo_theory.rules": set(),
    "proofs": {"bandits", "seeupo_theory.rules"},
    "seeupo_theory.tabular": {"bandits", "seeupo_theory.rules"},
    "seeupo_theory.api": {"bandits", "seeupo_theory.rules", "seeupo_theory.tabular"},
    "seeupo_theory.testing": {
        "bandits",
        "seeupo_theory.api",
        "seeupo_theory.rules",
        "seeupo_theory.tabular",
    },
    "seeupo_theory.claims": {
        "bandits",
        "proofs",
        "seeupo_theory.api",
        "seeupo_theory.rules",
        "seeupo_theory.tabular",
    },
    "seeupo_theory.cli": {
        "bandits",
        "proofs",
        "seeupo_theory.api",
        "seeupo_theory.claims",
        "seeupo_theory.rules",
        "seeupo_theory.tabular",
    },
}


def part(module: str) -> str:
    """The part of the project a module belongs to: a package, or seeupo_theory.SOMETHING."""
    names = module.split(".")
    return ".".join(names[:2]) if names[0] == "seeupo_theory" else names[0]


def imported(path: Path) -> set[str]:
    """Parts of the project that a file imports, at any depth of the code."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*module.split(".")[: -node.level], *filter(None, [node.module])])
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= names if base == "seeupo_theory" else {base}
    return {part(name) for name in found} - {"seeupo_theory.__version__"}


@pytest.mark.parametrize("name", BELOW)
def test_imports_point_downwards(name):
    home = ROOT / name.replace(".", "/")
    files = sorted(home.rglob("*.py")) if home.is_dir() else [home.with_suffix(".py")]
    assert files and all(f.is_file() for f in files)
    for path in files:
        ours = {p for p in imported(path) if p.split(".")[0] in {"bandits", "proofs"} or p in BELOW}
        assert ours - {name} <= BELOW[name], path.relative_to(ROOT)


def test_every_part_has_a_place():
    parts = {part(f"seeupo_theory.{p.stem}") for p in (ROOT / "seeupo_theory").iterdir()}
    assert parts - {"seeupo_theory.__init__", "seeupo_theory.__pycache__", "seeupo_theory.py"} == {
        name for name in BELOW if name.startswith("seeupo_theory.")
    }
