"""One run of one source: a streaming query over a topic, measured when it is warm."""

from __future__ import annotations

import itertools
import json
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.processes import CpuByPart, PeakMemory, Peaks, cpu_seconds
from benchmarks.topics import Load
from spark_groupsource.dev_broker import Cluster

# Name in the tables: format. In this order they run in each round.
SOURCES = {"native": "groupkafka", "pure": "groupkafka_pure", "spark": "kafka"}
# How fast Spark is when reading costs nothing.
CEILING = {"ceiling": "groupkafka_ceiling"}
# The number of micro-batches of a load. The first starts the query, the workers and the connections, and does not count.
# They are large: the trickle measures what Spark does once in each, its logs and its plan.
BATCHES = 2
# These read only a part of the load, since they are slow.
PARTS = {"pure": 8, "plain": 2}
_LIMIT_S = 600.0
# Looking more often would disturb the measurement.
_LOOK_S = 0.02

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Throughput:
    """The micro-batches after the first (`BATCHES`): their rows, time from trigger to trigger, CPU time and peaks of memory."""

    rows: int
    seconds: float
    cpu_seconds: float
    peaks: Peaks
    # CPU seconds by part of the work. Threads that ended meanwhile count in `cpu_seconds` only.
    parts: dict[str, float] = field(default_factory=dict)

    @property
    def rows_per_s(self) -> float:
        """Rows for each second."""
        return self.rows / self.seconds

    @property
    def cpu_s_per_million(self) -> float:
        """CPU seconds of Spark's processes, or of the consume loop, for each million rows."""
        return self.cpu_seconds / self.rows * 1e6


class Runs:
    """Runs queries in one session against one cluster; `folder` takes checkpoints and output."""

    def __init__(self, spark: SparkSession, cluster: Cluster, folder: Path) -> None:
        self._spark = spark
        self._cluster = cluster
        self._folder = folder
        self._broker = [node.pid for node in cluster.nodes]

    def throughput(self, source: str, load: Load, sink: str) -> Throughput:
        """Read the load, or its part, into `sink` (`noop` or `parquet`)."""
        starts = load.last(load.records // PARTS.get(source, 1))
        records = load.records - sum(starts.values())
        options = {
            "startingOffsets": json.dumps({load.topic: {str(number): start for number, start in starts.items()}}),
            "maxOffsetsPerTrigger": str(-(-records // BATCHES)),
        }
        with PeakMemory(self._broker) as memory:
            query = self._start(source, load.topic, sink, options)
            _until_batch(query, 0)
            began, cpu, parts = time.monotonic(), cpu_seconds(self._broker), CpuByPart(self._broker)
            _until_batch(query, BATCHES - 1)
            # Without the cost of ending a query.
            cpu = cpu_seconds(self._broker) - cpu
            by_part = parts.seconds()
        _until_ended(query)
        batches = _progress_with_rows(query)
        # The limit is split into whole offsets: a few may be left for one more micro-batch.
        if not BATCHES <= len(batches) <= BATCHES + 1 or sum(each["numInputRows"] for each in batches) != records:
            raise RuntimeError(f"{source} read {[each['numInputRows'] for each in batches]} of {records} rows")
        seconds = sum(each["durationMs"]["triggerExecution"] for each in batches[1:BATCHES]) / 1000
        if seconds > time.monotonic() - began + 1:
            raise RuntimeError(f"{source}: Spark says {seconds} s, which is more than has passed")
        return Throughput(sum(each["numInputRows"] for each in batches[1:BATCHES]), seconds, cpu, memory.peaks, by_part)

    def trickle(self, source: str, seconds: float, per_s: float) -> list[int]:
        """Write single records for so long, and return the time of each micro-batch with records, in ms."""
        topic = f"trickle-{next(_numbers)}"
        self._cluster.create_topic(topic, 4)
        query = self._start(source, topic, "noop", {"startingOffsets": "earliest"}, endless=True)
        stop = threading.Event()
        writer = threading.Thread(target=self._write, args=(topic, per_s, stop))
        writer.start()
        try:
            # The first ones start workers and connections.
            _until(query, lambda: len(_progress_with_rows(query)) >= 5)
            warm = len(_progress_with_rows(query))
            time.sleep(seconds)
        finally:
            stop.set()
            writer.join()
            query.stop()
        return [each["durationMs"]["triggerExecution"] for each in _progress_with_rows(query)[warm:]]

    def plain_consume(self, load: Load) -> Throughput:
        """Run confluent-kafka's own `consume` in a loop, without Spark: the best case for a reader of `Message` objects."""
        starts = load.last(load.records // PARTS["plain"])
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
        return Throughput(rows, seconds, cpu, Peaks(0, 0))

    def _start(self, source: str, topic: str, sink: str, more: dict[str, str], *, endless: bool = False) -> StreamingQuery:
        # The group must be new: this source would go on at the group's committed offsets.
        name = f"run-{uuid.uuid4()}"
        options = {
            "kafka.bootstrap.servers": self._cluster.bootstrap_servers,
            "subscribe": topic,
            **more,
        }
        # Spark's source commits nothing, and warns if it is given a group.
        if source != "spark":
            options["kafka.group.id"] = name
        writer = self._spark.readStream.format((SOURCES | CEILING)[source]).options(**options).load().writeStream.format(sink)
        writer = writer.option("checkpointLocation", str(self._folder / name / "checkpoint"))
        if sink != "noop":
            writer = writer.option("path", str(self._folder / name / "out"))
        return (writer if endless else writer.trigger(availableNow=True)).start()

    def _write(self, topic: str, per_s: float, stop: threading.Event) -> None:
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap_servers, "linger.ms": 0})
        for number in itertools.count():
            if stop.wait(1 / per_s):
                break
            producer.produce(topic, b"x" * 100, b"%d" % number, number % 4)
            producer.poll(0)
        producer.flush(10)


def _progress_with_rows(query: StreamingQuery) -> list[dict[str, Any]]:
    return [progress for progress in map(_as_dict, query.recentProgress) if progress["numInputRows"] > 0]


def _as_dict(progress: Any) -> dict[str, Any]:
    return {name: progress[name] for name in ("batchId", "numInputRows", "durationMs")}


def _until_batch(query: StreamingQuery, batch: int) -> None:
    """Wait until this micro-batch is done."""

    def done() -> bool:
        # Not as JSON, which costs more than this call.
        last = query._jsq.lastProgress()
        return last is not None and last.batchId() >= batch and last.numInputRows() > 0

    _until(query, done)


def _until_ended(query: StreamingQuery) -> None:
    if not query.awaitTermination(int(_LIMIT_S)):
        query.stop()
        raise RuntimeError(f"a query did not end within {_LIMIT_S:.0f} s")


def _until(query: StreamingQuery, done: Any) -> None:
    limit = time.monotonic() + _LIMIT_S
    while True:
        # In this order: a query that ends may have finished the work.
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
