"""`spark.read.format("groupkafka")`: what an action reads, and what the group sees of it."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame

from devtools.broker import Cluster
from tests.conftest import MakeTopic, Produce
from tests.support.group_offsets import committed_offsets
from tests.support.queries import Queries, Read, assert_rows
from tests.support.waiting import until


def assert_values(frame: DataFrame, expected: Iterable[int]) -> None:
    """Fail unless the records have exactly these numbers as values, in any order."""
    assert_rows(frame.selectExpr("CAST(CAST(value AS STRING) AS INT) AS number"), ((number,) for number in expected))


def test_a_batch_read_that_commits_and_a_query_of_the_group_go_on_where_the_other_has_stopped(
    read: Read, queries: Queries, topic: MakeTopic, produce: Produce, cluster: Cluster
) -> None:
    name = topic(partitions=2)
    for partition in range(2):
        produce(name, [(None, str(number)) for number in range(10 * partition, 10 * partition + 10)], partition)

    def committed() -> dict[int, int]:
        return committed_offsets(cluster, f"group-of-{name}", name)

    rest = {"startingOffsets": "committed", "commitOffsets": "true"}
    assert_values(read(name, startingOffsets="committed"), range(20))
    assert committed() == {}, "a read commits nothing unless it is asked to"
    assert_values(read(name, **rest), range(20))
    assert committed() == {0: 10, 1: 10}

    produce(name, [(None, "20")], 0)
    query = queries("a", name).start()
    until(lambda: committed() == {0: 11, 1: 10}, "the query has confirmed what it has read")
    query.stop()
    assert_values(query.frame(), [20])

    produce(name, [(None, "21"), (None, "22")], 0)
    assert_values(read(name, **rest), [21, 22])
    assert committed() == {0: 13, 1: 10}
    assert_values(read(name, **rest), [])
