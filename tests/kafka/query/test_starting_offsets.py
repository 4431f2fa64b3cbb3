"""Partitions that a stream began with and got late: they start where the options named when the stream began."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from devtools.broker import Cluster
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition
from tests.conftest import Produce
from tests.kafka.conftest import Filled, MakeQuery, Query
from tests.support.consumers import plain_member
from tests.support.waiting import until

Begun = Callable[[str], AbstractContextManager[tuple[Query, int]]]


@pytest.fixture
def begun(filled: Filled, query: MakeQuery, cluster: Cluster) -> Begun:
    """Begins a query at the given offsets, on two partitions with ten records each; returns it and the partition that it got.

    As long as the context lasts, an idle consumer has the other one, and commits nothing.
    """

    @contextmanager
    def begin(starting: str) -> Iterator[tuple[Query, int]]:
        name = filled(partitions=2)
        cooperative = {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": "300"}
        with plain_member(cluster, f"group-of-{name}", name, cooperative) as plain:
            until(lambda: plain.owned == 2, "the plain consumer has both partitions")
            a = query(name, startingOffsets=starting)
            a.until_planning(1)
            (mine,) = (partition.partition for partition in a.positions)
            yield a, mine

    return begin


def restart_with(a: Query, starting: str) -> None:
    a._options = Options.parse({**a.given, "startingOffsets": starting})
    a.restart()


class TestAPartitionThatAnIdleConsumerHolds:
    def test_starts_where_the_options_named_when_the_stream_began(self, begun: Begun, produce: Produce) -> None:
        with begun("latest") as (a, mine):
            name = a.given["subscribe"]
            for partition in range(2):
                produce(name, [(None, b"y")] * 5, partition)
            assert a.run_batch() == {mine: (10, 15)}
            for number in range(2):
                a.store()
                a.restart()
                produce(name, [(None, b"y")], mine)
                assert a.run_batch() == {mine: (15 + number, 16 + number)}
        assert a.run_batch() == {1 - mine: (10, 15)}, "with the records that came meanwhile"

    def test_starts_there_after_an_empty_first_batch_and_a_change_of_the_options(self, begun: Begun, produce: Produce) -> None:
        with begun("latest") as (a, mine):
            assert a.claim() == {}
            a.store()
            a.cycle.stop()
        produce(a.given["subscribe"], [(None, b"y")] * 5, 1 - mine)
        restart_with(a, "earliest")
        assert a.run_batch() == {1 - mine: (10, 15)}

    def test_starts_at_its_beginning_although_the_options_were_changed_to_the_latest(self, begun: Begun) -> None:
        with begun("earliest") as (a, mine):
            a.store()
            a.cycle.stop()
        restart_with(a, "latest")
        a.until_planning(2)
        assert a.positions[TopicPartition(a.given["subscribe"], 1 - mine)] == 0

    def test_is_forgotten_once_the_stream_owns_it(self, begun: Begun, produce: Produce) -> None:
        with begun("latest") as (a, mine):
            name = a.given["subscribe"]
            assert a.done.starts == {name: {"0": (10, 10)}}
            produce(name, [(None, b"y")] * 5, mine)
            a.run_batch()
            stored_offset = a.done.to_json()
            assert stored_offset["starts"] == {name: {str(1 - mine): [10]}}
            assert stored_offset["topics"][name]
        a.until_planning(2)
        produce(name, [(None, b"y")] * 5, mine)
        a.run_batch()
        assert "starts" not in a.done.to_json()

    def test_is_forgotten_once_another_query_has_adopted_it(self, filled: Filled, produce: Produce, query: MakeQuery) -> None:
        name = filled(partitions=2)
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
        assert [list(asked.done.starts) for asked in (a, b)] == [[], []], "the group has commits of both"
