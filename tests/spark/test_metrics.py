"""The metrics of running queries, over HTTP, and the lag that Spark's own progress events tell."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator

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

    pipeline.stop()
    pipeline.start()
    produce(name, [RECORD] * 5, partition=1)
    again = when(url, lambda seen: seen.by_partition("groupkafka_partition_committed_offset") == {0: 30, 1: 5}, "5 more")
    assert again.value("groupkafka_claimed_offsets_total") == 5, "counts of this run"
    pipeline.stop()
    until(lambda: is_free(port), "the port is free")


def test_a_second_query_on_the_same_port_is_refused_and_the_first_one_goes_on(
    queries: Queries, topic: MakeTopic, produce: Produce
) -> None:
    name = topic(partitions=2)
    produce(name, [RECORD] * 3)
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/metrics"
    first = queries("a", name, **{"metrics.port": str(port)}).start()
    when(url, lambda seen: len(seen.by_partition("groupkafka_partition_owned")) == 2, "the first has joined")
    message = queries("b", name, **{"metrics.port": str(port)}).start().failure()
    assert "OptionError" in message
    assert f"metrics.port = {port}: the port is taken" in message
    first.until_rows(3)
    assert scraped_from(url).value("groupkafka_rebalances_total", kind="revoked") == 0, "the second had not joined the group"


def with_bytes(frame: DataFrame) -> DataFrame:
    return frame.observe("read", f.count("*").alias("rows"), f.sum(f.octet_length("value")).alias("bytes"))


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def listener(spark: SparkSession, registry: CollectorRegistry) -> Iterator[tuple[LagListener, list[LagSnapshot]]]:
    seen: list[LagSnapshot] = []
    added = LagListener(seen.append, warn_above=10, registry=registry)
    spark.streams.addListener(added)
    yield added, seen
    spark.streams.removeListener(added)


def test_a_listener_is_told_what_each_micro_batch_left_behind(
    listener: tuple[LagListener, list[LagSnapshot]],
    registry: CollectorRegistry,
    queries: Queries,
    topic: MakeTopic,
    produce: Produce,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = topic(partitions=2)
    produce(name, [RECORD] * 12, partition=0)
    produce(name, [RECORD] * 12, partition=1)
    added, seen = listener
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
    (newest,) = added.latest[str(pipeline.running.id)]
    assert newest.stream == batches[0].stream
    ended = str(pipeline.running.id)
    pipeline.stop()
    until(lambda: ended not in added.latest, "the query is forgotten")


def test_queries_of_other_sources_are_passed_over(
    listener: tuple[LagListener, list[LagSnapshot]], spark: SparkSession, queries: Queries, topic: MakeTopic, produce: Produce
) -> None:
    name = topic()
    produce(name, [RECORD] * 2)
    added, seen = listener
    rate = spark.readStream.format("rate").load().writeStream.format("noop").start()
    try:
        until(lambda: rate.recentProgress, "progress of the other query")
        pipeline = queries("a", name).start()
        until(lambda: str(pipeline.running.id) in added.latest, "progress of ours")
    finally:
        rate.stop()
    assert {one.query_id for one in seen} == {str(pipeline.running.id)}
