"""What is gone from Kafka although it should still be read: found by comparing what was known with what the logs are now.

Pure. Four things can have happened to a partition: its topic was deleted; deleted and created again, which its id tells, however
many records the new one has; the log starts above the position (retention, delete-records); or it ends below (records were cut
off). With `failOnDataLoss` the query ends with the ranges; without, its log tells them and it goes on with what there is. Tasks
find by themselves what vanishes while they read (fetch/data_loss.py).
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from spark_groupsource.errors import DataLossError
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit
from spark_groupsource.handoff.rules import Stream, confirm, cut_back, skip_to, start_anew
from spark_groupsource.partition import OffsetRange, TopicPartition

log = logging.getLogger(__name__)

MOST_TOLD = 20
"""Partitions that one error names."""


@dataclass(frozen=True)
class LogState:
    """What the brokers tell of topics and partitions now; what they do not tell is left out.

    `ids`: each topic's id, `None` for a topic that does not exist, and "" where a broker knows no ids.
    """

    ids: Mapping[str, str | None] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)


class Cause(enum.Enum):
    """What has happened to a partition."""

    DELETED = "its topic is gone"
    MADE_ANEW = "its topic is another one of the same name"
    EXPIRED = "its log starts above the position"
    CUT = "its log ends below the position"


@dataclass(frozen=True)
class PartitionLoss:
    """Offsets of one partition that nobody can read any more.

    `position` is the next offset that would have been read, `None` where that is not known; `lost` are ranges, as far as their
    ends are known. `resume` is where there is something to read, `None` in a topic that is gone. `was` is the topic's id when
    the position was written and `topic_id` the one that it has now.
    """

    partition: TopicPartition
    cause: Cause
    position: int | None
    lost: tuple[OffsetRange, ...] = ()
    resume: int | None = None
    was: str | None = None
    topic_id: str | None = None

    def __str__(self) -> str:
        ranges = ", ".join(f"{offsets} ({offsets.size} offsets)" for offsets in self.lost)
        text = f"{self.partition}{' ' * bool(ranges)}{ranges}: "
        if self.position is not None:
            text += f"the next offset to read was {self.position}, and "
        match self.cause:
            case Cause.DELETED:
                return text + "the topic does not exist any more"
            case Cause.MADE_ANEW:
                begins = "" if self.resume is None else f"; the new log starts at {self.resume}"
                return f"{text}the topic was deleted and created again (its id was {self.was} and is {self.topic_id}){begins}"
            case Cause.EXPIRED:
                return f"{text}the log starts at {self.resume} (retention, or delete-records)"
            case Cause.CUT:
                return f"{text}the log ends at {self.resume} (records were cut off, as by an unclean leader election)"


def changed(was: str | None, now: str | None) -> bool:
    """Whether a topic is gone, or another one by now; both as in `LogState.ids`, and `was` may be unknown (`None` or "")."""
    return now is None or bool(was and now and was != now)


def of_partitions(
    records: Mapping[TopicPartition, CommitRecord], logs: LogState, last_ends: Mapping[TopicPartition, int]
) -> list[PartitionLoss]:
    """What is lost of the partitions that a stream owns.

    Args:
        records: each partition's record, with durable plans closed.
        logs: what the brokers tell of these partitions now.
        last_ends: the ends that were known before, to tell how much of a deleted log was not read.
    """
    found = []
    for partition, record in sorted(records.items()):
        position, was = record.next, record.topic_id
        start, end = logs.starts.get(partition), logs.ends.get(partition)
        topic_id = logs.ids.get(partition.topic, "")
        if changed(was, topic_id):
            unread = OffsetRange(position, max(position, last_ends.get(partition, position)))
            lost = _not_empty((*record.unconfirmed, unread))
            if topic_id is None:
                found.append(PartitionLoss(partition, Cause.DELETED, position, lost, was=was))
            elif start is not None:
                found.append(PartitionLoss(partition, Cause.MADE_ANEW, position, lost, start, was, topic_id))
        elif end is not None and end < position:
            found.append(PartitionLoss(partition, Cause.CUT, position, (OffsetRange(end, position),), end))
        elif start is not None and start > position:
            found.append(PartitionLoss(partition, Cause.EXPIRED, position, (OffsetRange(position, start),), start))
    return found


def of_commit(stream: Stream, partition: TopicPartition, commit: GroupCommit, topic_id: str, start: int) -> PartitionLoss:
    """What is lost of a partition that the group has just given to the stream, and whose topic was made anew.

    `commit` is what the group holds of the earlier topic, `topic_id` the new one's id, and `start` where its log begins.
    """
    position: int | None = None
    was = stream.topics.get(partition.topic)
    held: tuple[OffsetRange, ...] = ()
    if isinstance(commit, CommitRecord):
        record = confirm(commit, stream) if commit.stream == stream.name else commit
        position, was, held = record.next, record.topic_id or was, tuple(record.unconfirmed)
    elif planned := stream.ranges.get(partition, ()):
        position, held = planned[-1].end, planned if stream.durable < stream.logged else ()
    return PartitionLoss(partition, Cause.MADE_ANEW, position, _not_empty(held), start, was, topic_id)


def of_plan(stream: Stream, ids: Mapping[str, str | None]) -> list[PartitionLoss]:
    """What is lost of the stream's newest plan, about to be claimed: all of deleted topics. `ids` as in `LogState`."""
    found = []
    for partition, planned in sorted(stream.ranges.items()):
        was, topic_id = stream.topics.get(partition.topic), ids.get(partition.topic, "")
        if changed(was, topic_id) and (lost := _not_empty(planned)):
            cause = Cause.DELETED if topic_id is None else Cause.MADE_ANEW
            found.append(PartitionLoss(partition, cause, None, lost, None, was, topic_id))
    return found


