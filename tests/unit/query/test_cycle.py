"""The cycle's story, step by step: the ledger is the real one, its group and the topics are in memory.

tests/kafka/query/test_cycle.py and its neighbours have brokers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import SimpleNamespace
from typing import cast

import pytest

from spark_groupsource.brokers.topics import Topics
from spark_groupsource.errors import ClaimTimeout, CommitOutcomeUnknown, OffsetError
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.group.member import Assignment, Member, State
from spark_groupsource.handoff.commit_record import GroupCommit
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import OffsetRange, TopicPartition
from spark_groupsource.query.cycle import Cycle
from spark_groupsource.query.session import Session
from spark_groupsource.reports.driver_reports import Answer, DriverReports
from tests.support.group_in_memory import LOG_START, GroupInMemory
from tests.support.options import parse

ORDERS, RETURNS = TopicPartition("orders", 0), TopicPartition("returns", 0)
IDS = {"orders": "a" * 22, "returns": "b" * 22}


class Run:
    """A run of a query that the group gives all partitions as soon as it joins."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: str) -> None:
        self.ends = {ORDERS: LOG_START + 10, RETURNS: LOG_START + 5}
        self.cluster = "here"
        self.groups: list[GroupInMemory] = []
        """The newest is what the group holds now; each membership has one."""
        self.given = frozenset(self.ends)
        monkeypatch.setattr(Topics, "partitions", lambda *_, **__: list(self.ends))
        monkeypatch.setattr(Topics, "ids", lambda _, topics: {topic: IDS[topic] for topic in topics})
        monkeypatch.setattr(Topics, "cluster_id", lambda _: self.cluster)
        monkeypatch.setattr(Topics, "ends", self.ends_of)
        monkeypatch.setattr(Topics, "starts", lambda _, partitions: dict.fromkeys(partitions, LOG_START))
        monkeypatch.setattr(Session, "_join_group", self.join)
        monkeypatch.setattr("spark_groupsource.query.cycle.AT_STOP_S", 0.0)
        times = {"assignmentTimeout": "500ms", "handoff.drainTimeout": "100ms"}
        self.cycle = Cycle(parse(**{"subscribe": "orders,returns", "startingOffsets": "earliest", **times, **options}))
        self.durable = self.cycle.first()

    @property
    def group(self) -> GroupInMemory:
        return self.groups[-1]

    def ends_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.ends[partition] for partition in partitions}

    def join(self, stream: Stream, _: PlanOffset) -> tuple[Member, Ledger]:
        held = self.group.commits if self.groups else {}
        self.groups.append(GroupInMemory(stream))
        self.group.commits |= held
        self.group.acquire(*self.given)
        member = SimpleNamespace(
            call=lambda step: step(),
            failure=None,
            state=State.MEMBER,
            assignment=Assignment(self.given, generation=3, member_id="m"),
        )
        return cast(Member, member), self.group.ledger

    def lose(self, partition: TopicPartition) -> None:
        """Give a partition to another member, which has not adopted it yet."""
        self.group.ledger.lost(frozenset({partition}))

    def plan(self) -> PlanOffset | None:
        return self.cycle.plan(self.durable, limited=True)

    def logged(self) -> PlanOffset:
        planned = self.plan()
        assert planned is not None
        return planned


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(monkeypatch)


def test_what_is_planned_is_claimed_read_and_confirmed_with_the_next_plan(run: Run) -> None:
    logged = run.logged()
    assert {partition: record.open for partition, record in run.group.commits.items()} == {ORDERS: (), RETURNS: ()}  # type: ignore[union-attr]
    granted = run.cycle.claim(run.durable, logged)
    assert granted == {ORDERS: (OffsetRange(7, 17),), RETURNS: (OffsetRange(7, 12),)}
    assert run.group.record(ORDERS).open == ((7, 17),)
    run.durable = logged
    assert run.plan() is None, "nothing is new"
    assert run.group.record(ORDERS).open == ()
    assert run.group.record(ORDERS).done == logged.plan
    run.ends[ORDERS] += 2
    assert run.logged().by_partition[ORDERS] == (OffsetRange(17, 19),)


def test_a_restarted_run_claims_the_plan_that_spark_has_logged(run: Run) -> None:
    logged = run.logged()
    granted = run.cycle.claim(run.durable, logged)
    run.cycle.stop()
    assert run.cycle.claim(run.durable, logged) == granted


