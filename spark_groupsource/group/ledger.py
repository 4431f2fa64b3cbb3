"""Keeps each owned partition's commit record, as the group has accepted it, and carries out the steps that change it.

Each step asks the pure rules (handoff/rules.py) which records to write, writes them in one commit (or a few, if there are
thousands), and stores them only once the group has accepted them. adopting.py decides when to adopt a partition, and closing.py
decides which reports close claims.

Everything here runs on the consumer's thread, except `report_durable`. Other threads read `positions`, `held` and `closed`,
which are replaced, never modified.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from spark_groupsource.errors import CheckpointBehindGroup, CommitOutcomeUnknown, GroupKafkaError, TopicNotFound
from spark_groupsource.group.adopting import Adopting, adopted_records
from spark_groupsource.group.closing import Closing
from spark_groupsource.group.evidence import ConfirmedPlans, GroupReader, progress_record
from spark_groupsource.group.fenced_commits import FencedCommits
from spark_groupsource.group.held_ranges import HeldRanges
from spark_groupsource.group.survey import BrokersAnswer, Survey, warn_of_another_cluster
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit
from spark_groupsource.handoff.losses import PartitionLoss, record_after, warn
from spark_groupsource.handoff.rules import (
    HOLD,
    HeldClaims,
    Stream,
    claim,
    claimable,
    confirm,
    has_claims,
    owed_to_others,
    refuse_behind,
    settle,
)
from spark_groupsource.observer import UNOBSERVED, Observer
from spark_groupsource.partition import OffsetRange, Ranges, TopicPartition, with_offsets

log = logging.getLogger(__name__)

BLOCKED_AFTER_S = 2.0
"""How long a claim may wait for another member to adopt a partition before this member stops draining its own partitions, in
seconds."""

SETTLE_INTERVAL_S = 2.0
"""How many seconds must pass before a plan checks again whether other streams have confirmed their held ranges."""

SETTLE_BETWEEN_TRIGGERS_S = 10.0
"""How often held ranges are rechecked between two triggers, in seconds. The next trigger may be an hour away."""

Records = Mapping[TopicPartition, CommitRecord]


@dataclass(frozen=True)
class Claims:
    """The outcome of one attempt to claim a plan's ranges."""

    granted: Ranges
    waiting: frozenset[TopicPartition]
    """Partitions whose claim has to wait, because this member does not own them and no other member has adopted them yet."""


@dataclass(frozen=True)
class PlanInput:
    """The records and held ranges from which the next plan is made, all from the same moment."""

    records: Records
    """The record of each owned partition, with the claims of durable plans closed."""
    reread: Ranges
    """The ranges owed to other streams that this stream reads in their place (`heldClaims`)."""


