"""Finds what vanished from Kafka, before each plan and each claim, and warns of each loss once.

`handoff.losses` has the rules. This module asks the brokers, and decides how often. What follows from a loss is the cycle's.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from spark_groupsource.brokers.topic_ids import TopicIds
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.handoff.losses import (
    CutDoubts,
    LogState,
    PartitionLoss,
    changed,
    left_partition_losses,
    partition_losses,
    plan_losses,
    refuse_target,
    target_losses,
    warn,
)
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition, topics_of
from spark_groupsource.patience import cut_believed_after_s
from spark_groupsource.timeouts import LOOK_AT_STARTS_EVERY_S, LOOK_AT_TOPICS_EVERY_S, RETRY_INTERVAL_S


@dataclass(frozen=True)
class Target:
    """What a run of Trigger.AvailableNow reads up to."""

    ends: Mapping[TopicPartition, int]
    """The end of each subscribed partition when the run started (exclusive)."""
    ids: Mapping[str, str | None]
    """The ids of their topics then."""


class Looked(NamedTuple):
    """What one look has found."""

    records: Mapping[TopicPartition, CommitRecord]
    """The records of the owned partitions, with their topics' ids."""
    losses: Sequence[PartitionLoss]
    """What is lost. The query goes on behind it, and looks again."""


class LossWatch:
    """Compares what a query has read with what the logs have now. Used on the runner's main thread only."""

    def __init__(self, options: Options, topics: Topics, topic_ids: TopicIds, *, clock: Callable[[], float]) -> None:
        """Begin with nothing known.

        Args:
            options: the options of the source.
            topics: the subscribed topics.
            topic_ids: their ids.
            clock: returns seconds, monotonic.
        """
        self._options = options
        self._topics = topics
        self._topic_ids = topic_ids
        self._clock = clock
        self._look_at = -math.inf
        self._look_at_starts_at = -math.inf
        self._reported: dict[TopicPartition, PartitionLoss] = {}
        """The newest loss of each partition: older ones cannot come again."""
        self._deleted: set[TopicPartition] = set()
        self._cuts = CutDoubts(cut_believed_after_s(options.poll_timeout_ms), clock=clock)
        self.target: Target | None = None
        """Set once, before the first plan, under Trigger.AvailableNow."""
        self.ends: Mapping[TopicPartition, int] = MappingProxyType({})
        """The end of each owned partition at the last look (exclusive), without those that seem to be cut."""

    def look(self, stream: Stream, records: Mapping[TopicPartition, CommitRecord]) -> Looked:
        """Look at the logs of the owned partitions; set `ends`.

        Args:
            stream: what the checkpoint says.
            records: the record of each owned partition.

        Raises:
            DataLossError: something is lost that belongs to the target of AvailableNow.
        """
        last_ends = self.ends
        for attempt in itertools.count():
            if attempt:  # a broker that just restarted may lag behind: one answer is not enough
                time.sleep(RETRY_INTERVAL_S if self._cuts.again else self._options.fetch_offset_retry_interval_ms / 1000)
            left = self._left(stream, records)
            logs = self._logs(records, left, again=attempt > 0)
            of_target = [] if self.target is None else target_losses(self.target.ends, self.target.ids, records, logs)
            losses = partition_losses(records, logs, last_ends) + left_partition_losses(stream, left, logs.ids)
            doubted = self._cuts.about([*of_target, *losses], logs, at_once=attempt > 0)
            self.ends = {partition: end for partition, end in logs.ends.items() if partition not in doubted}
            of_target = [loss for loss in of_target if loss.partition not in doubted]
            losses = [loss for loss in losses if loss.partition not in doubted]
            enough = not (losses or of_target) or attempt >= self._options.fetch_offset_num_retries
            if enough and not self._cuts.again:
                break
        refuse_target(of_target)
        with_ids = {partition: _with_id(record, logs.ids.get(partition.topic)) for partition, record in records.items()}
        return Looked(with_ids, losses)

    def deleted_ranges(self, stream: Stream) -> Sequence[PartitionLoss]:
        """Return the ranges of the stream's plan whose topic was deleted: nobody can read or adopt them.

        A topic's id never comes back, so every later attempt finds the same ranges.

        Raises:
            DataLossError: a range belongs to the target of AvailableNow.
        """
        topics = topics_of(partition for partition, planned in stream.ranges.items() if any(one.size for one in planned))
        ids = self._topic_ids.now({topic: stream.topics.get(topic) for topic in topics})
        losses = plan_losses(stream, ids)
        if losses and self.target is not None:
            target_ids = self.target.ids
            refuse_target([loss for loss in losses if not changed(target_ids.get(loss.partition.topic), loss.was)])
        return losses

    def just_deleted(self, records: Mapping[TopicPartition, CommitRecord]) -> Sequence[PartitionLoss]:
        """Return what is lost with the topics that do not exist now: brokers accept no commit for them."""
        ids = self._topic_ids.now({partition.topic: record.topic_id for partition, record in records.items()})
        return partition_losses(records, LogState(ids), self.ends)

    def warn(self, losses: Sequence[PartitionLoss]) -> None:
        """Warn of each loss once."""
        warn(loss for loss in losses if self._reported.get(loss.partition) != loss)
        self._reported |= {loss.partition: loss for loss in losses}
        self._deleted |= {loss.partition for loss in losses if loss.resume is None}

    def _left(self, stream: Stream, records: Mapping[TopicPartition, CommitRecord]) -> frozenset[TopicPartition]:
        """Return the partitions of the last plan that are not owned now: another member has them, or their topic was deleted."""
        self._deleted &= stream.ranges.keys()
        return frozenset(
            partition
            for partition in stream.ranges.keys() - records.keys() - self._deleted
            if self._options.matches(partition.topic)
        )

    def _logs(self, records: Mapping[TopicPartition, CommitRecord], left: Collection[TopicPartition], *, again: bool) -> LogState:
        """Return the ends; the topics' ids unless the query is idle; where logs start, every LOOK_AT_STARTS_EVERY_S."""
        # A run with a target needs no other end: it goes on without a partition whose leader did not answer for the target.
        ends = self._topics.ends(records if self.target is None else records.keys() & self.target.ends.keys())
        idle = all(ends.get(partition) == record.next for partition, record in records.items())
        if idle and not again and self.target is None and self._clock() < self._look_at:
            return LogState(ends=ends)
        self._look_at = self._clock() + LOOK_AT_TOPICS_EVERY_S
        # After the ends: those of a topic that was created again are then never taken for the ends of the one before.
        expected: dict[str, str | None] = {partition.topic: None for partition in left}
        expected |= {} if self.target is None else self.target.ids
        ids = self._topic_ids.now(expected | {one.topic: record.topic_id for one, record in records.items()})
        starting = {partition for partition, record in records.items() if changed(record.topic_id, ids.get(partition.topic, ""))}
        if again or self._clock() >= self._look_at_starts_at:
            self._look_at_starts_at = self._clock() + LOOK_AT_STARTS_EVERY_S
            starting |= {partition for partition, end in ends.items() if end > records[partition].next}
        starts = self._topics.starts([one for one in starting if ids.get(one.topic, "") is not None])
        return LogState(ids, starts, ends)


def _with_id(record: CommitRecord, topic_id: str | None) -> CommitRecord:
    """Return the record with its topic's id, also when no broker gave it at the adoption; the next claim writes it."""
    return record if record.topic_id or not topic_id else record.model_copy(update={"topic_id": topic_id})