def of_places(stream: Stream, left: Iterable[TopicPartition], ids: Mapping[str, str | None]) -> list[PartitionLoss]:
    """Those partitions of the stream's newest plan, which is durable, whose topics are gone; `left` are the ones to look at."""
    return [
        PartitionLoss(partition, Cause.DELETED, stream.ranges[partition][-1].end, was=stream.topics.get(partition.topic))
        for partition in sorted(left)
        if ids.get(partition.topic, "") is None
    ]


def of_fixed_target(
    target: Mapping[TopicPartition, int],
    target_ids: Mapping[str, str | None],
    records: Mapping[TopicPartition, CommitRecord],
    logs: LogState,
) -> list[PartitionLoss]:
    """What is lost of the ends that a run of Trigger.AvailableNow was to read up to, and of the topics that they are of.

    `records` are of the partitions that the stream owns: of others only the topic can be seen to be gone.
    """
    found = []
    for partition, end in sorted(target.items()):
        position = records[partition].next if partition in records else None
        was, topic_id = target_ids.get(partition.topic), logs.ids.get(partition.topic, "")
        if changed(was, topic_id):
            lost = OffsetRange(end, end) if position is None else OffsetRange(position, max(position, end))
            cause = Cause.DELETED if topic_id is None else Cause.MADE_ANEW
            found.append(PartitionLoss(partition, cause, position, _not_empty([lost]), logs.starts.get(partition), was, topic_id))
        elif partition in records and logs.ends.get(partition, end) < end:
            found.append(
                PartitionLoss(partition, Cause.CUT, position, (OffsetRange(logs.ends[partition], end),), logs.ends[partition])
            )
    return found


def behind(loss: PartitionLoss, resume: int, record: CommitRecord) -> CommitRecord:
    """The record with which a partition is read on at `resume`, behind what is lost; durable plans are closed in it."""
    match loss.cause:
        case Cause.MADE_ANEW:
            return start_anew(record, resume, loss.topic_id)
        case Cause.CUT:
            return cut_back(record, resume)
        case _:
            return skip_to(record, resume)


def _not_empty(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    return tuple(offsets for offsets in ranges if offsets.size)


def refuse(losses: Sequence[PartitionLoss]) -> None:
    """End the query when something is lost (`failOnDataLoss=true`).

    Raises:
        DataLossError: there is a loss.
    """
    if losses:
        raise DataLossError(
            f"Records that should be read are no longer in Kafka:{_listed(losses)}\n"
            "To go on without them, set failOnDataLoss to false: a topic that was created again is then read from its beginning, "
            "a log that starts higher from its start, and one that was cut from its end. `groupkafka reset-offsets` moves a "
            "group elsewhere, once every member of it is stopped."
        )


def refuse_target(losses: Sequence[PartitionLoss]) -> None:
    """End a run of Trigger.AvailableNow whose target is gone: it has promised to read what was there, and then to end.

    Raises:
        DataLossError: there is a loss.
    """
    if losses:
        raise DataLossError(
            f"What Trigger.AvailableNow set out to read when it started is no longer in Kafka:{_listed(losses)}\n"
            "This ends the run whatever failOnDataLoss says. The next run sets out to read what there is then, and "
            "failOnDataLoss says whether it goes on without these records."
        )


def _listed(losses: Sequence[PartitionLoss]) -> str:
    more = f"\n  and {len(losses) - MOST_TOLD} partitions more" if len(losses) > MOST_TOLD else ""
    return "".join(f"\n  {loss}" for loss in losses[:MOST_TOLD]) + more


def warn(losses: Iterable[PartitionLoss]) -> None:
    """Tell what is lost, and what becomes of its partitions (`failOnDataLoss=false`)."""
    for loss in losses:
        goes_on = "nothing more is read there" if loss.resume is None else f"the query goes on at {loss.resume}"
        log.warning("records that should be read are no longer in Kafka: %s; %s (failOnDataLoss=false)", loss, goes_on)
