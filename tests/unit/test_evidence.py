"""Where a stream looks for the plans that other streams have confirmed, and how often."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from spark_groupsource.errors import BrokerUnavailable, GroupKafkaError, NotAuthorized
from spark_groupsource.group import evidence
from spark_groupsource.group.evidence import LOOK_ELSEWHERE_EVERY_S, ConfirmedPlans, record_that_shows
from spark_groupsource.group.fenced_commits import FencedCommits
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit, Newer, OpenRange, OwedRange
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import OffsetRange, TopicPartition

MINE, THEIRS, CLOSED = TopicPartition("mine", 0), TopicPartition("theirs", 0), TopicPartition("closed", 0)
ME = Stream("me", logged=4, durable=4)
HOLDING = CommitRecord(stream="me", logged=4, done=4, next=20, owed=(OwedRange("them", 7, 0, 10),))


def done(stream: str, plan: int) -> CommitRecord:
    return CommitRecord(stream=stream, logged=plan, done=plan, next=0)


class Group(FencedCommits):
    """What a group holds, and which requests it got."""

    def __init__(self, commits: Mapping[TopicPartition, GroupCommit], *refused: str) -> None:
        self.commits = dict(commits)
        self.refused = refused
        self.failure: GroupKafkaError | None = None
        self.asked: list[list[TopicPartition]] = []
        self.now = 0.0
        self.plans = ConfirmedPlans(lambda: [MINE], self.others, clock=lambda: self.now)

    def others(self) -> list[TopicPartition]:
        if self.failure is not None:
            raise self.failure
        return sorted(self.commits)

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, GroupCommit]:
        self.asked.append(sorted(partitions))
        for partition in self.asked[-1]:
            if partition.topic in self.refused:
                raise NotAuthorized(partition.topic)
        return {partition: self.commits.get(partition) for partition in self.asked[-1]}

    def find(self, *holding: GroupCommit) -> dict[str, int]:
        self.asked = []
        return self.plans.find(self, ME, [MINE], holding or [HOLDING])


def test_other_topics_are_asked_for_what_the_subscribed_ones_do_not_settle() -> None:
    group = Group({MINE: HOLDING, THEIRS: done("them", 7)})
    assert group.find() == {"me": 4, "them": 7}
    assert group.asked == [[MINE], [THEIRS]]


def test_no_other_topic_is_asked_for_when_the_subscribed_ones_settle_everything() -> None:
    group = Group({MINE: done("them", 7), THEIRS: done("them", 9)})
    assert group.find() == {"me": 4, "them": 7}
    owing_itself = HOLDING.model_copy(update={"owed": (OwedRange("me", 5, 0, 10),)})
    assert group.find(owing_itself, Newer(3, 2), None) == {"me": 4, "them": 7}, "its own commit log settles its own plans"
    assert group.asked == [[MINE]]


def test_a_record_elsewhere_does_not_know_more_of_this_stream_than_its_own_checkpoint() -> None:
    group = Group({MINE: HOLDING, THEIRS: done("me", 9)})
    assert group.find() == {"me": 4}


def test_other_topics_are_asked_for_a_plan_at_once_and_then_now_and_then() -> None:
    group = Group({MINE: HOLDING, THEIRS: done("them", 6)})
    group.find()
    group.find()
    assert group.asked == [[MINE]], "they were just asked"
    left_open = CommitRecord(stream="third", logged=2, done=1, next=9, open=(OpenRange(0, 9),))
    group.find(HOLDING, left_open)
    assert group.asked == [[MINE], [THEIRS]], "another stream's plan"
    group.now = LOOK_ELSEWHERE_EVERY_S
    group.commits[THEIRS] = done("them", 7)
    assert group.find()["them"] == 7


def test_topics_that_may_not_be_described_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group({MINE: HOLDING, CLOSED: done("them", 8), THEIRS: done("them", 7)}, "closed")
    assert group.find()["them"] == 7
    assert group.plans.spared == frozenset()
    monkeypatch.setattr(evidence, "PARTITIONS_PER_REQUEST", 1)
    group = Group({MINE: HOLDING, THEIRS: done("them", 7), TopicPartition("theirs", 1): None})
    assert group.find()["them"] == 7
    assert group.asked == [[MINE], [THEIRS], [TopicPartition("theirs", 1)]]


def test_a_stream_is_spared_until_other_topics_were_asked_for_its_plan() -> None:
    group = Group({MINE: HOLDING, THEIRS: done("them", 6)})
    group.failure = BrokerUnavailable("no answer")
    assert group.find() == {"me": 4}
    assert group.plans.spared == {"them"}, "it may have confirmed the range elsewhere: nobody rereads it"
    group.failure = None
    group.find()
    assert group.asked == [[MINE]], "a request that failed is not repeated at once"
    group.now = LOOK_ELSEWHERE_EVERY_S
    group.find()
    assert group.plans.spared == frozenset()


def test_a_stream_is_spared_while_it_has_the_record_of_another_member_s_partition() -> None:
    group = Group({MINE: done("them", 5), THEIRS: done("them", 6)})
    group.plans.find(group, ME, [], [HOLDING])
    assert group.plans.spared == {"them"}


def test_a_stream_that_released_its_claims_open_shows_in_another_record_that_they_are_done() -> None:
    stream = Stream("me", logged=5, durable=5, ranges={THEIRS: (OffsetRange(0, 10),)})
    (shown,) = record_that_shows(stream, {MINE: done("me", 4)}).items()
    assert (shown[0], shown[1].done, shown[1].logged) == (MINE, 5, 5)
    assert record_that_shows(stream, {MINE: done("me", 5)}) == {}
    assert record_that_shows(stream, {}) == {}
    assert record_that_shows(stream, {MINE: done("me", 4), THEIRS: done("me", 4)}) == {}, "its next claim shows it"
