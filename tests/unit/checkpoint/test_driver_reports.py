"""Reports of durable plans, from the driver's program to the runner."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from spark_groupsource.checkpoint.driver_reports import DriverReports
from spark_groupsource.checkpoint.private_folder import DRIVER_REPORTS_KEPT_S
from spark_groupsource.errors import ReportsUnavailable

STREAM = "0123456789abcdef"


@pytest.fixture
def reports(tmp_path: Path) -> DriverReports:
    return DriverReports(4711, tmp_path / "reports")


def test_the_newest_report_of_this_driver_is_read_until_it_is_discarded(reports: DriverReports) -> None:
    assert reports.read(STREAM) is None
    reports.write(STREAM, 7)
    reports.write(STREAM, 8)
    assert DriverReports(4711, reports.folder).read(STREAM) == 8
    assert reports.read("another") is None
    # Another driver may run on a copy of the checkpoint, with the same stream and other plans.
    assert DriverReports(4712, reports.folder).read(STREAM) is None
    reports.discard(STREAM)
    assert reports.read(STREAM) is None
    reports.discard(STREAM)


def test_only_this_user_may_enter_the_folder_and_a_report_leaves_one_file(reports: DriverReports) -> None:
    for plan in range(3):
        reports.write(STREAM, plan)
    assert reports.folder.stat().st_mode & 0o777 == 0o700
    (file,) = reports.folder.iterdir()
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("mode", [0o755, 0o701, 0o770])
def test_a_folder_that_others_may_enter_is_refused(reports: DriverReports, mode: int) -> None:
    reports.folder.mkdir()
    reports.folder.chmod(mode)
    with pytest.raises(ReportsUnavailable, match="is not a folder that only this user may enter"):
        reports.write(STREAM, 1)
    with pytest.raises(ReportsUnavailable, match="is not a folder that only this user may enter"):
        reports.read(STREAM)


def test_a_link_in_place_of_the_folder_is_refused(reports: DriverReports, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    reports.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ReportsUnavailable):
        reports.write(STREAM, 1)
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"7",
        b'{"v":1,"stream":"0123456789abcdef","plan":-1}',
        b'{"v":1,"stream":"0123456789abcdef","plan":07}',
        b'{"v":2,"stream":"0123456789abcdef","plan":7}',
        b'{"v":1,"stream":"another","plan":7}',
        b'{"v":1,"stream":"0123456789abcdef","plan":7} ',
        b'{"v":1,"stream":"0123456789abcdef","plan":' + b"7" * 500 + b"}",
        b"\xff\xfe",
    ],
)
def test_what_is_not_exactly_a_report_is_not_believed(reports: DriverReports, content: bytes) -> None:
    reports.write(STREAM, 7)
    (file,) = reports.folder.iterdir()
    file.write_bytes(content)
    assert reports.read(STREAM) is None


@pytest.mark.parametrize("stream", ["", "../0123", "a/b", "x" * 65, "a b"])
def test_a_name_that_no_stream_has_never_becomes_a_path(reports: DriverReports, stream: str) -> None:
    with pytest.raises(ReportsUnavailable, match="is not the name of a stream"):
        reports.write(stream, 1)


def test_old_reports_are_removed_with_the_first_report_of_a_process(reports: DriverReports) -> None:
    reports.write("old", 1)
    reports.write("new", 1)
    (old,) = [file for file in reports.folder.iterdir() if file.name.endswith("-old")]
    long_ago = time.time() - DRIVER_REPORTS_KEPT_S - 60
    os.utime(old, (long_ago, long_ago))
    reports.write("new", 2)
    assert reports.read("old") == 1, "a later report looks at nothing else"
    DriverReports(4712, reports.folder).write("another", 1)
    assert reports.read("old") is None
    assert reports.read("new") == 2


def test_a_report_that_cannot_be_written_leaves_no_file(reports: DriverReports, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ReportsUnavailable, match="No space left"):
        reports.write(STREAM, 1)
    assert list(reports.folder.iterdir()) == []


def test_a_host_without_a_folder_for_temporary_files_has_no_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    reports = DriverReports(4711)
    with pytest.raises(ReportsUnavailable, match="no folder for temporary files"):
        reports.read(STREAM)
    with pytest.raises(ReportsUnavailable, match="no folder for temporary files"):
        reports.write(STREAM, 1)
    reports.discard(STREAM)
