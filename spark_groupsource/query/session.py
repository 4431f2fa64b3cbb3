"""Manages one run's membership of its group: joins, takes the ledger's steps, and reacts to their errors (`action_after`).

The ledger's steps run on the consumer's thread (`Member.call`).
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
from spark_groupsource.group.assignment import Assignment
from spark_groupsource.group.ledger import Claims, Ledger
from spark_groupsource.group.member import Member, State
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

STEP_S = 15.0
"""The least time for which a failing step is retried. An earlier wait of the same call, such as for a leader that does not
answer, may have used up the call's whole time, although a coordinator moves, and a rebalance ends, within seconds."""

NOTHING: Mapping[TopicPartition, int] = MappingProxyType({})


class Action(Enum):
    """A run's reaction to the error of a step."""

    RETRY = "take the step again, because the brokers will answer later, or the group's rebalance will end"
    GIVE_UP_TOPIC = "give up the partitions of deleted topics, and take the step again"
    REJOIN = "leave the group, and take the steps of this call again as a new member"
    END = "end the query"


def action_after(error: GroupKafkaError) -> Action:
    """Return a run's reaction to the error of a step."""
    match error:
        case CommitOutcomeUnknown():
            return Action.REJOIN
        case TopicNotFound():
            return Action.GIVE_UP_TOPIC
        case _:
            return Action.RETRY if error.passing else Action.END


