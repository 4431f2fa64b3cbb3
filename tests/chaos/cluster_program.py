"""The driver of `make chaos-cluster`: two queries read a topic, one into files and one into a topic, each after a shuffle.

python cluster_program.py MASTER SERVERS [NAME=VALUE...]

The settings are Spark's, in addition to those of all cases. A `driver.stop` file in its folder ends the program, and so does the
end of a query.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_groupsource import register
from tests.chaos.copying_program import FAILED, MOST_ROWS, ROWS_AT_ONCE, SOURCE, STARTED, TARGET, marked, report, taken

FILES, EVENTS, NAME = "files", "events", "driver"
PARTITIONS = 3
"""Of the shuffle: as many tasks write."""
SLOW_EVERY = 5
SLOW_S = 6.0
"""The first attempt of every fifth task stands still for so long: Spark makes a speculative one, which is quicker."""

Rows = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.locality.wait": "0s",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_AT_ONCE),
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.speculation": "true",
    "spark.speculation.task.duration.threshold": "3s",
    # A strike comes every few seconds, so one task or stage may be hit repeatedly, which is not the source's fault.
    "spark.task.maxFailures": "100",
    "spark.stage.maxConsecutiveAttempts": "100",
    "spark.shuffle.io.retryWait": "1s",
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
}


def slow_at_first(rows: Rows) -> Rows:
    """Return the same function, but slow in the first attempts of some tasks."""

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        if context.attemptNumber() == 0 and (batch * PARTITIONS + context.partitionId()) % SLOW_EVERY == 0:
            time.sleep(SLOW_S)
        yield from rows(batches)

    return slow


def start(spark: SparkSession, servers: str, name: str) -> StreamingQuery:
    """Start the query into files, or the one into a topic. Each has its own group."""
    orders = (
        spark.readStream.format("groupkafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.group.id", name)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", MOST_ROWS)
        .load()
        .select("value")
        .repartition(PARTITIONS)
    )
    rows = orders.mapInArrow(slow_at_first(marked(name, Path.cwd())), "value STRING").writeStream.queryName(name)
    if name == FILES:
        rows = rows.format("parquet").option("path", FILES)
    else:
        rows = rows.format("groupkafka").option("kafka.bootstrap.servers", servers).option("topic", TARGET)
    query = rows.option("checkpointLocation", f"checkpoint-{name}").start()
    print(STARTED, file=sys.stderr, flush=True)
    return query


def main() -> int:
    """Run until a command ends the queries, or one of them ends on its own."""
    master, servers, *more = sys.argv[1:]
    (Path.cwd() / EVENTS).mkdir(exist_ok=True)
    settings: dict[str, bool | float | int | str | None] = {
        **SETTINGS,
        "spark.eventLog.dir": (Path.cwd() / EVENTS).as_uri(),
        **dict(one.split("=", 1) for one in more),
    }
    spark = SparkSession.builder.master(master).appName("chaos-cluster").config(map=settings).getOrCreate()
    register(spark)
    queries = [start(spark, servers, name) for name in (FILES, TARGET)]
    while all(query.isActive for query in queries):
        if taken(NAME, "stop"):
            for query in queries:
                query.stop()
            return 0
        time.sleep(0.1)
    for query in queries:
        if not query.isActive and not report(query):
            print(FAILED, f"{query.name} has ended without an error", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
