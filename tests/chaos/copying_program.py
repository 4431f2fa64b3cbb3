"""A query of `make chaos-sink`: it copies a topic, marks each row with its task, and obeys commands, which are files.

python copying_program.py NAME SERVERS CORES PROCESS AGAIN

NAME is the name of the query and its checkpoint. Files whose names begin with PROCESS are commands to this process only. With
AGAIN=yes, a query that has failed is restarted in this process. Otherwise, the process ends with it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.chaos.visible import Task, row_mark, total_mark

SOURCE, TARGET, GROUP = "orders", "copies", "copying"
STARTED, FAILED, STOPPED = "query started", "query failed:", "query stopped"
"""Lines that the program prints."""

ROWS_AT_ONCE = 500
PAUSE_S = 0.15
"""After so many rows. So a task takes seconds, and not all of the processor."""
MOST_ROWS = 20_000
"""Of a micro-batch: a task has at most half of them, and takes three seconds for it."""
TOO_LARGE = 2_000_000


def marked(name: str, folder: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for a task's rows. The strikes `failing-row` and `failing-try` are files that one task finds."""
    large, once = folder / f"{name}.large", folder / f"{name}.once"

    def mark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty("streaming.sql.batchId")
        assert batch is not None
        task = Task(name, int(batch), context.partitionId())
        mine = folder / f"{name}.large-{task.batch}-{task.number}"
        rows = 0
        for each in batches:
            # The task that renames it first fails, in each of its attempts.
            with contextlib.suppress(FileNotFoundError):
                large.rename(mine)
            if mine.exists():
                yield pa.record_batch({"value": ["x" * TOO_LARGE]})
            with contextlib.suppress(FileNotFoundError):
                once.unlink()
                raise ValueError("this row fails once")
            numbers = pc.cast(each.column(0), pa.string())
            yield pa.record_batch({"value": pc.binary_join_element_wise(numbers, row_mark(task), "")})
            rows += each.num_rows
            time.sleep(PAUSE_S)
        if rows:
            yield pa.record_batch({"value": [total_mark(task, rows)]})

    return mark


def start(spark: SparkSession, name: str, servers: str) -> StreamingQuery:
    """Start or restart the query."""
    orders = (
        spark.readStream.format("groupkafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.group.id", GROUP)
        .option("kafka.session.timeout.ms", 6000)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", MOST_ROWS)
        .option("checkpointLocation", f"{name}/checkpoint")
        .load()
    )
    query = (
        orders.select("value")
        .mapInArrow(marked(name, Path.cwd()), "value STRING")
        .writeStream.format("groupkafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", TARGET)
        .option("checkpointLocation", f"{name}/checkpoint")
        .start()
    )
    print(STARTED, file=sys.stderr, flush=True)
    return query


def report(query: StreamingQuery) -> bool:
    """Print the error with which a query has failed, if any."""
    error = query.exception()
    if error is None:
        return False
    print(FAILED, " ".join(str(error).split()), file=sys.stderr, flush=True)
    return True


def taken(process: str, command: str) -> bool:
    """Take a command, and return whether there was one."""
    try:
        os.unlink(f"{process}.{command}")
    except FileNotFoundError:
        return False
    return True


def main() -> int:
    """Run until a command ends the query, or an error does."""
    name, servers, cores, process, again = sys.argv[1:]
    spark = (
        SparkSession.builder.master(f"local[{cores},4]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", ROWS_AT_ONCE)
        .getOrCreate()
    )
    query = start(spark, name, servers)
    while True:
        if taken(process, "cancel"):
            spark.sparkContext.cancelJobGroup(str(query.runId))
        ends, anew = taken(process, "stop"), taken(process, "restart")
        if ends or anew:
            query.stop()
            print(STOPPED, file=sys.stderr, flush=True)
        failed = not query.isActive and report(query)
        for left in Path.cwd().glob(f"{name}.large-*") if failed else ():
            left.unlink(missing_ok=True)
        if ends or (failed and again != "yes"):
            return int(failed)
        if anew or failed:
            query = start(spark, name, servers)
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
