"""A query as a member of its group: its ledger's steps are done on the consumer's thread, and tried again.

`joining.Joining` makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from spark_groupsource.errors import GroupKafkaError, MemberUnknown
from spark_groupsource.group.assignment import Assignment
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.group.member import Member
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Deadline

T = TypeVar("T")


class Joined:
    """One membership of one stream, from its first assignment until the query ends."""

    def __init__(self, member: Member, ledger: Ledger) -> None:
        """Take over a member that has its first assignment.

        Args:
            member: a member that has its first assignment.
            ledger: the records of its partitions.
        """
        self._member = member
        self._ledger = ledger

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

    # Called on the runner's main thread.

    def once(self, step: Callable[[Ledger], T]) -> T:
        """Do a step of the ledger on the consumer's thread.

        Raises:
            GroupKafkaError: what the step raises, or what has ended the member.
        """
        return self._member.call(lambda: step(self._ledger))

    def do(self, step: Callable[[Ledger], T], deadline: Deadline) -> T:
        """Do a step of the ledger on the consumer's thread, and again while a passing error or a rebalance forbids it.

        Args:
            step: the step, which may be done again.
            deadline: until when it is tried.

        Raises:
            GroupKafkaError: an error that does not pass, or the last one before the deadline; or at once the error that ended
                the member.
        """
        while True:
            try:
                return self.once(step)
            except GroupKafkaError as error:
                if not self._passes(error):
                    raise
                deadline.pause_after(error)

    def _passes(self, error: GroupKafkaError) -> bool:
        # What has ended the member is raised by every later step, also if it is an error that passes.
        return error is not self._member.failure and (error.passing or isinstance(error, MemberUnknown))
