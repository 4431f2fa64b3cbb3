"""Brokers that are down for a while: what can be read is read, and what cannot is neither lost nor guessed."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from devtools.broker import Cluster
from devtools.broker.node import Node
from spark_groupsource.brokers import group_admin, topics
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.brokers.offsets import EARLIEST_OFFSET
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.errors import BrokerUnavailable
from spark_groupsource.group.member import State
from spark_groupsource.group.survey import BrokersAnswer, ask_brokers
from spark_groupsource.handoff.commit_record import GroupCommit
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition
from spark_groupsource.query import starting_offsets
from tests.conftest import NOT_FENCED, MakeTopic
from tests.kafka.conftest import Query
from tests.support.streams import MemberStream
from tests.support.waiting import until


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    """Three nodes. One that was killed is missed after some seconds, and may come back then."""
    with Cluster(nodes=3) as cluster:
        yield cluster


def fill(cluster: Cluster, topic: str, partitions: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, b"x", partition=number % partitions)
    assert producer.flush(60) == 0


def led_apart(cluster: Cluster) -> tuple[str, Node]:
    """Create a topic of three partitions with ten records each, every one on another node; return it and the node of the last."""
    made: list[dict[int, int]] = []

    def leaders_differ() -> bool:
        """A node that was late is not given a partition: then there is another topic."""
        topic = f"begins-{len(made)}"
        cluster.create_topic(topic, 3, replication=1)
        found = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(topic, timeout=60)
        made.append({number: partition.leader for number, partition in found.topics[topic].partitions.items()})
        return len(set(made[-1].values())) == 3

    until(leaders_differ, f"a topic on three nodes: {made}")
    topic = f"begins-{len(made) - 1}"
    fill(cluster, topic, 3, 30)
    return topic, next(node for node in cluster.nodes if node.id == made[-1][2])


def latest(cluster: Cluster, topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.group.id": f"group-of-{topic}",
        "subscribe": topic,
        "startingOffsets": "latest",
    }


def test_a_leader_that_is_away_when_the_stream_begins_is_asked_later_and_the_others_are_read_meanwhile(
    monkeypatch: pytest.MonkeyPatch, three: Cluster
) -> None:
    """With startingOffsets=latest its place cannot be known; reading from 0 would be wrong, so it is adopted later."""
    monkeypatch.setattr(group_admin, "REQUEST_TIMEOUT_S", 3.0)
    # So long it asks for the start of the third partition, and the two others have to answer within it.
    monkeypatch.setattr(starting_offsets, "AT_START_S", 20.0)
    name, node = led_apart(three)
    node.kill()
    a = Query(latest(three, name))
    try:
        assert a.done.starts == {name: {"0": (10, 10, -1)}}
        a.until_planning(2)
        assert dict(a.positions) == {TopicPartition(name, 0): 10, TopicPartition(name, 1): 10}
        describer = GroupAdmin({"bootstrap.servers": three.bootstrap_servers})
        ends = {one.partition.partition: one.end for one in describer.describe(f"group-of-{name}").partitions}
        assert ends == {0: 10, 1: 10, 2: None}
        with pytest.raises(BrokerUnavailable, match=rf"{name}-2(:.* Leader not available| does not answer)"):
            describer.offsets_at([TopicPartition(name, 1), TopicPartition(name, 2)], EARLIEST_OFFSET)
        fill(three, name, 2, 2)
        assert a.run_batch()
        assert a.done.starts == {name: {"2": (-1,)}}
        node.start()
        a.until_planning(3)
        assert a.positions[TopicPartition(name, 2)] == 10
    finally:
        a.cycle.stop()
        node.start()


@pytest.mark.long
def test_a_leader_that_hangs_delays_neither_the_member_nor_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers are asked about its partition on another thread. The others are adopted without it."""
    # A call that waited for the silent leader would take so long.
    monkeypatch.setattr(topics, "REQUEST_TIMEOUT_S", 15.0)
    with Cluster(nodes=3, config={**NOT_FENCED, "offsets.topic.replication.factor": "1"}) as cluster:
        cluster.create_topic("orders", 3, replication=1)
        silent, node = led_by_another_than_the_coordinator(cluster, "orders", "billing")
        asked: list[Collection[TopicPartition]] = []

        def ask(stream: Stream, commits: Mapping[TopicPartition, GroupCommit], **brokers: Any) -> BrokersAnswer:
            node.pause()  # the member has joined by now
            asked.append(commits.keys())
            return ask_brokers(stream, commits, **brokers)

        monkeypatch.setattr("tests.support.streams.ask_brokers", ask)
        needed = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.group.id": "billing", "subscribe": "orders"}
        stream = MemberStream("a" * 12, {**needed, "handoff.drainTimeout": "60s"}).start()
        member, ledger = stream.member, stream.ledger
        slowest = 0.0

        def call() -> None:
            nonlocal slowest
            began = time.monotonic()
            member.call(ledger.confirm)
            slowest = max(slowest, time.monotonic() - began)

        def adopted() -> set[int]:
            call()
            return {partition.partition for partition in ledger.positions}

        try:
            until(lambda: member.wait_joined(90), "the assignment")
            until(lambda: adopted() == {0, 1, 2} - {silent} and len(asked) > 1, "two of three partitions, and a question anew")
            for _ in range(50):
                call()
                time.sleep(0.1)
            member.close()
            assert member.state is State.LEFT
            assert slowest < 12
        finally:
            node.resume()
            member.close()


def led_by_another_than_the_coordinator(cluster: Cluster, topic: str, group: str) -> tuple[int, Node]:
    """Return a partition, and its leader, without which the group goes on."""
    Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group}).committed([KafkaTopicPartition(topic, 0)])
    found = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=60)
    hashed = functools.reduce(lambda so_far, letter: (31 * so_far + ord(letter)) & 0xFFFFFFFF, group, 0)
    offsets = found.topics["__consumer_offsets"].partitions
    coordinator = offsets[(hashed & 0x7FFFFFFF) % len(offsets)].leader
    leaders = {number: partition.leader for number, partition in found.topics[topic].partitions.items()}
    silent = next(number for number in sorted(leaders) if leaders[number] != coordinator)
    assert list(leaders.values()).count(leaders[silent]) == 1, leaders
    return silent, next(node for node in cluster.nodes if node.id == leaders[silent])


def test_a_leader_that_does_not_answer_is_left_out_soon_and_waited_for_when_it_has_been_silent_for_long(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, topic: MakeTopic
) -> None:
    """A plan must not wait for a dead broker; but one that is only slow has to be heard at some time."""
    monkeypatch.setattr(topics, "SHORT_TIMEOUT_S", 0.5)
    monkeypatch.setattr(topics, "REQUEST_TIMEOUT_S", 60.0)
    monkeypatch.setattr(topics, "FIRST_TIMEOUTS_S", (1.0,))
    now = 0.0
    name = topic()
    (node,) = cluster.nodes
    options = Options.parse(
        {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.group.id": "billing", "subscribe": name}
    )
    known = Topics(options.client_settings(), options, read_committed=False, patience_s=3600, clock=lambda: now)
    partition = TopicPartition(name, 0)
    assert known.ends([partition]) == {partition: 0}
    node.pause()
    back = threading.Timer(3, node.resume)  # its session does not end (tests/conftest.py, NOT_FENCED)
    back.start()
    try:
        assert known.ends([partition]) == {}
        now = 61.0
        assert known.ends([partition]) == {partition: 0}
    finally:
        back.cancel()
        back.join()
        node.resume()
