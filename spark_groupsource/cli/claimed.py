"""Ranges that are claimed and not confirmed, in the two states that matter to a user. Pure.

- in flight: the query that has claimed the range has the partition, or drains it, and processes the range in its micro-batch.
- held: the query that has claimed the range does not have the partition. It has stopped, or has lost the partition, before the
  range was confirmed. No other query reads the range.
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
    """One range of a partition, and who has claimed it."""

    partition: TopicPartition
    kind: Kind
    claim: OwedRange
    member: GroupMember | None
    """Who processes the range. `None` if it is held, or if that is not known."""
    finished_lag: int | None
    """Number of finished offsets above this range that count as lag, because the committed offset stays at its start.
    `None` if it does not stay there for this range."""

    @property
    def delays(self) -> bool:
        """Whether lag tools show more because of this range than an ordinary micro-batch explains."""
        return self.finished_lag is not None and (self.kind == "held" or self.finished_lag > 0)


class Total(NamedTuple):
    """Numbers of offsets."""

    in_flight: int
    held: int


def claimed_in(group: GroupView) -> tuple[Claimed, ...]:
    """Return the ranges of a group, sorted by partition and offset. Records that this version does not read are left out."""
    return tuple(claimed for seen in group.partitions for claimed in claimed_of(group, seen))


def claimed_of(group: GroupView, seen: PartitionView) -> list[Claimed]:
    """Return the ranges of one partition of the group, sorted by offset."""
    writer = _writer(group, seen)
    of_writer: Kind = "in flight" if _is_processed(group, seen, writer) else "held"
    back = seen.held_back
    both = [(of_writer, claim) for claim in seen.open] + [("held", claim) for claim in seen.owed]
    return [
        Claimed(
            seen.partition,
            kind,
            claim,
            writer if kind == "in flight" else None,
            back.finished_lag if back is not None and back.claim == claim else None,
        )
        for kind, claim in sorted(both, key=lambda each: each[1].start)
    ]


def _writer(group: GroupView, seen: PartitionView) -> GroupMember | None:
    """Return the member that has written the partition's record; if the record does not say it, the owner."""
    mark = seen.commit.member if isinstance(seen.commit, CommitRecord) else None
    if mark is None:
        return seen.member
    return next((member for member in group.members if mark_of(member.member_id) == mark), None)


def _is_processed(group: GroupView, seen: PartitionView, writer: GroupMember | None) -> bool:
    """Return whether the query that has written the partition's record still processes what it has claimed there."""
    if group.state in HIDING and isinstance(seen.commit, CommitRecord) and seen.commit.member is None:
        return bool(group.members)  # the coordinator returns no owners for now, and the record does not say whose it is
    # A partition that its member drains has no owner at the coordinator. Its member is still at work.
    return writer is not None and seen.member in (None, writer)


def total(ranges: Iterable[Claimed]) -> Total:
    """Return how many offsets are in flight and held."""
    sizes: dict[Kind, int] = {"in flight": 0, "held": 0}
    for claimed in ranges:
        sizes[claimed.kind] += claimed.claim.range.size
    return Total(sizes["in flight"], sizes["held"])


def claim_line(claimed: Claimed, now: datetime) -> str:
    """Return a range as one line, which may be printed."""
    claim = claimed.claim
    line = (
        f"{printable(str(claimed.partition))} {claim.range} {count(claim.range.size, 'offset')}, {claimed.kind}: stream "
        f"{claim.stream}, plan {claim.plan}, since {time_and_age(claim.since, now)}"
    )
    return f"{line}; {finished_text(claimed)}" if claimed.finished_lag else line


def finished_text(claimed: Claimed) -> str:
    """Return how much is lag only because of this range."""
    number = claimed.finished_lag or 0
    return f"{count(number, 'finished record')} above it {'counts' if number == 1 else 'count'} as lag"
