"""Reports a run of `make chaos-cluster`: its lines and its violations. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tests.chaos.copying_report import some
from tests.chaos.visible import Copy, Strike


class Attempts(NamedTuple):
    """Spark's attempts, according to its own event log."""

    executors: int = 0
    tasks: int = 0
    speculative: int = 0
    failed: int = 0


class Run(NamedTuple):
    """The observations of a run."""

    kinds: Sequence[str]
    strikes: Sequence[Strike]
    sent: int
    topic: Copy
    files: Copy
    ended: Sequence[str]
    """Queries that have ended by themselves, with their errors."""
    attempts: Attempts
    left: Sequence[str] = ()
    """Processes that were still there at the end."""
    faults: Sequence[str] = ()
    """What the harness itself did wrong."""


def attempts(events: Iterable[str]) -> Attempts:
    """Count the attempts in the lines of Spark's event logs."""
    found: Counter[str] = Counter()
    for line in events:
        event = json.loads(line)
        kind = event["Event"]
        if kind == "SparkListenerTaskStart":
            found["tasks"] += 1
            found["speculative"] += event["Task Info"]["Speculative"]
        elif kind == "SparkListenerTaskEnd":
            found["failed"] += event["Task End Reason"]["Reason"] != "Success"
        elif kind == "SparkListenerExecutorAdded":
            found["executors"] += 1
    return Attempts(**found)


def lines(run: Run) -> Iterator[str]:
    """Yield the lines that are printed for a run."""
    counts = Counter(strike.kind for strike in run.strikes)
    for kind in run.kinds:
        yield f"  {kind:24} {counts[kind]:3}"
    done = run.attempts
    yield f"{done.tasks:,} task attempts on {done.executors} executors, {done.speculative} speculative, {done.failed} failed"
    for name, copy in (("files", run.files), ("the topic", run.topic)):
        lost, doubled = len(copy.lost(run.sent)), len(copy.doubled())
        yield f"{run.sent:,} records into {name} by {copy.tasks:,} tasks, {lost:,} lost, {doubled:,} doubled"
    yield f"queries that ended: {len(run.ended)}"


def violations(run: Run) -> list[str]:
    """Return the violations as sentences, or nothing if all is well."""
    found = []
    for name, copy in (("files", run.files), ("the topic", run.topic)):
        for what, numbers in (("lost", copy.lost(run.sent)), ("doubled", copy.doubled())):
            found += [f"{what} in {name}: {some(numbers)}"] if numbers else []
        found += [f"written twice into {name}: {task}" for task in copy.rewritten]
        found += [f"{task} is in {name} in part: {rows} rows of {total}" for task, (rows, total) in copy.unfinished().items()]
    return [
        *found,
        *(f"a query has ended: {error}" for error in run.ended),
        *(f"still running: {process}" for process in run.left),
        *(f"the harness itself: {fault}" for fault in run.faults),
    ]
