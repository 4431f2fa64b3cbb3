"""What is read of a group beside a member's own partitions, where some topics may not be described."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace

import pytest

from spark_groupsource.errors import BrokerUnavailable, NotAuthorized
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


def test_looks_that_come_every_ten_seconds_have_the_same_client(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[object] = []
    clock = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(group_reader, "time", SimpleNamespace(monotonic=lambda: clock.s))
    silent = False

    def fetch(client: object, *_: object, **__: object) -> dict[TopicPartition, GroupCommit]:
        used.append(client)
        if silent:
            raise BrokerUnavailable("no answer")
        return {}

    monkeypatch.setattr(group_reader, "fetch_commits", fetch)
    one = reader()
    for pause_s in (0, 10, 11, 15, 120, 10):
        clock.s += pause_s
        one.subscribed()
    assert [used.index(client) for client in used] == [0, 0, 0, 0, 4, 4], "a new one only after a long pause"
    silent = True
    with pytest.raises(BrokerUnavailable):
        one.subscribed()
    silent = False
    one.subscribed()
    assert used[-1] is not used[-2], "and after silence"
