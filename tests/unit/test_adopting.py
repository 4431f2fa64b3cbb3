"""Adoption while brokers are slow: what the ledger does until they answer, and what it has forgotten by then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pytest

from spark_groupsource.errors import BrokerUnavailable
from spark_groupsource.group.adoption import Lookup
from spark_groupsource.group.fenced_commits import FencedCommits
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, GroupCommit
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import TopicPartition
from tests.simulation.survey import HeldSurvey

RECORDED, NEW = TopicPartition("orders", 0), TopicPartition("orders", 1)
PATIENCE_S = 10.0


class Group(FencedCommits):
    """What a group holds, and brokers that answer when a test says so. Partitions in `silent` have no leader."""

    def __init__(self) -> None:
        self.commits: dict[TopicPartition, GroupCommit] = {RECORDED: Foreign(5)}
        self.silent: set[TopicPartition] = set()
        self.error: Exception | None = None
        self.now = 0.0
        self.survey = HeldSurvey(self.look_up)
        self.ledger = Ledger(
            *(Stream("a" * 12), self),
            survey=self.survey,
            all_partitions=lambda: [RECORDED, NEW],
            patience_s=PATIENCE_S,
            clock=lambda: self.now,
        )

    def look_up(self, _: Stream, commits: Mapping[TopicPartition, GroupCommit]) -> Lookup:
        if self.error is not None:
            raise self.error
        known = {partition: commit for partition, commit in commits.items() if partition not in self.silent}
        return Lookup(known, dict.fromkeys(known, 7), {}, self.silent & commits.keys(), [])

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, GroupCommit]:
        return {partition: self.commits.get(partition) for partition in partitions}

    def parts(self, records: Mapping[TopicPartition, CommitRecord]) -> Iterator[Mapping[TopicPartition, CommitRecord]]:
        yield records

    def commit(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        self.commits |= records

    def answer(self) -> None:
        """The brokers answer the oldest question, and the consumer's thread takes the answer."""
        assert self.survey.answer(0)
        self.ledger.idle()


@pytest.fixture
def group() -> Group:
    return Group()


def test_a_partition_is_adopted_when_the_brokers_have_answered(group: Group) -> None:
    group.ledger.acquired(frozenset({NEW}))
    assert not group.ledger.positions
    group.answer()
    assert group.ledger.positions == {NEW: 7}


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
