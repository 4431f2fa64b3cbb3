"""Recognizes groups in which the sink stores a query's progress, and reads that progress.

The offset in such a commit is the next micro-batch's number, or 1. It is not a position in a log, so the partition has no lag.
"""

from __future__ import annotations

from dataclasses import replace

from spark_groupsource.brokers.group_view import GroupView, PartitionView, refuse_active
from spark_groupsource.cli.render import Json, indented, iso_or_none, printable
from spark_groupsource.errors import OffsetsInTheWay
from spark_groupsource.sink.names import reach_group
from spark_groupsource.sink.token import kind_of, own_mark

OF_A_SINK = (
    "belongs to a query's sink (writeStream.format(\"groupkafka\")). Its offsets are not a reader's positions, so they have "
    "no lag"
)


def kept_by_sink(seen: PartitionView) -> bool:
    """Return whether the sink committed this partition's offset, in which case the offset is not a reader's position."""
    return kind_of(seen.metadata) is not None


def read_part(view: GroupView) -> GroupView | None:
    """Return the group without the partitions that store a sink's progress, or `None` if all of them do."""
    read = tuple(seen for seen in view.partitions if not kept_by_sink(seen))
    return replace(view, partitions=read) if read or not view.partitions else None


def as_read(seen: PartitionView) -> PartitionView:
    """Return a partition as its readers see it: without lag and position if the sink committed its offset."""
    return replace(seen, commit=None, end=0) if kept_by_sink(seen) else seen


def sink_batch(seen: PartitionView) -> int | None:
    """Return the last micro-batch that the sink has written, if this partition's commit records it, else `None`."""
    return seen.committed - 1 if seen.committed is not None and kind_of(seen.metadata) == "token" else None


def json_transaction(seen: PartitionView) -> Json | None:
    """Return a sink task's mark as JSON, or `None` if this partition's commit is not a mark.

    If this version cannot read the mark, its fields are `None`.
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
    return f"process {opener.pid} on {opener.host} may have had a transaction open since {iso_or_none(opener.at)}"


def refuse_changes(view: GroupView) -> None:
    """Refuse to change offsets, or to take over from a group, that has members or in which a sink keeps its progress.

    Raises:
        GroupActive: The group has members.
        OffsetsInTheWay: A sink keeps its progress in the group.
    """
    refuse_active(view)
    if lines := sink_lines(view):
        raise OffsetsInTheWay(
            f"Nothing was changed. The group {view.group} {OF_A_SINK}. It holds:{indented(lines)}\n"
            "Without these offsets, the query could no longer tell which rows it has written. Check the group's name (--group). "
            "To write everything again, start the query with a new checkpoint."
        )
