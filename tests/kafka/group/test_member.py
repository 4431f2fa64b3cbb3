"""A driver's life as a member of its group, under both rebalance protocols, against a real broker."""

from __future__ import annotations

import json
import logging
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from devtools.broker import Cluster
from spark_groupsource.errors import MemberFenced, MembershipClosed
from spark_groupsource.group.member import State
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import MakeOptions
from tests.support.streams import MemberStream, member_stream
from tests.support.waiting import until

SESSION_S = 45
LongSession = Callable[[str], dict[str, str]]


@pytest.fixture
def long_session(cluster: Cluster, protocol: str) -> LongSession:
    """Returns the options of members whose session no busy machine outlasts, for the group of a topic."""

    def make(name: str) -> dict[str, str]:
        if protocol == "classic":
            return {"kafka.session.timeout.ms": str(SESSION_S * 1000)}
        group = ("--entity-type", "groups", "--entity-name", f"group-of-{name}")
        longer = ("--alter", "--add-config", f"consumer.session.timeout.ms={SESSION_S * 1000}")
        argv = cluster.tool(
            "org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", cluster.bootstrap_servers, *group, *longer
        )
        subprocess.run(argv, check=True, capture_output=True, timeout=120)
        return {}

    return make


def until_shared(a: MemberStream, b: MemberStream, each: int) -> None:
    """Wait until both own so many partitions, none of them in common: one that was late may not know yet what it has lost."""
    until(lambda: len(a.owned) == len(b.owned) == each and not a.owned & b.owned, f"{each} partitions for each of the two")


def test_a_lone_driver_gets_every_partition_until_it_leaves_and_each_change_is_logged(
    topic: MakeTopic, options: MakeOptions, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "spark_groupsource.group.member")
    name = topic(partitions=2)
    with member_stream("a", options(name)) as a:
        a.until_owning(2)
        generation = a.member.assignment.generation
        assert generation >= 1
        assert a.member.assignment.member_id
        before = a.member.state
    assert (before, a.member.state) == (State.MEMBER, State.LEFT)
    with pytest.raises(MembershipClosed):
        a.member.call(lambda: None)
    gained = f"gained [{name}-0 {name}-1] lost [] kept []"
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    if a.options.group_protocol == "classic":
        assert f"generation {generation}: {gained}" in lines
    else:  # the callback comes before the epoch that it belongs to
        assert any(gained in line for line in lines)


def test_a_driver_that_leaves_hands_over_before_its_session_would_be_over(
    topic: MakeTopic, options: MakeOptions, long_session: LongSession
) -> None:
    name = topic(partitions=6)
    long = options(name, **long_session(name))
    with member_stream("a", long) as a, member_stream("b", long) as b:
        until_shared(a, b, 3)
        b.member.close()
        assert a.until_owning(6) < SESSION_S / 2


def test_the_members_consumer_fetches_no_record(topic: MakeTopic, options: MakeOptions, produce: Produce) -> None:
    name = topic(partitions=3)
    produce(name, [(None, b"x" * 1000)] * 300)
    statistics: list[dict[str, Any]] = []
    noted: dict[str, Any] = {"statistics.interval.ms": "200", "stats_cb": lambda text: statistics.append(json.loads(text))}
    stream = MemberStream("a", options(name), noted).start()
    stream.until_owning(3)
    seen = len(statistics)
    until(lambda: len(statistics) > seen + 5, "statistics after the assignment")
    stream.member.close()
    newest = statistics[-1]
    requests = Counter[str]()
    for broker in newest["brokers"].values():
        requests.update(broker["req"])
    assert newest["rxmsgs"] == requests["Fetch"] == 0
    assert requests["OffsetCommit"] > 0, "requests do have these names"


def test_new_partitions_of_a_topic_arrive(topic: MakeTopic, options: MakeOptions, admin: AdminClient) -> None:
    name = topic(partitions=2)
    with member_stream("a", options(name)) as a:
        a.until_owning(2)
        admin.create_partitions([NewPartitions(name, 5)])[name].result(30)
        a.until_owning(5)


def test_a_new_topic_that_matches_the_pattern_arrives(topic: MakeTopic, options: MakeOptions, admin: AdminClient) -> None:
    name = topic(partitions=2)
    by_pattern = options(name, subscribePattern=f"({name}|no[^a-z.]such)(-[a-z]{{4}})?")
    del by_pattern["subscribe"]
    with member_stream("a", by_pattern) as a:
        a.until_owning(2)
        admin.create_topics([NewTopic(f"{name}-more", 3)])[f"{name}-more"].result(30)
        a.until_owning(5)


def test_restarting_a_static_member_moves_nothing(topic: MakeTopic, options: MakeOptions, long_session: LongSession) -> None:
    name = topic(partitions=4)
    long = options(name, **long_session(name))
    static = {**long, "kafka.group.instance.id": "driver-1"}
    with member_stream("peer", long) as peer:
        with member_stream("a", static) as first:
            first.until_owning(2)
            peer.until_owning(2)
            if peer.options.group_protocol == "classic":
                until(
                    lambda: len({stream.member.assignment.generation for stream in (first, peer)}) == 1, "one generation for both"
                )
            owned, generation = first.owned, peer.member.assignment.generation
        with member_stream("a", static) as second:
            second.until_owning(2)
            assert second.owned == owned
            assert len(peer.owned) == 2
            if peer.options.group_protocol == "classic":
                assert peer.member.assignment.generation == generation


def test_a_second_process_with_the_same_instance_id_ends_one_of_the_two(
    topic: MakeTopic, options: MakeOptions, protocol: str
) -> None:
    name = topic(partitions=2)
    static = options(name, **{"kafka.group.instance.id": "driver-1"})
    with member_stream("a", static) as first:
        first.until_owning(2)
        second = MemberStream("b", static).start()
        # Classic: the older one is fenced (KIP-345). KIP-848: the newer one is refused while the older one lives.
        loser = first if protocol == "classic" else second
        until(lambda: loser.member.state is State.FAILED, "one of the two is fenced")
        with pytest.raises(MemberFenced, match=r"kafka\.group\.instance\.id"):
            loser.member.call(lambda: None)
        second.member.close()


def test_a_member_that_was_not_polling_for_too_long_rejoins(topic: MakeTopic, options: MakeOptions, protocol: str) -> None:
    name = topic(partitions=2)
    session = {"kafka.session.timeout.ms": "2000"} if protocol == "classic" else {}
    short = options(name, **{"kafka.max.poll.interval.ms": "3000", "handoff.drainTimeout": "2s"}, **session)
    with member_stream("a", short) as a:
        a.until_owning(2)
        with member_stream("b", options(name)) as b:
            b.until_owning(1)
            a.member.call(lambda: time.sleep(4))
            until_shared(a, b, 1)


def test_members_with_an_eager_assignor_share_the_partitions_too(topic: MakeTopic, cluster: Cluster) -> None:
    name = topic(partitions=4)
    eager: Mapping[str, str] = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.group.id": f"eager-{name}",
        "kafka.partition.assignment.strategy": "roundrobin",
        "subscribe": name,
    }
    with member_stream("a", eager) as a:
        a.until_owning(4)
        with member_stream("b", eager) as b:
            until_shared(a, b, 2)
        a.until_owning(4)
