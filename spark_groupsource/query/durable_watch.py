"""Finds out when Spark has finished the newest claimed plan, so that its claims are closed before the next trigger.

Spark's next `latestOffset` call also shows that the plan is finished, but that call may be an hour away, and never comes after
the last micro-batch. So two threads each check one place, and either place is enough: the report from the driver's program
(`driver_reports`), and the checkpoint's commit log (`durable_plans`, if the reader has the `checkpointLocation` option). A file
system that hangs blocks only its own thread. The threads report what they find to the ledger, which decides whether to trust the
report (`Ledger.report_durable`). They sleep while no plan is claimed.
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
from spark_groupsource.query.session import Session
from spark_groupsource.reports.driver_reports import DriverReports
from spark_groupsource.timeouts import AT_START_S, JOIN_INTERVAL_S, READ_REPORT_EVERY_S

log = logging.getLogger(__name__)

READ_CHECKPOINT_EVERY_S = 1.0
"""How often to read the checkpoint."""

PAUSE_PER_READ = 4
"""The pause after a slow read of the checkpoint, as a multiple of the time it took. There is no such pause while a partition
drains."""

LONGEST_PAUSE_S = 30.0
"""The longest pause after a slow read."""

CLOSED_S = 20.0
"""How long a stopped run tries to close the claims of a durable plan. The commit has to wait while other members rejoin the
group, for example when several of the group's queries are stopped at the same time."""

UNREPORTED_S = 10.0
"""How long claims may stay open until the next trigger without a warning, if nothing reports durable plans."""

REPORTED_WITHIN_S = 60.0
"""How long to wait for a finished micro-batch to be reported. The report usually arrives within a second, but a busy program,
such as one that is starting, may take longer."""


@dataclass(frozen=True, eq=False)
class Claim:
    """A plan that is being claimed or has been claimed. Two instances are never equal."""

    stream: str
    plan: int
    made: bool
    """Whether all of the plan's claims have been made. Until then the plan cannot be durable."""
    at: float


