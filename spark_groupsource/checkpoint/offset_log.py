"""Parses Spark's offset log files (OffsetSeqLog). Pure.

Spark writes `offsets/N` before it reads micro-batch N, and `commits/N` after the sink has committed it. An offset log file has
these lines:

1. the format version
2. Spark's own settings
3. a line for each source with its offset, or `-` if the source has no offset yet. In `v1`, the lines are in query order. In `v2`
   (`spark.sql.streaming.offsetLog.formatVersion`), each line begins with the source's id and a colon
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from spark_groupsource.errors import OffsetError
from spark_groupsource.handoff.commit_record import STREAM_NAME
from spark_groupsource.partition import TopicPartition


def source_lines(text: str) -> dict[str, str]:
    """Return each source's offset in an offset log file, by the source's id, or by its number from 0 in `v1`.

    Raises:
        OffsetError: The format is unknown.
    """
    version, _, rest = text.partition("\n")
    _, _, sources = rest.partition("\n")
    lines = [line.strip() for line in sources.split("\n") if line.strip()]
    if version.strip() == "v1":
        return {str(number): line for number, line in enumerate(lines)}
    if version.strip() == "v2" and all(named := [re.fullmatch(r"([\w.-]+):(.+)", line) for line in lines]):
        return {match[1]: match[2] for match in named if match is not None}
    raise OffsetError(
        f"The offset log file begins with {version[:20]!r}, but only v1 and v2 are supported. A newer version of Spark "
        "may have written it. Nothing was changed. Upgrade spark_groupsource."
    )


def plans(lines: Iterable[str]) -> dict[str, int]:
    """Return the plan of each of this package's streams, given all sources' offsets."""
    return {stream: offset["plan"] for stream, offset in offsets_by_stream(lines).items()}


def offsets_by_stream(lines: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the offset of each of this package's streams, given all sources' offsets, which need not be JSON."""
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        try:
            offset = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if (planned := plan_of(offset)) is not None:
            found[planned[0]] = offset
    return found


def plan_of(offset: object) -> tuple[str, int] | None:
    """Return the stream and plan in one of this package's offsets, or `None` for any other offset. The ranges are not checked.

    Args:
        offset: plain JSON values.
    """
    if not isinstance(offset, dict) or not {"group", "ranges"} <= offset.keys():
        return None
    stream, plan = offset.get("stream"), offset.get("plan")
    if not isinstance(stream, str) or not re.fullmatch(STREAM_NAME, stream) or type(plan) is not int:
        return None
    return stream, plan


def left_behind(offset: Mapping[str, Any], ends: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return how many offsets each of a plan's partitions has between the plan's end and the partition's end.

    Args:
        offset: One of this package's offsets, as plain JSON values.
        ends: The end offsets, by topic and partition. Partitions that are missing in `ends` or in the plan are left out.
    """
    return {
        TopicPartition(topic, int(partition)): max(0, ends[topic][partition] - bounds[-1][1])
        for topic, partitions in offset["ranges"].items()
        for partition, bounds in partitions.items()
        if partition in ends.get(topic, ())
    }
