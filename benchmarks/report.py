"""Medians of paired rounds and their ratios to Spark's source, as tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.processes import PARTS_OF_WORK
from benchmarks.runs import ALL, VALUE, Cost, Throughput

BASE = "spark"
MOMENTS: dict[str, Callable[[Throughput], Cost]] = {"first": lambda run: run.first, "later": lambda run: run.later}
"""The micro-batches that a line is about."""

Runs = Mapping[tuple[str, str], Sequence[Throughput]]
"""The runs of one load and sink, round by round, by source and columns."""

GOALS = {
    100: {ALL: (2.0, 0.8), VALUE: (2.8, 0.6)},
    1_000: {ALL: (1.3, 1.0), VALUE: (1.7, 0.8)},
    10_000: {ALL: (1.0, 1.1), VALUE: (1.3, 0.9)},
}
"""Speed at least and CPU at most so many times Spark's, on the busy core, by bytes of a value and columns."""


def print_throughput(console: Console, title: str, runs: Runs) -> None:
    """Print one load and sink: the first and the later micro-batches, with a line for each source and selection of columns."""
    table = Table(title=title, title_justify="left")
    for name in ("source", "columns", "micro-batches"):
        table.add_column(name)
    for name in ("rows/s", "CPU s per M rows", f"speed to {BASE}", f"CPU to {BASE}", "MB peak, Python"):
        table.add_column(name, justify="right")
    for (source, columns), found in runs.items():
        for moment, cost in MOMENTS.items():
            ratios = paired(runs, source, columns, moment)
            table.add_row(
                source,
                columns,
                moment,
                f"{median(cost(run).rows_per_s for run in found):,.0f}",
                f"{median(cost(run).cpu_s_per_million for run in found):.2f}",
                *((f"{ratio:.2f}" for ratio in ratios) if ratios else ("", "")),
                str(max(run.peaks.python for run in found) // 2**20 or ""),
            )
    console.print(table)


def paired(runs: Runs, source: str, columns: str, moment: str) -> tuple[float, float] | None:
    """Return the median speed and CPU ratios to Spark's source over the rounds, or `None` if Spark's source did not run."""
    base = runs.get((BASE, columns))
    if not base:
        return None
    cost = MOMENTS[moment]
    pairs = [(cost(run), cost(other)) for run, other in zip(runs[source, columns], base, strict=True)]
    return (
        median(run.rows_per_s / other.rows_per_s for run, other in pairs),
        median(run.cpu_s_per_million / other.cpu_s_per_million for run, other in pairs),
    )


def print_goals(console: Console, found: Mapping[int, Runs], source: str) -> None:
    """Print the goals by value size: the worse of the first and the later micro-batches."""
    table = Table(title=f"goals of {source}, the worse of first and later micro-batches", title_justify="left")
    for name in ("value", "columns", "speed", "goal", "CPU", "goal", "reached"):
        table.add_column(name, justify="left" if name in ("value", "columns", "reached") else "right")
    for size, runs in found.items():
        for columns, (speed_goal, cpu_goal) in GOALS.get(size, {}).items():
            each = [paired(runs, source, columns, moment) for moment in MOMENTS if (source, columns) in runs]
            known = [ratios for ratios in each if ratios]
            if known:
                speed, cpu = min(ratio for ratio, _ in known), max(ratio for _, ratio in known)
                reached = " and ".join(["speed"] * (round(speed, 2) >= speed_goal) + ["CPU"] * (round(cpu, 2) <= cpu_goal))
                table.add_row(
                    f"{size:,} B", columns, f"{speed:.2f}", f"{speed_goal}", f"{cpu:.2f}", f"{cpu_goal}", reached or "neither"
                )
    console.print(table)


def print_parts(console: Console, runs: Runs) -> None:
    """Print the CPU time of each part of the work in a load's later micro-batches: medians in s per million rows."""
    table = Table(title="where it goes in later micro-batches, CPU s per M rows", title_justify="left")
    table.add_column("source")
    table.add_column("columns")
    for part in PARTS_OF_WORK:
        table.add_column(part, justify="right")
    for (source, columns), found in runs.items():
        shares = [median(run.later.parts[part] / run.later.rows * 1e6 for run in found) for part in PARTS_OF_WORK]
        table.add_row(source, columns, *(f"{share:.2f}" for share in shares))
    console.print(table)


def print_trickle(console: Console, per_s: float, runs: Mapping[str, Sequence[int]]) -> None:
    """Print the times of micro-batches with single records."""
    table = Table(title=f"micro-batches of a trickle, {per_s:g} records/s in 4 partitions", title_justify="left")
    table.add_column("source")
    for name in ("batches", "median ms", "p99 ms", f"median to {BASE}"):
        table.add_column(name, justify="right")
    for source, times in runs.items():
        if times:
            ratio = f"{median(times) / median(runs[BASE]):.2f}" if runs.get(BASE) else ""
            table.add_row(source, str(len(times)), f"{median(times):.0f}", f"{percentile(times, 0.99):.0f}", ratio)
    console.print(table)


def percentile(values: Sequence[int], share: float) -> int:
    """Return the smallest value that at least `share` of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
