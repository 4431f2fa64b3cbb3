"""Turns a notebook into a page on the site, with its text, its code, and the outputs that are checked in."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class NotebookPage(NamedTuple):
    """The page as Markdown, and its pictures by file name."""

    markdown: str
    pictures: dict[str, bytes]


def notebook_page(notebook: Path) -> NotebookPage:
    """Return the page of a notebook.

    Args:
        notebook: the `.ipynb` file.
    """
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in cells:
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif source:
            parts.append(f"```python\n{source}\n```")
            for output in cell["outputs"]:
                parts += _output(output, notebook.stem, pictures)
    parts.append(f"The notebook itself: [{notebook.name}]({notebook.name}).")
    return NotebookPage("\n\n".join(parts) + "\n", pictures)


def _output(output: dict[str, Any], stem: str, pictures: dict[str, bytes]) -> Iterator[str]:
    data = output.get("data", {})
    if "image/png" in data:
        name = f"{stem}-{len(pictures)}.png"
        pictures[name] = base64.b64decode("".join(data["image/png"]))
        yield f"![What the cell has drawn]({name})"
    elif text := "".join(output.get("text", data.get("text/plain", ()))).rstrip():
        yield f'<div class="output" markdown>\n\n```text\n{text}\n```\n\n</div>'
