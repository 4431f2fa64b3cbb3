"""Converts the user's start and end positions to offsets in the current logs.

The rules are the same as in Spark's Kafka source. A position that names partitions must name all of them. If a partition has no
record at or after the given time, this is either an error or means the end of the partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from spark_groupsource.errors import OptionError
from spark_groupsource.handoff.plan_offset import AT_END, FromTime, Start, Starts
from spark_groupsource.options.values import EARLIEST, LATEST
from spark_groupsource.partition import TopicPartition, listed


@dataclass(frozen=True)
class ByOffset:
    """A position given as an offset for each partition, where -2 means the earliest offset and -1 the end."""

    option: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class ByTime:
    """A position given as a time in ms since 1970, for all partitions or for each: the first record at or after this time."""

    option: str
    times: int | Mapping[TopicPartition, int]
    or_latest: bool
    """Whether a partition with no record at or after the time starts, or ends, at its end. If not, it is an error."""


Position = Literal["earliest", "latest"] | ByOffset | ByTime


class OffsetLookup(Protocol):
    """Asks the brokers for offsets. The results leave out partitions whose leaders do not answer."""

    def starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition (inclusive)."""

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each partition (exclusive)."""

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the offset of each partition's first record at or after its time (ms since 1970), or `None` if there is none."""


def offsets_at(position: Position, partitions: Collection[TopicPartition], logs: OffsetLookup) -> dict[TopicPartition, int]:
    """Return the offset that a position stands for in each partition.

    Args:
        position: Where to start or end.
        partitions: The partitions to look up.
        logs: Asks the brokers.

    Returns:
        The offsets, leaving out partitions whose leaders do not answer.

    Raises:
        OptionError: The position leaves out one of these partitions, or a partition has no record at or after its time.
        BrokerError: The brokers refuse the request; see brokers.topics.Topics.
    """
    starts = named_starts(position, partitions)
    if isinstance(position, str):
        found = found_out(starts, logs, or_latest=True)
    else:
        if unnamed := sorted(partition for partition, start in starts.items() if start is None):
            raise OptionError(
                f"{position.option} does not name {listed(unnamed, _MOST_NAMED)}, but it must name every partition of the "
                f"subscribed topics. As an offset, {LATEST} means latest and {EARLIEST} earliest."
            )
        found = found_out(starts, logs, or_latest=not isinstance(position, ByTime) or position.or_latest)
        times = {partition: start.time for partition, start in starts.items() if isinstance(start, FromTime)}
        if without := {partition: times[partition] for partition, offset in found.items() if offset is None}:
            raise no_record(position.option, without)
    offsets = {partition: offset for partition, offset in found.items() if offset is not None}
    return offsets | logs.starts([partition for partition in partitions if partition not in starts])


def named_starts(position: Position, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Start]:
    """Return, without asking a broker, the starts of all partitions that are not read from the beginning.

    Args:
        position: Where a stream starts.
        partitions: The stream's initial partitions.

    Returns:
        An offset, `AT_END` or a time for each partition, or `None` if the position does not name the partition.
    """
    match position:
        case "earliest":
            return {}
        case "latest":
            return dict.fromkeys(partitions, AT_END)
        case ByOffset(_, named):
            return {partition: named.get(partition) for partition in partitions if named.get(partition) != EARLIEST}
        case ByTime(_, times):
            if isinstance(times, int):
                return dict.fromkeys(partitions, FromTime(times))
            return {partition: FromTime(times[partition]) if partition in times else None for partition in partitions}


def found_out(starts: Starts, logs: OffsetLookup, *, or_latest: bool) -> dict[TopicPartition, int | None]:
    """Convert starts to offsets in the current logs.

    Args:
        starts: Offsets, ends and times.
        logs: Asks the brokers.
        or_latest: Whether a partition without a record at or after its time starts at its end.

    Returns:
        The offsets, leaving out partitions whose leaders do not answer. `None` for a partition without such a record, unless
        `or_latest` is set.

    Raises:
        BrokerError: The brokers refuse the request; see brokers.topics.Topics.
    """
    known: dict[TopicPartition, int | None] = {
        partition: start for partition, start in starts.items() if isinstance(start, int) and start != AT_END
    }
    times = {partition: start.time for partition, start in starts.items() if isinstance(start, FromTime)}
    found = logs.at_times(times) if times else {}
    at_end = [partition for partition, start in starts.items() if start == AT_END]
    if or_latest:
        at_end += (partition for partition, offset in found.items() if offset is None)
        found = {partition: offset for partition, offset in found.items() if offset is not None}
    return known | found | (logs.ends(at_end) if at_end else {})


def refuse_unknown(position: Position, existing: Collection[TopicPartition]) -> None:
    """Refuse a position that names a nonexistent partition.

    Args:
        position: Where to start or end.
        existing: All partitions of the subscribed topics.

    Raises:
        OptionError: The position names a partition that is not in `existing`.
    """
    match position:
        case ByOffset(option, written) | ByTime(option, Mapping() as written):
            unknown = sorted(written.keys() - set(existing))
        case _:
            return
    if unknown:
        raise OptionError(
            f"{option} names partitions that do not exist: {listed(unknown, _MOST_NAMED)}. "
            f"The subscribed partitions are: {listed(sorted(existing), _MOST_NAMED) or 'none'}."
        )


def start_after_end(start: Position | Literal["committed"], end: Position) -> Iterator[str]:
    """Yield a problem if start and end name different partitions, and for each partition whose start is above its end."""
    match start, end:
        case (ByOffset(starting, starts), ByOffset(ending, ends)) | (
            ByTime(starting, Mapping() as starts),
            ByTime(ending, Mapping() as ends),
        ):
            if different := sorted(starts.keys() ^ ends.keys()):
                named_once = ", ".join(map(str, different))
                yield f"{starting} and {ending} must name the same partitions. Only one of them names {named_once}."
            for partition in sorted(starts.keys() & ends.keys()):
                if starts[partition] > ends[partition] >= 0:
                    mistake = f"{starting} ({starts[partition]}) is above {ending} ({ends[partition]})"
                    yield f"{partition}: {mistake}. Lower the start or raise the end."


def no_record(option: str, without: Mapping[TopicPartition, int]) -> OptionError:
    """Return the error for partitions without a record at or after their times.

    Args:
        option: The option that sets the times.
        without: The partitions, each with its time in ms since 1970.
    """
    places = listed((f"{partition} at or after {without[partition]}" for partition in sorted(without)), _MOST_NAMED)
    return OptionError(
        f"{option}: there is no record in {places} (ms since 1970). Set an earlier time, or "
        "startingOffsetsByTimestampStrategy=latest to start such partitions at their next record."
    )


_MOST_NAMED = 10
"""The maximum number of partitions that a message lists."""
