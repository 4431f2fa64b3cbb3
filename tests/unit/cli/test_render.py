"""The output of the commands, in a file and on a terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from rich.console import Console

from spark_groupsource.brokers.group_view import GroupMember
from spark_groupsource.cli.render import (
    console_for,
    make_table,
    member_names,
    print_table,
    time_and_age,
)
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


def test_a_time_has_its_age_in_minutes_hours_or_days() -> None:
    def age(**ago: int) -> str:
        return time_and_age(round((AT - timedelta(**ago)).timestamp()), AT).partition(" (")[2]

    assert [age(seconds=59), age(minutes=119), age(hours=2), age(hours=47), age(days=3)] == [
        *("0 min ago)", "119 min ago)", "2 h ago)", "47 h ago)", "3 d ago)")
    ]
    assert age(minutes=-5) == "0 min ago)", "by a clock that is ahead"
    assert time_and_age(None, AT) == "not known"


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
