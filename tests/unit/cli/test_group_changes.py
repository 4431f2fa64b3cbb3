"""The changes between two looks at a group, and how top shows them."""

from __future__ import annotations

import io
import json
from datetime import datetime, timezone

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spark_groupsource.brokers.group_view import GroupMember, GroupView, PartitionView
from spark_groupsource.cli.group_changes import Changes, GroupEvent, Rates, difference_text, rates
from spark_groupsource.cli.render import held_back_lines
from spark_groupsource.cli.top import JsonLines, Look, PlainLines, live_parts
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, GroupCommit, OpenRange, OtherFormat, OwedRange, mark_of
from spark_groupsource.partition import TopicPartition

AT = datetime(2026, 11, 21, 16, 0, 5, tzinfo=timezone.utc)


def place(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def member(name: str, *numbers: int, instance_id: str | None = None, run: int = 1) -> GroupMember:
    return GroupMember(f"{name}-{run}", name, instance_id, "host", frozenset(map(place, numbers)))


def view(*members: GroupMember, commits: dict[int, GroupCommit] | None = None, end: int | None = 100, **more: str) -> GroupView:
    held = {number: Foreign(10) for number in range(3)} if commits is None else commits
    owners = {partition: one for one in members for partition in one.partitions}
    shown = tuple(PartitionView(place(number), owners.get(place(number)), commit, end) for number, commit in held.items())
    fields = {"state": "stable", "protocol": "classic", "assignor": "range", "coordinator": "broker 1", **more}
    return GroupView("billing", members=members, partitions=shown, **fields)


def events_of(*looks: GroupView) -> list[tuple[str, str]]:
    """The events of the last look."""
    changes = Changes()
    events: list[GroupEvent] = []
    for look in looks:
        _, events = changes.since_last(look, 2)
    return [(event.kind, event.text) for event in events]


def test_rates_are_offsets_per_second_of_partitions_that_both_looks_know() -> None:
    before = view(commits={0: Foreign(10), 1: Foreign(10), 2: None}, end=100)
    after = view(commits={0: Foreign(15), 1: Foreign(4), 2: Foreign(7), 3: Foreign(1)}, end=130)
    found = rates(before, after, 2)
    assert found.produced == {place(0): 15, place(1): 15, place(2): 15}
    assert found.committed == {place(0): 2.5, place(1): -3}
    assert (found.all_produced, found.all_committed) == (45, -0.5)


def test_an_end_that_is_not_known_or_is_lower_gives_no_rate_or_none_below_0() -> None:
    assert rates(view(end=None), view(end=100), 1).produced == {}
    assert rates(view(end=100), view(end=3), 1).produced == dict.fromkeys(map(place, range(3)), 0)
    assert rates(view(), view(), 0) == Rates()


def test_nothing_is_said_of_the_first_look_or_of_two_that_are_alike() -> None:
    assert events_of(view(member("a", 0, 1, 2))) == []
    assert events_of(view(member("a", 0, 1, 2)), view(member("a", 0, 1, 2))) == []


def test_a_member_that_joins_and_the_partitions_that_move_to_it() -> None:
    assert events_of(view(member("a", 0, 1, 2)), view(member("a", 0), member("b", 1, 2))) == [
        ("joined", "b@host"),
        ("moved", "orders-1: a@host -> b@host"),
        ("moved", "orders-2: a@host -> b@host"),
    ]


def test_a_member_that_leaves_with_nobody_to_take_over() -> None:
    assert events_of(view(member("a", 0)), view(state="empty")) == [
        ("state", "stable -> empty"),
        ("left", "a@host"),
        ("moved", "orders-0: a@host -> nobody"),
    ]


def test_while_a_classic_group_rebalances_nothing_has_moved_yet() -> None:
    """Its coordinator then returns no assignment."""
    before, between = view(member("a", 0, 1, 2)), view(member("a"), member("b"), state="preparing rebalancing")
    after = view(member("a", 0, 1), member("b", 2))
    assert events_of(before, between) == [("state", "stable -> preparing rebalancing"), ("joined", "b@host")]
    assert events_of(before, between, after) == [
        ("state", "preparing rebalancing -> stable"),
        ("moved", "orders-2: a@host -> b@host"),
    ]


def test_a_static_member_that_restarts_is_the_same_one() -> None:
    before, after = (view(member("a", 0, 1, 2, instance_id="query-1", run=run)) for run in (1, 2))
    assert events_of(before, after) == []
    assert events_of(before, view()) == [
        ("left", "a/query-1@host"),
        *(("moved", f"orders-{n}: a/query-1@host -> nobody") for n in range(3)),
    ]


def test_a_reset_and_what_becomes_owed_and_settled() -> None:
    owed = CommitRecord(stream="a", logged=1, done=1, next=9, owed=(OwedRange("b", 3, 2, 4),))
    settled = CommitRecord(stream="a", logged=1, done=1, next=9)
    assert events_of(view(commits={0: Foreign(10)}), view(commits={0: owed})) == [
        ("reset", "orders-0: the committed offset went back from 10 to 2"),
        ("owed", "orders-0 [2, 4): owed to stream b, plan 3"),
    ]
    assert events_of(view(commits={0: owed}), view(commits={0: settled})) == [
        ("settled", "orders-0 [2, 4): no longer owed to stream b, plan 3")
    ]


def test_a_record_in_another_format_settles_nothing_and_is_in_the_summary() -> None:
    owed = CommitRecord(stream="a", logged=1, done=1, next=9, owed=(OwedRange("b", 3, 2, 4),))
    unread = view(commits={0: OtherFormat(2, 5), 1: Foreign(10)})
    assert events_of(view(commits={0: owed, 1: Foreign(10)}), unread) == []
    assert events_of(unread, view(commits={0: owed, 1: Foreign(10)})) == []
    lines: list[str] = []
    PlainLines(lines.append).show(Look("billing", AT, unread))
    assert lines[-1].endswith(", 1 in format 5: not readable by this version; see groupkafka claims")


def test_another_coordinator_and_another_protocol() -> None:
    after = view(member("a"), coordinator="broker 2", protocol="consumer", assignor="uniform")
    assert events_of(view(member("a")), after) == [
        ("state", "classic, assignor range -> consumer, assignor uniform"),
        ("coordinator", "broker 1 -> broker 2"),
    ]


def written_by(name: str) -> CommitRecord:
    return CommitRecord(stream="s", logged=1, done=1, next=9, member=mark_of(f"{name}-1"))


def test_members_and_coordinator_that_differ_for_long_are_an_event_once_and_in_each_summary() -> None:
    moving = view(member("a", 0), member("b", 1), commits={0: written_by("a"), 1: written_by("a"), 2: written_by("b")})
    changes = Changes()
    events = [event for _ in range(20) for event in changes.since_last(moving, 2)[1]]
    assert events == [
        GroupEvent("differs", "orders-1: assigned to b@host, last written by a@host"),
        GroupEvent("differs", "orders-2: assigned to nobody, last written by b@host"),
    ]
    lines: list[str] = []
    PlainLines(lines.append).show(Look("billing", AT, moving))
    assert lines[-1].endswith(", members and coordinator differ in 2 partitions")
    shown = plain_text(live_parts(Look("billing", AT, moving), [], 120, 24, AT))
    assert "members and coordinator differ in 2 partitions; see groupkafka describe" in shown


def test_who_has_left_differs_only_from_an_owner_and_nobody_differs_while_a_classic_group_rebalances() -> None:
    commits: dict[int, GroupCommit] = {0: written_by("gone"), 1: written_by("gone"), 2: Foreign(3)}
    (one,) = view(member("a", 0, 2), commits=commits).differences
    assert difference_text(one) == "orders-0: assigned to a@host, last written by one that is no member"
    hidden = view(member("a"), commits={0: written_by("a")}, state="preparing rebalancing")
    assert hidden.differences == ()


def plain_text(parts: list[Text | Table]) -> list[str]:
    """The lines; of a table only how many there are, with its head."""
    return [line for part in parts for line in ([str(part)] if isinstance(part, Text) else ["table"] * (1 + part.row_count))]


def test_the_live_view_fits_the_terminal_and_shows_the_newest_events_and_the_most_lag() -> None:
    many = view(member("a", *range(40)), commits={number: Foreign(number) for number in range(40)})
    events = [f"event {number}" for number in range(12)]
    shown = plain_text(live_parts(Look("billing", AT, many), events, 120, 24, AT))
    assert "event 11" in shown
    assert "event 0" not in shown
    assert len(shown) <= 24
    assert shown[-1].endswith("more, with no more lag")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_on_a_narrow_terminal_each_partition_has_one_line_with_its_topic_and_whole_numbers(width: int) -> None:
    offset = 123_456_789_012
    many = view(member("a-long-name-of-a-member", *range(6)), commits={number: Foreign(offset) for number in range(6)})
    console = Console(file=io.StringIO(), width=width, height=24, force_terminal=True, color_system=None)
    for part in live_parts(Look("billing", AT, many), [], width, 24, AT):
        console.print(part)
    lines = [line for line in console.file.getvalue().splitlines() if str(offset) in line]  # type: ignore[attr-defined]
    assert [line.split()[:3] for line in lines] == [["orders", str(number), str(offset)] for number in range(6)]


def test_committed_offsets_that_are_held_back_are_named_with_what_is_finished_above() -> None:
    held = CommitRecord(
        stream="me", logged=3, done=3, next=90, owed=(OwedRange("gone", 7, 10, 20, round(AT.timestamp()) - 7200),)
    )
    some = view(member("a", 0), commits={0: held, 1: held, 2: Foreign(100)})
    look = Look("billing", AT, some)
    shown = plain_text(live_parts(look, [], 120, 24, AT))
    line = "is held back at 10 by [10, 20), claimed by stream gone in plan 7, since 2026-11-21T14:00:05Z (2 h ago): 70 finished"
    assert [f"orders-{number} {line} records count as lag" in shown for number in range(3)] == [True, True, False]
    assert any("lag 180, of which finished 140, held 20" in one for one in shown)
    lines: list[str] = []
    PlainLines(lines.append).show(look)
    assert "lag 180, of which finished 140, held 20" in lines[-1]
    many = view(member("a", *range(40)), commits=dict.fromkeys(range(40), held))
    shown = plain_text(live_parts(Look("billing", AT, many), [f"event {number}" for number in range(12)], 120, 24, AT))
    assert "and 37 more that are held back; see groupkafka claims" in shown
    assert len(shown) <= 24


def test_an_ordinary_micro_batch_in_flight_is_not_said_to_hold_anything_back() -> None:
    in_flight = CommitRecord(stream="me", logged=3, done=2, next=20, open=(OpenRange(10, 20),))
    reread = CommitRecord(stream="me", logged=3, done=2, next=31, open=(OpenRange(10, 20), OpenRange(21, 31)))
    left = CommitRecord(stream="me", logged=3, done=2, next=20, owed=(OwedRange("b", 1, 10, 20),))
    strange = PartitionView(TopicPartition("[red]\x1b", 0), None, left, 50)
    shown = held_back_lines([*view(commits={0: in_flight, 1: reread, 2: OtherFormat(10, 2), 3: None}).partitions, strange], AT)
    held, unknown = "is held back at 10 by [10, 20), claimed by stream", "since when is not known"
    assert shown == [
        f"orders-1 {held} me in plan 3, {unknown}: 1 finished record counts as lag",
        f"[red]\\x1b-0 {held} b in plan 1, {unknown}: no finished record counts as lag",
    ]


def test_what_is_finished_is_never_more_than_the_lag() -> None:
    held = CommitRecord(stream="me", logged=3, done=3, next=90, owed=(OwedRange("gone", 7, 10, 20),))
    assert [view(commits={0: held}, end=end).finished_lag for end in (100, 50, 5, None)] == [70, 40, 0, 0]


def test_a_look_that_fails_is_shown_above_what_the_last_one_had() -> None:
    shown = plain_text(live_parts(Look("billing", AT, view(), trouble="no broker\x1b"), [], 120, 24, AT))
    assert shown[1] == "no answer: no broker\\x1b"
    assert shown[2].startswith("stable, 0 members")


def test_no_control_character_of_a_name_reaches_a_line() -> None:
    lines: list[str] = []
    PlainLines(lines.append).show(Look("billing", AT, view(member("b\x07", 1))))
    assert lines[0].endswith(" member b\\x07@host: orders-1")


def test_json_lines_hold_the_look_with_its_rates_and_events() -> None:
    lines: list[str] = []
    show = JsonLines(lines.append)
    look = Look("billing", AT, view(member("a", 0)), Rates({place(0): 1.5}, {place(0): -2.0}), (GroupEvent("joined", "a@host"),))
    show.show(look)
    show.show(Look("billing", AT, trouble="all down"))
    one, other = map(json.loads, lines)
    assert one["at"] == "2026-11-21T16:00:05Z"
    assert one["events"] == [{"event": "joined", "text": "a@host"}]
    assert one["partitions"][0]["produced_per_second"] == 1.5
    assert one["partitions"][1]["committed_per_second"] is None
    assert one["committed_per_second"] == -2
    assert (other["group"], other["error"]) == ("billing", "all down")
