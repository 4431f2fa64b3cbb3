"""Every path and every make target that the project's own files name exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

FOLDERS = ("benchmarks", "conf", "devtools", "docs", "notebooks", "spark_groupsource", "tests", "tools")

NAMING = sorted(
    path
    for pattern in ("Makefile", "*.md", "*.toml", "*.in", "*.yml", "docs/*.md", "conf/**/*.md", "tools/*.py", "devtools/**/*.py")
    for path in [*ROOT.glob(pattern), *ROOT.glob(f".ci/{pattern}"), *ROOT.glob(f".github/**/{pattern}")]
)
"""The files that say what to run and where to look."""

MADE = ("docs/pictures/", "notebooks/result", "conf/databricks/dist")
"""What a program writes."""

_PATH = re.compile(rf"(?<![\w./$*{{-])(?:{'|'.join(FOLDERS)})/[\w.*/-]*[\w*]")
_MODULE = re.compile(rf"python -m ((?:{'|'.join(FOLDERS)})[\w.]*)")
_TARGET = re.compile(r"(?:`|^|^\t@?|run: |^ *- |&& )make\s+((?:PYTHON=\S+ )?[a-z][a-z -]*[a-z])", re.MULTILINE)


def paths(text: str) -> Iterator[str]:
    for found in _PATH.findall(text):
        if not found.startswith(MADE):
            yield re.sub(r"^(notebooks/\w+)\.md$", r"\1.ipynb", found)  # its page on the site


def modules(text: str) -> Iterator[str]:
    for found in _MODULE.findall(text):
        yield str(found).rstrip(".").replace(".", "/")


def targets(text: str) -> list[str]:
    return [word for words in _TARGET.findall(text) for word in words.split() if "=" not in word]


def exists(path: str) -> bool:
    if "*" in path:
        return any(ROOT.glob(path))
    return any((ROOT / f"{path}{end}").exists() for end in ("", ".py"))


@pytest.mark.parametrize("file", NAMING, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_every_path_and_every_make_target_that_a_file_names_exists(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert [path for path in [*paths(text), *modules(text)] if not exists(path)] == []
    there = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert [target for target in targets(text) if target not in there] == []


def test_paths_and_targets_are_found() -> None:
    texts = [file.read_text(encoding="utf-8") for file in NAMING]
    assert len({path for text in texts for path in paths(text)}) > 100
    assert len({target for text in texts for target in targets(text)}) > 20
