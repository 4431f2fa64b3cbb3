"""`spark.read.format("groupkafka")`: what an action reads, and what the group sees of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from pyspark.sql import DataFrame, SparkSession

from devtools.broker import Cluster
from tests.conftest import MakeTopic, Produce
from tests.support.group_offsets import committed_offsets
from tests.support.queries import Queries, assert_rows
from tests.support.waiting import until

Read = Callable[..., DataFrame]


@pytest.fixture
def read(spark: SparkSession, cluster: Cluster) -> Read:
    """Reads a topic in the group that is named after it, as `Queries` does."""

    def make(topic: str, **options: str) -> DataFrame:
        needed = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.group.id": f"group-of-{topic}", "subscribe": topic}
        return spark.read.format("groupkafka").options(**{**needed, **options}).load()

    return make


@pytest.fixture
def numbers(topic: MakeTopic, produce: Produce) -> str:
    """A topic of two partitions with 0 to 9 in the first and 10 to 19 in the second."""
    name = topic(partitions=2)
    for partition in range(2):
        produce(name, [(None, str(number)) for number in range(10 * partition, 10 * partition + 10)], partition)
    return name


def assert_values(frame: DataFrame, expected: Iterable[int]) -> None:
    """Fail unless the records have exactly these numbers as values, in any order."""
    assert_rows(frame.selectExpr("CAST(CAST(value AS STRING) AS INT) AS number"), ((number,) for number in expected))


def test_no_commit_is_made_and_no_group_joined(read: Read, numbers: str, cluster: Cluster) -> None:
    assert read(numbers, startingOffsets="committed").count() == 20
    assert committed_offsets(cluster, f"group-of-{numbers}", numbers) == {}


def test_a_batch_read_goes_on_where_a_query_of_the_group_has_stopped(
    read: Read, queries: Queries, numbers: str, produce: Produce, cluster: Cluster
) -> None:
    query = queries("a", numbers).start()
    until(lambda: committed_offsets(cluster, f"group-of-{numbers}", numbers) == {0: 10, 1: 10}, "everything is committed")
    query.stop()
    produce(numbers, [(None, "20"), (None, "21")], 0)
    rest = {"startingOffsets": "committed", "commitOffsets": "true"}
    assert_values(read(numbers, **rest), [20, 21])
    assert committed_offsets(cluster, f"group-of-{numbers}", numbers) == {0: 12, 1: 10}
    assert_values(read(numbers, **rest), [])


def test_a_query_of_the_group_goes_on_where_a_batch_read_has_committed(
    read: Read, queries: Queries, numbers: str, produce: Produce
) -> None:
    assert read(numbers, startingOffsets="committed", commitOffsets="true").count() == 20
    produce(numbers, [(None, "20")], 0)
    query = queries("a", numbers)
    query.run()
    assert_values(query.frame(), [20])
