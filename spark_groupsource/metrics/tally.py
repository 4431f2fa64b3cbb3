"""Counts what one run of a query has done so far, and keeps its current state, for the metrics.

The query reports its events to a tally, which is an `observer.Observer`. A scrape reads the tally on another thread. No lock is
needed, because only one thread writes each field, and a field's value is replaced, never modified.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.group.member import Assignment
from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.observer import Observer
from spark_groupsource.partition import Ranges, TopicPartition

NONE: Mapping[str, int] = MappingProxyType({})

DURATION_BUCKETS_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds (inclusive) of the histograms' buckets."""


@dataclass(frozen=True)
class Durations:
    """A histogram: how many durations are in each bucket of DURATION_BUCKETS_S and above the last one, and their sum."""

    counts: tuple[int, ...] = (0,) * (len(DURATION_BUCKETS_S) + 1)
    sum_s: float = 0.0

    def with_one(self, seconds: float) -> Durations:
        """Return a copy of this histogram with one more duration."""
        counts = list(self.counts)
        counts[bisect.bisect_left(DURATION_BUCKETS_S, seconds)] += 1
        return Durations(tuple(counts), self.sum_s + seconds)


class Tally(Observer):
    """Counts what one run of one query does as a member of `group`."""

    def __init__(
        self, group: str, *, clock: Callable[[], float] = time.monotonic, wall_clock: Callable[[], float] = time.time
    ) -> None:
        """Create an empty tally.

        Args:
            group: the group's name.
            clock: returns monotonic time in seconds.
            wall_clock: returns seconds since 1970.
        """
        self.group = group
        self._clock = clock
        self._wall_clock = wall_clock
        # Written on the runner's main thread.
        self.stream = ""
        self.ends: Mapping[TopicPartition, int] = MappingProxyType({})
        self.last_plan_at: float | None = None
        self.planning = Durations()
        self.planned_offsets = 0
        self.claiming = Durations()
        self.claimed_offsets = 0
        self._newest_claim = -1
        # Written on the consumer's thread.
        self.assignment = Assignment()
        self.records: Mapping[TopicPartition, CommitRecord] = MappingProxyType({})
        self.committing = Durations()
        self.commit_errors = NONE
        self.rebalances = NONE
        self.draining = Durations()
        self.drain_timeouts = 0

    # On the runner's main thread, by the cycle.

    def joining(self, stream: str) -> None:
        """Store the stream's name."""
        self.stream = stream

    def planned(self, ends: Mapping[TopicPartition, int], seconds: float, ranges: Ranges | None) -> None:
        """Store the partitions' ends. If a plan was made, record how long Spark's call took, and count the plan's offsets."""
        self.ends = ends
        self.last_plan_at = self._wall_clock()
        if ranges is not None:
            self.planning = self.planning.with_one(seconds)
            self.planned_offsets += _offsets(ranges)

    def claimed(self, plan: int, seconds: float, granted: Ranges) -> None:
        """Record how long a claim took, and count its offsets, but only once per plan."""
        if plan > self._newest_claim:
            self._newest_claim = plan
            self.claiming = self.claiming.with_one(seconds)
            self.claimed_offsets += _offsets(granted)

    # On the consumer's thread, by the ledger, the commits and the member.

    def assigned(
        self, partitions: frozenset[TopicPartition], draining: frozenset[TopicPartition], generation: int, member_id: str
    ) -> None:
        """Store the new assignment."""
        self.assignment = Assignment(partitions, draining, generation, member_id)

    def records_changed(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        """Store a copy of the partitions' commit records."""
        self.records = MappingProxyType(dict(records))

    @contextmanager
    def commit(self) -> Iterator[None]:
        """Record how long a commit takes, and count its error if it fails."""
        began = self._clock()
        try:
            yield
        except GroupKafkaError as error:
            self.commit_errors = _one_more(self.commit_errors, type(error).__name__)
            raise
        finally:
            self.committing = self.committing.with_one(self._clock() - began)

    def rebalanced(self, kind: Literal["assigned", "revoked", "lost"]) -> None:
        """Count a rebalance callback."""
        self.rebalances = _one_more(self.rebalances, kind)

    def drained(self, seconds: float, *, in_time: bool) -> None:
        """Record how long a drain took, and count it if it timed out."""
        self.draining = self.draining.with_one(seconds)
        self.drain_timeouts += not in_time


def _offsets(ranges: Ranges) -> int:
    return sum(offsets.size for planned in ranges.values() for offsets in planned)


def _one_more(counts: Mapping[str, int], name: str) -> Mapping[str, int]:
    return MappingProxyType({**counts, name: counts.get(name, 0) + 1})
