"""Decides whether to hold or reread ranges that other streams claimed but did not confirm, and warns about them.

The records of this member's partitions list these ranges (`owed`). A stream (a query's checkpoint) reads its own ranges after a
restart, but a stream whose checkpoint was deleted never does. A member cannot tell the two apart, so the user chooses
(`heldClaims`).

A query with a new checkpoint may have been started by mistake in place of such a stream, so it logs a warning when it starts.
Then it continues, because it may read unclaimed records in any case, and claimed ranges stay claimed until the user chooses.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timezone
from typing import NamedTuple

from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit, OwedRange
from spark_groupsource.handoff.rules import HeldClaims, Stream, owed_to_others, with_room
from spark_groupsource.partition import OffsetRange, Ranges, TopicPartition, listed

log = logging.getLogger(__name__)


class PartitionPlan(NamedTuple):
    """One plan of one stream in one partition. The ranges that it claimed in the partition are taken over at the same time."""

    partition: TopicPartition
    stream: str
    plan: int


class HeldRanges:
    """Tracks for which streams this member holds ranges, and for how long.

    Used on the consumer's thread. Values are replaced, not edited.
    """

    def __init__(self, policy: HeldClaims, *, fresh: bool) -> None:
        """Start with no held ranges.

        Args:
            policy: The user's choice (`heldClaims`).
            fresh: Whether the checkpoint was new and empty when the stream started.
        """
        self.policy = policy
        self._dead_since: Mapping[PartitionPlan, float] = {}
        """When each plan's stream was first found to be dead. Every answer since then has confirmed that the stream is dead."""
        self._noted_at = -math.inf
        self._claimed_before: frozenset[PartitionPlan] = frozenset()
        self._full: frozenset[TopicPartition] = frozenset()
        self._logged: frozenset[tuple[str, int]] = frozenset()
        """The streams and plans whose held ranges have been logged. A plan whose ranges are no longer held is dropped, so they
        are logged again if they are held again."""
        self._warned: frozenset[PartitionPlan] = frozenset()
        """Claims that were made before this query started, and about which it has already warned because their streams are not
        running."""
        self._fresh = fresh

    @property
    def liveness_matters(self) -> bool:
        """Whether it matters which other streams are alive, because this stream may read their ranges or warn about them."""
        return self.policy.reread_after_s is not None or bool(self._claimed_before - self._warned)

    def note_earlier_claims(self, commits: Mapping[TopicPartition, GroupCommit]) -> None:
        """Record every claim in the group, if this stream is new and `heldClaims` is not set. Call this before the stream joins.

        Args:
            commits: The group's commit for each partition.
        """
        if not self._fresh or self.policy.chosen:
            return
        self._claimed_before = frozenset(
            PartitionPlan(partition, claim.stream, claim.plan)
            for partition, commit in commits.items()
            if isinstance(commit, CommitRecord)
            for claim in (*commit.owed, *commit.open_as_owed)
        )

    def note(
        self, records: Mapping[TopicPartition, CommitRecord], stream: Stream, now: float, protected: Collection[str]
    ) -> None:
        """Record which streams are dead according to the latest answer. Answers come at least every SETTLE_BETWEEN_TRIGGERS_S.

        A live stream's ranges wait for that stream, however long its micro-batch takes.

        Args:
            records: The record of each of this member's partitions.
            stream: This member's stream.
            now: The time on a monotonic clock, in seconds.
            protected: Streams whose ranges must not be taken over now (`evidence.ConfirmedPlans.protected`).
        """
        dead = {plan for plan, entry in _held(records, stream) if entry.stream not in protected}
        # Remove a stream that comes back, even between two triggers. Otherwise, the next time it died, it would have no time to
        # restart: its range would be read by this query immediately, and again by that stream.
        self._dead_since = {plan: self._dead_since.get(plan, now) for plan in dead}
        self._noted_at = now

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget partitions that this member no longer has. If they come back, their held ranges' time limits start over."""
        self._dead_since = {plan: since for plan, since in self._dead_since.items() if plan.partition not in partitions}

    def to_reread(
        self, records: Mapping[TopicPartition, CommitRecord], stream: Stream, protected: Collection[str] = frozenset()
    ) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
        """Return the held ranges in these partitions that the next plan of `stream` should read.

        These are the ranges whose streams had been dead for long enough when the newest answer was recorded.

        Args:
            records: The record of each partition that the stream may plan.
            stream: The stream that plans.
            protected: As in `note`, but according to the current records.
        """
        reread_after_s = self.policy.reread_after_s
        if reread_after_s is None:
            return {}
        # If the newest answer is older than the newest adoption, `protected` may include streams that the answer shows as dead.
        due: dict[TopicPartition, tuple[OffsetRange, ...]] = {}
        for plan, entry in _held(records, stream):
            dead = plan in self._dead_since and entry.stream not in protected
            if dead and self._noted_at - self._dead_since[plan] >= reread_after_s:
                due[plan.partition] = (*due.get(plan.partition, ()), entry.range)
        return due

    def with_room(
        self, records: Mapping[TopicPartition, CommitRecord], ranges: Ranges
    ) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
        """Return the ranges of a plan that fit into the partitions' records, and warn once about each full record.

        Args:
            records: The records, which cover at least these partitions.
            ranges: As in `rules.claimable`. Each partition's last range starts at its position.
        """
        kept = {partition: with_room(records[partition], offsets) for partition, offsets in ranges.items()}
        # A range is left out only if the record has no room for it.
        full = frozenset(partition for partition, offsets in ranges.items() if kept[partition] != offsets)
        for partition in sorted(full - self._full):
            owed = records[partition].owed
            log.warning(
                "%s: its commit record is full, so new records in this partition will not be read until held ranges are "
                "confirmed or reread. The commit record contains %d held ranges from these streams: %s. Restart their queries, "
                "or set heldClaims=reread",
                partition,
                len(owed),
                ", ".join(sorted({entry.stream for entry in owed})),
            )
        self._full = full
        return kept

    def warn(self, records: Mapping[TopicPartition, CommitRecord], stream: Stream) -> None:
        """Warn once about each plan with held ranges. First, warn about claims that are older than this query.

        Args:
            records: The record of each of this member's partitions.
            stream: This member's stream.
        """
        self._warn_of_earlier(_held(records, stream))
        reread_after_s = self.policy.reread_after_s
        if reread_after_s is None:
            fate = "only that stream will read them, once its query restarts from its checkpoint (heldClaims=hold)"
        elif reread_after_s == 0:
            fate = "this query will read them in its next micro-batch (heldClaims=reread)"
        else:
            fate = f"if they are not confirmed within {reread_after_s:.0f} s, this query will read them (heldClaims=reread-after)"
        of_plans: dict[tuple[str, int], list[tuple[TopicPartition, OwedRange]]] = defaultdict(list)
        for partition, record in records.items():
            for owed in record.owed:
                if owed.stream != record.stream:  # otherwise this query reads or replays the range itself
                    of_plans[owed.stream, owed.plan].append((partition, owed))
        unlogged = of_plans.keys() - self._logged
        self._logged = frozenset(of_plans)
        for name, plan in sorted(unlogged):
            ranges = of_plans[name, plan]
            log.warning(
                "%d offsets are held: stream %s claimed them but has not confirmed them; %s. They were claimed at %s, in %s. "
                "Until they are confirmed, the committed offsets cannot move past them, and finished records above them count "
                "as lag: %d so far",
                sum(owed.range.size for _, owed in ranges),
                name,
                fate,
                _claimed_at(ranges),
                listed([f"{partition} {owed.range}" for partition, owed in sorted(ranges)]),
                sum(_finished_lag(owed, records[partition]) for partition, owed in ranges),
            )

    def _warn_of_earlier(self, held: Iterable[tuple[PartitionPlan, OwedRange]]) -> None:
        """Warn once about claims that are older than this new query and whose streams are not running."""
        earlier = [(plan, entry) for plan, entry in held if plan in self._claimed_before and plan in self._dead_since]
        unwarned = frozenset(plan for plan, _ in earlier) - self._warned
        if not unwarned:
            return
        self._warned |= unwarned
        log.warning(
            "this query is new: its checkpoint was empty when it started. Queries that are not running now have claimed but "
            "not confirmed %d offsets in %d partitions: streams %s. This query will leave these ranges to those queries, and "
            "read everything else. To get every record once, restart those queries from their checkpoints. This query may run "
            "alongside them. If it was meant to continue from one of their checkpoints, and the path was changed by mistake, "
            "stop it, run it again from its current checkpoint with trigger(availableNow=True), so that it leaves nothing "
            "claimed, and then set the right path. If a checkpoint was deleted, set heldClaims=reread, so that this query "
            "reads the ranges; records that had already reached the output will be duplicated",
            sum(entry.range.size for _, entry in earlier),
            len({plan.partition for plan, _ in earlier}),
            ", ".join(sorted({entry.stream for _, entry in earlier})),
        )


def _held(records: Mapping[TopicPartition, CommitRecord], stream: Stream) -> list[tuple[PartitionPlan, OwedRange]]:
    """Return the ranges in these records that are owed to other streams, each with its plan."""
    return [
        (PartitionPlan(partition, entry.stream, entry.plan), entry)
        for partition, record in records.items()
        if record.owed
        for entry in owed_to_others(record, stream)
    ]


def _claimed_at(ranges: Iterable[tuple[TopicPartition, OwedRange]]) -> str:
    """Return the earliest time at which one of these ranges was claimed, as text for a log line."""
    times = [owed.since for _, owed in ranges if owed.since is not None]
    return f"{datetime.fromtimestamp(min(times), tz=timezone.utc):%Y-%m-%dT%H:%M:%SZ}" if times else "an unknown time"


def _finished_lag(owed: OwedRange, record: CommitRecord) -> int:
    """Return how many finished offsets count as lag because of this range: 0 unless it is its partition's lowest."""
    held = record.lowest_claim
    return held.finished_lag if held is not None and held.claim == owed else 0
