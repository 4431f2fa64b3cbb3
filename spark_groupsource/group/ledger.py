"""The record of each owned partition, as the group has it, and the steps that change it.

Each step asks the pure rules (handoff/rules.py) which records to write, has the group accept them in one commit (or in a few, if
there are thousands), and only then notes them. What is adopted when is decided in adopting.py, which report closes claims in
closing.py.

Everything here runs on the consumer's thread, but for `report_durable`. Other threads read `positions`, `held` and `closed`,
which are replaced and never edited.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from spark_groupsource.errors import CheckpointBehindGroup, CommitOutcomeUnknown, GroupKafkaError, TopicNotFound
from spark_groupsource.group.adopting import Adopting, adopted_records
from spark_groupsource.group.brokers_answer import BrokersAnswer, warn_of_another_cluster
from spark_groupsource.group.closing import Closing
from spark_groupsource.group.evidence import ConfirmedPlans, GroupReader, record_that_shows
from spark_groupsource.group.fenced_commits import FencedCommits
from spark_groupsource.group.held_ranges import HeldRanges
from spark_groupsource.group.survey import Survey
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit
from spark_groupsource.handoff.losses import PartitionLoss, record_after, warn
from spark_groupsource.handoff.rules import (
    HOLD,
    Evidence,
    OutstandingClaims,
    Stream,
    Verdict,
    claim,
    claimable,
    confirm,
    has_claims,
    owed_to_others,
    refuse_behind,
    settle,
)
from spark_groupsource.observer import UNOBSERVED, Observer
from spark_groupsource.partition import OffsetRange, Ranges, TopicPartition

log = logging.getLogger(__name__)

BLOCKED_AFTER_S = 2.0
"""How long a claim may wait for another member to adopt a partition before this member stops draining others."""

SETTLE_INTERVAL_S = 2.0
"""How often a plan of a member that holds ranges for other streams checks whether those streams have confirmed them."""

SETTLE_BETWEEN_TRIGGERS_S = 10.0
"""How often it checks that between two triggers: the next one may be an hour away."""

Records = Mapping[TopicPartition, CommitRecord]


@dataclass(frozen=True)
class Claims:
    """The outcome of one attempt to claim a plan's ranges."""

    granted: Ranges
    waiting: frozenset[TopicPartition]
    """Partitions that this member does not own, and that nobody has adopted yet."""


@dataclass(frozen=True)
class Opened:
    """What a plan is made of, as of one moment."""

    records: Records
    """The record of each owned partition, with the claims of durable plans closed."""
    again: Ranges
    """The ranges that are owed to other streams and that this one reads instead."""


