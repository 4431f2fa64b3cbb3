"""Plans a batch read (`spark.read`): chooses the ranges to read in each partition, by the rules of Spark's Kafka source.

The plan is made when a Spark action runs, without joining the group. `startingOffsets=committed` reads everything that the group
has not processed: all records from its committed offsets on, except those that queries have already confirmed.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.brokers.group_view import refuse_active
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.brokers.truncations import Truncations
from spark_groupsource.errors import BrokerUnavailable, GroupNotFound, OptionError
from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, GroupCommit, OtherFormat
from spark_groupsource.handoff.losses import Cause, CutDoubts, LogState, partition_losses, record_after, refuse, to_validate, warn
from spark_groupsource.handoff.planner import pieces
from spark_groupsource.handoff.rules import unreadable
from spark_groupsource.options.model import Options
from spark_groupsource.options.start_and_end import offsets_at, refuse_unknown
from spark_groupsource.partition import OffsetRange, TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.timeouts import RETRY_INTERVAL_S, cut_believed_after_s

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class BatchTask:
    """One task's work: ascending ranges in one partition, and the offset to commit afterwards (`None`: no commit)."""

    ranges: tuple[FetchRange, ...]
    commit: int | None = None


def plan_batch(options: Options) -> list[BatchTask]:
    """Ask the brokers where a batch read starts and ends, and return its tasks.

    Raises:
        OptionError: a start is above its end, or the given offsets or times do not match the existing partitions.
        DataLossError: the group's commits belong to a topic that has been recreated or a log that has been truncated
            (`failOnDataLoss`).
        GroupActive: `commitOffsets` is set, and the group has members.
        NotAConsumerGroup: the read starts at the group's commits, but the group is of another kind, such as a share group.
        BrokerError: see topics.Topics and group_admin.GroupAdmin.
    """
    for name in options.without_effect_on_a_batch:
        log.warning("%s has no effect on a batch read", name)
    logs = Topics(
        options.client_settings(), options, read_committed=options.read_committed, patience_s=options.poll_timeout_ms / 1000
    )
    partitions = logs.partitions()
    start, end = options.batch_start, options.batch_end
    refuse_unknown(end, partitions)
    if start == "committed":
        commits = _corrected(_commits(options), partitions, logs, options)
        uncommitted = [partition for partition in partitions if commits.get(partition) is None]
        starts = _of_all(uncommitted, logs.starts, options)
        ends = _of_all(partitions, lambda asked: offsets_at(end, asked, logs), options)
        other_formats = {partition: commit for partition, commit in commits.items() if isinstance(commit, OtherFormat)}
        if other_formats:
            raise unreadable(min(other_formats), other_formats[min(other_formats)])
        unread = {
            partition: unprocessed(commits.get(partition), starts.get(partition, 0), ends[partition]) for partition in partitions
        }
        if options.commit_offsets:
            return _committing(unread, commits, ends, logs.epochs)
    else:
        refuse_unknown(start, partitions)
        starts = _of_all(partitions, lambda asked: offsets_at(start, asked, logs), options)
        ends = _of_all(partitions, lambda asked: offsets_at(end, asked, logs), options)
        unread = {partition: between(partition, starts[partition], ends[partition]) for partition in partitions}
    whole = [(partition, offsets) for partition, ranges in unread.items() for offsets in ranges]
    # `logs.epochs` belongs to the ends that were just requested. For other ends, the epochs of the records below are unknown.
    return [
        BatchTask((_fetch_range(partition, offsets, logs.epochs),))
        for partition, offsets in pieces(whole, options.min_partitions, options.max_records_per_partition)
    ]


def between(partition: TopicPartition, start: int, end: int) -> tuple[OffsetRange, ...]:
    """Return one range from `start` (inclusive) to `end` (exclusive).

    Raises:
        OptionError: the start is above the end.
    """
    if start > end:
        raise OptionError(
            f"{partition}: the read would start at offset {start} and end at {end}. Set a start that is not above the end. The "
            "end comes from endingOffsets, endingOffsetsByTimestamp or endingTimestamp; without these options, it is the end of "
            "the log."
        )
    return (OffsetRange(start, end),)


