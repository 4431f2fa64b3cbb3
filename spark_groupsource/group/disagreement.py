"""Whether the coordinator and this member disagree about its partitions, and for how long. Pure.

Under KIP-848 the coordinator says only once, in the answer to a heartbeat, which partitions a member has to give back or may
take. If that answer is lost, librdkafka does not ask again (docs/design.md), and the two disagree until the member is expelled.

A rebalance that goes on is no disagreement. What is assigned to a member and stays so is what it may have: nothing that another
member has to give back first. What it has and is not to have, it gives back when it learns of that. So the two differ only while
an answer is under way, or while this member drains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from spark_groupsource.brokers.group_view import GroupMember
from spark_groupsource.group.assignment import Assignment
from spark_groupsource.partition import TopicPartition

DISAGREES_S = 20.0
"""How long the coordinator and a member may disagree about its partitions. Its next heartbeat should end that, and brokers want
one at least every 15 s (`group.consumer.max.heartbeat.interval.ms`)."""


def kept(own: Assignment, member: GroupMember) -> frozenset[TopicPartition]:
    """Return what the member has and is not to have: a revocation was forgotten, or is under way."""
    return own.partitions - (member.target or frozenset())


def missing(own: Assignment, member: GroupMember) -> frozenset[TopicPartition]:
    """Return what is assigned to the member and stays so, and it does not have: a gain was forgotten, or is under way."""
    return (member.partitions & (member.target or frozenset())) - own.partitions


@dataclass(frozen=True)
class Disagreement:
    """In which partitions the two disagree, and since when. Never edited: `after` returns the next one."""

    since: Mapping[TopicPartition, float] = field(default_factory=lambda: MappingProxyType({}))
    """When each of these partitions was first found with one of the two and not with the other."""
    mended: int = 0
    """How often the member has joined again for it. Each time in a row takes twice the patience, if that does not help."""

    @property
    def patience_s(self) -> float:
        """How long the two have to disagree before the member joins again."""
        return DISAGREES_S * float(2**self.mended)

    def after(self, own: Assignment, member: GroupMember | None, now: float) -> Disagreement:
        """Return what is known after one more answer of the coordinator.

        Args:
            own: what this member has, before the question and after the answer alike.
            member: this member by the coordinator's word. `None` if the group does not have it, which librdkafka notices by
                itself.
            now: seconds, monotonic.
        """
        if member is None or member.target is None or own.draining:
            return Disagreement(mended=self.mended)
        differing = kept(own, member) | missing(own, member)
        if not differing:
            return Disagreement()
        since = {partition: self.since.get(partition, now) for partition in differing}
        return Disagreement(MappingProxyType(since), self.mended)

    def lasting(self, now: float) -> frozenset[TopicPartition]:
        """Return the partitions in which the two have disagreed for longer than a rebalance may take."""
        return frozenset(partition for partition, since in self.since.items() if now - since >= self.patience_s)

    def mend(self) -> Disagreement:
        """Return what is known when the member joins again for it."""
        return Disagreement(mended=self.mended + 1)