class Ledger:
    """The records of the partitions that this member owns. It is the `RecordKeeper` of a `member.Member`.

    Each step that commits raises `CommitError`, `BrokerError` or `MemberFenced` (fenced_commits.FencedCommits). After a passing
    error it may be taken again.
    """

    def __init__(
        self,
        stream: Stream,
        commits: FencedCommits,
        *,
        survey: Survey,
        reader: GroupReader,
        fail_on_data_loss: bool = True,
        outstanding: OutstandingClaims = HOLD,
        patience_s: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        observer: Observer = UNOBSERVED,
    ) -> None:
        """Begin without a partition.

        Args:
            stream: what the checkpoint says. A stream whose checkpoint is new and empty has `logged` below 0.
            commits: reads and writes the group's records.
            survey: asks the brokers about partitions that are to be adopted.
            reader: reads what the group holds for partitions of others, on other threads.
            fail_on_data_loss: whether a topic that was created again ends the query, or is read from its beginning.
            outstanding: what becomes of ranges that are owed to other streams.
            patience_s: how many seconds passing errors may delay the adoption of a partition. Each has its own time. None runs
                for a partition whose topic does not exist.
            clock: returns seconds, monotonic.
            wall_clock: returns seconds since 1970, for the time that a claim records.
            observer: receives the records whenever they change.
        """
        self._stream = stream
        """What the stream knows of itself. `claim` replaces it; `durable` and a report raise the newest durable plan in it."""
        self._commits = commits
        self._clock = clock
        self._wall_clock = wall_clock
        self._observer = observer
        self._adopting = Adopting(survey, fail_on_data_loss=fail_on_data_loss, patience_s=patience_s, clock=clock)
        self._closing = Closing(clock=clock)
        self._confirmed_plans = ConfirmedPlans(reader, clock=clock)
        self._held_ranges = HeldRanges(outstanding, fresh=stream.logged < 0)
        self._records: dict[TopicPartition, CommitRecord] = {}
        """The record of each adopted partition, as the group has accepted it."""
        self._draining: set[TopicPartition] = set()
        self._planned: frozenset[TopicPartition] = frozenset()
        """Partitions with a range in the newest plan, owned ever since, and not claimed yet."""
        self._blocked_at: float | None = None
        """Since when a claim has waited for another member to adopt a partition."""
        self.may_be_claimed = False
        """Whether the group may have claims of this stream that none of its records shows as done. Any thread may read it."""
        self._invisible = -1
        """The newest plan of which it was logged that no record can show it as done."""
        self.positions: Mapping[TopicPartition, int] = MappingProxyType({})
        """The next offset to plan of each partition that new plans may have. Any thread may read it."""
        self.held: Mapping[TopicPartition, int] = MappingProxyType({})
        """How many offsets are held for other streams, for each owned partition with any. Any thread may read it."""

    # Called from any thread.

    def report_durable(self, stream: str, plan: int) -> None:
        """Note a report that Spark has `plan` of `stream` in its commit log; `close_reported` acts on it."""
        self._closing.report(stream, plan)

    @property
    def closed(self) -> int:
        """The newest plan whose claims were closed because it was reported as durable; -1 if there was none."""
        return self._closing.closed

    # Called before the member joins.

    def note_group(self, commits: Mapping[TopicPartition, GroupCommit]) -> None:
        """Note what the group holds for every partition of the subscribed topics.

        Raises:
            CheckpointBehindGroup: some record knows plans of this stream that its checkpoint does not.
        """
        self._held_ranges.note_earlier_claims(commits)
        refuse_behind(self._stream, commits)
        self._confirmed_plans.note(commits)
        unknown = self._stream.ranges.keys() - commits.keys()  # of topics that the query no longer subscribes to
        self.may_be_claimed = bool(unknown) or any(has_claims(commit, self._stream.name) for commit in commits.values())

    # Called by the member (member.RecordKeeper).

    def acquired(self, partitions: frozenset[TopicPartition]) -> None:
        """Begin to adopt the partitions. `idle` does it when the brokers have answered, and tries again after a passing error."""
        self._adopting.acquired(partitions - self._records.keys())
        self.close_reported()
        self._adopt_acquired()

    def draining(self, partitions: frozenset[TopicPartition]) -> None:
        """Leave the partitions out of new plans, and close the claims of durable plans."""
        self._believe_report()
        self._draining |= partitions
        self._publish()
        self._confirm_if_possible(partitions)

    def in_flight(self, partitions: frozenset[TopicPartition]) -> bool:
        """Return whether a range of these is planned, or claimed and not yet confirmed, and may be confirmed soon."""
        # The member that a claim waits for may drain, too, and wait for these partitions: both would stand still until a drain
        # times out. Claims that are released open stay this stream's, so nothing is lost or read twice.
        if self._blocked_at is not None and self._clock() - self._blocked_at >= BLOCKED_AFTER_S:
            return False
        # No commit closes a claim in a deleted topic: a drain that waited for it would always time out.
        return any(
            partition in self._planned or (partition in self._records and self._records[partition].open)
            for partition in partitions.difference(self._closing.unclosable)
        )

    def released(self, partitions: frozenset[TopicPartition]) -> None:
        """Close the claims of durable plans, then forget the partitions. Open claims stay in the group's record."""
        # The last moment: what is open when this returns is owed to this stream by the next owner, and counts as lag until then.
        self._believe_report()
        self._confirm_if_possible(partitions)
        self.lost(partitions)

    def lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Forget the partitions."""
        for partition in partitions:
            record = self._records.pop(partition, None)
            self.may_be_claimed |= record is not None and has_claims(record, self._stream.name)
        self._adopting.forget(partitions)
        self._held_ranges.forget(partitions)
        # Another member may own them by now, and read what was planned here: a claim of this plan would read it once more.
        self._planned -= partitions
        self._draining -= partitions
        self._publish()

    def idle(self) -> None:
        """Close and settle what is confirmed. Adopt the acquired partitions that the brokers have answered for; ask about others.

        Raises:
            GroupKafkaError: an error that does not pass, or that has lasted for longer than the patience.
        """
        self.close_reported()
        self._ask_what_is_done(SETTLE_BETWEEN_TRIGGERS_S)
        if self._confirmed_plans.take():
            self._held_ranges.note(self._records, self._stream, self._clock(), self._protected(self._records))
            self._settle()
            self._held_ranges.warn(self._records, self._stream)
        self._adopt_acquired()

    def close_reported(self) -> None:
        """Close the claims of the newest claimed plan if it is reported as durable; else do nothing.

        What cannot be committed now is tried again. The next plan or claim closes it, too, and raises what does not pass.

        Raises:
            CommitOutcomeUnknown: a confirmation that arrives late could undo the next claim.
        """
        self._believe_report()
        if not self._closing.due:
            return
        try:
            self._but_for_deleted(self.confirm)
        except CommitOutcomeUnknown:
            raise
        except GroupKafkaError as error:
            self._closing.failed(passing=error.passing)
            if error.passing:
                log.info("closing the claims of plan %d failed and is tried again: %s", self._stream.durable, error)
            else:
                _warn_of_open_claims(error)
        else:
            self._closing.succeeded(self._stream.durable, self._confirmed(self._records).keys())

    # Called by the micro-batch cycle (query/session.py), through `Member.call`.

    def ready(self) -> bool:
        """Return whether planning can begin: each partition was tried once, and one is adopted or none can be.

        None can be if the group assigned none, or only partitions of deleted topics. If ranges are held for other streams, it was
        also asked once which of them are done.
        """
        if self._adopting.undecided or self._confirmed_plans.unanswered:
            return False
        return bool(self._records) or self._adopting.only_deleted

    def durable(self, plan: int) -> None:
        """Note that Spark has `plan` in its commit log; confirm the partitions that drain at once."""
        if plan > self._stream.durable:
            self._stream = replace(self._stream, durable=plan, logged=max(plan, self._stream.logged))
        if self._draining:
            self._write(self._confirmed(self._draining))

    def begin_plan(self) -> Opened:
        """Begin the plan that follows the newest durable one. Return what it is made of."""
        self.ask_what_is_settled()
        return self.opened()

    def opened(self) -> Opened:
        """Return what the next plan is made of."""
        return Opened(self.known(), self.to_reread())

    def known(self) -> dict[TopicPartition, CommitRecord]:
        """Return the record of each owned partition, with the claims of durable plans closed."""
        return {partition: confirm(record, self._stream) for partition, record in self._records.items()}

    def to_reread(self) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
        """Return the ranges that are owed to other streams and that this one reads instead (`outstandingClaims`)."""
        records = {partition: record for partition, record in self._records.items() if partition not in self._draining}
        return self._held_ranges.to_reread(records, self._stream, self._protected(records))

    def propose(self, planned: Ranges) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
        """Note a plan before Spark gets it. So its partitions count as in flight, and drain until it is claimed.

        Returns:
            The ranges that may still be planned: partitions that have moved meanwhile are left out, and ranges for which the
            partition's record has no room.
        """
        # The plan was made on another thread. A partition that drains has no position now. One that left and came back has
        # another, if somebody read on meanwhile: a claim from the old one would read those records twice.
        wanted = {
            partition: claimable(self._records[partition], ranges)
            for partition, ranges in planned.items()
            if self.positions.get(partition) == ranges[-1].start
        }
        kept = self._held_ranges.with_room(self._records, wanted)
        self._planned = frozenset(_not_empty(kept))
        return kept

    def claim(self, stream: Stream) -> Claims:
        """Claim what can be claimed of plan `stream.logged`, which is in Spark's offset log.

        The same commit confirms the previous plan. Calling it again changes nothing. Empty ranges need no claim.

        Raises:
            CheckpointBehindGroup, CommitRecordUnreadable: see rules.claim.
        """
        # 1. From here on no report counts until all claims are made. One that comes so early is of another copy of the
        #    checkpoint: it would close claims whose rows no sink has.
        self._closing.claiming()
        self._stream = stream
        wanted = _not_empty(stream.ranges)
        # 2. Records of owned partitions are as noted: nobody else can write them. Those of others have to be as they are now.
        held = {**self._commits.fetch(wanted.keys() - self._records.keys()), **self._records}
        verdicts = self._verdicts({partition: held[partition] for partition in wanted})
        # 3. The group accepts the claims before anything is read. Otherwise a next owner could begin at the old position, and
        #    read the same records. If this raises, the partitions stay planned, so the next attempt may claim them.
        writes = {partition: verdict.write for partition, verdict in verdicts.items() if verdict.write is not None}
        self._write({**self._confirmed(self._records.keys() - writes.keys()), **writes})
        # 4. What is decided is not planned any more: a later attempt must not claim what this one has left to others.
        waiting = frozenset(partition for partition, verdict in verdicts.items() if verdict.waits)
        self._planned -= wanted.keys() - waiting
        if not waiting:
            self._blocked_at = None
            self._closing.claimed(stream.logged)
        elif self._blocked_at is None:
            self._blocked_at = self._clock()
        return Claims({partition: verdict.read for partition, verdict in verdicts.items() if verdict.read}, waiting)

    def commits_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, GroupCommit]:
        """Return what the group holds for these partitions, owned by this member or not."""
        return self._commits.fetch(partitions)

    def confirm(self) -> None:
        """Close the claims of every durable plan. Nothing is sent if nothing is open and nobody has to learn that it is done."""
        self._write(self._confirmed(self._records) or record_that_shows(self._stream, self._records))
        self._warn_if_invisible()

    def ask_what_is_settled(self) -> None:
        """Ask which owed ranges their streams have confirmed, every SETTLE_INTERVAL_S at most. `idle` drops these."""
        self._ask_what_is_done(SETTLE_INTERVAL_S)

    def go_on(self, losses: Iterable[PartitionLoss]) -> None:
        """Continue behind what is lost.

        A partition of a deleted topic is left until the group asks it back, or the topic is created again.
        """
        writes, deleted = _records_after(losses, self._records, self._stream)
        # First, because the commit may fail: the query commits once more on its way out, and must not for a deleted topic.
        for partition in deleted:
            del self._records[partition]
        self._planned -= deleted
        self._adopting.wait_for_topics(deleted - self._draining)
        self._publish()
        self._write(writes)

    # The steps that these are made of.

    def _believe_report(self) -> None:
        """Take the newest claimed plan for durable, if it was reported as that. Its claims are then to be closed."""
        self._stream = self._closing.believe(self._stream)

    def _verdicts(self, held: Mapping[TopicPartition, GroupCommit]) -> dict[TopicPartition, Verdict]:
        """Return what is claimed of the newest plan in these partitions, of which the group holds this now."""
        now = int(self._wall_clock())
        return {
            partition: claim(
                self._stream,
                partition,
                commit,
                owned=partition in self._records,
                held_since_planned=partition in self._planned,
                now=now,
            )
            for partition, commit in held.items()
        }

    def _protected(self, records: Records) -> frozenset[str]:
        """Return the streams whose ranges in these records must not be taken over now."""
        return self._confirmed_plans.protected(records.values(), self._records.keys() | self._adopting.partitions)

    def _adopt_acquired(self) -> None:
        if not self._adopting.partitions:
            return
        try:
            self._adopting.ask(self._stream, self._commits.fetch, draining=self._draining)
            for found in self._adopting.answers(self._stream, draining=self._draining):
                self._adopt(found)
        except GroupKafkaError as error:
            # A query that was stopped and started again at once: its earlier run, which ends, has closed this run's claims on the
            # same report. This run learns of it in a moment. Raised now, the error would end a query that is right.
            unreported = isinstance(error, CheckpointBehindGroup) and self._closing.is_open(self._stream)
            if not self._adopting.try_again(error, passing=unreported):
                raise

    def _adopt(self, found: BrokersAnswer) -> None:
        """Write the records of partitions that the brokers have answered for, unless the group has the same already."""
        done = self._confirmed_plans.done(self._stream)
        cluster_id, member = self._commits.cluster_id, self._commits.member
        adopted = adopted_records(self._stream, found, done=done, cluster_id=cluster_id, member=member)
        new = {partition: record for partition, record in adopted.items() if record != found.commits[partition]}
        try:
            # What needs no commit is noted first: it is adopted even if the commit for the others fails.
            self._note_written({partition: adopted[partition] for partition in adopted.keys() - new.keys()})
            self._write(new)
        finally:
            # Also if the commit failed, because a part of it may be written. What is owed there is asked about anew. Otherwise a
            # stream that has come since the last answer would still count as dead, and its ranges would be read twice.
            held = adopted.keys() & self._records.keys()
            if any(adopted[partition].owed for partition in held):
                self._confirmed_plans.adopted()
                self._ask_what_is_done(0)
            warn(loss for loss in found.losses if loss.partition in held)
            warn_of_another_cluster({partition: found.commits[partition] for partition in held})

    def _ask_what_is_done(self, interval_s: float) -> None:
        """Ask which owed ranges their streams have confirmed, if any are owed and it was not just asked."""
        owned = self._records.keys() | self._adopting.partitions
        takes_over = self._held_ranges.takes_over
        self._confirmed_plans.ask(self._stream, owned, self._records.values(), takes_over=takes_over, interval_s=interval_s)

    def _settle(self) -> None:
        """Drop owed ranges that are confirmed. What fails is tried again with the next answer.

        Raises:
            CommitOutcomeUnknown: as `close_reported`.
        """
        try:
            self._but_for_deleted(lambda: self._write(self._settled(self._confirmed_plans.done(self._stream))))
        except CommitOutcomeUnknown:
            raise
        except GroupKafkaError as error:
            log.info("claims that other streams have confirmed are dropped later: %s", error)

    def _confirm_if_possible(self, partitions: Iterable[TopicPartition]) -> None:
        """Confirm before a release. What cannot be committed now stays claimed, and the next owner holds it for this stream.

        Raises:
            CommitOutcomeUnknown: a confirmation that arrives late could undo the next claim.
        """
        try:
            self._write(self._confirmed(partitions))
        except CommitOutcomeUnknown:
            raise
        except GroupKafkaError as error:
            _warn_of_open_claims(error)

    def _but_for_deleted(self, write: Callable[[], None]) -> None:
        """Write records. Those of topics that do not exist are left to the next plan, which finds out."""
        try:
            write()
        except TopicNotFound as error:
            log.info("claims of plan %d in a deleted topic are left to the next plan: %s", self._stream.durable, error)

    def _warn_if_invisible(self) -> None:
        """Log once of a finished plan that no record of this stream can show it to those who may hold ranges for it."""
        plan = self._stream.durable
        if self._records or not self.may_be_claimed or not _not_empty(self._stream.ranges):
            return
        if plan == self._stream.logged and plan > self._invisible:
            self._invisible = plan
            log.warning(
                "plan %d of stream %s is finished, but this query owns no partition now, so it cannot say so in the group. If "
                "others hold ranges of it, they stay owed, and count as lag, until the group gives this query a partition",
                plan,
                self._stream.name,
            )

    def _confirmed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommitRecord]:
        """Return the records of these partitions with durable plans closed; only those that change."""
        owned = {partition: self._records[partition] for partition in partitions if partition in self._records}
        # What an earlier release left open is owed to this stream itself. It is as done as what is open.
        done = {self._stream.name: self._stream.durable}
        return _changed(owned, lambda record: settle(confirm(record, self._stream), done))

    def _settled(self, done: Evidence) -> dict[TopicPartition, CommitRecord]:
        """Return the records without the owed ranges of these plans; only those that change."""
        return _changed(self._records, lambda record: settle(record, done))

    def _write(self, records: Records) -> None:
        """Write the records.

        Raises:
            TopicNotFound: topics of some records do not exist. All others are written, and count.
        """
        for accepted in self._commits.write(records):
            # Not before: a claim that counts here, and that the group refuses, is read here and by the next owner.
            self._note_written(accepted)

    def _note_written(self, records: Records) -> None:
        """Note the records that the group has now."""
        self._records |= records
        # From such a record others learn that they may drop what they hold for this stream.
        self.may_be_claimed &= all(record.done < self._stream.logged for record in records.values())
        self._adopting.adopted(records.keys())
        self._publish()

    def _publish(self) -> None:
        self._observer.holds(self._records)
        self.positions = MappingProxyType(
            {partition: record.next for partition, record in self._records.items() if partition not in self._draining}
        )
        self.held = MappingProxyType(_held_for_others(self._records, self._stream))


def _changed(records: Records, rule: Callable[[CommitRecord], CommitRecord]) -> dict[TopicPartition, CommitRecord]:
    """Return what a rule makes of the records that it changes."""
    after = {partition: rule(record) for partition, record in records.items()}
    return {partition: record for partition, record in after.items() if record is not records[partition]}


def _records_after(
    losses: Iterable[PartitionLoss], records: Records, stream: Stream
) -> tuple[dict[TopicPartition, CommitRecord], set[TopicPartition]]:
    """Return the records to write after these losses, and the partitions whose topic was deleted."""
    writes: dict[TopicPartition, CommitRecord] = {}
    deleted: set[TopicPartition] = set()
    for loss in losses:
        record = records.get(loss.partition)
        # Losses are found on another thread. If the partition has moved meanwhile, its position is not what is lost.
        if record is None or loss.position not in {None, record.next}:
            continue
        if loss.resume is None:
            deleted.add(loss.partition)
        else:
            writes[loss.partition] = record_after(loss, loss.resume, confirm(record, stream))
    return writes, deleted


def _held_for_others(records: Records, stream: Stream) -> dict[TopicPartition, int]:
    """Return how many offsets are held for other streams, for each partition with any."""
    return {
        partition: sum(entry.range.size for entry in owed)
        for partition, record in records.items()
        if record.owed and (owed := owed_to_others(record, stream))
    }


def _not_empty(by_partition: Ranges) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
    """Return the partitions in which there is something to read."""
    return {partition: ranges for partition, ranges in by_partition.items() if any(offsets.size for offsets in ranges)}


def _warn_of_open_claims(error: GroupKafkaError) -> None:
    log.warning("claims of finished micro-batches stay open until the next commit of this stream: %s", error)
