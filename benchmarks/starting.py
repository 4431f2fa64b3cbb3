"""`make bench-starting`: measures the processes and CPU that a query's first micro-batch needs, next to Spark's own source.

Each case has its own Spark session, with a first and a second query. CPU seconds depend less than elapsed seconds on the
machine's other load, but they do depend on it, because a process that was interrupted finds its caches cold.

Spark waits 10 s for the process that plans a stream (`PythonWorkerFactory.createSimpleWorker`). The imports in that time are
measured separately, with the module that Spark runs.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import pyspark
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.environment import environment, save
from benchmarks.flags import STOCK_FLAGS
from benchmarks.placement import shared
from benchmarks.processes import cpu_seconds, python_processes
from benchmarks.runs import SOURCES, progress_with_rows, until
from benchmarks.session import open_session
from benchmarks.topics import Load, fill
from devtools.broker import Cluster
from devtools.spark_home import spark_home

LOAD = Load(size=100, records=40)
QUERIES = ("first", "second")
RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
ZIP, FOLDER = "pyspark.zip", "folder"
PLACES = (ZIP, FOLDER)
"""Where Spark's Python processes have PySpark from: the zip that Spark puts first on their path, or where it is installed."""


@dataclass(frozen=True)
class Start:
    """What one query used until its first micro-batch with rows was finished.

    Args:
        seconds: elapsed time.
        python_s: CPU seconds of Spark's Python processes.
        jvm_s: CPU seconds of the JVM, and of processes that have ended.
        processes: the number of Python processes that were started, by what they run.
        cpu_s: the CPU seconds of these processes.
    """

    seconds: float
    python_s: float
    jvm_s: float
    processes: Mapping[str, int]
    cpu_s: Mapping[str, float]


def two_starts(source: str, place: str, servers: str) -> list[Start]:
    """Start two queries one after the other in a new Spark session. Call this in a separate process."""
    if place == FOLDER:
        os.environ["SPARK_HOME"] = str(spark_home())
    with tempfile.TemporaryDirectory() as name:
        spark = open_session(shared().cores, Path(name), "")
        found = [_start(spark, source, servers, f"{name}/{query}") for query in QUERIES]
        spark.stop()
    return found


def _start(spark: SparkSession, source: str, servers: str, checkpoint: str) -> Start:
    options = {"kafka.bootstrap.servers": servers, "subscribe": LOAD.topic, "startingOffsets": "earliest"}
    if source != "spark":  # which warns if it is given a group
        options["kafka.group.id"] = f"starting-{uuid.uuid4()}"
    before, total, began = python_processes(), cpu_seconds([]), time.monotonic()
    frame = spark.readStream.format(SOURCES[source]).options(**options).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    until(query, lambda: bool(progress_with_rows(query)))
    seconds = time.monotonic() - began
    after, total = python_processes(), cpu_seconds([]) - total
    query.stop()
    # A process that has ended counts for the JVM, for example an earlier query's runner.
    python_s = sum(one.cpu_seconds - (before[pid].cpu_seconds if pid in before else 0) for pid, one in after.items())
    started = [one for pid, one in after.items() if pid not in before]
    cpu_s: defaultdict[str, float] = defaultdict(float)
    for one in started:
        cpu_s[one.runs] += one.cpu_seconds
    return Start(seconds, python_s, total - python_s, dict(Counter(one.runs for one in started)), dict(cpu_s))


def until_connected(place: str) -> float:
    """Return the CPU seconds that a new runner needs to connect to the JVM: Python's start and Spark's own imports."""
    lib = Path(pyspark.__file__).parent / "python" / "lib"
    path = os.pathsep.join(map(str, [*lib.glob("pyspark.zip"), *lib.glob("py4j-*.zip")])) if place == ZIP else ""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", f"import {RUNNER}"], check=True, env={**os.environ, "PYTHONPATH": path})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Sessions of each case, in turn.")
@click.option("--source", "sources", type=click.Choice(list(SOURCES)), multiple=True, default=("native", "spark"))
@click.option("--pyspark", "places", type=click.Choice(PLACES), multiple=True, default=PLACES, show_default=True)
@click.option("--json", "output", type=click.Path(path_type=Path), default=Path("build/bench-starting.json"), show_default=True)
def main(rounds: int, sources: tuple[str, ...], places: tuple[str, ...], output: Path) -> None:
    """Print the median numbers of processes and CPU seconds until a query's first micro-batch is finished."""
    console = Console(width=120)
    found: dict[tuple[str, str], list[list[Start]]] = {(source, place): [] for source in sources for place in places}
    imports: dict[str, list[float]] = {place: [] for place in places}
    alone = multiprocessing.get_context("spawn")
    with Cluster(jvm_options=STOCK_FLAGS) as cluster:
        fill(cluster, LOAD)
        for number in range(1, rounds + 1):
            for (source, place), starts in found.items():
                console.print(f"round {number}: {source}, {place}", style="dim")
                with alone.Pool(1) as pool:
                    starts.append(pool.apply(two_starts, (source, place, cluster.bootstrap_servers)))
            for place, taken in imports.items():
                taken.append(until_connected(place))
    _print_imports(console, imports)
    _print_starts(console, found)
    _print_processes(console, found)
    cases = [
        {"source": source, "pyspark": place, "starts": [list(map(asdict, one)) for one in starts]}
        for (source, place), starts in found.items()
    ]
    save(output, {"environment": environment(), "until_connected": imports, "found": cases})


def _print_imports(console: Console, imports: Mapping[str, list[float]]) -> None:
    table = Table(title="CPU seconds of a runner until it connects", title_justify="left")
    for column in ("PySpark from", "median", "lowest", "highest"):
        table.add_column(column)
    for place, taken in imports.items():
        table.add_row(place, *(f"{one:.2f}" for one in (statistics.median(taken), min(taken), max(taken))))
    console.print(table)


def _print_starts(console: Console, found: Mapping[tuple[str, str], list[list[Start]]]) -> None:
    table = Table(title="From load() to the first micro-batch", title_justify="left")
    for column in ("source", "PySpark from", "query", "processes", "CPU s Python", "CPU s JVM", "seconds"):
        table.add_column(column)
    for (source, place), starts in found.items():
        for number, query in enumerate(QUERIES):
            those = [one[number] for one in starts]
            processes = sorted({sum(one.processes.values()) for one in those})
            numbers = zip(*((one.python_s, one.jvm_s, one.seconds) for one in those), strict=True)
            medians = [f"{statistics.median(one):.1f}" for one in numbers]
            table.add_row(source, place, query, "-".join(map(str, {processes[0]: 0, processes[-1]: 0})), *medians)
    console.print(table)


def _print_processes(console: Console, found: Mapping[tuple[str, str], list[list[Start]]]) -> None:
    table = Table(title="Python processes of a session's first query", title_justify="left")
    for column in ("source", "PySpark from", "process", "number", "CPU s of all"):
        table.add_column(column)
    for (source, place), starts in found.items():
        firsts = [one[0] for one in starts]
        for runs in sorted({name for one in firsts for name in one.processes}):
            number = statistics.median(one.processes.get(runs, 0) for one in firsts)
            table.add_row(
                source, place, runs, f"{number:g}", f"{statistics.median(one.cpu_s.get(runs, 0) for one in firsts):.2f}"
            )
    console.print(table)


if __name__ == "__main__":
    main()
