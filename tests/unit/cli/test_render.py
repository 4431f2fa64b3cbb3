"""The output of the commands, in a file and on a terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from rich.console import Console

from spark_groupsource.brokers.group_view import GroupMember
from spark_groupsource.cli.render import (
    cell,
    console_for,
    count,
    lag_of,
    make_table,
    member_names,
    name_in,
    print_table,
    printable,
    time_and_age,
)
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, OwedRange
from tests.support.group_views import member, view

AT = datetime(2026, 11, 21, 17, 0, tzinfo=timezone.utc)


def test_in_a_file_a_line_is_never_wrapped_and_has_no_trailing_blanks() -> None:
    written = io.StringIO()
    console = console_for(written)
    rows = [("orders" * 100, 7, None), ("a", 1000, "me")]
    table = make_table(("TOPIC", "LAG", "MEMBER"), rows, terminal=console.is_terminal)
    print_table(table, console)
    head, long, short = written.getvalue().splitlines()
    assert head.split() == ["TOPIC", "LAG", "MEMBER"]
    assert long == f"{'orders' * 100}     7  -"
    assert short.split() == ["a", "1000", "me"]


def test_on_a_terminal_a_name_that_is_too_long_is_cut_and_a_number_is_not() -> None:
    written = io.StringIO()
    console = Console(file=written, width=30, force_terminal=True, color_system=None)
    rows = [("a-name-that-is-much-longer-than-the-terminal", 123456789)]
    table = make_table(("MEMBER", "LAG"), rows, terminal=True, one_line=True)
    console.print(table)
    (row,) = written.getvalue().splitlines()[1:]
    assert "\u2026" in row
    assert len(row.rstrip()) <= 30


def test_control_characters_of_a_name_are_escaped() -> None:
    assert printable("a\x1b[2J\u202e\u00fc") == "a\\x1b[2J\\u202e\u00fc"


def test_a_time_has_its_age_in_minutes_hours_or_days() -> None:
    def age(**ago: int) -> str:
        return time_and_age(round((AT - timedelta(**ago)).timestamp()), AT).partition(" (")[2]

    assert [age(seconds=59), age(minutes=119), age(hours=2), age(hours=47), age(days=3)] == [
        *("0 min ago)", "119 min ago)", "2 h ago)", "47 h ago)", "3 d ago)")
    ]
    assert age(minutes=-5) == "0 min ago)", "by a clock that is ahead"
    assert time_and_age(None, AT) == "not known"


def test_numbers_and_counts_as_texts() -> None:
    assert [cell(value) for value in (None, 0, -1.5, "a\x1b")] == ["-", "0", "-1.5", "a\\x1b"]
    assert [count(value, "member") for value in (0, 1, 2)] == ["0 members", "1 member", "2 members"]


def test_the_lag_of_a_group_says_what_is_finished_and_what_is_not_known() -> None:
    held = CommitRecord(stream="me", logged=3, done=3, next=90, owed=(OwedRange("gone", 7, 10, 20),))
    assert lag_of(view(commits={0: Foreign(40)})) == "lag 60"
    assert lag_of(view(commits={0: held})) == "lag 90, of which finished 70"
    assert lag_of(view(commits={0: Foreign(40), 1: None})) == "lag at least 60 (not known in 1 partition)"


def names(*members: GroupMember) -> list[str]:
    found = member_names(view(*members))
    return [found[each.member_id] for each in members]


def test_names_that_differ_are_the_client_ids_with_the_host() -> None:
    assert names(member("a"), member("b", instance_id="spare")) == ["a@host", "b/spare@host"]


def test_equal_names_have_the_begin_of_the_member_id_that_the_coordinator_gave() -> None:
    first, second = (replace(member("a"), member_id=f"a-{uuid}") for uuid in ("3f2a0c11-9d", "77e1f0b2-4c"))
    assert names(first, second, member("b")) == ["a@host#3f2a", "a@host#77e1", "b@host"]


def test_the_begin_is_as_long_as_it_must_be() -> None:
    begins = [replace(member("a"), member_id=member_id) for member_id in ("abcdefg1", "abcdefg2", "abcdxxxx")]
    assert names(*begins) == ["a@host#abcdefg1", "a@host#abcdefg2", "a@host#abcdxxxx"]
    short = [replace(member("a"), member_id=member_id) for member_id in ("x", "y")]
    assert names(*short) == ["a@host#x", "a@host#y"]


def test_a_static_member_that_restarted_keeps_its_name() -> None:
    before, after = (member("a", instance_id="query-1", run=run) for run in (1111, 2222))
    assert set(member_names(view(before), view(after)).values()) == {"a/query-1@host"}


def test_nobody_has_the_name_that_is_given_for_nobody() -> None:
    assert name_in({}, None, "nobody") == "nobody"
    assert name_in({}, member("a"), "nobody") == "a@host", "one that is in no group keeps its own"
