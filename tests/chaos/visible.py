"""Judges what `read_committed` consumers have seen of a copy, and how long they had to wait. Pure.

Every copied row has a mark with the task that wrote it, and one more row has the task's number of rows. So a consumer that reads
during the copy can tell a part of a task from all of it. The marks do not number the rows, because a task that is run again may
read its partitions in a different order, and must write the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_TOTAL = "total"


class Strike(NamedTuple):
    """A strike against a query or a broker, in seconds on one clock."""

    kind: str
    struck: str
    begin: float
    end: float
    """When it was over: the broker is back, the second driver or the first has ended. Most take no time."""


class Task(NamedTuple):
    """The task that wrote some rows."""

    query: str
    batch: int
    number: int


class Part(NamedTuple):
    """A task of which a consumer saw only a part, from one look to another."""

    task: Task
    begin: float
    end: float


class StandStill(NamedTuple):
    """A partition whose last stable offset did not move while there were records after it."""

    partition: int
    begin: float
    end: float


def row_mark(task: Task) -> str:
    """Return the mark that follows each number that a task copies."""
    return f" {task.query} {task.batch} {task.number}"


def total_mark(task: Task, rows: int) -> str:
    """Return the row that a task adds, with the number of its other rows."""
    return f"{_TOTAL}{rows}{row_mark(task)}"


def query_of(value: str) -> str:
    """Return which query has written a row."""
    return value.split(" ")[1]


@dataclass
class _Seen:
    rows: int = 0
    total: int = 0
    totals: int = 0

    @property
    def whole(self) -> bool:
        return self.rows == self.total


class Copy:
    """What a consumer has found so far. The records are the numbers from 0 on."""

    def __init__(self) -> None:
        self._times = bytearray()
        self._tasks: dict[Task, _Seen] = {}
        self._in_part: set[Task] = set()
        self._since: dict[Task, float] = {}
        self.seen = 0
        """How many numbers were seen at least once."""
        self.parts: list[Part] = []
        """The tasks that were seen in part by a look, and whole by a later one."""

    def add(self, value: str) -> None:
        """Count a row."""
        what, query, batch, number = value.split(" ")
        task = Task(query, int(batch), int(number))
        seen = self._tasks.setdefault(task, _Seen())
        if what.startswith(_TOTAL):
            seen.total += int(what.removeprefix(_TOTAL))
            seen.totals += 1
        else:
            seen.rows += 1
            self._count(int(what))
        if seen.whole:
            self._in_part.discard(task)
        else:
            self._in_part.add(task)

    def look(self, at: float) -> None:
        """Note what is visible at a moment at which every partition has been read to its end."""
        for task in [task for task in self._since if task not in self._in_part]:
            self.parts.append(Part(task, self._since.pop(task), at))
        for task in self._in_part:
            self._since.setdefault(task, at)

    def unfinished(self) -> dict[Task, tuple[int, int | None]]:
        """Return the tasks that are partly visible now, with their number of rows, and the expected number if it is known."""
        found = {task: self._tasks[task] for task in sorted(self._in_part)}
        return {task: (seen.rows, seen.total if seen.totals else None) for task, seen in found.items()}

    def lost(self, sent: int) -> list[int]:
        """Return which of this many records were not seen."""
        return [number for number in range(sent) if number >= len(self._times) or not self._times[number]]

    def doubled(self) -> list[int]:
        """Return the records that were seen more than once."""
        return [number for number, times in enumerate(self._times) if times > 1]

    @property
    def rewritten(self) -> list[Task]:
        """The tasks whose total was seen more than once."""
        return sorted(task for task, seen in self._tasks.items() if seen.totals > 1)

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return len(self._tasks)

    def _count(self, number: int) -> None:
        if number >= len(self._times):
            self._times.extend(bytes(number + 100_000 - len(self._times)))
        self.seen += not self._times[number]
        self._times[number] = min(255, self._times[number] + 1)


class StandStills:
    """The times at which a partition's last stable offset stood still below its end, from samples of both.

    Args:
        shortest_s: shorter ones are ignored, because they are ordinary tasks.
    """

    def __init__(self, shortest_s: float) -> None:
        self._shortest_s = shortest_s
        self._now: dict[int, tuple[int, StandStill]] = {}
        self._found: list[StandStill] = []

    def sample(self, at: float, partition: int, stable: int, end: int) -> None:
        """Take a sample of a partition."""
        offset, still = self._now.pop(partition, (-1, StandStill(partition, at, at)))
        if offset == stable:
            self._now[partition] = offset, still._replace(end=at)
            return
        self._keep(still)
        if end > stable:
            self._now[partition] = stable, StandStill(partition, at, at)

    def found(self) -> list[StandStill]:
        """Return them by start time, including those that have not ended."""
        return sorted(
            [*self._found, *(still for _, still in self._now.values() if self._counts(still))], key=lambda still: still.begin
        )

    def _keep(self, still: StandStill) -> None:
        if self._counts(still):
            self._found.append(still)

    def _counts(self, still: StandStill) -> bool:
        return still.end - still.begin > self._shortest_s


def outside(begin: float, end: float, strikes: Iterable[Strike]) -> float:
    """Return the number of seconds from `begin` to `end` without a strike. Strikes do not overlap."""
    covered = sum(max(0.0, min(end, strike.end) - max(begin, strike.begin)) for strike in strikes)
    return end - begin - covered


def struck_before(begin: float, end: float, strikes: Sequence[Strike]) -> Strike | None:
    """Return the strike that this followed: the first one within it, or else the last one before. `None` if there is none."""
    within = [strike for strike in strikes if begin <= strike.begin <= end]
    before = [strike for strike in strikes if strike.begin < begin]
    return within[0] if within else before[-1] if before else None
