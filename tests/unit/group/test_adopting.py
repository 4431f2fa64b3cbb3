"""Adoption while brokers are slow: what the ledger does until they answer, and what it has forgotten by then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pytest

from spark_groupsource.errors import BrokerUnavailable, CheckpointBehindGroup, TopicNotFound
from spark_groupsource.group.adoption import Lookup
from spark_groupsource.group.fenced_commits import FencedCommits
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, GroupCommit, OpenRange, mark_of
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import OffsetRange, TopicPartition
from tests.simulation.survey import HeldSurvey
from tests.support.waiting import until

RECORDED, NEW = TopicPartition("orders", 0), TopicPartition("orders", 1)
OTHER = TopicPartition("returns", 0)
PATIENCE_S = 10.0


class Group(FencedCommits):
    """What a group holds, and brokers that answer when a test says so.

    Partitions in `silent` have no leader. Topics in `gone` do not exist, as brokers say, those in `refused` as the coordinator
    says.
    """

    def __init__(self) -> None:
        self.commits: dict[TopicPartition, GroupCommit] = {RECORDED: Foreign(5)}
        self.silent: set[TopicPartition] = set()
        self.gone: set[str] = set()
        self.refused: set[str] = set()
        self.unreachable = False
        self.error: Exception | None = None
        self.now = 0.0
        self.survey = HeldSurvey(self.look_up)
        self.ledger = Ledger(
            *(Stream("a" * 12), self),
            survey=self.survey,
            reader=self,
            patience_s=PATIENCE_S,
            clock=lambda: self.now,
        )

    def look_up(self, _: Stream, commits: Mapping[TopicPartition, GroupCommit]) -> Lookup:
        if self.error is not None:
            raise self.error
        unknown = {partition for partition in commits if partition in self.silent or partition.topic in self.gone}
        known = {partition: commit for partition, commit in commits.items() if partition not in unknown}
        return Lookup(known, dict.fromkeys(known, 7), dict.fromkeys(self.gone), unknown, [])

    @property
    def member(self) -> str:
        return mark_of("me-1")

    def subscribed(self) -> dict[TopicPartition, GroupCommit]:
        return dict(self.commits)

    def others(self) -> list[GroupCommit]:
        return []

    def members(self) -> frozenset[str]:
        return frozenset({self.member})

    def rest(self) -> None:
        pass

    def fetch(self, partitions: Iterable[TopicPartition], *, timeout_s: float = 0) -> dict[TopicPartition, GroupCommit]:  # noqa: ARG002
        if self.unreachable:
            raise BrokerUnavailable("the coordinator is down")
        return {partition: self.commits.get(partition) for partition in partitions}

    def parts(self, records: Mapping[TopicPartition, CommitRecord]) -> Iterator[Mapping[TopicPartition, CommitRecord]]:
        yield records

    def commit(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        self.commits |= {partition: record for partition, record in records.items() if partition.topic not in self.refused}
        if any(partition.topic in self.refused for partition in records):
            raise TopicNotFound("unknown topic")

    def acquire(self, *partitions: TopicPartition) -> None:
        self.ledger.acquired(frozenset(partitions))
        self.pass_time(0)

    def pass_time(self, seconds: float) -> None:
        """The consumer's thread goes round after a while, and after each answer. Everything it asks is answered."""
        self.now += seconds
        self.ledger.idle()
        while self.survey.waiting:
            self.answer()

    def answer(self) -> None:
        """The brokers answer the oldest question, and the consumer's thread takes the answer."""
        assert self.survey.answer(0)
        self.ledger.idle()


@pytest.fixture
def group() -> Group:
    return Group()


def test_planning_begins_when_each_partition_was_asked_about_once(group: Group) -> None:
    group.silent = {NEW}
    group.ledger.acquired(frozenset({RECORDED, NEW}))
    group.answer()
    assert group.ledger.positions == {RECORDED: 5}
    assert not group.ledger.ready()
    group.answer()
    assert group.ledger.ready()
    assert group.ledger.positions == {RECORDED: 5}


def test_a_partition_that_went_away_and_came_back_is_adopted_from_its_record_of_now(group: Group) -> None:
    group.ledger.acquired(frozenset({NEW}))
    group.ledger.lost(frozenset({NEW}))
    group.commits[NEW] = Foreign(20)  # another member has had it meanwhile
    group.ledger.acquired(frozenset({NEW}))
    group.answer()
    assert not group.ledger.positions
    group.answer()
    assert group.ledger.positions == {NEW: 20}


