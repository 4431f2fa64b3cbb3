"""When a run with a fixed target may end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from spark_groupsource.group.member import Assignment
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.query.assignment_wait import QUIET_S, AssignmentWait
from spark_groupsource.query.session import REBALANCE_S, Session

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)
BOTH = frozenset({ONE, TWO})


class Standby:
    """What the wait asks of a session that has no partition."""

    assignment = Assignment()
    positions: Mapping[TopicPartition, int] = {}

    def __init__(self) -> None:
        self.deadline = Deadline(600)

    def once(self, _: object) -> bool:
        return False


class Run(AssignmentWait):
    """A run with a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(30.0, clock=lambda: self.now)


@pytest.fixture
def run() -> Run:
    return Run()


def test_a_run_that_has_nothing_or_has_read_its_whole_target_ends_at_once(run: Run) -> None:
    assert run.may_end(Assignment(), (), BOTH)
    assert run.may_end(Assignment(BOTH), BOTH, BOTH)


def test_a_run_that_has_lost_everything_waits_until_it_has_rejoined(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    assert not run.may_end(Assignment(BOTH), {ONE}, BOTH)
    run.now += 100.0
    assert not run.may_end(Assignment(), (), BOTH)
    run.now += REBALANCE_S - 1
    assert not run.may_end(Assignment(), (), BOTH)
    run.now += 1
    assert run.may_end(Assignment(), (), BOTH)
    assert "has taken all partitions from this run" in caplog.text


def test_a_run_waits_for_a_partition_that_it_has_and_cannot_read_yet(run: Run) -> None:
    assert not run.may_end(Assignment(BOTH), {ONE}, BOTH)
    run.now += 100 * QUIET_S
    assert not run.may_end(Assignment(BOTH), {ONE}, BOTH)
    assert run.may_end(Assignment(BOTH), {ONE}, {ONE})


@pytest.mark.parametrize("assignment", [Assignment(frozenset({ONE})), Assignment(BOTH, frozenset({TWO}))])
def test_a_run_waits_a_moment_for_what_others_have_or_get(run: Run, assignment: Assignment) -> None:
    assert not run.may_end(assignment, {ONE}, BOTH)
    run.now += QUIET_S
    assert run.may_end(assignment, {ONE}, BOTH)


def test_a_run_that_is_stopped_does_not_wait_for_its_first_partition(run: Run) -> None:
    looks = iter([False, True])
    session = cast(Session, Standby())
    run.await_partitions(session, Stream("a", 0, 0), topics_exist=lambda: True, is_stopping=lambda: next(looks))
    assert next(looks, None) is None, "it has looked until it was asked to stop"
