"""The code and the commands of docs/running.md, with the addresses of a test's own servers."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from tests.support.page_programs import program
from tests.support.spark_process import ROOT, SPARK_HOME

PAGE = (ROOT / "docs" / "running.md").read_text()


def write_program(name: str, folder: Path, instead: Mapping[str, str]) -> Path:
    """Write the page's program `name` to the folder, with some texts replaced. Each of them has to occur in it."""
    file = folder / name
    file.write_text(program("docs/running.md", name, instead), encoding="utf-8")
    return file


def command(program: str) -> list[str]:
    """Return the page's command line that runs this program of Spark, as a list of words."""
    (line,) = (
        line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines() if program in line
    )
    words = shlex.split(line.replace("$SPARK_HOME", str(SPARK_HOME)))
    return [str(SPARK_HOME / "bin" / words[0]), *words[1:]] if os.sep not in words[0] else words