def test_errors_about_a_partition_that_was_lost_do_not_count_for_the_next_one(group: Group) -> None:
    group.error = BrokerUnavailable("down")
    group.ledger.acquired(frozenset({NEW}))
    group.answer()
    group.ledger.lost(frozenset({NEW}))
    group.now += 100 * PATIENCE_S
    group.ledger.acquired(frozenset({RECORDED}))
    group.answer()
    group.now += PATIENCE_S + 1
    group.ledger.idle()
    with pytest.raises(BrokerUnavailable):
        group.answer()


def test_each_partition_has_a_patience_of_its_own(group: Group) -> None:
    """Something waits all the time, but nothing waits for long."""
    for number in range(10):
        silent = TopicPartition("orders", 10 + number)
        group.silent.add(silent)
        group.acquire(silent)
        group.pass_time(PATIENCE_S / 2)
        group.silent = {silent}
    assert len(group.ledger.positions) == 8


def test_a_partition_without_a_leader_delays_no_other_and_is_an_error_when_its_patience_is_over(group: Group) -> None:
    group.silent = {NEW}
    group.acquire(NEW)
    group.pass_time(PATIENCE_S / 2)
    group.acquire(OTHER)
    assert group.ledger.positions == {OTHER: 7}
    assert group.ledger.ready()
    group.pass_time(PATIENCE_S / 2)
    with pytest.raises(BrokerUnavailable, match=f"{NEW} .*leader"):
        group.pass_time(1)


def test_what_failed_before_is_asked_about_apart(group: Group) -> None:
    """Its leader may delay the answer for long."""
    group.silent = {NEW}
    group.acquire(NEW)
    group.now += 1
    group.ledger.acquired(frozenset({OTHER}))
    assert [set(question.commits) for question in group.survey.waiting] == [{OTHER}, {NEW}]


def test_a_partition_of_a_deleted_topic_is_waited_for_without_an_end(group: Group) -> None:
    group.gone = {"returns"}
    group.acquire(RECORDED, OTHER)
    for _ in range(10):
        group.pass_time(PATIENCE_S)
    assert group.ledger.positions == {RECORDED: 5}
    group.gone = set()
    group.pass_time(1)
    assert group.ledger.positions == {RECORDED: 5, OTHER: 7}, "the topic was created again"


def test_planning_begins_without_a_partition_when_all_their_topics_are_deleted(group: Group) -> None:
    group.gone = {"returns"}
    group.ledger.acquired(frozenset({OTHER}))
    assert not group.ledger.ready()
    group.pass_time(0)
    assert group.ledger.ready()
    group.ledger.acquired(frozenset({NEW}))
    assert not group.ledger.ready()
    group.pass_time(0)
    assert group.ledger.ready()
    assert group.ledger.positions == {NEW: 7}


def test_no_time_runs_for_a_deleted_topic_while_the_coordinator_is_down(group: Group) -> None:
    group.gone = {"returns"}
    group.acquire(RECORDED, OTHER)
    group.unreachable = True
    for _ in range(3):
        group.pass_time(PATIENCE_S)
    group.unreachable = False
    group.gone, group.silent = set(), {OTHER}
    group.pass_time(1)
    group.pass_time(PATIENCE_S)
    with pytest.raises(BrokerUnavailable, match="leader"):
        group.pass_time(1)


def test_a_coordinator_that_is_down_ends_the_adoption_when_the_patience_is_over(group: Group) -> None:
    group.unreachable = True
    group.acquire(RECORDED)
    group.pass_time(PATIENCE_S)
    with pytest.raises(BrokerUnavailable, match="the coordinator is down"):
        group.pass_time(1)


def test_a_topic_that_only_the_coordinator_knows_to_be_deleted_does_not_delay_the_others(group: Group) -> None:
    group.refused = {"returns"}
    group.acquire(RECORDED, NEW, OTHER)
    assert group.ledger.positions == {RECORDED: 5, NEW: 7}
    group.pass_time(PATIENCE_S / 2)
    group.gone = {"returns"}
    for _ in range(3):
        group.pass_time(PATIENCE_S)
    assert not group.ledger.in_flight(frozenset({OTHER}))


