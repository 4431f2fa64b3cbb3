"""What becomes of ranges that other streams have claimed and not confirmed: held, reread, or a reason to stop.

They stand in the records of the partitions that this member owns (`owed`). Their streams read them when they restart; a
stream whose checkpoint is gone never does, and nobody can tell the two apart. So the user chooses (`outstandingClaims`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from spark_groupsource.errors import ClaimsOutstanding
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit, OwedRange
from spark_groupsource.handoff.rules import Stream, owed_to_others
from spark_groupsource.partition import OffsetRange, TopicPartition

log = logging.getLogger(__name__)

PlanOf = tuple[TopicPartition, str, int]
"""One plan of one stream, in one partition: all that it has claimed there is taken over at once."""


@dataclass(frozen=True)
class OutstandingClaims:
    """What the user has chosen; seconds, `None`: never."""

    reread_after_s: float | None = None
    """Such a range is read in a plan of this stream once it has held it for so long."""
    stop_after_s: float | None = None
    """A stream without a checkpoint stops when what was claimed before it came is not confirmed after so long."""


HOLD = OutstandingClaims()


class HeldRanges:
    """How long this member has held what for other streams. Used on the consumer's thread; values are replaced, not edited."""

    def __init__(self, policy: OutstandingClaims, *, fresh: bool) -> None:
        """
        Args:
            policy: what the user has chosen.
            fresh: whether the stream has started without a checkpoint.
        """
        self.policy = policy
        self._since: Mapping[PlanOf, float] = {}
        self._claimed_before: frozenset[PlanOf] = frozenset()
        self.looks_back = fresh and policy.stop_after_s is not None
        """Whether it has still to be told what the group held when the stream came."""

    def came(self, commits: Mapping[TopicPartition, GroupCommit]) -> None:
        """Take note of everything that is claimed in the group, before the stream has its first partition."""
        self.looks_back = False
        self._claimed_before = frozenset(
            claimed
            for partition, commit in commits.items()
            if isinstance(commit, CommitRecord)
            for claimed in (
                *((partition, commit.stream, commit.logged) for _ in commit.open),
                *((partition, entry.stream, entry.plan) for entry in commit.owed),
            )
        )

    def to_reread(
        self,
        records: Mapping[TopicPartition, CommitRecord],
        stream: Stream,
        now: float,
        alive: Collection[str] = frozenset(),
    ) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
        """Return the ranges of these partitions that are to be read in the next plan of `stream`.

        A range of a stream that is alive waits for that stream, however long its micro-batch takes. Time counts from its death.

        Args:
            records: of each partition that the stream may plan.
            stream: the stream that plans.
            now: in seconds, monotonic.
            alive: streams that run now (rules.alive).

        Raises:
            ClaimsOutstanding: the stream has no checkpoint, and a range that was claimed before it came is not confirmed.
        """
        held = [
            ((partition, entry.stream, entry.plan), entry)
            for partition, record in records.items()
            if record.owed
            for entry in owed_to_others(record, stream)
        ]
        held = [(plan, entry) for plan, entry in held if entry.stream not in alive]
        self._since = {plan: self._since.get(plan, now) for plan, _ in held}
        self._stop_if_overdue(held, now)
        after = self.policy.reread_after_s
        due: dict[TopicPartition, tuple[OffsetRange, ...]] = {}
        for plan, entry in held:
            if after is not None and now - self._since[plan] >= after:
                due[plan[0]] = (*due.get(plan[0], ()), entry.range)
        return due

    def _stop_if_overdue(self, held: Iterable[tuple[PlanOf, OwedRange]], now: float) -> None:
        grace = self.policy.stop_after_s
        if grace is None:
            return
        overdue = [(plan[0], entry) for plan, entry in held if plan in self._claimed_before and now - self._since[plan] >= grace]
        if overdue:
            raise _claims_outstanding(sorted(overdue), grace)

    def warn(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        """Tell of each range that is held in partitions that were just adopted."""
        after = self.policy.reread_after_s
        if after is None:
            fate = "it reads it when its query restarts on its checkpoint, and nobody else does (outstandingClaims=hold)"
        elif after == 0:
            fate = "this query reads it in its next micro-batch (outstandingClaims=reread)"
        else:
            fate = f"unless it does so within {after:.0f} s, this query reads it (outstandingClaims=reread-after)"
        for partition, record in records.items():
            for owed in record.owed:
                log.warning(
                    "%s %s (%d offsets) is held back: stream %s claimed it in plan %d and has not confirmed it; %s",
                    *(partition, owed.range, owed.range.size, owed.stream, owed.plan, fate),
                )


def _claims_outstanding(overdue: list[tuple[TopicPartition, OwedRange]], grace: float) -> ClaimsOutstanding:
    ranges = "".join(
        f"\n  {partition} {entry.range} {entry.range.size} offsets: stream {entry.stream}, plan {entry.plan}"
        for partition, entry in overdue
    )
    streams = ", ".join(sorted({entry.stream for _, entry in overdue}))
    return ClaimsOutstanding(
        f"This query started without a checkpoint, and {grace:.0f} s later (outstandingClaims.grace) ranges are still claimed by "
        f"streams that were in the group before it:{ranges}\n"
        "They had claimed these records for a micro-batch and did not confirm it. Whether the records reached the output, only "
        "their checkpoints tell; this query has not read them. Choose:\n"
        f"  - restart the query of stream {streams} on its checkpoint, if that still exists: it reads them, and every record "
        "reaches the output once. This query may then run beside it.\n"
        "  - outstandingClaims=reread: this query reads them. Nothing is missing, but records that had reached the output "
        "before are there twice.\n"
        "  - outstandingClaims=hold: go on and leave them to their stream. Nothing is there twice, but if its checkpoint is gone "
        "these records are missing from the output for good. Started again as it is, on the checkpoint that it has by now, this "
        "query does the same.\n"
        "If this query's checkpoint was deleted or its path was changed by mistake, stop it and put the old one back first."
    )
