"""The programs and the commands in the pages, with the addresses of a test's own servers."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from tests.support.spark_process import SPARK_HOME

ROOT = Path(__file__).parents[2]
RUNNING = "docs/running.md"
RUNNING_PAGE = (ROOT / RUNNING).read_text()


def program(page: str, name: str, instead: Mapping[str, str]) -> str:
    """Return the program `name` of a page, with some texts replaced. Each of them has to occur in it."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if block.startswith(f"# {name}\n"))
    for text, replacement in instead.items():
        assert text in code, f"{text} is not in {name}"
        code = code.replace(text, replacement)
    return code


def write_program(name: str, folder: Path, instead: Mapping[str, str]) -> Path:
    """Write the program `name` of docs/running.md to the folder, with some texts replaced. Each of them has to occur in it."""
    file = folder / name
    file.write_text(program(RUNNING, name, instead), encoding="utf-8")
    return file


def command(program: str) -> list[str]:
    """Return the command line of docs/running.md that runs this program of Spark, as a list of words."""
    blocks: list[str] = re.findall(r"```sh\n(.*?)```", RUNNING_PAGE, re.DOTALL)
    (line,) = (line for block in blocks for line in block.splitlines() if program in line)
    words = shlex.split(line.replace("$SPARK_HOME", str(SPARK_HOME)))
    return [str(SPARK_HOME / "bin" / words[0]), *words[1:]] if os.sep not in words[0] else words
