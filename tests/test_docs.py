"""The front door: what README and CONTRIBUTING show runs, what they name exists, all is documented."""

import contextlib
import doctest
import importlib
import inspect
import io
import pkgutil
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

import seeupo_theory as st
from bandits import zoo, zoo_entry
from proofs import discover
from proofs import run as run_proof
from proofs.verifier import verify
from seeupo_theory.claims.audit import CHECKS
from seeupo_theory.claims.checks._tools import Effort
from seeupo_theory.cli import cli
from seeupo_theory.rules._imports import check_objective
from seeupo_theory.rules.orders import ORDERS, turn_order
from seeupo_theory.tabular.policies import PARAMETRISATIONS

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "CONTRIBUTING.md")


def read(page: str) -> str:
    """The text of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", read(page), re.MULTILINE | re.DOTALL)
    return [text for name, text in found if name == language]


# Links ----------------------------------------------------------------------------------------

LINK = re.compile(r"\]\(([^)#\s]+)\)")
NAMED = re.compile(r"`([\w./-]+/[\w.-]+\.(?:py|md|json|toml|png|ipynb|txt))`")


@pytest.mark.parametrize("page", PAGES)
def test_named_files_exist(page):
    text = read(page)
    names = set(LINK.findall(text)) | set(NAMED.findall(text))
    local = {n for n in names if not n.startswith(("http:", "https:", "results/"))}
    assert len(local) >= 5
    assert {n for n in local if not (ROOT / n).exists() and not n.startswith("checks/")} == set()


def test_the_map_is_the_territory():
    (tree,) = [b for b in blocks("README.md", "") if b.startswith("bandits/")]
    home = ROOT
    for line in tree.splitlines():
        name = line.split()[0] if line[:14].strip() else ""
        if name:
            home = home if line.startswith("  ") else ROOT
            assert (home / name).exists(), name
            home = ROOT / name if name == "seeupo_theory/" else home


def test_rows_and_proofs_of_the_findings_exist():
    table = read("README.md").split("## What it found")[1].split("\n## ")[0]
    ids = re.findall(r"`([A-Z]\d[\w.-]*)`", table)
    assert len(ids) > 15 and {i.split(".")[0] for i in ids} <= set(CHECKS)
    checks = sorted((ROOT / "seeupo_theory/claims/checks").glob("*.py"))
    text = "".join(path.read_text(encoding="utf-8") for path in checks)
    for name in ids:
        assert f'"{name}"' in text or f'"{name.split(".")[1]}"' in text, name
    proofs = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", table))
    assert proofs and proofs <= set(discover())


def test_commands_of_the_makefile():
    targets = set(re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE))
    for page in PAGES:
        for block in blocks(page, "sh"):
            assert set(re.findall(r"^make (\w+)", block, re.MULTILINE)) <= targets


# Python blocks ----------------------------------------------------------------------------------


def test_readme_example_prints_what_it_says():
    block = blocks("README.md", "python")[0]
    lines = [line for line in block.splitlines() if line.strip()]
    assert len(lines) <= 10
    said = re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(block, "README.md", "exec"), {})
    assert said and out.getvalue().splitlines() == said


HOME = re.compile(r"# (\S+)\.py\n")


@pytest.fixture(scope="module")
def shown() -> Iterator[dict[str, Any]]:
    """What the blocks of CONTRIBUTING define, each run in a copy of the module it names."""
    models = dict(zoo_entry.BUILDERS)
    defined: dict[str, Any] = {"presets": []}
    for block in blocks("CONTRIBUTING.md", "python"):
        named = HOME.match(block)
        base = vars(importlib.import_module(named[1].replace("/", "."))) if named else {}
        space = {**base, **{k: v for k, v in defined.items() if k != "presets"}}
        if named and named[1].endswith("presets"):
            defined["presets"] += eval(compile(block.strip(), "CONTRIBUTING.md", "eval"), space)
            continue
        before = dict(space)
        exec(compile(block, "CONTRIBUTING.md", "exec"), space)
        fresh = {k: v for k, v in space.items() if k not in before or before[k] is not v}
        kept = ("signed",) if not named else ()  # the plain version of the estimator: not kept
        defined |= {k: v for k, v in fresh.items() if k not in kept and not k.startswith("__")}
    yield defined
    zoo_entry.BUILDERS.clear()
    zoo_entry.BUILDERS.update(models)


def run_examples(function: Any, module: str) -> int:
    """Run a docstring's examples in its module's namespace; the number of examples."""
    space = {**vars(importlib.import_module(module)), function.__name__: function}
    test = doctest.DocTestParser().get_doctest(function.__doc__, space, function.__name__, None, 0)
    result = doctest.DocTestRunner(verbose=False).run(test)
    assert result.failed == 0
    return result.attempted


def test_contributed_estimator(shown):
    assert run_examples(shown["signed"], "seeupo_theory.rules.advantages")
    algorithm = next(a for a in shown["presets"] if a.name == "signed")
    assert algorithm.estimator is shown["signed"] and algorithm.summary
    found = st.advantage("zoo:wrong-sign", estimator=algorithm, group_size=2)
    assert found.method == "exact" and found.sign_errors
    assert not st.step("zoo:wrong-sign", algorithm=algorithm, group_size=2).monotone


def test_contributed_objective(shown):
    assert run_examples(shown["quadratic"], "seeupo_theory.rules.objectives")
    check_objective(shown["quadratic"], "quadratic")
    algorithm = next(a for a in shown["presets"] if a.name == "quadratic")
    assert algorithm.objective is shown["quadratic"]
    assert st.step("zoo:xor", algorithm=algorithm).monotone


def test_contributed_order(shown):
    rule = shown["_inward"]
    assert "inward" not in ORDERS and turn_order(rule(3, None), 3) == (0, 2, 1)
    for turns in range(1, 9):
        turn_order(rule(turns, None), turns)


def test_contributed_model(shown):
    assert shown["_two_keys"] is zoo_entry.BUILDERS["two-keys"]
    found = st.inspect("zoo:two-keys?turns=4")
    assert found.turns == 4 and found.value == 2 / 16
    assert found.optimal_value == float(zoo.get("two-keys").optimum) == 1


def test_contributed_policy_family(shown, monkeypatch):
    monkeypatch.setitem(PARAMETRISATIONS, "tempered", shown["tempered"])
    warm = st.step("zoo:xor", param="tempered", options={"temperature": 2.0})
    cold = st.step("zoo:xor", param="tempered", options={"temperature": 1.0})
    plain = st.step("zoo:xor")
    assert cold.per_turn == pytest.approx(plain.per_turn, abs=1e-12)
    assert plain.value_before < warm.value_after < plain.value_after


def test_contributed_claim_proof_and_certificate(shown):
    (row,) = shown["check_x1"](Effort(True))
    assert row.verdict == "holds" and row.established == "exhaustive"
    (result,) = shown["RESULTS"]
    assert run_proof(result).status == "exact"
    verdict = verify(shown["grpo_four_members"]())
    assert verdict.accepted, verdict.message


# Commands ---------------------------------------------------------------------------------------

LONG = {"audit", "audit-llm", "falsify"}
"""Commands that search or take minutes: their words are checked, not run."""


def commands() -> list[str]:
    """Every `seeupo` line of the README's shell blocks."""
    lines = [line for block in blocks("README.md", "sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("seeupo ")]


def test_the_readme_shows_every_command():
    assert {line.split()[1] for line in commands()} == set(cli.commands)


@pytest.mark.parametrize("line", commands(), ids=lambda line: " ".join(line.split()[:4]))
def test_commands_of_the_readme(line, tmp_path, monkeypatch):
    (tmp_path / "mine.json").write_text(blocks("README.md", "json")[0], encoding="utf-8")
    (rules,) = [b for b in blocks("README.md", "python") if b.startswith("# my_rules.py\n")]
    (tmp_path / "my_rules.py").write_text(rules, encoding="utf-8")
    (tmp_path / "proofs").symlink_to(ROOT / "proofs")
    (guess,) = [b for b in blocks("README.md", "python") if b.startswith("# guess.py\n")]
    (tmp_path / "guess.py").write_text(guess, encoding="utf-8")
    (tmp_path / "guess.toml").write_text(blocks("README.md", "toml")[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    name, *words = shlex.split(line, comments=True)[1:]
    if name in LONG:
        cli.commands[name].make_context(name, words)
        return
    if name == "train":
        words += ["--set", "iterations=2"]
    if "gym:" in line:
        pytest.importorskip("gymnasium")
    if "openspiel:" in line:
        pytest.importorskip("pyspiel")
    done = CliRunner().invoke(cli, [name, *words], catch_exceptions=False)
    assert done.exit_code == 0 and len(done.stdout) > 20
    if "--out" in words:
        written = tmp_path / words[words.index("--out") + 1]
        assert written.stat().st_size > 0 or any(written.iterdir())
    if "lowers J" in line:
        assert re.search(r"monotone\s+False", done.stdout)


# How-to pages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["docs/howto/model.md", "docs/howto/rule.md"])
def test_the_code_of_how_to_pages_runs(page, capsys):
    shown = blocks(page, "python")
    names: dict = {}
    for block in shown:
        exec(compile(block, page, "exec"), names)
    assert shown and capsys.readouterr().out


# Docstrings -------------------------------------------------------------------------------------

PACKAGES = ("bandits", "seeupo_theory", "proofs")


@cache
def modules(package: str) -> list[ModuleType]:
    """All modules of a package, private ones too."""
    top = importlib.import_module(package)
    infos = pkgutil.walk_packages(top.__path__, f"{package}.")
    names = [info.name for info in infos if not info.name.endswith("__main__")]
    return [top, *map(importlib.import_module, names)]


def has_text(thing: Any) -> bool:
    """Whether a class or function has a docstring of its own (a dataclass is given one)."""
    text = thing.__doc__ or ""
    return bool(text.strip()) and not text.startswith(f"{thing.__name__}(")


def members(cls: type) -> Iterator[tuple[str, bool]]:
    """(name, whether it is documented) of a class's own public methods and properties."""
    for name, value in vars(cls).items():
        inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if inspect.isfunction(inner) and not name.startswith("_"):
            yield name, has_text(inner) or bool(inspect.getdoc(getattr(cls, name)))


def symbols(module: ModuleType) -> Iterator[tuple[str, bool]]:
    """(name, whether it is documented) of a module, and of its public classes and functions.

    Public is what ``__all__`` lists; without one, what is defined here under a name without
    underscore.  The proofs' modules, whose steps and instances carry their statement as an
    argument, count for themselves only.
    """
    yield module.__name__, bool((module.__doc__ or "").strip())
    if any(part.startswith("_") for part in module.__name__.split(".")):
        return
    names = getattr(module, "__all__", None)
    if names is None:
        if module.__name__.startswith("proofs."):
            return
        own = [(n, v) for n, v in vars(module).items() if not n.startswith("_")]
        names = [n for n, v in own if getattr(v, "__module__", None) == module.__name__]
    for name in names:
        thing = getattr(module, name)
        if inspect.isclass(thing) or inspect.isroutine(thing):
            yield f"{module.__name__}.{name}", has_text(thing)
        if inspect.isclass(thing):
            for inner, good in members(thing):
                yield f"{module.__name__}.{name}.{inner}", good


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_symbol_has_a_docstring(package):
    found = [pair for module in modules(package) for pair in symbols(module)]
    missing = sorted({name for name, good in found if not good})
    assert len(found) >= {"bandits": 100, "seeupo_theory": 300, "proofs": 20}[package]
    assert not missing, f"{len(missing)} of {len(found)} have no docstring: {', '.join(missing)}"


def test_the_count_can_fail():
    text = """
__all__ = ["Bare", "Shape", "good"]
from dataclasses import dataclass
class Bare:
    def method(self): pass
    @property
    def size(self): 'the size'
@dataclass
class Shape:
    side: int
def good(): 'is documented'
"""
    module = ModuleType("sample", "A module.")
    exec(text, vars(module))
    found = {name.removeprefix("sample."): good for name, good in symbols(module)}
    assert found.pop("sample") and found == {
        "Bare": False,
        "Bare.method": False,
        "Bare.size": True,
        "Shape": False,
        "good": True,
    }


# Citation ---------------------------------------------------------------------------------------


def test_citation():
    data = yaml.safe_load(read("CITATION.cff"))
    assert data["version"] == st.__version__
    assert f'license = "{data["license"]}"' in read("pyproject.toml")
    assert {"cff-version", "message", "title", "authors"} <= set(data)
    (paper,) = data["references"]
    assert paper["identifiers"][0]["value"] == "arXiv:2602.06554"
    names = [author["family-names"] for author in paper["authors"]]
    assert names == ["Hu", "Fu", "Chen", "Liu", "Ding"]
