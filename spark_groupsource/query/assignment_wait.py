"""Waits until the group has assigned this run its partitions.

When a query joins a group that has other members, its partitions arrive late. With the cooperative protocol the first assignment
is empty, and stays empty until the other members have drained and released partitions. With KIP-848 the partitions arrive one by
one. A continuous query reads them whenever they arrive, but a Trigger.AvailableNow or Trigger.Once run would end without them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from spark_groupsource.group.ledger import Ledger
from spark_groupsource.group.member import Assignment
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import TopicPartition, with_offsets
from spark_groupsource.patience import Deadline
from spark_groupsource.query.session import REBALANCE_S, Session

log = logging.getLogger(__name__)

QUIET_S = 3.0
"""How long an assignment must stay unchanged before a Trigger.AvailableNow run treats it as complete."""


class AssignmentWait:
    """Decides how long one run waits for its partitions. Used on the runner's main thread."""

    def __init__(self, drain_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with an empty assignment, before the first plan.

        Args:
            drain_s: how many seconds another member may take to drain a partition before releasing it.
            clock: returns monotonic time in seconds.
        """
        self._drain_s = drain_s
        self._clock = clock
        self._is_first = True
        self._seen = Assignment()
        self._seen_at = clock()
        self._has_had_partitions = False

    def note(self, assignment: Assignment) -> None:
        """Store the current assignment and, if it has changed, the current time."""
        if assignment != self._seen:
            self._seen, self._seen_at = assignment, self._clock()
        self._has_had_partitions |= bool(assignment.partitions)

    def await_partitions(
        self,
        session: Session,
        stream: Stream,
        *,
        topics_exist: Callable[[], bool],
        is_stopping: Callable[[], bool],
    ) -> None:
        """Wait for a partition before the first plan of a run. If none arrives in time, log a warning and return.

        Args:
            session: this run's membership in its group.
            stream: the stream as its checkpoint describes it.
            topics_exist: returns whether any subscribed topic exists. If none does, there is nothing to wait for.
            is_stopping: returns whether the query is being stopped and will not plan anything.
        """
        if not self._is_first:
            return
        self._is_first = False
        if session.assignment.partitions or not topics_exist():
            return
        waits_s = min(self._drain_s + REBALANCE_S, session.deadline.left)
        log.info("waiting up to %.0f s for another member to release a partition", waits_s)
        for _ in Deadline(waits_s, clock=self._clock).attempts():
            if is_stopping() or (session.once(Ledger.ready) and session.positions):
                return
        if session.assignment.partitions:
            return  # they have not been adopted yet, and the reason has been logged
        unseen = stream.durable >= 0 and with_offsets(stream.ranges)
        log.warning(
            "the group gave this run no partition within %.0f s: other members own all of them. A Trigger.AvailableNow or "
            "Trigger.Once run will end without reading new records; a continuous query is a standby until a member leaves.%s",
            waits_s,
            f" Other queries may still treat ranges that stream {stream.name} has confirmed as held until it owns a partition "
            "again."
            if unseen
            else "",
        )

    def may_end(self, assignment: Assignment, read: Collection[TopicPartition], target: Collection[TopicPartition]) -> bool:
        """Return whether a Trigger.AvailableNow run may end, now that there is nothing left to plan.

        Args:
            assignment: the group's current assignment for this run.
            read: the partitions that this run has adopted and whose end is known. An assigned partition is added once the
                brokers have answered about it. If they do not answer for too long, the run fails.
            target: the partitions that the run must read.
        """
        self.note(assignment)
        if set(read) >= set(target):
            return True
        if not assignment.partitions:
            # A member that rejoins briefly has no partitions. If the run ended now, it would leave records unread.
            return not self._has_had_partitions or self._lost_all()
        if (assignment.partitions - assignment.draining).intersection(target) - set(read):
            return False  # these partitions are assigned to this run but have not been read yet
        # The other partitions belong to other members or have not arrived yet: with KIP-848 they arrive one by one.
        return self._clock() - self._seen_at >= QUIET_S

    def _lost_all(self) -> bool:
        """Return whether this run has lost all its partitions for good, and log a warning if so."""
        if self._clock() - self._seen_at < REBALANCE_S:
            return False
        log.warning(
            "the group has taken all partitions from this run, so it is ending now. The partitions' new owners or the next run "
            "will read the rest",
        )
        return True
