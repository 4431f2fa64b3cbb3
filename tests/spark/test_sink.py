"""The sink in Spark: the columns and errors of Spark's own sink, and each row once over what goes wrong."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession, functions

from benchmarks.spark_jars import spark_kafka_jars
from devtools.broker import Cluster
from spark_groupsource import LagListener, register
from tests.conftest import MakeTopic, Produce
from tests.support.committed import read_committed
from tests.support.queries import Queries, is_spark_55271
from tests.support.spark_sinks import Sink
from tests.support.waiting import until


def test_a_worker_that_is_killed_again_and_again_writes_each_row_once(
    sink: Sink, queries: Queries, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    source, killed = topic(2), tmp_path / "killed"
    killed.mkdir()
    for partition in range(2):
        produce(source, [(b"k", f"{partition}-{number:03}") for number in range(50)], partition)

    def killed_once(batches: Iterator[object]) -> Iterator[object]:
        for batch in batches:
            yield batch
            mark = killed / str(batch.column(0)[0].as_py())  # type: ignore[attr-defined]
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

    rows = queries("a", source).load().select("value").mapInArrow(killed_once, "value BINARY")
    for _ in range(10):
        try:
            sink.run(rows)
        except StreamingQueryException:
            sink.stop()
        else:
            break
    assert len(list(killed.iterdir())) == 2
    assert sink.written() == [f"{partition}-{number:03}" for partition in range(2) for number in range(50)]


def test_a_micro_batch_that_is_run_again_is_written_once_and_another_in_its_place_waits_for_a_choice(
    spark: SparkSession, sink: Sink, tmp_path: Path
) -> None:
    """A listener counts what was written, and what was there already."""
    registry = CollectorRegistry()
    listener = LagListener(registry=registry)
    spark.streams.addListener(listener)
    files = tmp_path / "lines"
    files.mkdir()
    for number in range(2):
        (files / f"{number}.txt").write_text("\n".join(f"{number}-{line}" for line in range(10)))
    lines = spark.readStream.text(str(files))

    query = sink.run(lines)

    def counted(result: str) -> float | None:
        return registry.get_sample_value("groupkafka_sink_rows_total", {"query": str(query.id), "result": result})

    until(lambda: counted("written") == 20, "the rows are counted")
    sink.forget_newest_commit()
    sink.start(lines)
    until(lambda: counted("skipped") == 20, "the rows of the replay are counted")
    assert counted("written") == 20
    report = listener.written[str(query.id)]
    assert (report.batch_id, report.written, report.skipped) == (0, 0, 20)
    sink.stop()
    until(lambda: not listener.written, "the query is forgotten")

    batch = sink.forget_newest_commit()
    changed = lines.selectExpr("concat('new ', value) AS value")
    with pytest.raises(StreamingQueryException, match=rf"with different content(.|\n)*skipBatch={batch}"):
        sink.run(changed)
    sink.run(changed, skipBatch=batch)
    assert sink.written() == sorted(f"{number}-{line}" for number in range(2) for line in range(10))


def test_spark_before_the_sink_can_be_any_source(spark: SparkSession, sink: Sink) -> None:
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    counted = numbers.groupBy((functions.col("value") % 3).alias("rest")).count()
    rows = counted.selectExpr("CAST(rest AS STRING) AS key", "CAST(count AS STRING) AS value", f"'{sink.target}' AS topic")
    query = sink.start(rows, mode="complete")
    until(lambda: len(query.recentProgress) >= 3 or query.exception() is not None, "three micro-batches")
    query.stop()
    assert query.exception() is None
    found = [
        ((one.key() or b"").decode(), int(one.value() or 0)) for one in read_committed(sink.cluster, sink.target, whole=True)
    ]
    assert len(set(found)) == len(found) >= 6


def test_sparks_own_source_into_several_topics_is_written_once_over_a_replay(
    spark: SparkSession, sink: Sink, queries: Queries, topic: MakeTopic, produce: Produce
) -> None:
    if not spark_kafka_jars():
        pytest.skip("Spark's own source is not there for this Spark")
    # With up to four partitions Spark's source has them in other tasks after a restart: docs/sink.md.
    source, other = topic(6), topic(1)
    for partition in range(6):
        produce(source, [(None, f"{partition}-{number}") for number in range(5)], partition)
    theirs = queries.made("theirs", "kafka", {"subscribe": source, "startingOffsets": "earliest"}).load()
    rows = theirs.selectExpr("value", f"IF(partition < 3, '{sink.target}', '{other}') AS topic")
    for _ in range(2):
        query = sink.start(rows)
        try:
            query.processAllAvailable()
        except StreamingQueryException as failed:
            if not is_spark_55271(spark, failed):
                raise
        query.stop()
        assert sink.forget_newest_commit() == "0"
    for name, partitions in ((sink.target, range(3)), (other, range(3, 6))):
        expected = sorted(f"{partition}-{number}" for partition in partitions for number in range(5))
        assert read_committed(sink.cluster, name) == expected


def test_the_rows_are_those_of_sparks_own_sink(spark: SparkSession, cluster: Cluster, topic: MakeTopic) -> None:
    if not spark_kafka_jars():
        pytest.skip("Spark's own sink is not there for this Spark")
    register(spark)
    frame = spark.createDataFrame(
        [(f"k{number}" if number % 3 else None, None if number == 7 else f"v{number}") for number in range(60)],
        "key STRING, value STRING",
    )
    headers = functions.expr("array(named_struct('key', 'h', 'value', CAST(value AS BINARY)))")
    frame = frame.withColumn("headers", functions.when(functions.col("value") > "v3", headers))
    found = []
    for sink in ("kafka", "groupkafka"):
        name = topic(5)
        writer = frame.write.format(sink).mode("append").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        writer.option("topic", name).save()
        found.append(
            sorted(
                (one.key() or b"", one.value() or b"", str(one.headers()), one.partition() if one.key() else None)
                for one in read_committed(cluster, name, whole=True)
            )
        )
    assert found[0] == found[1]
    assert len(found[0]) == 60


@pytest.mark.parametrize(
    ("kind", "mode", "more", "said"),
    [
        ("STRING", "overwrite", {}, "Kafka can only append"),
        ("INT", "append", {}, "value cannot be INT"),
        ("STRING", "append", {"kafka.password": "hunter2"}, "no setting with this name"),
    ],
    ids=["overwrite", "a type", "a setting, without its value"],
)
def test_what_a_batch_write_cannot_do_is_named(
    spark: SparkSession, cluster: Cluster, kind: str, mode: str, more: dict[str, str], said: str
) -> None:
    register(spark)
    writer = spark.range(1).selectExpr(f"CAST(id AS {kind}) AS value").write.format("groupkafka").mode(mode)
    with pytest.raises(PySparkException, match=said) as caught:
        writer.options(**{"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "any", **more}).save()
    assert "hunter2" not in str(caught.value)
