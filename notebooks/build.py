"""Execute the text notebooks: ``python -m notebooks.build [NAME…]`` writes NAME.ipynb from NAME.py.

The text (jupytext's percent format) is the source. The notebook beside it holds the same cells with
their outputs and nothing that differs between two machines: no paths, times or versions.
"""

import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

__all__ = ["FOLDER", "TIMEOUT", "clean", "execute", "read", "texts"]

FOLDER = Path(__file__).parent
TIMEOUT = 300
"""Seconds for one cell: several times what the slowest takes on two busy cores."""


def texts() -> list[Path]:
    """The text notebooks of this folder: the files that begin with a jupytext header."""
    return sorted(
        p for p in FOLDER.glob("*.py") if p.read_text(encoding="utf-8").startswith("# ---")
    )


def read(path: Path) -> NotebookNode:
    """The cells of a text notebook, not executed."""
    return jupytext.read(path)


def execute(notebook: NotebookNode, folder: Path = FOLDER) -> NotebookNode:
    """Run every cell in order, in a fresh kernel; a cell that raises ends it.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised.
    """
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    return client.execute()


def clean(notebook: NotebookNode) -> NotebookNode:
    """A copy without what changes from run to run; cells are numbered in order."""
    cells = []
    for number, cell in enumerate(notebook.cells):
        kept = {"id": f"cell-{number}", "metadata": {}, "source": cell.source}
        if cell.cell_type == "markdown":
            cells.append(nbformat.v4.new_markdown_cell(**kept))
            continue
        outputs = cell.outputs
        cells.append(
            nbformat.v4.new_code_cell(**kept, outputs=outputs, execution_count=cell.execution_count)
        )
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def main(names: list[str]) -> None:
    """Write the named notebooks, or every one."""
    known = {path.stem: path for path in texts()}
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise SystemExit(f"no notebook {', '.join(unknown)}; there are {', '.join(known)}")
    for name in names or known:
        target = known[name].with_suffix(".ipynb")
        nbformat.write(clean(execute(read(known[name]))), target)
        print(target.name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
