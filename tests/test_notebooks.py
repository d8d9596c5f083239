"""The text notebooks run from top to bottom, and the stored notebooks are what they give."""

import re

import jupytext
import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from notebooks import build

TEXTS = build.texts()
MAX_BYTES = 300_000
"""A notebook with a handful of figures; more would weigh on every clone."""

LOCAL = re.compile(
    r"/(?:home|root|Users|tmp|work|var|opt|private)/|\.venv|site-packages|"
    r"[A-Z]:\\\\|\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}"
)
"""Paths of a machine and timestamps."""

every = pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.stem)


def test_there_is_a_quickstart():
    assert "quickstart" in {p.stem for p in TEXTS}


@every
def test_runs_from_top_to_bottom(path):
    done = build.execute(build.read(path))
    code = [cell for cell in done.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    # what a reader sees: the printed numbers are those of the stored notebook
    stored = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    assert printed(build.clean(done)) == printed(stored)


def printed(notebook):
    """Everything written to standard output, cell by cell."""
    return [
        "".join(out.text for out in cell.outputs if out.output_type == "stream")
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@every
def test_asserts_something(path):
    assert len(re.findall(r"^ *assert ", path.read_text(encoding="utf-8"), re.MULTILINE)) >= 5


def test_a_raising_cell_fails():
    text = "# %%\nx = 1\n\n# %%\nassert x == 2, 'a wrong number'\n\n# %%\nx = 3\n"
    with pytest.raises(CellExecutionError, match="a wrong number"):
        build.execute(jupytext.reads(text, fmt="py:percent"))


@every
def test_stored_notebook_is_the_executed_text(path):
    stored = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    nbformat.validate(stored)
    text = build.read(path)
    assert [(c.cell_type, c.source) for c in stored.cells] == [
        (c.cell_type, c.source) for c in text.cells
    ], "run python -m notebooks.build"
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any("image/png" in out.get("data", {}) for cell in code for out in cell.outputs), (
        "no picture"
    )
    assert not [
        out
        for cell in code
        for out in cell.outputs
        if out.output_type == "error" or out.get("name") == "stderr"
    ]


@every
def test_stored_notebook_is_small_and_names_no_machine(path):
    raw = path.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert len(raw.encode()) < MAX_BYTES
    pictures = re.compile(r'"image/png": "[^"]*"')
    assert not LOCAL.findall(pictures.sub("", raw))
    assert set(nbformat.reads(raw, as_version=4).metadata) == {"kernelspec"}
