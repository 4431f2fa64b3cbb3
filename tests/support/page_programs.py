"""The programs and commands on the pages, with the addresses of the test's own servers."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from tests.support.spark_process import SPARK_HOME

ROOT = Path(__file__).parents[2]
RUNNING = "docs/running.md"


def replaced(text: str, instead: Mapping[str, str], most: float = math.inf) -> str:
    """Return a text with some parts of it replaced. Each of them has to occur in it, and no more than `most` times."""
    for part, replacement in instead.items():
        assert 0 < text.count(part) <= most, f"{part} is {text.count(part)} times in:\n{text}"
        text = text.replace(part, replacement)
    return text


def blocks(page: str, language: str) -> list[str]:
    """Return a page's code blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def program(page: str, name: str, instead: Mapping[str, str]) -> str:
    """Return the program `name` from a page, with some texts replaced."""
    (code,) = (block for block in blocks(page, "python") if block.startswith(f"# {name}\n"))
    return replaced(code, instead)


def write_program(name: str, folder: Path, instead: Mapping[str, str]) -> Path:
    """Write the program `name` of docs/running.md to the folder, with some texts replaced."""
    file = folder / name
    file.write_text(program(RUNNING, name, instead), encoding="utf-8")
    return file


def command(program: str) -> list[str]:
    """Return the command line of docs/running.md that runs this program of Spark, as a list of words."""
    (line,) = (line for block in blocks(RUNNING, "sh") for line in block.splitlines() if program in line)
    words = shlex.split(line.replace("$SPARK_HOME", str(SPARK_HOME)))
    return [str(SPARK_HOME / "bin" / words[0]), *words[1:]] if os.sep not in words[0] else words
