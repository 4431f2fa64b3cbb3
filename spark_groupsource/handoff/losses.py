"""Finds records that disappeared from Kafka before they were read, by comparing positions with the current logs. Pure.

Four things can have happened to a partition:

- its topic was deleted;
- its topic was deleted and recreated, which the topic's id shows;
- its log starts above the position (retention, delete-records);
- its log was truncated below the position (an unclean leader election, a restored disk). Either it ends there, or it has grown
  again and has other records in place of those that were read. The log's leader epochs show the difference (KIP-320).

With `failOnDataLoss=true` the query fails and lists the lost ranges. With `false` it logs them and continues with the remaining
records. Tasks detect records that disappear while they read (fetch/lost_ranges.py).

A single answer does not prove that a log is too short, because it may come from a leader that has been replaced. So `CutDoubts`
waits until the brokers have given the same answer for some time.
"""

from __future__ import annotations

import enum
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from spark_groupsource.errors import DataLossError
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit
from spark_groupsource.handoff.rules import MOST_LISTED, Stream, confirm, cut_back
from spark_groupsource.partition import OffsetRange, TopicPartition

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogState:
    """The current state of topics and partitions, as the brokers report it. Values that they do not report are omitted."""

    ids: Mapping[str, str | None] = field(default_factory=dict)
    """Each topic's id: `None` if the topic does not exist, "" if the brokers have no topic ids."""
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Log start offsets (inclusive)."""
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """End offsets (exclusive)."""
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The leader epochs of the partitions' ends."""
    diverging: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    """The offsets, below the positions, at which logs were truncated. From there on a log has other records, or none. `None` if
    the leader has no epoch as old as the position's."""


class Cause(enum.Enum):
    """What happened to a partition."""

    DELETED = "its topic was deleted"
    RECREATED = "its topic was deleted and recreated"
    EXPIRED = "its log starts above the position"
    CUT = "its log was truncated below the position"


@dataclass(frozen=True)
class PartitionLoss:
    """Offsets in one partition that can no longer be read."""

    partition: TopicPartition
    cause: Cause
    position: int | None
    """The next offset that would have been read. `None` if unknown."""
    lost: tuple[OffsetRange, ...] = ()
    """The lost ranges whose ends are known."""
    resume: int | None = None
    """The first offset that can be read. `None` for a deleted topic."""
    earlier_id: str | None = None
    """The topic's id when the position was written."""
    topic_id: str | None = None
    """The topic's id now."""
    epoch: int | None = None
    """The log's current leader epoch, if known."""
    end: int | None = None
    """The end of a truncated log (exclusive)."""

    def __str__(self) -> str:
        """Return a line for errors and logs that lists the lost ranges and says what happened to them."""
        lost = ", ".join(f"{offsets} ({offsets.size} offsets)" for offsets in self.lost)
        text = f"{self.partition} {lost}: " if lost else f"{self.partition}: "
        if self.position is not None:
            text += f"the next offset to read was {self.position}, and "
        match self.cause:
            case Cause.DELETED:
                return text + "the topic no longer exists"
            case Cause.RECREATED:
                begins = "" if self.resume is None else f"; the new log starts at {self.resume}"
                return (
                    f"{text}the topic was deleted and recreated (its id was {self.earlier_id} and is now {self.topic_id}){begins}"
                )
            case Cause.EXPIRED:
                return f"{text}the log starts at {self.resume} (retention, or delete-records)"
            case Cause.CUT if self.end == self.resume:
                return f"{text}the log ends at {self.resume} (it was truncated, for example by an unclean leader election)"
            case Cause.CUT if not self.lost:
                return (
                    f"{text}the leader's epochs are older than this offset's epoch (the brokers and their metadata were restored "
                    "from an older copy), so it is not known which records below the offset were replaced"
                )
            case Cause.CUT:
                return (
                    f"{text}the log was truncated at {self.resume}, and has other records from there on (an unclean leader "
                    "election, or a restored disk)"
                )


