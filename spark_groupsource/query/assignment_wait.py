"""Whether the group has finished giving this run its partitions.

A member that joins a group beside live members gets its partitions late. With the cooperative protocol its first assignment is
empty, until the others have drained and released what moves. With KIP-848 partitions come one by one. A continuous query reads
them whenever they come. A run of Trigger.AvailableNow or Trigger.Once would end without them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from spark_groupsource.group.assignment import Assignment
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.query.session import Session

log = logging.getLogger(__name__)

REBALANCE_S = 15.0
"""How long the group may take to move a partition, besides the drain: two rounds of heartbeats (KIP-848: 5 s each), with room."""

QUIET_S = 3.0
"""An assignment that has not changed for so many seconds is complete enough to end a run of Trigger.AvailableNow."""


class AssignmentWait:
    """Watches the assignment of one run. Used on the runner's main thread."""

    def __init__(self, drain_s: float, *, clock: Callable[[], float]) -> None:
        """Begin before the first plan.

        Args:
            drain_s: how many seconds another member may drain a partition before it releases it.
            clock: returns seconds, monotonic.
        """
        self._drain_s = drain_s
        self._clock = clock
        self._is_first = True
        self._seen = Assignment()
        self._seen_at = clock()
        self._has_had_any = False

    def note(self, assignment: Assignment) -> None:
        """Note since when the assignment has been what it is."""
        if assignment != self._seen:
            self._seen, self._seen_at = assignment, self._clock()
        self._has_had_any |= bool(assignment.partitions)

    def await_partitions(
        self,
        session: Session,
        stream: Stream,
        *,
        topics_exist: Callable[[], bool],
        is_stopping: Callable[[], bool],
    ) -> None:
        """Before the first plan of a run, wait until the group has given it a partition; return without one after a while.

        Args:
            session: this run's part in its group.
            stream: what the checkpoint says.
            topics_exist: whether any subscribed topic exists; without one there is nothing to wait for.
            is_stopping: whether the query is being stopped, so that it will plan nothing.
        """
        if not self._is_first:
            return
        self._is_first = False
        if session.assignment.partitions or not topics_exist():
            return
        waits_s = min(self._drain_s + REBALANCE_S, session.deadline.left)
        log.info("waiting up to %.0f s for a partition that another member releases", waits_s)
        for _ in Deadline(waits_s, clock=self._clock).attempts():
            if is_stopping() or (session.once(Ledger.ready) and session.positions):
                return
        if session.assignment.partitions:
            return  # they are not adopted yet, and the log says why
        unseen = stream.durable >= 0 and any(offsets.size for ranges in stream.ranges.values() for offsets in ranges)
        log.warning(
            "the group gave this run no partition within %.0f s: other members own them all. A run of Trigger.AvailableNow or "
            "Trigger.Once ends without reading new records; a continuous query is a standby until a member leaves.%s",
            waits_s,
            f" What stream {stream.name} confirmed up to plan {stream.durable} may stay held by other queries until this stream "
            "owns a partition again."
            if unseen
            else "",
        )

    def may_end(self, assignment: Assignment, read: Collection[TopicPartition], target: Collection[TopicPartition]) -> bool:
        """Return whether a run with a fixed target may end, now that nothing is left to plan.

        Args:
            assignment: what the group has given to this run.
            read: the partitions that this run has adopted, and whose end it knows. A partition of the assignment becomes one
                of them when the brokers have answered for it. If they do not for long, the run fails.
            target: the partitions that the run is to read.
        """
        self.note(assignment)
        if set(read) >= set(target):
            return True
        if not assignment.partitions:
            # A member that rejoins has nothing for a moment. A run that ended then would leave what it has not read.
            return not self._has_had_any or self._lost_all()
        if (assignment.partitions - assignment.draining).intersection(target) - set(read):
            return False  # they are its own, and it would end without having read them
        # What is missing belongs to others, or is still on its way: with KIP-848 partitions come one by one.
        return self._clock() - self._seen_at >= QUIET_S

    def _lost_all(self) -> bool:
        """Return whether this run has had no partition for so long that the group will give it none; say so."""
        if self._clock() - self._seen_at < REBALANCE_S:
            return False
        log.warning(
            "the group has taken all partitions from this run, which ends now: what it has not read is for their new owners, "
            "or for its next run",
        )
        return True
