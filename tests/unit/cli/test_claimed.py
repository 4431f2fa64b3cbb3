"""Ranges that are claimed but not confirmed: in flight, or held."""

from __future__ import annotations

from datetime import timedelta

import pytest

from spark_groupsource.brokers.group_view import GroupView, PartitionView
from spark_groupsource.cli.claimed import claim_line, claimed_in, total
from spark_groupsource.handoff.commit_record import CommitRecord, OpenRange, OwedRange, mark_of
from spark_groupsource.partition import TopicPartition
from tests.support.group_views import AT, member, view

A = member("a", 0)


def record(writer: str | None = None) -> CommitRecord:
    mark = None if writer is None else mark_of(writer)
    return CommitRecord(stream="me", logged=3, done=2, next=20, open=(OpenRange(10, 20),), member=mark)


def kinds(group: GroupView) -> list[str]:
    return [claimed.kind for claimed in claimed_in(group)]


@pytest.mark.parametrize("writer", [A.member_id, None])
def test_what_the_member_with_the_partition_has_claimed_is_in_flight(writer: str | None) -> None:
    (claimed,) = claimed_in(view(A, commits={0: record(writer)}))
    assert (claimed.kind, claimed.member) == ("in flight", A)
    assert total([claimed]) == (10, 0)


def test_a_range_of_a_query_that_has_lost_the_partition_is_held() -> None:
    assert kinds(view(A, commits={0: record("another-1")})) == ["held"]
    assert kinds(view(A, member("b", 1), commits={1: record(A.member_id)})) == ["held"]
    owed = CommitRecord(stream="me", logged=3, done=2, next=20, open=(OpenRange(10, 20),), owed=(OwedRange("b", 1, 5, 7),))
    assert kinds(view(A, commits={0: owed})) == ["held", "in flight"]


def test_a_partition_that_drains_has_no_owner_and_its_range_is_in_flight() -> None:
    (claimed,) = claimed_in(view(member("a"), member("b", 1), commits={0: record(A.member_id)}))
    assert (claimed.kind, claimed.member and claimed.member.member_id) == ("in flight", A.member_id)
    assert kinds(view(member("b", 1), commits={0: record(A.member_id)})) == ["held"], "its query is no member any more"


def test_while_a_classic_group_rebalances_nothing_is_lost_yet() -> None:
    """Its coordinator then returns no assignment."""
    for writer in (A.member_id, None):
        assert kinds(view(member("a"), commits={0: record(writer)}, state="preparing rebalancing")) == ["in flight"]
    assert kinds(view(member("b"), commits={0: record(A.member_id)}, state="preparing rebalancing")) == ["held"]


def test_a_range_at_which_the_committed_offset_stays_says_what_is_finished_above_it() -> None:
    first = CommitRecord(stream="me", logged=3, done=2, next=31, open=(OpenRange(10, 20), OpenRange(21, 31)))
    left = CommitRecord(stream="me", logged=3, done=2, next=20, owed=(OwedRange("b", 1, 10, 20, round(AT.timestamp())),))
    strange = PartitionView(TopicPartition("[red]\x1b", 0), None, left, 50)
    ordinary, *others = claimed_in(
        GroupView("g", "stable", "classic", "range", "", (A,), (*view(A, commits={0: record(A.member_id)}).partitions, strange))
    )
    assert (ordinary.finished_lag, ordinary.delays) == (0, False), "an ordinary micro-batch delays nothing"
    assert [(claimed.finished_lag, claimed.delays) for claimed in others] == [(0, True)]
    line = "[red]\\x1b-0 [10, 20) 10 offsets, held: stream b, since 2026-11-21T16:00:05Z (2 h ago)"
    assert claim_line(others[0], AT + timedelta(hours=2)) == line
    lowest, higher = claimed_in(view(A, commits={0: first}))
    assert [(claimed.finished_lag, claimed.delays) for claimed in (lowest, higher)] == [(1, True), (None, False)]
    assert claim_line(lowest, AT).endswith(", since not known; 1 finished record above it counts as lag")
    assert claim_line(higher, AT).endswith(", since not known")


def test_what_is_finished_is_never_more_than_the_lag() -> None:
    held = CommitRecord(stream="me", logged=3, done=3, next=90, owed=(OwedRange("gone", 7, 10, 20),))
    assert [view(commits={0: held}, end=end).finished_lag for end in (100, 50, 5, None)] == [70, 40, 0, 0]
