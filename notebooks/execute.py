"""`python -m notebooks.execute NOTEBOOK RESULT`: run a notebook from top to bottom and write it with its outputs.

With the Python that runs this, in a temporary folder, and without a word to or from the user's own Jupyter. When this process
ends, so does the kernel.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).parents[1]
"""Where `devtools` is."""

CELL_LIMIT_S = 400
"""More than any cell takes on a slow machine."""


def main(arguments: Sequence[str]) -> int:
    """Execute one notebook; the exit status. A cell that fails is an exception, with its traceback."""
    source, result = map(Path, arguments)
    notebook = nbformat.read(source, as_version=4)
    with tempfile.TemporaryDirectory(prefix="groupkafka-notebook-") as folder:
        os.environ |= {"IPYTHONDIR": folder, "JUPYTER_RUNTIME_DIR": folder, "PYTHONPATH": str(ROOT)}
        client = NotebookClient(
            notebook,
            timeout=CELL_LIMIT_S,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": folder}},
        )
        client.execute()
    # The version of the Python that ran it says nothing of what it needs.
    notebook.metadata.language_info = {"name": "python"}
    notebook.metadata.executed_source = source_hash(notebook)
    nbformat.write(notebook, result)
    return 0


def source_hash(notebook: NotebookNode) -> str:
    """SHA-256 of the code cells in their order: what the outputs are the outputs of."""
    digest = hashlib.sha256()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            digest.update(cell.source.encode() + b"\0")
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
