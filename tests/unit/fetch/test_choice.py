"""Which reader is used, and what is said when it is the slower one."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_groupsource.fetch import choice
from spark_groupsource.fetch import native_consumer as native
from spark_groupsource.fetch import pure_consumer as pure
from spark_groupsource.native.libraries import NativeUnavailable
from tests.support.fetching import NATIVE

PROJECT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def nothing_said_yet() -> Iterator[None]:
    choice._warn.cache_clear()
    yield
    choice._warn.cache_clear()


@NATIVE
def test_the_native_reader_is_used_where_it_can_be(caplog: pytest.LogCaptureFixture) -> None:
    assert choice.reader() is native.read
    assert not caplog.records


def test_without_it_the_pure_reader_is_used_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unavailable = NativeUnavailable("its C code has not been compiled")
    monkeypatch.setattr(choice, "why_unavailable", lambda: unavailable)

    assert [choice.reader() for _ in range(3)] == [pure.read] * 3

    (said,) = caplog.records
    assert said.levelno == logging.WARNING
    assert "pure Python reader" in said.getMessage()
    assert "its C code has not been compiled" in said.getMessage()
    assert "To use the native reader: install the spark-groupsource wheel" in said.getMessage()


def test_a_driver_names_its_reader_and_warns_at_the_start_of_a_query_if_it_is_the_slower_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(choice, "why_unavailable", lambda: None)
    choice.warn_on_driver()
    assert not caplog.records

    monkeypatch.setattr(choice, "why_unavailable", lambda: NativeUnavailable("the reason", "the advice"))
    choice.warn_on_driver()
    (said,) = caplog.records
    assert said.levelno == logging.WARNING
    assert re.search(
        r"^The driver's installation has no native reader: the reason\. .*executor: the advice\.$", said.getMessage()
    )


@pytest.mark.long
def test_it_installs_without_a_compiler(tmp_path: Path) -> None:
    source = tmp_path / "source"
    left_out = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(PROJECT / "spark_groupsource", source / "spark_groupsource", ignore=left_out)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(source)]
    done = subprocess.run(
        build,
        env={**os.environ, "CC": "false", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("*-py3-none-any.whl"))
