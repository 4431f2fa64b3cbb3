"""What follows from an error of a step: the ledger is the real one, and its group is in memory.

tests/kafka/query/test_session.py and tests/kafka/query/losses have brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_groupsource import errors
from spark_groupsource.errors import (
    BrokerUnavailable,
    CommitOutcomeUnknown,
    CommitRefused,
    DataLossError,
    GroupKafkaError,
    MemberUnknown,
    TopicNotFound,
)
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.group.member import Member, State
from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.handoff.losses import Cause, PartitionLoss
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import OffsetRange, Ranges, TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.query.loss_watch import LossWatch
from spark_groupsource.query.session import REBALANCE_S, Action, Session, action_after
from spark_groupsource.timeouts import RETRY_LATER_S
from tests.support.group_in_memory import GroupInMemory
from tests.support.options import parse

KEPT, OLD = TopicPartition("kept", 0), TopicPartition("old", 0)
PLAN: Ranges = {KEPT: (OffsetRange(7, 10),), OLD: (OffsetRange(7, 9),)}
DELETED = PartitionLoss(OLD, Cause.DELETED, 9, (OffsetRange(7, 9),), earlier_id="a" * 22)
EXPIRED = PartitionLoss(KEPT, Cause.EXPIRED, 7, (OffsetRange(7, 8),), 8)
NAME = "a" * 12
STREAM = Stream(NAME)
NEWEST = PlanOffset.build(stream=NAME, plan=0, generation=1, member="m", group="billing", ranges={})


class Run(Session):
    """A run that owns a partition of each topic. It joins at once, and a pause takes no time but that of its own clock."""

    def __init__(self, *, patience_s: float = 10.0, fail: bool = False) -> None:
        self.now = 0.0
        self.group = GroupInMemory()
        self.failures: list[GroupKafkaError] = []
        """What the next commits fail with."""
        self.takes_s = 0.0
        """How long each of them takes."""
        self.failure: GroupKafkaError | None = None
        """What has ended the member."""
        self.known_after = 0
        """How often the brokers that are asked about the deleted topic do not know it yet."""
        self.warned: list[PartitionLoss] = []
        self.asked_for_deleted = 0
        self.left = 0
        self.time_to_join: list[float] = []
        commit = self.group.commit

        def failing(records: Mapping[TopicPartition, CommitRecord]) -> None:
            self.now += self.takes_s
            if records and self.failures:
                raise self.failures.pop(0)
            commit(records)

        self.group.commit = failing  # type: ignore[method-assign]
        loss_watch = SimpleNamespace(just_deleted=self.just_deleted, deleted_ranges=self.deleted, warn=self.warned.extend)
        unused: Any = None
        super().__init__(
            parse(assignmentTimeout=f"{patience_s:.0f}s", failOnDataLoss=str(fail), **{"handoff.drainTimeout": "1s"}),
            *(unused, unused, unused),
            cast(LossWatch, loss_watch),
            is_stopping=lambda _: False,
            clock=lambda: self.now,
        )
        self.group.acquire(KEPT, OLD)

    def begin_call(self) -> None:
        super().begin_call()
        self.deadline._sleep = self.sleep

    def step_deadline(self) -> Deadline:
        deadline = super().step_deadline()
        deadline._sleep = self.sleep
        return deadline

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def _join_group(self, stream: Stream, newest: PlanOffset) -> tuple[Member, Ledger]:
        assert (stream, newest) == (STREAM, NEWEST)
        self.time_to_join.append(self.deadline.left)
        member = SimpleNamespace(call=self.call, failure=self.failure, state=State.MEMBER)
        return cast(Member, member), self.group.ledger

    def call(self, step: Callable[[], object]) -> object:
        if self.failure is not None:
            raise self.failure
        return step()

    def leave(self) -> None:
        self.left += 1

    def delete(self) -> None:
        """Delete the topic `old`. Its coordinator refuses commits for it at once."""
        self.group.refused.add("old")

    def deleted(self, stream: Stream) -> Sequence[PartitionLoss]:
        self.asked_for_deleted += 1
        known = "old" in self.group.refused and OLD not in self.group.ledger.positions
        return [loss for loss in [DELETED] if known and loss.partition in stream.ranges]

    def just_deleted(self, records: Mapping[TopicPartition, CommitRecord]) -> Sequence[PartitionLoss]:
        self.known_after -= 1
        return [replace(DELETED, position=records[OLD].next)] if self.known_after < 0 else []

    def joined(self) -> Run:
        """Return this run once it has joined."""
        self.become_member(STREAM, NEWEST)
        return self

    def claimed(self) -> Ranges:
        """Propose the plan, and claim it once Spark has it in its offset log."""
        self.group.ledger.propose(PLAN)
        claims = self.claim(Stream(NAME, 0, -1, PLAN))
        assert not claims.waiting
        return claims.granted


@pytest.fixture
def run() -> Run:
    return Run().joined()


# From error to action.


def test_each_error_has_one_action_and_most_end_the_query() -> None:
    actions: dict[Action, set[str]] = {action: set() for action in Action}
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, GroupKafkaError):
            actions[action_after(kind("."))].add(name)
    assert actions.pop(Action.END)
    assert actions == {
        Action.RETRY: {"BrokerUnavailable", "GenerationChanged", "CoordinatorUnavailable", "MemberUnknown"},
        Action.GIVE_UP_TOPIC: {"TopicNotFound"},
        Action.REJOIN: {"CommitOutcomeUnknown"},
    }


@pytest.mark.parametrize("error", [BrokerUnavailable("no answer"), MemberUnknown("a rebalance")])
def test_an_error_that_passes_is_waited_for_until_the_deadline(run: Run, error: GroupKafkaError) -> None:
    run.failures = [error] * 3
    assert run.claimed() == PLAN
    run = Run().joined()
    run.failures = [error] * 1000
    with pytest.raises(type(error)):
        run.claimed()
    assert run.now == pytest.approx(10.0, abs=1.0)


def test_an_error_that_does_not_pass_is_raised_at_once(run: Run) -> None:
    run.failures = [CommitRefused("too large")] * 2
    with pytest.raises(CommitRefused):
        run.claimed()
    assert len(run.failures) == 1


def test_what_has_ended_the_member_is_raised_at_once_also_if_it_is_an_error_that_passes() -> None:
    run = Run()
    run.failure = BrokerUnavailable("it has ended")
    run.joined()
    with pytest.raises(BrokerUnavailable, match="it has ended"):
        run.step(Ledger.confirm)
    assert run.now == 0


@pytest.mark.parametrize("state", State)
def test_a_member_that_has_ended_or_leaves_cannot_close_claims(run: Run, state: State) -> None:
    cast(SimpleNamespace, run.member).state = state
    assert run.cannot_close(0) is (state in {State.LEAVING, State.LEFT, State.FAILED})


def test_a_member_that_has_failed_or_was_refused_cannot_close_claims() -> None:
    run = Run()
    assert not run.cannot_close(0)
    run.failure = MemberUnknown("fenced")
    assert run.joined().cannot_close(0)
    run = Run().joined()
    run.claimed()
    run.failures = [BrokerUnavailable("no answer")]
    run.report_durable(NAME, 0)
    run.group.pass_time(0)
    assert not run.cannot_close(0), "it is tried again"
    run.failures = [CommitRefused("too large")]
    run.group.pass_time(RETRY_LATER_S)
    assert run.cannot_close(0)
    assert not run.cannot_close(1)


# How long a call takes.


def test_all_steps_of_a_call_share_its_time(run: Run) -> None:
    run.now = 3.0
    assert run.deadline.left == 7.0
    run.step(Ledger.confirm)
    assert run.deadline.left == 7.0
    run.now += 100.0
    assert run.deadline.over
    run.begin_call()
    assert run.deadline.left == 10.0


def test_a_step_after_a_long_wait_of_the_call_is_tried_again_all_the_same() -> None:
    """The wait may have been for a leader without an answer, and the group's coordinator may move just then."""
    run = Run(patience_s=60.0)
    assert run.step_deadline() is run.deadline
    run.now += 100.0
    step = run.step_deadline()
    assert (step.left, run.deadline.left) == (REBALANCE_S, 0)
    run.now += REBALANCE_S
    assert step.over
    assert Run().step_deadline().left == 10.0, "never longer than the whole call"


