"""The metrics of running queries, over HTTP, and the lag that Spark's own progress events tell."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from devtools.broker.ports import free_ports, is_free
from spark_groupsource import LagListener, LagSnapshot
from spark_groupsource.metrics.progress import BYTES, ROWS
from spark_groupsource.partition import TopicPartition
from spark_groupsource.spark.datasource import ADMISSION_CONTROL
from tests.conftest import MakeTopic, Produce
from tests.support.queries import Queries
from tests.support.scraping import Scrape, scraped_from
from tests.support.waiting import until

RECORD = (None, b"x")


def when(url: str, true: Callable[[Scrape], object], what: str) -> Scrape:
    """The first scrape of which something is true."""
    seen: list[Scrape] = []

    def now() -> bool:
        try:
            seen.append(scraped_from(url))
        except OSError:
            # Nobody serves yet, or the run before still ends.
            return False
        return bool(true(seen[-1]))

    until(now, what, timeout_s=180)
    return seen[-1]


def test_a_running_query_is_scraped_its_port_ends_with_it_and_a_restart_serves_there_again(
    queries: Queries, topic: MakeTopic, produce: Produce
) -> None:
    """A second query on the same port is refused meanwhile."""
    name = topic(partitions=2)
    produce(name, [RECORD] * 30, partition=0)
    (port,) = free_ports(1)
    pipeline = queries("a", name, **{"metrics.port": str(port)}).start()
    url = f"http://127.0.0.1:{port}/metrics"
    pipeline.until_rows(30)
    idle = when(url, lambda seen: seen.by_partition("groupkafka_partition_committed_offset") == {0: 30, 1: 0}, "30 confirmed")
    assert idle.value("groupkafka_member_info", group=f"group-of-{name}") == 1
    assert idle.by_partition("groupkafka_partition_owned") == {0: 1, 1: 1}
    assert idle.by_partition("groupkafka_partition_lag_offsets") == {0: 0, 1: 0}
    assert idle.value("groupkafka_claimed_offsets_total") == len(pipeline.offsets())
    assert idle.value("groupkafka_commit_duration_seconds_count") >= 3

    message = queries("b", name, **{"metrics.port": str(port)}).start().failure()
    assert "OptionError" in message
    assert f"metrics.port = {port}: the port is taken" in message
    assert scraped_from(url).value("groupkafka_rebalances_total", kind="revoked") == 0, "the second had not joined the group"

    pipeline.stop()
    pipeline.start()
    produce(name, [RECORD] * 5, partition=1)
    again = when(url, lambda seen: seen.by_partition("groupkafka_partition_committed_offset") == {0: 30, 1: 5}, "5 more")
    assert again.value("groupkafka_claimed_offsets_total") == 5, "counts of this run"
    pipeline.stop()
    until(lambda: is_free(port), "the port is free")


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
        ] == [[("16", "0")]]
    else:
        assert {one.total_lag for one in batches} == {None}
        assert not caplog.records
    (newest,) = listener.latest[str(pipeline.running.id)]
    assert newest.stream == batches[0].stream
    ended = str(pipeline.running.id)
    pipeline.stop()
    until(lambda: ended not in listener.latest, "the query is forgotten")
