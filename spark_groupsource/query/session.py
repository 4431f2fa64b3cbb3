"""Keeps a run in its group: joins the group, runs the ledger's steps, and decides what to do after an error (`action_after`).

The steps run on the consumer's thread (`Member.call`).
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from confluent_kafka import KafkaError

from spark_groupsource.brokers.broker_errors import explain
from spark_groupsource.brokers.client import connect_to_leader
from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.topic_ids import TopicIds
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.errors import (
    AssignmentTimeout,
    BrokerError,
    BrokerUnavailable,
    CommitOutcomeUnknown,
    GroupKafkaError,
    MemberFenced,
    MembershipError,
    NotAConsumerGroup,
    TopicNotFound,
    passes,
)
from spark_groupsource.group.coordinator_watch import watch
from spark_groupsource.group.fenced_commits import FencedCommits, fetch_commits
from spark_groupsource.group.group_reader import GroupReader
from spark_groupsource.group.ledger import Claims, Ledger
from spark_groupsource.group.member import Assignment, Member, State
from spark_groupsource.group.survey import Survey, ask_brokers
from spark_groupsource.handoff.commit_record import GroupCommit, writable_cluster_id
from spark_groupsource.handoff.losses import Cause, PartitionLoss, refuse
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.kafka_settings.client_id import named
from spark_groupsource.observer import UNOBSERVED, Observer
from spark_groupsource.options.model import Options
from spark_groupsource.options.start_and_end import refuse_unknown
from spark_groupsource.options.topic_pattern import INTERNAL_TOPICS
from spark_groupsource.partition import TopicPartition, listed
from spark_groupsource.patience import Deadline
from spark_groupsource.query.loss_watch import LossWatch
from spark_groupsource.query.starting_offsets import StartingOffsets
from spark_groupsource.query.unsubscribed import without
from spark_groupsource.timeouts import AT_START_S, JOIN_INTERVAL_S, READ_REPORT_EVERY_S, RETRY_LATER_S

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

REBALANCE_S = 15.0
"""How long the group may take to move a partition, not counting the drain: two heartbeats (KIP-848: 5 s each) plus a margin.
A failing step is retried for at least this long, even if an earlier wait, such as for a silent leader, has used up the call's
time."""


class Action(Enum):
    """What a run does after a step has failed."""

    RETRY = "repeat the step: the brokers may answer later, or the group's rebalance may end"
    GIVE_UP_TOPIC = "give up the partitions of deleted topics, and repeat the step"
    REJOIN = "leave the group, and repeat the steps of this call as a new member"
    END = "end the query"


def action_after(error: GroupKafkaError) -> Action:
    """Return what a run does after a step has failed with this error."""
    match error:
        case CommitOutcomeUnknown():
            return Action.REJOIN
        case TopicNotFound():
            return Action.GIVE_UP_TOPIC
        case _:
            return Action.RETRY if error.passing else Action.END


class Session:
    """Runs the ledger's steps as a member of the group, and rejoins as a new member after a commit that got no answer.

    Any thread may call `leave`, `report_durable` and the methods that begin with `is_` or `cannot_`, and read the properties.
    Everything else runs on the runner's main thread.
    """

    def __init__(
        self,
        options: Options,
        topics: Topics,
        topic_ids: TopicIds,
        starting_offsets: StartingOffsets,
        loss_watch: LossWatch,
        *,
        is_stopping: Callable[[str], bool],
        observer: Observer = UNOBSERVED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start without a membership, and without sending a request.

        Args:
            options: the source's options.
            topics: the subscribed topics.
            topic_ids: their ids.
            starting_offsets: returns where partitions without a commit start.
            loss_watch: finds out which topics were deleted.
            is_stopping: returns whether a stream's query is being stopped and will not plan anything.
            observer: receives reports from the member and its ledger.
            clock: returns monotonic time in seconds.
        """
        self._options = options
        self._topics = topics
        self._topic_ids = topic_ids
        self._starting_offsets = starting_offsets
        self._loss_watch = loss_watch
        self._is_stopping = is_stopping
        self._observer = observer
        self._clock = clock
        self.has_joined = False
        """Whether this run has joined the group at least once."""
        self.member: Member
        self.ledger: Ledger
        """The newest member that has its first assignment, and its ledger. While this run joins as a new member, other threads
        still see the earlier pair, which shows the claims that were closed."""
        self._newest: Member | None = None
        """The newest member, even if it has not joined yet."""
        self._has_been_member = False
        """Whether the group has ever given this run an assignment."""
        self._has_left = False
        """Whether this run has left the group, and must join as a new member before the next step."""
        self.ending = False
        """Whether the run is being stopped, so that it must not join again. Any thread may set it."""
        self.begin_call()

    # The member's and the ledger's state, as values that the consumer's thread replaces and never edits.

    @property
    def assignment(self) -> Assignment:
        """The group's current assignment for this driver."""
        return self.member.assignment if self.has_joined else Assignment()

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset to plan in each partition that new plans may include."""
        return self.ledger.positions if self.has_joined else {}

    def is_closed(self, plan: int) -> bool:
        """Return whether a plan's claims were closed after the plan was reported as durable."""
        return self.has_joined and self.ledger.closed >= plan

    def cannot_close(self, plan: int) -> bool:
        """Return whether this run can no longer close a plan's claims: its member failed, or the group refused the commit."""
        if not self.has_joined:
            return False
        has_ended = self.member.failure is not None or self.member.state in {State.LEAVING, State.LEFT, State.FAILED}
        return has_ended or self.ledger.given_up >= plan

    @property
    def leaves_nothing_claimed(self) -> bool:
        """Whether this run has left the group and the group's records show all its plans as done. False if it has not joined."""
        return self.has_joined and self.member.state in {State.LEFT, State.FAILED} and not self.ledger.may_be_claimed

    def is_draining(self) -> bool:
        """Return whether this member is draining partitions that the group has revoked."""
        return bool(self.assignment.draining)

    def report_durable(self, stream: str, plan: int) -> None:
        """Pass on a report that a plan is in Spark's commit log, so that the consumer's thread closes its claims."""
        if self.has_joined:
            self.ledger.report_durable(stream, plan)

    def leave(self) -> None:
        """Leave the group, if this driver has joined it or is joining. Safe in a signal handler."""
        if self._newest is not None:
            self._newest.close()

    # Deadlines.

    def begin_call(self) -> None:
        """Start a new deadline of `assignmentTimeout`, which all steps of one of Spark's calls share."""
        self.deadline = Deadline(self._options.assignment_timeout_ms / 1000, clock=self._clock)
        """How long the current call may wait and retry failing steps."""

    def step_deadline(self) -> Deadline:
        """Return the deadline for repeating a step that begins now: the call's deadline, but at least `REBALANCE_S` from now."""
        least_s = min(REBALANCE_S, self._options.assignment_timeout_ms / 1000)
        return self.deadline if self.deadline.left >= least_s else Deadline(least_s, clock=self._clock)

    # Joining the group, once or again as a new member.

    def become_member(self, stream: Stream, newest: PlanOffset) -> None:
        """Join the group unless this run is already a member. See `as_member`."""
        self.as_member(stream, newest, lambda: None)

    def as_member(self, stream: Stream, newest: PlanOffset, steps: Callable[[], T]) -> T:
        """Run a Spark call's steps as a group member, and repeat them as a new member after a commit that got no answer.

        Args:
            stream: the stream as its checkpoint describes it.
            newest: the newest offset in the checkpoint.
            steps: runs the steps, which must be safe to repeat.

        Raises:
            CommitOutcomeUnknown: another commit gets no answer `assignmentTimeout` after the first one, or the run is being
                stopped.
        """
        has_failed = False
        while True:
            try:
                self._join(stream, newest)
                return steps()
            except GroupKafkaError as error:
                if action_after(error) is not Action.REJOIN:
                    raise
                # Start the deadline at the first such error, because waiting for the answer may have used up the whole time.
                if not has_failed:
                    self.begin_call()
                has_failed = True
                if self.deadline.over or self.ending:
                    raise
                # Log the text: a log handler that keeps the error would keep the earlier member and its clients alive.
                reason = str(error)
                log.warning(
                    "this driver is leaving the group to rejoin it as a new member, because a commit got no response: %s", reason
                )
            # The commit may still be on its way. If it arrived after the next claim, it would undo that claim. Reading the
            # commits back would not reveal it, but brokers refuse it once its member has left the group.
            self.leave()
            self._has_left = True

    def _join(self, stream: Stream, newest: PlanOffset) -> None:
        """Join the group unless this run is already a member."""
        if self.has_joined and not self._has_left:
            return
        self.member, self.ledger = self._join_group(stream, newest)
        self.has_joined = True
        if self._has_left:
            self._has_left = False
            # The earlier member keeps its clients, and perhaps a child process, until Python collects it, which is rare here.
            gc.collect()

    def _join_group(self, stream: Stream, newest: PlanOffset) -> tuple[Member, Ledger]:
        """Join the group, and return the member and its ledger once the run can plan.

        If the query is being stopped and has no micro-batch to confirm or repeat, this method may return before the member has
        joined.

        Args:
            stream: the stream as its checkpoint describes it.
            newest: the newest offset in the checkpoint.

        Raises:
            AssignmentTimeout: the group did not assign anything before the call's deadline.
            MemberFenced: another process has the same `kafka.group.instance.id`. Under KIP-848 this is raised at the deadline.
            NotAConsumerGroup: it is not a consumer group.
            MembershipError: the group rejects this member's assignor or protocol, or is full. If this run was a member before, a
                full group is an error only at the deadline.
        """
        options = self._options
        if newest.plan < 0:
            refuse_unknown(options.stream_start, self._topics.partitions(skip_missing=True))
        self._starting_offsets.begin(newest)
        while True:
            try:
                return self._join_once(stream)
            except MemberFenced as error:
                # Under KIP-848 a static member that was killed keeps its instance id until its session times out, so wait. With
                # the classic protocol the newest member gets the id, and joining again would make the other query fail.
                if options.group_protocol == "classic":
                    raise
                self.deadline.pause_after(error, RETRY_LATER_S)
            except MembershipError as refused:
                if not self._earlier_member_still_counts():
                    raise self._reason(refused) from None
                self.deadline.pause_after(refused, RETRY_LATER_S)

    def _earlier_member_still_counts(self) -> bool:
        """Return whether the group may be full because this run's earlier member, whose session has not expired, still counts."""
        member = self._newest
        return self._has_been_member and member is not None and member.ended_by == KafkaError.GROUP_MAX_SIZE_REACHED

    def _reason(self, refused: MembershipError) -> GroupKafkaError:
        """Return the real reason for a refusal: `NotAConsumerGroup` if the group is of another kind, else the error itself."""
        if type(refused) is MembershipError:
            try:
                with GroupAdminProcess(self._options.client_settings()) as group:
                    group.refuse_other_kinds(self._options.group_id)
            except NotAConsumerGroup as other_kind:
                return other_kind
            except BrokerError as error:
                log.info("failed to check the group's type: %s", error)
        return refused

    def _join_once(self, stream: Stream) -> tuple[Member, Ledger]:
        """Create a member and its ledger, join the group with them, and wait for the assignment."""
        options = self._options
        self._observer.joining(stream.name)
        client_settings = named(options.client_settings(), stream.name)
        self._newest = member = Member(
            named(options.member_settings(), stream.name),
            options.subscription(),
            drain_timeout_s=options.drain_timeout_ms / 1000,
            observer=self._observer,
        )
        cluster_id = writable_cluster_id(self._topics.cluster_id())
        commits = FencedCommits(member.consumer, options.group_id, cluster_id=cluster_id, observer=self._observer)
        ledger = Ledger(
            stream,
            commits,
            survey=Survey(
                partial(
                    ask_brokers,
                    starting_offsets=self._starting_offsets,
                    topic_ids=self._topic_ids.now,
                    log_starts=self._topics.starts,
                )
            ),
            reader=GroupReader(
                client_settings,
                options.group_id,
                subscribed=self._subscribed,
                everywhere=lambda: self._topics.everywhere(leave_out=INTERNAL_TOPICS),
                cluster_id=cluster_id,
            ),
            fail_on_data_loss=options.fail_on_data_loss,
            held_claims=options.held_claims_choice(),
            patience_s=options.assignment_timeout_ms / 1000,
            observer=self._observer,
        )
        # Read the group's commits before joining: a query whose checkpoint is behind the group must fail without taking a
        # partition from other members, and every claim that exists now was made before this query started.
        ledger.note_group(self._fetch_commits(member, cluster_id))
        member.start(ledger)
        if options.group_protocol == "consumer":
            watch(member, options.group_id, GroupAdminProcess(client_settings))
        try:
            self._wait_assigned(member, ledger, stream)
        except MembershipError:
            member.close()
            raise
        return member, ledger

    def _fetch_commits(self, member: Member, cluster_id: str | None) -> dict[TopicPartition, GroupCommit]:
        """Return the group's commits for all subscribed partitions. Call this before the member's thread starts."""

        def fetch() -> dict[TopicPartition, GroupCommit]:
            """Fetch the commits once."""
            partitions = self._subscribed()
            connect_to_leader(member.consumer, partitions)
            group_id = self._options.group_id
            return fetch_commits(member.consumer, group_id, partitions, cluster_id=cluster_id, timeout_s=AT_START_S)

        # A topic may be deleted between the two requests.
        return self.deadline.retry(fetch, lambda error: passes(error) or isinstance(error, TopicNotFound))

    def _subscribed(self) -> list[TopicPartition]:
        """Return the partitions of all subscribed topics that exist."""
        return self._topics.partitions(skip_missing=True)

    def _wait_assigned(self, member: Member, ledger: Ledger, stream: Stream) -> None:
        """Wait until the member can plan or the query is being stopped. Raise an error at the deadline."""
        deadline = self.deadline
        while not (joined := member.wait_joined(min(READ_REPORT_EVERY_S, deadline.left))) and not deadline.over:
            if stream.durable == stream.logged and not ledger.may_be_claimed and self._is_stopping(stream.name):
                return
        if joined:
            self._has_been_member = True
            for _ in deadline.attempts(first_s=JOIN_INTERVAL_S):
                if member.call(ledger.ready):
                    return
        trouble = member.last_trouble
        reason = "." if trouble is None else f"; {explain(trouble, 'the Kafka client reports')}"
        owned = member.assignment.partitions
        member.close()
        if owned:
            raise BrokerUnavailable(
                f"The group {self._options.group_id} assigned {listed(sorted(owned), 20)} to this driver, but the brokers did "
                f"not return the offsets to start from within {self._options.assignment_timeout_ms} ms "
                f"(assignmentTimeout){reason} Nothing was read. Check that the partitions' leaders and the group's coordinator "
                "are up."
            )
        raise AssignmentTimeout(
            f"The group {self._options.group_id} gave this driver no assignment within {self._options.assignment_timeout_ms} ms "
            f"(assignmentTimeout){reason} Nothing was read. Another member may be delaying the rebalance until its session or "
            f"max.poll.interval.ms times out. `groupkafka describe --group {self._options.group_id}` shows the members."
        )

    # Ledger steps.

    def once(self, step: Callable[Concatenate[Ledger, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a ledger step once, on the consumer's thread.

        Raises:
            GroupKafkaError: the step's error, or the error with which the member failed.
        """
        return self.member.call(lambda: step(self.ledger, *args, **kwargs))

    def step(self, step: Callable[Concatenate[Ledger, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a ledger step on the consumer's thread, and retry it after errors that allow that.

        Raises:
            DataLossError: the step would commit for a deleted topic, and `failOnDataLoss` is true.
            GroupKafkaError: an error that is not retriable, that made the member fail, or that persisted until the deadline.
        """
        deadline = self.step_deadline()
        while True:
            try:
                return self.once(step, *args, **kwargs)
            except GroupKafkaError as error:
                self._prepare_retry(error, deadline)

    def claim(self, stream: Stream) -> Claims:
        """Claim as much of plan `stream.logged` as can be claimed now.

        The ranges of deleted topics are left out, because no member can adopt or read them.

        Raises:
            DataLossError, GroupKafkaError: see `step`.
        """
        deadline = self.step_deadline()
        remaining = self._without_deleted(stream)
        while True:
            try:
                return self.once(Ledger.claim, remaining)
            except GroupKafkaError as error:
                if self._prepare_retry(error, deadline) is Action.GIVE_UP_TOPIC:
                    remaining = self._without_deleted(stream)

    def continue_after(self, losses: Sequence[PartitionLoss]) -> None:
        """Continue after lost records, and give up the partitions of deleted topics.

        Raises:
            DataLossError: `failOnDataLoss` is true.
        """
        self._refuse_or_warn(losses)
        self.step(Ledger.continue_after, losses)

    def _prepare_retry(self, error: GroupKafkaError, deadline: Deadline) -> Action:
        """Act on a step's error, and wait a moment before the step is repeated. Raise the error if it must not be repeated."""
        action = action_after(error)
        # Every later step raises the error with which the member failed, even if that error is retriable.
        if action in {Action.REJOIN, Action.END} or error is self.member.failure:
            raise error
        if action is Action.GIVE_UP_TOPIC:
            # The coordinator may learn of a deletion earlier than the broker that describes the topic. Then no topic is known to
            # be deleted yet, and the repeated commit is refused again.
            losses = self._loss_watch.just_deleted(self.once(Ledger.confirmed_records))
            self._refuse_or_warn(losses)
            self._give_up(losses)
        deadline.pause_after(error)
        return action

    def _without_deleted(self, stream: Stream) -> Stream:
        """Return the stream without ranges in deleted topics. Raise or warn about these ranges."""
        losses = self._loss_watch.deleted_ranges(stream)
        self._refuse_or_warn(losses)
        return without(stream, {loss.partition for loss in losses})

    def _refuse_or_warn(self, losses: Sequence[PartitionLoss]) -> None:
        """Raise `DataLossError` if `failOnDataLoss=true`, otherwise warn about each loss once."""
        if losses and self._options.fail_on_data_loss:
            # The query commits again before it stops, and brokers accept no commit for a deleted topic.
            self._give_up(losses)
            refuse(losses)
        self._loss_watch.warn(losses)

    def _give_up(self, losses: Sequence[PartitionLoss]) -> None:
        """Forget the partitions of deleted topics, so that nothing is committed for them."""
        # Giving up a deleted topic sends no commit, so there is no error to retry.
        self.once(Ledger.continue_after, [loss for loss in losses if loss.cause is Cause.DELETED])
