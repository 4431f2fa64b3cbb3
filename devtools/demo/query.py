"""Runs a query of the demo in its own process: `python -m devtools.demo.query NAME FOLDER`.

- Standard input: one line of JSON with the options of the source, when the broker is up. Spark starts without waiting for it.
  Nothing follows. When standard input ends, the demo has ended, and this process ends too.
- Standard output: one line of JSON for each event: `ready`, `started`, `progress`, `stopped`, `failed`.
- SIGTERM stops the query after its running micro-batch. SIGUSR1 interrupts it, so ranges may remain claimed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from devtools.checkpoints import without_processes
from devtools.spark_home import spark_home
from spark_groupsource import stop_gracefully

LOOK_EVERY_S = 0.1
"""How often the process checks for progress of its query, in seconds."""

SPARK_CONTEXT = "=== Streaming Query ==="
"""The line in the text of a failed query after which Spark adds its own details."""

JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""Makes the JVM use only its first compiler. In a JVM that lives for a minute, the second one does not pay off."""


def main() -> int:
    """Run until a signal, a failure of the query, or the end of standard input; return the exit status."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    # Output of Spark's JVM and its Python workers must not mix with the events.
    events = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    # Do not use an Event: its `set` could wait forever for a lock that the interrupted thread holds.
    stopped: list[int] = []
    for each in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(each, lambda number, _frame: stopped.append(number))
    options: SimpleQueue[Mapping[str, str]] = SimpleQueue()
    threading.Thread(target=_listen, args=(options,), daemon=True).start()
    try:
        spark = session(name, folder)
        # Do not set this in `session`, which the chaos tests use with two drivers on one checkpoint.
        spark.conf.set(*without_processes())
        _send(events, "ready")
        chosen = _wait_for(options, stopped)
        if chosen is not None:
            _run(start(spark, folder, chosen), events, stopped)
    except Exception as error:  # noqa: BLE001 -- the demo shows any error
        # Drop Spark's own part of the text, which is long and less helpful: it has offsets and query plans.
        print(traceback.format_exc().partition(SPARK_CONTEXT)[0])
        _send(events, "failed", message=str(error).partition("\n")[0])
        return 1
    _send(events, "stopped")
    return 0


def session(name: str, folder: Path, master: str = "local[1]") -> SparkSession:
    """Return a small Spark session, with `spark_home()` unless SPARK_HOME is set. It writes only below `folder`."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if "SPARK_HOME" not in os.environ:
        os.environ["SPARK_HOME"] = str(spark_home())
    # Without this, Spark would resolve the host's own name, which takes seconds on a laptop without a network.
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    return (
        SparkSession.builder.master(master)
        .appName(f"groupkafka demo, query {name}")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", f"{JVM_OPTIONS} -Djava.io.tmpdir={folder / 'tmp'}")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(folder / "tmp"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.streaming.numRecentProgressUpdates", "20")
        .getOrCreate()
    )


def start(spark: SparkSession, folder: Path, options: Mapping[str, str]) -> StreamingQuery:
    """Start the query, or restart it from its checkpoint. It writes Parquet files."""
    records = spark.readStream.format("groupkafka").options(**options).load()
    counted = records.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS number", "partition", "offset")
    return (
        counted.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )


def _run(query: StreamingQuery, events: TextIO, stopped: Sequence[int]) -> None:
    _send(events, "started")
    sent = ""
    while query.isActive and not stopped:
        time.sleep(LOOK_EVERY_S)
        sent = _send_progress(query, events, sent)
    if not stopped:
        error = query.exception()
        raise RuntimeError("the query ended by itself") if error is None else error
    if signal.SIGUSR1 in stopped:
        query.stop()
    else:
        stop_gracefully(query)
    _send_progress(query, events, sent)


def _send_progress(query: StreamingQuery, events: TextIO, sent: str) -> str:
    """Send the micro-batches that are newer than the timestamp `sent`; return the newest timestamp."""
    # Timestamps in ISO 8601 sort as text.
    for progress in query.recentProgress:
        if progress.timestamp > sent:
            sent = progress.timestamp
            # Only the JSON has offsets as JSON in every version of Spark.
            source = json.loads(progress.sources[0].json)
            _send(
                events,
                "progress",
                batch=progress.batchId,
                timestamp=sent,
                rows=progress.numInputRows,
                end=source["endOffset"],
                latest=source["latestOffset"],
                durations=progress.durationMs,
            )
    return sent


def _send(events: TextIO, event: str, **more: Any) -> None:
    events.write(json.dumps({"event": event, **more}) + "\n")
    events.flush()


def _listen(options: SimpleQueue[Mapping[str, str]]) -> None:
    for line in sys.stdin:
        options.put(json.loads(line))
    # No process reads the events any more. Spark's JVM ends when it notices that this process has ended.
    os._exit(1)


def _wait_for(options: SimpleQueue[Mapping[str, str]], stopped: Sequence[int]) -> Mapping[str, str] | None:
    while options.empty():
        if stopped:
            return None
        time.sleep(LOOK_EVERY_S)
    return options.get()


if __name__ == "__main__":
    sys.exit(main())
