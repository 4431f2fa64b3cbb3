"""The code and the commands of docs/running.md, with the addresses of a test's own servers."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from tests.support.spark_process import ROOT, SPARK_HOME

PAGE = (ROOT / "docs" / "running.md").read_text()


def write_program(name: str, folder: Path, instead: Mapping[str, str]) -> Path:
    """Write the page's program `name` to the folder, with some texts replaced, each of which has to be there."""
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if block.startswith(f"# {name}\n"))
    for text, replacement in instead.items():
        assert text in code, f"{text} is not in {name}"
        code = code.replace(text, replacement)
    file = folder / name
    file.write_text(code)
    return file


def command(program: str) -> list[str]:
    """Return the page's command line that runs this program of Spark, as a list of words."""
    (line,) = (
        line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines() if program in line
    )
    words = shlex.split(line.replace("$SPARK_HOME", str(SPARK_HOME)))
    return [str(SPARK_HOME / "bin" / words[0]), *words[1:]] if os.sep not in words[0] else words
