"""Tasks of the sink that Spark cancels: nothing of theirs is ever visible, readers go on, and the restart ends well."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from devtools.broker import Cluster
from tests.conftest import MakeTopic
from tests.support.committed import read_committed
from tests.support.processes import CAN_LOOK, driver_jvm
from tests.support.queries import setting
from tests.support.spark_process import SparkProcess
from tests.support.spark_sinks import Sink, hidden
from tests.support.waiting import in_background, until

ROWS = 200_000
"""Of a micro-batch, in two tasks: enough that a strike hits it before its end."""
READERS_WAIT_S = 60.0
"""Half of the time after which the brokers themselves end a transaction (TRANSACTION_TIMEOUT_MS)."""
TASK = "value % 2"
"""The task of a row: the source deals its numbers out."""


def numbers(spark: SparkSession) -> DataFrame:
    """A source whose micro-batch n has the numbers from n * ROWS on, however often it is run."""
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2).load()


def texts(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("CAST(value AS STRING) AS value")


class Watch(threading.Thread):
    """A reader of committed records, from the first strike to the end: is a part of a task ever visible?

    The brokers end a transaction partition by partition. So a look at that moment finds a part, and the next one does not.
    """

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._consumer = Consumer(
            {
                "bootstrap.servers": sink.cluster.bootstrap_servers,
                "group.id": "watches",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        partitions = self._consumer.list_topics(sink.target, timeout=60).topics[sink.target].partitions
        self._consumer.assign([TopicPartition(sink.target, number, 0) for number in partitions])
        self._found: Counter[tuple[int, int]] = Counter()
        self._ends = threading.Event()
        self.parts: list[Counter[tuple[int, int]]] = []

    def run(self) -> None:
        before: Counter[tuple[int, int]] = Counter()
        last = False
        while not last:
            last = self._ends.is_set()
            # Until a second passes without a new record.
            while messages := self._consumer.consume(10_000, 1):
                self._found.update(task_of((message.value() or b"").decode()) for message in messages if message.error() is None)
            if any(count != ROWS // 2 and before[task] == count for task, count in self._found.items()):
                self.parts.append(self._found.copy())
            before = self._found.copy()
        self._consumer.close()

    def finish(self) -> None:
        self._ends.set()
        self.join()


def task_of(value: str) -> tuple[int, int]:
    """Return the micro-batch and the task of a row."""
    return int(value) // ROWS, int(value) % 2


@contextmanager
def watched(sink: Sink) -> Iterator[None]:
    watch = Watch(sink)
    watch.start()
    try:
        yield
    finally:
        watch.finish()
    assert watch.parts == [], "a part of a task was visible"


def in_the_middle(sink: Sink, query: StreamingQuery) -> None:
    """Wait until the tasks have written something that is not visible yet."""
    until(lambda: sink.written_ahead() > 1000 or not query.isActive, "a micro-batch is being written")


def readers_go_on(sink: Sink) -> None:
    until(lambda: sink.written_ahead() == 0, "no transaction is open", READERS_WAIT_S)


def finish(sink: Sink, frame: DataFrame) -> None:
    """Run a micro-batch or more, with no option set, and check that each row is there once."""
    query = sink.start(frame)
    until(lambda: query.recentProgress or not query.isActive, "the micro-batch is finished")
    query.stop()
    assert query.exception() is None
    readers_go_on(sink)
    written = sink.written()
    found = Counter(map(task_of, written))
    assert set(found.values()) == {ROWS // 2}, found
    assert len(set(written)) == len(written)


def test_a_query_that_is_stopped_again_and_again(spark: SparkSession, sink: Sink) -> None:
    frame = texts(numbers(spark))
    with watched(sink):
        for _ in range(2):
            query = sink.start(frame)
            in_the_middle(sink, query)
            query.stop()
            assert query.exception() is None
            readers_go_on(sink)
        finish(sink, frame)


def test_a_task_that_fails_beside_others(spark: SparkSession, sink: Sink) -> None:
    """Its row is too large. Spark cancels the others, which have all their rows to come."""
    frame = numbers(spark)
    failing = frame.selectExpr(f"IF(value = {ROWS // 2 + 1}, repeat('x', 2000000), CAST(value AS STRING)) AS value")
    with watched(sink):
        with pytest.raises(StreamingQueryException, match="RecordTooLarge"):
            sink.start(failing).awaitTermination()
        readers_go_on(sink)
        finish(sink, texts(frame))


@pytest.mark.long
def test_a_job_group_that_is_cancelled(spark: SparkSession, sink: Sink) -> None:
    frame = texts(numbers(spark))
    with watched(sink):
        query = sink.start(frame)
        in_the_middle(sink, query)

        def has_ended() -> bool:
            # Again, if there was no job to cancel between two micro-batches.
            spark.sparkContext.cancelJobGroup(str(query.runId))
            return not query.isActive

        until(has_ended, "the query has ended")
        readers_go_on(sink)
        finish(sink, frame)


@pytest.mark.long
def test_a_query_that_is_stopped_while_python_makes_its_rows(spark: SparkSession, sink: Sink) -> None:
    """Three Python workers in one task, one behind the other: the input of each is cut."""

    def as_they_are(batches: Iterator[object]) -> Iterator[object]:
        yield from batches

    same = functions.udf(lambda text: text, "string")
    frame = texts(numbers(spark)).select(same("value").alias("value")).mapInArrow(as_they_are, "value STRING")
    with setting(spark, "spark.sql.execution.arrow.maxRecordsPerBatch", "1000"), watched(sink):
        query = sink.start(frame)
        in_the_middle(sink, query)
        query.stop()
        readers_go_on(sink)
        finish(sink, frame)


def test_a_batch_write_that_is_cancelled_is_not_reported_as_done(spark: SparkSession, sink: Sink) -> None:
    """It has more rows than anybody waits for: it can only be cancelled, however late the strike comes."""
    writer = spark.range(0, 10**10, 1, 2).selectExpr("CAST(id AS STRING) AS value").write.format("groupkafka").mode("append")
    options = {"kafka.bootstrap.servers": sink.cluster.bootstrap_servers, "topic": sink.target}

    def cancel() -> None:
        until(lambda: sink.end() > 1000, "the write has begun")
        spark.sparkContext.cancelAllJobs()

    strike = in_background(cancel)
    with pytest.raises(Py4JJavaError, match="cancel"):
        writer.options(**options).save()
    strike.join()


KILLED = """
import sys
from pyspark.sql import SparkSession

