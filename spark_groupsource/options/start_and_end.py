"""Where to start and where to end: what the user wrote, and the offsets that it means in the logs as they are now.

The rules are those of Spark's Kafka source: an offset or a time that is given by partition has to be given for every partition,
and a time at which a partition has no record is an error, or means its end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from spark_groupsource.errors import OptionError
from spark_groupsource.options.values import EARLIEST, LATEST
from spark_groupsource.partition import TopicPartition


@dataclass(frozen=True)
class ByOffset:
    """An offset of each partition; -2 is the earliest and -1 the latest (the end)."""

    option: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class ByTime:
    """The first record of each partition that is not older than a time in ms since 1970: one for all, or one for each."""

    option: str
    times: int | Mapping[TopicPartition, int]
    or_latest: bool
    """Whether a partition without such a record is taken at its end; otherwise that is an error."""


Position = Literal["earliest", "latest"] | ByOffset | ByTime


class OffsetLookup(Protocol):
    """The brokers, as they tell offsets; a partition whose leader cannot tell now is left out."""

    def starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offset of each partition (inclusive)."""

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each partition (exclusive)."""

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose record is not older than so many ms since 1970; `None` when there is no such record."""


def offsets_at(position: Position, partitions: Collection[TopicPartition], logs: OffsetLookup) -> dict[TopicPartition, int]:
    """The offset of each partition that the position means; of those only whose leaders can tell now.

    Raises:
        OptionError: the position does not say where in one of these partitions, or there is no record at its time.
        BrokerError: see topics.Topics.
    """
    match position:
        case "earliest":
            return logs.starts(partitions)
        case "latest":
            return logs.ends(partitions)
        case ByOffset(option, named):
            _require_named(option, partitions, named)
            written = {partition: named[partition] for partition in partitions}
            earliest = logs.starts([partition for partition, offset in written.items() if offset == EARLIEST])
            latest = logs.ends([partition for partition, offset in written.items() if offset == LATEST])
            return {partition: offset for partition, offset in written.items() if offset >= 0} | earliest | latest
        case ByTime(option, times, or_latest):
            if not isinstance(times, int):
                _require_named(option, partitions, times)
            asked = {partition: times if isinstance(times, int) else times[partition] for partition in partitions}
            found = logs.at_times(asked)
            without = [partition for partition, offset in found.items() if offset is None]
            if without and not or_latest:
                raise _no_record(option, without, asked)
            return {partition: offset for partition, offset in found.items() if offset is not None} | logs.ends(without)


def refuse_unknown(position: Position, there: Collection[TopicPartition]) -> None:
    """Refuse a position that names partitions which do not exist.

    Raises:
        OptionError: it does.
    """
    match position:
        case ByOffset(option, written) | ByTime(option, Mapping() as written):
            unknown = sorted(written.keys() - set(there))
        case _:
            return
    if unknown:
        raise OptionError(
            f"{option} names partitions that do not exist: {_names(unknown)}. There are {_names(sorted(there)) or 'none'}."
        )


def start_after_end(start: Position | Literal["committed"], end: Position) -> Iterator[str]:
    """Starts and ends that are both given by partition, for different ones, or the wrong way round."""
    match start, end:
        case (ByOffset(starting, starts), ByOffset(ending, ends)) | (
            ByTime(starting, Mapping() as starts),
            ByTime(ending, Mapping() as ends),
        ):
            if different := sorted(starts.keys() ^ ends.keys()):
                yield f"{starting} and {ending} name different partitions; in one of them only: {', '.join(map(str, different))}."
            for partition in sorted(starts.keys() & ends.keys()):
                if starts[partition] > ends[partition] >= 0:
                    yield f"{partition}: {starting} ({starts[partition]}) is above {ending} ({ends[partition]})."


def _require_named(option: str, partitions: Collection[TopicPartition], named: Collection[TopicPartition]) -> None:
    missing = sorted(set(partitions) - set(named))
    if missing:
        raise OptionError(
            f"{option} says nothing of {_names(missing)}: it has to name every partition of the subscribed topics. In "
            f"offsets, {LATEST} stands for the latest and {EARLIEST} for the earliest."
        )


def _no_record(option: str, without: Collection[TopicPartition], asked: Mapping[TopicPartition, int]) -> OptionError:
    places = ", ".join(f"{partition} from {asked[partition]} on" for partition in sorted(without)[:_MOST_NAMED])
    more = f" and {len(without) - _MOST_NAMED} more" if len(without) > _MOST_NAMED else ""
    return OptionError(
        f"{option}: there is no record in {places}{more} (ms since 1970). Set startingOffsetsByTimestampStrategy=latest to "
        "start such partitions with their next record, or give an earlier time."
    )


_MOST_NAMED = 10


def _names(partitions: Collection[TopicPartition]) -> str:
    shown = [str(partition) for partition in list(partitions)[:_MOST_NAMED]]
    more = [f"{len(partitions) - _MOST_NAMED} more"] if len(partitions) > _MOST_NAMED else []
    return ", ".join(shown + more)
