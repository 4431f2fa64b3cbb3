"""Reports of durable plans, from the driver's program to the runner."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from spark_groupsource.errors import ReportsUnavailable
from spark_groupsource.reports.driver_reports import Answer, DriverReports

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
    with pytest.raises(ReportsUnavailable, match="is not a valid stream name"):
        reports.write(stream, 1)


def test_a_host_without_a_folder_for_temporary_files_has_nothing_to_discard(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    DriverReports(4711).discard(STREAM)


def test_a_request_to_stop_is_seen_by_the_runners_of_this_driver_until_it_is_ended(reports: DriverReports) -> None:
    assert reports.asked_to_stop(STREAM) is None
    reports.write(STREAM, 7)
    request = reports.ask_to_stop(STREAM)
    assert DriverReports(4711, reports.folder).asked_to_stop(STREAM) == request
    assert DriverReports(4712, reports.folder).asked_to_stop(STREAM) is None
    assert reports.asked_to_stop(f"{STREAM}-2") is None
    for _ in range(2):
        reports.end_stop(STREAM)
    assert reports.asked_to_stop(STREAM) is None
    assert reports.answer(STREAM, request) is None
    assert reports.read(STREAM) == 7


@pytest.mark.parametrize("answer", Answer)
def test_a_runner_that_was_asked_earlier_does_not_answer_a_newer_request(reports: DriverReports, answer: Answer) -> None:
    earlier, request = (reports.ask_to_stop(STREAM) for _ in range(2))
    reports.answer_stop(STREAM, earlier, answer)
    assert reports.asked_to_stop(STREAM) == request
    assert reports.answer(STREAM, request) is None
    reports.answer_stop(STREAM, request, answer)
    assert reports.answer(STREAM, request) is answer
    assert reports.answer(STREAM, earlier) is None
    assert reports.asked_to_stop(STREAM) == (request if answer is Answer.PLANS_NOTHING else None)
    reports.end_stop(STREAM)
    assert not list(reports.folder.iterdir())


def test_a_folder_of_others_asks_for_nothing(reports: DriverReports) -> None:
    request = reports.ask_to_stop(STREAM)
    reports.folder.chmod(0o777)
    assert reports.asked_to_stop(STREAM) is None
    reports.answer_stop(STREAM, request, Answer.LEFT)
    assert reports.answer(STREAM, request) is None