servers, topic, guarantee = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 4000000).option("numPartitions", 2).load()
writer = rows.selectExpr("CAST(value AS STRING) AS value").writeStream.format("groupkafka")
writer = writer.option("kafka.bootstrap.servers", servers).option("topic", topic).option("checkpointLocation", "checkpoint")
writer.start().awaitTermination()
"""


@pytest.mark.skipif(not CAN_LOOK, reason="looks for processes in /proc")
def test_a_driver_that_is_killed_leaves_no_transaction_open(
    cluster: Cluster, topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody starts the query again. Its workers end their transactions when they lose the JVM."""
    name, mark = topic(), f"killed-{tmp_path.name}"
    monkeypatch.setenv("GROUPKAFKA_TEST_MARK", mark)
    (tmp_path / "killed.py").write_text(KILLED)
    process = SparkProcess("killed", tmp_path, [sys.executable, "killed.py", cluster.bootstrap_servers, name, "exactly-once"])
    try:
        until(lambda: sum(hidden(cluster, name).values()) > 1000 or process.ended, "a micro-batch is being written", 180)
        os.kill(driver_jvm(mark), signal.SIGKILL)
        until(lambda: not any(hidden(cluster, name).values()), "no transaction is open", READERS_WAIT_S)
    finally:
        process.close()
    assert read_committed(cluster, name) == []
