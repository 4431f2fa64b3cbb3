"""A query as a member of its group: the steps of a micro-batch, each done on the consumer's thread.

`joining.Joining` makes it. The caller is the runner's main thread. Each step that commits is tried again while a passing
error, or a rebalance, forbids it, for `assignmentTimeout` at most.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from spark_groupsource.errors import ClaimTimeout, GroupKafkaError, MemberUnknown, TopicNotFound
from spark_groupsource.group.assignment import Assignment
from spark_groupsource.group.ledger import Claims, Ledger
from spark_groupsource.group.member import Member
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit
from spark_groupsource.handoff.losses import PartitionLoss
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.options.model import Options
from spark_groupsource.partition import Ranges, TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.query.unsubscribed import Unsubscribed

log = logging.getLogger(__name__)

T = TypeVar("T")


class Joined:
    """One membership of one stream, from its first assignment until the query ends."""

    def __init__(
        self,
        member: Member,
        ledger: Ledger,
        options: Options,
        *,
        leave_deleted: Callable[[Joined], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take over a member that has its first assignment.

        Args:
            member: a member that has its first assignment.
            ledger: the records of its partitions.
            options: the options of the source.
            leave_deleted: gives up the partitions whose topic was deleted, for which brokers accept no commit.
            clock: returns seconds, monotonic.
        """
        self._member = member
        self._ledger = ledger
        self._options = options
        self._leave_deleted = leave_deleted
        self._clock = clock
        self._unsubscribed = Unsubscribed(options)

    # Values that the consumer's thread replaces and never edits.

    @property
    def assignment(self) -> Assignment:
        """What the group has given to this driver."""
        return self._member.assignment

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset to plan of each partition that new plans may have."""
        return self._ledger.positions

    @property
    def held(self) -> Mapping[TopicPartition, int]:
        """How many offsets are held for other streams, for each partition that has any."""
        return self._ledger.held

    @property
    def closed(self) -> int:
        """The newest plan whose claims were closed because it was reported as durable; -1 if there was none."""
        return self._ledger.closed

    # Called on any thread.

    def report_durable(self, stream: str, plan: int) -> None:
        """Have the consumer's thread close the claims of a plan that is in Spark's commit log (`Ledger.report_durable`)."""
        self._ledger.report_durable(stream, plan)

    # Steps.

    def ready(self) -> bool:
        """Return whether planning can begin (`Ledger.ready`)."""
        return self._member.call(self._ledger.ready)

    def records(self) -> Mapping[TopicPartition, CommitRecord]:
        """Return the record of each owned partition, with durable plans closed."""
        return self._member.call(self._ledger.known)

    def commits_of(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, GroupCommit]:
        """Return what the group holds for these partitions, owned by this member or not (`Ledger.commits_of`)."""
        return self._member.call(lambda: self._ledger.commits_of(partitions))

    def to_reread(self) -> Ranges:
        """Return the ranges that are owed to other streams and that this one reads instead (`outstandingClaims`).

        Raises:
            ClaimsOutstanding: see ledger.Ledger.to_reread.
        """
        return self._member.call(self._ledger.to_reread)

    def propose(self, ranges: Ranges) -> Ranges:
        """Note a plan before Spark gets it, and return those of its ranges that this member still owns."""
        return self._member.call(lambda: self._ledger.propose(ranges))

    def note_durable(self, plan: int) -> None:
        """Note that Spark has `plan` in its commit log; its claims are closed with the next commit."""
        self._retried(lambda: self._ledger.durable(plan))

    def settle(self, plan: int) -> None:
        """Note that `plan` is durable, and drop owed ranges that their streams have confirmed."""

        def settle() -> None:
            self._ledger.durable(plan)
            self._ledger.settle()

        self._retried(settle)

    def confirm(self) -> None:
        """Close the claims of every durable plan now: no claim comes that would do it."""
        self._retried(self._ledger.confirm)

    def go_on(self, losses: Collection[PartitionLoss]) -> None:
        """Continue behind what is lost, and give up the partitions of deleted topics."""
        self._retried(lambda: self._ledger.go_on(losses))

    def claim(self, stream: Stream, remaining: Callable[[Joined, Stream], Stream]) -> Ranges:
        """Return the ranges of a plan that this stream reads, once each is claimed or known to be another member's.

        Args:
            stream: the stream, with the plan to claim.
            remaining: returns the stream without the ranges whose topic was deleted; called before each attempt.

        Raises:
            ClaimTimeout: a partition of a subscribed topic was not adopted by its next owner within `assignmentTimeout`.
        """
        stream = self._unsubscribed.without_refused(stream, self._read, owned=self.positions.keys())

        def attempt() -> Claims:
            left = remaining(self, stream)
            return self._member.call(lambda: self._ledger.claim(left))

        deadline = self._deadline()
        for _ in deadline.attempts():
            claims = deadline.retry(attempt, self._passes)
            if not claims.waiting:
                return claims.granted
        stream = self._unsubscribed.without_waiting(stream, claims.waiting)
        claims = self._deadline().retry(attempt, self._passes)
        if not claims.waiting:
            return claims.granted
        raise self._claim_timeout(claims, stream)

    def _read(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, GroupCommit]:
        return self._retried(lambda: self._ledger.commits_of(partitions))

    def _retried(self, step: Callable[[], T]) -> T:
        """Do a step that commits on the consumer's thread, and again while a passing error or a rebalance forbids it.

        Raises:
            GroupKafkaError: an error that does not pass, or one that lasts longer than `assignmentTimeout`; or at once the error
                that ended the member.
        """
        return self._deadline().retry(lambda: self._member.call(step), self._passes)

    def _passes(self, error: Exception) -> bool:
        if error is self._member.failure:
            return False
        if isinstance(error, TopicNotFound):
            # The coordinator may learn of a deletion before the broker that is asked about the topic: then there is nothing to
            # give up yet.
            self._leave_deleted(self)
            return True
        return isinstance(error, MemberUnknown) or (isinstance(error, GroupKafkaError) and error.passing)

    def _deadline(self) -> Deadline:
        return Deadline(self._options.assignment_timeout_ms / 1000, clock=self._clock)

    def _claim_timeout(self, claims: Claims, stream: Stream) -> ClaimTimeout:
        waiting = ", ".join(
            f"{partition} {' '.join(str(offsets) for offsets in stream.ranges[partition] if offsets.size)}"
            for partition in sorted(claims.waiting)
        )
        return ClaimTimeout(
            f"Plan {stream.logged} of stream {stream.name} waits for {waiting}. This driver does not own these partitions now, "
            f"and no member of group {self._options.group_id} has adopted them within {self._options.assignment_timeout_ms} ms "
            "(assignmentTimeout). A member that died keeps its partitions until its session times out. "
            f"`groupkafka describe --group {self._options.group_id}` shows the members. Restart the query: it continues with "
            "this plan, and no record is lost."
        )
