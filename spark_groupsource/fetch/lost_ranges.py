"""Which offsets of a range are gone, by the bounds of the partition's log; and how that is told.

A gap between two records is no loss: compaction, transaction markers and aborted records leave gaps. What is below the
log start offset was deleted (retention, delete-records), and what should be below the high watermark but is not was cut
off (a recreated topic, an unclean leader election).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from spark_groupsource.errors import DataLossError
from spark_groupsource.fetch.contract import FetchRange

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogBounds:
    """What a partition's leader has: offsets from `low` (inclusive) to `high` (exclusive).

    `low` is the log start offset; `high` the high watermark, or the last stable offset under `read_committed`.
    """

    low: int
    high: int


@dataclass(frozen=True)
class LostRange:
    """Offsets from `start` (inclusive) to `end` (exclusive) that cannot be read, and why."""

    start: int
    end: int
    why: str


def lost_ranges(start: int, end: int, bounds: LogBounds | None) -> list[LostRange]:
    """Return what is gone of `[start, end)`, in the order of offsets; `bounds` is None when there is no such partition."""
    if start >= end:
        return []
    if bounds is None:
        return [LostRange(start, end, "the topic or the partition does not exist (any more)")]
    found = []
    if bounds.low > start:
        why = f"the log starts at {bounds.low} (retention, delete-records, or a recreated topic)"
        found.append(LostRange(start, min(bounds.low, end), why))
    if bounds.high < end:
        why = f"the log ends at {bounds.high} (a recreated topic, or records cut off by an unclean leader election)"
        # What lies below the log start has been counted already.
        cut = LostRange(max(start, bounds.low, bounds.high), end, why)
        if cut.start < cut.end:
            found.append(cut)
    return found


def remaining(found: list[LostRange], start: int, end: int) -> tuple[int, int]:
    """Return what is left of `[start, end)` after `lost_ranges` of it: losses are at the start or reach to the end."""
    for loss in found:
        if loss.start <= start:
            start = loss.end
        else:
            end = loss.start
    return start, end


def report(fetch_range: FetchRange, found: list[LostRange], fail: bool) -> None:
    """Raise DataLossError, or log a warning if `fail` is False, with the ranges that are gone; nothing for none."""
    if not found:
        return
    ranges = "; ".join(f"[{loss.start}, {loss.end}): {loss.why}" for loss in found)
    text = f"Records of {fetch_range.topic}-{fetch_range.partition} are gone, offsets {ranges}."
    if fail:
        raise DataLossError(
            f"{text} The task was to read {fetch_range}. To go on with what is left, set failOnDataLoss to false."
        )
    logger.warning("%s The task was to read %s; it goes on with what is left, as failOnDataLoss is false.", text, fetch_range)
