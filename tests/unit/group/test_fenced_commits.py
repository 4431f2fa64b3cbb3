"""How records are put into commits. What the broker does with them is in tests/kafka/group/test_fenced_commits.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest
from confluent_kafka import Consumer

from spark_groupsource.errors import GenerationChanged, TopicNotFound
from spark_groupsource.group import fenced_commits
from spark_groupsource.group.fenced_commits import FencedCommits
from spark_groupsource.handoff.commit_record import CommitRecord, OpenRange, OwedRange
from spark_groupsource.partition import TopicPartition

OWED = tuple(OwedRange("b", 1, start, start + 1) for start in (0, 2, 4))


class Commits(FencedCommits):
    """Commits to a group in which some topics do not exist."""

    def __init__(self, *missing: str) -> None:
        super().__init__(cast(Consumer, None), "billing")
        self.missing = set(missing)
        self.refuses = False
        self.sent: list[set[TopicPartition]] = []

    def commit(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        self.sent.append(set(records))
        if self.refuses:
            raise GenerationChanged("a rebalance")
        if any(partition.topic in self.missing for partition in records):
            raise TopicNotFound("unknown topic")


def records(topics: int, partitions: int = 1) -> dict[TopicPartition, CommitRecord]:
    return {
        TopicPartition(f"topic-{topic:02}", partition): CommitRecord(stream="a" * 12, logged=1, done=0, next=9)
        for topic in range(topics)
        for partition in range(partitions)
    }


def test_all_records_are_one_commit_and_none_are_no_commit() -> None:
    commits = Commits()
    written = records(3)
    assert list(commits.write(written)) == [written]
    assert list(commits.write({})) == []
    assert commits.sent == [set(written)]


def test_records_that_fill_a_commit_are_written_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    commits = Commits()
    written = records(1, partitions=5)
    monkeypatch.setattr(fenced_commits, "MAX_COMMIT_BYTES", 1000)
    assert [len(part) for part in commits.write(written)] == [2, 2, 1]
    owing = written | dict.fromkeys(
        [min(written)],
        CommitRecord(stream="a" * 12, logged=1, done=0, next=9, open=(OpenRange(5, 9),), owed=OWED),
    )
    assert [len(part) for part in commits.write(owing)] == [1, 2, 2]


def test_only_the_records_of_missing_topics_are_left_out() -> None:
    commits = Commits("topic-07", "topic-50")
    written = records(64, partitions=2)
    accepted: list[Mapping[TopicPartition, CommitRecord]] = []
    with pytest.raises(TopicNotFound):
        accepted.extend(commits.write(written))
    others = {partition for partition in written if partition.topic not in commits.missing}
    assert {partition for part in accepted for partition in part} == others
    assert len(commits.sent) < 30, "topics are halved, not tried one after the other"


def test_what_was_accepted_before_an_error_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    commits = Commits()
    monkeypatch.setattr(fenced_commits, "MAX_COMMIT_BYTES", 1)
    writing = commits.write(records(2))
    assert next(writing).keys() == {TopicPartition("topic-00", 0)}
    commits.refuses = True
    with pytest.raises(GenerationChanged):
        next(writing)
