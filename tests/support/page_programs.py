"""The programs in the pages, with the addresses of a test's own servers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def program(page: str, name: str, instead: Mapping[str, str]) -> str:
    """Return the program `name` of a page, with some texts replaced. Each of them has to occur in it."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if block.startswith(f"# {name}\n"))
    for text, replacement in instead.items():
        assert text in code, f"{text} is not in {name}"
        code = code.replace(text, replacement)
    return code
