"""Groups as their coordinator shows them, without a broker."""

from __future__ import annotations

from datetime import datetime, timezone

from spark_groupsource.brokers.group_view import GroupMember, GroupView, PartitionView
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, GroupCommit, mark_of
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


def written_by(name: str) -> CommitRecord:
    return CommitRecord(stream="s", logged=1, done=1, next=9, member=mark_of(f"{name}-1"))
