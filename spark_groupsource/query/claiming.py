"""Claiming the ranges of a plan that is in Spark's offset log, and waiting for the next owners of partitions that have moved."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from spark_groupsource.errors import ClaimTimeout, TopicNotFound
from spark_groupsource.group.ledger import Claims, Ledger
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.options.model import Options
from spark_groupsource.partition import Ranges
from spark_groupsource.query.ledger_steps import LedgerSteps
from spark_groupsource.query.loss_watch import LossWatch
from spark_groupsource.query.membership import Membership
from spark_groupsource.query.unsubscribed import Unsubscribed, with_ranges


class Claiming:
    """Claims one plan after the other, as the member that this run is now. Used on the runner's main thread."""

    def __init__(self, membership: Membership, steps: LedgerSteps, loss_watch: LossWatch, options: Options) -> None:
        """Begin without a claim.

        Args:
            membership: this run's membership.
            steps: takes the ledger's steps.
            loss_watch: finds out which topics were deleted.
            options: the options of the source.
        """
        self._membership = membership
        self._steps = steps
        self._loss_watch = loss_watch
        self._options = options
        self._unsubscribed = Unsubscribed(options)

    def claim(self, stream: Stream) -> Ranges:
        """Claim the ranges of plan `stream.logged`, and return those that this stream reads.

        Raises:
            DataLossError: a topic of the plan was deleted, or created again, and `failOnDataLoss` is true.
            ClaimTimeout: a partition of a subscribed topic was not adopted by its next owner within `assignmentTimeout`.
        """
        stream = self._unsubscribed.without_refused(
            stream,
            lambda partitions: self._steps.carry_out(lambda ledger: ledger.commits_of(partitions)),
            owned=self._membership.joined.positions.keys(),
        )
        for _ in self._membership.deadline.attempts():
            claims = self._attempt(stream)
            if not claims.waiting:
                return claims.granted
        stream = self._unsubscribed.without_waiting(stream, claims.waiting)
        claims = self._attempt(stream)
        if not claims.waiting:
            return claims.granted
        waiting = with_ranges(stream, claims.waiting, most=len(claims.waiting))
        raise ClaimTimeout(
            f"Plan {stream.logged} of stream {stream.name} waits for {waiting}. This driver does not "
            f"own these partitions now, and no member of group {self._options.group_id} has adopted them within "
            f"{self._options.assignment_timeout_ms} ms (assignmentTimeout). A member that died keeps its partitions until its "
            f"session times out. `groupkafka describe --group {self._options.group_id}` shows the members. Restart the query: it "
            "continues with this plan, and no record is lost."
        )

    def _attempt(self, stream: Stream) -> Claims:
        """Claim what can be claimed now, without the ranges whose topic was deleted: nobody can adopt or read them."""
        deadline = self._membership.step_deadline()
        while True:
            losses = self._loss_watch.deleted_ranges(stream)
            self._steps.refuse_or_warn(losses)
            lost = {loss.partition for loss in losses}
            ranges = {partition: planned for partition, planned in stream.ranges.items() if partition not in lost}
            try:
                claim = partial(Ledger.claim, stream=replace(stream, ranges=ranges))
                return self._membership.joined.do(claim, deadline)
            except TopicNotFound as error:
                self._steps.give_up_deleted()
                deadline.pause_after(error)
