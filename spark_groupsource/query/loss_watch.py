"""Before each plan and each claim, checks whether records have disappeared from Kafka, and warns about each loss once.

This module asks the brokers, and decides how often to ask. `handoff.losses` has the rules, and `session` acts on a loss.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from spark_groupsource.brokers.topic_ids import TopicIds
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.brokers.truncations import Truncations
from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.handoff.losses import (
    CutDoubts,
    LogState,
    PartitionLoss,
    partition_losses,
    plan_losses,
    refuse_target,
    target_losses,
    to_validate,
    topic_gone,
    unowned_partition_losses,
    warn,
)
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition, listed, topics_of, with_offsets
from spark_groupsource.patience import Deadline
from spark_groupsource.timeouts import ASK_FOR_IDS_EVERY_S, RETRY_INTERVAL_S, cut_believed_after_s

log = logging.getLogger(__name__)

ASK_FOR_STARTS_EVERY_S = 10.0
"""How long plans may overlook expired records. The tasks that are supposed to read them detect the loss anyway."""

RECHECKS = 3
"""How many times the brokers are asked again before a plan treats a loss as real."""

RECHECK_AFTER_S = 0.01
"""The pause before each time that the brokers are asked again about a loss, in seconds."""


@dataclass(frozen=True)
class Target:
    """The end offsets up to which a Trigger.AvailableNow run reads."""

    ends: Mapping[TopicPartition, int]
    """The end of each subscribed partition when the run started (exclusive)."""
    ids: Mapping[str, str | None]
    """The topics' ids when the run started."""
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The leader epochs of `ends`, where known."""


class LossWatch:
    """Compares a query's positions with the current logs. Used on the runner's main thread only."""

    def __init__(self, options: Options, topics: Topics, topic_ids: TopicIds) -> None:
        """Start with no known losses.

        Args:
            options: the source's options.
            topics: the subscribed topics.
            topic_ids: their ids.
        """
        self._options = options
        self._topics = topics
        self._topic_ids = topic_ids
        self._ask_for_ids_at = -math.inf
        self._ask_for_starts_at = -math.inf
        self._reported: dict[TopicPartition, PartitionLoss] = {}
        """The latest loss of each partition. Earlier losses cannot recur."""
        self._deleted: set[TopicPartition] = set()
        self._cuts = CutDoubts(cut_believed_after_s(options.poll_timeout_ms))
        # The first checks the positions, the second the target.
        self._truncations, self._truncations_of_target = (
            Truncations(options.client_settings(), options.group_id, patience_s=options.poll_timeout_ms / 1000) for _ in range(2)
        )
        self.target: Target | None = None
        """This run's target, once `fix_target` has set one."""
        self.ends: Mapping[TopicPartition, int] = MappingProxyType({})
        """The end of each owned partition when the logs were last examined (exclusive), except logs that seem truncated."""
        self.epochs: Mapping[TopicPartition, int] = MappingProxyType({})
        """The leader epochs of `ends`, where known."""
        self.ids: Mapping[str, str | None] = MappingProxyType({})
        """The topics' ids when the logs were last examined, as in `losses.LogState.ids`. Empty if the query was idle."""

    @property
    def reachable(self) -> Mapping[TopicPartition, int]:
        """The ends up to which the query may plan (exclusive): no higher than the target, if there is one."""
        target = self.target
        if target is None:
            return self.ends
        return {partition: min(end, target.ends[partition]) for partition, end in self.ends.items() if partition in target.ends}

    def fix_target(self, deadline: Deadline) -> None:
        """Make the subscribed partitions' current ends this run's target (Trigger.AvailableNow).

        Args:
            deadline: how long to keep asking leaders that do not answer.
        """
        partitions = self._topics.partitions()
        ids = self._topics.ids(topics_of(partitions))
        topics = self._topics.without_patience()  # the deadline limits the time here
        for _ in deadline.attempts():
            ends = topics.ends(partitions)
            if len(ends) == len(partitions):
                break
        else:
            unknown = sorted(set(partitions) - ends.keys())
            log.warning(
                "this run skips %d partitions, because their leaders did not answer within assignmentTimeout: %s. The next run "
                "will read their records",
                len(unknown),
                listed(unknown, 20),
            )
        self.target = Target(ends, ids, topics.epochs)

    def examine(self, stream: Stream, records: Mapping[TopicPartition, CommitRecord]) -> Sequence[PartitionLoss]:
        """Compare the records of the owned partitions with the logs, and update `ends`, `epochs` and `ids`.

        Args:
            stream: the stream as its checkpoint describes it.
            records: the record of each owned partition.

        Returns:
            The losses. The query continues after them, and examines the logs again.

        Raises:
            DataLossError: records below the AvailableNow target are lost.
        """
        last_ends = self.ends
        unowned = self._no_longer_owned(stream, records)
        for attempt in itertools.count():
            if attempt:
                # A broker that has just restarted may lag behind the others. If its first answer were believed, the query would
                # skip records or fail even though nothing is lost.
                time.sleep(RETRY_INTERVAL_S if self._cuts.to_recheck else RECHECK_AFTER_S)
            logs = self._ask(records, unowned, recheck=attempt > 0)
            of_target, unknown = self._losses_of_target(records, logs)
            losses = partition_losses(records, logs, last_ends) + unowned_partition_losses(stream, unowned, logs.ids)
            doubted = self._cuts.about([*of_target, *losses], logs, at_once=attempt > 0)
            # Do not use an end that is in doubt: a plan up to it would end below the position.
            self.ends = {partition: end for partition, end in logs.ends.items() if partition not in doubted | unknown}
            self.epochs = {partition: epoch for partition, epoch in logs.epochs.items() if partition in self.ends}
            of_target = [loss for loss in of_target if loss.partition not in doubted]
            losses = [loss for loss in losses if loss.partition not in doubted]
            enough = not (losses or of_target) or attempt >= RECHECKS
            if enough and not self._cuts.to_recheck:
                break
        refuse_target(of_target)
        self.ids = logs.ids
        return losses

    def _losses_of_target(
        self, records: Mapping[TopicPartition, CommitRecord], logs: LogState
    ) -> tuple[list[PartitionLoss], frozenset[TopicPartition]]:
        """Return the losses below the target, if there is one, and the partitions whose losses are still unknown."""
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
        """Return the ranges of the stream's plan whose topic was deleted, so that no member can read or adopt them.

        A topic id is never reused, so every later attempt finds the same ranges.

        Raises:
            DataLossError: a range is below the AvailableNow target.
        """
        topics = topics_of(with_offsets(stream.ranges))
        ids = self._topic_ids.now({topic: stream.topics.get(topic) for topic in topics})
        losses = plan_losses(stream, ids)
        if losses and self.target is not None:
            ends, target_ids = self.target.ends, self.target.ids
            # A topic that was deleted before the run started, even if it was recreated, does not belong to the target.
            of_target = (loss for loss in losses if loss.partition in ends)
            refuse_target([loss for loss in of_target if not topic_gone(target_ids.get(loss.partition.topic), loss.earlier_id)])
        return losses

    def just_deleted(self, records: Mapping[TopicPartition, CommitRecord]) -> Sequence[PartitionLoss]:
        """Return the losses in topics that do not currently exist, for which brokers accept no commit."""
        ids = self._topic_ids.now({partition.topic: record.topic_id for partition, record in records.items()})
        return partition_losses(records, LogState(ids), self.ends)

    def warn(self, losses: Sequence[PartitionLoss]) -> None:
        """Warn about each loss once."""
        warn(loss for loss in losses if self._reported.get(loss.partition) != loss)
        self._reported |= {loss.partition: loss for loss in losses}
        self._deleted |= {loss.partition for loss in losses if loss.resume is None}

    def _no_longer_owned(self, stream: Stream, records: Mapping[TopicPartition, CommitRecord]) -> frozenset[TopicPartition]:
        """Return the last plan's partitions that this member no longer owns: they have moved, or their topic was deleted."""
        self._deleted &= stream.ranges.keys()
        return frozenset(
            partition
            for partition in stream.ranges.keys() - records.keys() - self._deleted
            if self._options.matches(partition.topic)
        )

    def _ask(
        self, records: Mapping[TopicPartition, CommitRecord], unowned: Collection[TopicPartition], *, recheck: bool
    ) -> LogState:
        """Ask for the ends, for topic ids unless the query is idle, and for log starts every ASK_FOR_STARTS_EVERY_S."""
        # A run with a target needs no other ends. It ignores partitions whose leader did not answer when the target was fixed.
        ends = self._topics.ends(records if self.target is None else records.keys() & self.target.ends.keys())
        epochs = self._topics.epochs
        suspects = to_validate({partition: (record.next, record.epoch) for partition, record in records.items()}, epochs)
        validated = self._truncations.below(suspects, ends, epochs)
        ends = {partition: end for partition, end in ends.items() if partition not in validated.unknown}
        idle = not validated.diverging and all(ends.get(partition) == record.next for partition, record in records.items())
        if idle and not recheck and self.target is None and time.monotonic() < self._ask_for_ids_at:
            return LogState(ends=ends, epochs=epochs)
        self._ask_for_ids_at = time.monotonic() + ASK_FOR_IDS_EVERY_S
        # Ask for the ids after the ends. In the other order, a topic that is recreated in between would have its new end with its
        # old id, and a plan up to that end would skip the new topic's first records.
        expected: dict[str, str | None] = {partition.topic: None for partition in unowned}
        expected |= {} if self.target is None else self.target.ids
        ids = self._topic_ids.now(expected | {partition.topic: record.topic_id for partition, record in records.items()})
        starting = {
            partition for partition, record in records.items() if topic_gone(record.topic_id, ids.get(partition.topic, ""))
        }
        if recheck or time.monotonic() >= self._ask_for_starts_at:
            self._ask_for_starts_at = time.monotonic() + ASK_FOR_STARTS_EVERY_S
            starting |= {partition for partition, end in ends.items() if end > records[partition].next}
        starts = self._topics.starts([partition for partition in starting if ids.get(partition.topic, "") is not None])
        return LogState(ids, starts, ends, epochs, validated.diverging)
