"""Which report that a plan is durable is believed, and what is then still to be closed.

Reports come on another thread: late, twice, never, or from a copy of the checkpoint (docs/design.md, "Closing at once").
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Retries

CLOSE_AGAIN_AFTER_S = 1.0
"""Seconds between two attempts to close the claims of a plan that is reported as durable."""

Report = tuple[str, int]
"""A stream, and a plan of it that Spark is said to have in its commit log."""


def believed(report: Report | None, stream: Stream, claimed: int | None) -> bool:
    """Return whether a report says that the newest claimed plan is durable, and the stream does not know that yet.

    A report of an earlier plan comes late, and closes nothing more. Any other is of another stream, or of another copy of the
    checkpoint. Believed, it would close claims whose rows no sink has: they would be lost.

    Args:
        report: the newest report.
        stream: what the stream knows of itself.
        claimed: the newest plan of which all claims are made. `None` while they are being made.
    """
    return claimed is not None and report == (stream.name, claimed) and claimed > stream.durable


class Closing:
    """The newest plan's claims, from the commit that makes them until they are closed.

    Used on the consumer's thread. Any thread may call `report` and read `closed`.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        """Begin without a claim.

        Args:
            clock: returns seconds, monotonic.
        """
        self._retries = Retries(interval_s=CLOSE_AGAIN_AFTER_S, clock=clock)
        self._claimed: int | None = None
        self._report: Report | None = None
        """The newest report. Another thread replaces it."""
        self._unclosed = False
        """Whether a report was believed, and the claims of its plan are still to be closed."""
        self.unclosable: Collection[TopicPartition] = frozenset()
        """Partitions of deleted topics, in which claims of a durable plan stay open: nobody can write their records."""
        self.closed = -1
        """The newest plan whose claims were closed because it was reported as durable."""

    def report(self, stream: str, plan: int) -> None:
        """Note a report; `believe` looks at it."""
        self._report = (stream, plan)

    def claiming(self) -> None:
        """Believe nothing until `claimed`: the newest plan is being claimed."""
        self._claimed = None

    def claimed(self, plan: int) -> None:
        """Note that all claims of a plan are made. What came before is not a report of it: its tasks had not begun."""
        self._claimed, self._report, self._unclosed = plan, None, False
        self.unclosable = frozenset()

    def believe(self, stream: Stream) -> Stream:
        """Return what the stream knows of itself after the newest report: the claimed plan is durable, or nothing new."""
        if self._claimed is None or not believed(self._report, stream, self._claimed):
            return stream
        self._unclosed = True
        self._retries.make_due()
        return replace(stream, durable=self._claimed)

    def is_open(self, stream: Stream) -> bool:
        """Whether this run has made all claims of the stream's newest plan, and does not know yet whether it is durable."""
        return self._claimed == stream.logged > stream.durable

    @property
    def due(self) -> bool:
        """Whether claims are to be closed, and it is time for an attempt."""
        return self._unclosed and self._retries.due

    def failed(self, *, passing: bool) -> None:
        """Note that they could not be closed. They are tried again if that passes, or else left to the next commit."""
        self._unclosed = passing
        self._retries.failed()

    def succeeded(self, plan: int, unclosable: Collection[TopicPartition]) -> None:
        """Note that the claims of `plan` are closed, but for these partitions."""
        self._unclosed, self.unclosable, self.closed = False, unclosable, plan
