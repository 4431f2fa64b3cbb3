"""Finds what vanished from Kafka, before each plan and each claim, and warns of each loss once.

`handoff.losses` has the rules. This module asks the brokers, and decides how often. What follows from a loss is the cycle's.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from spark_groupsource.brokers.topic_ids import TopicIds
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.brokers.truncations import Truncations
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
    to_validate,
    warn,
)
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition, listed, topics_of
from spark_groupsource.patience import Deadline
from spark_groupsource.timeouts import RETRY_INTERVAL_S, cut_believed_after_s

log = logging.getLogger(__name__)

ASK_FOR_IDS_EVERY_S = 1.0
"""How long a topic that was created again may go unnoticed when there is nothing to plan. Every plan checks this first."""

ASK_FOR_STARTS_EVERY_S = 10.0
"""How long a plan may overlook records that expired. The tasks that should read them find out."""

LOOKS_AGAIN = 3
"""How often a plan looks again at a loss before it believes it."""

LOOK_AGAIN_AFTER_S = 0.01
"""The pause between these looks, in seconds."""


@dataclass(frozen=True)
class Target:
    """What a run of Trigger.AvailableNow reads up to."""

    ends: Mapping[TopicPartition, int]
    """The end of each subscribed partition when the run started (exclusive)."""
    ids: Mapping[str, str | None]
    """The ids of their topics then."""
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The leader epochs of the ends, as far as they are known."""


