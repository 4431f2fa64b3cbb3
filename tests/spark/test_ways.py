"""The ways to run a query that docs/running.md names: several sources, state, foreachBatch; and what is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from devtools.broker import Cluster
from spark_groupsource.checkpoint.offset_log import source_lines
from tests.conftest import MakeTopic, Produce
from tests.support.queries import BatchFunction, all_confirmed, needs_admission_control, setting

MINUTE_MS = 60_000


class Load(Protocol):
    """The rows of a topic, as a stream, in the group that is named after it unless another is given."""

    def __call__(self, topic: str, group: str | None = None, source: str | None = None, **options: str) -> DataFrame: ...


@pytest.fixture
def load(spark: SparkSession, cluster: Cluster) -> Load:
    def load(topic: str, group: str | None = None, source: str | None = None, **options: str) -> DataFrame:
        needed = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "kafka.group.id": group or f"group-of-{topic}",
            "subscribe": topic,
            "startingOffsets": "earliest",
        }
        reader = spark.readStream.format("groupkafka").options(**needed, **options)
        stream = (reader if source is None else reader.name(source)).load()
        return stream.withColumns({"key": f.col("key").cast("string"), "value": f.col("value").cast("string")})

    return load


class Query:
    """One checkpoint, run again and again."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self.running: StreamingQuery | None = None

    def run_for_each_batch(self, frame: DataFrame, act: BatchFunction) -> None:
        """Run to the end of what is there now."""
        writer = frame.writeStream.option("checkpointLocation", str(self._checkpoint)).trigger(availableNow=True)
        self.running = writer.foreachBatch(act).start()
        self.running.awaitTermination()

    def run(self, frame: DataFrame) -> list[Row]:
        """Run to the end of what is there now; the rows of this run."""
        rows: list[Row] = []
        self.run_for_each_batch(frame, lambda batch, _: rows.extend(batch.collect()))
        return rows

    @property
    def sources(self) -> list[Any]:
        """The progress of each source in the newest micro-batch."""
        assert self.running is not None
        progress = self.running.lastProgress
        assert progress is not None
        return progress.sources


@pytest.fixture
def query(tmp_path: Path) -> Iterator[Query]:
    one = Query(tmp_path / "checkpoint")
    yield one
    if one.running is not None:
        one.running.stop()


def keyed(start: int, end: int, word: str = "v") -> list[tuple[str, str]]:
    return [(f"k{number}", f"{word}{number}") for number in range(start, end)]


# Several sources in one query.


def test_a_frame_that_is_joined_with_itself_is_one_source_with_one_offset(
    load: Load, query: Query, topic: MakeTopic, produce: Produce, cluster: Cluster
) -> None:
    name = topic(partitions=2)
    orders = load(name).select("key", "value")
    joined = orders.join(orders.withColumnRenamed("value", "again"), "key")
    for start, end in ((0, 10), (10, 15)):
        produce(name, keyed(start, end), 0)
        assert sorted(query.run(joined)) == sorted((key, value, value) for key, value in keyed(start, end))
        assert len(query.sources) == 1
        assert all_confirmed(cluster, f"group-of-{name}", name)


