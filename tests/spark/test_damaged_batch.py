"""A batch that is damaged on a broker's disk: none of its rows reaches a topic, a file or a batch read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from devtools.broker import Cluster
from tests.support.queries import Queries
from tests.support.spark_sinks import Sink
from tests.support.written_logs import broker_with_damage


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker whose topic `orders` has ten records. A bit is flipped in the batch with offsets 4 to 6."""
    with broker_with_damage(tmp_path_factory.mktemp("damaged"), 0) as cluster:
        yield cluster


@pytest.mark.parametrize("guarantee", ["exactly-once", pytest.param("at-least-once", marks=pytest.mark.long)])
def test_a_query_that_copies_a_topic_stops_and_a_batch_read_fails(
    guarantee: str, spark: SparkSession, damaged: Cluster, tmp_path: Path
) -> None:
    copy = f"copy-{guarantee}"
    damaged.create_topic(copy)
    queries = Queries(spark, tmp_path, damaged.bootstrap_servers)
    sink = Sink(damaged, copy, tmp_path / "sink")
    with pytest.raises(StreamingQueryException, match=r"at offset 4: (.|\n)*failed CRC32C check(.|\n)*is damaged"):
        sink.run(queries("q", "orders", **{"kafka.group.id": copy}).load().select("value"), deliveryGuarantee=guarantee)
    assert set(every_record(damaged, copy)) <= {b"v0", b"v1", b"v2", b"v3"}

    batch = spark.read.format("groupkafka").options(
        **{"kafka.bootstrap.servers": damaged.bootstrap_servers, "kafka.group.id": "batch", "subscribe": "orders"}
    )
    with pytest.raises(PySparkException, match=r"at offset 4: (.|\n)*failed CRC32C check"):
        batch.load().collect()
    unchecked = batch.options(**{"kafka.check.crcs": "false", "startingOffsets": json.dumps({"orders": {"0": 4}})})
    assert [bytes(row.value) for row in unchecked.load().collect()] == [b"v4", b"v5", b"v7", b"v7", b"v8", b"v9"]


def every_record(cluster: Cluster, topic: str) -> list[bytes | None]:
    """Return the values of all records of a topic with one partition, also those of open and aborted transactions."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "look",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found.append(message.value())
    consumer.close()
    return found
