"""Reports that a plan is in Spark's commit log: what one driver was told, and what it has to make of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit
from spark_groupsource.partition import TopicPartition
from tests.simulation.account import Violation
from tests.simulation.twins import twin_of

PlanOf = tuple[str, int]
"""A stream and the number of one of its plans."""


@dataclass
class Reports:
    """The reports that reached one driver's ledger. The newest takes the place of the one before."""

    claimed: PlanOf | None = None
    """The newest plan, from the time that all its claims are made until Spark itself says that it is durable."""
    newest: PlanOf | None = None
    """The newest report since the last claims were made."""
    waits: bool = False
    """Whether one has come since the consumer's thread last looked."""

    def clone(self) -> Reports:
        """An independent copy."""
        return twin_of(self)

    def come(self, stream: str, plan: int) -> None:
        """A report comes."""
        self.newest, self.waits = (stream, plan), True

    def claims_made(self, stream: str, plan: int) -> None:
        """All claims of this plan are made. What came before them is not believed."""
        self.claimed, self.newest = (stream, plan), None

    @property
    def believed(self) -> PlanOf | None:
        """The plan whose claims have to be closed when the consumer's thread looks."""
        return self.claimed if self.claimed == self.newest else None

    def key(self) -> tuple[object, ...]:
        """Equal for drivers that were told the same."""
        return (self.claimed, self.newest, self.waits)


def check_closed(durable: PlanOf, commits: Mapping[TopicPartition, GroupCommit], *, owed_too: bool = True) -> None:
    """A report was believed and nothing failed: in the driver's own records nothing of the plan may be held any more.

    Args:
        durable: What was reported.
        commits: What the group holds for partitions that the driver has adopted.
        owed_too: Whether this is also true of ranges that are owed to the driver's own stream.
    """
    stream, plan = durable
    for where, record in commits.items():
        if not isinstance(record, CommitRecord) or record.stream != stream:
            continue
        own = [entry for entry in record.owed if entry.stream == stream and entry.plan <= plan]
        if (record.open and record.logged <= plan) or (owed_too and own):
            raise Violation("not closed", f"{where}: plan {plan} was reported as durable: {record.metadata()}")
