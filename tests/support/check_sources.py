"""Inputs for the steps of `groupkafka check`, without a broker."""

from __future__ import annotations

from collections.abc import Iterator

from spark_groupsource.brokers.group_view import GroupMember, GroupView, PartitionView
from spark_groupsource.cli.check.findings import Finding
from spark_groupsource.cli.check.source import NO_GROUP, Source
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition
from tests.support.options import BASE

ZERO, ONE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("others", 0)

STRATEGY = "kafka_partition_assignment_strategy"


def options(**more: str) -> Options:
    return Options.parse({**BASE, **{name.replace("_", "."): value for name, value in more.items()}}, "stream")


def group(protocol: str, assignor: str, *members: GroupMember, partitions: tuple[PartitionView, ...] = ()) -> GroupView:
    return GroupView("billing", "stable", protocol, assignor, "broker 1", members, partitions)


def member(name: str, *partitions: TopicPartition, instance_id: str | None = None) -> GroupMember:
    return GroupMember(f"{name}-1", name, instance_id, "host", frozenset(partitions))


def source(group: GroupView = NO_GROUP, *partitions: TopicPartition, **more: str) -> Source:
    return Source(options(**more), list(partitions), group)


def only(findings: Iterator[Finding]) -> Finding:
    """Return the one finding of a step."""
    (finding,) = findings
    return finding