class _Poller:
    """Calls a function repeatedly on its own thread. Each call returns how long to sleep before the next one."""

    def __init__(self, name: str, read: Callable[[], float | None]) -> None:
        """Prepare the thread. `start` starts it.

        Args:
            name: the last part of the thread's name.
            read: reads, and returns how many seconds to sleep, or `None` to sleep until `wake` is called.
        """
        self._read = read
        self._woken: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"groupkafka-durable-{name}", daemon=True)
        self.start = self._thread.start

    def wake(self) -> None:
        """Wake the thread. Safe to call on any thread and in a signal handler."""
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
    """Tracks whether a plan is durable yet, one plan at a time. Shared values are replaced, never modified in place.

    `_can_notice` only ever changes to true, and both threads find the same plan, so it does not matter which of two writes wins.
    """

    def __init__(
        self,
        location: str | None,
        session: Session,
        reports: DriverReports,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with no plan to watch. The threads start with the first claim.

        Args:
            location: the query's `checkpointLocation`; `None` if unknown.
            session: closes the claims of the durable plans that are reported to it, on either thread.
            reports: gives access to the durable plans that the driver's program reports.
            clock: returns monotonic time in seconds.
        """
        self._location = None if location is None else without_password(location)
        self._plans = None if location is None else DurablePlans(location)
        self._reports = reports
        self._session = session
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
        """A stream whose claims stayed open because nothing was reported, for how many seconds, and when that was detected."""
        # Replaced by the threads that read.
        self._found: Claim | None = None
        self._found_at = 0.0
        self._not_durable: Claim | None = None
        """A claim whose plan was not in the checkpoint's commit log after Spark had stopped the query."""
        self._has_read = False
        """Whether the checkpoint has been read and showed nothing that a second read must confirm."""
        self._can_notice = False
        """Whether a durable plan would be detected, because a report has arrived or the checkpoint could be read."""
        self._failure: CheckpointOfAnotherStream | None = None
        self._warned: frozenset[str] = frozenset()
        # Used on the thread that reads the checkpoint.
        self._read_at = -math.inf
        self._pause_s = 0.0

    # Called on the main thread.

    def claiming(self, stream: str, plan: int) -> None:
        """Prepare to watch a plan that is about to be claimed.

        Raises:
            CheckpointOfAnotherStream: `checkpointLocation` is not this query's checkpoint.
        """
        if self._reported(stream) is not None:
            self._can_notice = True
        # If the checkpoint was restored from an older copy, an earlier run may have reported a plan with the same number. That
        # report would close the new plan's claims, and after a crash a restart would not read its records.
        self._reports.discard(stream)
        self._watch_for(Claim(stream, plan, False, self._clock()))
        for _ in Deadline(0 if self._has_waited else AT_START_S, clock=self._clock).attempts(first_s=JOIN_INTERVAL_S):
            if self._has_read:
                break
        self._has_waited = True
        # Raise before anything is claimed: another stream's commit log would close claims whose records were never written.
        self._raise_failure()

    def claimed(self, stream: str, plan: int) -> None:
        """Watch for this plan to become durable, now that all its claims are made."""
        self._watch_for(Claim(stream, plan, True, self._clock()))

    def nothing_claimed(self) -> None:
        """Stop watching, because the plan was granted no ranges."""
        self._claim = None

    def stop_watching(self, plan: int) -> float:
        """Stop watching, because Spark has shown that `plan` is durable.

        Returns:
            How many seconds the plan's claims were open: until it was found to be durable, or else until now. 0 if the plan was
            not claimed.

        Raises:
            CheckpointOfAnotherStream: `checkpointLocation` is not this query's checkpoint.
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
        """Replace the claim that the threads watch, and wake them."""
        self._claim = claim
        if not self._has_started:
            self._has_started = True
            for poller in self._pollers:
                poller.start()
        self._wake()

    def _raise_failure(self) -> None:
        """Raise an error if the checkpoint was found to belong to another stream."""
        if self._failure is not None:
            raise self._failure

    # Called on any thread, and in a signal handler.

    def conclude(self, wait_s: float) -> bool:
        """Read the report and the checkpoint again. If the plan turns out to be finished, wait until its claims are closed.

        Spark stops a source only after the query's own thread has ended, so the checkpoint is final by then.

        Args:
            wait_s: how many seconds to check whether the plan is finished. If it is, closing its claims may take up to CLOSED_S
                in total, unless the member has failed.

        Returns:
            Whether the newest plan's claims are closed.
        """
        # The run is ending, so it is too late for anyone to act on a warning that its claims stay open.
        self._suspected = None
        claim = self._claim
        if claim is None or self._session.is_closed(claim.plan):
            return True
        if not claim.made:
            return False
        self._stopping = True
        self._wake()
        deadline = Deadline(wait_s, clock=self._clock)
        for _ in Deadline(CLOSED_S, clock=self._clock).attempts(first_s=JOIN_INTERVAL_S):
            if self._session.is_closed(claim.plan) or self._session.cannot_close(claim.plan) or self._not_durable is claim:
                break
            if deadline.over and self._found is not claim:
                break
        return self._session.is_closed(claim.plan)

    def _wake(self) -> None:
        """Make both threads read now."""
        for poller in self._pollers:
            poller.wake()

    # Called on the threads that read. Each poll returns the seconds until the next read, or `None` to sleep until woken.

    def _poll_report(self) -> float | None:
        """Check whether the driver's program has reported the claimed plan."""
        self._warn_if_nothing_is_reported()
        claim = self._claim
        if claim is None or claim is self._found:
            return READ_REPORT_EVERY_S if self._suspected is not None and not self._can_notice else None
        # A plan that is still being claimed cannot be durable, so a report about it comes from an earlier run. Trusting it would
        # close claims whose records no task has read.
        if claim.made and self._reported(claim.stream) == claim.plan:
            self._can_notice = True
            self._note_found(claim)
            return None
        return READ_REPORT_EVERY_S

    def _poll_checkpoint(self) -> float | None:
        """Check whether the claimed plan is in the checkpoint's commit log."""
        claim = self._claim
        if claim is None or claim is self._found or self._plans is None:
            return None
        pause_s = READ_CHECKPOINT_EVERY_S if self._session.is_draining() else max(READ_CHECKPOINT_EVERY_S, self._pause_s)
        began = self._clock()
        if not self._stopping and began < self._read_at + pause_s:
            return min(READ_CHECKPOINT_EVERY_S, self._read_at + pause_s - began)
        try:
            if self._is_in_commit_log(self._plans, claim):
                self._note_found(claim)
                return None
        except CheckpointOfAnotherStream as error:
            self._failure, self._plans = error, None
            log.error("%s", error)
        except Exception as error:  # noqa: BLE001 -- a file system may raise anything, and that must not make the query fail
            self._warn_once(
                "checkpointLocation = %s: %s. Until it can be read, a micro-batch's claims are confirmed when the driver's "
                "program reports the micro-batch as finished (spark_groupsource.register), or at the next trigger",
                self._location,
                without_password(str(error)),
            )
        finally:
            self._read_at = self._clock()
            self._pause_s = min(max(self._pause_s, PAUSE_PER_READ * (self._read_at - began)), LONGEST_PAUSE_S)
            self._has_read |= self._plans is None or not self._plans.in_doubt
        return READ_REPORT_EVERY_S if self._stopping else READ_CHECKPOINT_EVERY_S

    def _note_found(self, claim: Claim) -> None:
        """Record that the plan is durable, and report it to the ledger."""
        self._found_at = self._clock()
        self._found = claim
        self._session.report_durable(claim.stream, claim.plan)

    def _is_in_commit_log(self, plans: DurablePlans, claim: Claim) -> bool:
        """Read the checkpoint, and return whether its commit log has the plan."""
        # Check this before the read, because a read that began before Spark stopped the query may miss Spark's last writes.
        stopping = self._stopping
        self._pause_s = 0.0
        if plans.locate(claim.stream, claim.plan) is None:
            if claim.made and not self._can_notice and self._clock() - claim.at > UNREPORTED_S:
                self._pause_s = LONGEST_PAUSE_S
                self._warn_once(
                    "checkpointLocation = %s (set on the reader) contains no micro-batch from this query. Check that the "
                    "writer uses the same location; without a scheme, it is a path on this machine. Until then, a "
                    "micro-batch's claims are confirmed when the driver's program reports the micro-batch as finished "
                    "(spark_groupsource.register), or at the next trigger",
                    self._location,
                )
            return False
        self._can_notice = True
        found = claim.made and plans.is_durable(claim.stream, claim.plan)
        if stopping and not found:
            self._not_durable = claim
        return found

    def _reported(self, stream: str) -> int | None:
        """Return the newest plan that the driver's program has reported for a stream, or `None`."""
        try:
            return self._reports.read(stream)
        except ReportsUnavailable as error:
            self._warn_once("%s. The driver program's reports of finished micro-batches will not be read", error)
            return None

    def _warn_if_nothing_is_reported(self) -> None:
        """Warn once if claims stayed open until the next trigger, and no report has arrived since then."""
        if self._suspected is None or self._can_notice:
            return
        stream, open_s, since = self._suspected
        if self._reported(stream) is not None:
            self._can_notice = True
        elif self._clock() - since > REPORTED_WITHIN_S:
            self._suspected = None
            self._warn_once(
                "the claims of a micro-batch stayed unconfirmed for %.0f s, until the next trigger, because the source was not "
                "told earlier that Spark had finished the micro-batch. Until claims are confirmed, their records count as lag, "
                "and their partitions have to wait before they can move. If the query stops, other clients in the group will "
                "read the records again. Call spark_groupsource.register(spark) in the program that starts the query, or set "
                "the reader's checkpointLocation option to the same value as the writer's",
                open_s,
            )

    def _warn_once(self, text: str, *arguments: object) -> None:
        """Log a warning, unless the same text was logged before."""
        if text not in self._warned:
            self._warned |= {text}
            log.warning(text, *arguments)