class Session:
    """The membership of one run. After a commit without an answer, the run leaves the group and joins it as a new member.

    Any thread may call `leave` and `report_durable` and read the properties. The rest is for the runner's main thread.
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
        """Begin without a membership.

        Args:
            joining: joins the group.
            loss_watch: finds out which topics were deleted.
            patience_s: how many seconds one call of Spark's may wait (`assignmentTimeout`).
            fail_on_data_loss: whether a loss ends the query.
            clock: returns seconds, monotonic.
        """
        self._joining = joining
        self._loss_watch = loss_watch
        self._patience_s = patience_s
        self._fail_on_data_loss = fail_on_data_loss
        self._clock = clock
        self.has_joined = False
        """Whether there has been a membership."""
        self.member: Member
        self.ledger: Ledger
        """The newest member that has its first assignment, and the records of its partitions. While a new member joins, other
        threads see the earlier one, which shows the claims that were closed."""
        self._has_left = False
        """Whether that membership is over, so that the next step needs a new one."""
        self.ending = False
        """Whether the run is being stopped, so that it must not join again. Any thread may set it."""
        self.begin_call()

    # What the group and its ledger show. The consumer's thread replaces these values and never edits them.

    @property
    def assignment(self) -> Assignment:
        """The partitions that the group has assigned to this driver."""
        return self.member.assignment if self.has_joined else Assignment()

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset to plan of each partition that new plans may have."""
        return self.ledger.positions if self.has_joined else NOTHING

    @property
    def held(self) -> Mapping[TopicPartition, int]:
        """How many offsets are held for other streams, for each partition that has any."""
        return self.ledger.held if self.has_joined else NOTHING

    def is_closed(self, plan: int) -> bool:
        """Return whether the claims of a plan were closed after a report that it is durable."""
        return self.has_joined and self.ledger.closed >= plan

    def cannot_close(self, plan: int) -> bool:
        """Return whether this run can no longer close a plan's claims, because its member has ended or the group has refused."""
        if not self.has_joined:
            return False
        has_ended = self.member.failure is not None or self.member.state in {State.LEAVING, State.LEFT, State.FAILED}
        return has_ended or self.ledger.given_up >= plan

    @property
    def leaves_nothing_claimed(self) -> bool:
        """Whether this run has left, and the group shows all claims of its plans as done. False for a run that has not joined."""
        return self.has_joined and self.member.state in {State.LEFT, State.FAILED} and not self.ledger.may_be_claimed

    def is_draining(self) -> bool:
        """Return whether the group has revoked partitions whose claims are not confirmed yet."""
        return bool(self.assignment.draining)

    def report_durable(self, stream: str, plan: int) -> None:
        """Have the consumer's thread close the claims of a plan that is in Spark's commit log (`Ledger.report_durable`)."""
        if self.has_joined:
            self.ledger.report_durable(stream, plan)

    def leave(self) -> None:
        """Leave the group, if this driver has joined it or is joining. Safe in a signal handler."""
        self._joining.leave()

    # How long a call takes.

    def begin_call(self) -> None:
        """Begin a call of Spark's, whose steps share one `assignmentTimeout` for their waits and retries."""
        self.deadline = Deadline(self._patience_s, clock=self._clock)
        """The end of the waits and retries of the current call."""

    def step_deadline(self) -> Deadline:
        """Return the deadline for retries of a step that begins now: the end of the call's time, but at least `STEP_S`."""
        least_s = min(STEP_S, self._patience_s)
        return self.deadline if self.deadline.left >= least_s else Deadline(least_s, clock=self._clock)

    # Joining, and joining again.

    def become_member(self, stream: Stream, newest: PlanOffset) -> None:
        """Join the group, unless this run is a member of it. See `as_member`."""
        self.as_member(stream, newest, lambda: None)

    def as_member(self, stream: Stream, newest: PlanOffset, steps: Callable[[], T]) -> T:
        """Take the steps of a call as a member of the group, and again as a new member after a commit without an answer.

        Args:
            stream: what the checkpoint says.
            newest: the newest offset of the checkpoint.
            steps: the steps, which may be taken again.

        Raises:
            CommitOutcomeUnknown: it happens again `assignmentTimeout` after the first time, or the run is being stopped.
        """
        has_failed = False
        while True:
            try:
                self._join(stream, newest)
                return steps()
            except GroupKafkaError as error:
                if action_after(error) is not Action.REJOIN:
                    raise
                # The time counts from the first failure, because it may take longer than the whole patience to learn of that.
                if not has_failed:
                    self.begin_call()
                has_failed = True
                if self.deadline.over or self.ending:
                    raise
                # As text: an error would keep the earlier membership as long as a handler keeps the line.
                why = str(error)
                log.warning("this driver leaves the group and joins it as a new member, because a commit got no answer: %s", why)
            # The commit may still be on its way. If it arrived after the next claim, it would undo that claim, but brokers refuse
            # it once its member has left. Reading back the group's commits would not show a commit that is on its way.
            self._joining.leave()
            self._has_left = True

    def _join(self, stream: Stream, newest: PlanOffset) -> None:
        if self.has_joined and not self._has_left:
            return
        self.member, self.ledger = self._joining.join(stream, newest, self.deadline)
        self.has_joined = True
        if self._has_left:
            self._has_left = False
            # The earlier member keeps its clients, and perhaps a child process, until Python collects it, which is rare here.
            gc.collect()

    # Steps of a member.

    def once(self, step: Callable[Concatenate[Ledger, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do a step of the ledger on the consumer's thread.

        Raises:
            GroupKafkaError: the step's own error, or the error that has ended the member.
        """
        return self.member.call(lambda: step(self.ledger, *args, **kwargs))

    def step(self, step: Callable[Concatenate[Ledger, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do a step of the ledger, and retry it as its errors allow.

        Raises:
            DataLossError: the step would commit for a topic that was deleted, and `failOnDataLoss` is true.
            GroupKafkaError: an error that is not retriable, the last one before the deadline, or immediately the error that
                has ended the member.
        """
        deadline = self.step_deadline()
        while True:
            try:
                return self.once(step, *args, **kwargs)
            except GroupKafkaError as error:
                self._prepare_again(error, deadline)

    def claim(self, stream: Stream) -> Claims:
        """Claim the ranges of plan `stream.logged` that can be claimed now.

        The ranges of deleted topics are left out, because no member can adopt or read them.

        Raises:
            DataLossError, GroupKafkaError: see `step`.
        """
        deadline = self.step_deadline()
        left = self._without_deleted(stream)
        while True:
            try:
                return self.once(Ledger.claim, left)
            except GroupKafkaError as error:
                if self._prepare_again(error, deadline) is Action.GIVE_UP_TOPIC:
                    left = self._without_deleted(stream)

    def go_on(self, losses: Sequence[PartitionLoss]) -> None:
        """Continue after what is lost, and give up the partitions of deleted topics.

        Raises:
            DataLossError: `failOnDataLoss` is true.
        """
        self._refuse_or_warn(losses)
        self.step(Ledger.go_on, losses)

    def _prepare_again(self, error: GroupKafkaError, deadline: Deadline) -> Action:
        """Prepare to retry a step, and wait a moment. Raise the error if the step must not be retried."""
        action = action_after(error)
        # Every later step raises the error that has ended the member, even if it is a retriable one.
        if action in {Action.REJOIN, Action.END} or error is self.member.failure:
            raise error
        if action is Action.GIVE_UP_TOPIC:
            # The coordinator may learn of a deletion before the broker that is asked about the topic does. Until then there is
            # nothing to give up, and the same commit is refused again.
            losses = self._loss_watch.just_deleted(self.once(Ledger.known))
            self._refuse_or_warn(losses)
            self._give_up(losses)
        deadline.pause_after(error)
        return action

    def _without_deleted(self, stream: Stream) -> Stream:
        losses = self._loss_watch.deleted_ranges(stream)
        self._refuse_or_warn(losses)
        return without(stream, {loss.partition for loss in losses})

    def _refuse_or_warn(self, losses: Sequence[PartitionLoss]) -> None:
        """End the query, or warn of each loss once."""
        if losses and self._fail_on_data_loss:
            # The query still commits while it ends, and brokers accept no commit for a deleted topic.
            self._give_up(losses)
            refuse(losses)
        self._loss_watch.warn(losses)

    def _give_up(self, losses: Sequence[PartitionLoss]) -> None:
        # This step commits nothing, so there is nothing to retry.
        self.once(Ledger.go_on, [loss for loss in losses if loss.cause is Cause.DELETED])
