"""The documentation site builds without a warning, and shows what it promises."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

pytest.importorskip("sphinx")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def site(tmp_path_factory, worker_id):
    """The built site: one for all processes that run tests, the first of which makes it."""
    if worker_id == "master":
        return build(tmp_path_factory.mktemp("site"))
    out = tmp_path_factory.getbasetemp().parent / "site"
    with FileLock(f"{out}.lock"):
        return out / "html" if (out / "html").exists() else build(out)


def build(out):
    words = ["-m", "sphinx", "--fail-on-warning", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [sys.executable, *words, "-d", str(out / "trees"), "docs", str(out / "html")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return out / "html"


def text(path):
    return path.read_text(encoding="utf-8")


def test_every_public_module_and_notebook_has_a_page(site):
    pages = {p.stem for p in (site / "generated" / "reference").glob("*.html")}
    assert {"bandits.zoo", "seeupo_theory.rules.advantages", "llm_bridge.trainer"} <= pages
    shown = {p.stem for p in (site / "generated" / "tutorials").glob("*.html")}
    assert {p.stem for p in (ROOT / "notebooks").glob("*.ipynb")} <= shown


def test_equations_and_theorems_are_set(site):
    assert 'class="math' in text(site / "generated" / "reference" / "seeupo_theory.rules.kl.html")
    theorem = text(site / "generated" / "proofs" / "trajectory_bound.html")
    assert 'class="math' in theorem and "Theorem 1" in theorem


def test_the_command_line_is_complete(site):
    from seeupo_theory.cli import cli

    page = text(site / "command-line.html")
    assert {name for name in cli.commands if f'id="seeupo-{name}"' not in page} == set()


def test_nothing_is_fetched_from_elsewhere(site):
    for path in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="(https?:[^"]+)"', text(path))
        assert not loaded, (path.name, loaded)


def test_links_between_pages_lead_somewhere(site):
    for path in site.rglob("*.html"):
        for target in re.findall(
            r'<a[^>]+class="reference internal"[^>]+href="([^"#]+)', text(path)
        ):
            assert (path.parent / target).exists(), f"{path.name}: {target}"
