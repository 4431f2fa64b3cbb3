"""The micro-batch cycle: what each of Spark's calls means for the group.

    latestOffset(start, limit)   `start` is in the commit log: its claims are confirmed; the next plan is made from the positions
    (offset log written)
    partitions(start, end)       `end` is in the offset log: its ranges are claimed, live or on a replay
    (tasks, sink, commit log)    the claims are closed as soon as this process learns of the commit log (durable_watch.py)
    latestOffset(start=end) ...

The first call that shows which stream this is joins the group.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from spark_groupsource.brokers.topic_ids import TopicIds
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.errors import ClaimTimeout, CommitOutcomeUnknown, OffsetError, TopicNotFound
from spark_groupsource.group.ledger import Claims, Ledger
from spark_groupsource.handoff.commit_record import GroupCommit, writable_cluster_id
from spark_groupsource.handoff.losses import Cause, PartitionLoss, refuse
from spark_groupsource.handoff.plan_offset import PlanOffset, Starts
from spark_groupsource.handoff.planner import available, lag, plan, rule_of_sharing
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.observer import UNOBSERVED, Observer
from spark_groupsource.options.model import Options
from spark_groupsource.partition import Ranges, TopicPartition, listed, topics_of
from spark_groupsource.patience import Deadline
from spark_groupsource.query.assignment_wait import AssignmentWait
from spark_groupsource.query.durable_watch import DurableWatch
from spark_groupsource.query.joined import Joined
from spark_groupsource.query.joining import Joining, StartingOffsets
from spark_groupsource.query.loss_watch import LossWatch, Target
from spark_groupsource.query.unsubscribed import Unsubscribed
from spark_groupsource.timeouts import AT_STOP_S, LAST_LOOK_S, RETRY_INTERVAL_S

log = logging.getLogger(__name__)

T = TypeVar("T")


class Cycle:
    """One run of one query, from its first plan until it leaves the group. Used on the runner's main thread, `stop` from any."""

    def __init__(self, options: Options, *, clock: Callable[[], float] = time.monotonic, observer: Observer = UNOBSERVED) -> None:
        """Make the clients. The group is joined later.

        Args:
            options: the options of the source.
            clock: returns seconds, monotonic.
            observer: receives what this run reports.

        Raises:
            OptionError, AuthenticationFailed: see topics.Topics.
        """
        self._options = options
        self._clock = clock
        self._observer = observer
        self._topics = Topics(
            options.client_settings(),
            options,
            read_committed=options.read_committed,
            patience_s=options.poll_timeout_ms / 1000,
        )
        topic_ids = TopicIds(self._topics.ids)
        self._starting_offsets = StartingOffsets(options, self._topics, topic_ids, clock=clock)
        self._joining = Joining(options, self._topics, topic_ids, self._starting_offsets, clock=clock, observer=observer)
        self._watch = LossWatch(options, self._topics, topic_ids, clock=clock)
        self._assignment_wait = AssignmentWait(options, clock=clock)
        self._unsubscribed = Unsubscribed(options)
        self._joined: Joined | None = None
        self._stopped = False
        self._has_left = False
        """Whether that membership is over, and a new one is to take its place."""
        self._began: tuple[Starts, Mapping[str, str]] | None = None
        self._durable_watch = DurableWatch(
            options.checkpoint_location,
            report=self._report_durable,
            closed=lambda plan: self._joined is not None and self._joined.closed >= plan,
            hurried=lambda: self._joined is not None and bool(self._joined.assignment.draining),
            clock=clock,
        )
        self._planned_at: float | None = None
        self._moved = False
        self._warned_of_claims = False

    def first(self) -> PlanOffset:
        """Return the offset before the first plan of a new stream, which begins with the partitions that exist now.

        Spark may call this twice. The stream begins with the first call.
        """
        if self._began is None:
            partitions = self._topics.partitions()
            ids = self._topics.ids(topics_of(partitions))
            starts = self._starting_offsets.now(partitions)
            self._began = starts, {topic: known for topic, known in ids.items() if known}
        return PlanOffset.first(self._options.group_id, *self._began, self._cluster_id())

    def fix_target(self) -> None:
        """Never plan past the ends that the subscribed partitions have now (Trigger.AvailableNow)."""
        partitions = self._topics.partitions()
        ids = self._topics.ids(topics_of(partitions))
        topics = self._topics.without_patience()  # here it is assignmentTimeout
        for _ in self._deadline().attempts():
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
        self._watch.target = Target(ends, ids)

    def plan(self, start: PlanOffset, *, limited: bool) -> PlanOffset | None:
        """Return the next plan; `None` when there is nothing new, or less than is waited for.

        Plan `start.plan` is durable, so its claims are confirmed.

        Args:
            start: the newest offset in Spark's commit log.
            limited: whether `maxOffsetsPerTrigger` and `minOffsetsPerTrigger` count now.

        Raises:
            DataLossError: something is lost, and `failOnDataLoss` is true, or it belongs to the target of AvailableNow.
        """
        stream = self._stream(start, start.plan)
        return self._as_member(stream, start, lambda joined: self._plan_as(joined, stream, start, limited=limited))

    def _plan_as(self, joined: Joined, stream: Stream, start: PlanOffset, *, limited: bool) -> PlanOffset | None:
        self._warn_of_long_claims(self._durable_watch.known(start.plan))
        self._assignment_wait.await_partitions(
            joined, stream, topics_exist=lambda: bool(self._topics.partitions(skip_missing=True))
        )
        while True:
            # As they are before the plan: what is adopted after it would be in the next one.
            assignment, adopted = joined.assignment, joined.positions.keys()
            self._assignment_wait.note(assignment)
            planned = self._plan(joined, stream, start, limited=limited)
            target = self._watch.target
            if planned is not None or target is None:
                return planned
            # A member that was expelled meanwhile has nothing left of its plan, and has read nothing of what was adopted.
            if joined.assignment == assignment and self._assignment_wait.may_end(
                assignment, adopted & self._watch.ends.keys(), target.ends
            ):
                return None
            time.sleep(RETRY_INTERVAL_S)

    def _plan(self, joined: Joined, stream: Stream, start: PlanOffset, *, limited: bool) -> PlanOffset | None:
        opened = self._do(lambda ledger: ledger.begin_plan(start.plan))
        began = self._clock()
        while (looked := self._watch.look(stream, opened.records)).losses:
            self._refuse_or_warn(looked.losses)
            self._go_on(looked.losses)
            opened = self._do(Ledger.opened)
        records, again = looked.records, opened.again
        self._starting_offsets.look(joined, records)
        positions = {partition: record.next for partition, record in records.items() if partition in joined.positions}
        ends = self._watch.ends
        most = self._options.max_offsets_per_trigger if limited else None
        wait = limited and self._waits_for_more(positions, again)
        wanted = {} if wait else plan(positions, self._reachable(), most, again=again)
        planned = self._do(lambda ledger: ledger.propose(wanted))
        if not any(offsets.size for ranges in planned.values() for offsets in ranges):
            # No claim comes that would confirm the last plan on its way. Its records would stay lag until there are new ones.
            self._do(Ledger.confirm)
            self._observer.planned(ends, self._clock() - began, None)
            return None
        self._planned_at = self._clock()
        self._observer.planned(ends, self._planned_at - began, planned)
        assignment = joined.assignment
        topics = {partition.topic: records[partition].topic_id for partition in planned}
        starts = self._starting_offsets.needed(topics)
        ids = self._starting_offsets.ids_of(topics_of(starts) - topics.keys())
        cut = (self._options.min_partitions, self._options.max_records_per_partition)
        return PlanOffset.build(
            stream=start.stream,
            plan=start.plan + 1,
            generation=assignment.generation,
            member=assignment.member_id,
            group=self._options.group_id,
            ranges=planned,
            starts=starts,
            topics=ids | {topic: topic_id for topic, topic_id in topics.items() if topic_id},
            cluster=self._cluster_id(),
            cut=cut,
            shared=rule_of_sharing([(partition, one) for partition, ranges in planned.items() for one in ranges], *cut),
        )

    def claim(self, start: PlanOffset, end: PlanOffset) -> Ranges:
        """Return the ranges of plan `end` that this stream reads, once each is claimed or known to be another member's.

        Raises:
            OffsetError: start and end are of two streams.
            DataLossError: a topic of the plan was deleted, or created again, and `failOnDataLoss` is true.
            ClaimTimeout: a partition was not adopted by its next owner within `assignmentTimeout`.
            CheckpointOfAnotherStream: `checkpointLocation` is not that of this query.
        """
        if start.plan >= 0 and start.stream != end.stream:
            raise OffsetError(f"The checkpoint mixes the streams {start.stream} and {end.stream}: it was edited or merged.")
        # Spark always runs batch 0. Without records its end is the offset before the first plan (-1).
        stream = self._stream(end, max(-1, end.plan - 1))
        self._as_member(stream, end, lambda _: None)
        self._durable_watch.claiming(end.stream, end.plan)
        began = self._clock()
        granted = self._as_member(stream, end, lambda _: self._claim(stream))
        if granted:
            self._durable_watch.claimed(end.stream, end.plan)
        else:
            self._durable_watch.nothing_claimed()
        self._observer.claimed(end.plan, self._clock() - began, granted)
        for partition, planned in sorted(stream.ranges.items()):
            left = sum(offsets.size for offsets in planned) - sum(one.size for one in granted.get(partition, ()))
            if left:
                log.info("plan %d leaves %d offsets of %s to another member, or to the next plan", end.plan, left, partition)
        return granted

    def committed(self, end: PlanOffset) -> None:
        """Note that Spark has `end` in its commit log.

        Its claims are closed at once where a partition drains, or else with the next commit.
        """
        stream = self._stream(end, end.plan)
        self._as_member(stream, end, lambda _: self._do(lambda ledger: ledger.durable(end.plan)))

    def report(self) -> dict[str, Any] | None:
        """Return end offsets, lags and what is held for other streams, by topic and partition, as of the last plan."""
        if self._joined is None:
            return None
        positions, held, ends = self._joined.positions, self._joined.held, self._watch.ends
        lags = lag(positions, ends)
        return {
            "offsets": _by_topic({partition: end for partition, end in ends.items() if partition in positions}),
            "lag": _by_topic(lags),
            "totalLag": sum(lags.values()),
            "held": _by_topic(held),
            "totalHeld": sum(held.values()),
        }

    def stop(self, *, with_driver: bool = False) -> None:
        """Leave the group, if this driver has joined it or is joining. Safe in a signal handler.

        If the last micro-batch is finished, its claims are closed first.

        Args:
            with_driver: whether the driver has died, so that it reports nothing more.
        """
        self._stopped = True
        self._durable_watch.conclude(LAST_LOOK_S if with_driver else AT_STOP_S)
        self._joining.leave()

    def _claim(self, stream: Stream) -> Ranges:
        """Claim the ranges of a plan, and return those that this stream reads.

        Raises:
            ClaimTimeout: a partition of a subscribed topic was not adopted by its next owner within `assignmentTimeout`.
        """
        stream = self._unsubscribed.without_refused(stream, self._read, owned=self._member.positions.keys())
        deadline = self._deadline()
        for _ in deadline.attempts():
            claims = self._claim_once(stream, deadline)
            if not claims.waiting:
                return claims.granted
        stream = self._unsubscribed.without_waiting(stream, claims.waiting)
        claims = self._claim_once(stream, self._deadline())
        if not claims.waiting:
            return claims.granted
        raise self._claim_timeout(claims, stream)

    def _claim_once(self, stream: Stream, deadline: Deadline) -> Claims:
        """Claim what can be claimed now. Before each attempt, ranges whose topic was deleted are left out."""

        def attempt() -> Claims:
            losses = self._watch.deleted_ranges(stream)
            self._refuse_or_warn(losses)
            lost = {loss.partition for loss in losses}
            left = replace(stream, ranges={one: each for one, each in stream.ranges.items() if one not in lost})
            return self._member.do(lambda ledger: ledger.claim(left), deadline)

        return deadline.retry(attempt, self._was_deleted)

    def _read(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, GroupCommit]:
        return self._do(lambda ledger: ledger.commits_of(partitions))

    @property
    def _member(self) -> Joined:
        """This run's membership: every call of Spark joins first."""
        return cast(Joined, self._joined)

    def _do(self, step: Callable[[Ledger], T]) -> T:
        """Do a step of the ledger, and again after a topic was deleted that it would commit for."""
        deadline = self._deadline()
        return deadline.retry(lambda: self._member.do(step, deadline), self._was_deleted)

    def _was_deleted(self, error: Exception) -> bool:
        """Return whether a step failed because a topic was deleted, and give up its partitions.

        The coordinator may learn of a deletion before the broker that is asked about the topic: then there is nothing to give up
        yet, and the step fails again.
        """
        if not isinstance(error, TopicNotFound):
            return False
        losses = self._watch.just_deleted(self._member.once(Ledger.known))
        self._refuse_or_warn(losses)
        self._go_on(losses)
        return True

    def _refuse_or_warn(self, losses: Sequence[PartitionLoss]) -> None:
        """End the query, or warn of each loss once.

        Raises:
            DataLossError: `failOnDataLoss` is true.
        """
        if losses and self._options.fail_on_data_loss:
            # The query commits on its way out, and no broker accepts a commit for a deleted topic.
            self._go_on([loss for loss in losses if loss.cause is Cause.DELETED])
            refuse(losses)
        self._watch.warn(losses)

    def _go_on(self, losses: Sequence[PartitionLoss]) -> None:
        """Continue behind what is lost, and give up the partitions of deleted topics."""
        self._do(lambda ledger: ledger.go_on(losses))

    def _report_durable(self, stream: str, plan: int) -> None:
        if self._joined is not None:
            self._joined.report_durable(stream, plan)

    def _as_member(self, stream: Stream, newest: PlanOffset, step: Callable[[Joined], T]) -> T:
        """Take a step as a member of the group, and again as a new member after a commit without an answer.

        Such a commit may still be on its way, more than once: librdkafka sends it up to three times, and a broker also takes what
        is left in a connection that was closed. If this member went on, it could undo its next claim. To read back what the group
        holds is not enough: that does not show what is on its way. But a coordinator refuses every commit of a member that has
        left, or that it has removed, and nobody gets its partitions before. The new member reads what the group holds by then,
        as after a restart.

        Raises:
            CommitOutcomeUnknown: it happens again `assignmentTimeout` after the first time, or the run is being stopped.
        """
        deadline: Deadline | None = None
        while True:
            try:
                return step(self._join(stream, newest))
            except CommitOutcomeUnknown as error:
                # From the first one on: to learn that there is no answer may take longer than the whole patience.
                deadline = deadline or self._deadline()
                if deadline.over or self._stopped:
                    raise
                # As text: an error would keep the earlier membership as long as a handler keeps the line.
                why = str(error)
                log.warning("this driver leaves the group, and joins it as a new member, since a commit got no answer: %s", why)
            self._joining.leave()
            self._has_left = True

    def _join(self, stream: Stream, newest: PlanOffset) -> Joined:
        if self._has_left:
            # Other threads look at the earlier membership until then.
            self._joined, self._has_left = self._joining.join(stream, newest), False
            # It keeps its clients, and perhaps a child process, until Python collects it, which the runner rarely does.
            gc.collect()
        elif self._joined is None:
            self._joined = self._joining.join(stream, newest)
        return self._joined

    def _warn_of_long_claims(self, open_s: float) -> None:
        """Warn once if the claims of a micro-batch stayed open for longer than a partition may drain."""
        limit_s = self._options.drain_timeout_ms / 1000
        if open_s <= limit_s or self._warned_of_claims or self._options.handoff != "drain":
            return
        self._warned_of_claims = True
        log.warning(
            "a micro-batch took longer than handoff.drainTimeout (%.0f s): its claims stayed open for %.0f s. A partition that "
            "moves meanwhile is released with its claim open, and other clients of the group read it again. Use smaller "
            "micro-batches, or raise handoff.drainTimeout",
            limit_s,
            open_s,
        )

    def _waits_for_more(self, positions: Mapping[TopicPartition, int], again: Ranges) -> bool:
        """Whether `minOffsetsPerTrigger` delays the next plan: not the first of a run, and not under AvailableNow."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._planned_at is None or self._watch.target is not None:
            return False
        delayed_ms = (self._clock() - self._planned_at) * 1000
        return delayed_ms < self._options.max_trigger_delay_ms and available(positions, self._watch.ends, again) < least

    def _reachable(self) -> Mapping[TopicPartition, int]:
        ends, target = self._watch.ends, self._watch.target
        if target is None:
            return ends
        return {partition: min(end, target.ends[partition]) for partition, end in ends.items() if partition in target.ends}

    def _stream(self, offset: PlanOffset, durable: int) -> Stream:
        """Return what the stream knows of itself when `offset` is its newest. Offsets of another cluster are void."""
        here = self._cluster_id()
        if offset.cluster is not None and here is not None and offset.cluster != here:
            if not self._moved:
                self._moved = True
                log.warning(
                    "the checkpoint is of Kafka cluster %s, and this is cluster %s: the query goes on at the group's commits, "
                    "and plan %d is not read again. Records that it had not finished may be duplicated",
                    offset.cluster,
                    here,
                    offset.plan,
                )
            return Stream(offset.stream, offset.plan, durable)
        return Stream(offset.stream, offset.plan, durable, offset.by_partition, offset.topics)

    def _cluster_id(self) -> str | None:
        return writable_cluster_id(self._topics.cluster_id())

    def _claim_timeout(self, claims: Claims, stream: Stream) -> ClaimTimeout:
        waiting = ", ".join(
            f"{partition} {' '.join(str(offsets) for offsets in stream.ranges[partition] if offsets.size)}"
            for partition in sorted(claims.waiting)
        )
        return ClaimTimeout(
            f"Plan {stream.logged} of stream {stream.name} waits for {waiting}. This driver does not own these partitions now, "
            f"and no member of group {self._options.group_id} has adopted them within {self._options.assignment_timeout_ms} ms "
            "(assignmentTimeout). A member that died keeps its partitions until its session times out. "
            f"`groupkafka describe --group {self._options.group_id}` shows the members. Restart the query: it continues with "
            "this plan, and no record is lost."
        )

    def _deadline(self) -> Deadline:
        return Deadline(self._options.assignment_timeout_ms / 1000, clock=self._clock)


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return topics
