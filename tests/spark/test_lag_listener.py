"""The lag that Spark's own progress events report to a `LagListener`."""

from __future__ import annotations

import logging
import re

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_groupsource.metrics.progress import BYTES, ROWS
from spark_groupsource.partition import TopicPartition
from spark_groupsource.spark.datasource import ADMISSION_CONTROL
from spark_groupsource.spark.lag_listener import LagListener, LagSnapshot
from tests.conftest import MakeTopic, Produce
from tests.support.queries import Queries
from tests.support.waiting import until

RECORD = (None, b"x")


def with_bytes(frame: DataFrame) -> DataFrame:
    return frame.observe("read", f.count("*").alias("rows"), f.sum(f.octet_length("value")).alias("bytes"))


def test_a_listener_is_told_what_each_micro_batch_left_behind_and_passes_over_queries_of_other_sources(
    spark: SparkSession, queries: Queries, topic: MakeTopic, produce: Produce, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[LagSnapshot] = []
    registry = CollectorRegistry()
    listener = LagListener(seen.append, warn_above=10, registry=registry)
    caplog.clear()  # Spark before 4.2 is worth a warning
    spark.streams.addListener(listener)
    rate = spark.readStream.format("rate").load().writeStream.format("noop").start()
    until(lambda: rate.recentProgress, "progress of the other query")
    rate.stop()
    name = topic(partitions=2)
    produce(name, [RECORD] * 12, partition=0)
    produce(name, [RECORD] * 12, partition=1)
    with caplog.at_level(logging.WARNING, logger="spark_groupsource.spark.lag_listener"):
        pipeline = queries("a", name, maxOffsetsPerTrigger="8")
        pipeline.transform = with_bytes
        pipeline.start()
        pipeline.until_rows(24)
        until(lambda: sum(one.rows for one in seen) == 24, "the events of all micro-batches")
    batches = [one for one in seen if one.rows]
    assert [(one.batch_id, one.rows, one.group) for one in batches] == [(batch, 8, f"group-of-{name}") for batch in range(3)]
    assert {(one.query_id, one.run_id) for one in seen} == {(str(pipeline.running.id), str(pipeline.running.runId))}
    assert [one.observed["read"] for one in batches] == [{"rows": 8, "bytes": 8}] * 3
    labels = {"query": str(pipeline.running.id)}
    assert registry.get_sample_value(ROWS, {**labels, "group": f"group-of-{name}"}) == 24
    assert registry.get_sample_value(BYTES, labels) == 24
    if ADMISSION_CONTROL:
        assert [one.lag for one in batches] == [
            {TopicPartition(name, 0): left, TopicPartition(name, 1): left} for left in (8, 4, 0)
        ]
        assert [one.total_held for one in batches] == [0, 0, 0]
        assert [
            re.findall(r"(\d+) offsets behind after micro-batch (\d+), more than 10", record.getMessage())
            for record in caplog.records
            # Threads of other tests' queries warn of what is theirs.
            if record.name == "spark_groupsource.spark.lag_listener"
        ] == [[("16", "0")]]
    else:
        assert {one.total_lag for one in batches} == {None}
        assert not caplog.records
    (newest,) = listener.latest[str(pipeline.running.id)]
    assert newest.stream == batches[0].stream
    ended = str(pipeline.running.id)
    pipeline.stop()
    until(lambda: ended not in listener.latest, "the query is forgotten")
