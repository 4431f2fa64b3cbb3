"""Formats the command's output: a line for each run, the table of all cases, JSON and Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.chaos.lanes import Result
from tests.chaos.stalls import summary
from tests.harness.command import table

HEADER = ("case", "runs", "records", "lost", "doubled", "median stall", "p99", "longest", "bystanders' longest", "violations")


def line(result: Result) -> str:
    """Return a run's line, which is printed when the run ends."""
    outcome = result.outcome
    longest = max(outcome.stalls.moved.values(), default=0.0)
    what = f"{result.job.case.name} #{result.job.number} {result.job.protocol} {result.kafka} {result.job.way.value}"
    verdict = "; ".join(outcome.violations) or "right"
    counts = f"{outcome.records} records, {outcome.closed} closed early"
    return f"{what}: {outcome.seconds:.0f} s, {counts}, stall {longest:.1f} s: {verdict}"


def rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """Return the table: one row for each case, and one for all."""
    by_case: dict[str, list[Result]] = {}
    for result in results:
        by_case.setdefault(result.job.case.name, []).append(result)
    return [_row(name, found) for name, found in by_case.items()] + [_row("all", results)]


def _row(name: str, results: Sequence[Result]) -> tuple[str, ...]:
    outcomes = [result.outcome for result in results]
    moved = summary([seconds for outcome in outcomes for seconds in outcome.stalls.moved.values()])
    kept = summary([seconds for outcome in outcomes for seconds in outcome.stalls.kept.values()])
    return (
        name,
        str(len(outcomes)),
        f"{sum(outcome.records for outcome in outcomes):,}",
        str(sum(outcome.lost for outcome in outcomes)),
        str(sum(outcome.doubled for outcome in outcomes)),
        *(f"{seconds:.1f} s" for seconds in moved),
        f"{kept[2]:.1f} s" if any(outcome.stalls.kept for outcome in outcomes) else "",
        str(sum(bool(outcome.violations) for outcome in outcomes)),
    )


def print_table(console: Console, results: Sequence[Result]) -> None:
    printed = Table()
    for number, title in enumerate(HEADER):
        printed.add_column(title, justify="right" if number else "left")
    for row in rows(results):
        printed.add_row(*map(escape, row))
    console.print(printed)


def markdown(results: Sequence[Result]) -> str:
    """Return the table for benchmarks/results/chaos.md."""
    return table(HEADER, rows(results), numbers=True)


def as_json(results: Sequence[Result], environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything, for build/chaos.json."""
    return {
        "environment": environment,
        "runs": [
            {
                "case": result.job.case.name,
                "round": result.job.number,
                "protocol": result.job.protocol,
                "kafka": result.kafka,
                "way": result.job.way.value,
                **asdict(result.outcome),
            }
            for result in results
        ],
    }
