"""Keeps a query's state through all of its runs, for the story."""

from __future__ import annotations

import time
from collections import deque
from datetime import datetime
from pathlib import Path

from devtools.demo.query_process import QueryEvent, QueryProcess
from devtools.demo.view import QueryScene, listed
from devtools.errors import DemoFailed
from spark_groupsource.partition import TopicPartition

RATE_WINDOW_S = 4.0
"""The time over which a rate is averaged."""


class Rate:
    """A count per second, over the last few seconds."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, int]] = deque()

    def add(self, count: int) -> None:
        """Add to the count, now."""
        self._recent.append((time.monotonic(), count))

    def per_second(self) -> float:
        """Return the mean over the window. It starts low, and falls to 0 at the end."""
        while self._recent and self._recent[0][0] < time.monotonic() - RATE_WINDOW_S:
            self._recent.popleft()
        return sum(count for _when, count in self._recent) / RATE_WINDOW_S


class Query:
    """One query through all its runs: its current process, and the results of its micro-batches."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.process = QueryProcess(name, folder)
        self.status = "starting"
        self.stream: str | None = None
        self.generation: int | None = None
        self.partitions: frozenset[TopicPartition] = frozenset()
        self.planned_at = 0.0
        """The time at which its last micro-batch was triggered, in seconds since the epoch."""
        self.lag: int | None = 0
        self.rows_of_plan: dict[int, int] = {}
        self.rate = Rate()
        self._ended: list[QueryProcess] = []
        self._next: QueryProcess | None = None

    @property
    def output(self) -> Path:
        """The folder of its file sink."""
        return self.folder / "out"

    def prepare(self) -> None:
        """Start a process for the next run: a Spark session, which waits for `respawn` and `QueryProcess.begin`."""
        self._next = QueryProcess(self.name, self.folder)

    def respawn(self) -> None:
        """Switch to the process for the next run. It waits for `QueryProcess.begin`."""
        # Do not close the old process yet: its runner is leaving the group, and must not be killed before that.
        self._ended.append(self.process)
        self.process, self._next = self._next or QueryProcess(self.name, self.folder), None
        self.status = "starting"

    def close(self) -> None:
        """Kill all of its processes that are still running."""
        for process in filter(None, (self.process, self._next, *self._ended)):
            process.close()

    def take(self, event: QueryEvent) -> str | None:
        """Record an event from its process. Return a sentence if its partitions have changed.

        Raises:
            DemoFailed: The query has failed.
        """
        match event["event"]:
            case "failed":
                raise self.failed(event["message"])
            case "ready":
                self.status = "ready"
            case "started":
                self.status = "running"
            case "stopped":
                self.status, self.partitions, self.lag = "stopped", frozenset(), 0
            case "progress" if event["end"] is not None:
                return self._take_progress(event)
        return None

    @property
    def has_stopped(self) -> bool:
        """Whether its process has ended without an error, and all its events are recorded."""
        return self.process.ended and self.status == "stopped"

    @property
    def rows(self) -> int:
        """The number of rows that its micro-batches have read."""
        return sum(self.rows_of_plan.values())

    def failed(self, why: str) -> DemoFailed:
        """Return the error to raise, with the end of the log."""
        return DemoFailed(f"Query {self.name}: {why}\nThe end of {self.process.log}:\n{self.process.last_lines()}")

    def scene(self) -> QueryScene:
        """Return what the view shows about the query."""
        return QueryScene(self.name, self.status, self.generation, self.partitions, self.rate.per_second(), self.rows, self.lag)

    def _take_progress(self, event: QueryEvent) -> str | None:
        # `latest` is missing in a replay, which plans nothing, and on Spark before 4.2.
        end, latest = event["end"], event["latest"] or {}
        if end["plan"] < 0:
            return None  # a first micro-batch, before the first record
        self.rate.add(event["rows"])
        self.rows_of_plan[end["plan"]] = event["rows"]
        self.stream = end["stream"]
        self.lag = latest.get("totalLag")
        self.planned_at = datetime.fromisoformat(event["timestamp"].replace("Z", "+00:00")).timestamp()
        before, generation = self.partitions, self.generation
        if not before and generation == end["generation"]:
            return None  # the replay of a plan from before the stop: another query may have these partitions now
        self.generation = end["generation"]
        self.partitions = frozenset(
            TopicPartition(topic, int(number)) for topic, numbers in end["ranges"].items() for number in numbers
        )
        if before == self.partitions:
            return None
        gained, lost = listed(self.partitions - before), listed(before - self.partitions)
        changes = [f"gained {gained}"] * bool(gained) + [f"released {lost}"] * bool(lost)
        moved = f"generation {self.generation}" if generation is None else f"generation {generation} -> {self.generation}"
        return f"rebalance: {moved}, {self.name} {' and '.join(changes)}"
