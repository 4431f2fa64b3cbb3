"""Runs one source once: a streaming query over a topic, whose first micro-batch is measured separately from the later ones."""

from __future__ import annotations

import itertools
import json
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.processes import EXECUTOR, CpuByPart, PeakMemory, Peaks, cpu_seconds, drivers_python_memory
from benchmarks.topics import Load
from devtools.broker import Cluster

ALL, VALUE = "all columns", "value STRING"
COLUMNS = (ALL, VALUE)
"""What a query asks the source for. Spark's own source has no `.schema()`: its query casts the value and drops the others."""

SOURCES = {"native": "groupkafka", "pure": "groupkafka_pure", "spark": "kafka", "ceiling": "groupkafka_ceiling"}
"""Name in the tables: format. In this order they run in each round. The ceiling is Spark's speed when reading costs nothing."""

BATCHES = 4
"""The number of micro-batches in a load.

The first starts the query, its consumers and its connections. The last ends at the end of the log, where Spark's source waits up
to half a second for each partition. It does not count.
"""

_PARTS = {"pure": 8, "plain": 2}
"""These read only a part of the load, since they are slow."""

_LIMIT_S = 600.0
_LOOK_S = 0.02
"""How often to check, in seconds. Checking more often would disturb the measurement."""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Cost:
    """The cost of some micro-batches: rows, seconds from trigger to trigger, and CPU seconds.

    `cpu_seconds` includes all of Spark's processes, or the consume loop. `parts` has the seconds by part of the work. Threads
    that have ended count only in `cpu_seconds`.
    """

    rows: int
    seconds: float
    cpu_seconds: float
    parts: dict[str, float] = field(default_factory=dict)

    @property
    def rows_per_s(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds

    @property
    def cpu_s_per_million(self) -> float:
        """CPU seconds per million rows of the executor and its workers, without the JVM's compilers."""
        used = sum(self.parts[part] for part in EXECUTOR) if self.parts else self.cpu_seconds
        return used / self.rows * 1e6


@dataclass(frozen=True)
class Throughput:
    """The costs of a query's first micro-batch and of its later ones except the last, and the query's peak memory."""

    first: Cost
    later: Cost
    peaks: Peaks


class Runs:
    """Runs queries in one session against one cluster.

    Args:
        spark: The session.
        cluster: The brokers.
        folder: Takes checkpoints and output.
        variants: more sources by name, each of which is this source with its own options.
    """

    def __init__(
        self, spark: SparkSession, cluster: Cluster, folder: Path, variants: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self._spark = spark
        self._cluster = cluster
        self._folder = folder
        self._variants = variants or {}
        self._broker = [node.pid for node in cluster.nodes]

    def throughput(self, source: str, columns: str, load: Load, sink: str) -> Throughput:
        """Read these columns of the load, or of a part of it, into `sink` (`noop` or `parquet`)."""
        starts = load.last(load.records // _PARTS.get(source, 1))
        records = load.records - sum(starts.values())
        options = {
            "startingOffsets": json.dumps({load.topic: {str(number): start for number, start in starts.items()}}),
            "maxOffsetsPerTrigger": str(-(-records // BATCHES)),
        }
        with PeakMemory(self._broker) as memory:
            meter = _Meter(self._broker)
            query = self._start(source, columns, load.topic, sink, options)
            _until_batch(query, 0)
            first = meter.lap()
            _until_batch(query, BATCHES - 2)
            later = meter.lap()
        _until_ended(query)
        batches = progress_with_rows(query)
        # The limit is split into whole offsets, so a few may be left for one more micro-batch.
        if not BATCHES <= len(batches) <= BATCHES + 1 or sum(each["numInputRows"] for each in batches) != records:
            raise RuntimeError(f"{source} read {[each['numInputRows'] for each in batches]} of {records} rows")
        return Throughput(first.cost(batches[:1]), later.cost(batches[1 : BATCHES - 1]), memory.peaks)

    def trickle(self, source: str, seconds: float, per_s: float) -> list[int]:
        """Write single records for some time, and return the time of each micro-batch with records, in ms."""
        topic = f"trickle-{next(_numbers)}"
        self._cluster.create_topic(topic, 4)
        query = self._start(source, ALL, topic, "noop", {"startingOffsets": "earliest"}, endless=True)
        stop = threading.Event()
        writer = threading.Thread(target=self._write, args=(topic, per_s, stop))
        writer.start()
        try:
            # The first micro-batches start workers and connections.
            until(query, lambda: len(progress_with_rows(query)) >= 5)
            warm = len(progress_with_rows(query))
            time.sleep(seconds)
        finally:
            stop.set()
            writer.join()
            query.stop()
        return [each["durationMs"]["triggerExecution"] for each in progress_with_rows(query)[warm:]]

    def wide(self, source: str, topic: str, width: int, warm_up: int, batches: int) -> list[int]:
        """Return the times, in ms, of this many micro-batches that have at least as many rows as the topic has partitions."""
        query = self._start(source, ALL, topic, "noop", {"startingOffsets": "latest"}, endless=True)

        def times() -> list[int]:
            whole = [each for each in progress_with_rows(query) if each["numInputRows"] >= width]
            return [each["durationMs"]["triggerExecution"] for each in whole]

        try:
            until(query, lambda: len(times()) >= warm_up + batches)
        finally:
            query.stop()
        return times()[warm_up : warm_up + batches]

    def idle(self, source: str, interval: str | None, warm_up: float, seconds: float) -> tuple[dict[str, float], int]:
        """Run a query that has nothing to read after its first record.

        Args:
            source: What is read.
            interval: the trigger's, as Spark takes it. None: triggers as fast as possible.
            warm_up: the seconds after the first record that do not count.
            seconds: the length of the measurement.

        Returns:
            The CPU seconds of each part of the work, and the resident memory in bytes of the driver's largest Python process,
            which is the query's runner if it has one.
        """
        topic = f"idle-{next(_numbers)}"
        self._cluster.create_topic(topic, 4)
        query = self._start(source, ALL, topic, "noop", {"startingOffsets": "earliest"}, endless=True, interval=interval)
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap_servers})
        producer.produce(topic, b"x")
        producer.flush(60)
        try:
            until(query, lambda: bool(progress_with_rows(query)))
            time.sleep(warm_up)
            parts = CpuByPart(self._broker)
            time.sleep(seconds)
            return parts.seconds(), drivers_python_memory(self._broker)
        finally:
            query.stop()

    def plain_consume(self, load: Load) -> Cost:
        """Run confluent-kafka's own `consume` in a loop, without Spark: the best case for a reader of `Message` objects."""
        starts = load.last(load.records // _PARTS["plain"])
        records = load.records - sum(starts.values())
        consumer = Consumer(
            {
                "bootstrap.servers": self._cluster.bootstrap_servers,
                "group.id": "plain",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(load.topic, number, start) for number, start in starts.items()])
        rows = len(consumer.consume(1, _LIMIT_S))
        began, cpu = time.monotonic(), time.process_time()
        while rows < records:
            for message in consumer.consume(min(1000, records - rows), 1):
                if message.error() is None:
                    message.key(), message.value(), message.timestamp()
                    rows += 1
        seconds, cpu = time.monotonic() - began, time.process_time() - cpu
        consumer.close()
        return Cost(rows, seconds, cpu)

    def _start(
        self,
        source: str,
        columns: str,
        topic: str,
        sink: str,
        more: dict[str, str],
        *,
        endless: bool = False,
        interval: str | None = None,
    ) -> StreamingQuery:
        # The group must be new, because this source would continue at the group's committed offsets.
        name = f"run-{uuid.uuid4()}"
        options = {
            "kafka.bootstrap.servers": self._cluster.bootstrap_servers,
            "subscribe": topic,
            **more,
            **self._variants.get(source, {}),
        }
        # Spark's source commits nothing, and warns if it is given a group.
        if source != "spark":
            options["kafka.group.id"] = name
        name_of_format = SOURCES["native" if source in self._variants else source]
        reader = self._spark.readStream.format(name_of_format).options(**options)
        if columns == VALUE and source != "spark":
            reader = reader.schema(VALUE)
        frame = reader.load()
        if columns == VALUE and source == "spark":
            frame = frame.selectExpr("CAST(value AS STRING) AS value")
        writer = frame.writeStream.format(sink).option("checkpointLocation", str(self._folder / name / "checkpoint"))
        if sink != "noop":
            writer = writer.option("path", str(self._folder / name / "out"))
        if interval is not None:
            writer = writer.trigger(processingTime=interval)
        return (writer if endless else writer.trigger(availableNow=True)).start()

    def _write(self, topic: str, per_s: float, stop: threading.Event) -> None:
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap_servers, "linger.ms": 0})
        for number in itertools.count():
            if stop.wait(1 / per_s):
                break
            producer.produce(topic, b"x" * 100, b"%d" % number, number % 4)
            producer.poll(0)
        producer.flush(10)


@dataclass(frozen=True)
class _Lap:
    """What passed between two looks at the clocks."""

    seconds: float
    cpu_seconds: float
    parts: dict[str, float]

    def cost(self, batches: list[dict[str, Any]]) -> Cost:
        """Return the cost of these micro-batches, which ran in this lap."""
        seconds = sum(each["durationMs"]["triggerExecution"] for each in batches) / 1000
        if seconds > self.seconds + 1:
            raise RuntimeError(f"Spark says {seconds} s, which is more than has passed")
        return Cost(sum(each["numInputRows"] for each in batches), seconds, self.cpu_seconds, self.parts)


class _Meter:
    """The clocks, read lap by lap."""

    def __init__(self, broker: list[int]) -> None:
        self._broker = broker
        self._began, self._cpu, self._parts = time.monotonic(), cpu_seconds(broker), CpuByPart(broker)

    def lap(self) -> _Lap:
        """Return the lap since the last call, or since this object was created."""
        lap = _Lap(time.monotonic() - self._began, cpu_seconds(self._broker) - self._cpu, self._parts.seconds())
        self._began, self._cpu, self._parts = time.monotonic(), cpu_seconds(self._broker), CpuByPart(self._broker)
        return lap


def progress_with_rows(query: StreamingQuery) -> list[dict[str, Any]]:
    """Return the progress of the micro-batches that had rows."""
    return [progress for progress in map(_as_dict, query.recentProgress) if progress["numInputRows"] > 0]


def _as_dict(progress: Any) -> dict[str, Any]:
    return {name: progress[name] for name in ("batchId", "numInputRows", "durationMs")}


def _until_batch(query: StreamingQuery, batch: int) -> None:
    """Wait until this micro-batch is finished."""

    def done() -> bool:
        # Not as JSON, which costs more than this call.
        last = query._jsq.lastProgress()
        return last is not None and last.batchId() >= batch and last.numInputRows() > 0

    until(query, done)


def _until_ended(query: StreamingQuery) -> None:
    if not query.awaitTermination(int(_LIMIT_S)):
        query.stop()
        raise RuntimeError(f"a query did not end within {_LIMIT_S:.0f} s")


def until(query: StreamingQuery, done: Any) -> None:
    """Wait until a condition holds. Raise an error if the query fails, ends before that, or takes too long."""
    limit = time.monotonic() + _LIMIT_S
    while True:
        # In this order, because a query that ends may have finished the work.
        active = query.isActive
        if done():
            return
        error = query.exception()
        if error is not None:
            raise error
        if not active:
            raise RuntimeError(f"a query ended too early, after {query.recentProgress}")
        if time.monotonic() > limit:
            query.stop()
            raise RuntimeError(f"a query did nothing for {_LIMIT_S:.0f} s")
        time.sleep(_LOOK_S)