def test_after_a_commit_without_an_answer_a_new_member_leaves_the_plan_to_the_next_one(run: Run) -> None:
    """Another member may have read these records before it joined again."""
    logged = run.logged()
    run.group.commit_fails = CommitOutcomeUnknown("no answer")
    assert run.cycle.claim(run.durable, logged) == {}
    assert len(run.groups) == 2
    run.durable = logged
    assert run.logged().by_partition[ORDERS] == (OffsetRange(7, 17),)


def test_a_claim_waits_until_the_next_owner_has_adopted(run: Run) -> None:
    logged = run.logged()
    run.lose(RETURNS)
    other, attempts = GroupInMemory(Stream("b" * 12)), list[bool]()
    other.commits = run.group.commits
    fetch = run.group.fetch

    def adopted_meanwhile(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, GroupCommit]:
        attempts.append(True)
        if len(attempts) == 3:
            other.acquire(RETURNS)
        return fetch(partitions)

    run.group.fetch = adopted_meanwhile  # type: ignore[method-assign]
    assert run.cycle.claim(run.durable, logged) == {ORDERS: (OffsetRange(7, 17),)}
    assert len(attempts) == 3


def test_a_claim_that_waits_too_long_says_for_what(run: Run) -> None:
    logged = run.logged()
    run.lose(RETURNS)
    with pytest.raises(ClaimTimeout, match=rf"A micro-batch of stream {logged.stream} is waiting for returns-0 \[7, 12\)\."):
        run.cycle.claim(run.durable, logged)


def test_a_topic_that_is_no_longer_subscribed_is_left_when_nobody_has_adopted_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logged, before = (run := Run(monkeypatch)).logged(), run.durable
    run = Run(monkeypatch, subscribe="orders")
    run.given = frozenset({ORDERS})
    assert run.cycle.claim(before, logged) == {ORDERS: (OffsetRange(7, 17),)}
    assert (
        "leaves out returns-0 [7, 12): the query no longer subscribes to the topic, and no other member has adopted"
        in caplog.text
    )


def test_offsets_of_two_streams_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    logged = run.logged()
    run.durable = logged
    with pytest.raises(OffsetError, match="contains offsets from two streams"):
        run.cycle.claim(logged, Run(monkeypatch).logged())


def test_offsets_of_another_cluster_are_void_and_said_so_once(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    logged = run.logged()
    run.cluster = "elsewhere"
    assert [run.cycle.claim(run.durable, logged) for _ in range(2)] == [{}, {}]
    assert caplog.text.count("the checkpoint belongs to Kafka cluster here, but this is cluster elsewhere") == 1


def test_a_run_that_is_asked_to_stop_answers_when_spark_has_an_empty_plan(run: Run) -> None:
    reports = DriverReports(os.getppid())
    run.cycle.plan(run.durable, limited=True)
    request = reports.ask_to_stop(run.durable.stream)
    assert reports.answer(run.durable.stream, request) is None
    for _ in range(2):
        assert run.plan() is None
        assert reports.answer(run.durable.stream, request) is Answer.PLANS_NOTHING
    request = reports.ask_to_stop(run.durable.stream)
    assert run.plan() is None
    assert reports.answer(run.durable.stream, request) is Answer.PLANS_NOTHING
    reports.end_stop(run.durable.stream)
    assert run.plan() is not None


def test_a_run_that_leaves_with_claims_answers_at_once_that_something_may_be_claimed(run: Run) -> None:
    reports = DriverReports(os.getppid())
    logged = run.logged()
    run.cycle.claim(run.durable, logged)
    request = reports.ask_to_stop(logged.stream)
    run.cycle.stop()
    assert reports.answer(logged.stream, request) is Answer.LEFT_WITH_CLAIMS
    reports.end_stop(logged.stream)


def test_a_run_whose_driver_has_died_removes_the_files_of_its_stream(run: Run) -> None:
    """They are named after the driver: nobody else would."""
    reports = DriverReports(os.getppid())
    logged = run.logged()
    run.cycle.claim(run.durable, logged)
    reports.ask_to_stop(logged.stream)
    reports.write(logged.stream, logged.plan)
    run.cycle.stop(with_driver=True)
    assert not [file for file in reports.folder.iterdir() if logged.stream in file.name]


def test_lag_and_what_is_held_are_reported_once_the_run_has_joined(run: Run) -> None:
    assert run.cycle.report() is None
    run.logged()
    assert run.cycle.report() == {
        "offsets": {"orders": {"0": 17}, "returns": {"0": 12}},
        "lag": {"orders": {"0": 10}, "returns": {"0": 5}},
        "totalLag": 15,
        "held": {},
        "totalHeld": 0,
    }
