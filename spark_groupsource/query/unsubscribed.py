"""Ranges of a plan that is replayed, of topics that the query no longer subscribes to.

The plan was logged with another `subscribe` or `subscribePattern`. If the query claimed such a range, it reads it. If it did not,
it can never claim it now, because the group gives it no partition of that topic. Without these rules the checkpoint could not be
used any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from spark_groupsource.errors import NotAuthorized, TopicNotFound
from spark_groupsource.handoff.commit_record import GroupCommit
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import TopicPartition, listed, topics_of

log = logging.getLogger(__name__)


def without_refused(
    stream: Stream,
    read: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, GroupCommit]],
    *,
    owned: Collection[TopicPartition],
    subscribed: Callable[[str], bool],
) -> Stream:
    """Return the stream without ranges of unsubscribed topics whose commit records it may not read.

    Their records could not be read either.

    Args:
        stream: the stream, with the plan to claim.
        read: returns what the group holds for these partitions.
        owned: the partitions that the query owns. They are never left.
        subscribed: whether the query subscribes to a topic.
    """
    foreign = {
        partition
        for partition, ranges in stream.ranges.items()
        if any(offsets.size for offsets in ranges) and partition not in owned and not subscribed(partition.topic)
    }
    refused = set()
    for topic in sorted(topics_of(foreign)):
        partitions = sorted(partition for partition in foreign if partition.topic == topic)
        try:
            read(partitions)
        except (NotAuthorized, TopicNotFound) as error:
            refused |= set(partitions)
            log.warning(
                "plan %d of stream %s leaves %s: the query no longer subscribes to the topic, and cannot read the group's "
                "records of it. If the plan had claimed the ranges, their records are missing from the output unless they "
                "had reached it. %s",
                stream.logged,
                stream.name,
                with_ranges(stream, partitions),
                error,
            )
    return without(stream, refused)


def without_waiting(
    stream: Stream, waiting: Collection[TopicPartition], *, subscribed: Callable[[str], bool], patience_ms: int
) -> Stream:
    """Return the stream without ranges of unsubscribed topics that nobody has adopted within `assignmentTimeout`.

    The wait is for another driver on the same checkpoint that still has the old subscription. Until its session is over, it
    could claim such a range. After that nobody can: a claim of this stream is written only by the run that made the plan.

    Args:
        stream: the stream, with the plan to claim.
        waiting: partitions that nobody has adopted.
        subscribed: whether the query subscribes to a topic.
        patience_ms: `assignmentTimeout`.
    """
    left = {partition for partition in waiting if not subscribed(partition.topic)}
    if left:
        log.warning(
            "plan %d of stream %s leaves %s: the query no longer subscribes to the topic, and no other member has adopted "
            "the partitions within %d ms (assignmentTimeout). The plan had not claimed the ranges, so the group's position "
            "stays before them. A query of this group that subscribes to the topic reads them",
            stream.logged,
            stream.name,
            with_ranges(stream, left),
            patience_ms,
        )
    return without(stream, left)


def with_ranges(stream: Stream, partitions: Collection[TopicPartition], most: int = 5) -> str:
    """Return partitions as a message names them, each with its ranges in the stream's plan: up to `most` partitions."""
    named = (
        f"{partition} {' '.join(str(offsets) for offsets in stream.ranges[partition] if offsets.size)}"
        for partition in sorted(partitions)
    )
    return listed(named, most)


def without(stream: Stream, left: Collection[TopicPartition]) -> Stream:
    """Return the stream without the ranges of its plan in these partitions."""
    if not left:
        return stream
    return replace(stream, ranges={partition: ranges for partition, ranges in stream.ranges.items() if partition not in left})
