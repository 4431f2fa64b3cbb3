"""Partitions that a stream began with and got late: they start where the options named when the stream began."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from devtools.broker import Cluster
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import MakeQuery
from tests.support.consumers import plain_member
from tests.support.waiting import until

LONG_AGO, LATER = 1_000, 1_700_000_000_000

Fill = Callable[[str], None]


@pytest.fixture
def timed(cluster: Cluster) -> Fill:
    """Returns what fills both partitions of a topic with 7 old records and 3 younger ones."""

    def fill(name: str) -> None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for partition in range(2):
            for number in range(10):
                time = LONG_AGO if number < 7 else LATER + number
                producer.produce(name, b"x", partition=partition, timestamp=time)
        assert producer.flush(60) == 0

    return fill


@contextmanager
def plain_consumer(cluster: Cluster, name: str) -> Iterator[None]:
    """A consumer that is idle: it is in the group, has a partition, and commits nothing."""
    cooperative = {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": "300"}
    with plain_member(cluster, f"group-of-{name}", name, {**cooperative, "auto.offset.reset": "latest"}) as plain:
        until(lambda: plain.owned == 2, "the plain consumer has both partitions")
        yield


def by_offset(name: str) -> str:
    return json.dumps({name: {"0": 4, "1": 4}})


STARTS = pytest.mark.parametrize(
    ("starting", "begins", "restarts"),
    [
        ({"startingOffsets": "latest"}, 10, 0),
        ({"startingOffsets": "latest"}, 10, 2),
        ({"startingTimestamp": str(LATER)}, 7, 0),
        ({"startingOffsets": "JSON"}, 4, 0),
    ],
    ids=["latest", "latest, and later", "by time", "by offset"],
)


def of(name: str, starting: Mapping[str, str]) -> dict[str, str]:
    return {option: by_offset(name) if value == "JSON" else value for option, value in starting.items()}


class TestAPartitionThatAnIdleConsumerHolds:
    @STARTS
    def test_starts_where_the_options_named_when_the_stream_began(
        self,
        topic: MakeTopic,
        produce: Produce,
        query: MakeQuery,
        cluster: Cluster,
        timed: Fill,
        starting: dict[str, str],
        begins: int,
        restarts: int,
    ) -> None:
        name = topic(partitions=2)
        timed(name)
        with plain_consumer(cluster, name):
            a = query(name, **of(name, starting))
            a.until_planning(1)
            (mine,) = (partition.partition for partition in a.positions)
            for partition in range(2):
                produce(name, [(None, b"y")] * 5, partition)
            assert a.run_batch() == {mine: (begins, 15)}
            for number in range(restarts):
                a.store()
                a.restart()
                produce(name, [(None, b"y")], mine)
                assert a.run_batch() == {mine: (15 + number, 16 + number)}
        assert a.run_batch() == {1 - mine: (begins, 15)}, "with the records that came meanwhile"

    def test_starts_there_if_it_comes_after_an_empty_first_batch(
        self, topic: MakeTopic, produce: Produce, query: MakeQuery, cluster: Cluster, timed: Fill
    ) -> None:
        name = topic(partitions=2)
        timed(name)
        with plain_consumer(cluster, name):
            a = query(name, startingOffsets="latest")
            a.until_planning(1)
            (mine,) = (partition.partition for partition in a.positions)
            assert a.claim() == {}
            a.store()
            a.cycle.stop()
        produce(name, [(None, b"y")] * 5, 1 - mine)
        a.restart()
        assert a.run_batch() == {1 - mine: (10, 15)}

    @pytest.mark.parametrize(
        ("first", "then", "begins", "planned"),
        [
            ({"startingOffsets": "latest"}, {"startingOffsets": "earliest"}, 10, True),
            ({"startingOffsets": "earliest"}, {"startingOffsets": "latest"}, 0, False),
        ],
        ids=["latest, with a plan", "earliest"],
    )
    def test_starts_where_the_options_named_first_although_they_were_changed(
        self,
        topic: MakeTopic,
        produce: Produce,
        query: MakeQuery,
        cluster: Cluster,
        timed: Fill,
        first: dict[str, str],
        then: dict[str, str],
        begins: int,
        planned: bool,
    ) -> None:
        name = topic(partitions=2)
        timed(name)
        with plain_consumer(cluster, name):
            a = query(name, **first)
            a.until_planning(1)
            (mine,) = (partition.partition for partition in a.positions)
            if planned:
                produce(name, [(None, b"y")] * 5, mine)
                a.run_batch()
            a.store()
            a.cycle.stop()
        a._options = Options.parse({**a.given, **then})
        a.restart()
        a.until_planning(2)
        assert a.positions[TopicPartition(name, 1 - mine)] == begins
        if planned:
            assert a.positions[TopicPartition(name, mine)] == 15

    def test_is_forgotten_once_the_stream_owns_it(
        self, topic: MakeTopic, produce: Produce, query: MakeQuery, cluster: Cluster, timed: Fill
    ) -> None:
        name = topic(partitions=2)
        timed(name)
        with plain_consumer(cluster, name):
            a = query(name, startingOffsets="latest")
            assert a.done.starts == {name: {"0": (10, 10)}}
            a.until_planning(1)
            (mine,) = (partition.partition for partition in a.positions)
            produce(name, [(None, b"y")] * 5, mine)
            a.run_batch()
            stored_offset = a.done.to_json()
            assert (stored_offset["v"], stored_offset["starts"]) == (2, {name: {str(1 - mine): [10]}})
            assert stored_offset["topics"][name]
        a.until_planning(2)
        produce(name, [(None, b"y")] * 5, mine)
        a.run_batch()
        assert a.done.to_json()["v"] == 1

    def test_is_forgotten_once_another_query_has_adopted_it(
        self, topic: MakeTopic, produce: Produce, query: MakeQuery, timed: Fill
    ) -> None:
        name = topic(partitions=2)
        timed(name)
        a = query(name, startingOffsets="latest")
        b = query(name, startingOffsets="latest")
        a.until_planning(2)
        b.plan()
        a.until_planning(1)
        b.until_planning(1)
        for partition in range(2):
            produce(name, [(None, b"y")] * 5, partition)
        a.run_batch()
        b.run_batch()
        assert [(one.done.v, one.done.starts) for one in (a, b)] == [(1, None)] * 2, "the group has commits of both"
