"""Looks whether Spark has finished the newest claimed plan, so that its claims are closed before the next trigger.

Spark itself shows it with its next `latestOffset`, which may be an hour away and never comes after the last micro-batch. Until
then two threads look at one place each, of which either suffices: the report of the driver's program (`driver_reports`), and the
commit log in the checkpoint (`durable_plans`, if the reader has the option `checkpointLocation`). A file system that hangs holds
up its own thread only. What they find goes to the ledger, which decides whether to believe it (`Ledger.report_durable`). They
sleep while no plan is claimed.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from spark_groupsource.checkpoint.durable_plans import DurablePlans
from spark_groupsource.checkpoint.files import without_password
from spark_groupsource.errors import CheckpointOfAnotherStream, ReportsUnavailable
from spark_groupsource.patience import Deadline
from spark_groupsource.reports.driver_reports import DriverReports

log = logging.getLogger(__name__)

READ_REPORT_EVERY_S = 0.2
"""Seconds between two reads of the report, in the first minute of a claim. It is one local file."""

READ_LATER_EVERY_S = 1.0
"""The same after the first minute; and seconds between two reads of the checkpoint."""

RECENTLY_CLAIMED_S = 60.0
"""For so long after a claim the report is read often. A micro-batch that takes longer can wait a second more."""

PAUSE_PER_READ = 4
"""A slow read of the checkpoint is followed by a pause of so many times its duration, unless a partition drains."""

LONGEST_PAUSE_S = 30.0
"""The longest of these pauses."""

FIRST_READ_S = 5.0
"""How long the first claim of a run waits for the first read of the checkpoint, which may be that of another stream."""

WAS_READ_EVERY_S = 0.02
"""How often a thread that waits for the next read asks whether there was one. It may be a signal handler, so nothing wakes it."""

CLOSED_S = 20.0
"""How long a run that is stopped tries to close the claims of a plan that is durable. A commit waits while another member has to
rejoin the group, as when queries of one group are stopped together."""

UNREPORTED_S = 10.0
"""A claim that stays open for longer, until the next trigger, is worth a warning if nothing ever reports durable plans."""

REPORTED_WITHIN_S = 60.0
"""A micro-batch is reported up to a second after its commit log is written. A program that has much to do, as at a slow start,
takes longer; after so long a report will not come."""


@dataclass(frozen=True, eq=False)
class Claim:
    """A plan whose claims are being made, or are made. Two of them are never equal."""

    stream: str
    plan: int
    made: bool
    """Whether all its claims are made. Before, the plan cannot be durable."""
    at: float


class _Poller:
    """A thread that reads one place again and again. It sleeps as long as each read says, unless it is woken."""

    def __init__(self, name: str, read: Callable[[], float | None]) -> None:
        self._read = read
        self._woken: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"groupkafka-durable-{name}", daemon=True)
        self.start = self._thread.start

    def wake(self) -> None:
        """Have it read now. Any thread, and a signal handler, may call this."""
        self._woken.put(None)

    def _run(self) -> None:
        while True:
            pause_s = self._read()
            try:
                self._woken.get(timeout=pause_s)
                while True:
                    self._woken.get_nowait()
            except Empty:
                continue


class DurableWatch:
    """Looks for one plan at a time. A value that crosses threads is replaced, never edited.

    `_can_notice` only ever becomes true, and both threads find the same: it does not matter which of two writes counts.
    """

    def __init__(
        self,
        location: str | None,
        *,
        report: Callable[[str, int], None],
        closed: Callable[[int], bool],
        cannot_close: Callable[[int], bool],
        hurried: Callable[[], bool],
        reports: DriverReports,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with nothing to look for. The threads start with the first claim.

        Args:
            location: the query's `checkpointLocation`; `None` if it is not known.
            report: takes a stream and its plan that is durable. Called on either thread.
            closed: whether the claims of a plan were closed after it was reported.
            cannot_close: whether the claims of a plan can no longer be closed in this run.
            hurried: whether somebody waits for the end of the micro-batch, as while a partition drains.
            reports: where the driver's program reports durable plans.
            clock: returns seconds, monotonic.
        """
        self._location = None if location is None else without_password(location)
        self._plans = None if location is None else DurablePlans(location)
        self._reports = reports
        self._report = report
        self._closed = closed
        self._cannot_close = cannot_close
        self._hurried = hurried
        self._clock = clock
        self._pollers = [_Poller("report", self._poll_report)]
        if self._plans is not None:
            self._pollers.append(_Poller("checkpoint", self._poll_checkpoint))
        self._has_started = False
        self._has_waited = self._plans is None
        # Replaced by the main thread, and by a signal handler.
        self._claim: Claim | None = None
        self._stopping = False
        self._suspected: tuple[str, float, float] | None = None
        """A stream whose claims stayed open although nobody reported them, for how many seconds, and when that was seen."""
        # Replaced by the threads that read.
        self._found: Claim | None = None
        self._found_at = 0.0
        self._not_durable: Claim | None = None
        """A claim that was still open in the checkpoint after Spark had stopped the query."""
        self._has_read = False
        """Whether the checkpoint was read, with nothing that the next read has to confirm."""
        self._can_notice = False
        """Whether a durable plan would be noticed: a report came, or the checkpoint was read."""
        self._failure: CheckpointOfAnotherStream | None = None
        self._warned: frozenset[str] = frozenset()
        # Used on the thread that reads the checkpoint.
        self._read_at = -math.inf
        self._pause_s = 0.0

    # Called on the main thread.

    def claiming(self, stream: str, plan: int) -> None:
        """Begin with a plan that is in Spark's offset log, before it is claimed.

        Raises:
            CheckpointOfAnotherStream: `checkpointLocation` is not that of this query.
        """
        if self._reported(stream) is not None:
            self._can_notice = True
        # An older copy of the checkpoint, now restored, may have had a plan of this number. Its report would close the claims of
        # the new plan, whose records a restart would then not read again.
        self._reports.discard(stream)
        self._watch_for(Claim(stream, plan, False, self._clock()))
        for _ in Deadline(0 if self._has_waited else FIRST_READ_S, clock=self._clock).attempts(WAS_READ_EVERY_S):
            if self._has_read:
                break
        self._has_waited = True
        # Before anything is claimed: the commit log of another stream would close claims whose records were never written.
        self._raise_failure()

    def claimed(self, stream: str, plan: int) -> None:
        """Look from now on whether this plan is durable: all its claims are made."""
        self._watch_for(Claim(stream, plan, True, self._clock()))

    def nothing_claimed(self) -> None:
        """Look for nothing: the plan was granted no range."""
        self._claim = None

    def known(self, plan: int) -> float:
        """Stop looking: Spark itself shows that `plan` is durable.

        Returns:
            For how many seconds the plan's claims were open: until it was found to be durable, or else until now. 0 if it was not
            claimed.

        Raises:
            CheckpointOfAnotherStream: `checkpointLocation` is not that of this query.
        """
        self._raise_failure()
        claim, self._claim = self._claim, None
        if claim is None or not claim.made or claim.plan != plan:
            return 0.0
        if claim is self._found:
            return self._found_at - claim.at
        open_s = self._clock() - claim.at
        if open_s > UNREPORTED_S and self._suspected is None:
            self._suspected = (claim.stream, open_s, self._clock())
            self._wake()
        return open_s

    def _watch_for(self, claim: Claim) -> None:
        self._claim = claim
        if not self._has_started:
            self._has_started = True
            for poller in self._pollers:
                poller.start()
        self._wake()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # Called on any thread, and in a signal handler.

    def conclude(self, wait_s: float) -> bool:
        """Read the report and the checkpoint once more. If the plan turns out to be finished, wait until its claims are closed.

        Spark stops a source when the query's own thread has ended. So what the checkpoint says then is final.

        Args:
            wait_s: how many seconds to look whether the plan is finished. If it is, the brokers have up to CLOSED_S in all. A
                member that has failed is not waited for.

        Returns:
            Whether the newest plan's claims are closed.
        """
        # The run ends. A warning that its claims stay open would come when nobody can act on it any more.
        self._suspected = None
        claim = self._claim
        if claim is None or self._closed(claim.plan):
            return True
        if not claim.made:
            return False
        self._stopping = True
        self._wake()
        deadline = Deadline(wait_s, clock=self._clock)
        for _ in Deadline(CLOSED_S, clock=self._clock).attempts(WAS_READ_EVERY_S):
            if self._closed(claim.plan) or self._cannot_close(claim.plan) or self._not_durable is claim:
                break
            if deadline.over and self._found is not claim:
                break
        return self._closed(claim.plan)

    def _wake(self) -> None:
        for poller in self._pollers:
            poller.wake()

    # Called on the threads that read. Each returns the seconds until the next read; `None`: until there is something new.

    def _poll_report(self) -> float | None:
        self._warn_if_nothing_is_reported()
        claim = self._claim
        if claim is None or claim is self._found:
            return READ_LATER_EVERY_S if self._suspected is not None and not self._can_notice else None
        # A plan whose claims are still being made cannot be durable: a report of it is of an earlier run, and would close claims
        # whose records no task has read.
        if claim.made and self._reported(claim.stream) == claim.plan:
            self._can_notice = True
            self._note_found(claim)
            return None
        recent = self._stopping or self._hurried() or self._clock() - claim.at < RECENTLY_CLAIMED_S
        return READ_REPORT_EVERY_S if recent else READ_LATER_EVERY_S

    def _poll_checkpoint(self) -> float | None:
        claim = self._claim
        if claim is None or claim is self._found or self._plans is None:
            return None
        pause_s = READ_LATER_EVERY_S if self._hurried() else max(READ_LATER_EVERY_S, self._pause_s)
        began = self._clock()
        if not self._stopping and began < self._read_at + pause_s:
            return min(READ_LATER_EVERY_S, self._read_at + pause_s - began)
        try:
            if self._is_in_commit_log(self._plans, claim):
                self._note_found(claim)
                return None
        except CheckpointOfAnotherStream as error:
            self._failure, self._plans = error, None
            log.error("%s", error)
        except Exception as error:  # noqa: BLE001 -- a file system may raise anything, and no query ends because of it
            self._warn_once(
                "checkpointLocation = %s: %s. Until it can be read, the claims of a micro-batch are closed when the driver's "
                "program reports it (spark_groupsource.register), or else by the next trigger",
                self._location,
                without_password(str(error)),
            )
        finally:
            self._read_at = self._clock()
            self._pause_s = min(max(self._pause_s, PAUSE_PER_READ * (self._read_at - began)), LONGEST_PAUSE_S)
            self._has_read |= self._plans is None or not self._plans.in_doubt
        return READ_REPORT_EVERY_S if self._stopping else READ_LATER_EVERY_S

    def _note_found(self, claim: Claim) -> None:
        self._found_at = self._clock()
        self._found = claim
        self._report(claim.stream, claim.plan)

    def _is_in_commit_log(self, plans: DurablePlans, claim: Claim) -> bool:
        # Before the read: one that began before Spark stopped the query does not show what Spark wrote last.
        stopping = self._stopping
        self._pause_s = 0.0
        if plans.locate(claim.stream, claim.plan) is None:
            if claim.made and not self._can_notice and self._clock() - claim.at > UNREPORTED_S:
                self._pause_s = LONGEST_PAUSE_S
                self._warn_once(
                    "checkpointLocation = %s, an option of the reader, has no micro-batch of this query: is it the location that "
                    "the writer has? Without a scheme it is a path of this machine. The claims of a micro-batch are closed when "
                    "the driver's program reports it (spark_groupsource.register), or else by the next trigger",
                    self._location,
                )
            return False
        self._can_notice = True
        found = claim.made and plans.is_durable(claim.stream, claim.plan)
        if stopping and not found:
            self._not_durable = claim
        return found

    def _reported(self, stream: str) -> int | None:
        try:
            return self._reports.read(stream)
        except ReportsUnavailable as error:
            self._warn_once("%s. What the driver's program reports of finished micro-batches is not read", error)
            return None

    def _warn_if_nothing_is_reported(self) -> None:
        if self._suspected is None or self._can_notice:
            return
        stream, open_s, since = self._suspected
        if self._reported(stream) is not None:
            self._can_notice = True
        elif self._clock() - since > REPORTED_WITHIN_S:
            self._suspected = None
            self._warn_once(
                "the claims of a micro-batch stayed unconfirmed for %.0f s, until the next trigger: this process did not learn "
                "earlier that Spark had finished it. Until then all its records are lag, a partition that moves waits, and after "
                "a stop other clients read them again. Call spark_groupsource.register(spark) in the program that starts the "
                "query, or give the reader the option checkpointLocation, with the same value as the writer",
                open_s,
            )

    def _warn_once(self, text: str, *arguments: object) -> None:
        if text not in self._warned:
            self._warned |= {text}
            log.warning(text, *arguments)