class Ledger:
    """Reads, writes and keeps the commit records of this member's partitions.

    Each step that commits may raise `CommitError`, `BrokerError` or `MemberFenced` (fenced_commits.FencedCommits). After a
    retriable error the step may be repeated.
    """

    def __init__(
        self,
        stream: Stream,
        commits: FencedCommits,
        *,
        survey: Survey,
        reader: GroupReader,
        fail_on_data_loss: bool = True,
        held_claims: HeldClaims = HOLD,
        patience_s: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        observer: Observer = UNOBSERVED,
    ) -> None:
        """Start with no partitions.

        Args:
            stream: the stream as its checkpoint describes it. If the checkpoint is new and empty, `logged` is below 0.
            commits: reads and writes the group's records.
            survey: asks the brokers about partitions that are about to be adopted.
            reader: reads the records of other members' partitions, on other threads.
            fail_on_data_loss: whether a recreated topic makes the query fail. If not, it is read from the beginning.
            held_claims: the user's choice for ranges that are owed to other streams.
            patience_s: how many seconds retriable errors may delay a partition's adoption. Each partition has its own limit,
                which is paused while its topic does not exist.
            clock: returns monotonic time in seconds.
            wall_clock: returns seconds since 1970, for the timestamp in a claim.
            observer: receives the records whenever they change.
        """
        self._stream = stream
        """The stream as its checkpoint describes it. `claim` replaces it; `durable` and reports advance its durable plan."""
        self._commits = commits
        self._clock = clock
        self._wall_clock = wall_clock
        self._observer = observer
        self._adopting = Adopting(survey, fail_on_data_loss=fail_on_data_loss, patience_s=patience_s, clock=clock)
        self._closing = Closing(clock=clock)
        self._confirmed_plans = ConfirmedPlans(reader, clock=clock)
        self._held_ranges = HeldRanges(held_claims, fresh=stream.logged < 0)
        self._records: dict[TopicPartition, CommitRecord] = {}
        """The record of each adopted partition, as the group has accepted it."""
        self._draining: set[TopicPartition] = set()
        self._planned: frozenset[TopicPartition] = frozenset()
        """Partitions owned ever since the newest plan was made, with a range in it that has not been claimed yet."""
        self._blocked_at: float | None = None
        """When a claim began to wait for another member to adopt a partition."""
        self.may_be_claimed = False
        """Whether the group may have claims from this stream that none of its records shows as done. Any thread may read it."""
        self._invisible = -1
        """The newest plan about which the query has warned that no record can show it as done."""
        self.positions: Mapping[TopicPartition, int] = MappingProxyType({})
        """The next offset to plan in each partition that new plans may include. Any thread may read it."""
        self.held: Mapping[TopicPartition, int] = MappingProxyType({})
        """The number of offsets held for other streams in each owned partition that has any. Any thread may read it."""

    # Called from any thread.

    def report_durable(self, stream: str, plan: int) -> None:
        """Store a report that Spark's commit log has this plan of the stream. `close_reported` acts on the report."""
        self._closing.report(stream, plan)

    @property
    def closed(self) -> int:
        """The newest plan whose claims were closed because it was reported as durable; -1 if there was none."""
        return self._closing.closed

    @property
    def given_up(self) -> int:
        """The newest plan that was reported as durable but whose claims the group refused to close; -1 if there was none."""
        return self._closing.given_up

    # Called before the member joins.

    def note_group(self, commits: Mapping[TopicPartition, GroupCommit]) -> None:
        """Store the commits for all partitions of the subscribed topics, and refuse to start if the checkpoint is behind them.

        Raises:
            CheckpointBehindGroup: a record shows plans from this stream that are missing from its checkpoint.
        """
        self._held_ranges.note_earlier_claims(commits)
        refuse_behind(self._stream, commits)
        self._confirmed_plans.note(commits)
        unknown = self._stream.ranges.keys() - commits.keys()  # of topics that the query no longer subscribes to
        self.may_be_claimed = bool(unknown) or any(has_claims(commit, self._stream.name) for commit in commits.values())

    # Called by the member, as steps in the life of a partition. Retriable errors are handled here.

    def acquired(self, partitions: frozenset[TopicPartition]) -> None:
        """Start adopting the partitions. `idle` continues once the brokers have answered, and retries after errors."""
        self._adopting.acquired(partitions - self._records.keys())
        self.close_reported()
        self._adopt_acquired()

    def draining(self, partitions: frozenset[TopicPartition]) -> None:
        """Leave the partitions out of new plans, and close durable plans' claims."""
        self._believe_report()
        self._draining |= partitions
        self._publish()
        self._confirm_if_possible(partitions)

    def in_flight(self, partitions: frozenset[TopicPartition]) -> bool:
        """Return whether these partitions have planned or claimed ranges that are worth waiting for."""
        # The claim may be waiting for a member that is itself draining and waiting for these partitions. Neither would continue
        # until a drain timed out. Claims that are still open at release stay with this stream, so nothing is lost or read twice.
        if self._blocked_at is not None and self._clock() - self._blocked_at >= BLOCKED_AFTER_S:
            return False
        # No commit can close a claim in a deleted topic, so a drain that waited for it would always time out.
        return any(
            partition in self._planned or (partition in self._records and self._records[partition].open)
            for partition in partitions.difference(self._closing.unclosable)
        )

    def released(self, partitions: frozenset[TopicPartition]) -> None:
        """Close durable plans' claims, then forget the partitions. Open claims stay in the group's record."""
        # This is the last chance to close claims. The next owner holds any that are still open, and they count as lag.
        self._believe_report()
        self._confirm_if_possible(partitions)
        self.lost(partitions)

    def lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Forget the partitions without committing anything."""
        for partition in partitions:
            record = self._records.pop(partition, None)
            self.may_be_claimed |= record is not None and has_claims(record, self._stream.name)
        self._adopting.forget(partitions)
        self._held_ranges.forget(partitions)
        # Another member may own the partitions by now and read the ranges that are planned here. If this stream still claimed
        # these ranges, both would read them.
        self._planned -= partitions
        self._draining -= partitions
        self._publish()

    def idle(self) -> None:
        """Do the work due between polls: close finished plans' claims, drop settled ranges, and continue adopting partitions.

        Raises:
            GroupKafkaError: an error that is not retriable, or that has persisted for longer than `patience_s`.
        """
        self.close_reported()
        self._ask_which_plans_are_done(SETTLE_BETWEEN_TRIGGERS_S)
        if self._confirmed_plans.take():
            self._held_ranges.note(self._records, self._stream, self._clock(), self._protected(self._records))
            self._settle()
            self._held_ranges.warn(self._records, self._stream)
        self._adopt_acquired()

    def close_reported(self) -> None:
        """Close the newest claimed plan's claims if the plan has been reported as durable.

        If the commit fails with a retriable error, it is retried. The next plan or claim also closes these claims, and raises any
        error that is not retriable.

        Raises:
            CommitOutcomeUnknown: the commit may still be written later, which could undo the next claim.
        """
        self._believe_report()
        if not self._closing.due:
            return
        try:
            self._except_deleted_topics(self.confirm)
        except CommitOutcomeUnknown:
            raise
        except GroupKafkaError as error:
            self._closing.failed(self._stream.durable, passing=error.passing)
            if error.passing:
                log.info("failed to confirm plan %d's claims, will retry: %s", self._stream.durable, error)
            else:
                _warn_of_open_claims(error)
        else:
            self._closing.succeeded(self._stream.durable, self._confirmed(self._records).keys())

    # Called by the micro-batch cycle (query/session.py), through `Member.call`.

    def ready(self) -> bool:
        """Return whether planning can begin: each partition's adoption was tried once, and some are adopted or none can be.

        None can be adopted if the group assigned none, or only partitions of deleted topics. If ranges are held for other
        streams, planning also waits for the first answer about which of them are done.
        """
        if self._adopting.undecided or self._confirmed_plans.unanswered:
            return False
        return bool(self._records) or self._adopting.only_deleted

    def durable(self, plan: int) -> None:
        """Record that Spark's commit log has `plan`. Confirm it in draining partitions now, and in others with the next claim."""
        if plan > self._stream.durable:
            self._stream = replace(self._stream, durable=plan, logged=max(plan, self._stream.logged))
        if self._draining:
            self._write(self._confirmed(self._draining))

    def begin_plan(self) -> PlanInput:
        """Ask which held ranges have been confirmed, and return the input for the next plan. `idle` later drops those ranges."""
        self._ask_which_plans_are_done(SETTLE_INTERVAL_S)
        return self.plan_input()

    def plan_input(self) -> PlanInput:
        """Return the input for the next plan: the records and the held ranges to reread."""
        return PlanInput(self.confirmed_records(), self.to_reread())

    def confirmed_records(self) -> dict[TopicPartition, CommitRecord]:
        """Return each owned partition's record, with durable plans' claims closed."""
        return {partition: confirm(record, self._stream) for partition, record in self._records.items()}

    def to_reread(self) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
        """Return the held ranges of other streams that this stream should read in their place (`heldClaims`)."""
        records = {partition: record for partition, record in self._records.items() if partition not in self._draining}
        return self._held_ranges.to_reread(records, self._stream, self._protected(records))

    def propose(self, planned: Ranges) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
        """Record a plan before Spark gets it, so that partitions that start to drain wait until the plan is claimed.

        This is the last point at which a plan may be shortened, because a claim moves the position to the planned end. Once Spark
        has the plan, each range is either claimed as it is or left out entirely.

        Returns:
            The ranges that may still be planned, without partitions that have moved in the meantime and without ranges that do
            not fit into the partition's record.
        """
        # The plan was made on another thread. A partition that is draining has no position now. A partition that left and came
        # back has a different position if its owner in between read from it: claiming from the old position would read those
        # records twice.
        wanted = {
            partition: claimable(self._records[partition], ranges)
            for partition, ranges in planned.items()
            if self.positions.get(partition) == ranges[-1].start
        }
        kept = self._held_ranges.with_room(self._records, wanted)
        self._planned = frozenset(with_offsets(kept))
        return kept

    def claim(self, stream: Stream) -> Claims:
        """Claim the ranges of plan `stream.logged` that this stream may read. The plan is already in Spark's offset log.

        The same commit confirms the previous plan. A second call has no effect. Empty ranges need no claim.

        Raises:
            CheckpointBehindGroup, CommitRecordUnreadable: see rules.claim.
        """
        # 1. Ignore reports until all claims are made. A report that arrives this early is about another copy of the checkpoint.
        #    Trusting it would close claims whose rows are not in the output.
        self._closing.claiming()
        self._stream = stream
        wanted = with_offsets(stream.ranges)
        # 2. Owned partitions' records are up to date here, because only this member can write them. All others are read again.
        in_group = {**self._commits.fetch(wanted.keys() - self._records.keys()), **self._records}
        now = int(self._wall_clock())
        verdicts = {
            partition: claim(
                stream,
                partition,
                in_group[partition],
                owned=partition in self._records,
                owned_since_planned=partition in self._planned,
                now=now,
            )
            for partition in wanted
        }
        # 3. The group accepts the claims before anything is read. Otherwise the next owner could start at the old position and
        #    read the same records. If this raises, the partitions stay in `_planned`, so the next attempt may claim them.
        writes = {partition: verdict.write for partition, verdict in verdicts.items() if verdict.write is not None}
        self._write({**self._confirmed(self._records.keys() - writes.keys()), **writes})
        # 4. Forget ranges that have a verdict, because a later attempt must not claim ranges that this attempt has left to
        #    others.
        waiting = frozenset(partition for partition, verdict in verdicts.items() if verdict.waits)
        self._planned -= wanted.keys() - waiting
        if not waiting:
            self._blocked_at = None
            self._closing.claimed(stream.logged)
        elif self._blocked_at is None:
            self._blocked_at = self._clock()
        return Claims({partition: verdict.read for partition, verdict in verdicts.items() if verdict.read}, waiting)

    def commits_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, GroupCommit]:
        """Return the group's commits for these partitions, whether this member owns them or not."""
        return self._commits.fetch(partitions)

    def confirm(self) -> None:
        """Close every durable plan's claims. Send nothing if the group's records are already up to date."""
        self._write(self._confirmed(self._records) or progress_record(self._stream, self._records))
        self._warn_if_invisible()

    def continue_after(self, losses: Iterable[PartitionLoss]) -> None:
        """Write the records with which partitions continue after lost offsets.

        A deleted topic's partitions are left alone until the group revokes them or the topic is recreated.
        """
        writes, deleted = _records_after(losses, self._records, self._stream)
        # Forget deleted topics before the commit, which may fail. When the query stops it commits again, and that commit must not
        # contain a deleted topic.
        for partition in deleted:
            del self._records[partition]
        self._planned -= deleted
        self._adopting.wait_for_topics(deleted - self._draining)
        self._publish()
        self._write(writes)

    # Helpers for the steps above.

    def _believe_report(self) -> None:
        """Treat the newest claimed plan as durable if it has been reported as durable, so that its claims can be closed."""
        self._stream = self._closing.believe(self._stream)

    def _protected(self, records: Records) -> frozenset[str]:
        """Return the streams whose ranges in these records must not be taken over now."""
        return self._confirmed_plans.protected(records.values(), self._records.keys() | self._adopting.partitions)

    def _adopt_acquired(self) -> None:
        """Ask the brokers about partitions that are due, and adopt those that have an answer."""
        if not self._adopting.partitions:
            return
        try:
            self._adopting.ask(self._stream, self._commits.fetch, draining=self._draining)
            for found in self._adopting.answers(self._stream, draining=self._draining):
                self._adopt(found)
        except GroupKafkaError as error:
            # After a quick restart the previous run may still be shutting down, and may have closed this run's claims because of
            # the same report. This run is about to get the report too, so an error now would stop a healthy query.
            unreported = isinstance(error, CheckpointBehindGroup) and self._closing.is_open(self._stream)
            if not self._adopting.try_again(error, passing=unreported):
                raise

    def _adopt(self, found: BrokersAnswer) -> None:
        """Write the records of partitions about which the brokers have answered, unless the group already has the same record."""
        done = self._confirmed_plans.done(self._stream)
        cluster_id, member = self._commits.cluster_id, self._commits.member
        adopted = adopted_records(self._stream, found, done=done, cluster_id=cluster_id, member=member)
        unwritten = {partition: record for partition, record in adopted.items() if record != found.commits[partition]}
        try:
            # Records that need no commit are stored first, so that the partitions are adopted even if another commit fails.
            self._note_written({partition: adopted[partition] for partition in adopted.keys() - unwritten.keys()})
            self._write(unwritten)
        finally:
            # Ask again about owed ranges even if the commit failed, because part of it may have been written. Otherwise a stream
            # that has come back since the last answer would still count as dead, and its ranges would be read twice.
            noted = adopted.keys() & self._records.keys()
            if any(adopted[partition].owed for partition in noted):
                self._confirmed_plans.adopted()
                self._ask_which_plans_are_done(0)
            warn(loss for loss in found.losses if loss.partition in noted)
            warn_of_another_cluster({partition: found.commits[partition] for partition in noted})

    def _ask_which_plans_are_done(self, interval_s: float) -> None:
        """Ask which owed ranges their streams have confirmed, unless no ranges are owed or the last question is too recent."""
        owned = self._records.keys() | self._adopting.partitions
        liveness_matters = self._held_ranges.liveness_matters
        self._confirmed_plans.ask(
            self._stream, owned, self._records.values(), liveness_matters=liveness_matters, interval_s=interval_s
        )

    def _settle(self) -> None:
        """Drop owed ranges that have been confirmed. If the commit fails, it is repeated after the next answer.

        Raises:
            CommitOutcomeUnknown: as in `close_reported`.
        """
        done = self._confirmed_plans.done(self._stream)
        try:
            self._except_deleted_topics(lambda: self._write(_changed(self._records, lambda record: settle(record, done))))
        except CommitOutcomeUnknown:
            raise
        except GroupKafkaError as error:
            log.info("failed to drop claims that other streams have confirmed, will retry: %s", error)

    def _confirm_if_possible(self, partitions: Iterable[TopicPartition]) -> None:
        """Close claims before a release. If the commit fails, the ranges stay claimed, and the next owner holds them.

        Raises:
            CommitOutcomeUnknown: as in `close_reported`.
        """
        try:
            self._write(self._confirmed(partitions))
        except CommitOutcomeUnknown:
            raise
        except GroupKafkaError as error:
            _warn_of_open_claims(error)

    def _except_deleted_topics(self, write: Callable[[], None]) -> None:
        """Call `write`, but ignore errors about topics that do not exist, because the next plan handles deleted topics."""
        try:
            write()
        except TopicNotFound as error:
            log.info("leaving plan %d's claims in a deleted topic to the next plan: %s", self._stream.durable, error)

    def _warn_if_invisible(self) -> None:
        """Warn once if a plan is finished but this stream owns no partition whose record could show that to other members."""
        plan = self._stream.durable
        if self._records or not self.may_be_claimed or not with_offsets(self._stream.ranges):
            return
        if plan == self._stream.logged and plan > self._invisible:
            self._invisible = plan
            log.warning(
                "a finished micro-batch from stream %s cannot be recorded in the group, because this query owns no partition "
                "at the moment. The micro-batch's held ranges count as lag until the group assigns a partition to this query",
                self._stream.name,
            )

    def _confirmed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommitRecord]:
        """Return the records in these partitions that change when durable plans' claims are closed."""
        owned = {partition: self._records[partition] for partition in partitions if partition in self._records}
        return _changed(owned, lambda record: confirm(record, self._stream))

    def _write(self, records: Records) -> None:
        """Commit the records to the group, and store those that the group accepts.

        Raises:
            TopicNotFound: some records' topics do not exist. All other records are written and stored.
        """
        for accepted in self._commits.write(records):
            # Store records only after the group has accepted them. If a claim were stored and then refused, both this stream and
            # the next owner would read its ranges.
            self._note_written(accepted)

    def _note_written(self, records: Records) -> None:
        """Store the records that the group has accepted."""
        self._records |= records
        # A record in which the newest plan is done shows other members that they may drop the ranges they hold for this stream.
        self.may_be_claimed &= all(record.done < self._stream.logged for record in records.values())
        self._adopting.adopted(records.keys())
        self._publish()

    def _publish(self) -> None:
        """Replace the values that other threads read."""
        self._observer.records_changed(self._records)
        self.positions = MappingProxyType(
            {partition: record.next for partition, record in self._records.items() if partition not in self._draining}
        )
        self.held = MappingProxyType(_held_for_others(self._records, self._stream))


