"""What a view of a group adds up, and where its members and its coordinator differ."""

from __future__ import annotations

import pytest

from spark_groupsource.brokers.group_view import Difference, GroupMember, GroupView, PartitionView, refuse_active
from spark_groupsource.errors import GroupActive
from spark_groupsource.handoff.commit_record import CommitRecord, OpenRange, OtherFormat, OwedRange, mark_of
from spark_groupsource.partition import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def member(name: str, *partitions: TopicPartition, target: frozenset[TopicPartition] | None = None) -> GroupMember:
    return GroupMember(name, f"client of {name}", None, "10.0.0.1", frozenset(partitions), target)


def view(*members: GroupMember, partitions: tuple[PartitionView, ...] = (), state: str = "stable") -> GroupView:
    return GroupView("billing", state, "classic", "range", "broker 1", members, partitions)


def record(writer: str) -> CommitRecord:
    owed = (OwedRange("another", 1, 3, 5),)
    return CommitRecord(stream="mine", logged=2, done=1, next=9, open=(OpenRange(5, 9),), owed=owed, member=mark_of(writer))


def test_lag_is_the_sum_of_what_is_known() -> None:
    found = view(partitions=(PartitionView(FIRST, None, record("a"), 20), PartitionView(SECOND, None, None, 7)))
    assert (found.lag, found.lag_unknown) == (17, 1)
    assert found.partitions[0].open == (OwedRange("mine", 2, 5, 9),)
    assert found.other_formats == {}


def test_the_claims_of_a_record_in_another_format_are_not_known() -> None:
    found = view(partitions=(PartitionView(FIRST, None, OtherFormat(5, 9), 20),))
    assert found.other_formats == {FIRST: found.partitions[0].other_format}
    assert (found.partitions[0].open, found.partitions[0].owed) == ((), ())


def test_a_partition_that_another_member_wrote_last_is_a_difference_but_not_while_the_group_rebalances() -> None:
    a, b = member("a", FIRST), member("b")
    partitions = (PartitionView(FIRST, a, record("b"), 20),)
    assert view(a, b, partitions=partitions).differences == (Difference(FIRST, a, a, b),)
    assert view(a, b, partitions=partitions, state="preparing rebalancing").differences == ()
    assert view(a, b, partitions=(PartitionView(FIRST, a, record("a"), 20),)).differences == ()


def test_a_partition_that_is_to_be_with_another_member_is_a_difference() -> None:
    a, b = member("a", FIRST, target=frozenset()), member("b", target=frozenset({FIRST}))
    assert view(a, b, partitions=(PartitionView(FIRST, a, None, 20),)).differences == (Difference(FIRST, a, b, None),)


def test_a_group_with_members_is_left_alone() -> None:
    refuse_active(view())
    with pytest.raises(GroupActive, match="has 1 member"):
        refuse_active(view(member("a")))
