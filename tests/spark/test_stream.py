"""A query as a member of its group: what it reads, what it commits, and where it goes on."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from pyspark.sql import DataFrame, SparkSession

from devtools.broker import Cluster
from tests.conftest import MakeTopic, Produce
from tests.support.group_offsets import committed_offsets, total_lag
from tests.support.producing import numbered
from tests.support.queries import Queries, needs_admission_control
from tests.support.waiting import until


def test_a_query_reads_every_record_with_sparks_kafka_schema(queries: Queries, topic: MakeTopic, produce: Produce) -> None:
    name = topic(partitions=3)
    produce(name, numbered(30), partition=0)
    produce(name, [(None, b"")], partition=1)
    produce(name, [(b"", None)], partition=2)
    pipeline = queries("a", name)
    rows = pipeline.run()
    assert pipeline.load().schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    assert sorted((bytes(row.key), bytes(row.value), row.offset) for row in rows if row.partition == 0) == sorted(
        (key, value, offset) for offset, (key, value) in enumerate(numbered(30))
    )
    assert [(row.key, row.value) for row in rows if row.partition == 1] == [(None, b"")]
    assert [(row.key, row.value) for row in rows if row.partition == 2] == [(b"", None)]
    assert {row.topic for row in rows} == {name}
    assert {row.timestampType for row in rows} == {0}
    assert all(abs(row.timestamp.timestamp() - time.time()) < 600 for row in rows)


def test_an_idle_query_shows_no_lag(queries: Queries, topic: MakeTopic, produce: Produce, cluster: Cluster) -> None:
    name = topic(partitions=3)
    produce(name, numbered(100))
    pipeline = queries("a", name)
    assert len(pipeline.run()) == 100
    produce(name, numbered(50))
    pipeline.start()
    pipeline.until_rows(150)
    until(lambda: total_lag(cluster, f"group-of-{name}", name) == 0, "lag 0 while the query is idle")
    assert sum(committed_offsets(cluster, f"group-of-{name}", name).values()) == 150
    pipeline.stop()


def test_a_batch_that_failed_is_replayed_with_exactly_its_ranges(
    queries: Queries, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    produce(name, numbered(20), partition=0)
    produce(name, numbered(10), partition=1)
    seen: dict[str, list[tuple[int, int]]] = {}

    def fail_first(frame: DataFrame, batch: int) -> None:
        rows = sorted((row.partition, row.offset) for row in frame.collect())
        seen.setdefault(f"first {batch}", rows)
        raise RuntimeError("the sink is down")

    def succeed(frame: DataFrame, batch: int) -> None:
        seen[f"second {batch}"] = sorted((row.partition, row.offset) for row in frame.collect())

    pipeline = queries("a", name)
    pipeline.start(foreach_batch=fail_first)
    assert "the sink is down" in pipeline.failure()
    produce(name, numbered(7), partition=0)
    pipeline.start(foreach_batch=succeed)
    until(lambda: "second 1" in seen, "the batch after the replay")
    pipeline.stop()
    assert seen["first 0"] == [(0, offset) for offset in range(20)] + [(1, offset) for offset in range(10)]
    assert seen["second 0"] == seen["first 0"]
    assert seen["second 1"] == [(0, offset) for offset in range(20, 27)]


@needs_admission_control
def test_available_now_respects_the_limit_and_ends_at_what_was_there(
    queries: Queries, topic: MakeTopic, produce: Produce, cluster: Cluster
) -> None:
    name = topic()
    produce(name, numbered(15))
    batches: list[int] = []

    def collect(frame: DataFrame, batch: int) -> None:
        batches.append(frame.count())
        produce(name, numbered(3))

    queries("a", name, maxOffsetsPerTrigger="5").run(foreach_batch=collect)
    assert batches == [5, 5, 5]
    assert total_lag(cluster, f"group-of-{name}", name) == 9


def test_starting_at_latest_skips_what_was_there_and_reads_new_partitions_from_the_start(
    queries: Queries, topic: MakeTopic, produce: Produce, cluster: Cluster, admin: AdminClient
) -> None:
    name = topic(partitions=1)
    produce(name, numbered(10))
    pipeline = queries("a", name, startingOffsets="latest").start()
    until(lambda: committed_offsets(cluster, f"group-of-{name}", name).get(0) == 10, "the starting point is pinned")
    produce(name, numbered(5), partition=0)
    pipeline.until_rows(5)
    admin.create_partitions([NewPartitions(name, 2)])[name].result(30)
    until(lambda: len(admin.list_topics(name, timeout=30).topics[name].partitions) == 2, "the new partition")
    fresh = Producer({"bootstrap.servers": cluster.bootstrap_servers})  # the shared one may not know the partition yet
    for _, value in numbered(4):
        fresh.produce(name, value, partition=1)
    assert fresh.flush(30) == 0
    pipeline.until_rows(9)
    assert pipeline.offsets() == [(0, offset) for offset in range(10, 15)] + [(1, offset) for offset in range(4)]
    pipeline.stop()


def test_only_committed_transactions_are_read_when_asked(queries: Queries, topic: MakeTopic, cluster: Cluster) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(name, b"%d" % number)
        producer.flush(30)  # an abort drops what has not been sent
        end(30)
    committed = queries("a", name, **{"kafka.isolation.level": "read_committed"})
    committed.start()
    committed.until_rows(10)
    until(lambda: total_lag(cluster, f"group-of-{name}", name) == 0, "lag 0, behind the aborted transaction")
    committed.stop()
    assert [offset for _, offset in committed.offsets()] == [0, 1, 2, 3, 4, 12, 13, 14, 15, 16]
    everything = queries("b", name, **{"kafka.group.id": "uncommitted"})
    everything.run()
    assert len(everything.offsets()) == 20


@needs_admission_control
def test_progress_tells_lag_and_the_generation(queries: Queries, topic: MakeTopic, produce: Produce) -> None:
    name = topic(partitions=2)
    produce(name, numbered(10), partition=0)
    produce(name, numbered(10), partition=1)
    pipeline = queries("a", name, maxOffsetsPerTrigger="4")
    pipeline.run()
    progress = [one for one in pipeline.running.recentProgress if one.numInputRows]
    assert [one.numInputRows for one in progress] == [4, 4, 4, 4, 4]
    first = progress[0].sources[0]
    end = json.loads(first.endOffset)
    assert re.fullmatch(r"org\.apache\.spark\.sql\.[\w.]+\.PythonMicroBatchStream\w*@[0-9a-f]+", first.description)
    assert end["group"] == f"group-of-{name}"
    assert end["generation"] >= 1
    assert end["plan"] == 0
    assert end["ranges"] == {name: {"0": [[0, 2]], "1": [[0, 2]]}}
    assert json.loads(first.latestOffset) == {
        "offsets": {name: {"0": 10, "1": 10}},
        "lag": {name: {"0": 10, "1": 10}},
        "totalLag": 20,
        "held": {},
        "totalHeld": 0,
    }


def test_a_checkpoint_of_another_group_is_refused(queries: Queries, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    produce(name, numbered(1))
    queries("a", name).run()
    other = queries("a", name, **{"kafka.group.id": "another"}).start()
    message = other.failure()
    assert f"group-of-{name}" in message
    assert "'another'" in message


def test_a_wrong_option_fails_at_load(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="startingOffset"):
        spark.readStream.format("groupkafka").option("startingOffset", "earliest").load().printSchema()


def test_a_topic_that_does_not_exist_is_named(queries: Queries) -> None:
    message = queries("a", "there-is-no-such-topic").start().failure()
    assert "TopicNotFound" in message
    assert "there-is-no-such-topic" in message


def test_no_broker_is_an_error_within_a_bounded_time(queries: Queries, topic: MakeTopic) -> None:
    begin = time.monotonic()
    message = queries("a", "any", **{"kafka.bootstrap.servers": "127.0.0.1:1"}).start().failure()
    assert "kafka.bootstrap.servers" in message
    assert time.monotonic() - begin < 60


def test_a_password_is_nowhere_to_be_seen(queries: Queries, spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    secret = "correct-horse-battery"  # noqa: S105
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    pipeline = queries(
        "a",
        "any",
        **{
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{login} required username="me" password="{secret}";',
        },
    )
    frame = pipeline.load()
    frame.explain(True)
    pipeline.start()
    message = pipeline.failure()
    assert "SASL" in message.upper(), "the broker speaks no SASL: the query fails where it would log in"
    written = "".join(file.read_text(errors="replace") for file in pipeline.folder.rglob("*") if file.is_file())
    printed = capfd.readouterr()
    for text in (message, str(pipeline.running.exception()), written, printed.out, printed.err, repr(frame)):
        assert secret not in text
