"""Decides which reports of durable plans to trust, and tracks whether claims still have to be closed.

Reports come from another thread. They may arrive late, twice or not at all, or come from a copy of the checkpoint
(docs/design.md, "Closing at once").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace

from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import TopicPartition
from spark_groupsource.timeouts import RETRY_LATER_S

Report = tuple[str, int]
"""A stream, and the plan that is reported to be in Spark's commit log."""


def believed(report: Report | None, stream: Stream, claimed: int | None) -> bool:
    """Return whether a report shows for the first time that the newest claimed plan is durable.

    A report about an earlier plan is late and closes nothing more. Any other report comes from another stream or from another
    copy of the checkpoint. Trusting it would close claims whose rows were never written, and those rows would be lost.

    Args:
        report: the newest report.
        stream: the stream as its checkpoint describes it.
        claimed: the newest plan whose claims have all been made. `None` while they are being made.
    """
    return claimed is not None and report == (stream.name, claimed) and claimed > stream.durable


class Closing:
    """Tracks the newest plan's claims, from the commit that makes them until they are closed.

    Used on the consumer's thread. Any thread may call `report` and read `closed` and `given_up`.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        """Start with nothing claimed.

        Args:
            clock: returns monotonic time in seconds.
        """
        self._clock = clock
        self._claimed: int | None = None
        self._report: Report | None = None
        """The newest report. Another thread replaces it."""
        self._unclosed = False
        """Whether a plan was reported as durable but its claims are still open."""
        self._try_at = -math.inf
        self.unclosable: Collection[TopicPartition] = frozenset()
        """Partitions of deleted topics. A durable plan's claims in these partitions stay open, because no record can be
        written."""
        self.closed = -1
        """The newest plan whose claims were closed because it was reported as durable."""
        self.given_up = -1
        """The newest plan that was reported as durable, but whose claims the group has refused to close."""

    def report(self, stream: str, plan: int) -> None:
        """Store a report for the next `believe` call."""
        self._report = (stream, plan)

    def claiming(self) -> None:
        """Ignore reports until `claimed` is called, because the newest plan is being claimed."""
        self._claimed = None

    def claimed(self, plan: int) -> None:
        """Record that all of a plan's claims are made. Earlier reports cannot be about it, because its tasks had not started."""
        self._claimed, self._report, self._unclosed = plan, None, False
        self.unclosable = frozenset()

    def believe(self, stream: Stream) -> Stream:
        """Return the stream with its claimed plan marked as durable if the newest report proves that, else unchanged."""
        if self._claimed is None or not believed(self._report, stream, self._claimed):
            return stream
        self._unclosed = True
        self._try_at = -math.inf
        return replace(stream, durable=self._claimed)

    def is_open(self, stream: Stream) -> bool:
        """Return whether this run has made all of the newest plan's claims but does not yet know that the plan is durable."""
        return self._claimed == stream.logged > stream.durable

    @property
    def due(self) -> bool:
        """Whether there are claims to close and it is time to try."""
        return self._unclosed and self._clock() >= self._try_at

    def failed(self, plan: int, *, passing: bool) -> None:
        """Record that the claims of `plan` could not be closed. Retry if the error is retriable, otherwise give up."""
        self._unclosed = passing
        self._try_at = self._clock() + RETRY_LATER_S
        if not passing:
            self.given_up = plan

    def succeeded(self, plan: int, unclosable: Collection[TopicPartition]) -> None:
        """Record that the claims of `plan` are closed, except in the `unclosable` partitions."""
        self._unclosed, self.unclosable, self.closed = False, unclosable, plan
