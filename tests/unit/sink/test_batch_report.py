"""What the sink leaves for the driver's program: it comes back as it was, and nothing else is believed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from spark_groupsource.reports.private_folder import PrivateFolder
from spark_groupsource.sink.batch_report import BatchReport, read_report, write_report

RUN = "5d6d3b2e-2a3f-4c93-8f0a-1f6c8f1c7e55"
REPORT = BatchReport(RUN, 7, written=100, skipped=3, commit_ms=42)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the reports are."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return PrivateFolder().folder


@pytest.mark.usefixtures("folder")
def test_the_newest_report_of_a_run_comes_back() -> None:
    assert read_report(RUN) is None
    write_report(BatchReport(RUN, 6, 1, 1, 1))
    write_report(REPORT)
    assert read_report(RUN) == REPORT
    assert read_report(RUN.replace("5", "6")) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"v":2,"batch":7,"written":1,"skipped":1,"commit":1}',
        b'{"v":1,"batch":7,"written":1,"skipped":1}',
        b'{"v":1,"batch":-7,"written":1,"skipped":1,"commit":1}',
        b'{"v":1,"batch":true,"written":1,"skipped":1,"commit":1}',
        b'{"v":1,"batch":"7","written":1,"skipped":1,"commit":1}',
        b"[" * 500,
    ],
)
def test_what_is_no_report_is_none(folder: Path, content: bytes) -> None:
    write_report(REPORT)
    (folder / f"sink-{RUN}").write_bytes(content)
    assert read_report(RUN) is None


@pytest.mark.parametrize("run", ["../../etc/passwd", "", "x" * 100])
def test_a_name_that_is_no_run_is_neither_written_nor_read(folder: Path, run: str) -> None:
    write_report(BatchReport(run, 1, 1, 1, 1))
    assert read_report(run) is None
    assert not folder.exists()
