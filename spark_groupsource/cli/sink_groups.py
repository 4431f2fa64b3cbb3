"""Groups in which the sink keeps what it has written. An offset there is the number of a micro-batch, and not a position."""

from __future__ import annotations

from spark_groupsource.brokers.group_view import GroupView, PartitionView
from spark_groupsource.cli.as_json import Json, iso_or_none
from spark_groupsource.cli.render import printable
from spark_groupsource.errors import OffsetsInTheWay
from spark_groupsource.sink.names import reach_group
from spark_groupsource.sink.token import kind_of, own_mark

OF_A_SINK = (
    'is of a query that writes (format("groupkafka")). Its offsets say what it has written, and are no positions of a reader'
)


def sink_batch(seen: PartitionView) -> int | None:
    """Return the micro-batch of the token that is committed on a partition; `None` if it is no token."""
    return seen.committed - 1 if seen.committed is not None and kind_of(seen.metadata) == "token" else None


def json_mark(seen: PartitionView) -> Json | None:
    """Return the mark that is committed on a partition; `None` if it is none. Fields that cannot be read are `None`."""
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
    """Return a line for each token and each mark of the group: on which partition it is, and what it says."""
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
        return f"a task with a number below {reach[1]} has left a mark"
    mark = own_mark(seen.metadata)
    if mark is None:
        return "may have a transaction open; this version cannot read by whom"
    if mark.open is None:
        return "has no transaction open"
    opener = mark.open
    return f"may have a transaction open, since {iso_or_none(opener.at)}, of process {opener.pid} on {opener.host}"


def refuse_sink(view: GroupView) -> None:
    """Refuse to write offsets of a group in which the sink keeps what it has written.

    Raises:
        OffsetsInTheWay: The group has tokens or marks.
    """
    if lines := sink_lines(view):
        tokens = "".join(f"\n  {line}" for line in lines)
        raise OffsetsInTheWay(
            f"Nothing was changed. The group {view.group} {OF_A_SINK}:{tokens}\n"
            "Without them the query cannot know what it has written. Check the group's name. To write everything again, start "
            "the query with a new checkpoint."
        )