def topic_gone(earlier_id: str | None, current_id: str | None) -> bool:
    """Return whether a topic was deleted, even if it has been recreated since.

    Args:
        earlier_id: The topic's id at an earlier time. `None` or "" if unknown.
        current_id: The topic's id now, as in `LogState.ids`.
    """
    return current_id is None or bool(earlier_id and current_id and earlier_id != current_id)


def partition_losses(
    records: Mapping[TopicPartition, CommitRecord], logs: LogState, last_ends: Mapping[TopicPartition, int]
) -> list[PartitionLoss]:
    """Return the lost offsets in the partitions that a stream owns.

    Args:
        records: The record of each partition, with durable plans closed.
        logs: The current state of these partitions.
        last_ends: The last known ends, which show how much of a deleted log was not read.
    """
    found = []
    for partition, record in sorted(records.items()):
        position, earlier_id = record.next, record.topic_id
        start, end = logs.starts.get(partition), logs.ends.get(partition)
        topic_id = logs.ids.get(partition.topic, "")
        if topic_gone(earlier_id, topic_id):
            unread = OffsetRange(position, max(position, last_ends.get(partition, position)))
            lost = _not_empty((*record.unconfirmed, unread))
            if topic_id is None:
                found.append(PartitionLoss(partition, Cause.DELETED, position, lost, earlier_id=earlier_id))
            elif start is not None:
                found.append(PartitionLoss(partition, Cause.RECREATED, position, lost, start, earlier_id, topic_id))
        elif end is not None and (resume := _cut_at(partition, position, logs)) is not None:
            lost = _not_empty([OffsetRange(resume, position)])
            epoch = logs.epochs.get(partition)
            found.append(PartitionLoss(partition, Cause.CUT, position, lost, resume, epoch=epoch, end=end))
        elif start is not None and start > position:
            lost = (OffsetRange(position, start),)
            epoch = logs.epochs.get(partition)
            found.append(PartitionLoss(partition, Cause.EXPIRED, position, lost, start, epoch=epoch))
    return found


def _cut_at(partition: TopicPartition, position: int, logs: LogState) -> int | None:
    """Return the offset below `position` at which a log was truncated, or `None` if it was not. The log's end must be known.

    If the log has since grown again, it may end above that offset.
    """
    end = logs.ends[partition]
    if partition not in logs.diverging:
        return end if end < position else None
    diverging = logs.diverging[partition]
    return min(position, end if diverging is None else diverging)


