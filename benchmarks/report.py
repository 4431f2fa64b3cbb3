"""Medians and their ratios to Spark's source, as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.processes import PARTS_OF_WORK
from benchmarks.runs import Throughput

BASE = "spark"


def print_throughput(console: Console, title: str, runs: Mapping[str, Sequence[Throughput]]) -> None:
    """Print one load and sink: a line for each source."""
    table = Table(title=title, title_justify="left")
    table.add_column("source")
    for name in ("rows/s", "MB peak, Python", "MB peak, JVM", "CPU s per M rows", f"speed to {BASE}", f"CPU to {BASE}"):
        table.add_column(name, justify="right")
    speeds = {source: median(run.rows_per_s for run in found) for source, found in runs.items()}
    cpus = {source: median(run.cpu_s_per_million for run in found) for source, found in runs.items()}
    for source, found in runs.items():
        python, jvm = (max(getattr(run.peaks, kind) for run in found) // 2**20 for kind in ("python", "jvm"))
        ratios = [f"{values[source] / values[BASE]:.2f}" if BASE in values else "" for values in (speeds, cpus)]
        table.add_row(source, f"{speeds[source]:,.0f}", str(python or ""), str(jvm or ""), f"{cpus[source]:.2f}", *ratios)
    console.print(table)


def print_parts(console: Console, runs: Mapping[str, Sequence[Throughput]]) -> None:
    """Print where the CPU time of one load goes, the broker's too: medians of CPU s per million rows."""
    table = Table(title="where it goes, CPU s per M rows", title_justify="left")
    table.add_column("source")
    for part in PARTS_OF_WORK:
        table.add_column(part, justify="right")
    for source, found in runs.items():
        if found[0].parts:
            shares = [median(run.parts[part] / run.rows * 1e6 for run in found) for part in PARTS_OF_WORK]
            table.add_row(source, *(f"{share:.2f}" for share in shares))
    console.print(table)


def print_trickle(console: Console, runs: Mapping[str, Sequence[int]]) -> None:
    """Print the times of micro-batches with single records."""
    table = Table(title="micro-batches of a trickle", title_justify="left")
    table.add_column("source")
    for name in ("batches", "median ms", "p99 ms", f"median to {BASE}"):
        table.add_column(name, justify="right")
    for source, times in runs.items():
        if times:
            ratio = f"{median(times) / median(runs[BASE]):.2f}" if runs.get(BASE) else ""
            table.add_row(source, str(len(times)), f"{median(times):.0f}", f"{percentile(times, 0.99):.0f}", ratio)
    console.print(table)


def percentile(values: Sequence[int], share: float) -> int:
    """Return the smallest value that at least `share` of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
