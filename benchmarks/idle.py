"""`make bench-idle`: measures the CPU and memory of a query that has nothing to read, next to Spark's own source."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.environment import environment, save
from benchmarks.flags import STOCK_FLAGS
from benchmarks.placement import PLACEMENTS, starting_on
from benchmarks.processes import PARTS_OF_WORK
from benchmarks.runs import SOURCES, Runs
from benchmarks.session import open_session
from devtools.broker import Cluster

AS_FAST = "as fast as they go"
INTERVALS = (AS_FAST, "1 second", "10 seconds")
RUNNER = "driver's Python"
JVM = tuple(part for part in PARTS_OF_WORK if part.startswith("JVM"))


@click.command()
@click.option("--placement", default="shared", show_default=True, type=click.Choice(list(PLACEMENTS)))
@click.option(
    "--source", "sources", type=click.Choice(list(SOURCES)), multiple=True, default=("native", "spark"), show_default=True
)
@click.option("--trigger", "intervals", multiple=True, default=INTERVALS, show_default=True, help="Intervals.")
@click.option("--warm-up", default=20.0, show_default=True, help="Seconds that do not count: the JVM compiles.")
@click.option("--seconds", default=60.0, show_default=True, help="How long each case is measured.")
@click.option("--json", "output", type=click.Path(path_type=Path), default=Path("build/bench-idle.json"), show_default=True)
def main(placement: str, sources: Sequence[str], intervals: Sequence[str], warm_up: float, seconds: float, output: Path) -> None:
    """Print the percentage of a core that an idle query uses, by process, and its runner's memory."""
    console = Console(width=120)
    place = PLACEMENTS[placement]()
    table = Table(title=f"{place.name}: idle queries, percent of a core", title_justify="left")
    for column in ("source", "triggers", "JVM", "runner", "workers", "broker", "runner MB"):
        table.add_column(column, justify="left" if column in {"source", "triggers"} else "right")
    found = []
    with tempfile.TemporaryDirectory() as name, starting_on(place.broker), Cluster(jvm_options=STOCK_FLAGS) as cluster:
        with starting_on(place.spark):
            spark = open_session(place.cores, Path(name), "")
        runs = Runs(spark, cluster, Path(name))
        for interval, source in itertools.product(intervals, sources):
            parts, memory = runs.idle(source, None if interval == AS_FAST else interval, warm_up, seconds)
            percent = {part: 100 * used / seconds for part, used in parts.items()}
            table.add_row(
                source,
                interval,
                f"{sum(percent[part] for part in JVM):.1f}",
                f"{percent[RUNNER]:.1f}",
                f"{percent['worker'] + percent['librdkafka']:.1f}",
                f"{percent['broker']:.1f}",
                f"{memory / 1e6:.0f}" if source != "spark" else "",
            )
            found.append({"source": source, "interval": interval, "percent": percent, "runner_bytes": memory})
        console.print(table)
        spark.stop()
    save(output, {"environment": environment() | {"placement": place.name}, "found": found})


if __name__ == "__main__":
    main()
