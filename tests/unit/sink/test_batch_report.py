"""What the sink leaves for the driver's program: it comes back as it was, and nothing else is believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_groupsource.sink.batch_report import BatchReport, BatchReports

RUN = "5d6d3b2e-2a3f-4c93-8f0a-1f6c8f1c7e55"
REPORT = BatchReport(RUN, 7, written=100, skipped=3, commit_ms=42)


def test_the_newest_report_of_a_run_comes_back(tmp_path: Path) -> None:
    reports = BatchReports(tmp_path / "reports")
    assert reports.read(RUN) is None
    reports.write(BatchReport(RUN, 6, 1, 1, 1))
    reports.write(REPORT)
    assert BatchReports(tmp_path / "reports").read(RUN) == REPORT
    assert reports.read(RUN.replace("5", "6")) is None


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
def test_what_is_no_report_is_none(tmp_path: Path, content: bytes) -> None:
    reports = BatchReports(tmp_path / "reports")
    reports.write(REPORT)
    (tmp_path / "reports" / f"sink-{RUN}").write_bytes(content)
    assert reports.read(RUN) is None


@pytest.mark.parametrize("run", ["../../etc/passwd", "", "x" * 100])
def test_a_name_that_is_no_run_is_neither_written_nor_read(tmp_path: Path, run: str) -> None:
    reports = BatchReports(tmp_path / "reports")
    reports.write(BatchReport(run, 1, 1, 1, 1))
    assert reports.read(run) is None
    assert not (tmp_path / "reports").exists()
