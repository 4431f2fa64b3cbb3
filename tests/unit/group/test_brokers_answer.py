"""What the brokers are asked before partitions are adopted, and which of them can be adopted by their answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from spark_groupsource.group.survey import BrokersAnswer, ask_brokers, warn_of_another_cluster
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, GroupCommit
from spark_groupsource.handoff.losses import Cause
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import OffsetRange, TopicPartition

ORDERS, MORE, RETURNS = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("returns", 0)
ME = Stream("me", logged=3, durable=3)
RECORDED = CommitRecord(stream="me", logged=3, done=3, next=40, topic_id="A" * 22)


class Brokers:
    """What they answer, and what they were asked."""

    def __init__(self, *silent: TopicPartition, **ids: str | None) -> None:
        self.silent, self.ids = set(silent), ids
        self.expected: Mapping[str, str | None] = {}
        self.asked: dict[str, set[TopicPartition]] = {}

    def ask(self, commits: Mapping[TopicPartition, GroupCommit], stream: Stream = ME) -> BrokersAnswer:
        return ask_brokers(
            stream,
            commits,
            starting_offsets=lambda partitions: self._offsets("starts", partitions, 5),
            topic_ids=self._ids,
            log_starts=lambda partitions: self._offsets("log starts", partitions, 2),
        )

    def _ids(self, expected: Mapping[str, str | None]) -> Mapping[str, str | None]:
        self.expected = expected
        return self.ids

    def _offsets(self, what: str, partitions: Collection[TopicPartition], offset: int) -> dict[TopicPartition, int]:
        self.asked[what] = set(partitions)
        return dict.fromkeys(set(partitions) - self.silent, offset)


def test_only_partitions_without_a_commit_and_without_a_place_in_the_last_plan_need_their_leader() -> None:
    brokers = Brokers(orders="A" * 22, returns="B" * 22)
    planned = Stream("me", logged=3, durable=3, ranges={RETURNS: (OffsetRange(0, 9),)}, topics={"returns": "B" * 22})
    found = brokers.ask({ORDERS: RECORDED, MORE: None, RETURNS: None}, planned)
    assert brokers.asked == {"starts": {MORE}}
    assert brokers.expected == {"orders": "A" * 22, "returns": "B" * 22}
    assert (found.starting, set(found.commits), list(found.unknown)) == ({MORE: 5}, {ORDERS, MORE, RETURNS}, [])


def test_a_partition_whose_leader_is_silent_or_whose_topic_is_deleted_cannot_be_adopted_now() -> None:
    found = Brokers(MORE, orders="A" * 22, returns=None).ask({ORDERS: Foreign(7), MORE: None, RETURNS: Foreign(7)})
    assert set(found.commits) == {ORDERS}
    assert set(found.unknown) == {MORE, RETURNS}
    assert found.deleted == {RETURNS}
    assert found.only([MORE]).unknown == [MORE]


def test_what_is_lost_with_a_topic_that_was_created_again_is_known_once_its_log_start_is() -> None:
    commits = {ORDERS: RECORDED, MORE: RECORDED}
    brokers = Brokers(MORE, orders="C" * 22)
    found = brokers.ask(commits)
    assert brokers.asked == {"log starts": {ORDERS, MORE}}
    assert [(loss.partition, loss.cause, loss.resume) for loss in found.losses] == [(ORDERS, Cause.RECREATED, 2)]
    assert set(found.unknown) == {MORE}


def test_a_group_that_was_moved_here_from_another_cluster_is_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_another_cluster({ORDERS: Foreign(7), MORE: RECORDED})
    assert caplog.messages == []
    warn_of_another_cluster({ORDERS: Foreign(7, "another"), MORE: RECORDED})
    assert "the commits of 1 partitions (orders-0, ...) were written in another Kafka cluster" in caplog.text
