"""Ranges that are claimed and not confirmed, in the two states that matter to a user. Pure.

- in flight: the query that has claimed the range has the partition, and processes the range in its micro-batch.
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
    of_writer: Kind = "in flight" if _writer_has_it(group, seen) else "held"
    back = seen.held_back
    both = [(of_writer, claim) for claim in seen.open] + [("held", claim) for claim in seen.owed]
    return [
        Claimed(
            seen.partition,
            kind,
            claim,
            seen.member if kind == "in flight" else None,
            back.finished_lag if back is not None and back.claim == claim else None,
        )
        for kind, claim in sorted(both, key=lambda each: each[1].start)
    ]


def _writer_has_it(group: GroupView, seen: PartitionView) -> bool:
    """Return whether the query that has written the partition's record still has the partition."""
    if group.state in HIDING:
        return bool(group.members)  # its coordinator returns no owners for now: nobody has lost anything yet
    writer = seen.commit.member if isinstance(seen.commit, CommitRecord) else None
    return seen.member is not None and writer in (None, mark_of(seen.member.member_id))


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
