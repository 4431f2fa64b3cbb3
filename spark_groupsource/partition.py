"""Defines values for a partition and a range of its offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

Value = TypeVar("Value")


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetRange(NamedTuple):
    """Offsets from `start` (inclusive) to `end` (exclusive)."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"

    @property
    def size(self) -> int:
        """The number of offsets in the range. Compacted and transactional topics have fewer records than offsets."""
        return self.end - self.start

    def overlap(self, other: OffsetRange) -> OffsetRange:
        """Return the offsets that are in both ranges, or an empty range if there are none."""
        start = max(self.start, other.start)
        return OffsetRange(start, max(start, min(self.end, other.end)))


Ranges: TypeAlias = "Mapping[TopicPartition, tuple[OffsetRange, ...]]"
"""Each partition's ranges, in ascending order and without overlaps."""


def with_offsets(by_partition: Ranges) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
    """Return only the partitions with at least one offset to read."""
    return {partition: ranges for partition, ranges in by_partition.items() if any(offsets.size for offsets in ranges)}


def listed(things: Iterable[object], most: int = 5) -> str:
    """Return the first `most` items as text, followed by how many more there are: `orders-3, orders-7 and 118 more`."""
    names = [str(thing) for thing in things]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def by_topic(values: Mapping[TopicPartition, Value]) -> dict[str, dict[str, Value]]:
    """Group values as Spark's offset JSON does: by topic, then by partition number, both in ascending order."""
    topics: dict[str, dict[str, Value]] = {}
    for partition in sorted(values):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = values[partition]
    return topics


def topics_of(partitions: Iterable[TopicPartition]) -> set[str]:
    """Return the names of the partitions' topics."""
    return {partition.topic for partition in partitions}
