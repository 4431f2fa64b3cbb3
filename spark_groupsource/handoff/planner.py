"""Chooses the ranges of the next micro-batch from positions, ends and a limit, and divides ranges into tasks. Pure."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, NamedTuple

from pydantic import Field

from spark_groupsource.partition import OffsetRange, Ranges, TopicPartition

Piece = tuple[TopicPartition, OffsetRange]
"""A range, or a part of one."""

LEAST_TASKS = (4, 16)
"""The lowest and the highest value for the minimum number of tasks. Sharing never leaves fewer tasks than the minimum, because
cores would be idle. The number of offsets decides where the minimum lies between the two."""

LEAST_OFFSETS = 100
"""Within the bounds of LEAST_TASKS, there is one task for this many offsets. A task costs about 7 ms, most of it in the driver,
and twice that on busy cores, which is as much as 100 records that take 0.1 ms each."""

MOST_SHARED_OFFSETS = 2_000
"""The maximum number of offsets in a shared task. Reading this many takes a few ms, so a task's fixed cost hardly matters."""

SMALL_OFFSETS = 500
"""The maximum number of offsets in a range that may share a task. A longer range gets its own task."""


class Sharing(NamedTuple):
    """The limits within which small ranges share a task."""

    least: Annotated[int, Field(ge=1)]
    """The minimum number of tasks. Sharing never leaves fewer."""
    most: Annotated[int, Field(ge=1)]
    """The maximum number of offsets in a shared task."""
    small: Annotated[int, Field(ge=1)]
    """The maximum number of offsets in a range that may share a task."""


