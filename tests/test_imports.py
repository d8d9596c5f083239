"""The dependency direction, checked on what a fresh interpreter has loaded and in the source.

Models and rules know nothing of each other and nothing above them; the simulator uses both; the
questions, the ledger and the command line use the simulator.  What an import costs follows from it.
"""

import ast
import functools
import json
import subprocess
import sys
from collections.abc import Iterator
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


SIMULATOR = {"bandits", "seeupo_theory.rules", "seeupo_theory.tabular"}
QUESTIONS = SIMULATOR | {"seeupo_theory.api"}
BELOW = {
    "bandits": set(),
    "seeupo_theory._interrupts": set(),
    "seeupo_theory.rules": set(),
    "proofs": {"bandits", "seeupo_theory.rules"},
    "seeupo_theory.tabular": {"bandits", "seeupo_theory.rules"},
    "seeupo_theory.api": SIMULATOR,
    "seeupo_theory.testing": QUESTIONS,
    "seeupo_theory.figures": QUESTIONS,
    "seeupo_theory.claims": QUESTIONS
    | {"proofs", "seeupo_theory.figures", "seeupo_theory._interrupts"},
    "llm_bridge": {
        "bandits",
        "seeupo_theory.rules",
        "seeupo_theory.figures",
        "seeupo_theory._interrupts",
    },
    "seeupo_theory.cli": QUESTIONS
    | {"proofs", "llm_bridge", "seeupo_theory.claims", "seeupo_theory.figures"},
}
"""What each part may import; what a function imports when it is called counts too."""


def part(module: str) -> str:
    """The part of the project a module belongs to: a package, or seeupo_theory.SOMETHING."""
    names = module.split(".")
    return ".".join(names[:2]) if names[0] == "seeupo_theory" else names[0]


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under ``if TYPE_CHECKING``, which no interpreter runs."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")):
            yield node
            yield from statements(node)


def imported(module: str, text: str) -> set[str]:
    """Parts of the project that a module imports, at any depth of its code."""
    found = set()
    for node in statements(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*module.split(".")[: -node.level], *filter(None, [node.module])])
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= names if base == "seeupo_theory" else {base}
    return {part(name) for name in found} & set(BELOW)


def sources(name: str) -> list[Path]:
    """The files of a part."""
    home = ROOT / name.replace(".", "/")
    return sorted(home.rglob("*.py")) if home.is_dir() else [home.with_suffix(".py")]


def test_imports_are_found_where_they_hide():
    text = (
        "def f():\n from ..claims.audit import audit\n from seeupo_theory import api, __version__\n"
    )
    assert imported("seeupo_theory.rules.x", text) == {"seeupo_theory.claims", "seeupo_theory.api"}
    text = "if TYPE_CHECKING:\n import bandits\nelse:\n import proofs.verifier\n"
    assert imported("x", text) == set()
    assert imported("x", "import os, proofs.verifier") == {"proofs"}


@pytest.mark.parametrize("name", [n for n in BELOW if sources(n) and sources(n)[0].exists()])
def test_imports_point_downwards(name):
    for path in sources(name):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        above = imported(module, path.read_text(encoding="utf-8")) - {name} - BELOW[name]
        assert not above, f"{module} imports {above}"


def test_every_part_has_a_place():
    parts = {
        part(f"seeupo_theory.{p.stem}")
        for p in (ROOT / "seeupo_theory").iterdir()
        if p.suffix == ".py" or (p / "__init__.py").exists()
    }
    assert {"seeupo_theory.rules", "seeupo_theory.api", "seeupo_theory.cli"} <= parts
    assert parts - {"seeupo_theory.__init__"} <= set(BELOW)
