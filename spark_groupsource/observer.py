"""Defines what a query reports to its metrics while it runs.

`Observer` ignores every report, so callers need not check whether metrics are on. `metrics.tally.Tally` is the observer that
counts. Comments name the thread that calls each method. Callers do not modify arguments later unless the docstring says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.partition import Ranges, TopicPartition


class Observer:
    """Receives one run's reports and ignores them."""

    # On the runner's main thread.

    def joining(self, stream: str) -> None:
        """Record that this stream is joining its group."""

    def planned(self, ends: Mapping[TopicPartition, int], seconds: float, ranges: Ranges | None) -> None:
        """Record that Spark called `latestOffset`.

        Args:
            ends: the end of each owned partition (exclusive).
            seconds: how long the call took.
            ranges: the ranges of the new plan, or `None` if there are no new records.
        """

    def claimed(self, plan: int, seconds: float, granted: Ranges) -> None:
        """Record that a plan was claimed. A plan may be reported more than once, because Spark may ask for it again.

        Args:
            plan: the plan's number in its stream.
            seconds: how long the claim took.
            granted: the ranges that this stream reads.
        """

    # On the consumer's thread.

    def assigned(
        self, partitions: frozenset[TopicPartition], draining: frozenset[TopicPartition], generation: int, member_id: str
    ) -> None:
        """Record this member's assigned partitions. The arguments are the fields of `group.member.Assignment`."""

    def rebalanced(self, kind: Literal["assigned", "revoked", "lost"]) -> None:
        """Record that a rebalance callback was called."""

    def drained(self, seconds: float, *, in_time: bool) -> None:
        """Record that a drain has ended, and whether its ranges in flight were confirmed before the timeout (`in_time`)."""

    def records_changed(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        """Receive the records of all owned partitions after a change. The caller modifies this mapping later, so copy it."""

    @contextmanager
    def commit(self) -> Iterator[None]:
        """Return a context manager to wrap around one commit to the group, so that the observer sees the commit's error."""
        yield


UNOBSERVED = Observer()
"""The observer for a run without metrics."""
