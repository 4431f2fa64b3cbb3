"""Recognizes groups in which the sink keeps its progress, and returns what it keeps there.

The offset in such a commit is the next micro-batch's number, or 1. It is not a position in a log, so the partition has no lag.
"""

from __future__ import annotations

from dataclasses import replace

from spark_groupsource.brokers.group_view import GroupView, PartitionView
from spark_groupsource.cli.as_json import Json, iso_or_none
from spark_groupsource.cli.render import printable
from spark_groupsource.errors import OffsetsInTheWay
from spark_groupsource.sink.names import reach_group
from spark_groupsource.sink.token import kind_of, own_mark

OF_A_SINK = (
    "belongs to a query's sink (writeStream.format(\"groupkafka\")). Its offsets are not a reader's positions, so they have "
    "no lag"
)


def kept_by_sink(seen: PartitionView) -> bool:
    """Return whether the sink committed this partition's offset, in which case it is not a reader's position."""
    return kind_of(seen.metadata) is not None


def read_part(view: GroupView) -> GroupView | None:
    """Return the group without the partitions that store a sink's progress, or `None` if all of them do."""
    read = tuple(seen for seen in view.partitions if not kept_by_sink(seen))
    return replace(view, partitions=read) if read or not view.partitions else None


def lag_in(seen: PartitionView) -> int | None:
    """Return a partition's lag, or `None` if it is unknown or the sink committed the offset."""
    return None if kept_by_sink(seen) else seen.lag


def lag_unknown_in(seen: PartitionView) -> bool:
    """Return whether a partition has a lag that is unknown."""
    return seen.lag_unknown and not kept_by_sink(seen)


def position_in(seen: PartitionView) -> int | None:
    """Return where the group's queries continue in a partition, or `None` if unknown or the sink committed the offset."""
    return None if kept_by_sink(seen) else seen.position


def sink_batch(seen: PartitionView) -> int | None:
    """Return the last micro-batch that the sink has written, if this partition's commit records it, else `None`."""
    return seen.committed - 1 if seen.committed is not None and kind_of(seen.metadata) == "token" else None


def json_transaction(seen: PartitionView) -> Json | None:
    """Return a sink task's note about its transaction as JSON, or `None` if this partition's commit is not such a note.

    If this version cannot read the note, its fields are `None`.
    """
    if kind_of(seen.metadata) != "mark":
        return None
    mark = own_mark(seen.metadata)
    opener = None if mark is None else mark.open
    return {
        "open": None if mark is None else opener is not None,
        "run": None if mark is None else mark.run or None,
        "since": None if opener is None else iso_or_none(opener.at),
        "host": None if opener is None else opener.host,
        "pid": None if opener is None else opener.pid,
    }


def sink_lines(view: GroupView) -> list[str]:
    """Describe what the sink keeps in the group, in one line for each partition that it uses."""
    return [
        f"{printable(str(seen.partition))}: {text}" for seen in view.partitions if (text := _text(view.group, seen)) is not None
    ]


def _text(group: str, seen: PartitionView) -> str | None:
    batch = sink_batch(seen)
    if batch is not None:
        return f"micro-batch {batch}"
    if kind_of(seen.metadata) != "mark":
        return None
    if (reach := reach_group(group)) is not None:
        return f"a task with a number below {reach[1]} has started to write"
    mark = own_mark(seen.metadata)
    if mark is None:
        return "a task may have a transaction open; this version cannot read which process runs it"
    if mark.open is None:
        return "no transaction is open"
    opener = mark.open
    return f"process {opener.pid} on {opener.host} may have a transaction open, since {iso_or_none(opener.at)}"


def refuse_sink(view: GroupView) -> None:
    """Refuse to change offsets in a group in which the sink keeps its progress.

    Raises:
        OffsetsInTheWay: The sink keeps something in the group.
    """
    if lines := sink_lines(view):
        kept = "".join(f"\n  {line}" for line in lines)
        raise OffsetsInTheWay(
            f"Nothing was changed. The group {view.group} {OF_A_SINK}. It holds:{kept}\n"
            "Without these offsets, the query could no longer tell which rows it has written. Check the group's name (--group). "
            "To write everything again, start the query with a new checkpoint."
        )
