"""Plans, claims and confirms micro-batches, with a method for each of Spark's calls.

    latestOffset(start, limit)   `start` is in the commit log, so its claims are confirmed and the next plan is made
    (offset log written)
    partitions(start, end)       `end` is in the offset log, so its ranges are claimed, whether it is new or replayed
    (tasks, sink, commit log)    the claims are closed as soon as this process learns of the commit log (durable_watch.py)
    latestOffset(start=end) ...

The query joins the group in the first call that identifies its stream.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from spark_groupsource.brokers.topic_ids import TopicIds
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.errors import ClaimTimeout, OffsetError
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.handoff.commit_record import writable_cluster_id
from spark_groupsource.handoff.plan_offset import PlanOffset, Starts
from spark_groupsource.handoff.planner import lag, plan
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.observer import UNOBSERVED, Observer
from spark_groupsource.options.model import Options
from spark_groupsource.partition import Ranges, by_topic, topics_of, with_offsets
from spark_groupsource.query.assignment_wait import AssignmentWait
from spark_groupsource.query.durable_watch import DurableWatch
from spark_groupsource.query.loss_watch import LossWatch
from spark_groupsource.query.session import Session
from spark_groupsource.query.starting_offsets import StartingOffsets
from spark_groupsource.query.unsubscribed import with_ranges, without_refused, without_waiting
from spark_groupsource.reports.driver_reports import Answer, DriverReports
from spark_groupsource.timeouts import AT_STOP_S, RETRY_INTERVAL_S

log = logging.getLogger(__name__)

LAST_REPORT_S = 2.0
"""How long a run that was asked to stop waits for its last plan to be reported. This limit applies instead of AT_STOP_S, because
the driver's program itself writes the report, right before or after it stops the query."""

LAST_READ_S = 0.5
"""How long a run whose driver has died waits to find out whether its last plan is durable. No report can come, so the run only
reads the checkpoint once."""


