"""Measures how many of each partition's offsets are hidden from `read_committed` consumers by open transactions."""

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
    """A subscription that matches no topic."""

    subscribe: tuple[str, ...] = ()

    def matches(self, topic: str) -> bool:  # noqa: ARG002 -- no topic does
        return False


NO_SUBSCRIPTION = _NoSubscription()
"""The subscription for commands that look up topics by name."""


class Visibility(NamedTuple):
    """How much of a partition is visible and how much is hidden. An offset is `None` if the leader did not return it."""

    partition: TopicPartition
    stable: int | None
    """The last stable offset (exclusive), up to which `read_committed` consumers can read."""
    end: int | None
    """The high watermark (exclusive)."""

    @property
    def hidden(self) -> int | None:
        """How many offsets have been written but are not visible yet, or `None` if unknown."""
        return None if self.stable is None or self.end is None else max(0, self.end - self.stable)


def visibility_of(settings: Mapping[str, str], topic: str) -> list[Visibility]:
    """Return how much of each of a topic's partitions is visible to `read_committed` consumers.

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
    """Return how much of each partition is visible, sorted by partition.

    Args:
        uncommitted: The brokers' topics, with high watermarks as ends.
        committed: The brokers' topics, with last stable offsets as ends.
        partitions: The partitions.

    Raises:
        NotAuthorized: The user may not describe a topic.
        AuthenticationFailed: The brokers refuse the login.
    """
    # Ask for the ends first. Otherwise a record written between the two requests would seem to be in an open transaction.
    ends = all_ends(uncommitted, partitions)
    stable = all_ends(committed, partitions)
    return [Visibility(partition, stable.get(partition), ends.get(partition)) for partition in sorted(set(partitions))]


def all_ends(topics: Topics, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return each partition's end (exclusive), leaving out partitions whose leader does not answer within CHECK_STEP_S.

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
