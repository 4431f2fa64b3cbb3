"""`make bench-sink`: measures transactional rows per second into Kafka and the cost of small micro-batches, next to Spark's own.

It also counts the connections that a running query's micro-batch opens. With authentication, each connection is a login.

The rows come from Spark's source `rate-micro-batch`, in four tasks. All sinks write the same rows, in turn, and the time of a
micro-batch is Spark's `addBatch`. The upper limit is a Python sink that discards its rows: only Spark's transfer of the rows to a
Python worker is left, which every Python sink needs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.dropping import DroppingDataSource
from benchmarks.environment import environment, save
from benchmarks.flags import STOCK_FLAGS
from benchmarks.placement import PLACEMENTS, starting_on
from benchmarks.runs import progress_with_rows, until
from benchmarks.session import open_session
from devtools.broker import Cluster

TASKS = 4
SINKS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "exactly-once": ("groupkafka", {}),
    "at-least-once": ("groupkafka", {"deliveryGuarantee": "at-least-once"}),
    "spark": ("kafka", {}),
    "ceiling": ("dropping", {}),
}
ROWS = {1_000: 200_000, 100: 1_000_000}
"""Rows of a micro-batch, by the size of a value in bytes. The unfavourable case comes first."""

SMALL_ROWS = 40
CONNECTING_TASKS = 16
STEADY_AFTER = 5
"""Micro-batches of a run before connections are counted."""
COUNTED = 20
"""Micro-batches in which they are counted."""
LOOK_FOR_PORTS_S = 3.0
WARM_UP = 2
FIRST_WARM_UP = 5
"""The JVM's compiler is busy during a session's first rounds."""


@click.command()
@click.option("--placement", default="busy", show_default=True, type=click.Choice(list(PLACEMENTS)))
@click.option("--rounds", default=5, show_default=True, help="Measured micro-batches of each sink; unmeasured ones come first.")
@click.option("--scale", default=1.0, show_default=True, help="How many of the usual rows are written.")
@click.option("--codec", "codecs", multiple=True, default=("lz4", "none"), show_default=True)
@click.option("--bytes", "sizes", multiple=True, type=click.Choice(list(ROWS)), default=tuple(ROWS), show_default=True)
@click.option("--conf", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the Spark session.")
@click.option("--json", "output", type=click.Path(path_type=Path), default=Path("build/bench-sink.json"), show_default=True)
def main(
    placement: str,
    rounds: int,
    scale: float,
    codecs: Sequence[str],
    sizes: Sequence[int],
    settings: Sequence[str],
    output: Path,
) -> None:
    """Print the medians, and their ratios to Spark's own sink in the same rounds."""
    console = Console(width=120)
    place = PLACEMENTS[placement]()
    about = environment() | {"placement": place.name, "scale": scale, "conf": list(settings)}
    results: dict[str, Any] = {"environment": about, "runs": []}
    broker = Cluster(config={"log.segment.delete.delay.ms": "0"}, jvm_options=STOCK_FLAGS)
    with tempfile.TemporaryDirectory() as name, starting_on(place.broker), broker as cluster:
        with starting_on(place.spark):
            spark = open_session(place.cores, Path(name), "")
        spark.dataSource.register(DroppingDataSource)
        for key, _, value in (one.partition("=") for one in settings):
            spark.conf.set(key, value)
        warm_up = FIRST_WARM_UP
        for size in sizes:
            for codec in codecs:
                rows = int(ROWS[size] * scale)
                times = in_turn(spark, cluster, Path(name), size, rows, codec, (warm_up, rounds))
                warm_up = WARM_UP
                results["runs"].append({"bytes": size, "codec": codec, "rows": rows, "ms": times})
                show(console, f"{place.name}: {rows:,} rows of {size} B, {codec}", rows, times)
        times = in_turn(spark, cluster, Path(name), 100, SMALL_ROWS, "none", (WARM_UP, 4 * rounds))
        results["runs"].append({"bytes": 100, "codec": "none", "rows": SMALL_ROWS, "ms": times})
        show(console, f"{place.name}: {SMALL_ROWS} rows of 100 B", SMALL_ROWS, times)
        opened = {
            sink: connections(spark, cluster, Path(name) / f"connections-{sink}", sink) for sink in SINKS if sink != "ceiling"
        }
        results["runs"].append({"tasks": CONNECTING_TASKS, "connections": opened})
        show_connections(console, f"{place.name}: {CONNECTING_TASKS} tasks of few rows, in a run that lasts", opened)
        spark.stop()
    save(output, results)


