"""What the shapes of `--json` have in common. A field is never renamed or taken away; others may come.

Offsets and counts are numbers, `null` where they are not known; times are ISO 8601 in UTC. Lists are sorted by topic and
partition, members by client id and member id. Names are as clients chose them, with everything but ASCII escaped by JSON itself.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

from spark_groupsource.brokers.group_view import PartitionView
from spark_groupsource.handoff.commit_record import OwedRange
from spark_groupsource.partition import TopicPartition

Json = dict[str, Any]


def json_text(value: Json, *, lines: bool = False) -> str:
    """The value as JSON text: indented, or for JSON lines on one line."""
    return json.dumps(value, indent=None if lines else 2)


def iso(when: datetime) -> str:
    """A time in UTC, in whole seconds."""
    return when.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def place(partition: TopicPartition) -> Json:
    """A partition's two fields."""
    return {"topic": partition.topic, "partition": partition.partition}


def json_claims(one: PartitionView) -> list[Json]:
    """Both kinds of claims of a partition, by their offsets."""
    both = [("in flight", claim) for claim in one.in_flight] + [("owed", claim) for claim in one.owed]
    return [{"kind": kind, **json_claim(claim)} for kind, claim in sorted(both, key=lambda each: each[1].start)]


def json_claim(claim: OwedRange) -> Json:
    """One claim, without its kind."""
    since = None if claim.since is None else iso(datetime.fromtimestamp(claim.since, tz=timezone.utc))
    return {
        "start": claim.start,
        "end": claim.end,
        "offsets": claim.range.size,
        "stream": claim.stream,
        "plan": claim.plan,
        "since": since,
    }
