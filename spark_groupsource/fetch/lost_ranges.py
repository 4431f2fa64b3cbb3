"""Which offsets of a range are lost, by the bounds of the partition's log, and how that is reported.

A gap between two records is no loss: compaction, transaction markers and aborted records leave gaps. Records below the log start
offset were deleted (retention, delete-records). Records that should be below the high watermark and are not were cut off (a
recreated topic, an unclean leader election).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from spark_groupsource.errors import DataLossError
from spark_groupsource.fetch.contract import FetchRange

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogBounds:
    """The offsets that a partition's leader has, from `low` (inclusive) to `high` (exclusive).

    Args:
        low: The log start offset.
        high: The high watermark, or the last stable offset under `read_committed`.
    """

    low: int
    high: int


@dataclass(frozen=True)
class LostRange:
    """Offsets from `start` (inclusive) to `end` (exclusive) that cannot be read, and why."""

    start: int
    end: int
    why: str
    is_cut: bool = False
    """Whether the log was cut off, so that other records may stand there, now or later."""


def lost_ranges(start: int, end: int, bounds: LogBounds | None) -> list[LostRange]:
    """Return the lost parts of `[start, end)`, in the order of offsets.

    Args:
        start: The first offset, inclusive.
        end: The last offset, exclusive.
        bounds: The bounds of the partition's log, None if there is no such partition.
    """
    if start >= end:
        return []
    if bounds is None:
        return [LostRange(start, end, "the topic or the partition does not exist any more")]
    found = []
    if bounds.low > start:
        why = f"the log starts at {bounds.low} (retention, delete-records, or a recreated topic)"
        found.append(LostRange(start, min(bounds.low, end), why))
    if bounds.high < end:
        why = f"the log ends at {bounds.high} (a recreated topic, or records cut off by an unclean leader election)"
        # The part below the log start has been counted already.
        cut = LostRange(max(start, bounds.low, bounds.high), end, why, is_cut=True)
        if cut.start < cut.end:
            found.append(cut)
    return found


def cut_off(start: int, end: int, at: int) -> LostRange:
    """Return what is lost of the range `[start, end)` when other records stand there than those that were planned.

    Args:
        start: The first offset, inclusive.
        end: The last offset, exclusive.
        at: The offset of such a record, or where the log was cut off.
    """
    why = f"the log was cut off at {at} or below, and has other records there since (an unclean leader election, or a "
    return LostRange(start, end, why + "restored disk)", is_cut=True)


def remaining(found: list[LostRange], start: int, end: int) -> tuple[int, int]:
    """Return the rest of `[start, end)` without its lost ranges, as its start and its end.

    Args:
        found: The result of `lost_ranges`: each is at the start of the range, or reaches to its end.
        start: The first offset, inclusive.
        end: The last offset, exclusive.
    """
    for loss in found:
        if loss.start <= start:
            start = loss.end
        else:
            end = loss.start
    return start, end


def report(fetch_range: FetchRange, found: list[LostRange], fail: bool) -> None:
    """Report the lost ranges, if there are any.

    Args:
        fetch_range: What the task was to read.
        found: The lost ranges.
        fail: True: raise an error. False: log a warning.

    Raises:
        DataLossError: Something is lost and `fail` is set.
    """
    if not found:
        return
    ranges = "; ".join(f"[{loss.start}, {loss.end}): {loss.why}" for loss in found)
    text = f"Records of {fetch_range.topic}-{fetch_range.partition} are lost, offsets {ranges}."
    if fail:
        raise DataLossError(f"{text} The task was to read {fetch_range}. To continue with the rest, set failOnDataLoss to false.")
    log.warning("%s The task was to read %s. It continues with the rest, because failOnDataLoss is false.", text, fetch_range)
