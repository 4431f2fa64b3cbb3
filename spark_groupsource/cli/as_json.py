"""What the commands show, as JSON: the shapes that `--json` promises. A field is never renamed or taken away; others may come.

Offsets and counts are numbers, `null` where they are not known; times are ISO 8601 in UTC. Lists are sorted by topic and
partition, members by client id and member id. Names are as clients chose them, with everything but ASCII escaped by JSON itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from spark_groupsource.brokers.group_view import GroupMember, GroupView, PartitionView
from spark_groupsource.cli.findings import Finding, Level
from spark_groupsource.cli.group_changes import Event, Rates
from spark_groupsource.cli.offset_reset import OffsetReset
from spark_groupsource.handoff.commit_record import OwedRange
from spark_groupsource.partition import TopicPartition

if TYPE_CHECKING:
    from spark_groupsource.cli.migrate import Migration

Json = dict[str, Any]


def text(value: Json, *, lines: bool = False) -> str:
    """The value as JSON text: indented, or for JSON lines on one line."""
    return json.dumps(value, indent=None if lines else 2)


def iso(when: datetime) -> str:
    """A time in UTC, in whole seconds."""
    return when.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def group(view: GroupView) -> Json:
    """`groupkafka describe --json`."""
    return {
        "group": view.group,
        "state": view.state,
        "protocol": view.protocol,
        "assignor": view.assignor or None,
        "coordinator": view.coordinator or None,
        "lag": view.lag,
        "held": view.held,
        "members": [_member(member) for member in view.members],
        "partitions": [_partition(one) for one in view.partitions],
    }


def claims(view: GroupView) -> Json:
    """`groupkafka claims --json`."""
    return {
        "group": view.group,
        "state": view.state,
        "held": view.held,
        "claims": [{**_place(one.partition), **claim} for one in view.partitions for claim in _claims(one)],
    }


def resets(group_id: str, planned: Sequence[OffsetReset], *, executed: bool) -> Json:
    """`groupkafka reset-offsets --json`."""
    return {
        "group": group_id,
        "executed": executed,
        "resets": [
            {
                **_place(reset.partition),
                "current": reset.current,
                "new": reset.new,
                "difference": reset.difference,
                "claims": [_claim(claim) for claim in sorted(reset.claims, key=lambda claim: claim.start)],
            }
            for reset in planned
        ],
    }


def migration(planned: Migration, *, executed: bool) -> Json:
    """`groupkafka migrate --json`: offsets are the first ones that are not processed."""
    return {
        "group": planned.group,
        "checkpoint": planned.checkpoint,
        "query": planned.query,
        "batch": planned.batch,
        "committed_batch": planned.last.committed,
        "planned_batch": planned.last.planned,
        "committed_at": None if planned.committed_at is None else iso(planned.committed_at),
        "source": planned.source,
        "partitions": [
            {
                **_place(reset.partition),
                "current": reset.current,
                "new": reset.new,
                "added": reset.partition in planned.added,
                "expired": planned.expired[reset.partition].size if reset.partition in planned.expired else 0,
            }
            for reset in planned.resets
        ],
        "stateful": planned.stateful,
        "gone": [_place(partition) for partition in planned.gone],
        "executed": executed,
    }


def findings(file: str, found: Sequence[Finding]) -> Json:
    """`groupkafka check --json`; the findings in the order of the steps."""
    return {
        "file": file,
        "errors": sum(finding.level is Level.ERROR for finding in found),
        "warnings": sum(finding.level is Level.WARNING for finding in found),
        "findings": [{"level": finding.level.value, "check": finding.check, "text": finding.text} for finding in found],
    }


def look(at: datetime, view: GroupView, rates: Rates, events: Iterable[Event]) -> Json:
    """One line of `groupkafka top --json`: `describe --json` with the rates since the look before, and what has happened."""
    shown = group(view)
    for partition, one in zip(shown["partitions"], view.partitions, strict=True):
        partition["produced_per_second"] = rates.produced.get(one.partition)
        partition["committed_per_second"] = rates.committed.get(one.partition)
    return {
        "at": iso(at),
        **shown,
        "produced_per_second": rates.all_produced,
        "committed_per_second": rates.all_committed,
        "events": [{"event": event.kind, "text": event.text} for event in events],
    }


def no_look(at: datetime, group_id: str, why: str) -> Json:
    """A line of `groupkafka top --json` for a look that failed."""
    return {"at": iso(at), "group": group_id, "error": why}


def _member(member: GroupMember) -> Json:
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "instance_id": member.instance_id,
        "host": member.host,
        "partitions": [_place(partition) for partition in sorted(member.partitions)],
    }


def _partition(one: PartitionView) -> Json:
    return {
        **_place(one.partition),
        "committed": one.committed,
        "end": one.end,
        "lag": one.lag,
        "held": one.held,
        "member_id": None if one.member is None else one.member.member_id,
        "stream": one.stream,
        "claims": _claims(one),
    }


def _claims(one: PartitionView) -> list[Json]:
    both = [("in flight", claim) for claim in one.in_flight] + [("owed", claim) for claim in one.owed]
    return [{"kind": kind, **_claim(claim)} for kind, claim in sorted(both, key=lambda each: each[1].start)]


def _claim(claim: OwedRange) -> Json:
    since = None if claim.since is None else iso(datetime.fromtimestamp(claim.since, tz=timezone.utc))
    return {
        "start": claim.start,
        "end": claim.end,
        "offsets": claim.range.size,
        "stream": claim.stream,
        "plan": claim.plan,
        "since": since,
    }


def _place(partition: TopicPartition) -> Json:
    return {"topic": partition.topic, "partition": partition.partition}
