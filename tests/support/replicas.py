"""Whether replicas have what their leaders have."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka.admin import TopicMetadata  # type: ignore[attr-defined]


def in_sync(topics: Iterable[TopicMetadata]) -> bool:
    """Return whether every replica of every partition of these topics is in sync."""
    return all(len(one.isrs) == len(one.replicas) for topic in topics for one in topic.partitions.values())
