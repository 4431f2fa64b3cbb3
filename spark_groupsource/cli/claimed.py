"""Lists a group's claimed ranges, and whether each is in flight or held. Pure.

- in flight: the query that claimed the range still owns or is draining the partition, and is processing the range.
- held: the query that claimed the range no longer owns the partition, because it stopped or lost the partition before it
  confirmed the range. No other query reads the range.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from spark_groupsource.brokers.group_view import HIDING, GroupMember, GroupView, PartitionView
from spark_groupsource.cli.render import Json, count, iso_or_none, printable, time_and_age
from spark_groupsource.handoff.commit_record import CommitRecord, OwedRange, mark_of
from spark_groupsource.partition import TopicPartition

Kind = Literal["in flight", "held"]


@dataclass(frozen=True)
class Claimed:
    """A claimed range in a partition, and the query that claimed it."""

    partition: TopicPartition
    kind: Kind
    claim: OwedRange
    member: GroupMember | None
    """The member that is processing the range. `None` if the range is held or the member is unknown."""
    finished_lag: int | None
    """How many finished offsets count as lag because this range holds back the committed offset. `None` unless the range is the
    partition's lowest claim."""

    @property
    def delays(self) -> bool:
        """Whether lag tools show more lag because of this range than an ordinary micro-batch would cause."""
        return self.finished_lag is not None and (self.kind == "held" or self.finished_lag > 0)


class Total(NamedTuple):
    """How many offsets are in flight, and how many are held."""

    in_flight: int
    held: int


def claimed_in(group: GroupView) -> tuple[Claimed, ...]:
    """Return a group's claimed ranges, sorted by partition and offset, except those in unreadable commit records."""
    return tuple(claimed for view in group.partitions for claimed in claimed_of(group, view))


def claimed_of(group: GroupView, view: PartitionView) -> list[Claimed]:
    """Return the claimed ranges in one of the group's partitions, sorted by offset."""
    writer = _writer(group, view)
    of_writer: Kind = "in flight" if _is_processed(group, view, writer) else "held"
    lowest = view.lowest_claim
    ranges = [(of_writer, claim) for claim in view.open] + [("held", claim) for claim in view.owed]
    return [
        Claimed(
            view.partition,
            kind,
            claim,
            writer if kind == "in flight" else None,
            lowest.finished_lag if lowest is not None and lowest.claim == claim else None,
        )
        for kind, claim in sorted(ranges, key=lambda kind_and_claim: kind_and_claim[1].start)
    ]


def _writer(group: GroupView, view: PartitionView) -> GroupMember | None:
    """Return the member that wrote the partition's commit record, or the owner if the record does not name its writer."""
    mark = view.commit.member if isinstance(view.commit, CommitRecord) else None
    if mark is None:
        return view.member
    return next((member for member in group.members if mark_of(member.member_id) == mark), None)


def _is_processed(group: GroupView, view: PartitionView, writer: GroupMember | None) -> bool:
    """Return whether the query that wrote the partition's commit record is still processing its claims in the partition."""
    if group.state in HIDING and isinstance(view.commit, CommitRecord) and view.commit.member is None:
        return bool(group.members)  # the coordinator returns no owners right now, and the record does not name its writer
    # While a member drains a partition, the coordinator shows no owner, but the member is still processing its range.
    return writer is not None and view.member in (None, writer)


def total(ranges: Iterable[Claimed]) -> Total:
    """Return how many offsets are in flight, and how many are held."""
    sizes: dict[Kind, int] = {"in flight": 0, "held": 0}
    for claimed in ranges:
        sizes[claimed.kind] += claimed.claim.range.size
    return Total(sizes["in flight"], sizes["held"])


def claim_line(claimed: Claimed, now: datetime) -> str:
    """Describe a claimed range in one line that is safe to print."""
    claim = claimed.claim
    line = (
        f"{printable(str(claimed.partition))} {claim.range} {count(claim.range.size, 'offset')}, {claimed.kind}: stream "
        f"{claim.stream}, since {time_and_age(claim.since, now)}"
    )
    return f"{line}; {finished_text(claimed)}" if claimed.finished_lag else line


def finished_text(claimed: Claimed) -> str:
    """Describe how many finished records count as lag only because of this range."""
    number = claimed.finished_lag or 0
    return f"{count(number, 'finished record')} above it {'counts' if number == 1 else 'count'} as lag"


def claim_text(partition: TopicPartition, claim: OwedRange) -> str:
    """Describe a claim that blocks a change of offsets. Never print the text raw."""
    return f"{partition} {claim.range} {claim.range.size} offsets: stream {claim.stream}"


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
