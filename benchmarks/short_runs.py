"""`make bench-runs`: measures how long an AvailableNow run takes, from `start()` until the query has ended, as in a cron job.

Spark's own source and sink and this project's run in turn in one session. Each job reads its own topic with four partitions, and
discards the rows or writes them to its own topic. It runs three times: with a new checkpoint, then with new rows, then without.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.environment import environment, save
from benchmarks.flags import STOCK_FLAGS
from benchmarks.placement import shared
from benchmarks.session import open_session
from devtools.broker import Cluster

PARTITIONS = 4
SPARK, AT_LEAST_ONCE, EXACTLY_ONCE = "Spark's", "at least once", "exactly once"
TOPIC, READ_ONLY = "into a topic", "read only"
WAYS: Mapping[tuple[str, str], tuple[str, str, Mapping[str, str]]] = {
    (TOPIC, SPARK): ("kafka", "kafka", {}),
    (TOPIC, EXACTLY_ONCE): ("groupkafka", "groupkafka", {}),
    (TOPIC, AT_LEAST_ONCE): ("groupkafka", "groupkafka", {"deliveryGuarantee": "at-least-once"}),
    (READ_ONLY, SPARK): ("kafka", "noop", {}),
    (READ_ONLY, "ours"): ("groupkafka", "noop", {}),
}
"""Source, sink and the sink's options."""

RUNS = {"new checkpoint, 1,000 rows": 1_000, "100 new rows": 100, "nothing new": 0}
"""How many rows are added before each run."""

WARM_UP = 2
"""Rounds that do not count: the JVM's compiler is busy."""


class Jobs:
    """Runs jobs in one session against one cluster."""

    def __init__(self, spark: SparkSession, cluster: Cluster, folder: Path, options: Mapping[str, str]) -> None:
        self._spark = spark
        self._cluster = cluster
        self._folder = folder
        self._options = options
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": "5"})
        self._numbers = itertools.count(1)

    def three(self, way: tuple[str, str]) -> dict[str, float]:
        """Run a new job three times. Return the seconds of each run."""
        source, sink, options = WAYS[way]
        name = f"job-{next(self._numbers)}"
        self._cluster.create_topic(name, PARTITIONS)
        self._cluster.create_topic(f"{name}-output", PARTITIONS)
        took = {}
        for run, rows in RUNS.items():
            for number in range(rows):
                self._producer.produce(name, b"x" * 100, partition=number % PARTITIONS)
            self._producer.flush()
            took[run] = self._run(name, source, sink, options)
        return took

    def _run(self, name: str, source: str, sink: str, options: Mapping[str, str]) -> float:
        servers = {"kafka.bootstrap.servers": self._cluster.bootstrap_servers}
        reader = self._spark.readStream.format(source).options(subscribe=name, startingOffsets="earliest", **servers)
        if source != "kafka":  # which warns if it is given a group
            reader = reader.options(**{"kafka.group.id": name}, **self._options)
        began = time.monotonic()
        frame = reader.load()
        if sink != "noop":
            frame = frame.select("value")
        writer = frame.writeStream.format(sink).option("checkpointLocation", str(self._folder / name))
        if sink != "noop":
            writer = writer.options(topic=f"{name}-output", **servers, **options)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(300):
            raise SystemExit(f"{source} into {sink} did not end")
        return time.monotonic() - began


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Measured jobs of each kind; unmeasured ones come first.")
@click.option(
    "--into", "chosen", multiple=True, type=click.Choice([TOPIC, READ_ONLY]), default=(TOPIC, READ_ONLY), show_default=True
)
@click.option("--rebalance-delay", default=0, show_default=True, help="The brokers' group.initial.rebalance.delay.ms.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of this source.")
@click.option("--json", "output", type=click.Path(path_type=Path), default=Path("build/bench-runs.json"), show_default=True)
def main(rounds: int, chosen: Sequence[str], rebalance_delay: int, options: Sequence[str], output: Path) -> None:
    """Print the medians in seconds, and their ratios to Spark's own source and sink in the same rounds."""
    console = Console(width=120)
    taken: dict[tuple[str, str], list[dict[str, float]]] = {way: [] for way in WAYS if way[0] in chosen}
    config = {"group.initial.rebalance.delay.ms": str(rebalance_delay), "log.segment.delete.delay.ms": "0"}
    given = {key: value for key, _, value in (option.partition("=") for option in options)}
    with tempfile.TemporaryDirectory() as name, Cluster(config=config, jvm_options=STOCK_FLAGS) as cluster:
        spark = open_session(shared().cores, Path(name), "")
        jobs = Jobs(spark, cluster, Path(name), given)
        for number in range(WARM_UP + rounds):
            for way, found in taken.items():
                seconds = jobs.three(way)
                if number >= WARM_UP:
                    found.append(seconds)
        spark.stop()
    show(console, taken)
    found_as_list: list[Any] = [{"into": into, "by": by, "seconds": found} for (into, by), found in taken.items()]
    save(output, {"environment": environment(), "rebalance_delay_ms": rebalance_delay, "options": given, "runs": found_as_list})


def show(console: Console, taken: Mapping[tuple[str, str], Sequence[Mapping[str, float]]]) -> None:
    """Print the table."""
    table = Table(title="Seconds of a run of AvailableNow, medians", title_justify="left")
    for column in ("run", "by", "seconds", "lowest", "highest", "to Spark's"):
        table.add_column(column)
    for (into, by), found in taken.items():
        for run in RUNS:
            seconds = [each[run] for each in found]
            ratio = statistics.median(seconds) / statistics.median(each[run] for each in taken[into, SPARK])
            row = (f"{statistics.median(seconds):.2f}", f"{min(seconds):.2f}", f"{max(seconds):.2f}", f"{ratio:.2f}")
            table.add_row(f"{into}, {run}", by, *row)
    console.print(table)


if __name__ == "__main__":
    main()
