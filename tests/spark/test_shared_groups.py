"""People who come from Spark's own source are told when their queries share records, or state is no longer complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_groupsource import register
from spark_groupsource.spark.lag_listener import LagListener
from tests.conftest import MakeTopic, Produce
from tests.support.queries import Queries
from tests.support.streams import member_stream
from tests.support.waiting import until

ONLY_ONE = "each record reaches only one of them. If both need all records, give each its own kafka.group.id."

Write = Callable[[DataFrame, str], StreamingQuery]

LOGGER = "spark_groupsource.spark.durable_listener"
RECORD = (None, b"x")


@pytest.fixture
def write(spark: SparkSession, tmp_path: Path) -> Iterator[Write]:
    """Starts a query of this name, whose rows nobody needs, and waits for its first micro-batch."""
    register(spark)
    spark.streams.addListener(LagListener())  # two listeners see each micro-batch
    started: list[StreamingQuery] = []

    def write(frame: DataFrame, name: str) -> StreamingQuery:
        writer = frame.writeStream.queryName(name).format("noop").outputMode("update")
        query = writer.option("checkpointLocation", str(tmp_path / name)).start()
        started.append(query)
        until(lambda: query.lastProgress is not None or query.exception() is not None, f"a micro-batch of {name}")
        assert query.exception() is None
        return query

    yield write
    for query in started:
        query.stop()


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    return lambda: [record.getMessage() for record in caplog.records if record.name == LOGGER]


def produced(topic: MakeTopic, produce: Produce, partitions: int = 4) -> str:
    name = topic(partitions=partitions)
    for partition in range(partitions):
        produce(name, [RECORD] * 10, partition)
    return name


def test_a_frame_that_is_written_twice_is_worth_one_warning_and_strangers_are_worth_none(
    queries: Queries, write: Write, topic: MakeTopic, produce: Produce, said: Callable[[], list[str]]
) -> None:
    name, other = produced(topic, produce), produced(topic, produce, 1)
    frame = queries("a", name).load()
    first = write(frame, "first")
    write(queries("b", name, **{"kafka.group.id": f"another-group-of-{name}"}).load(), "of another group")
    write(queries("c", other, **{"kafka.group.id": f"group-of-{name}"}).load(), "of other topics")
    assert said() == []
    second = write(frame, "second")
    until(said, "a warning, although nothing new has come")
    assert len(second.recentProgress) == 1
    produce(name, [RECORD] * 400)
    until(lambda: min(len(first.recentProgress), len(second.recentProgress)) > 1, "a micro-batch of both")
    second.stop()
    write(frame, "second")  # again, on its checkpoint
    group = f"group-of-{name}"
    assert said() == [f"Queries first and second on this driver are members of group {group} for the same topics, so {ONLY_ONE}"]


def test_a_query_that_takes_the_place_of_another_one_shares_nothing_with_it(
    queries: Queries, write: Write, topic: MakeTopic, produce: Produce, said: Callable[[], list[str]]
) -> None:
    name = produced(topic, produce)
    frame = queries("a", name).load()
    for each in ("old", "old", "new"):
        write(frame, each).stop()
        produce(name, [RECORD] * 10)
    assert said() == []


@pytest.mark.long
def test_a_union_of_two_loads_of_one_group_is_worth_one_warning(
    queries: Queries, write: Write, topic: MakeTopic, produce: Produce, said: Callable[[], list[str]]
) -> None:
    name = produced(topic, produce)
    loaded = queries("a", name)
    query = write(loaded.load().union(loaded.load()), "both")
    until(said, "a warning")
    assert len(query.recentProgress) == 1
    produce(name, [RECORD] * 40)
    until(lambda: len(query.recentProgress) > 1, "another micro-batch")
    assert said() == [f"Two sources in query both are members of group group-of-{name} for the same topics, so {ONLY_ONE}"]


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.long)])
def test_a_query_with_state_warns_once_when_a_member_of_another_driver_takes_a_part(
    queries: Queries, write: Write, topic: MakeTopic, produce: Produce, said: Callable[[], list[str]], protocol: str
) -> None:
    name = produced(topic, produce)
    loaded = queries("a", name, **{"kafka.group.protocol": protocol})
    query = write(loaded.load().groupBy("partition").count(), "counts")
    assert said() == []
    with member_stream("peer", loaded.options) as peer:
        peer.until_owning(2)
        read = query.lastProgress
        for partition in range(4):
            produce(name, [RECORD] * 10, partition)
        until(said, "a warning")
    assert read is not None
    assert query.lastProgress is not None
    assert query.lastProgress.batchId - read.batchId <= 2
    (warning,) = said()
    assert warning.startswith(f"Query counts keeps state, and group group-of-{name} has other members for the same topics. When")
    assert warning.endswith("Give the query its own kafka.group.id (docs/running.md, Stateful queries).")
