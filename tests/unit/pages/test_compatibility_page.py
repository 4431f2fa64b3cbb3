"""docs/compatibility.md: each line names a test that there is, and no option is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_groupsource.options.model import DESCRIBED
from tools import wheels

ROOT = Path(__file__).parents[3]
COMPARED, PLATFORMS = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8").split("\n## Platforms\n")
LINES = [line for line in COMPARED.splitlines() if line.startswith("| ") and not re.match(r"\| (option|behaviour) \|", line)]
TEST = re.compile(r"`(tests/\S+\.py)::(test_\w+)`")


@pytest.mark.parametrize("line", LINES)
def test_each_line_names_a_test_that_there_is(line: str) -> None:
    named = TEST.search(line.split("|")[-2])
    assert named is not None
    assert re.search(rf"def {named[2]}\b", (ROOT / named[1]).read_text(encoding="utf-8"))


def test_every_option_has_a_line() -> None:
    first_cells = " ".join(line.split("|")[1] for line in LINES)
    options = {name for name, about in DESCRIBED.items() if not about.only_here}
    assert len(options) > 15
    assert [option for option in sorted(options) if f"`{option}`" not in first_cells] == []


def test_every_wheel_has_a_line() -> None:
    assert set(re.findall(r"`(\w+linux\w+|macosx\w+)`", PLATFORMS)) == {platform.tag for platform in wheels.PLATFORMS}