def plan(
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    max_offsets: int | None = None,
    *,
    min_offsets: int = 0,
    reread: Ranges = MappingProxyType({}),
) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
    """Return the ranges to read in each owned partition: those to reread, then the one at the position, which may be empty.

    Return no ranges at all while fewer than `min_offsets` offsets could be planned.

    Args:
        positions: The next offset to read in each owned partition (inclusive).
        ends: Each partition's high watermark or last stable offset (exclusive). A partition without an end above its position
            gets an empty range.
        max_offsets: The approximate maximum number of offsets to plan (`maxOffsetsPerTrigger`). `None` for no limit. The limit
            is divided in proportion to lag. A share below one is rounded up, so that a partition with little lag is not starved.
            The sum may exceed the limit by less than the number of partitions, as in Spark's KafkaMicroBatchStream.
        min_offsets: How many offsets to wait for (`minOffsetsPerTrigger`). Ranges to reread count.
        reread: Ranges below the positions that are read again (`heldClaims`). They count as lag and come first. Each is read
            completely, because it was part of a single micro-batch before. A partition reads at least one of them, and as many as
            fit into its share.
    """
    lags = lag(positions, ends)
    readable_of = {
        partition: [
            *(offsets for offsets in reread.get(partition, ()) if offsets.end <= ends.get(partition, 0)),
            OffsetRange(start, start + lags[partition]),
        ]
        for partition, start in positions.items()
    }
    sizes = {partition: sum(offsets.size for offsets in readable) for partition, readable in readable_of.items()}
    total = sum(sizes.values())
    if total < min_offsets:
        return {}
    planned = {}
    for partition, readable in readable_of.items():
        share = sizes[partition]
        if max_offsets is not None and share:
            # Use only integers, so that a limit of Long.MAX_VALUE does not overflow or lose precision (SPARK-26718).
            share = min(share, max(1, max_offsets * share // total))
        planned[partition] = _first_offsets(readable, share)
    return planned


def pieces(
    ranges: Sequence[tuple[TopicPartition, OffsetRange]], min_pieces: int | None = None, max_size: int | None = None
) -> list[tuple[TopicPartition, OffsetRange]]:
    """Cut ranges into pieces of almost equal size, in offset order. Empty ranges are left out.

    Args:
        ranges: The ranges to read.
        min_pieces: The minimum number of pieces (`minPartitions`), unless there are fewer offsets. The largest are cut first.
        max_size: The maximum number of offsets in a piece (`maxRecordsPerPartition`).
    """
    whole = [(partition, offsets) for partition, offsets in ranges if offsets.size]
    counts = [1 if max_size is None else -(-offsets.size // max_size) for _, offsets in whole]
    # The top of the heap is the range with the largest pieces.
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


def rule_of_sharing(ranges: Sequence[Piece], min_pieces: int | None = None, max_size: int | None = None) -> Sharing | None:
    """Return the limits within which these ranges share tasks, or `None` if no ranges would share one.

    Args:
        ranges: See `tasks`.
        min_pieces: See `tasks`.
        max_size: See `tasks`.
    """
    fewest, most = LEAST_TASKS
    least = min(most, max(fewest, -(-sum(offsets.size for _, offsets in ranges) // LEAST_OFFSETS)))
    rule = Sharing(max(least, min_pieces or 0), MOST_SHARED_OFFSETS, SMALL_OFFSETS)
    return rule if any(len(task) > 1 for task in tasks(ranges, min_pieces, max_size, rule)) else None


def tasks(
    ranges: Sequence[Piece],
    min_pieces: int | None = None,
    max_size: int | None = None,
    sharing: Sharing | None = None,
) -> list[tuple[Piece, ...]]:
    """Cut ranges into pieces, and put small pieces into shared tasks. A shared task has at most one piece per partition.

    Which pieces share a task does not depend on the order of the ranges. If tasks are shared, the tasks and the pieces in each
    task are in partition order.

    Args:
        ranges: The ranges to read.
        min_pieces: The minimum number of tasks (`minPartitions`), unless there are fewer offsets.
        max_size: The maximum number of offsets in a task (`maxRecordsPerPartition`).
        sharing: The limits within which pieces share a task. `None` if they never do.
    """
    if sharing is None:
        return [(piece,) for piece in pieces(ranges, min_pieces, max_size)]
    cut = pieces(sorted(ranges), min_pieces, max_size)
    pieces_of = Counter(partition for partition, _ in cut)
    small: list[Piece] = []
    alone: list[Piece] = []
    for piece in cut:
        (small if piece[1].size <= sharing.small and pieces_of[piece[0]] == 1 else alone).append(piece)
    least = max(1, sharing.least - len(alone))
    if len(small) <= least:
        return [(piece,) for piece in cut]
    most = sharing.most if max_size is None else min(sharing.most, max_size)
    return sorted([*((piece,) for piece in alone), *_packed(small, least, most)])


def granted_part(task: Sequence[Piece], granted: Ranges) -> tuple[Piece, ...]:
    """Return the parts of a task's pieces that the task may read, if any.

    A task without granted parts is kept, so that every task keeps its number, by which a sink recognizes it in a replay.

    Args:
        task: One of `tasks`, made from all of the plan's ranges.
        granted: The plan's ranges, or parts of them, that this stream reads.
    """
    return tuple(
        (partition, part)
        for partition, offsets in task
        for readable in granted.get(partition, ())
        if (part := offsets.overlap(readable)).size
    )


def _packed(small: Sequence[Piece], least: int, most: int) -> list[tuple[Piece, ...]]:
    """Distribute the pieces over at least `least` bins of almost equal size, with at most `most` offsets in a shared bin.

    Starting with the largest, each piece goes into the bin with the fewest offsets. A piece that does not fit there fits nowhere.

    Args:
        small: The pieces, in order.
        least: The minimum number of bins, unless there are fewer pieces.
        most: The maximum number of offsets in a bin.
    """
    count = max(least, -(-sum(offsets.size for _, offsets in small) // most))
    bins: list[list[Piece]] = [[] for _ in range(min(count, len(small)))]
    heap = [(0, number) for number in range(len(bins))]
    # The sort is stable, so pieces of the same size keep their order.
    for piece in sorted(small, key=lambda piece: piece[1].size, reverse=True):
        size = piece[1].size
        load, number = heap[0]
        if load and load + size > most:
            heapq.heappush(heap, (size, len(bins)))
            bins.append([piece])
        else:
            bins[number].append(piece)
            heapq.heapreplace(heap, (load + size, number))
    return [tuple(sorted(pieces_of_task)) for pieces_of_task in bins]


def _first_offsets(readable: Sequence[OffsetRange], count: int) -> tuple[OffsetRange, ...]:
    """Return the first ranges, up to `count` offsets. The last range is always included. Only this one may be shortened."""
    *reread, unread = readable
    taken: list[OffsetRange] = []
    for offsets in reread:
        if taken and offsets.size > count:
            count = 0
            break
        taken.append(offsets)
        count = max(0, count - offsets.size)
    return (*taken, OffsetRange(unread.start, unread.start + min(count, unread.size)))


def lag(positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the number of offsets between each position and its end: 0 if the end is unknown or not above it."""
    return {partition: max(0, ends.get(partition, start) - start) for partition, start in positions.items()}
