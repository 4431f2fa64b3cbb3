"""A warm Spark that runs one query after another: `python -m tests.harness.driver NAME FOLDER`.

standard input    one line of JSON for each command: `start` (a query, with all that it needs) or `stop`. Its end means that
                  the harness has ended, and all processes of this session end too
standard output   one line of JSON for each event: `ready` with the JVM's pid, `started`, `stopped`, `failed`
"""

from __future__ import annotations

import json
import os
import pkgutil
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from devtools.demo.query import SPARK_CONTEXT, session
from spark_groupsource.spark.durable_listener import DurableListener
from tests.harness.events import EventLog
from tests.harness.source import FOLDER, FORMAT, LOG, STREAM, ChaosDataSource
from tests.harness.steps import Step, Steps
from tests.harness.warm_up import warm_up

AVAILABLE_NOW = "available now"
"""The trigger of a command that is to read what there is, and to end."""

# A task that loses its worker is retried, as on a cluster.
MASTER = "local[1,4]"

_added: list[DurableListener] = []
"""The listener of this process, while the query's way is that one."""


def main() -> None:
    """Obey commands until standard input ends, and then end this session with all its processes."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    # The output of Spark's JVM and its Python workers must not mix with the events.
    events = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    commands: SimpleQueue[Mapping[str, Any]] = SimpleQueue()
    # From the start: if the harness dies while Spark warms up, nothing is left running.
    threading.Thread(target=_listen, args=(commands,), daemon=True).start()
    spark = session(name, folder, MASTER)
    spark.dataSource.register(ChaosDataSource)
    # The harness reads the whole history of a checkpoint.
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", "10000")
    warm_up(spark, folder / "warm-up")
    _tell(events, "ready", jvm=spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    query: StreamingQuery | None = None
    while True:
        command = commands.get()
        if command["do"] == "start":
            query = start(spark, command)
            _tell(events, "started")
            threading.Thread(target=_watch, args=(query, events), daemon=True).start()
        elif query is not None:
            query.stop()


def _listen(commands: SimpleQueue[Mapping[str, Any]]) -> None:
    for line in sys.stdin:
        commands.put(json.loads(line))
    # All of this session, a paused runner included: nobody is left to resume it.
    os.killpg(0, signal.SIGKILL)


def start(spark: SparkSession, command: Mapping[str, Any]) -> StreamingQuery:
    """Start a query, or restart it from its checkpoint.

    A command may choose another source (`format`, and in `register` where to find its class), settings of Spark (`conf`) and
    of the sink (`sink options`). It may have a listener report finished micro-batches (`listener`), or name a function
    that prepares the session as a user's program does (`prepare`).
    """
    options = command["options"]
    listen(spark, wanted=command.get("listener", False))
    if "prepare" in command:
        pkgutil.resolve_name(command["prepare"])(spark)
    for name, value in command.get("conf", {}).items():
        spark.conf.set(name, value)
    if "register" in command:
        spark.dataSource.register(pkgutil.resolve_name(command["register"]))
    records = spark.readStream.format(command.get("format", FORMAT)).options(**options).load()
    counted = records.selectExpr("partition", "offset", "CAST(CAST(value AS STRING) AS BIGINT) AS number")
    if command["sink"] == "topic":
        values = counted.selectExpr("concat_ws(' ', partition, offset, number) AS value")
        return writer_of(values, command).format("groupkafka").options(**command["sink options"]).start()
    writer = writer_of(counted, command)
    output = Path(command["output"])
    if command["sink"] == "file":
        return writer.format("parquet").option("path", str(output)).options(**command.get("sink options", {})).start()
    output.mkdir(exist_ok=True)
    steps = Steps(Path(options[FOLDER]), EventLog(Path(options[LOG])), options[STREAM])
    return writer.foreachBatch(atomically_into(output, steps)).start()


def writer_of(records: DataFrame, command: Mapping[str, Any]) -> DataStreamWriter:
    """Return a query's writer, with its checkpoint and its trigger."""
    writer = records.writeStream.option("checkpointLocation", command["checkpoint"])
    available = command["trigger"] == AVAILABLE_NOW
    return writer.trigger(availableNow=True) if available else writer.trigger(processingTime=command["trigger"])


def listen(spark: SparkSession, *, wanted: bool) -> None:
    """Do what `register` does for a session, or undo it, because this driver's next query may belong to another run."""
    if wanted and not _added:
        _added.append(DurableListener())
        spark.streams.addListener(_added[0])
    elif _added and not wanted:
        spark.streams.removeListener(_added.pop())


def atomically_into(output: Path, steps: Steps) -> Callable[[DataFrame, int], None]:
    """Write a micro-batch as a whole or not at all, and skip one that was written before."""

    def write(frame: DataFrame, batch: int) -> None:
        target = output / f"{batch}.parquet"
        if not target.exists():
            partial = output / f"{batch}.partial"
            pq.write_table(frame.toArrow(), partial)
            partial.rename(target)
        steps.come_to(Step.AFTER_SINK)

    return write


def _watch(query: StreamingQuery, events: TextIO) -> None:
    try:
        query.awaitTermination()
    except Exception as error:  # noqa: BLE001 -- whatever it is, the harness shows it
        _tell(events, "failed", message=str(error).partition(SPARK_CONTEXT)[0][-2000:])
    else:
        _tell(events, "stopped")


def _tell(events: TextIO, event: str, **more: Any) -> None:
    events.write(json.dumps({"event": event, **more}) + "\n")
    events.flush()


if __name__ == "__main__":
    main()
