"""The command: `make chaos`, or `make chaos CHAOS='--case killed-in-drain --rounds 10'`. Exits with 1 on any violation."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from benchmarks.environment import environment
from tests.chaos.cases import CASES
from tests.chaos.lanes import Result, jobs, play
from tests.chaos.report import as_json, line, markdown, print_table
from tests.chaos.ways import Way
from tests.harness.command import prepared


@click.command()
@click.option("--case", "names", type=click.Choice(list(CASES)), multiple=True, default=tuple(CASES), help="Only these cases.")
@click.option("--rounds", default=3, show_default=True, help="Runs of each case: both protocols, and an older Kafka.")
@click.option(
    "--way",
    "ways",
    type=click.Choice([way.value for way in Way]),
    multiple=True,
    default=tuple(way.value for way in Way),
    help="Only runs whose runners learn so what is durable.",
)
@click.option("--lanes", default=2, show_default=True, type=click.IntRange(1, 2), help="Runs side by side.")
@click.option("--keep", is_flag=True, help="Keep the folder of every run, not only of those that failed.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("build"), show_default=True)
def main(names: Sequence[str], rounds: int, ways: Sequence[str], lanes: int, keep: bool, output: Path) -> None:
    """Kill, pause and disconnect real queries in one group, and count the records that reached their outputs."""
    console = Console(width=150)
    begin = time.monotonic()
    results: list[Result] = []
    with prepared("chaos", console, output) as folder:
        queue = jobs([CASES[one] for one in dict.fromkeys(names)], rounds, [Way(way) for way in ways])
        lock = threading.Lock()

        def report(result: Result) -> None:
            with lock:
                results.append(result)
                console.print(line(result), markup=False, style="red" if result.outcome.violations else None)
                if result.outcome.violations or keep:
                    _keep(result, output / "chaos-runs")

        failures = play(queue, lanes, folder, report)
    results.sort(key=lambda result: (list(CASES).index(result.job.case.name), result.job.number))
    print_table(console, results)
    minutes = (time.monotonic() - begin) / 60
    console.print(f"{len(results)} runs in {minutes:.1f} minutes")
    (output / "chaos.json").write_text(json.dumps(as_json(results, environment()), indent=1) + "\n", encoding="utf-8")
    (output / "chaos.md").write_text(markdown(results), encoding="utf-8")
    console.print(f"written to {output / 'chaos.json'} and {output / 'chaos.md'}")
    for failure in failures:
        console.print(failure, markup=False, style="red")
    sys.exit(1 if failures or queue or any(result.outcome.violations for result in results) else 0)


def _keep(result: Result, folder: Path) -> None:
    """Copy a run's files, without the outputs of earlier runs."""
    target = folder / result.folder.name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(result.folder, target)


if __name__ == "__main__":
    main()
