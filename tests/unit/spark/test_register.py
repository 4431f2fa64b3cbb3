"""Whether the Python that Spark would start can run the source: real Pythons, each with something missing."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest

from spark_groupsource.spark import register
from spark_groupsource.spark.register import NEEDED, trouble_with
from spark_groupsource.version import __version__

HERE = (sys.version_info[0], sys.version_info[1])
INSTEAD = f"Set PYSPARK_PYTHON={sys.executable} before the Spark session is created"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of a virtual environment in which nothing is installed."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    return str(folder / "bin" / "python")


@pytest.fixture(autouse=True)
def answers_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may need seconds for a Python, and one without an answer is not judged."""
    monkeypatch.setattr(register, "ANSWER_OF_A_PYTHON_S", 120)


@pytest.fixture(autouse=True)
def nothing_by_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder of the process is in the path of a worker."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)


def installed(folder: Path, version: str) -> str:
    """Write packages of these names, and return their folder."""
    for name in NEEDED:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
    (folder / NEEDED[0] / "version.py").write_text(f"__version__ = {version!r}")
    return str(folder)


def test_the_python_of_the_program_is_not_asked() -> None:
    assert trouble_with(sys.executable) is None
    assert trouble_with(Path(sys.executable).name, environment={"PATH": str(Path(sys.executable).parent)}) is None


def test_a_python_without_the_package_is_named_and_what_to_set(bare: str) -> None:
    assert trouble_with(bare) == f"Spark's workers use {bare}, which lacks {', '.join(NEEDED)}. {INSTEAD}, or install it there."
    by_name = trouble_with("python", environment={"PATH": str(Path(bare).parent)})
    assert by_name is not None
    assert by_name.startswith(f"Spark's workers use python ({bare}), which lacks spark_groupsource,")


def test_a_python_that_was_mended_is_asked_again(bare: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "there"))
    assert trouble_with(bare) is not None
    installed(tmp_path / "there", __version__)
    assert trouble_with(bare, environment={"PYTHONPATH": "/extra"}) is None


@pytest.mark.parametrize("way", ["path", "environment"])
def test_what_spark_adds_to_the_path_of_a_worker_counts(bare: str, tmp_path: Path, way: str) -> None:
    there = installed(tmp_path / "there", __version__)
    given: Mapping[str, str] = {"PYTHONPATH": there} if way == "environment" else {"PYTHONPATH": "/extra"}
    assert trouble_with(bare, [there] if way == "path" else [], given) is None


def test_another_version_of_the_package_is_named(bare: str, tmp_path: Path) -> None:
    said = trouble_with(bare, [installed(tmp_path / "there", "0.0.1")])
    assert said is not None
    assert f"has version 0.0.1 of spark_groupsource, but this program has {__version__}. {INSTEAD}" in said


def answering(program: Path, python: list[int]) -> str:
    """Write a program that gives the answer of such a Python, and return its path."""
    program.write_text(f"#!/bin/sh\necho '{json.dumps([python, __version__, []])}'\n")
    program.chmod(0o700)
    return str(program)


def test_another_version_of_python_is_named(tmp_path: Path) -> None:
    other = answering(tmp_path / "other", [3, 9])
    assert trouble_with(other) == (
        f"Spark's workers use {other}, which is Python 3.9, but this program is Python {HERE[0]}.{HERE[1]}. {INSTEAD}."
    )
    assert trouble_with(answering(tmp_path / "same", list(HERE))) is None


def test_a_program_that_does_not_exist_is_named() -> None:
    assert trouble_with("/no/such/python") == (
        f"Spark starts /no/such/python for its Python workers, but there is no such program on this machine. {INSTEAD}."
    )


def test_a_python_of_an_archive_is_linked_into_the_folder_of_the_driver() -> None:
    python = "./environment/bin/python"
    said = trouble_with(python)
    assert said is not None
    assert said.startswith(f"Spark starts {python} for its Python workers, but there is no such program on this machine. ")
    assert "PYSPARK_PYTHON=" not in said
    (advice,) = re.findall(r"`(.+?)` in (.+?)\.$", said)
    subprocess.run(shlex.split(advice[0]), cwd=advice[1], check=True)
    assert trouble_with(python) is None


def test_a_python_of_an_archive_that_differs_is_not_replaced_by_an_absolute_path(bare: str) -> None:
    Path("environment").symlink_to(Path(bare).parent.parent)
    said = trouble_with("environment/bin/python")
    assert said is not None
    assert "which lacks spark_groupsource" in said
    assert f"run `ln -sfn {sys.prefix} environment` in {Path.cwd()}, or install it there." in said


@pytest.mark.parametrize("does", ["exit 1", "echo well", "echo '[]'"])
def test_a_program_that_gives_no_answer_is_not_judged(tmp_path: Path, does: str) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o700)
    assert trouble_with(str(program)) is None
