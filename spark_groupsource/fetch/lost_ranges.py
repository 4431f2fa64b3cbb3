"""Compares a range with the bounds of the partition's log, and reports lost offsets.

A gap between two records is not a loss, because compaction, transaction markers and aborted records leave gaps. Records below the
log start offset have been deleted (retention, delete-records). Records at or above the high watermark have been truncated (a
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
    """The range of offsets in a partition's log, from `low` (inclusive) to `high` (exclusive).

    Args:
        low: The log start offset.
        high: The high watermark, or the last stable offset under `read_committed`.
    """

    low: int
    high: int


@dataclass(frozen=True)
class LostRange:
    """Offsets from `start` (inclusive) to `end` (exclusive) that cannot be read, and the reason."""

    start: int
    end: int
    reason: str
    is_cut: bool = False
    """Whether the log was truncated, so that it may have different records at these offsets, now or later."""


def lost_ranges(start: int, end: int, bounds: LogBounds | None) -> list[LostRange]:
    """Return the lost parts of `[start, end)`, in offset order.

    Args:
        start: The first offset, inclusive.
        end: The end, exclusive.
        bounds: The bounds of the partition's log, or None if the partition does not exist.
    """
    if start >= end:
        return []
    if bounds is None:
        return [LostRange(start, end, "the topic or the partition no longer exists")]
    found = []
    if bounds.low > start:
        reason = f"the log starts at {bounds.low} (retention, delete-records, or a recreated topic)"
        found.append(LostRange(start, min(bounds.low, end), reason))
    if bounds.high < end:
        reason = f"the log ends at {bounds.high} (a recreated topic, or a log truncated by an unclean leader election)"
        # The part below the log start is already in the list.
        cut = LostRange(max(start, bounds.low, bounds.high), end, reason, is_cut=True)
        if cut.start < cut.end:
            found.append(cut)
    return found


def cut_off(start: int, end: int, at: int) -> LostRange:
    """Return `[start, end)` as a lost range, because the log now has different records there than when the range was planned.

    Args:
        start: The first offset, inclusive.
        end: The end, exclusive.
        at: The offset of such a record, or the offset at which the log was truncated.
    """
    reason = f"the log was truncated at {at} or below, and now has other records there (an unclean leader election, or a "
    return LostRange(start, end, reason + "restored disk)", is_cut=True)


def remaining(found: list[LostRange], start: int, end: int) -> tuple[int, int]:
    """Return the start and end of the part of `[start, end)` that is not lost.

    Args:
        found: The result of `lost_ranges`. Each lost range begins at the start of the range or extends to its end.
        start: The first offset, inclusive.
        end: The end, exclusive.
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
        fetch_range: The task's range.
        found: The lost ranges.
        fail: Whether to raise an error instead of logging a warning.

    Raises:
        DataLossError: Something is lost and `fail` is set.
    """
    if not found:
        return
    ranges = "; ".join(f"[{loss.start}, {loss.end}): {loss.reason}" for loss in found)
    text = f"Records in {fetch_range.topic}-{fetch_range.partition} are lost: offsets {ranges}."
    if fail:
        raise DataLossError(
            f"{text} The task's range is {fetch_range}. To continue with the rest of this range, set failOnDataLoss=false."
        )
    log.warning("%s The task's range is %s. Continuing with the rest of it, because failOnDataLoss=false.", text, fetch_range)
