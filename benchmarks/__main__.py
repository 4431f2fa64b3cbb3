"""The benchmark's command. Its options choose the placement, the loads, columns and sources, the rounds, and the JSON file."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks.environment import environment, save
from benchmarks.flags import STOCK_FLAGS
from benchmarks.placement import PLACEMENTS, starting_on
from benchmarks.report import Runs as Found
from benchmarks.report import print_goals, print_parts, print_throughput, print_trickle
from benchmarks.runs import COLUMNS, SOURCES, Runs, Throughput
from benchmarks.session import UNSAFE_ARROW, open_session
from benchmarks.topics import Load, drop, fill
from devtools.broker import Cluster

SIZES = {100: 400, 1_000: 2_000, 10_000: 3_000}
"""Value sizes in bytes, and the MB of values in a load: more for large records, so that each load takes some seconds."""

CODECS = ("none", "zstd", "lz4")
USUAL_BATCH_KB = 64
WARM_UP = 1
"""Rounds that do not count: they fill the page cache."""

FIRST_WARM_UP = 4
"""A session's first load needs more of them: the JVM's compiler is busy until about the fourth."""


@click.command()
@click.option("--placement", default="busy", show_default=True, type=click.Choice(list(PLACEMENTS)))
@click.option("--rounds", default=5, show_default=True, help="Measured rounds of each load; unmeasured ones come first.")
@click.option("--scale", default=1.0, show_default=True, help="How much of the usual amount of records is written and read.")
@click.option(
    "--size", "sizes", type=int, multiple=True, default=tuple(SIZES), show_default=True, help="Bytes of a record's value."
)
@click.option("--batch-kb", "batches", type=int, multiple=True, default=(USUAL_BATCH_KB, 16, 1000), show_default=True)
@click.option("--codec", "codecs", type=click.Choice(CODECS), multiple=True, default=CODECS[:1], show_default=True)
@click.option("--partitions", type=int, multiple=True, default=(4,), show_default=True)
@click.option("--sink", "sinks", type=click.Choice(["noop", "parquet"]), multiple=True, default=("noop",), show_default=True)
@click.option(
    "--source",
    "sources",
    type=click.Choice(list(SOURCES)),
    multiple=True,
    default=("native", "spark", "ceiling"),
    show_default=True,
)
@click.option("--columns", type=click.Choice(COLUMNS), multiple=True, default=COLUMNS, show_default=True)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    callback=lambda _context, _option, texts: dict(named_options(text) for text in texts),
    help="One more source: this one with other options, as NAME:OPTION=VALUE,OPTION=VALUE.",
)
@click.option("--trickle-seconds", default=10.0, show_default=True, help="How long single records are written; 0: not at all.")
@click.option("--trickle-per-s", "rates", type=float, multiple=True, default=(20.0, 200.0), show_default=True)
@click.option("--unsafe-arrow", is_flag=True, help="Arrow in the JVM checks neither bounds nor nulls.")
@click.option("--plain", is_flag=True, help="Run confluent-kafka's consume loop beside the first load of each size.")
@click.option("--json", "output", type=click.Path(path_type=Path), default=Path("build/bench.json"), show_default=True)
def main(
    placement: str,
    rounds: int,
    scale: float,
    sizes: Sequence[int],
    batches: Sequence[int],
    codecs: Sequence[str],
    partitions: Sequence[int],
    sinks: Sequence[str],
    sources: Sequence[str],
    columns: Sequence[str],
    variants: Mapping[str, Mapping[str, str]],
    trickle_seconds: float,
    rates: Sequence[float],
    unsafe_arrow: bool,
    plain: bool,
    output: Path,
) -> None:
    """Measure this source next to Spark's own, and print the medians of paired rounds and their ratios.

    By default, Spark has one core (local[1]), and the broker has the others, as on an executor whose cores are all busy.
    With --placement shared, the broker and Spark share all cores.
    """
    console = Console(width=140)
    sources = [*sources, *variants]
    place = PLACEMENTS[placement]()
    about = environment() | {"placement": place.name, "spark cores": place.cores, "unsafe arrow": unsafe_arrow}
    results: dict[str, Any] = {"environment": about, "rounds": rounds, "throughput": [], "trickle": {}}
    # A deleted topic's records are removed from disk immediately.
    broker = Cluster(
        config={"log.segment.delete.delay.ms": "0"},
        progress=lambda line: console.print(line, style="dim"),
        jvm_options=STOCK_FLAGS,
    )
    with tempfile.TemporaryDirectory() as name, starting_on(place.broker), broker as cluster:
        with starting_on(place.spark):
            spark = open_session(place.cores, Path(name), UNSAFE_ARROW if unsafe_arrow else "")
        console.print(f"{place.name}: Spark local[{place.cores}] on {sorted(place.spark)}, broker on {sorted(place.broker)}")
        runs = Runs(spark, cluster, Path(name), variants)
        warm_up = FIRST_WARM_UP
        by_size: dict[int, Found] = {}
        for load in loads(sizes, batches, codecs, partitions, scale):
            fill(cluster, load)
            # The first load of each size runs every case. The others run only the cases that users compare.
            is_first = load.size not in by_size
            for sink in sinks if is_first else sinks[:1]:
                peers = [(source, each) for each in columns for source in sources if is_first or source != "ceiling"]
                found = measure(runs, load, sink, peers, warm_up, rounds)
                warm_up = WARM_UP
                print_throughput(console, f"{place.name}: {load}, {load.records:,} records, {sink}", found)
                print_parts(console, found)
                results["throughput"].append(as_json(load, sink, found))
                by_size.setdefault(load.size, found)
            if plain and is_first:
                console.print(f"consume loop: {runs.plain_consume(load).rows_per_s:,.0f} rows/s")
            drop(cluster, load)
        if placement == "busy" and "native" in sources:
            print_goals(console, by_size, "native")
        for rate in rates if trickle_seconds else ():
            times = trickle(runs, sources, rounds, trickle_seconds, rate)
            print_trickle(console, rate, times)
            results["trickle"][f"{rate:g}"] = times
        spark.stop()
    save(output, results)
    console.print(f"written to {output}")


def named_options(text: str) -> tuple[str, dict[str, str]]:
    """Return a variant's name and options.

    Raises:
        BadParameter: The text is malformed, or the name is already in use.
    """
    name, _, options = text.partition(":")
    pairs = [pair.partition("=") for pair in options.split(",")]
    if not all(equals for _, equals, _ in pairs):
        raise click.BadParameter(f"{text!r} is not NAME:OPTION=VALUE,OPTION=VALUE")
    if name in SOURCES:
        raise click.BadParameter(f"{name} is a source already")
    return name, {option: value for option, _, value in pairs}


def loads(
    sizes: Sequence[int], batches: Sequence[int], codecs: Sequence[str], partitions: Sequence[int], scale: float
) -> list[Load]:
    """Return the loads: each size, with the batch size, the codec and the number of partitions varied one at a time."""
    found = []
    for size in sizes:
        records = int(SIZES.get(size, 2_000) * 1_000_000 / size * scale)
        found.append(Load(size, records, codecs[0], partitions[0], batches[0]))
        found += [Load(size, records, codecs[0], partitions[0], each) for each in batches[1:]]
        found += [Load(size, records, each, partitions[0], batches[0]) for each in codecs[1:]]
        found += [Load(size, records, codecs[0], each, batches[0]) for each in partitions[1:]]
    return found


def measure(
    runs: Runs, load: Load, sink: str, peers: Sequence[tuple[str, str]], warm_up: int, rounds: int
) -> dict[tuple[str, str], list[Throughput]]:
    """Run sources and columns in turn, so that a disturbance of the machine affects them all."""
    found: dict[tuple[str, str], list[Throughput]] = {peer: [] for peer in peers}
    for number in range(warm_up + rounds):
        for (source, columns), results in found.items():
            result = runs.throughput(source, columns, load, sink)
            if number >= warm_up:
                results.append(result)
    return found


def trickle(runs: Runs, sources: Sequence[str], rounds: int, seconds: float, per_s: float) -> dict[str, list[int]]:
    """Run the sources in turn."""
    found: dict[str, list[int]] = {source: [] for source in sources if source != "ceiling"}
    for number in range(WARM_UP + rounds):
        for source, times in found.items():
            measured = runs.trickle(source, seconds, per_s)
            if number >= WARM_UP:
                times.extend(measured)
    return found


def as_json(load: Load, sink: str, found: Found) -> dict[str, Any]:
    """Return all runs for one load and sink."""
    runs = [
        {"source": source, "columns": columns, "runs": [asdict(run) for run in each]} for (source, columns), each in found.items()
    ]
    return {"load": asdict(load), "sink": sink, "peers": runs}


if __name__ == "__main__":
    main()
