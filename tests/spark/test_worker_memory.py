"""Queries whose Python workers have little address space, as `spark.executor.pyspark.memory` sets it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.conftest import MakeTopic, Produce
from tests.support.queries import Queries
from tests.support.spark_sinks import Sink

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space of a process")

LIMIT = "resource.pyspark.memory"
"""The local property by which Spark's scheduler gives `spark.executor.pyspark.memory` to the tasks of a job, in MB."""

Limit = Callable[[int], None]


@pytest.fixture
def limit(spark: SparkSession) -> Iterator[Limit]:
    """Limit the workers of the queries that are started after it, in MB for each."""
    yield lambda mb: spark.sparkContext.setLocalProperty(LIMIT, str(mb))
    spark.sparkContext.setLocalProperty(LIMIT, None)  # type: ignore[arg-type] # that removes it


def limits(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the limit of the worker that runs this, in MB."""
    import resource

    yield pa.record_batch({"mb": pa.array([resource.getrlimit(resource.RLIMIT_AS)[0] >> 20], pa.int64())})


@pytest.fixture
def orders(topic: MakeTopic, produce: Produce) -> str:
    name = topic(partitions=2)
    for partition in range(2):
        produce(name, [(None, "x" * 1000)] * 5000, partition)
    return name


@pytest.mark.parametrize("mb", [1024, pytest.param(2048, marks=pytest.mark.long)])
def test_queries_read_and_write_one_after_the_other_in_workers_with_little_address_space(
    mb: int, orders: str, queries: Queries, limit: Limit, sink: Sink, spark: SparkSession
) -> None:
    limit(mb)
    # The workers are kept, and each query makes clients of its own.
    for number in range(2):
        query = queries(f"query-{number}", orders, **{"kafka.group.id": f"{orders}-{number}"})
        assert len(query.run()) == 10_000
    sink.run(queries("copy", orders, **{"kafka.group.id": f"{orders}-copy"}).load().select("value"))
    assert len(sink.written()) == 10_000
    assert spark.range(1, numPartitions=1).mapInArrow(limits, "mb LONG").collect()[0].mb == mb