class Cycle:
    """Runs one query from its first plan until it leaves the group. Used on the runner's main thread, except for `stop`."""

    def __init__(self, options: Options, *, observer: Observer = UNOBSERVED) -> None:
        """Create the clients. The first plan or claim joins the group.

        Args:
            options: the source's options.
            observer: receives this run's reports.

        Raises:
            OptionError, AuthenticationFailed: see topics.Topics.
        """
        self._options = options
        self._observer = observer
        self._reports = DriverReports(os.getppid())  # this process is a child of the driver's JVM
        self._topics = Topics(
            options.client_settings(),
            options,
            read_committed=options.read_committed,
            patience_s=options.poll_timeout_ms / 1000,
        )
        topic_ids = TopicIds(self._topics.ids)
        self._starting_offsets = StartingOffsets(options, self._topics, topic_ids)
        self._watch = LossWatch(options, self._topics, topic_ids)
        self.session = Session(
            options,
            self._topics,
            topic_ids,
            self._starting_offsets,
            self._watch,
            is_stopping=self._is_stopping,
            observer=observer,
        )
        """This run's membership in its group."""
        drain_s = options.drain_timeout_ms / 1000
        self._assignment_wait = AssignmentWait(drain_s)
        self._began: tuple[Starts, Mapping[str, str]] | None = None
        self._stream_name: str | None = None
        self._request: bytes | None = None
        """The newest request to stop planning that this run has answered with an empty plan."""
        self._durable_watch = DurableWatch(options.checkpoint_location, self.session, self._reports)
        self._planned_at: float | None = None
        self._moved = False
        self._warned_of_claims = False

    def first(self) -> PlanOffset:
        """Return the offset before a new stream's first plan, with the starts of the partitions that exist now.

        Spark may call this twice. The first call starts the stream.
        """
        if self._began is None:
            partitions = self._topics.partitions()
            ids = self._topics.ids(topics_of(partitions))
            starts = self._starting_offsets.for_new_stream(partitions)
            self._began = starts, {topic: known for topic, known in ids.items() if known}
        return PlanOffset.first(self._options.group_id, *self._began, self._cluster_id(), name=self._options.query_name)

    def fix_target(self) -> None:
        """Limit this run to the current ends of the subscribed partitions (Trigger.AvailableNow)."""
        self.session.begin_call()
        self._watch.fix_target(self.session.deadline)

    def plan(self, start: PlanOffset, *, limited: bool) -> PlanOffset | None:
        """Return the next plan, or `None` if there are no new offsets, or too few, or if the query is being stopped.

        Plan `start.plan` is durable now, so its claims are confirmed.

        Args:
            start: the newest offset in Spark's commit log.
            limited: whether `maxOffsetsPerTrigger` and `minOffsetsPerTrigger` apply.

        Raises:
            DataLossError: records are lost, and either `failOnDataLoss` is true or they are below the AvailableNow target.
        """
        self.session.begin_call()
        stream = self._stream(start, start.plan)
        return self.session.as_member(stream, start, lambda: self._plan_as_member(stream, start, limited=limited))

    def _plan_as_member(self, stream: Stream, start: PlanOffset, *, limited: bool) -> PlanOffset | None:
        """Confirm the previous plan, wait for partitions, and keep trying until there is a plan or the call may return."""
        self._warn_of_long_claims(self._durable_watch.stop_watching(start.plan))
        # Tell the ledger before any wait, for two reasons. The next owner of a draining partition waits for this confirmation.
        # And this driver's previous run may just have closed this plan's claims after the same report: if this run adopted a
        # partition without knowing that the plan is durable, its checkpoint would seem to be older than the group's records.
        self.session.step(Ledger.durable, start.plan)
        self._assignment_wait.await_partitions(
            self.session,
            stream,
            topics_exist=lambda: bool(self._topics.partitions(skip_missing=True)),
            # A run that has something to confirm needs a partition to do so, so it waits even while it is being stopped.
            is_stopping=lambda: self._is_stopping(stream.name) and not self.session.ledger.may_be_claimed,
        )
        while True:
            # Read these before planning. A partition that is adopted while the plan is being made is not part of the plan. If it
            # counted as read, a run with a target would end and leave its records to the next run.
            assignment, adopted = self.session.assignment, self.session.positions.keys()
            self._assignment_wait.note(assignment)
            request = self._reports.asked_to_stop(stream.name)
            if request is not None:
                self.session.step(Ledger.confirm)
                if request != self._request:
                    self._request = request
                    self._reports.answer_stop(stream.name, request, Answer.PLANS_NOTHING)
                return None
            planned = self._plan(stream, start, limited=limited)
            target = self._watch.target
            if planned is not None or target is None:
                return planned
            # If the assignment has changed in the meantime, the member may have been expelled before it read these partitions.
            if self.session.assignment == assignment and self._assignment_wait.may_end(
                assignment, adopted & self._watch.ends.keys(), target.ends
            ):
                return None
            # Nothing has failed. A run with a target waits for its partitions however long they take.
            self.session.begin_call()
            time.sleep(RETRY_INTERVAL_S)

    def _plan(self, stream: Stream, start: PlanOffset, *, limited: bool) -> PlanOffset | None:
        """Make one plan from the current records and logs, or return `None` if there is nothing to read."""
        began = time.monotonic()
        # 1. Take the current records, and ask which held ranges are confirmed. The answer arrives while the logs are examined.
        plan_input = self.session.step(Ledger.begin_plan)
        # 2. Compare the positions with the logs before planning, and continue after lost records. A plan from an old position
        #    would have ranges that no longer exist, or would skip a recreated topic's first records.
        while losses := self._watch.examine(stream, plan_input.records):
            self.session.continue_after(losses)
            plan_input = self.session.step(Ledger.plan_input)
        self._starting_offsets.update_needed(
            self.session.positions.keys(),
            self.session.assignment.partitions,
            read=lambda partitions: self.session.once(Ledger.commits_of, partitions),
        )
        # 3. Choose the ranges.
        owned = self.session.positions
        positions = {partition: record.next for partition, record in plan_input.records.items() if partition in owned}
        most = self._options.max_offsets_per_trigger if limited else None
        least = self._min_offsets() if limited else 0
        wanted = plan(positions, self._watch.reachable, most, min_offsets=least, reread=plan_input.reread)
        # 4. Propose the plan. From now on its partitions are in flight: if the group revokes them, they drain until their claims
        #    are confirmed. Partitions that have moved since step 1 are left out: a claim would wait for their next owners.
        planned = self.session.step(Ledger.propose, wanted)
        if not with_offsets(planned):
            # No claim follows, so no commit would confirm the last plan. Confirm it now, or its records keep counting as lag.
            self.session.step(Ledger.confirm)
            self._observer.planned(self._watch.ends, time.monotonic() - began, None)
            return None
        # 5. Create the offset for Spark's offset log.
        assignment = self.session.assignment
        offset = start.following(
            planned,
            plan_input.records,
            self._watch.ids,
            generation=assignment.generation,
            member=assignment.member_id,
            starts=self._starting_offsets.needed,
            start_ids=self._starting_offsets.ids,
            cluster=self._cluster_id(),
            cut=(self._options.min_partitions, self._options.max_records_per_partition),
            epochs=self._watch.epochs,
        )
        self._planned_at = time.monotonic()
        self._observer.planned(self._watch.ends, self._planned_at - began, planned)
        return offset

    def claim(self, start: PlanOffset, end: PlanOffset) -> Ranges:
        """Claim the ranges of plan `end`, and return those that this stream reads. The others belong to other members.

        Raises:
            OffsetError: `start` and `end` belong to different streams.
            DataLossError: a topic in the plan was deleted or recreated, and `failOnDataLoss` is true.
            ClaimTimeout: the next owner of a partition did not adopt it within `assignmentTimeout`.
            CheckpointOfAnotherStream: `checkpointLocation` is not this query's checkpoint.
        """
        if start.plan >= 0 and start.stream != end.stream:
            raise OffsetError(
                f"The checkpoint contains offsets from two streams, {start.stream} and {end.stream}, because it was edited or "
                "merged."
            )
        # Spark always runs batch 0. Without records, the batch's end is the offset before the first plan (-1).
        self.session.begin_call()
        stream = self._stream(end, max(-1, end.plan - 1))
        # 1. Join if this is the first call after a restart. This may take minutes, but the plan cannot become durable meanwhile.
        self.session.become_member(stream, end)
        # 2. Read the checkpoint before anything is claimed. If it belongs to another stream, it may show plans as durable that
        #    are not. These plans' claims would be closed, and a restart would not read their records.
        self._durable_watch.claiming(end.stream, end.plan)
        # 3. Claim.
        began = time.monotonic()
        granted = self.session.as_member(stream, end, lambda: self._claim(stream))
        # 4. Watch until Spark has finished the plan. Until all its claims are made, it cannot be durable.
        if granted:
            self._durable_watch.claimed(end.stream, end.plan)
        else:
            self._durable_watch.nothing_claimed()
        self._observer.claimed(end.plan, time.monotonic() - began, granted)
        for partition, planned in sorted(stream.ranges.items()):
            unread = sum(offsets.size for offsets in planned) - sum(offsets.size for offsets in granted.get(partition, ()))
            if unread:
                log.info("plan %d leaves %d offsets of %s to another member or to the next plan", end.plan, unread, partition)
        return granted

    def _claim(self, stream: Stream) -> Ranges:
        """Claim the plan's ranges. If partitions have moved, wait until their next owners adopt them."""
        subscribed, patience_ms = self._options.matches, self._options.assignment_timeout_ms
        stream = without_refused(
            stream,
            lambda partitions: self.session.step(Ledger.commits_of, partitions),
            owned=self.session.positions.keys(),
            subscribed=subscribed,
        )
        for _ in self.session.deadline.attempts():
            claims = self.session.claim(stream)
            if not claims.waiting:
                return claims.granted
        stream = without_waiting(stream, claims.waiting, subscribed=subscribed, patience_ms=patience_ms)
        claims = self.session.claim(stream)
        if not claims.waiting:
            return claims.granted
        raise ClaimTimeout(
            f"A micro-batch of stream {stream.name} is waiting for "
            f"{with_ranges(stream, claims.waiting, most=len(claims.waiting))}. This driver does not own these partitions, and no "
            f"other member of group {self._options.group_id} adopted them within {patience_ms} ms (assignmentTimeout). No record "
            "is lost. Restart the query, which then continues with this micro-batch. A crashed member keeps its partitions "
            f"until its session times out; `groupkafka describe --group {self._options.group_id}` shows the members."
        )

    def committed(self, end: PlanOffset) -> None:
        """Record that Spark has `end` in its commit log.

        The claims of `end` are closed now if a partition is draining, otherwise with the next commit.
        """
        self.session.begin_call()
        stream = self._stream(end, end.plan)
        self.session.as_member(stream, end, lambda: self.session.step(Ledger.durable, end.plan))

    def report(self) -> dict[str, Any] | None:
        """Return each partition's end offset, lag and held offsets as of the last plan."""
        if not self.session.has_joined:
            return None
        positions, held, ends = self.session.positions, self.session.ledger.held, self._watch.ends
        lags = lag(positions, ends)
        return {
            "offsets": by_topic({partition: end for partition, end in ends.items() if partition in positions}),
            "lag": by_topic(lags),
            "totalLag": sum(lags.values()),
            "held": by_topic(held),
            "totalHeld": sum(held.values()),
        }

    def stop(self, *, with_driver: bool = False) -> None:
        """Leave the group, if this driver has joined it or is joining. Safe in a signal handler.

        If the last micro-batch is finished, its claims are closed first.

        Args:
            with_driver: whether the driver has died, so no more reports will come.
        """
        self.session.ending = True
        # Read the request before leaving, because leaving takes time, and a later request is for this checkpoint's next run.
        request = None if self._stream_name is None else self._reports.asked_to_stop(self._stream_name)
        # Close claims before leaving. Claims that are open after that stay open until the query is restarted.
        wait_s = LAST_READ_S if with_driver else AT_STOP_S if request is None else LAST_REPORT_S
        all_closed = self._durable_watch.conclude(wait_s)
        self.session.leave()
        if self._stream_name is None:
            return
        if with_driver:
            # The files are named after the driver, so no later process would read or replace them.
            self._reports.end_stop(self._stream_name)
            self._reports.discard(self._stream_name)
        elif request is not None:  # the driver's program waits for the answer
            is_clean = all_closed and self.session.leaves_nothing_claimed
            self._reports.answer_stop(self._stream_name, request, Answer.LEFT if is_clean else Answer.LEFT_WITH_CLAIMS)

    def _warn_of_long_claims(self, open_s: float) -> None:
        """Warn once if a micro-batch's claims stayed open for longer than a partition is allowed to take to drain."""
        limit_s = self._options.drain_timeout_ms / 1000
        if open_s <= limit_s or self._warned_of_claims:
            return
        self._warned_of_claims = True
        log.warning(
            "a micro-batch took longer than handoff.drainTimeout (%.0f s): its claims stayed unconfirmed for %.0f s. If a "
            "partition has to move in the meantime, it will be released with its claim unconfirmed, and other clients in "
            "the group will read the range again. Use smaller micro-batches, or raise handoff.drainTimeout",
            limit_s,
            open_s,
        )

    def _min_offsets(self) -> int:
        """Return how many offsets the next plan needs (`minOffsetsPerTrigger`): 0 for the first plan and with AvailableNow."""
        if self._planned_at is None or self._watch.target is not None:
            return 0
        is_due = (time.monotonic() - self._planned_at) * 1000 >= self._options.max_trigger_delay_ms
        return 0 if is_due else self._options.min_offsets_per_trigger or 0

    def _is_stopping(self, stream: str) -> bool:
        return self._reports.asked_to_stop(stream) is not None

    def _stream(self, offset: PlanOffset, durable: int) -> Stream:
        """Return the stream whose newest plan is `offset`. Ranges and topic ids from another cluster are dropped."""
        if self._stream_name is None:
            self._stream_name = offset.stream
            self._reports.end_stop(offset.stream)  # an earlier run was asked to stop, but was killed first
        cluster_id = self._cluster_id()
        if offset.cluster is not None and cluster_id is not None and offset.cluster != cluster_id:
            if not self._moved:
                self._moved = True
                log.warning(
                    "the checkpoint belongs to Kafka cluster %s, but this is cluster %s: the query will continue from the "
                    "group's committed offsets, and will not rerun its last micro-batch. If that micro-batch was not finished, "
                    "its records may be duplicated",
                    offset.cluster,
                    cluster_id,
                )
            return Stream(offset.stream, offset.plan, durable)
        return Stream(offset.stream, offset.plan, durable, offset.by_partition, offset.topics, offset.epoch_of)

    def _cluster_id(self) -> str | None:
        """Return the cluster's id, or `None` if a commit record cannot contain it."""
        return writable_cluster_id(self._topics.cluster_id())
