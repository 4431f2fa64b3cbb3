"""Lists the claimed ranges of a group, and whether each is in flight or held. Pure.

- in flight: the query that claimed the range still has the partition, or drains it, and processes the range in its micro-batch.
- held: the query that claimed the range no longer has the partition. It stopped, or lost the partition, before it confirmed the
  range. No other query reads the range.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from spark_groupsource.brokers.group_view import HIDING, GroupMember, GroupView, PartitionView
from spark_groupsource.cli.render import count, printable, time_and_age
from spark_groupsource.handoff.commit_record import CommitRecord, OwedRange, mark_of
from spark_groupsource.partition import TopicPartition

Kind = Literal["in flight", "held"]


@dataclass(frozen=True)
class Claimed:
    """One claimed range of a partition, and the query that claimed it."""

    partition: TopicPartition
    kind: Kind
    claim: OwedRange
    member: GroupMember | None
    """The member that processes the range. `None` if the range is held, or if the member is not known."""
    finished_lag: int | None
    """How many finished offsets count as lag because the committed offset stays at this range. `None` unless the range is the
    lowest claim of its partition."""

    @property
    def delays(self) -> bool:
        """Whether lag tools show more because of this range than an ordinary micro-batch explains."""
        return self.finished_lag is not None and (self.kind == "held" or self.finished_lag > 0)


class Total(NamedTuple):
    """The numbers of offsets in flight and held."""

    in_flight: int
    held: int


def claimed_in(group: GroupView) -> tuple[Claimed, ...]:
    """Return the claimed ranges of a group by partition and offset, without records that this version cannot read."""
    return tuple(claimed for view in group.partitions for claimed in claimed_of(group, view))


def claimed_of(group: GroupView, view: PartitionView) -> list[Claimed]:
    """Return the claimed ranges of one partition of the group, sorted by offset."""
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
    """Return whether the query that wrote the partition's commit record is still processing its claims there."""
    if group.state in HIDING and isinstance(view.commit, CommitRecord) and view.commit.member is None:
        return bool(group.members)  # the coordinator returns no owners for now, and the record does not name its writer
    # While a member drains a partition, the coordinator shows no owner, but the member still works on its range.
    return writer is not None and view.member in (None, writer)


def total(ranges: Iterable[Claimed]) -> Total:
    """Return how many offsets are in flight, and how many are held."""
    sizes: dict[Kind, int] = {"in flight": 0, "held": 0}
    for claimed in ranges:
        sizes[claimed.kind] += claimed.claim.range.size
    return Total(sizes["in flight"], sizes["held"])


def claim_line(claimed: Claimed, now: datetime) -> str:
    """Return a claimed range as one line that is safe to print."""
    claim = claimed.claim
    line = (
        f"{printable(str(claimed.partition))} {claim.range} {count(claim.range.size, 'offset')}, {claimed.kind}: stream "
        f"{claim.stream}, since {time_and_age(claim.since, now)}"
    )
    return f"{line}; {finished_text(claimed)}" if claimed.finished_lag else line


def finished_text(claimed: Claimed) -> str:
    """Return how many finished records count as lag only because of this range, as text."""
    number = claimed.finished_lag or 0
    return f"{count(number, 'finished record')} above it {'counts' if number == 1 else 'count'} as lag"