class Examined(NamedTuple):
    """How the records compare with the logs."""

    ids: Mapping[str, str | None]
    """The topics' ids, as in `losses.LogState.ids`, unless the query is idle."""
    losses: Sequence[PartitionLoss]
    """What is lost. The query goes on behind it, and examines the logs again."""


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
        self._ask_for_ids_at = -math.inf
        self._ask_for_starts_at = -math.inf
        self._reported: dict[TopicPartition, PartitionLoss] = {}
        """The newest loss of each partition: older ones cannot come again."""
        self._deleted: set[TopicPartition] = set()
        self._cuts = CutDoubts(cut_believed_after_s(options.poll_timeout_ms), clock=clock)
        # Of the positions, and of the target.
        self._truncations, self._truncations_of_target = (
            Truncations(options.client_settings(), options.group_id, patience_s=options.poll_timeout_ms / 1000, clock=clock)
            for _ in range(2)
        )
        self.target: Target | None = None
        """Set by `fix_target`."""
        self.ends: Mapping[TopicPartition, int] = MappingProxyType({})
        """The end of each owned partition when they were last examined (exclusive), without those that seem to be cut."""
        self.epochs: Mapping[TopicPartition, int] = MappingProxyType({})
        """The leader epochs of these ends, as far as they are known."""

    @property
    def reachable(self) -> Mapping[TopicPartition, int]:
        """The ends up to which may be planned (exclusive): no higher than the target, if there is one."""
        target = self.target
        if target is None:
            return self.ends
        return {partition: min(end, target.ends[partition]) for partition, end in self.ends.items() if partition in target.ends}

    def fix_target(self, deadline: Deadline) -> None:
        """Take the ends that the subscribed partitions have now for the target of this run (Trigger.AvailableNow).

        Args:
            deadline: until when leaders that do not answer are asked again.
        """
        partitions = self._topics.partitions()
        ids = self._topics.ids(topics_of(partitions))
        topics = self._topics.without_patience()  # here it is the deadline
        for _ in deadline.attempts():
            ends = topics.ends(partitions)
            if len(ends) == len(partitions):
                break
        else:
            unknown = sorted(set(partitions) - ends.keys())
            log.warning(
                "this run does not read %d partitions, whose leader did not answer within assignmentTimeout: %s. Their records "
                "wait for the next run",
                len(unknown),
                listed(unknown, 20),
            )
        self.target = Target(ends, ids, topics.epochs)

    def examine(self, stream: Stream, records: Mapping[TopicPartition, CommitRecord]) -> Examined:
        """Compare the records of the owned partitions with the logs; set `ends`.

        Args:
            stream: what the checkpoint says.
            records: the record of each owned partition.

        Raises:
            DataLossError: something is lost that belongs to the target of AvailableNow.
        """
        last_ends = self.ends
        left = self._left(stream, records)
        for attempt in itertools.count():
            if attempt:
                # A broker that has just restarted may lag behind the others. Believing its first answer would skip records, or
                # end the query, although nothing is lost.
                time.sleep(RETRY_INTERVAL_S if self._cuts.again else LOOK_AGAIN_AFTER_S)
            logs = self._ask(records, left, again=attempt > 0)
            of_target, unknown = self._losses_of_target(records, logs)
            losses = partition_losses(records, logs, last_ends) + left_partition_losses(stream, left, logs.ids)
            doubted = self._cuts.about([*of_target, *losses], logs, at_once=attempt > 0)
            # An end that is in doubt is no end: a plan up to it would end below the position.
            self.ends = {partition: end for partition, end in logs.ends.items() if partition not in doubted | unknown}
            self.epochs = {partition: epoch for partition, epoch in logs.epochs.items() if partition in self.ends}
            of_target = [loss for loss in of_target if loss.partition not in doubted]
            losses = [loss for loss in losses if loss.partition not in doubted]
            enough = not (losses or of_target) or attempt >= LOOKS_AGAIN
            if enough and not self._cuts.again:
                break
        refuse_target(of_target)
        return Examined(logs.ids, losses)

    def _losses_of_target(
        self, records: Mapping[TopicPartition, CommitRecord], logs: LogState
    ) -> tuple[list[PartitionLoss], frozenset[TopicPartition]]:
        """Return what is lost of the target, if there is one, and the partitions of which that is not known yet."""
        if self.target is None:
            return [], frozenset()
        target = self.target
        known = target.ends.keys() & records.keys() & logs.ends.keys()
        positions = {partition: (target.ends[partition], target.epochs.get(partition)) for partition in known}
        suspects = to_validate(positions, logs.epochs)
        found = self._truncations_of_target.below(suspects, logs.ends, logs.epochs)
        losses = target_losses(self.target.ends, self.target.ids, records, replace(logs, diverging=found.diverging))
        return losses, found.unknown

    def deleted_ranges(self, stream: Stream) -> Sequence[PartitionLoss]:
        """Return the ranges of the stream's plan whose topic was deleted: nobody can read or adopt them.

        A topic's id never comes back, so every later attempt finds the same ranges.

        Raises:
            DataLossError: a range belongs to the target of AvailableNow.
        """
        topics = topics_of(partition for partition, planned in stream.ranges.items() if any(offsets.size for offsets in planned))
        ids = self._topic_ids.now({topic: stream.topics.get(topic) for topic in topics})
        losses = plan_losses(stream, ids)
        if losses and self.target is not None:
            ends, target_ids = self.target.ends, self.target.ids
            # A topic that was deleted before the run started, or created again, is not of its target.
            of_target = (loss for loss in losses if loss.partition in ends)
            refuse_target([loss for loss in of_target if not changed(target_ids.get(loss.partition.topic), loss.was)])
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

    def _ask(self, records: Mapping[TopicPartition, CommitRecord], left: Collection[TopicPartition], *, again: bool) -> LogState:
        """Return the ends; the topics' ids unless the query is idle; where logs start, every ASK_FOR_STARTS_EVERY_S."""
        # A run with a target needs no other end: it goes on without a partition whose leader did not answer for the target.
        ends = self._topics.ends(records if self.target is None else records.keys() & self.target.ends.keys())
        epochs = self._topics.epochs
        suspects = to_validate({partition: (record.next, record.epoch) for partition, record in records.items()}, epochs)
        validated = self._truncations.below(suspects, ends, epochs)
        ends = {partition: end for partition, end in ends.items() if partition not in validated.unknown}
        idle = not validated.diverging and all(ends.get(partition) == record.next for partition, record in records.items())
        if idle and not again and self.target is None and self._clock() < self._ask_for_ids_at:
            return LogState(ends=ends, epochs=epochs)
        self._ask_for_ids_at = self._clock() + ASK_FOR_IDS_EVERY_S
        # After the ends. The other way round, a topic that is created again in between would show its new end with its old id,
        # and a plan up to that end would skip the new topic's first records.
        expected: dict[str, str | None] = {partition.topic: None for partition in left}
        expected |= {} if self.target is None else self.target.ids
        ids = self._topic_ids.now(expected | {partition.topic: record.topic_id for partition, record in records.items()})
        starting = {partition for partition, record in records.items() if changed(record.topic_id, ids.get(partition.topic, ""))}
        if again or self._clock() >= self._ask_for_starts_at:
            self._ask_for_starts_at = self._clock() + ASK_FOR_STARTS_EVERY_S
            starting |= {partition for partition, end in ends.items() if end > records[partition].next}
        starts = self._topics.starts([partition for partition in starting if ids.get(partition.topic, "") is not None])
        return LogState(ids, starts, ends, epochs, validated.diverging)