def test_a_topic_that_brokers_and_coordinator_disagree_about_is_an_error_when_the_patience_is_over(group: Group) -> None:
    group.refused = {"returns"}
    group.acquire(OTHER)
    group.pass_time(PATIENCE_S)
    with pytest.raises(TopicNotFound):
        group.pass_time(1)


def test_the_commits_of_deleted_topics_are_found_among_many_by_halving(group: Group) -> None:
    partitions = [TopicPartition(f"topic-{number:02}", 0) for number in range(64)]
    group.refused = {"topic-07", "topic-50"}
    group.acquire(*partitions)
    assert group.ledger.positions.keys() == {one for one in partitions if one.topic not in group.refused}


class TestRangesThatAreHeldForAnotherStream:
    """What its records show as done is asked on another thread."""

    DONE = CommitRecord(stream="them", logged=3, done=3, next=9)

    @pytest.fixture
    def group(self) -> Group:
        group = Group()
        group.commits[RECORDED] = CommitRecord(stream="them", logged=3, done=2, next=20, open=(OpenRange(0, 20),))
        return group

    def owed(self, group: Group) -> list[str]:
        record = group.ledger.known()[RECORDED]
        return [entry.stream for entry in record.owed]

    def hear(self, group: Group) -> None:
        until(lambda: group.ledger._confirmed_plans._answers.qsize() > 0, "the answer")
        group.pass_time(0)

    def test_are_dropped_when_the_answer_has_come_and_planning_waits_for_the_first_one(self, group: Group) -> None:
        group.commits[OTHER] = self.DONE
        group.acquire(RECORDED)
        assert self.owed(group) == ["them"]
        assert not group.ledger.ready()
        self.hear(group)
        assert group.ledger.ready()
        assert self.owed(group) == []

    def test_are_known_to_be_done_from_a_look_before_joining(self, group: Group) -> None:
        group.commits[OTHER] = self.DONE
        group.ledger.look_around(group.subscribed())
        group.acquire(RECORDED)
        assert self.owed(group) == []
        assert group.ledger.ready()

    def test_are_logged_once_they_are_known_to_be_held(self, group: Group, caplog: pytest.LogCaptureFixture) -> None:
        group.acquire(RECORDED)
        assert "held back" not in caplog.text
        self.hear(group)
        assert caplog.text.count("is held back: stream them claimed it in plan 3") == 1

    def test_are_asked_about_with_each_plan_and_between_triggers(self, group: Group) -> None:
        group.acquire(RECORDED)
        self.hear(group)
        group.commits[OTHER] = self.DONE
        group.now += 3
        group.ledger.ask_what_is_settled()
        self.hear(group)
        assert self.owed(group) == []


def test_a_checkpoint_behind_the_group_is_refused_before_the_member_joins(group: Group) -> None:
    with pytest.raises(CheckpointBehindGroup, match=f"{OTHER}: the group knows plan 5"):
        group.ledger.look_around({OTHER: CommitRecord(stream="a" * 12, logged=5, done=5, next=9)})


def test_partitions_are_adopted_while_others_drain_but_not_those_that_drain(group: Group) -> None:
    group.acquire(RECORDED)
    group.ledger.acquired(frozenset({NEW, OTHER}))
    group.ledger.draining(frozenset({RECORDED, OTHER}))
    group.pass_time(0)
    assert group.ledger.positions.keys() == {NEW}
    assert OTHER not in group.commits
    group.ledger.released(frozenset({RECORDED, OTHER}))
    group.acquire(OTHER)
    assert group.ledger.positions.keys() == {NEW, OTHER}


def test_a_finished_plan_that_no_record_can_show_is_worth_one_warning(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    group.acquire(NEW)
    stream = Stream("a" * 12, 0, -1, {NEW: (OffsetRange(7, 9),)})
    group.ledger.propose(stream.ranges)
    assert group.ledger.claim(stream).granted == stream.ranges
    group.ledger.lost(frozenset({NEW}))
    group.ledger.durable(0)
    for _ in range(3):
        group.ledger.confirm()
    assert caplog.text.count("plan 0 of stream aaaaaaaaaaaa is finished, but this query owns no partition now") == 1
