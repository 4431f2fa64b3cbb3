"""What a member needs from whoever keeps the records of its partitions."""

from __future__ import annotations

from typing import Protocol

from spark_groupsource.partition import TopicPartition


class RecordKeeper(Protocol):
    """Keeps the commit records of a member's partitions. `ledger.Ledger` is the one that queries use.

    The package handoff describes a partition's life, in which these methods are the steps. All are called on the consumer's
    thread. They must not raise errors that pass.
    """

    def acquired(self, partitions: frozenset[TopicPartition]) -> None:
        """Begin to adopt these: the group assigned them. Empty when only the generation changed."""

    def draining(self, partitions: frozenset[TopicPartition]) -> None:
        """Plan nothing new for these: the group has asked them back."""

    def in_flight(self, partitions: frozenset[TopicPartition]) -> bool:
        """Return whether a planned or claimed range of these is not yet confirmed."""

    def released(self, partitions: frozenset[TopicPartition]) -> None:
        """Forget these after a last commit: they are about to be given back."""

    def lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Forget these: another member may own them by now."""

    def close_reported(self) -> None:
        """Close the claims of a plan that is reported as durable. Called while `on_revoke` waits for ranges in flight."""

    def idle(self) -> None:
        """Close what is reported, adopt what the brokers have answered for, try again what failed. Called between polls."""
