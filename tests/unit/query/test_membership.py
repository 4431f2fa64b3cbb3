"""A run that goes on as a new member after a commit without an answer. tests/kafka/query/test_membership.py has brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from spark_groupsource.errors import CommitOutcomeUnknown, CommitRefused
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.patience import Deadline
from spark_groupsource.query.joined import Joined
from spark_groupsource.query.joining import Joining
from spark_groupsource.query.membership import STEP_S, Membership
from tests.support.options import parse

STREAM = Stream("s", 4, 3)
NEWEST = PlanOffset.build(stream="s", plan=4, generation=1, member="m", group="billing", ranges={})


class Run:
    """A run whose commits get no answer for a while. It joins at once."""

    def __init__(self, patience: str = "10s") -> None:
        self.now = 0.0
        self.members: list[Joined] = []
        self.time_to_join: list[float] = []
        self.left = 0
        self.steps = 0
        self.answers_from = 0.0
        self.takes_s = 1.0
        joining = cast(Joining, SimpleNamespace(join=self.join, leave=self.leave))
        self.membership = Membership(
            joining, parse(**{"assignmentTimeout": patience, "handoff.drainTimeout": "1s"}), clock=lambda: self.now
        )

    def join(self, stream: Stream, newest: PlanOffset, deadline: Deadline) -> Joined:
        assert (stream, newest, deadline) == (STREAM, NEWEST, self.membership.deadline)
        self.time_to_join.append(deadline.left)
        self.members.append(cast(Joined, object()))
        return self.members[-1]

    def leave(self) -> None:
        self.left += 1

    def step(self) -> str:
        self.steps += 1
        self.now += self.takes_s
        if self.now < self.answers_from:
            raise CommitOutcomeUnknown("no answer")
        return "done"

    def take(self) -> str:
        return self.membership.as_member(STREAM, NEWEST, self.step)


@pytest.fixture
def run() -> Run:
    return Run()


def test_a_run_joins_once(run: Run) -> None:
    assert run.membership.current is None
    run.membership.become_member(STREAM, NEWEST)
    assert [run.take(), run.take()] == ["done", "done"]
    assert run.members == [run.membership.current]
    assert run.left == 0


def test_after_a_commit_without_an_answer_it_leaves_and_takes_the_step_as_a_new_member(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.answers_from = 3.0
    assert run.take() == "done"
    assert (run.steps, run.left, len(run.members)) == (3, 2, 3)
    assert run.membership.joined is run.members[-1]
    assert caplog.text.count("joins it as a new member, since a commit got no answer: no answer") == 2


def test_its_patience_counts_from_the_first_answer_that_is_missing(run: Run) -> None:
    run.takes_s, run.answers_from = 30.0, 60.0
    assert run.take() == "done", "one more try, although the first has taken longer than the patience"
    run.membership.begin_call()
    run.answers_from = 1000.0
    with pytest.raises(CommitOutcomeUnknown):
        run.take()
    assert run.steps == 4
    assert run.time_to_join == [10.0] * 3, "it never joins with less"


def test_all_steps_of_a_call_share_its_time(run: Run) -> None:
    run.take()
    run.membership.begin_call()
    for left in (10.0, 9.0, 8.0):
        assert run.membership.deadline.left == left
        run.take()
    run.now += 100.0
    assert run.membership.deadline.over
    run.membership.begin_call()
    assert run.membership.deadline.left == 10.0


def test_a_step_after_a_long_wait_of_the_call_is_tried_again_all_the_same() -> None:
    """The wait may have been for a leader without an answer, and the group's coordinator may move just then."""
    run = Run("60s")
    run.take()
    assert run.membership.step_deadline() is run.membership.deadline
    run.now += 100.0
    step = run.membership.step_deadline()
    assert (step.left, run.membership.deadline.left) == (STEP_S, 0)
    run.now += STEP_S
    assert step.over
    assert Run("10s").membership.step_deadline().left == 10.0, "never longer than the whole call"


def test_a_run_that_is_being_stopped_does_not_join_again(run: Run) -> None:
    run.answers_from = 3.0
    run.membership.ending = True
    with pytest.raises(CommitOutcomeUnknown):
        run.take()
    assert (run.left, len(run.members)) == (0, 1)


def test_another_error_does_not_end_the_membership(run: Run) -> None:
    def refused() -> None:
        raise CommitRefused("too large")

    with pytest.raises(CommitRefused):
        run.membership.as_member(STREAM, NEWEST, refused)
    assert run.left == 0
