"""Groups in which the sink keeps what it has written. An offset there is the number of a micro-batch, and not a position."""

from __future__ import annotations

from spark_groupsource.brokers.group_view import GroupView, PartitionView
from spark_groupsource.cli.render import printable
from spark_groupsource.errors import OffsetsInTheWay
from spark_groupsource.sink.recognised import is_token

OF_A_SINK = 'is of a query that writes (format("groupkafka")). Its offsets are tokens, and no positions of a reader'


def sink_batch(one: PartitionView) -> int | None:
    """Return the micro-batch of the token that is committed on a partition; `None` if it is no token."""
    return one.committed - 1 if one.committed is not None and is_token(one.metadata) else None


def sink_lines(view: GroupView) -> list[str]:
    """Return a line for each token of the group: on which partition it is, and its micro-batch."""
    return [
        f"{printable(str(one.partition))}: micro-batch {batch}"
        for one in view.partitions
        if (batch := sink_batch(one)) is not None
    ]


def refuse_sink(view: GroupView) -> None:
    """Refuse to write offsets of a group in which the sink keeps its tokens.

    Raises:
        OffsetsInTheWay: The group has tokens.
    """
    if lines := sink_lines(view):
        tokens = "".join(f"\n  {line}" for line in lines)
        raise OffsetsInTheWay(
            f"Nothing was changed. The group {view.group} {OF_A_SINK}:{tokens}\n"
            "Without them the query cannot know what it has written. Check the group's name. To write everything again, start "
            "the query with a new checkpoint."
        )