def in_turn(
    spark: SparkSession, cluster: Cluster, folder: Path, size: int, rows: int, codec: str, rounds: tuple[int, int]
) -> dict[str, list[int]]:
    """Run each sink's micro-batches in turn: some to warm up, then the measured ones. Return their times in ms."""
    warm_up, measured = rounds
    found: dict[str, list[int]] = {sink: [] for sink in SINKS}
    label = f"{size}-{rows}-{codec}"
    for sink in SINKS:
        cluster.create_topic(f"{label}-{sink}", TASKS)
    for number in range(warm_up + measured):
        for sink, times in found.items():
            took = one(spark, cluster, folder / f"{label}-{sink}", f"{label}-{sink}", sink, size, rows, codec)
            if number >= warm_up:
                times.append(took)
    return found


def one(spark: SparkSession, cluster: Cluster, folder: Path, topic: str, sink: str, size: int, rows: int, codec: str) -> int:
    """Run two more of a query's micro-batches. Return the `addBatch` time of the second one, in ms.

    In a run's first micro-batch, the sink also looks for an earlier attempt (short_runs.py measures whole runs).
    """
    name, options = SINKS[sink]
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", TASKS).load()
    query = (
        source.selectExpr(f"CAST(rpad(md5(CAST(value AS STRING)), {size}, md5(CAST(value + 1 AS STRING))) AS BINARY) AS value")
        .writeStream.format(name)
        .options(**options)
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("kafka.compression.type", codec)
        .option("topic", topic)
        .option("checkpointLocation", str(folder))
        .start()
    )
    until(query, lambda: len(progress_with_rows(query)) >= 2)
    query.stop()
    took: int = progress_with_rows(query)[1]["durationMs"]["addBatch"]
    return took


def connections(spark: SparkSession, cluster: Cluster, folder: Path, sink: str) -> float:
    """Return how many connections to the broker a micro-batch opens, once a run has had some."""
    topic = folder.name
    cluster.create_topic(topic, TASKS)
    name, options = SINKS[sink]
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10 * CONNECTING_TASKS)
    query = (
        source.option("numPartitions", CONNECTING_TASKS)
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format(name)
        .options(**options)
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("topic", topic)
        .option("checkpointLocation", str(folder))
        .start()
    )
    until(query, lambda: len(progress_with_rows(query)) >= STEADY_AFTER)
    ports = ClientPorts(int(cluster.bootstrap_servers.rpartition(":")[2]))
    began = len(progress_with_rows(query))

    def counted() -> bool:
        ports.look()
        return len(progress_with_rows(query)) >= began + COUNTED

    until(query, counted)
    ports.look(at_once=True)
    opened = len(ports.new)
    query.stop()
    return opened / COUNTED


class ClientPorts:
    """The client side of the connections to a local port (Linux). The system lists a closed connection for a minute."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._before = self._listed()
        self._looked_at = time.monotonic()
        self.new: set[int] = set()
        """Those that were opened since."""

    def look(self, *, at_once: bool = False) -> None:
        """Look for new connections, at most every few seconds."""
        if at_once or time.monotonic() - self._looked_at > LOOK_FOR_PORTS_S:
            self.new |= self._listed() - self._before
            self._looked_at = time.monotonic()

    def _listed(self) -> set[int]:
        found = set()
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            for line in Path(table).read_text().splitlines()[1:]:
                local, remote = (int(address.rpartition(":")[2], 16) for address in line.split()[1:3])
                found |= {remote} if local == self._port else {local} if remote == self._port else set()
        return found - {0}


def show_connections(console: Console, title: str, opened: Mapping[str, float]) -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left")
    table.add_column("sink")
    table.add_column("connections a micro-batch", justify="right")
    for sink, count in opened.items():
        table.add_row(sink, f"{count:.1f}")
    console.print(table)


def show(console: Console, title: str, rows: int, times: Mapping[str, Sequence[int]]) -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left")
    for column in ("sink", "rows/s", "to Spark's", "addBatch, ms", "above at-least-once, ms"):
        table.add_column(column, justify="left" if column == "sink" else "right")
    for sink, each in times.items():
        ratio = statistics.median(theirs / ours for ours, theirs in zip(each, times["spark"], strict=True))
        middle = statistics.median(each)
        above = statistics.median(ours - theirs for ours, theirs in zip(each, times["at-least-once"], strict=True))
        table.add_row(sink, f"{1000 * rows / middle:,.0f}", f"{ratio:.2f}", f"{middle:,.0f}", f"{above:,.0f}")
    console.print(table)


if __name__ == "__main__":
    main()
