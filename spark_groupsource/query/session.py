"""Keeps a run's membership of its group: joins, runs the ledger's steps, and decides what to do after an error (`action_after`).

The steps run on the consumer's thread (`Member.call`).
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Concatenate, ParamSpec, TypeVar

from spark_groupsource.errors import CommitOutcomeUnknown, GroupKafkaError, TopicNotFound
from spark_groupsource.group.ledger import Claims, Ledger
from spark_groupsource.group.member import Assignment, Member, State
from spark_groupsource.handoff.losses import Cause, PartitionLoss, refuse
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.query.joining import Joining
from spark_groupsource.query.loss_watch import LossWatch
from spark_groupsource.query.unsubscribed import without

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

REBALANCE_S = 15.0
"""How long the group may take to move a partition, not counting the drain: two heartbeats (KIP-848: 5 s each) plus a margin.
A failing step is retried for at least this long, even if an earlier wait, such as for a silent leader, has used up the call's
time."""

NOTHING: Mapping[TopicPartition, int] = MappingProxyType({})


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

    Any thread may call `leave` and `report_durable` and read the properties. Everything else runs on the runner's main thread.
    """

    def __init__(
        self,
        joining: Joining,
        loss_watch: LossWatch,
        *,
        patience_s: float,
        fail_on_data_loss: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start without a membership.

        Args:
            joining: joins the group.
            loss_watch: finds out which topics were deleted.
            patience_s: how many seconds one of Spark's calls may spend waiting (`assignmentTimeout`).
            fail_on_data_loss: whether a loss makes the query fail.
            clock: returns seconds, monotonic.
        """
        self._joining = joining
        self._loss_watch = loss_watch
        self._patience_s = patience_s
        self._fail_on_data_loss = fail_on_data_loss
        self._clock = clock
        self.has_joined = False
        """Whether this run has joined the group at least once."""
        self.member: Member
        self.ledger: Ledger
        """The newest member that has its first assignment, and its ledger. While this run joins as a new member, other threads
        still see the earlier pair, which shows the claims that were closed."""
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
        return self.ledger.positions if self.has_joined else NOTHING

    def is_closed(self, plan: int) -> bool:
        """Return whether a plan's claims were closed after the plan was reported as durable."""
        return self.has_joined and self.ledger.closed >= plan

    def cannot_close(self, plan: int) -> bool:
        """Return whether this run can no longer close a plan's claims, because its member has failed or the group refused."""
        if not self.has_joined:
            return False
        has_ended = self.member.failure is not None or self.member.state in {State.LEAVING, State.LEFT, State.FAILED}
        return has_ended or self.ledger.given_up >= plan

    @property
    def leaves_nothing_claimed(self) -> bool:
        """Whether this run has left and the group's records show all its plans as done. False for a run that has not joined."""
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
        self._joining.leave()

    # Deadlines.

    def begin_call(self) -> None:
        """Start a new deadline of `assignmentTimeout`, which all steps of one of Spark's calls share."""
        self.deadline = Deadline(self._patience_s, clock=self._clock)
        """How long the current call may wait and retry failing steps."""

    def step_deadline(self) -> Deadline:
        """Return the deadline for repeating a step that begins now: the call's deadline, but at least `REBALANCE_S` from now."""
        least_s = min(REBALANCE_S, self._patience_s)
        return self.deadline if self.deadline.left >= least_s else Deadline(least_s, clock=self._clock)

    # Joining the group, once or again as a new member.

    def become_member(self, stream: Stream, newest: PlanOffset) -> None:
        """Join the group unless this run is already a member. See `as_member`."""
        self.as_member(stream, newest, lambda: None)

    def as_member(self, stream: Stream, newest: PlanOffset, steps: Callable[[], T]) -> T:
        """Run a call's steps as a member of the group, and repeat them as a new member after a commit that got no answer.

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
                    "this driver leaves the group and joins it as a new member, because a commit got no answer: %s", reason
                )
            # The commit may still be on its way. If it arrived after the next claim, it would undo that claim. Reading the
            # commits back would not reveal it, but brokers refuse it once its member has left the group.
            self._joining.leave()
            self._has_left = True

    def _join(self, stream: Stream, newest: PlanOffset) -> None:
        """Join the group unless this run is already a member."""
        if self.has_joined and not self._has_left:
            return
        self.member, self.ledger = self._joining.join(stream, newest, self.deadline)
        self.has_joined = True
        if self._has_left:
            self._has_left = False
            # The earlier member keeps its clients, and perhaps a child process, until Python collects it, which is rare here.
            gc.collect()

    # Steps of the ledger.

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
        # Every later step raises the error with which the member failed, even if that is retriable.
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
        if losses and self._fail_on_data_loss:
            # The query commits again before it ends, and brokers accept no commit for a deleted topic.
            self._give_up(losses)
            refuse(losses)
        self._loss_watch.warn(losses)

    def _give_up(self, losses: Sequence[PartitionLoss]) -> None:
        """Forget the partitions of deleted topics, so that nothing is committed for them."""
        # Giving up a deleted topic sends no commit, so there is no error to retry.
        self.once(Ledger.continue_after, [loss for loss in losses if loss.cause is Cause.DELETED])