def test_errors_of_several_kinds_in_one_step_take_no_longer_than_the_call(run: Run) -> None:
    run.claimed()
    run.delete()
    run.known_after = 1000
    run.failures = [BrokerUnavailable("no answer"), MemberUnknown("a rebalance")] * 40
    with pytest.raises(TopicNotFound):
        run.step(Ledger.claim, Stream(NAME, 1, 0, {}))
    assert run.now == pytest.approx(10.0, abs=1.0)


# A new member after a commit without an answer.


def test_after_a_commit_without_an_answer_it_leaves_and_takes_the_steps_as_a_new_member(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.failures = [CommitOutcomeUnknown("no answer")] * 2
    assert run.as_member(STREAM, NEWEST, run.claimed) == PLAN
    assert (run.left, len(run.time_to_join)) == (2, 3)
    assert caplog.text.count("to rejoin it as a new member, because a commit got no response: no answer") == 2


def test_its_patience_counts_from_the_first_answer_that_is_missing(run: Run) -> None:
    run.takes_s, run.failures = 30.0, [CommitOutcomeUnknown("no answer")]
    assert run.as_member(STREAM, NEWEST, run.claimed), "once more, although the first try has taken longer than the patience"
    assert run.time_to_join == [10.0] * 2, "it never joins with less"
    run = Run().joined()
    run.takes_s, run.failures = 30.0, [CommitOutcomeUnknown("no answer")] * 10
    with pytest.raises(CommitOutcomeUnknown):
        run.as_member(STREAM, NEWEST, run.claimed)
    assert len(run.failures) == 8


def test_a_run_that_is_being_stopped_does_not_join_again(run: Run) -> None:
    run.failures, run.ending = [CommitOutcomeUnknown("no answer")], True
    with pytest.raises(CommitOutcomeUnknown):
        run.as_member(STREAM, NEWEST, run.claimed)
    assert (run.left, len(run.time_to_join)) == (0, 1)


# Topics that are deleted.


@pytest.mark.parametrize("known_after", [0, 2], ids=["known at once", "known later"])
def test_a_step_is_taken_again_once_the_deleted_topic_is_given_up(run: Run, known_after: int) -> None:
    run.claimed()
    run.delete()
    run.known_after = known_after
    run.step(Ledger.durable, 0)
    run.step(Ledger.confirm)
    assert run.positions == {KEPT: 10}
    assert run.group.record(KEPT).open == ()
    assert run.warned == [DELETED]


def test_a_claim_leaves_out_the_topic_that_is_deleted_meanwhile(run: Run) -> None:
    run.delete()
    assert run.claimed() == {KEPT: PLAN[KEPT]}
    assert run.positions == {KEPT: 10}


def test_brokers_are_not_asked_for_deleted_topics_again_while_only_the_coordinator_is_away(run: Run) -> None:
    run.failures = [BrokerUnavailable("no answer")] * 20
    assert run.claimed() == PLAN
    assert run.asked_for_deleted == 1


def test_a_query_that_ends_because_of_a_loss_gives_up_the_deleted_topic_and_can_commit_on_its_way_out() -> None:
    run = Run(fail=True).joined()
    run.claimed()
    run.delete()
    run.step(Ledger.durable, 0)
    with pytest.raises(DataLossError, match=r"old-0 \[7, 9\)"):
        run.step(Ledger.confirm)
    assert run.positions == {KEPT: 10}
    run.step(Ledger.confirm)


def test_what_is_lost_is_warned_of_and_left_behind_or_ends_the_query(run: Run) -> None:
    deleted = PartitionLoss(OLD, Cause.DELETED, 7)
    run.continue_after([deleted, EXPIRED])
    assert run.positions == {KEPT: 8}
    assert run.warned == [deleted, EXPIRED]
    run = Run(fail=True).joined()
    with pytest.raises(DataLossError, match="kept-0"):
        run.continue_after([deleted, EXPIRED])
    assert run.positions == {KEPT: 7}, "nothing else moves: the next run finds it again"
    assert run.warned == []
