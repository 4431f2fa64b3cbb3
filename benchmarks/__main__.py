"""The benchmark's command: which loads, sinks and sources, how many rounds, and where the JSON goes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks.environment import environment
from benchmarks.report import print_parts, print_throughput, print_trickle
from benchmarks.runs import CEILING, SOURCES, Runs, Throughput
from benchmarks.session import open_session
from benchmarks.topics import Load, drop, fill
from spark_groupsource.dev_broker import Cluster

# Value sizes in bytes, and the MB of values in a load: more for large records, so that each load takes some seconds.
SIZES = {100: 400, 1_000: 2_000, 10_000: 3_000}
CODECS = ("none", "zstd", "lz4")
PARTITIONS = (1, 4, 32)
PLAIN = "consume loop"
# Rounds that do not count: they fill the page cache. A session's first load needs more of them, since the JVM's compiler
# is busy until about the fourth.
WARM_UP = 1
FIRST_WARM_UP = 4


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Measured rounds of each load; unmeasured ones come first.")
@click.option("--scale", default=1.0, show_default=True, help="How much of the usual amount of records is written and read.")
@click.option(
    "--size", "sizes", type=int, multiple=True, default=tuple(SIZES), show_default=True, help="Bytes of a record's value."
)
@click.option("--codec", "codecs", type=click.Choice(CODECS), multiple=True, default=CODECS, show_default=True)
@click.option("--partitions", type=int, multiple=True, default=PARTITIONS, show_default=True)
@click.option(
    "--sink", "sinks", type=click.Choice(["noop", "parquet"]), multiple=True, default=("noop", "parquet"), show_default=True
)
@click.option("--source", "sources", type=click.Choice(list(SOURCES)), multiple=True, default=tuple(SOURCES), show_default=True)
@click.option(
    "--trickle-seconds", default=10.0, show_default=True, help="How long single records are written in a round; 0: not at all."
)
@click.option("--cores", default=2, show_default=True, help="Spark's local cores.")
@click.option("--json", "output", type=click.Path(path_type=Path), default=Path("build/bench.json"), show_default=True)
def main(
    rounds: int,
    scale: float,
    sizes: Sequence[int],
    codecs: Sequence[str],
    partitions: Sequence[int],
    sinks: Sequence[str],
    sources: Sequence[str],
    trickle_seconds: float,
    cores: int,
    output: Path,
) -> None:
    """Measure this source, native and pure, beside Spark's own, and print medians and ratios."""
    console = Console(width=120)
    results: dict[str, Any] = {"environment": environment(cores), "rounds": rounds, "throughput": [], "trickle": {}}
    # A deleted topic's records leave the disk at once.
    broker = Cluster(config={"log.segment.delete.delay.ms": "0"}, progress=lambda line: console.print(line, style="dim"))
    with broker as cluster, tempfile.TemporaryDirectory() as name:
        spark = open_session(cores, Path(name))
        runs = Runs(spark, cluster, Path(name))
        warm_up = FIRST_WARM_UP
        for load in loads(sizes, codecs, partitions, scale):
            fill(cluster, load)
            # A sink that writes takes long, and so do more peers: they run on the usual load of each size only.
            is_usual = (load.codec, load.partitions) == (codecs[0], usual(partitions))
            for sink in sinks if is_usual else sinks[:1]:
                peers = [*sources, *CEILING, PLAIN] if is_usual and sink == sinks[0] else sources
                found = measure(runs, load, sink, peers, warm_up, rounds)
                warm_up = WARM_UP
                print_throughput(console, f"{load}, {load.records:,} records, {sink}", found)
                print_parts(console, found)
                results["throughput"].append(as_json(load, sink, found))
            drop(cluster, load)
        if trickle_seconds:
            found_times = trickle(runs, sources, rounds, trickle_seconds)
            print_trickle(console, found_times)
            results["trickle"] = found_times
        spark.stop()
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    console.print(f"written to {output}")


def loads(sizes: Sequence[int], codecs: Sequence[str], partitions: Sequence[int], scale: float) -> list[Load]:
    """Return every size with every codec in the usual number of partitions, and with the first codec in the other numbers."""
    found = []
    for size in sizes:
        records = int(SIZES.get(size, 2_000) * 1_000_000 / size * scale)
        found += [Load(size, records, codec, usual(partitions)) for codec in codecs]
        found += [Load(size, records, codecs[0], count) for count in partitions if count != usual(partitions)]
    return found


def usual(partitions: Sequence[int]) -> int:
    """Return 4 partitions, or the first number given."""
    return 4 if 4 in partitions else partitions[0]


def measure(runs: Runs, load: Load, sink: str, sources: Sequence[str], warm_up: int, rounds: int) -> dict[str, list[Throughput]]:
    """Run the sources in turn, so that a disturbance of the machine affects them all."""
    found: dict[str, list[Throughput]] = {source: [] for source in sources}
    for number in range(warm_up + rounds):
        for source, results in found.items():
            result = runs.plain_consume(load) if source == PLAIN else runs.throughput(source, load, sink)
            if number >= warm_up:
                results.append(result)
    return found


def trickle(runs: Runs, sources: Sequence[str], rounds: int, seconds: float) -> dict[str, list[int]]:
    """Run the sources in turn."""
    found: dict[str, list[int]] = {source: [] for source in sources}
    for number in range(WARM_UP + rounds):
        for source, times in found.items():
            measured = runs.trickle(source, seconds, per_s=20)
            if number >= WARM_UP:
                times.extend(measured)
    return found


def as_json(load: Load, sink: str, found: dict[str, list[Throughput]]) -> dict[str, Any]:
    """Return every run of one load and sink."""
    return {"load": asdict(load), "sink": sink, "runs": {source: [asdict(run) for run in each] for source, each in found.items()}}


if __name__ == "__main__":
    main()