def unprocessed(commit: GroupCommit, log_start: int, end: int) -> tuple[OffsetRange, ...]:
    """Return the ranges in a partition that the group has not processed, in ascending order and without empty ranges.

    Args:
        commit: the group's commit for the partition.
        log_start: where to start without a commit (inclusive).
        end: where to end (exclusive).
    """
    match commit:
        case None:
            ranges = [OffsetRange(log_start, max(log_start, end))]
        case Foreign(offset) | OtherFormat(offset):
            ranges = [OffsetRange(offset, max(offset, end))]
        case CommitRecord():
            unread = OffsetRange(commit.next, max(commit.next, end))
            ranges = [offsets.overlap(OffsetRange(0, end)) for offsets in (*commit.unconfirmed, unread)]
    return tuple(offsets for offsets in ranges if offsets.size)


def _committing(
    unread: Mapping[TopicPartition, tuple[OffsetRange, ...]],
    commits: Mapping[TopicPartition, GroupCommit],
    ends: Mapping[TopicPartition, int],
    epochs: Mapping[TopicPartition, int],
) -> list[BatchTask]:
    """Return one task per partition, so that each task has read everything below the offset that it commits."""
    for partition in unread:
        commit = commits.get(partition)
        if isinstance(commit, CommitRecord) and ends[partition] < commit.next:
            raise OptionError(
                f"{partition}: the read would end at offset {ends[partition]}, but the group's position is already "
                f"{commit.next}. Nothing was read or committed, because committing the lower offset would make the group read "
                "the records in between again. Set the end to the group's position or above, or remove commitOffsets."
            )
    return [
        BatchTask(tuple(_fetch_range(partition, offsets, epochs) for offsets in ranges), commit=ends[partition])
        for partition, ranges in unread.items()
        if ranges
    ]


def _commits(options: Options) -> Mapping[TopicPartition, GroupCommit]:
    """Return a consumer group's commits. Refuse other kinds of groups and, if the read will commit, groups with members."""
    group = GroupAdmin(options.client_settings())
    if options.commit_offsets:
        with contextlib.suppress(GroupNotFound):  # then it has no members
            refuse_active(group.describe(options.group_id))
    commits = group.commits(options.group_id)
    if not any(isinstance(commit, CommitRecord) for commit in commits.values()):
        # A share group has no commits, so the whole topic would be read. A streams group's commits belong to an application.
        group.refuse_other_kinds(options.group_id)
    return commits


def _corrected(
    commits: Mapping[TopicPartition, GroupCommit], partitions: Collection[TopicPartition], logs: Topics, options: Options
) -> Mapping[TopicPartition, GroupCommit]:
    """Correct the commits where a topic was recreated or a log was truncated. Expired records are left to the tasks to report."""
    records = {partition: commit for partition in partitions if isinstance(commit := commits.get(partition), CommitRecord)}
    truncations = Truncations(options.client_settings(), options.group_id, patience_s=options.poll_timeout_ms / 1000)
    doubts = CutDoubts(cut_believed_after_s(options.poll_timeout_ms))
    while True:
        starts = _of_all(records, logs.starts, options)
        ends = _of_all(records, logs.ends, options)
        ids = _of_all({partition.topic for partition in records}, logs.ids, options)
        suspects = to_validate({partition: (record.next, record.epoch) for partition, record in records.items()}, logs.epochs)
        validated = truncations.below(suspects, ends, logs.epochs)
        state = LogState(ids, starts, ends, logs.epochs, validated.diverging)
        found = partition_losses(records, state, {})
        if not validated.unknown and not doubts.about(found, state, at_once=True):
            break
        time.sleep(RETRY_INTERVAL_S)
    losses = [loss for loss in found if loss.cause is not Cause.EXPIRED]
    if options.fail_on_data_loss:
        refuse(losses)
    warn(losses)
    corrected = {
        loss.partition: record_after(loss, loss.resume, records[loss.partition]) for loss in losses if loss.resume is not None
    }
    return {**commits, **corrected}


def _of_all(asked: Collection[K], ask: Callable[[Collection[K]], dict[K, V]], options: Options) -> dict[K, V]:
    """Return an answer for each of these partitions or topics. Repeat the request while a broker does not answer."""
    for _ in Deadline(options.poll_timeout_ms / 1000).attempts():
        found = ask(asked)
        missing = set(asked) - found.keys()
        if not missing:
            return found
    raise BrokerUnavailable(
        f"No broker has answered for {min(missing, key=str)} for {options.poll_timeout_ms} ms (kafkaConsumer.pollTimeoutMs), so "
        "nothing was read. Check that the partition's leader is up and that the driver can reach it."
    )


def _fetch_range(partition: TopicPartition, offsets: OffsetRange, epochs: Mapping[TopicPartition, int]) -> FetchRange:
    """Convert a range to the form that tasks read, with its partition and leader epoch."""
    return FetchRange(*partition, *offsets, epochs.get(partition))
