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
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from spark_groupsource.brokers.broker_errors import explain
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.errors import (
    AssignmentTimeout,
    ClaimTimeout,
    GroupKafkaError,
    MemberFenced,
    MemberUnknown,
    OffsetError,
    TopicNotFound,
)
from spark_groupsource.group.fenced_commits import Coordinator
from spark_groupsource.group.ledger import Claims, Ledger
from spark_groupsource.group.member import Member
from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.handoff.losses import (
    Cause,
    LogState,
    PartitionLoss,
    changed,
    of_fixed_target,
    of_partitions,
    of_places,
    of_plan,
    refuse,
    refuse_target,
    warn,
)
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.handoff.planner import available, lag, plan
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.observer import UNOBSERVED, Observer
from spark_groupsource.options.model import Options
from spark_groupsource.options.start_and_end import offsets_at, refuse_unknown
from spark_groupsource.partition import Ranges, TopicPartition
from spark_groupsource.query.siblings import Source, refuse_shared_topics

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_AT_TOPICS_EVERY_S = 1.0
"""How long a topic that was made anew may go unnoticed when there is nothing to plan; before a plan it is always looked at."""

LOOK_AT_STARTS_EVERY_S = 10.0
"""How long records that expired may go unnoticed by a plan; then the tasks that should read them tell."""

BELIEVE_AFTER = 5
"""How often a broker has to say that a topic is gone, or is another one: it may lag behind the others for a moment."""

RETRY_INTERVAL_S = 0.1
"""Between attempts at a claim or a commit that a passing error, or a partition that nobody has adopted, holds up."""


