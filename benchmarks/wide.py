"""`make bench-wide`: measures micro-batches with few records from many partitions, as fast as possible, next to 4 partitions.

A thread keeps writing one record to each partition. The time of a micro-batch is Spark's `triggerExecution`, and only
micro-batches with at least as many records as partitions count.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from benchmarks.environment import environment, save
from benchmarks.flags import STOCK_FLAGS
from benchmarks.placement import PLACEMENTS, starting_on
from benchmarks.runs import SOURCES, Runs
from benchmarks.session import open_session
from devtools.broker import Cluster

NARROW = 4
WIDTHS = (NARROW, 64, 256, 1_000)
WIDEST_OF_SPARK = 64
"""Spark's own source waits up to half a second for each partition: at 64, its micro-batches take some seconds."""

GOALS = {64: 1.3, 256: 2.0, 1_000: 4.0}
"""Medians to that of 4 partitions."""


@click.command()
@click.option("--placement", default="shared", show_default=True, type=click.Choice(list(PLACEMENTS)))
@click.option("--partitions", "widths", type=int, multiple=True, default=WIDTHS, show_default=True)
@click.option(
    "--source", "sources", type=click.Choice(list(SOURCES)), multiple=True, default=("native", "spark"), show_default=True
)
@click.option("--batches", default=40, show_default=True, help="Measured micro-batches; a tenth for Spark's own source.")
@click.option("--warm-up", default=10, show_default=True, help="Micro-batches that do not count.")
@click.option("--every", default=0.1, show_default=True, help="Seconds from one record of a partition to its next.")
@click.option("--bytes", "size", default=100, show_default=True, help="Bytes of a record's value.")
@click.option("--json", "output", type=click.Path(path_type=Path), default=Path("build/bench-wide.json"), show_default=True)
def main(
    placement: str,
    widths: Sequence[int],
    sources: Sequence[str],
    batches: int,
    warm_up: int,
    every: float,
    size: int,
    output: Path,
) -> None:
    """Print the medians, and their ratios to the median for the first number of partitions."""
    console = Console(width=120)
    place = PLACEMENTS[placement]()
    found: dict[str, dict[int, list[int]]] = {source: {} for source in sources}
    broker = Cluster(config={"log.segment.delete.delay.ms": "0"}, jvm_options=STOCK_FLAGS)
    with tempfile.TemporaryDirectory() as name, starting_on(place.broker), broker as cluster:
        with starting_on(place.spark):
            spark = open_session(place.cores, Path(name), "")
        runs = Runs(spark, cluster, Path(name))
        for number, (source, width) in enumerate(itertools.product(sources, widths)):
            if source == "spark" and width > WIDEST_OF_SPARK:
                continue
            counts = (max(1, warm_up // 5), max(1, batches // 10)) if source == "spark" else (warm_up, batches)
            topic = f"wide-{number}"
            cluster.create_topic(topic, width)
            with _Writer(cluster.bootstrap_servers, topic, width, every, size):
                found[source][width] = runs.wide(source, topic, width, *counts)
            console.print(f"{source}, {width:,} partitions: {statistics.median(found[source][width]):,.0f} ms", style="dim")
        show(console, place.name, found)
        spark.stop()
    results: dict[str, Any] = {
        "environment": environment() | {"placement": place.name},
        "every": every,
        "bytes": size,
        "ms": found,
    }
    save(output, results)


class _Writer:
    """Writes one record to each partition at a fixed interval."""

    def __init__(self, servers: str, topic: str, width: int, every: float, size: int) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
        self._topic, self._width, self._every, self._value = topic, width, every, b"x" * size
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._stop.wait(self._every):
            for partition in range(self._width):
                self._producer.produce(self._topic, self._value, partition=partition)
            self._producer.flush(60)


def show(console: Console, place: str, found: Mapping[str, Mapping[int, Sequence[int]]]) -> None:
    """Print a table."""
    table = Table(title=f"{place}: micro-batches of a wide trickle", title_justify="left")
    for column in ("source", "partitions", "batches", "median ms", "to the first", "goal"):
        table.add_column(column, justify="left" if column == "source" else "right")
    for source, by_width in found.items():
        for width, times in by_width.items():
            ratio = statistics.median(times) / statistics.median(next(iter(by_width.values())))
            goal = f"{GOALS[width]}" if source == "native" and width in GOALS else ""
            table.add_row(source, f"{width:,}", str(len(times)), f"{statistics.median(times):,.0f}", f"{ratio:.2f}", goal)
    console.print(table)


if __name__ == "__main__":
    main()