def _changed(records: Records, rule: Callable[[CommitRecord], CommitRecord]) -> dict[TopicPartition, CommitRecord]:
    """Apply a rule to each record, and return the records that it changes."""
    ruled = {partition: rule(record) for partition, record in records.items()}
    return {partition: record for partition, record in ruled.items() if record is not records[partition]}


def _records_after(
    losses: Iterable[PartitionLoss], records: Records, stream: Stream
) -> tuple[dict[TopicPartition, CommitRecord], set[TopicPartition]]:
    """Return the records to write after these losses, and the partitions whose topics were deleted."""
    writes: dict[TopicPartition, CommitRecord] = {}
    deleted: set[TopicPartition] = set()
    for loss in losses:
        record = records.get(loss.partition)
        # Losses are found on another thread. If the position has changed in the meantime, the loss no longer applies.
        if record is None or loss.position not in {None, record.next}:
            continue
        if loss.resume is None:
            deleted.add(loss.partition)
        else:
            writes[loss.partition] = record_after(loss, loss.resume, confirm(record, stream))
    return writes, deleted


def _held_for_others(records: Records, stream: Stream) -> dict[TopicPartition, int]:
    """Return the number of offsets held for other streams in each partition that has such offsets."""
    return {
        partition: sum(entry.range.size for entry in owed)
        for partition, record in records.items()
        if record.owed and (owed := owed_to_others(record, stream))
    }


def _warn_of_open_claims(error: GroupKafkaError) -> None:
    """Warn that a commit failed with this error, so claims could not be closed."""
    log.warning("claims of finished micro-batches will stay unconfirmed until this stream commits again: %s", error)