class Cycle:
    """One run of one query: from the first plan to leaving the group. Used on the runner's main thread only."""

    def __init__(self, options: Options, *, clock: Callable[[], float] = time.monotonic, observer: Observer = UNOBSERVED) -> None:
        self._options = options
        self._clock = clock
        self._observer = observer
        self._topics = Topics(
            options.client_settings(),
            options,
            read_committed=options.read_committed,
            patience_s=options.poll_timeout_ms / 1000,
        )
        self._member: Member | None = None
        self._ledger: Ledger
        self._target: Mapping[TopicPartition, int] | None = None
        self._target_ids: Mapping[str, str | None] = {}
        self._ends: Mapping[TopicPartition, int] = {}
        self._began_with: frozenset[TopicPartition] = frozenset()
        self._began_ids: Mapping[str, str] = {}
        self._look_at = -math.inf
        self._look_at_starts_at = -math.inf
        self._believed: set[tuple[str, str | None]] = set()
        self._told: set[PartitionLoss] = set()
        self._told_gone: set[TopicPartition] = set()
        self._planned_at: float | None = None

    def first(self) -> PlanOffset:
        """The offset before the first plan of a new stream, which begins with the partitions that there are now."""
        partitions = self._topics.partitions()
        ids = self._topics.ids(_topics_of(partitions))
        return PlanOffset.first(self._options.group_id, partitions, {topic: known for topic, known in ids.items() if known})

    def fix_target(self) -> None:
        """Never plan past the ends that the subscribed partitions have now."""
        partitions = self._topics.partitions()
        self._target_ids = self._topics.ids(_topics_of(partitions))
        deadline = self._clock() + self._options.assignment_timeout_ms / 1000
        while len(target := self._topics.ends(partitions)) < len(partitions) and self._clock() < deadline:
            time.sleep(RETRY_INTERVAL_S)
        self._target = target

    def plan(self, start: PlanOffset, *, limited: bool) -> PlanOffset | None:
        """The next plan, or `None` when there is nothing new, or less than is waited for.

        Confirms plan `start.plan`, which is durable.

        `limited`: whether `maxOffsetsPerTrigger` and `minOffsetsPerTrigger` count now.
        """
        stream = _stream(start, start.plan)
        member = self._join(stream, start)
        began = self._clock()
        self._patiently(lambda: member.call(lambda: self._note_durable(start.plan)))
        records = self._look(member, stream)
        again = member.call(self._ledger.to_reread)
        positions = {partition: record.next for partition, record in records.items() if partition in self._ledger.positions}
        # Also when there is nothing to read: a plan that Spark threw away no longer holds its partitions back.
        if limited and self._waits_for_more(positions, again):
            ranges = {}
        else:
            ranges = plan(positions, self._reachable(), self._options.max_offsets_per_trigger if limited else None, again=again)
        planned = member.call(lambda: self._ledger.propose(ranges))
        if not any(offsets.size for ranges in planned.values() for offsets in ranges):
            self._patiently(lambda: member.call(self._ledger.confirm))
            self._observer.looked(self._ends, self._clock() - began, None)
            return None
        self._planned_at = self._clock()
        self._observer.looked(self._ends, self._planned_at - began, planned)
        assignment = member.assignment
        return PlanOffset.build(
            stream=start.stream,
            plan=start.plan + 1,
            generation=assignment.generation,
            member=assignment.member_id,
            group=self._options.group_id,
            ranges=planned,
            topics={partition.topic: topic_id for partition in planned if (topic_id := records[partition].topic_id)},
        )

    def claim(self, start: PlanOffset, end: PlanOffset) -> Ranges:
        """The ranges of plan `end` that this stream reads, once each of them is claimed or known to be another's.

        Raises:
            OffsetError: start and end are of two streams.
            DataLossError: a topic of the plan is gone, or is another one by now, and `failOnDataLoss` is true.
            ClaimTimeout: a partition was not adopted by its next owner within `assignmentTimeout`.
        """
        if start.plan >= 0 and start.stream != end.stream:
            raise OffsetError(f"The checkpoint mixes the streams {start.stream} and {end.stream}: it was edited or merged.")
        # Batch 0 always runs, with the offset before the first plan when there is nothing to read.
        stream = _stream(end, max(-1, end.plan - 1))
        member = self._join(stream, end)
        began = self._clock()
        deadline = began + self._options.assignment_timeout_ms / 1000
        while (claims := self._patiently(lambda: self._claim_once(member, stream))).waiting:
            if self._clock() >= deadline:
                raise self._claim_timeout(claims, stream)
            time.sleep(RETRY_INTERVAL_S)
        self._observer.claimed(end.plan, self._clock() - began, claims.granted)
        for partition, planned in sorted(stream.ranges.items()):
            left = sum(offsets.size for offsets in planned) - sum(one.size for one in claims.granted.get(partition, ()))
            if left:
                log.info("plan %d leaves %d offsets of %s to another member, which has taken them", end.plan, left, partition)
        return claims.granted

    def _claim_once(self, member: Member, stream: Stream) -> Claims:
        there = self._still_there(member, stream)
        return member.call(lambda: self._ledger.claim(there))

    def committed(self, end: PlanOffset) -> None:
        """Take note that Spark has `end` in its commit log; its claims are closed with the next commit."""
        member = self._join(_stream(end, end.plan), end)
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

    def _note_durable(self, plan: int) -> None:
        self._ledger.durable(plan)
        self._ledger.settle()

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

    # What is no longer there.

    def _look(self, member: Member, stream: Stream) -> Mapping[TopicPartition, CommitRecord]:
        """The records of the owned partitions, and in `_ends` their ends, once what is lost is told and left behind.

        Raises:
            DataLossError: something is lost, and `failOnDataLoss` is true, or it belongs to the target of AvailableNow.
        """
        while True:
            records = member.call(self._ledger.known)
            last_ends = self._ends
            for attempt in range(1 + self._options.fetch_offset_num_retries):
                if attempt:  # a broker that just restarted may lag behind: it is asked again before it is believed
                    time.sleep(self._options.fetch_offset_retry_interval_ms / 1000)
                left = self._left(stream, records)
                logs = self._logs(records, left, again=attempt > 0)
                self._ends = logs.ends
                of_target = [] if self._target is None else of_fixed_target(self._target, self._target_ids, records, logs)
                losses = of_partitions(records, logs, last_ends) + of_places(stream, left, logs.ids)
                if not (losses or of_target):
                    return {partition: _with_id(record, logs.ids.get(partition.topic)) for partition, record in records.items()}
            refuse_target(of_target)
            self._tell(member, losses)
            self._patiently(lambda found=losses: member.call(lambda: self._ledger.go_on(found)))  # type: ignore[misc]

    def _left(self, stream: Stream, records: Mapping[TopicPartition, CommitRecord]) -> frozenset[TopicPartition]:
        """What the last plan had, and this member has no longer: another one may have it, or the topic is gone."""
        return frozenset(
            partition
            for partition in stream.ranges.keys() - records.keys() - self._told_gone
            if self._options.matches(partition.topic)
        )

    def _logs(self, records: Mapping[TopicPartition, CommitRecord], left: Collection[TopicPartition], *, again: bool) -> LogState:
        """What is needed of the logs: always the ends; unless nothing has happened the ids, and now and then where they start."""
        ends = self._topics.ends(records)
        idle = all(ends.get(partition) == record.next for partition, record in records.items())
        if idle and not again and self._target is None and self._clock() < self._look_at:
            return LogState(ends=ends)
        self._look_at = self._clock() + LOOK_AT_TOPICS_EVERY_S
        # After the ends: those of a topic that was made anew are then never taken for the ends of the one before.
        expected: dict[str, str | None] = {partition.topic: None for partition in left}
        ids = self._topic_ids(expected | dict(self._target_ids) | {one.topic: record.topic_id for one, record in records.items()})
        starting = {partition for partition, record in records.items() if changed(record.topic_id, ids.get(partition.topic, ""))}
        if again or self._clock() >= self._look_at_starts_at:
            self._look_at_starts_at = self._clock() + LOOK_AT_STARTS_EVERY_S
            starting |= {partition for partition, end in ends.items() if end > records[partition].next}
        starts = self._topics.starts([one for one in starting if ids.get(one.topic, "") is not None])
        return LogState(ids, starts, ends)

    def _topic_ids(self, expected: Mapping[str, str | None]) -> Mapping[str, str | None]:
        """The topics' ids, as in `LogState`; an id that is not the expected one is asked for again before it is believed."""
        ids = self._topics.ids(expected)
        for _ in range(BELIEVE_AFTER):
            if not (_news(expected, ids) - self._believed):
                return ids
            time.sleep(RETRY_INTERVAL_S)
            ids = self._topics.ids(expected)
        self._believed |= _news(expected, ids)
        return ids

    def _still_there(self, member: Member, stream: Stream) -> Stream:
        """The stream without those ranges of its plan whose topics are gone: nobody can read them, or will take them over.

        A topic's id never comes back, so that every later attempt leaves them too.

        Raises:
            DataLossError: as `_look`.
        """
        topics = _topics_of(partition for partition, planned in stream.ranges.items() if any(one.size for one in planned))
        ids = self._topic_ids({topic: stream.topics.get(topic) for topic in topics})
        losses = of_plan(stream, ids)
        if not losses:
            return stream
        if self._target is not None:
            refuse_target([loss for loss in losses if not changed(self._target_ids.get(loss.partition.topic), loss.was)])
        self._tell(member, losses)
        lost = {loss.partition for loss in losses}
        return replace(stream, ranges={partition: each for partition, each in stream.ranges.items() if partition not in lost})

    def _leave_deleted(self, member: Member) -> bool:
        """Leave the partitions whose topics were just deleted, for which no commit is taken; whether there are any.

        Raises:
            DataLossError: `failOnDataLoss` is true.
        """
        records = member.call(self._ledger.known)
        ids = self._topic_ids({partition.topic: record.topic_id for partition, record in records.items()})
        losses = of_partitions(records, LogState(ids), self._ends)
        self._tell(member, losses)
        member.call(lambda: self._ledger.go_on(losses))
        return any(changed(record.topic_id, ids.get(partition.topic, "")) for partition, record in records.items())

    def _tell(self, member: Member, losses: Sequence[PartitionLoss]) -> None:
        """End the query, or tell of each loss once."""
        if losses and self._options.fail_on_data_loss:
            # The query commits on its way out: for these no broker takes one, and the commit would be refused.
            gone = [loss for loss in losses if loss.cause is Cause.DELETED]
            member.call(lambda: self._ledger.go_on(gone))
            refuse(losses)
        warn(loss for loss in losses if loss not in self._told)
        self._told |= set(losses)
        self._told_gone |= {loss.partition for loss in losses if loss.resume is None}

    # Joining.

    def _join(self, stream: Stream, newest: PlanOffset) -> Member:
        if self._member is None:
            topics = frozenset(_topics_of(self._topics.partitions(skip_missing=True)))
            refuse_shared_topics(Source(self._topics.cluster_id(), self._options.group_id, topics))
            self._began_with = newest.began_with()
            self._began_ids = newest.topics
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
                observer=self._observer,
            )
            self._observer.joining(stream.name)
            self._ledger = Ledger(
                stream,
                Coordinator(member.consumer, options.group_id, observer=self._observer),
                starting_offsets=self._starting_offsets,
                all_partitions=lambda: self._topics.partitions(skip_missing=True),
                topic_ids=self._topic_ids,
                log_starts=self._topics.starts,
                fail_on_data_loss=options.fail_on_data_loss,
                outstanding=options.outstanding(),
                patience_s=options.assignment_timeout_ms / 1000,
                observer=self._observer,
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
                + (f"; {explain(trouble, 'the Kafka client says')}" if trouble is not None else ".")
                + " Another member may hold up the rebalance until its session or max.poll.interval.ms is over; "
                f"`groupkafka describe --group {self._options.group_id}` shows the members."
            )

    def _starting_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where to start without a commit: as the options say in what the stream began with, else earliest."""
        there = [partition for partition in partitions if partition in self._began_with]
        ids = self._topics.ids(_topics_of(there))
        there = [one for one in there if not changed(self._began_ids.get(one.topic), ids.get(one.topic, ""))]
        later = [partition for partition in partitions if partition not in there]
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
            except TopicNotFound:
                if self._member is None or not self._leave_deleted(self._member) or self._clock() >= deadline:
                    raise
            except GroupKafkaError as error:
                if not (error.passing or isinstance(error, MemberUnknown)) or self._clock() >= deadline:
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


def _stream(offset: PlanOffset, durable: int) -> Stream:
    """What the stream knows of itself when `offset` is the newest in its offset log."""
    return Stream(offset.stream, offset.plan, durable, offset.by_partition, offset.topics)


def _news(expected: Mapping[str, str | None], ids: Mapping[str, str | None]) -> set[tuple[str, str | None]]:
    """The topics that are gone, or are not those that were expected."""
    return {(topic, ids[topic]) for topic, was in expected.items() if topic in ids and changed(was, ids[topic])}


def _with_id(record: CommitRecord, topic_id: str | None) -> CommitRecord:
    """The record with its topic's id, also when no broker told it at the adoption; the next claim writes it."""
    return record if record.topic_id or not topic_id else record.model_copy(update={"topic_id": topic_id})


def _topics_of(partitions: Iterable[TopicPartition]) -> set[str]:
    return {partition.topic for partition in partitions}


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return topics
