"""Commits of members that the group has removed, and of epochs that have passed, on several versions of Kafka.

Up to Kafka 4.2 a commit has to have the member's epoch. From 4.3 on one with an earlier epoch is accepted if the member had all
its partitions by then (KIP-1251).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import KafkaError

from devtools.broker import Cluster
from spark_groupsource.errors import GenerationChanged, MemberFenced, MemberUnknown
from spark_groupsource.group.member import State
from spark_groupsource.handoff.commit_record import CommitRecord
from tests.conftest import SHORT_SESSIONS
from tests.support.group_offsets import committed_offsets
from tests.support.raw_member import RawMember
from tests.support.streams import MemberStream, member_stream
from tests.support.waiting import until

pytestmark = pytest.mark.versions

STALE = KafkaError.STALE_MEMBER_EPOCH
SESSION_S = 6.0


@pytest.fixture(scope="module", params=["4.1", None], ids=["4.1", "newest"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(version=request.param, config=SHORT_SESSIONS) as running:
        assert request.param is None or running.version.startswith(request.param)
        yield running


def earlier_epochs_count(cluster: Cluster) -> bool:
    major, minor, *_ = cluster.version.split(".")
    return (int(major), int(minor)) >= (4, 3)


@pytest.fixture(params=["classic", "consumer"])
def options(cluster: Cluster, request: pytest.FixtureRequest) -> Callable[..., dict[str, str]]:
    protocol: str = request.param

    def make_options(topic: str, **more: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "kafka.group.id": f"{protocol}-{topic}",
            "kafka.group.protocol": protocol,
            "subscribe": topic,
            **({"kafka.session.timeout.ms": "6000"} if protocol == "classic" else {}),
            **more,
        }

    return make_options


def test_a_member_that_the_group_has_removed_commits_nothing(cluster: Cluster, options: Callable[..., dict[str, str]]) -> None:
    name = f"removed-{time.time_ns()}"
    cluster.create_topic(name, 2)
    short = options(name, **{"kafka.max.poll.interval.ms": "6000", "handoff.drainTimeout": "5s"})
    with member_stream("a", short) as a, member_stream("b", options(name)) as b:
        a.until_owning(1)
        b.until_owning(1)

        def removed_meanwhile() -> None:
            mine = a.ledger.known()
            b.until_owning(2)
            a.commits.commit(mine)

        with pytest.raises((GenerationChanged, MemberUnknown)):
            a.member.call(removed_meanwhile)
        records = b.member.call(partial(b.commits.fetch, list(b.owned)))
        assert {record.stream for record in records.values() if isinstance(record, CommitRecord)} == {"b"}


def test_of_two_processes_with_the_same_instance_id_one_commits_nothing(
    cluster: Cluster, options: Callable[..., dict[str, str]]
) -> None:
    name = f"static-{time.time_ns()}"
    cluster.create_topic(name, 2)
    static = options(name, **{"kafka.group.instance.id": "driver-1"})
    with member_stream("a", static) as first:
        first.until_owning(2)
        mine = first.ledger.known()
        second = MemberStream("b", static).start()
        loser = first if first.options.group_protocol == "classic" else second
        until(lambda: loser.member.state is State.FAILED, "one of the two is fenced")
        with pytest.raises(MemberFenced):
            loser.member.call(partial(loser.commits.commit, mine))
        second.member.close()


@pytest.fixture
def epochs(cluster: Cluster) -> Iterator[tuple[RawMember, RawMember, int]]:
    """Two members with one partition each, and the epoch in which the first one had both."""
    name = f"epochs-{time.time_ns()}"
    cluster.create_topic(name, 2)

    def member() -> RawMember:
        return RawMember(cluster.bootstrap_servers, name, name)

    def settled(*members: RawMember) -> bool:
        for one in members:
            one.settle()
        return [len(one.owned) for one in members] == [2 // len(members)] * len(members)

    with member() as a, member() as b:
        until(lambda: settled(a), "both partitions for the first")
        before = a.epoch
        until(lambda: settled(a, b), "one partition for each")
        assert a.epoch > before
        yield a, b, before


def test_a_commit_with_an_earlier_epoch(cluster: Cluster, epochs: tuple[RawMember, RawMember, int]) -> None:
    a, b, before = epochs
    (kept,), (moved,) = a.owned, b.owned
    counts = earlier_epochs_count(cluster)
    assert a.commit({kept: 1}, before) == {kept: 0 if counts else STALE}
    assert a.commit({moved: 1}, before) == {moved: STALE}, "it has moved to the other member"
    assert a.commit({kept: 1}, a.epoch + 1) == {kept: STALE}
    assert committed_offsets(cluster, a.group, a.topic) == ({kept: 1} if counts else {})
    # No version accepts a commit in part: Kafka 4.3.1 looks at each partition, and refuses all of them for one.
    assert a.commit({kept: 2, moved: 2}, before) == {kept: STALE, moved: STALE}
    assert committed_offsets(cluster, a.group, a.topic) == ({kept: 1} if counts else {})


def test_a_commit_with_the_members_epoch_is_accepted_whoever_has_the_partition(
    cluster: Cluster, epochs: tuple[RawMember, RawMember, int]
) -> None:
    a, b, _ = epochs
    (kept,), (moved,) = a.owned, b.owned
    assert a.commit({kept: 3, moved: 3}, a.epoch) == {kept: 0, moved: 0}
    assert committed_offsets(cluster, a.group, a.topic) == {kept: 3, moved: 3}


def test_a_commit_after_the_session_is_over(cluster: Cluster, epochs: tuple[RawMember, RawMember, int]) -> None:
    a, b, before = epochs
    b.settle()

    def has_all() -> bool:
        time.sleep(0.5)
        b.settle()
        return len(b.owned) == 2

    assert until(has_all, "the other member has everything") < 3 * SESSION_S
    for epoch in (a.epoch, before):
        assert set(a.commit({0: 4, 1: 4}, epoch).values()) == {KafkaError.UNKNOWN_MEMBER_ID}
    assert committed_offsets(cluster, a.group, a.topic) == {}
