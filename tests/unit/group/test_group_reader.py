"""What is read of a group beside a member's own partitions, where some topics may not be described."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from spark_groupsource.errors import NotAuthorized
from spark_groupsource.group import group_reader
from spark_groupsource.group.group_reader import GroupReader
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit
from spark_groupsource.partition import TopicPartition

MINE, THEIRS, MORE, CLOSED = (TopicPartition(name, 0) for name in ("mine", "theirs", "more", "closed"))


def record(stream: str) -> CommitRecord:
    return CommitRecord(stream=stream, logged=1, done=1, next=0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[TopicPartition]]:
    """Partitions of each request that was answered. The topic `closed` may not be described."""
    requests: list[list[TopicPartition]] = []

    def fetch(
        _: object, group_id: str, partitions: Iterable[TopicPartition], *, cluster_id: str | None
    ) -> dict[TopicPartition, GroupCommit]:
        assert (group_id, cluster_id) == ("billing", "here")
        partitions = sorted(partitions)
        if CLOSED in partitions:
            raise NotAuthorized("closed")
        requests.append(partitions)
        return {partition: record(partition.topic) for partition in partitions}

    monkeypatch.setattr(group_reader, "fetch_commits", fetch)
    return requests


def reader(*everywhere: TopicPartition) -> GroupReader:
    return GroupReader(
        {"bootstrap.servers": "127.0.0.1:1"},
        "billing",
        subscribed=lambda: [MINE],
        everywhere=lambda: list(everywhere),
        cluster_id="here",
    )


def test_other_topics_are_all_but_the_subscribed_ones(asked: list[list[TopicPartition]]) -> None:
    one = reader(MINE, THEIRS, MORE)
    assert one.subscribed() == {MINE: record("mine")}
    assert {commit.stream for commit in one.others() if isinstance(commit, CommitRecord)} == {"theirs", "more"}
    assert asked == [[MINE], [MORE, THEIRS]]


def test_topics_that_may_not_be_described_are_left_out(asked: list[list[TopicPartition]]) -> None:
    assert len(list(reader(THEIRS, CLOSED, MORE).others())) == 2
    assert sorted(asked) == [[MORE], [THEIRS]]


def test_thousands_of_partitions_take_several_requests(
    asked: list[list[TopicPartition]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_reader, "PARTITIONS_PER_REQUEST", 1)
    reader(THEIRS, MORE).others()
    assert asked == [[MORE], [THEIRS]]
