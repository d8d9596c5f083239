"""Settings of the documentation site, and the pages made from code: tutorials, reference, proofs.

``make docs`` writes ``build/docs``.  What is generated goes to ``docs/generated``, which git ignores;
nothing is fetched from a network, and mathematics is set by a copy of MathJax on the site itself.
"""

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seeupo_theory import __version__

HERE = Path(__file__).parent
ROOT = HERE.parent
MADE = HERE / "generated"
PACKAGES = {
    "bandits": "models, the zoo, files",
    "seeupo_theory": "rules, simulator, claims, figures, laws for tests",
    "llm_bridge": "the same rules on language models",
}

project, author, copyright = "seeupo", "the seeupo developers", "the seeupo developers"
version = release = __version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",
    "sphinx_click",
]
exclude_patterns = ["llm/*.md"]
html_theme, html_title = "furo", f"seeupo {__version__}"
html_copy_source = False
html_last_updated_fmt = None
default_role = "code"
nb_execution_mode = "off"
myst_enable_extensions = ["amsmath", "deflist", "dollarmath"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "undoc-members": False, "show-inheritance": False}
napoleon_use_ivar = True
napoleon_use_rtype = False
python_maximum_signature_line_length = 90
suppress_warnings = [
    "myst.xref_missing",  # links of included pages point into the repository
    "ref.python",  # types are named by their last part, and some names occur twice
]


def docstring(path: Path) -> str:
    """The docstring of a module, read from its source."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def public(package: str) -> Iterator[str]:
    """Names of a package's public modules that say what they are."""
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if not any(p.startswith("_") for p in parts) and docstring(path):
            yield ".".join(parts)


def page(name: str, text: str) -> None:
    """Write a generated page, if it changed."""
    path = MADE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def tree(entries: list[str], depth: int = 1) -> str:
    """A table of contents."""
    return f"```{{toctree}}\n:maxdepth: {depth}\n\n" + "\n".join(entries) + "\n```\n"


def tutorials() -> None:
    """The executed notebooks, the quickstart first."""
    folder = MADE / "tutorials"
    folder.mkdir(parents=True, exist_ok=True)
    sources = sorted(
        (ROOT / "notebooks").glob("*.ipynb"), key=lambda p: (p.stem != "quickstart", p)
    )
    for source in sources:
        shutil.copyfile(source, folder / source.name)
    head = "# Tutorials\n\nEach opens with a question, and ends with what to change next.\n\n"
    page("tutorials/index.md", head + tree([s.stem for s in sources]))


def reference() -> None:
    """One page a module."""
    for package, what in PACKAGES.items():
        names = list(public(package))
        for name in names:
            again = (ROOT / name.replace(".", "/")).is_dir()  # what it offers has pages of its own
            option = "   :no-index:\n" if again else ""
            text = f"# {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n{option}```\n"
            page(f"reference/{name}.md", text)
        page(f"reference/{package}-index.md", f"# {package}: {what}\n\n{tree(names)}")


def results() -> None:
    """The ledger of an audit, where one was run, and the theorems of the proofs."""
    ledger = ROOT / "results" / "audit" / "ledger.md"
    text = "# The ledger\n\nRun `make audit`, then `make docs`: its ledger appears here.\n"
    page("ledger.md", ledger.read_text(encoding="utf-8") if ledger.exists() else text)
    theorems = []
    for path in sorted((ROOT / "proofs").glob("[a-z]*.py")):
        if "\nRESULTS = " in path.read_text(encoding="utf-8"):
            theorems.append(path.stem)
            page(f"proofs/{path.stem}.md", f"# {path.stem}\n\n{docstring(path)}\n")
    head = "# Proofs\n\n`python -m proofs` checks all of them again; `--list` says what they state.\n\n"
    page("proofs/index.md", head + tree(theorems))


tutorials()
reference()
results()


def plain_marks(line: str) -> str:
    """Write what a docstring means as it stands in reStructuredText.

    |x| is an absolute value and no substitution, [*shape] no emphasis, `Fraction`s a name with an s.
    """
    parts = re.split(r"(`[^`]*`)", line)  # what stands in backticks is as it should be
    parts[::2] = [re.sub(r"\|(?=\S[^|]*\|)|(?<=\S)\|", r"\\|", part) for part in parts[::2]]
    line = "".join(parts)
    line = re.sub(r"([\[(]|, )\*(?=\w)", r"\1\\*", line)
    return re.sub(r"(?<!`)(`[^`]+`)(?=[a-z])", r"\1\\ ", line)


def tidy(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Lists begin after a blank line; in a module's docstring indented lines are code."""
    out: list[str] = []
    for line in map(plain_marks, lines):
        last = next((x for x in reversed(out) if x.strip()), "")
        item, inside = line.startswith(("* ", "- ")), last.startswith(("* ", "- ", "  "))
        if item and out and out[-1].strip() and not inside:
            out.append("")
        code = what == "module" and line.startswith("    ") and out and not out[-1].strip()
        if (
            code
            and last
            and not last.startswith((" ", "* ", "- ", ".."))
            and not last.endswith("::")
        ):
            out += ["::", ""]
        out.append(line)
    lines[:] = out


def setup(app: Any) -> None:
    """Connect what docstrings need."""
    app.connect("autodoc-process-docstring", tidy)