@pytest.mark.skipif(not hasattr(DataStreamReader, "name"), reason="Spark names sources since 4.2")
def test_named_sources_go_on_where_they_were_when_others_come_before_them(
    spark: SparkSession, load: Load, query: Query, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    orders, refunds = topic(partitions=2), topic()
    produce(orders, keyed(0, 10))
    # Spark 4.2 keeps names only in a log of that format, which it does not choose by itself.
    log_format = setting(spark, "spark.sql.streaming.offsetLog.formatVersion", "2")
    with log_format, setting(spark, "spark.sql.streaming.queryEvolution.enableSourceEvolution", "true"):
        assert len(query.run(load(orders, source="orders"))) == 10
        newest = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
        assert newest.read_text().startswith("v2\n")
        assert set(source_lines(newest.read_text())) == {"orders"}
        produce(orders, keyed(10, 18))
        produce(refunds, keyed(0, 4, "r"))
        both = query.run(load(refunds, source="refunds").union(load(orders, source="orders")))
        assert sorted(row.value for row in both) == ["r0", "r1", "r2", "r3", *(f"v{each}" for each in range(10, 18))]


def test_two_loads_in_groups_of_their_own_each_read_the_whole_topic(
    load: Load, query: Query, topic: MakeTopic, produce: Produce
) -> None:
    name = topic(partitions=2)
    produce(name, keyed(0, 5), 0)
    produce(name, keyed(5, 10), 1)
    one = load(name).select("key", "value")
    other = load(name, f"second-{name}").select("key", f.col("value").alias("again"))
    assert sorted(query.run(one.join(other, "key"))) == sorted((key, value, value) for key, value in keyed(0, 10))
    assert len(query.sources) == 2


def test_a_union_goes_on_after_a_restart_when_one_source_has_nothing_new(
    load: Load, query: Query, topic: MakeTopic, produce: Produce, cluster: Cluster
) -> None:
    """SPARK-22956: the source with nothing new, and the one that never had anything, stay in the checkpoint as they are.

    Two loads of one group may read different topics.
    """
    left, right = topic(partitions=2), topic()
    union = load(left, "shop").union(load(right, "shop"))
    for start, end, also in ((0, 10, None), (10, 20, right), (20, 20, right)):
        produce(left, keyed(start, end, "left"), 0)
        expected = [value for _, value in keyed(start, end, "left")]
        if also is not None:
            produce(also, keyed(start, start + 3, "right"))
            expected += [value for _, value in keyed(start, start + 3, "right")]
        assert sorted(row.value for row in query.run(union)) == sorted(expected)
    assert all(all_confirmed(cluster, "shop", topic) for topic in (left, right))


# State.


class ProduceAt(Protocol):
    """Writes (minute, key) records with Kafka's own timestamps, so many minutes after a fixed full hour."""

    def __call__(self, topic: str, *records: tuple[int, str]) -> None: ...


HOUR_MS = (int(time.time()) // 3600 - 2) * 3600 * 1000


@pytest.fixture
def produce_at(cluster: Cluster) -> ProduceAt:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

    def produce_at(topic: str, *records: tuple[int, str]) -> None:
        for minute, key in records:
            producer.produce(topic, key, key, timestamp=HOUR_MS + minute * MINUTE_MS)
        assert producer.flush(60) == 0

    return produce_at


def minute(moment: Any) -> int:
    return int(moment.timestamp() * 1000 - HOUR_MS) // MINUTE_MS


@needs_admission_control
def test_windows_are_counted_over_restarts_and_late_records_are_left_out(
    load: Load, query: Query, topic: MakeTopic, produce_at: ProduceAt
) -> None:
    name = topic()
    counts = (
        load(name)
        .withWatermark("timestamp", "10 minutes")
        .groupBy(f.window("timestamp", "10 minutes"), "key")
        .count()
        .select("window.start", "key", "count")
    )
    produce_at(name, (1, "a"), (5, "a"), (7, "b"), (12, "a"))
    assert query.run(counts) == [], "the watermark is at minute 2"
    produce_at(name, (9, "a"), (21, "a"))
    closed = [(minute(row.start), row.key, row["count"]) for row in query.run(counts)]
    assert sorted(closed) == [(0, "a", 3), (0, "b", 1)], "what came before the restart, and what came after it"
    produce_at(name, (3, "a"), (13, "a"), (41, "a"))
    closed = [(minute(row.start), row.key, row["count"]) for row in query.run(counts)]
    assert sorted(closed) == [(10, "a", 2), (20, "a", 1)], "minute 3 is late: its window was closed"


@needs_admission_control
def test_two_groups_are_joined_within_a_time_over_a_restart(
    load: Load, query: Query, topic: MakeTopic, produce_at: ProduceAt, cluster: Cluster
) -> None:
    orders, payments = topic(partitions=1), topic(partitions=1)
    left = load(orders).withWatermark("timestamp", "30 minutes").select("key", f.col("timestamp").alias("ordered"))
    right = (
        load(payments)
        .withWatermark("timestamp", "30 minutes")
        .select(f.col("key").alias("paid_key"), f.col("timestamp").alias("paid"))
    )
    in_time = f.expr("key = paid_key AND paid BETWEEN ordered AND ordered + INTERVAL 10 MINUTES")
    joined = left.join(right, in_time, "leftOuter").select("key", "ordered", "paid")

    def run() -> list[tuple[str, int, int | None]]:
        return sorted((row.key, minute(row.ordered), minute(row.paid) if row.paid else None) for row in query.run(joined))

    produce_at(orders, (0, "a"), (1, "b"), (2, "c"))
    produce_at(payments, (3, "a"))
    assert run() == [("a", 0, 3)]
    produce_at(payments, (9, "b"), (20, "c"))
    assert run() == [("b", 1, 9)], "the order came before the restart"
    produce_at(orders, (100, "d"))
    produce_at(payments, (100, "d"))
    assert run() == [("c", 2, None), ("d", 100, 100)], "c was paid too late"
    for name in (orders, payments):
        assert all_confirmed(cluster, f"group-of-{name}", name)


def test_a_record_that_was_written_twice_is_dropped_over_a_restart(
    load: Load, query: Query, topic: MakeTopic, produce_at: ProduceAt
) -> None:
    name = topic()
    once = load(name).withWatermark("timestamp", "1 hour").dropDuplicatesWithinWatermark(["key"])
    produce_at(name, (0, "a"), (1, "b"), (2, "a"))
    assert sorted(row.key for row in query.run(once)) == ["a", "b"]
    produce_at(name, (3, "b"), (4, "c"))
    assert [row.key for row in query.run(once)] == ["c"]


# foreachBatch.


def test_every_action_on_a_micro_batch_sees_the_same_rows_whatever_arrives_meanwhile(
    load: Load, query: Query, topic: MakeTopic, produce: Produce, tmp_path: Path, cluster: Cluster
) -> None:
    name = topic(partitions=2)
    produce(name, keyed(0, 10), 0)
    seen: list[list[tuple[str, ...]]] = []

    def act(batch: DataFrame, batch_id: int) -> None:
        def rows(frame: DataFrame) -> list[tuple[str, ...]]:
            return sorted((row.key, row.value) for row in frame.collect())

        actions = [rows(batch)]
        if batch_id == 0:
            produce(name, keyed(10, 20), 1)
        batch.write.parquet(str(tmp_path / f"out-{batch_id}"))
        actions += [rows(batch), rows(batch.sparkSession.read.parquet(str(tmp_path / f"out-{batch_id}")))]
        assert batch.count() == len(actions[0])
        kept = batch.persist()
        actions += [rows(kept), rows(kept.where("partition >= 0"))]
        kept.unpersist()
        seen.extend(actions)

    for expected in (keyed(0, 10), keyed(10, 20)):
        seen.clear()
        query.run_for_each_batch(load(name), act)
        assert seen == [sorted(expected)] * 5
    assert all_confirmed(cluster, f"group-of-{name}", name)


# What is refused.


def test_continuous_processing_is_refused_at_the_start(load: Load, topic: MakeTopic, tmp_path: Path) -> None:
    writer = load(topic()).writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(Exception, match="groupkafka does not support continuous processing"):
        writer.trigger(continuous="1 second").start()


@needs_admission_control
def test_real_time_mode_is_refused_at_the_start(load: Load, topic: MakeTopic, tmp_path: Path) -> None:
    writer = load(topic()).writeStream.format("console").outputMode("update").option("checkpointLocation", str(tmp_path))
    with pytest.raises(Exception, match="not supported in Real-time Mode"):
        writer.trigger(realTime="5 seconds").start().awaitTermination()  # type: ignore[call-overload]


@needs_admission_control
def test_asynchronous_progress_tracking_is_refused_and_the_checkpoint_goes_on_without_it(
    load: Load, query: Query, spark: SparkSession, topic: MakeTopic, produce: Produce, cluster: Cluster, tmp_path: Path
) -> None:
    name = topic()
    produce(name, keyed(0, 10))
    stream = load(name, maxOffsetsPerTrigger="4").select("offset")
    writer = stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    # With a short interval, Spark may still commit the first micro-batch while it ends the query. The reader's process is
    # away by then, Spark gives up its clean-up, and the session takes the query for a running one from then on.
    asynchronous = writer.options(asyncProgressTrackingEnabled="true", asyncProgressTrackingCheckpointIntervalMs="600000")
    with pytest.raises(StreamingQueryException, match=r"AsynchronousProgress: .* asyncProgressTrackingEnabled"):
        asynchronous.trigger(processingTime="0 seconds").format("memory").queryName("asynchronous").start().awaitTermination()
    first = [row.offset for row in spark.table("asynchronous").collect()]
    assert first == [0, 1, 2, 3], "the first micro-batch"
    assert [row.offset for row in query.run(stream)] == [4, 5, 6, 7, 8, 9]
    assert all_confirmed(cluster, f"group-of-{name}", name)
