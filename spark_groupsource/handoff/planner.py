"""What the next micro-batch reads: positions, end offsets and a limit in, ranges out. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from spark_groupsource.partition import OffsetRange, Ranges, TopicPartition


def plan(
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    max_offsets: int | None = None,
    *,
    again: Ranges = MappingProxyType({}),
) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
    """Plan the ranges of each partition of `positions`: those to read again, then the one at its position, empty or not.

    Args:
        positions: next offset to read of each owned partition (inclusive).
        ends: high watermark, or last stable offset, of each partition (exclusive). A partition without one, or with one
            that is not above its position, gets an empty range.
        max_offsets: at most about so many offsets in all (`maxOffsetsPerTrigger`); `None` for no limit. Shared out in
            proportion to lag; a share below one is rounded up, so that a partition with little lag is not starved and the
            sum may exceed the limit by less than the number of partitions (as Spark's KafkaMicroBatchStream does).
        again: ranges below the positions that are to be read as well (`outstandingClaims`). They count as lag, and come
            first out of the partition's share: the last of them that still fits may be cut.
    """
    lags = lag(positions, ends)
    there = {
        partition: [
            *(held for one in again.get(partition, ()) if (held := one.overlap(OffsetRange(0, ends.get(partition, 0)))).size),
            OffsetRange(start, start + lags[partition]),
        ]
        for partition, start in positions.items()
    }
    sizes = {partition: sum(offsets.size for offsets in readable) for partition, readable in there.items()}
    total = sum(sizes.values())
    ranges = {}
    for partition, readable in there.items():
        share = sizes[partition]
        if max_offsets is not None and share:
            # Integers throughout: a limit of Long.MAX_VALUE must not overflow or lose precision (SPARK-26718).
            share = min(share, max(1, max_offsets * share // total))
        ranges[partition] = _first_offsets(readable, share)
    return ranges


def available(positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], again: Ranges) -> int:
    """How many offsets there are to plan, without a limit."""
    return sum(offsets.size for ranges in plan(positions, ends, again=again).values() for offsets in ranges)


def pieces(
    ranges: Sequence[tuple[TopicPartition, OffsetRange]], min_pieces: int | None = None, max_size: int | None = None
) -> list[tuple[TopicPartition, OffsetRange]]:
    """Cut ranges into pieces of almost equal sizes, in the order of their offsets; empty ranges are left out.

    Args:
        ranges: what is to be read.
        min_pieces: so many at least (`minPartitions`), unless there are fewer offsets; the largest are cut first.
        max_size: offsets in a piece, at most (`maxRecordsPerPartition`).
    """
    whole = [(partition, offsets) for partition, offsets in ranges if offsets.size]
    counts = [1 if max_size is None else -(-offsets.size // max_size) for _, offsets in whole]
    # The largest piece is on top.
    heap = [(-offsets.size / count, number) for number, ((_, offsets), count) in enumerate(zip(whole, counts, strict=True))]
    heapq.heapify(heap)
    for _ in range((min_pieces or 0) - sum(counts)):
        if not heap or heap[0][0] >= -1:
            break
        number = heap[0][1]
        counts[number] += 1
        heapq.heapreplace(heap, (-whole[number][1].size / counts[number], number))
    return [
        (partition, OffsetRange(offsets.start + offsets.size * cut // count, offsets.start + offsets.size * (cut + 1) // count))
        for (partition, offsets), count in zip(whole, counts, strict=True)
        for cut in range(count)
    ]


def _first_offsets(readable: Sequence[OffsetRange], count: int) -> tuple[OffsetRange, ...]:
    """So many offsets from the beginning of the ranges on; of these only the last may be empty, and is always there."""
    if len(readable) == 1:
        start = readable[0].start
        return (OffsetRange(start, start + count),)
    taken = []
    for offsets in readable:
        size = min(count, offsets.size)
        count -= size
        taken.append(OffsetRange(offsets.start, offsets.start + size))
    return (*(offsets for offsets in taken[:-1] if offsets.size), taken[-1])


def lag(positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Offsets between each position and its end; 0 where the end is unknown or not above it."""
    return {partition: max(0, ends.get(partition, start) - start) for partition, start in positions.items()}
