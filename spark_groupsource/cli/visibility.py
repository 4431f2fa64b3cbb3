"""How much of each partition readers of committed records do not see yet: what comes after the first open transaction in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from spark_groupsource.brokers.topics import Topics
from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Deadline
from spark_groupsource.timeouts import CHECK_STEP_S


@dataclass(frozen=True)
class _NoSubscription:
    """Topics are looked up by name."""

    subscribe: tuple[str, ...] = ()

    def matches(self, topic: str) -> bool:  # noqa: ARG002 -- no topic does
        return False


NO_SUBSCRIPTION = _NoSubscription()
"""Of a command that reads no topic."""


class Visibility(NamedTuple):
    """One partition. `None` is what its leader did not say."""

    partition: TopicPartition
    stable: int | None
    """The last stable offset (exclusive): readers of committed records get no further."""
    end: int | None
    """The high watermark (exclusive)."""

    @property
    def hidden(self) -> int | None:
        """Number of offsets that are written and not visible yet."""
        return None if self.stable is None or self.end is None else max(0, self.end - self.stable)


def visibility_of(settings: Mapping[str, str], topic: str) -> list[Visibility]:
    """Return how much of each partition of a topic is visible to readers of committed records.

    Raises:
        TopicNotFound: The topic does not exist.
        NotAuthorized: The user may not describe it.
        BrokerError: The brokers do not answer, or refuse the login.
    """
    uncommitted, committed = (
        Topics(settings, NO_SUBSCRIPTION, read_committed=read_committed, patience_s=CHECK_STEP_S)
        for read_committed in (False, True)
    )
    found = uncommitted.describe([topic])[topic]
    if isinstance(found, GroupKafkaError):
        raise found
    return visibility(uncommitted, committed, found.partitions)


def visibility(uncommitted: Topics, committed: Topics, partitions: Collection[TopicPartition]) -> list[Visibility]:
    """Return how much of each partition is visible, sorted.

    Args:
        uncommitted: The brokers, asked for high watermarks.
        committed: The same, asked for last stable offsets.
        partitions: The partitions.

    Raises:
        NotAuthorized: The user may not describe a topic.
        AuthenticationFailed: The brokers refuse the login.
    """
    # In this order: a record that is written between the two requests is not taken for one of an open transaction.
    ends = all_ends(uncommitted, partitions)
    stable = all_ends(committed, partitions)
    return [Visibility(partition, stable.get(partition), ends.get(partition)) for partition in sorted(set(partitions))]


def all_ends(topics: Topics, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the end of each partition (exclusive). Leaders that do not answer within CHECK_STEP_S are left out.

    Raises:
        NotAuthorized: The user may not describe a topic.
        AuthenticationFailed: The brokers refuse the login.
    """
    topics = topics.without_patience()
    ends: dict[TopicPartition, int] = {}
    for _ in Deadline(CHECK_STEP_S).attempts():
        ends |= topics.ends([partition for partition in partitions if partition not in ends])
        if len(ends) == len(set(partitions)):
            break
    return ends
