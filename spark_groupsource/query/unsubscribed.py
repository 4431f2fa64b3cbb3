"""Leaves ranges out of a replayed plan if the query no longer subscribes to their topics.

The plan was logged with a different `subscribe` or `subscribePattern`. A range that the query had already claimed is still read.
Any other range cannot be claimed now, because the group no longer assigns that topic's partitions to the query. Without these
rules, a query could never run from such a checkpoint again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from spark_groupsource.errors import NotAuthorized, TopicNotFound
from spark_groupsource.handoff.commit_record import GroupCommit
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import TopicPartition, listed, topics_of, with_offsets

log = logging.getLogger(__name__)


def without_refused(
    stream: Stream,
    read: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, GroupCommit]],
    *,
    owned: Collection[TopicPartition],
    subscribed: Callable[[str], bool],
) -> Stream:
    """Return the stream without ranges in unsubscribed topics whose commits this user may not read.

    The user may not read the records of these topics either.

    Args:
        stream: the stream, with the plan to claim.
        read: returns what the group has committed for these partitions.
        owned: the partitions that the query owns, whose ranges are never left out.
        subscribed: returns whether the query subscribes to a topic.
    """
    unsubscribed = {
        partition for partition in with_offsets(stream.ranges) if partition not in owned and not subscribed(partition.topic)
    }
    refused = set()
    for topic in sorted(topics_of(unsubscribed)):
        partitions = sorted(partition for partition in unsubscribed if partition.topic == topic)
        try:
            read(partitions)
        except (NotAuthorized, TopicNotFound) as error:
            refused |= set(partitions)
            log.warning(
                "the last micro-batch of stream %s leaves out %s: the query no longer subscribes to the topic, and cannot read "
                "the group's records for it. If the micro-batch had claimed the ranges, their records are missing from the "
                "output unless those records had already reached it. %s",
                stream.name,
                with_ranges(stream, partitions),
                error,
            )
    return without(stream, refused)


def without_waiting(
    stream: Stream, waiting: Collection[TopicPartition], *, subscribed: Callable[[str], bool], patience_ms: int
) -> Stream:
    """Return the stream without ranges in unsubscribed topics that no member has adopted within `assignmentTimeout`.

    The wait allows for another driver that uses the same checkpoint and still has the old subscription. That driver could claim
    such a range until its session times out. After that no driver can, because only the run that made a plan may claim its
    ranges.

    Args:
        stream: the stream, with the plan to claim.
        waiting: partitions that no member has adopted.
        subscribed: returns whether the query subscribes to a topic.
        patience_ms: `assignmentTimeout`.
    """
    unsubscribed = {partition for partition in waiting if not subscribed(partition.topic)}
    if unsubscribed:
        log.warning(
            "the last micro-batch of stream %s leaves out %s: the query no longer subscribes to the topic, and no other member "
            "has adopted the partitions within %d ms (assignmentTimeout). The micro-batch had not claimed the ranges, so the "
            "group's position remains before them. A query in this group that subscribes to the topic will read them",
            stream.name,
            with_ranges(stream, unsubscribed),
            patience_ms,
        )
    return without(stream, unsubscribed)


def with_ranges(stream: Stream, partitions: Collection[TopicPartition], most: int = 5) -> str:
    """List up to `most` of these partitions as text, each with its ranges in the stream's plan."""
    named = (
        f"{partition} {' '.join(str(offsets) for offsets in stream.ranges[partition] if offsets.size)}"
        for partition in sorted(partitions)
    )
    return listed(named, most)


def without(stream: Stream, partitions: Collection[TopicPartition]) -> Stream:
    """Return the stream without the ranges of its plan in these partitions."""
    if not partitions:
        return stream
    return replace(
        stream, ranges={partition: ranges for partition, ranges in stream.ranges.items() if partition not in partitions}
    )
