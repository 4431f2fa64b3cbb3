"""What the next micro-batch reads: positions, end offsets and a limit in, ranges out. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from .partition import OffsetRange, TopicPartition


def plan(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], max_offsets: int | None = None
) -> dict[TopicPartition, OffsetRange]:
    """Plan one range for each partition of `positions`, an empty one where there is nothing to read.

    Args:
        positions: next offset to read of each owned partition (inclusive).
        ends: high watermark, or last stable offset, of each partition (exclusive). A partition without one, or with one
            that is not above its position, gets an empty range.
        max_offsets: at most about so many offsets in all (`maxOffsetsPerTrigger`); `None` for no limit. Shared out in
            proportion to lag; a share below one is rounded up, so that a partition with little lag is not starved and the
            sum may exceed the limit by less than the number of partitions (as Spark's KafkaMicroBatchStream does).
    """
    lags = lag(positions, ends)
    total = sum(lags.values())
    ranges = {}
    for partition, start in positions.items():
        size = lags[partition]
        if max_offsets is not None and size:
            # Integers throughout: a limit of Long.MAX_VALUE must not overflow or lose precision (SPARK-26718).
            share = max(1, max_offsets * size // total)
            size = min(size, share)
        ranges[partition] = OffsetRange(start, start + size)
    return ranges


def lag(positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Offsets between each position and its end; 0 where the end is unknown or not above it."""
    return {partition: max(0, ends.get(partition, start) - start) for partition, start in positions.items()}


def moved_back(positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetRange]:
    """Partitions whose end lies below the next offset to read, as [end, position): the log was cut, or made anew."""
    return {
        partition: OffsetRange(ends[partition], start)
        for partition, start in positions.items()
        if partition in ends and ends[partition] < start
    }
