"""Takes the ledger's steps for a query, also when records that should be read are no longer in Kafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from spark_groupsource.errors import TopicNotFound
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.handoff.losses import Cause, PartitionLoss, refuse
from spark_groupsource.options.model import Options
from spark_groupsource.query.loss_watch import LossWatch
from spark_groupsource.query.membership import Membership

T = TypeVar("T")


class LedgerSteps:
    """Takes steps as the member that this run is now. Used on the runner's main thread."""

    def __init__(self, membership: Membership, loss_watch: LossWatch, options: Options) -> None:
        """Begin before the first step, for which this run has to be a member.

        Args:
            membership: this run's membership.
            loss_watch: finds out which topics were deleted.
            options: the options of the source.
        """
        self._membership = membership
        self._loss_watch = loss_watch
        self._options = options

    def carry_out(self, step: Callable[[Ledger], T]) -> T:
        """Do a step of the ledger, and again after a topic was deleted that it would commit for.

        Raises:
            DataLossError: a topic was deleted, and `failOnDataLoss` is true.
            GroupKafkaError: see joined.Joined.do.
        """
        deadline = self._membership.step_deadline()
        while True:
            try:
                return self._membership.joined.do(step, deadline)
            except TopicNotFound as error:
                self.give_up_deleted()
                deadline.pause_after(error)

    def give_up_deleted(self) -> None:
        """Give up the partitions of deleted topics, after a commit for such a topic was refused.

        The coordinator may learn of a deletion before the broker that is asked about the topic. Then there is nothing to give up
        yet, and the same commit is refused again.

        Raises:
            DataLossError: a topic was deleted, and `failOnDataLoss` is true.
        """
        losses = self._loss_watch.just_deleted(self._membership.joined.once(Ledger.known))
        self.refuse_or_warn(losses)
        self._give_up(losses)

    def go_on(self, losses: Sequence[PartitionLoss]) -> None:
        """Continue behind what is lost, and give up the partitions of deleted topics.

        Raises:
            DataLossError: `failOnDataLoss` is true.
        """
        self.refuse_or_warn(losses)
        self.carry_out(lambda ledger: ledger.go_on(losses))

    def refuse_or_warn(self, losses: Sequence[PartitionLoss]) -> None:
        """End the query, or warn of each loss once.

        Raises:
            DataLossError: `failOnDataLoss` is true.
        """
        if losses and self._options.fail_on_data_loss:
            # The query commits on its way out, and no broker accepts a commit for a deleted topic.
            self._give_up(losses)
            refuse(losses)
        self._loss_watch.warn(losses)

    def _give_up(self, losses: Sequence[PartitionLoss]) -> None:
        deleted = [loss for loss in losses if loss.cause is Cause.DELETED]
        self._membership.joined.do(lambda ledger: ledger.go_on(deleted), self._membership.step_deadline())
