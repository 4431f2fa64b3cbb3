"""The micro-batch cycle: where Spark's calls meet the member, the ledger, the planner and the offsets.

    latestOffset(start, limit)   `start` is in the commit log: its claims are confirmed; the next plan is made from the positions
    (offset log written)
    partitions(start, end)       `end` is in the offset log: its ranges are claimed, live or on a replay
    (tasks, sink, commit log)
    latestOffset(start=end) ...

The group is joined at the first call that shows which stream this is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from .broker_errors import is_passing
from .coordinator import Coordinator
from .errors import (
    AssignmentTimeout,
    ClaimTimeout,
    DataLossError,
    GroupKafkaError,
    MemberFenced,
    MemberUnknown,
    OffsetError,
)
from .handoff import Stream
from .ledger import Claims, Ledger
from .membership import Member
from .offset import PlanOffset
from .options import Options
from .partition import Ranges, TopicPartition
from .planner import available, lag, moved_back, plan
from .positions import offsets_at, refuse_unknown
from .siblings import Source, refuse_shared_topics
from .topics import Topics

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_INTERVAL_S = 0.1
"""Between attempts at a claim or a commit that a passing error, or a partition that nobody has adopted, holds up."""


class Cycle:
    """One run of one query: from the first plan to leaving the group. Used on the runner's main thread only."""

    def __init__(self, options: Options, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._topics = Topics(
            options.client_settings(),
            options,
            read_committed=options.read_committed,
            patience_s=options.poll_timeout_ms / 1000,
        )
        self._member: Member | None = None
        self._ledger: Ledger
        self._target: Mapping[TopicPartition, int] | None = None
        self._ends: Mapping[TopicPartition, int] = {}
        self._began_with: frozenset[TopicPartition] = frozenset()
        self._planned_at: float | None = None

    def first(self) -> PlanOffset:
        """The offset before the first plan of a new stream, which begins with the partitions that there are now."""
        return PlanOffset.first(self._options.group_id, self._topics.partitions())

    def fix_target(self) -> None:
        """Never plan past the ends that the subscribed partitions have now."""
        partitions = self._topics.partitions()
        deadline = self._clock() + self._options.assignment_timeout_ms / 1000
        while len(target := self._topics.ends(partitions)) < len(partitions) and self._clock() < deadline:
            time.sleep(RETRY_INTERVAL_S)
        self._target = target

    def plan(self, start: PlanOffset, *, limited: bool) -> PlanOffset | None:
        """The next plan, or `None` when there is nothing new, or less than is waited for.

        Confirms plan `start.plan`, which is durable.

        `limited`: whether `maxOffsetsPerTrigger` and `minOffsetsPerTrigger` count now.
        """
        member = self._join(Stream(start.stream, start.plan, start.plan, start.by_partition), start)
        again = self._patiently(lambda: member.call(lambda: self._note_durable(start.plan)))
        positions = self._ledger.positions
        self._ends = self._topics.ends(positions)
        self._check_cut(member, positions)
        positions = self._ledger.positions
        # Also when there is nothing to read: a plan that Spark threw away no longer holds its partitions back.
        if limited and self._waits_for_more(positions, again):
            ranges = {}
        else:
            ranges = plan(positions, self._reachable(), self._options.max_offsets_per_trigger if limited else None, again=again)
        planned = member.call(lambda: self._ledger.propose(ranges))
        if not any(offsets.size for ranges in planned.values() for offsets in ranges):
            self._patiently(lambda: member.call(self._ledger.confirm))
            return None
        self._planned_at = self._clock()
        assignment = member.assignment
        return PlanOffset.build(
            stream=start.stream,
            plan=start.plan + 1,
            generation=assignment.generation,
            member=assignment.member_id,
            group=self._options.group_id,
            ranges=planned,
        )

    def claim(self, start: PlanOffset, end: PlanOffset) -> Ranges:
        """The ranges of plan `end` that this stream reads, once each of them is claimed or known to be another's.

        Raises:
            OffsetError: start and end are of two streams.
            ClaimTimeout: a partition was not adopted by its next owner within `assignmentTimeout`.
        """
        if start.plan >= 0 and start.stream != end.stream:
            raise OffsetError(f"The checkpoint mixes the streams {start.stream} and {end.stream}: it was edited or merged.")
        # Batch 0 always runs, with the offset before the first plan when there is nothing to read.
        stream = Stream(end.stream, end.plan, max(-1, end.plan - 1), end.by_partition)
        member = self._join(stream, end)
        deadline = self._clock() + self._options.assignment_timeout_ms / 1000
        while (claims := self._patiently(lambda: member.call(lambda: self._ledger.claim(stream)))).waiting:
            if self._clock() >= deadline:
                raise self._claim_timeout(claims, stream)
            time.sleep(RETRY_INTERVAL_S)
        for partition, planned in sorted(stream.ranges.items()):
            left = sum(offsets.size for offsets in planned) - sum(one.size for one in claims.granted.get(partition, ()))
            if left:
                log.info("plan %d leaves %d offsets of %s to another member, which has taken them", end.plan, left, partition)
        return claims.granted

    def committed(self, end: PlanOffset) -> None:
        """Take note that Spark has `end` in its commit log; its claims are closed with the next commit."""
        member = self._join(Stream(end.stream, end.plan, end.plan, end.by_partition), end)
        self._patiently(lambda: member.call(lambda: self._ledger.durable(end.plan)))

    def report(self) -> dict[str, Any] | None:
        """End offsets, lags and what is held for other streams, by topic and partition, as of the last plan."""
        if self._member is None:
            return None
        positions = self._ledger.positions
        lags = lag(positions, self._ends)
        known = {partition: end for partition, end in self._ends.items() if partition in positions}
        held = self._ledger.held
        return {
            "offsets": _by_topic(known),
            "lag": _by_topic(lags),
            "totalLag": sum(lags.values()),
            "held": _by_topic(held),
            "totalHeld": sum(held.values()),
        }

    def stop(self) -> None:
        """Leave the group, if it was joined."""
        if self._member is not None:
            self._member.close()

    def _note_durable(self, plan: int) -> Ranges:
        """What is to be read in place of other streams, once it is known what those have confirmed."""
        self._ledger.durable(plan)
        self._ledger.settle()
        return self._ledger.to_reread()

    def _waits_for_more(self, positions: Mapping[TopicPartition, int], again: Ranges) -> bool:
        """Whether `minOffsetsPerTrigger` holds the next plan back: not the first of a run, and not under AvailableNow."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._planned_at is None or self._target is not None:
            return False
        delayed_ms = (self._clock() - self._planned_at) * 1000
        return delayed_ms < self._options.max_trigger_delay_ms and available(positions, self._ends, again) < least

    def _reachable(self) -> Mapping[TopicPartition, int]:
        if self._target is None:
            return self._ends
        return {
            partition: min(end, self._target[partition]) for partition, end in self._ends.items() if partition in self._target
        }

    def _check_cut(self, member: Member, positions: Mapping[TopicPartition, int]) -> None:
        """An end below a position: asked for again before it is believed, as a broker that just restarted may lag behind.

        Raises:
            DataLossError: it is so, and `failOnDataLoss` is true.
        """
        cut = moved_back(positions, self._ends)
        for _ in range(self._options.fetch_offset_num_retries):
            if not cut:
                return
            time.sleep(self._options.fetch_offset_retry_interval_ms / 1000)
            self._ends = {**self._ends, **self._topics.ends(cut)}
            cut = moved_back(positions, self._ends)
        if not cut:
            return
        loss = "the log now ends below what this group has processed: " + ", ".join(
            f"{partition} ends at {lost.start}, the group is at {lost.end}" for partition, lost in sorted(cut.items())
        )
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"Data may be lost: {loss}. The topic was deleted and created again, or its log was cut. To go on from the end "
                "of what is there, set failOnDataLoss to false; to read it from its start, stop every member of the group and "
                "reset the group's offsets for these partitions."
            )
        log.warning("data may be lost: %s; going on from these ends (failOnDataLoss=false)", loss)
        ends = {partition: lost.start for partition, lost in cut.items()}
        self._patiently(lambda: member.call(lambda: self._ledger.go_back(ends)))

    # Joining.

    def _join(self, stream: Stream, newest: PlanOffset) -> Member:
        if self._member is None:
            topics = frozenset(partition.topic for partition in self._topics.partitions())
            refuse_shared_topics(Source(self._topics.cluster_id(), self._options.group_id, topics))
            self._began_with = newest.began_with()
            if newest.plan < 0:
                refuse_unknown(self._options.stream_start, self._began_with)
            self._member = self._joined(stream)
        return self._member

    def _joined(self, stream: Stream) -> Member:
        options = self._options
        deadline = self._clock() + options.assignment_timeout_ms / 1000
        while True:
            member = Member(
                options.member_settings(),
                options.subscription(),
                drain_timeout_s=options.drain_timeout_ms / 1000 if options.handoff == "drain" else 0,
            )
            self._ledger = Ledger(
                stream,
                Coordinator(member.consumer, options.group_id),
                starting_offsets=self._starting_offsets,
                all_partitions=self._topics.partitions,
                outstanding=options.outstanding(),
                patience_s=options.assignment_timeout_ms / 1000,
            )
            self._member = member
            member.start(self._ledger)
            try:
                self._wait_assigned(member, deadline)
            except MemberFenced as fenced:
                # KIP-848: a static member that was killed holds its instance id until its session is over.
                member.close()
                if self._clock() >= deadline:
                    raise
                log.info("%s Trying again.", fenced)
                time.sleep(10 * RETRY_INTERVAL_S)
            else:
                return member

    def _wait_assigned(self, member: Member, deadline: float) -> None:
        joined = member.wait_joined(max(0.0, deadline - self._clock()))
        while joined and not member.call(self._ledger.ready):
            joined = self._clock() < deadline
            time.sleep(RETRY_INTERVAL_S)
        if not joined:
            trouble = member.last_trouble
            member.close()
            raise AssignmentTimeout(
                f"The group {self._options.group_id} gave this driver no assignment within "
                f"{self._options.assignment_timeout_ms} ms (assignmentTimeout)"
                + (f"; the Kafka client says: {trouble.str()}" if trouble is not None else "")
                + ". Another member may hold up the rebalance until its session or max.poll.interval.ms is over; "
                f"`groupkafka describe --group {self._options.group_id}` shows the members."
            )

    def _starting_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where to start without a commit: as the options say in what the stream began with, else earliest."""
        there = [partition for partition in partitions if partition in self._began_with]
        later = [partition for partition in partitions if partition not in self._began_with]
        return self._topics.starts(later) | offsets_at(self._options.stream_start, there, self._topics)

    # Trying again.

    def _patiently(self, step: Callable[[], T]) -> T:
        """Do a step that commits again while a passing error, or a rebalance, forbids it.

        Raises:
            GroupKafkaError: not passing, or for longer than `assignmentTimeout`.
        """
        deadline = self._clock() + self._options.assignment_timeout_ms / 1000
        while True:
            try:
                return step()
            except GroupKafkaError as error:
                if not (is_passing(error) or isinstance(error, MemberUnknown)) or self._clock() >= deadline:
                    raise
                log.info("trying again: %s", error)
            time.sleep(RETRY_INTERVAL_S)

    def _claim_timeout(self, claims: Claims, stream: Stream) -> ClaimTimeout:
        waiting = ", ".join(
            f"{partition} {' '.join(str(offsets) for offsets in stream.ranges[partition] if offsets.size)}"
            for partition in sorted(claims.waiting)
        )
        return ClaimTimeout(
            f"Plan {stream.logged} of stream {stream.name} waits for {waiting}: these partitions are not this driver's now, and "
            f"no member of group {self._options.group_id} has taken them over within {self._options.assignment_timeout_ms} ms "
            "(assignmentTimeout). A member that died holds its partitions until its session is over; "
            f"`groupkafka describe --group {self._options.group_id}` shows the members. A restart of the query goes on here."
        )


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return topics