def to_validate(
    positions: Mapping[TopicPartition, tuple[int, int | None]], epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the positions below which a log may have been truncated, each with its leader epoch.

    A log is truncated only when it gets a new leader epoch. So if the log's epoch is still the position's epoch, the log was not
    truncated.

    Args:
        positions: The next offset to read in each partition, and that offset's leader epoch, if known.
        epochs: The logs' current leader epochs.
    """
    return {
        partition: (position, epoch)
        for partition, (position, epoch) in positions.items()
        if epoch is not None and partition in epochs and epochs[partition] != epoch
    }


def commit_loss(stream: Stream, partition: TopicPartition, commit: GroupCommit, topic_id: str, start: int) -> PartitionLoss:
    """Return the loss in a newly assigned partition whose topic was deleted and recreated.

    Args:
        stream: The stream that adopts the partition.
        partition: The partition.
        commit: The group's commit for the earlier topic.
        topic_id: The new topic's id.
        start: Where the new topic's log starts (inclusive).
    """
    position: int | None = None
    earlier_id = stream.topics.get(partition.topic)
    unconfirmed: tuple[OffsetRange, ...] = ()
    if isinstance(commit, CommitRecord):
        record = confirm(commit, stream) if commit.stream == stream.name else commit
        position, earlier_id, unconfirmed = record.next, record.topic_id or earlier_id, tuple(record.unconfirmed)
    elif planned := stream.ranges.get(partition, ()):
        position, unconfirmed = planned[-1].end, planned if stream.durable < stream.logged else ()
    return PartitionLoss(partition, Cause.RECREATED, position, _not_empty(unconfirmed), start, earlier_id, topic_id)


def plan_losses(stream: Stream, ids: Mapping[str, str | None]) -> list[PartitionLoss]:
    """Return the ranges in deleted topics from the stream's newest plan, which is about to be claimed.

    Args:
        stream: The stream, with the ranges of its newest plan.
        ids: The topics' ids now, as in `LogState.ids`.
    """
    found = []
    for partition, planned in sorted(stream.ranges.items()):
        earlier_id, topic_id = stream.topics.get(partition.topic), ids.get(partition.topic, "")
        if topic_gone(earlier_id, topic_id) and (lost := _not_empty(planned)):
            cause = Cause.DELETED if topic_id is None else Cause.RECREATED
            found.append(PartitionLoss(partition, cause, None, lost, None, earlier_id, topic_id))
    return found


def unowned_partition_losses(
    stream: Stream, unowned: Iterable[TopicPartition], ids: Mapping[str, str | None]
) -> list[PartitionLoss]:
    """Return the losses in partitions of the newest durable plan whose topic was deleted.

    Args:
        stream: The stream. Its newest plan is durable.
        unowned: The partitions of that plan that this member no longer owns. Only these are checked.
        ids: The topics' ids now, as in `LogState.ids`.
    """
    return [
        PartitionLoss(partition, Cause.DELETED, stream.ranges[partition][-1].end, earlier_id=stream.topics.get(partition.topic))
        for partition in sorted(unowned)
        if ids.get(partition.topic, "") is None
    ]


def target_losses(
    target: Mapping[TopicPartition, int],
    target_ids: Mapping[str, str | None],
    records: Mapping[TopicPartition, CommitRecord],
    logs: LogState,
) -> list[PartitionLoss]:
    """Return the offsets below its target that a Trigger.AvailableNow run can no longer read.

    Args:
        target: The end of each partition up to which the run promised to read when it started.
        target_ids: The topics' ids at that time.
        records: The records of the partitions that the stream owns. In other partitions only a deleted topic is detected.
        logs: The current state of the logs; its `diverging` was requested for the target's ends.
    """
    found = []
    for partition, end in sorted(target.items()):
        position = records[partition].next if partition in records else None
        earlier_id, topic_id = target_ids.get(partition.topic), logs.ids.get(partition.topic, "")
        if topic_gone(earlier_id, topic_id):
            lost = OffsetRange(end, end) if position is None else OffsetRange(position, max(position, end))
            cause = Cause.DELETED if topic_id is None else Cause.RECREATED
            found.append(
                PartitionLoss(partition, cause, position, _not_empty([lost]), logs.starts.get(partition), earlier_id, topic_id)
            )
        elif partition in records and partition in logs.ends and (resume := _cut_at(partition, end, logs)) is not None:
            cut = _not_empty([OffsetRange(resume, end)])
            found.append(PartitionLoss(partition, Cause.CUT, position, cut, resume, end=logs.ends[partition]))
    return found


class CutDoubts:
    """Tracks how long logs have appeared to be truncated, and decides when to treat that as a loss.

    While a partition is in doubt, it is neither planned nor reported as lost. Used by one thread.
    """

    def __init__(self, believe_after_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with no partitions in doubt.

        Args:
            believe_after_s: how many seconds a log must appear too short before it counts as truncated.
            clock: returns monotonic time in seconds.
        """
        self._believe_after_s = believe_after_s
        self._clock = clock
        self._since: dict[TopicPartition, float] = {}
        self._asked_at = -math.inf
        self.to_recheck: frozenset[TopicPartition] = frozenset()
        """Partitions that were already in doubt when the brokers were last asked, long ago, and still are. The caller keeps
        asking until it is certain whether they were truncated."""

    def about(self, losses: Iterable[PartitionLoss], logs: LogState, *, at_once: bool = False) -> frozenset[TopicPartition]:
        """Return the partitions in doubt: their logs appear to be truncated, but not for long enough to be sure.

        Args:
            losses: All losses according to the latest answers. A partition without a loss is no longer in doubt.
            logs: The latest answers. If a topic's id is missing, its leaders were not asked either, so doubts about it remain.
            at_once: Whether the brokers were asked again right after their previous answers, however long that took.
        """
        now = self._clock()
        cut = {loss.partition: loss for loss in losses if loss.cause is Cause.CUT}
        for partition in cut.keys() - self._since.keys():
            log.warning(
                "%s: its log seems to have been truncated at %s, below records that it should contain. The answer may have "
                "come from a leader that has been replaced, so the query will not read this partition until the brokers have "
                "given the same answer for %.0f s",
                partition,
                cut[partition].resume,
                self._believe_after_s,
            )
        # If the brokers were last asked long ago, for example with hourly triggers, both answers may come from leaders that had
        # been replaced. So start over: trusting them would move a position back, and records would be read twice.
        if not at_once and now - self._asked_at > self._believe_after_s:
            self.to_recheck, self._since = frozenset(self._since), {}
        self._asked_at = now
        self._since = {partition: self._since.get(partition, now) for partition in cut}
        waits = frozenset(partition for partition, since in self._since.items() if now - since < self._believe_after_s)
        self.to_recheck &= waits
        return waits | {partition for partition in self._since if partition.topic not in logs.ids}


def record_after(loss: PartitionLoss, resume: int, record: CommitRecord) -> CommitRecord:
    """Return the record with which a partition continues at `resume` after a loss.

    Args:
        loss: The loss.
        resume: The offset to continue at.
        record: The partition's record, with durable plans closed. Claims are dropped if their topic was recreated.
    """
    if loss.cause is Cause.CUT:
        return cut_back(record, resume, loss.epoch)
    changed: dict[str, object] = {"next": resume, "epoch": loss.epoch}
    if loss.cause is Cause.RECREATED:
        changed |= {"topic_id": loss.topic_id, "open": (), "owed": (), "claimed_at": None}
    return record.model_copy(update=changed)


def _not_empty(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Return only the ranges with at least one offset."""
    return tuple(offsets for offsets in ranges if offsets.size)


def refuse(losses: Sequence[PartitionLoss]) -> None:
    """Raise an error that lists the losses, if there are any (`failOnDataLoss=true`).

    Raises:
        DataLossError: There are losses.
    """
    if losses:
        raise DataLossError(
            f"Records that should be read are no longer in Kafka:{_lines_of(losses)}\n"
            "The source has committed nothing past these records. To continue without them, set failOnDataLoss to false. The "
            "query then continues at the beginning of a recreated topic, at the start of a log whose first records were "
            "deleted, or where a log was truncated. `groupkafka reset-offsets` moves a group to other offsets once all of its "
            "members have stopped."
        )


def refuse_target(losses: Sequence[PartitionLoss]) -> None:
    """Raise an error if records were lost below the target up to which a Trigger.AvailableNow run promised to read.

    Raises:
        DataLossError: There are losses.
    """
    if losses:
        raise DataLossError(
            f"Records that Trigger.AvailableNow planned to read when it started are no longer in Kafka:{_lines_of(losses)}\n"
            "The run fails even with failOnDataLoss=false, because its target can no longer be reached. Start the next run: it "
            "sets a new target, and failOnDataLoss decides whether it continues without the lost records."
        )


def _lines_of(losses: Sequence[PartitionLoss]) -> str:
    """Return a line of text for each loss, up to MOST_LISTED."""
    more = f"\n  and {len(losses) - MOST_LISTED} more partitions" if len(losses) > MOST_LISTED else ""
    return "".join(f"\n  {loss}" for loss in losses[:MOST_LISTED]) + more


def warn(losses: Iterable[PartitionLoss]) -> None:
    """Warn about each loss, and about where the query continues in that partition (`failOnDataLoss=false`)."""
    for loss in losses:
        outcome = (
            "nothing more will be read from this partition"
            if loss.resume is None
            else f"the query will continue at {loss.resume}"
        )
        log.warning("records that should be read are no longer in Kafka: %s; %s (failOnDataLoss=false)", loss, outcome)
