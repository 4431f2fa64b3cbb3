"""What becomes of ranges that other streams claimed and did not confirm: they are held or reread.

They are listed in the records of the partitions that this member owns (`owed`). Their streams read them after a restart. A stream
whose checkpoint was deleted never does. A member cannot distinguish the two, so the user chooses (`outstandingClaims`).

A query with a new checkpoint may have been started in place of such a stream, by mistake. So it warns at its start. It goes on:
what nobody has claimed is its to read either way, and what is claimed stays so until somebody chooses.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timezone
from typing import NamedTuple

from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit, OwedRange
from spark_groupsource.handoff.rules import OutstandingClaims, Stream, owed_to_others, with_room
from spark_groupsource.partition import OffsetRange, Ranges, TopicPartition, listed

log = logging.getLogger(__name__)


class PartitionPlan(NamedTuple):
    """One plan of one stream in one partition. All that it claimed there is taken over at once."""

    partition: TopicPartition
    stream: str
    plan: int


class HeldRanges:
    """How long this member has held which ranges for other streams.

    Used on the consumer's thread. Values are replaced, not edited.
    """

    def __init__(self, policy: OutstandingClaims, *, fresh: bool) -> None:
        """Start with nothing held.

        Args:
            policy: What the user chose.
            fresh: Whether the stream's checkpoint was new and empty when it started.
        """
        self.policy = policy
        self._dead_since: Mapping[PartitionPlan, float] = {}
        """Since when the streams of these plans are known to be dead, without an answer in between that says otherwise."""
        self._noted_at = -math.inf
        self._claimed_before: frozenset[PartitionPlan] = frozenset()
        self._full: frozenset[TopicPartition] = frozenset()
        self._logged: frozenset[tuple[str, int]] = frozenset()
        """Streams and plans to which ranges are owed by the newest answer: each was logged, and is again when it comes back."""
        self._warned: frozenset[PartitionPlan] = frozenset()
        """Those of the earlier claims that were warned of, since their streams do not run."""
        self._fresh = fresh

    @property
    def takes_over(self) -> bool:
        """Whether it matters here which other streams are alive: their ranges may be read or warned of."""
        return self.policy.reread_after_s is not None or bool(self._claimed_before - self._warned)

    def note_earlier_claims(self, commits: Mapping[TopicPartition, GroupCommit]) -> None:
        """Note everything that is claimed in the group, if the stream is new and leaves it. Call before the stream joins.

        Args:
            commits: What the group has committed for each partition.
        """
        if not self._fresh or self.policy.chosen:
            return
        self._claimed_before = frozenset(
            claimed
            for partition, commit in commits.items()
            if isinstance(commit, CommitRecord)
            for claimed in (
                *(PartitionPlan(partition, commit.stream, commit.logged) for _ in commit.open),
                *_owed_plans(partition, commit),
            )
        )

    def note(
        self, records: Mapping[TopicPartition, CommitRecord], stream: Stream, now: float, protected: Collection[str]
    ) -> None:
        """Note by an answer of the group whose streams are dead. Between two triggers it comes every SETTLE_BETWEEN_TRIGGERS_S.

        A range of a stream that is alive waits for that stream, however long its micro-batch takes.

        Args:
            records: The record of each partition of this member.
            stream: This member's stream.
            now: Seconds, monotonic.
            protected: Streams whose ranges must not be taken over now (`evidence.ConfirmedPlans.protected`).
        """
        dead = {plan for plan, entry in _held(records, stream) if entry.stream not in protected}
        # A stream that came back has left this mapping, also between two triggers. Otherwise it would have no time for another
        # restart when it dies again: its range would be read here at once, and a second time there.
        self._dead_since = {plan: self._dead_since.get(plan, now) for plan in dead}
        self._noted_at = now

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget partitions that this member has no longer: what it holds there is counted from anew when they come back."""
        self._dead_since = {plan: since for plan, since in self._dead_since.items() if plan.partition not in partitions}

    def to_reread(
        self, records: Mapping[TopicPartition, CommitRecord], stream: Stream, protected: Collection[str] = frozenset()
    ) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
        """Return the ranges of these partitions that are to be read in the next plan of `stream`.

        They are those whose streams were dead for long enough by the newest answer that was noted.

        Args:
            records: The record of each partition that the stream may plan.
            stream: The stream that plans.
            protected: As in `note`, by the records of now.
        """
        after = self.policy.reread_after_s
        if after is None:
            return {}
        # The newest answer may be older than the newest adoption: then `protected` has streams that seemed dead before it.
        due: dict[TopicPartition, tuple[OffsetRange, ...]] = {}
        for plan, entry in _held(records, stream):
            dead = plan in self._dead_since and entry.stream not in protected
            if dead and self._noted_at - self._dead_since[plan] >= after:
                due[plan.partition] = (*due.get(plan.partition, ()), entry.range)
        return due

    def with_room(
        self, records: Mapping[TopicPartition, CommitRecord], ranges: Ranges
    ) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
        """Return the ranges of a plan for which the partition's record has room. Log once each partition whose record is full.

        Args:
            records: The record of each of these partitions, and of others.
            ranges: As in `rules.claimable`. The last one of each partition starts at its position.
        """
        kept = {partition: with_room(records[partition], offsets) for partition, offsets in ranges.items()}
        full = frozenset(partition for partition, offsets in ranges.items() if kept[partition] != offsets)
        for partition in sorted(full - self._full):
            owed = records[partition].owed
            log.warning(
                "%s: its commit record is full, so new records there are not read until ranges are confirmed or reread; %d "
                "ranges are owed to the streams %s. Restart their queries, or set outstandingClaims=reread",
                partition,
                len(owed),
                ", ".join(sorted({entry.stream for entry in owed})),
            )
        self._full = full
        return kept

    def warn(self, records: Mapping[TopicPartition, CommitRecord], stream: Stream) -> None:
        """Log once each plan of which ranges are held for its stream; before that, what a new query has to know of these streams.

        Args:
            records: The record of every partition of this member.
            stream: This member's stream.
        """
        self._warn_of_earlier(_held(records, stream))
        after = self.policy.reread_after_s
        if after is None:
            fate = "only that stream reads them, when its query restarts on its checkpoint (outstandingClaims=hold)"
        elif after == 0:
            fate = "this query reads them in its next micro-batch (outstandingClaims=reread)"
        else:
            fate = f"if they are not confirmed within {after:.0f} s, this query reads them (outstandingClaims=reread-after)"
        of_plans: dict[tuple[str, int], list[tuple[TopicPartition, OwedRange]]] = defaultdict(list)
        for partition, record in records.items():
            for owed in record.owed:
                if owed.stream != record.stream:  # otherwise this query reads it, or replays it now
                    of_plans[owed.stream, owed.plan].append((partition, owed))
        new = of_plans.keys() - self._logged
        self._logged = frozenset(of_plans)
        for name, plan in sorted(new):
            ranges = of_plans[name, plan]
            log.warning(
                "%d offsets are held back: stream %s claimed them in plan %d and has not confirmed them; %s. They were claimed "
                "at %s, in %s. Until they are confirmed the committed offsets stay there, and what is finished above them counts "
                "as lag: %d records so far",
                sum(owed.range.size for _, owed in ranges),
                name,
                plan,
                fate,
                _claimed_at(ranges),
                listed([f"{partition} {owed.range}" for partition, owed in sorted(ranges)]),
                sum(_finished_lag(owed, records[partition]) for partition, owed in ranges),
            )

    def _warn_of_earlier(self, held: Iterable[tuple[PartitionPlan, OwedRange]]) -> None:
        """Log once what was claimed before a new query came by streams that do not run now."""
        left = [(plan, entry) for plan, entry in held if plan in self._claimed_before and plan in self._dead_since]
        new = frozenset(plan for plan, _ in left) - self._warned
        if not new:
            return
        self._warned |= new
        log.warning(
            "this query is new: its checkpoint was empty when it started. Before that, queries that do not run now had claimed "
            "%d offsets in %d partitions, and they have not confirmed them: streams %s. This query leaves these ranges to them. "
            "It reads everything else, and goes on. To have every record once, restart these queries on their checkpoints: this "
            "one may run beside them. If it was to continue with one of their checkpoints, whose path was changed, stop it, and "
            "run it again on the checkpoint that it has now with trigger(availableNow=True), so that it leaves nothing "
            "claimed; then give it that path. If a checkpoint is deleted, outstandingClaims=reread reads the ranges here; "
            "records that had reached the output are duplicated",
            sum(entry.range.size for _, entry in left),
            len({plan.partition for plan, _ in left}),
            ", ".join(sorted({entry.stream for _, entry in left})),
        )


def _owed_plans(partition: TopicPartition, record: CommitRecord) -> list[PartitionPlan]:
    """Return the plan of each range that is owed in this partition's record."""
    return [PartitionPlan(partition, entry.stream, entry.plan) for entry in record.owed]


def _held(records: Mapping[TopicPartition, CommitRecord], stream: Stream) -> list[tuple[PartitionPlan, OwedRange]]:
    return [
        (PartitionPlan(partition, entry.stream, entry.plan), entry)
        for partition, record in records.items()
        if record.owed
        for entry in owed_to_others(record, stream)
    ]


def _claimed_at(ranges: Iterable[tuple[TopicPartition, OwedRange]]) -> str:
    times = [owed.since for _, owed in ranges if owed.since is not None]
    return f"{datetime.fromtimestamp(min(times), tz=timezone.utc):%Y-%m-%dT%H:%M:%SZ}" if times else "a time that is not known"


def _finished_lag(owed: OwedRange, record: CommitRecord) -> int:
    """Return how many finished offsets count as lag because of this range: none if it is not the lowest of its partition."""
    held = record.held_back
    return held.finished_lag if held is not None and held.claim == owed else 0
