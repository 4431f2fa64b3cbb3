"""How `groupkafka top` shows a group."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spark_groupsource.cli.group_changes import GroupEvent, Rates
from spark_groupsource.cli.top import Snapshot, json_line, live_parts, plain_text
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, OtherFormat, OwedRange
from tests.support.group_views import AT, member, place, view, written_by


def shown_text(parts: list[Text | Table]) -> list[str]:
    """The lines; of a table only how many there are, with its head."""
    return [line for part in parts for line in ([str(part)] if isinstance(part, Text) else ["table"] * (1 + part.row_count))]


def test_the_live_view_fits_the_terminal_and_shows_the_newest_events_and_the_most_lag() -> None:
    many = view(member("a", *range(40)), commits={number: Foreign(number) for number in range(40)})
    events = [f"event {number}" for number in range(12)]
    shown = shown_text(live_parts(Snapshot("billing", AT, many), events, 120, 24, AT))
    assert "event 11" in shown
    assert "event 0" not in shown
    assert len(shown) <= 24
    assert shown[-1].endswith("more, with the same lag or less")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_on_a_narrow_terminal_each_partition_has_one_line_with_its_topic_and_whole_numbers(width: int) -> None:
    offset = 123_456_789_012
    many = view(member("a-long-name-of-a-member", *range(6)), commits={number: Foreign(offset) for number in range(6)})
    console = Console(file=io.StringIO(), width=width, height=24, force_terminal=True, color_system=None)
    for part in live_parts(Snapshot("billing", AT, many), [], width, 24, AT):
        console.print(part)
    lines = [line for line in console.file.getvalue().splitlines() if str(offset) in line]  # type: ignore[attr-defined]
    assert [line.split()[:3] for line in lines] == [["orders", str(number), str(offset)] for number in range(6)]


def test_ranges_at_which_a_committed_offset_stays_are_named_with_what_is_finished_above() -> None:
    held = CommitRecord(
        stream="me", logged=3, done=3, next=90, owed=(OwedRange("gone", 7, 10, 20, round(AT.timestamp()) - 7200),)
    )
    some = view(member("a", 0), commits={0: held, 1: held, 2: Foreign(100)})
    look = Snapshot("billing", AT, some)
    shown = shown_text(live_parts(look, [], 120, 24, AT))
    line = "[10, 20) 10 offsets, held: stream gone, since 2026-11-21T14:00:05Z (2 h ago); 70 finished records"
    assert [f"orders-{number} {line} above it count as lag" in shown for number in range(3)] == [True, True, False]
    assert any("lag 180, of which finished 140, in flight 0, held 20" in one for one in shown)
    lines = plain_text(look).splitlines()
    assert "lag 180, of which finished 140, in flight 0, held 20" in lines[-1]
    many = view(member("a", *range(40)), commits=dict.fromkeys(range(40), held))
    shown = shown_text(live_parts(Snapshot("billing", AT, many), [f"event {number}" for number in range(12)], 120, 24, AT))
    assert "and 37 more such ranges; see groupkafka claims" in shown
    assert len(shown) <= 24


def test_a_failure_is_shown_above_what_the_last_one_had() -> None:
    shown = shown_text(live_parts(Snapshot("billing", AT, view(), trouble="no broker\x1b"), [], 120, 24, AT))
    assert shown[1] == "no answer: no broker\\x1b"
    assert shown[2].startswith("stable, 0 members")


def test_json_lines_hold_the_snapshot_with_its_rates_and_events() -> None:
    rates = Rates({place(0): 1.5}, {place(0): -2.0})
    one = json.loads(json_line(Snapshot("billing", AT, view(member("a", 0)), rates, (GroupEvent("joined", "a@host"),))))
    other = json.loads(json_line(Snapshot("billing", AT, trouble="all down")))
    assert one["at"] == "2026-11-21T16:00:05Z"
    assert one["events"] == [{"event": "joined", "text": "a@host"}]
    assert one["partitions"][0]["produced_per_second"] == 1.5
    assert one["partitions"][1]["committed_per_second"] is None
    assert one["committed_per_second"] == -2
    assert (other["group"], other["error"]) == ("billing", "all down")


def test_two_members_with_one_name_are_told_apart() -> None:
    two = view(member("a", 0, run=1111), member("a", 1, run=2222))
    lines = plain_text(Snapshot("billing", AT, two, is_first=True)).splitlines()
    assert [line.partition("member ")[2] for line in lines[:2]] == ["a@host#1111: orders-0", "a@host#2222: orders-1"]
    shown = live_parts(Snapshot("billing", AT, two), [], 120, 24, AT)
    tables = [part for part in shown if isinstance(part, Table)]
    assert [str(cell) for cell in tables[0].columns[0].cells] == ["a@host#1111", "a@host#2222"]


def test_members_and_coordinator_that_differ_are_in_each_summary_and_in_the_live_view() -> None:
    moving = view(member("a", 0), member("b", 1), commits={0: written_by("a"), 1: written_by("a"), 2: written_by("b")})
    lines = plain_text(Snapshot("billing", AT, moving, is_first=True)).splitlines()
    assert lines[-1].endswith(", members and coordinator disagree about 2 partitions")
    shown = shown_text(live_parts(Snapshot("billing", AT, moving), [], 120, 24, AT))
    assert "members and coordinator disagree about 2 partitions; see groupkafka describe" in shown


def test_a_record_that_only_a_newer_version_can_read_is_in_the_summary() -> None:
    lines = plain_text(Snapshot("billing", AT, view(commits={0: OtherFormat(2, 5), 1: Foreign(10)}), is_first=True)).splitlines()
    assert lines[-1].endswith(", 1 in format 5, which this version cannot read; see groupkafka claims")
