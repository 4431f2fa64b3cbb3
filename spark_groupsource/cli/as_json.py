"""Builds the parts of the `--json` output that several commands share. Later versions may add fields, but rename and remove none.

Offsets and counts are numbers, or `null` if unknown. Times are ISO 8601 in UTC. Lists are sorted by topic and partition, and
members by client id and member id. Names are not changed, but all non-ASCII characters are escaped.
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
    """Return the value as JSON, either indented or on one line."""
    return json.dumps(value, indent=None if lines else 2)


def iso(time: datetime) -> str:
    """Format a time as ISO 8601 in UTC, without fractions of a second."""
    return time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def iso_or_none(seconds: int | None) -> str | None:
    """Format a Unix time in seconds as ISO 8601, or return `None` for `None`."""
    return None if seconds is None else iso(datetime.fromtimestamp(seconds, tz=timezone.utc))


def place(partition: TopicPartition) -> Json:
    """Return the two JSON fields that identify a partition."""
    return {"topic": partition.topic, "partition": partition.partition}


def json_claimed(claimed: Claimed) -> Json:
    """Return the JSON for a range that is in flight or held."""
    return {"kind": claimed.kind, **json_claim(claimed.claim)}


def json_lowest_claim(ranges: Iterable[Claimed]) -> Json | None:
    """Return the JSON for a partition's lowest claim, which holds back the committed offset, with the finished lag above it.

    Args:
        ranges: the partition's claimed ranges.
    """
    for claimed in ranges:
        if claimed.finished_lag is not None:
            return {**json_claimed(claimed), "finished_lag": claimed.finished_lag}
    return None


def json_claim(claim: OwedRange) -> Json:
    """Return the JSON for one claim, without its kind."""
    return {
        "start": claim.start,
        "end": claim.end,
        "offsets": claim.range.size,
        "stream": claim.stream,
        "since": iso_or_none(claim.since),
    }
