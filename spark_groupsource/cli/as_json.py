"""Makes the parts that several commands share in the JSON of `--json`. No field is ever renamed or removed; others may be added.

Offsets and counts are numbers, or `null` if they are not known. Times are ISO 8601 in UTC. Lists are sorted by topic and
partition, and members by client id and member id. Names are unchanged, but JSON escapes everything that is not ASCII.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

from spark_groupsource.cli.claimed import Claimed
from spark_groupsource.handoff.commit_record import OwedRange
from spark_groupsource.partition import TopicPartition

Json = dict[str, Any]


def json_text(value: Json, *, lines: bool = False) -> str:
    """Return the value as JSON text: indented, or on one line."""
    return json.dumps(value, indent=None if lines else 2)


def iso(time: datetime) -> str:
    """Return a time as ISO 8601 in UTC, in whole seconds."""
    return time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def iso_or_none(seconds: int | None) -> str | None:
    """Return a time in seconds since 1970 as ISO 8601, or `None` for `None`."""
    return None if seconds is None else iso(datetime.fromtimestamp(seconds, tz=timezone.utc))


def place(partition: TopicPartition) -> Json:
    """Return the two fields that name a partition."""
    return {"topic": partition.topic, "partition": partition.partition}


def json_claimed(claimed: Claimed) -> Json:
    """Return the JSON of a range that is in flight or held."""
    return {"kind": claimed.kind, **json_claim(claimed.claim)}


def json_lowest_claim(ranges: Iterable[Claimed]) -> Json | None:
    """Return the lowest claim of a partition, at which the committed offset stays, with the finished lag above it.

    Args:
        ranges: the claimed ranges of the partition.
    """
    for claimed in ranges:
        if claimed.finished_lag is not None:
            return {**json_claimed(claimed), "finished_lag": claimed.finished_lag}
    return None


def json_claim(claim: OwedRange) -> Json:
    """Return the JSON of one claim, without its kind."""
    return {
        "start": claim.start,
        "end": claim.end,
        "offsets": claim.range.size,
        "stream": claim.stream,
        "since": iso_or_none(claim.since),
    }
