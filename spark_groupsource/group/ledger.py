"""The record of each owned partition, as the group has it, and the steps that change it.

Everything here runs on the consumer's thread, but for `report_durable`. Other threads read `positions`, `held` and `closed`,
which are replaced and never edited. Each step asks the pure rules (handoff/rules.py) for the records to write. It sends them in
one commit, or in a few if there are thousands. A decision for a partition counts only once its commit is accepted.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from spark_groupsource.errors import BrokerUnavailable, CommitOutcomeUnknown, GroupKafkaError, MemberUnknown, TopicNotFound
from spark_groupsource.group.adoption import Lookup, warn_of_another_cluster
from spark_groupsource.group.evidence import ConfirmedPlans, GroupReader, record_that_shows
from spark_groupsource.group.fenced_commits import FencedCommits
from spark_groupsource.group.held_ranges import HeldRanges
from spark_groupsource.group.survey import Survey
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit
from spark_groupsource.handoff.losses import PartitionLoss, record_after, refuse, warn
from spark_groupsource.handoff.rules import (
    HOLD,
    OutstandingClaims,
    Stream,
    adopt,
    claim,
    claimable,
    confirm,
    owed_to_others,
    refuse_behind,
    settle,
    with_room,
)
from spark_groupsource.observer import UNOBSERVED, Observer
from spark_groupsource.partition import OffsetRange, Ranges, TopicPartition, listed, topics_of
from spark_groupsource.patience import Failures, Retries
from spark_groupsource.timeouts import (
    BLOCKED_AFTER_S,
    CLOSE_AGAIN_AFTER_S,
    LOOK_FOR_DELETED_EVERY_S,
    SETTLE_BETWEEN_TRIGGERS_S,
    SETTLE_INTERVAL_S,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Claims:
    """The outcome of one attempt to claim a plan's ranges."""

    granted: Ranges
    waiting: frozenset[TopicPartition]
    """Partitions that this member does not own, and that nobody has adopted yet."""


@dataclass(frozen=True)
class Opened:
    """What a plan is made of, as of one moment."""

    records: Mapping[TopicPartition, CommitRecord]
    """The record of each owned partition, with the claims of durable plans closed."""
    again: Ranges
    """The ranges that are owed to other streams and that this one reads instead."""


class Ledger:
    """The records of the partitions that this member owns. It is the `RecordKeeper` of a `member.Member`."""

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
        self._commits = commits
        self._survey = survey
        self._fail_on_data_loss = fail_on_data_loss
        self._confirmed_plans = ConfirmedPlans(reader, clock=clock)
        self._held_ranges = HeldRanges(outstanding, fresh=stream.logged < 0)
        self._clock = clock
        self._wall_clock = wall_clock
        self._observer = observer
        self._adoption: Failures[TopicPartition] = Failures(patience_s, clock=clock)
        self._adopting: frozenset[TopicPartition] = frozenset()
        """The partitions that the adoption is busy with. An error counts for these."""
        self._closing = Retries(interval_s=CLOSE_AGAIN_AFTER_S, clock=clock)
        self._claimed: int | None = None
        """The newest plan, once all its claims are made."""
        self._report: tuple[str, int] | None = None
        """The newest report of a durable plan, and its stream. Another thread replaces it."""
        self._unclosed = False
        """Whether a plan was reported as durable, and its claims are still to be closed."""
        self._unclosable: frozenset[TopicPartition] = frozenset()
        """Partitions of deleted topics whose claims of a durable plan cannot be closed."""
        self._records: dict[TopicPartition, CommitRecord] = {}
        self._acquired: set[TopicPartition] = set()
        """The partitions that are still to be adopted."""
        self._deleted: set[TopicPartition] = set()
        """Those of them whose topic does not exist. They wait until the group asks them back, or the topic is created again."""
        self._draining: set[TopicPartition] = set()
        self._planned: frozenset[TopicPartition] = frozenset()
        self._blocked_at: float | None = None
        self._asked_at = -math.inf
        self._shown = -1
        """The newest plan of which it was logged that no record can show it as done."""
        self.positions: Mapping[TopicPartition, int] = MappingProxyType({})
        """The next offset to plan of each partition that new plans may have. Any thread may read it."""
        self.held: Mapping[TopicPartition, int] = MappingProxyType({})
        """How many offsets are held for other streams, for each owned partition with any. Any thread may read it."""
        self.closed = -1
        """The newest plan whose claims were closed because it was reported as durable. Any thread may read it."""

    def look_around(self, commits: Mapping[TopicPartition, GroupCommit]) -> None:
        """Note what the group holds for every partition of the subscribed topics before this member joins it.

        Raises:
            CheckpointBehindGroup: some record knows plans of this stream that its checkpoint does not.
        """
        refuse_behind(self._stream, commits)
        self._held_ranges.note_earlier_claims(commits)
        self._confirmed_plans.note(commits)

    # Called from any thread.

    def report_durable(self, stream: str, plan: int) -> None:
        """Note a report that Spark has `plan` of `stream` in its commit log; `close_reported` acts on it.

        Only a report of the newest plan that this ledger has claimed is believed. It may come late, twice or never. One that came
        before the claims were made is ignored, because a plan is not durable before its tasks have begun.
        """
        self._report = (stream, plan)

    # Called by the member (member.RecordKeeper).

    def acquired(self, partitions: frozenset[TopicPartition]) -> None:
        """Begin to adopt the partitions. `idle` does it when the brokers have answered, and tries again after a passing error."""
        new = partitions - self._records.keys()
        self._acquired |= new
        self._survey.acquired(new)
        self.close_reported()
        self._adopt_acquired()

    def draining(self, partitions: frozenset[TopicPartition]) -> None:
        """Leave the partitions out of new plans, and close the claims of durable plans."""
        self._note_reported()
        self._draining |= partitions
        self._publish()
        self._confirm_if_possible(partitions)

    def in_flight(self, partitions: frozenset[TopicPartition]) -> bool:
        """Return whether a range of these is planned, or claimed and not yet confirmed, and may be confirmed soon.

        While a claim waits for another member, that member may wait for these partitions. Then they are released with their
        claims open, which stay this stream's.
        """
        if self._blocked_at is not None and self._clock() - self._blocked_at >= BLOCKED_AFTER_S:
            return False
        return any(
            partition in self._planned or (partition in self._records and self._records[partition].open)
            for partition in partitions - self._unclosable
        )

    def released(self, partitions: frozenset[TopicPartition]) -> None:
        """Close the claims of durable plans, then forget the partitions. Open claims stay in the group's record."""
        self._note_reported()
        self._confirm_if_possible(partitions)
        self.lost(partitions)

    def lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Forget the partitions."""
        for partition in partitions:
            self._records.pop(partition, None)
        self._survey.forget(partitions)
        self._held_ranges.forget(partitions)
        self._planned -= partitions
        self._acquired -= partitions
        self._deleted -= partitions
        self._draining -= partitions
        self._adoption.forget(partitions)
        self._publish()

    def close_reported(self) -> None:
        """Close the claims of the newest claimed plan if it is reported as durable; else do nothing.

        What cannot be committed now is tried again. The next plan or claim closes it, too, and raises what does not pass. In a
        topic that was deleted there is nothing to close: the next plan finds out.

        Raises:
            CommitOutcomeUnknown: a confirmation that arrives late could undo the next claim.
        """
        self._note_reported()
        if not self._unclosed or not self._closing.due:
            return
        try:
            self._but_for_deleted(lambda: self._write(self._settled({self._stream.name: self._stream.durable})))
            self._but_for_deleted(self.confirm)
        except CommitOutcomeUnknown:
            raise
        except GroupKafkaError as error:
            self._unclosed = error.passing or isinstance(error, MemberUnknown)
            self._closing.failed()
            if self._unclosed:
                log.info("closing the claims of plan %d failed and is tried again: %s", self._stream.durable, error)
            else:
                log.warning("claims of finished micro-batches stay open until the next commit of this stream: %s", error)
        else:
            self._unclosed = False
            self._unclosable = frozenset(self._confirmed(self._records))
            self.closed = self._stream.durable

    def idle(self) -> None:
        """Close and settle what is confirmed. Adopt the acquired partitions that the brokers have answered for; ask about others.

        Partitions that drain are not adopted any more.

        Raises:
            GroupKafkaError: an error that does not pass, or that has lasted for longer than the patience.
        """
        self.close_reported()
        self._ask_what_is_done(SETTLE_BETWEEN_TRIGGERS_S)
        if self._confirmed_plans.take():
            self._held_ranges.note(self._records, self._stream, self._clock(), self._spared(self._records))
            self._settle()
            self._held_ranges.warn(self._records, self._stream)
        self._adopt_acquired()

    def _adopt_acquired(self) -> None:
        if not self._acquired:
            return
        try:
            self._adopt()
        except GroupKafkaError as error:
            failed = self._adopting - self._records.keys()
            self._adoption.put_off(failed & self._deleted, LOOK_FOR_DELETED_EVERY_S)
            at_end = self._adoption.failed(failed - self._deleted)
            # The group asks a deleted topic back, or the topic is created again.
            passing = error.passing or isinstance(error, MemberUnknown | TopicNotFound)
            if at_end or not passing:
                raise
            log.info("the adoption of %d partitions failed and is tried again: %s", len(failed), error)

    # Called by the micro-batch cycle (query/joined.py), through `Member.call`.

    def ready(self) -> bool:
        """Return whether planning can begin: each partition was tried once, and one is adopted or none can be.

        None can be if the group assigned none, or only partitions of deleted topics. If ranges are held for other streams, it was
        also asked once which of them are done.
        """
        if self._survey.unheard or self._confirmed_plans.unheard:
            return False
        return bool(self._records) or self._acquired <= self._deleted

    def durable(self, plan: int) -> None:
        """Note that Spark has `plan` in its commit log; confirm the partitions that drain at once."""
        if plan > self._stream.durable:
            self._stream = replace(self._stream, durable=plan, logged=max(plan, self._stream.logged))
        if self._draining:
            self._write_confirmed(self._draining)

    def begin_plan(self, plan: int) -> Opened:
        """Begin the plan that follows `plan`, which Spark has in its commit log.

        Returns:
            What the next plan is made of.

        Raises:
            ClaimsOutstanding: see `to_reread`.
            CommitError, BrokerError, MemberFenced: see fenced_commits.FencedCommits.
        """
        self.durable(plan)
        self.ask_what_is_settled()
        return self.opened()

    def opened(self) -> Opened:
        """Return what the next plan is made of.

        Raises:
            ClaimsOutstanding: see `to_reread`.
        """
        return Opened(self.known(), self.to_reread())

    def known(self) -> dict[TopicPartition, CommitRecord]:
        """Return the record of each owned partition, with the claims of durable plans closed."""
        return {partition: confirm(record, self._stream) for partition, record in self._records.items()}

    def to_reread(self) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
        """Return the ranges that are owed to other streams and that this one reads instead (`outstandingClaims`).

        Raises:
            ClaimsOutstanding: this stream is new, and an earlier claim is not confirmed within `outstandingClaims.grace`.
        """
        records = {partition: record for partition, record in self._records.items() if partition not in self._draining}
        return self._held_ranges.to_reread(records, self._stream, self._spared(records))

    def _spared(self, records: Mapping[TopicPartition, CommitRecord]) -> frozenset[str]:
        """Return the streams whose ranges in these records nobody takes over now."""
        return self._confirmed_plans.spared(records.values(), self._records.keys() | self._acquired)

    def propose(self, ranges: Ranges) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
        """Note a plan before Spark gets it. So its partitions count as in flight, and drain until it is claimed.

        Returns:
            The ranges that may still be planned: partitions that have moved meanwhile are left out, and ranges for which the
            partition's record has no room.
        """
        wanted = {
            partition: claimable(self._records[partition], offsets)
            for partition, offsets in ranges.items()
            if self.positions.get(partition) == offsets[-1].start
        }
        kept = {partition: with_room(self._records[partition], offsets) for partition, offsets in wanted.items()}
        self._held_ranges.warn_of_full(
            {partition: self._records[partition] for partition, offsets in wanted.items() if kept[partition] != offsets}
        )
        self._planned = frozenset(_not_empty(kept))
        return kept

    def propose_or_confirm(self, ranges: Ranges) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
        """Note a plan before Spark gets it, as `propose` does. If nothing is left of it, close the claims of every durable plan.

        No claim comes then that would do it. It is called also without ranges: a plan that Spark threw away no longer holds its
        partitions back.

        Raises:
            CommitError, BrokerError, MemberFenced: see fenced_commits.FencedCommits.
        """
        kept = self.propose(ranges)
        if not self._planned:
            self.confirm()
        return kept

    def claim(self, stream: Stream) -> Claims:
        """Claim what can be claimed of plan `stream.logged`, which is in Spark's offset log.

        The same commit confirms the previous plan. Calling it again changes nothing. Empty ranges need no claim.

        Raises:
            CheckpointBehindGroup: see rules.claim.
            CommitError, BrokerError, MemberFenced: see fenced_commits.FencedCommits.
        """
        self._stream = stream
        self._claimed = None
        wanted = _not_empty(stream.ranges)
        held = {**self._commits.fetch(wanted.keys() - self._records.keys()), **self._records}
        verdicts = {
            partition: claim(
                stream,
                partition,
                held[partition],
                owned=partition in self._records,
                held_since_planned=partition in self._planned,
                now=int(self._wall_clock()),
            )
            for partition in wanted
        }
        writes = {partition: verdict.write for partition, verdict in verdicts.items() if verdict.write is not None}
        self._write({**self._confirmed(self._records.keys() - writes.keys()), **writes})
        waiting = frozenset(partition for partition, verdict in verdicts.items() if verdict.waits)
        self._planned -= wanted.keys() - waiting
        blocked_at = self._clock() if self._blocked_at is None else self._blocked_at
        self._blocked_at = blocked_at if waiting else None
        if not waiting:
            self._claimed, self._report, self._unclosed = stream.logged, None, False
            self._unclosable = frozenset()
        return Claims({partition: verdict.read for partition, verdict in verdicts.items() if verdict.read}, waiting)

    def commits_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, GroupCommit]:
        """Return what the group holds for these partitions, owned by this member or not.

        Raises:
            BrokerError: see fenced_commits.FencedCommits.
        """
        return self._commits.fetch(partitions)

    def confirm(self) -> None:
        """Close the claims of every durable plan. Nothing is sent when nothing is open and nobody has to learn that it is done.

        Raises:
            CommitError, BrokerError, MemberFenced: see fenced_commits.FencedCommits.
        """
        self._write(self._confirmed(self._records) or record_that_shows(self._stream, self._records))
        self._say_what_nothing_shows()

    def ask_what_is_settled(self) -> None:
        """Ask which owed ranges their streams have confirmed, every SETTLE_INTERVAL_S at most. `idle` drops these."""
        self._ask_what_is_done(SETTLE_INTERVAL_S)

    def go_on(self, losses: Iterable[PartitionLoss]) -> None:
        """Continue behind what is lost.

        A partition of a deleted topic is left until the group asks it back, or the topic is created again. Losses of partitions
        that have moved meanwhile are ignored.

        Raises:
            CommitError, BrokerError, MemberFenced: see fenced_commits.FencedCommits.
        """
        deleted = set()
        writes = {}
        for loss in losses:
            record = self._records.get(loss.partition)
            if record is None or loss.position not in {None, record.next}:
                continue
            if loss.resume is None:
                deleted.add(loss.partition)
            else:
                writes[loss.partition] = record_after(loss, loss.resume, confirm(record, self._stream))
        for partition in deleted:
            del self._records[partition]
        self._planned -= deleted
        deleted -= self._draining
        self._acquired |= deleted
        self._deleted |= deleted
        self._adoption.put_off(deleted, LOOK_FOR_DELETED_EVERY_S)
        self._publish()
        self._write(writes)

    def _note_reported(self) -> None:
        if self._claimed is None or self._report != (self._stream.name, self._claimed) or self._claimed <= self._stream.durable:
            return
        self._stream = replace(self._stream, durable=self._claimed)
        self._unclosed = True
        self._closing.make_due()

    def _but_for_deleted(self, write: Callable[[], None]) -> None:
        """Write records. Those of topics that do not exist are left to the next plan."""
        try:
            write()
        except TopicNotFound as error:
            log.info("claims of plan %d in a deleted topic are left to the next plan: %s", self._stream.durable, error)

    def _say_what_nothing_shows(self) -> None:
        """Say once of a finished plan that no record of this stream can show it to those who may hold ranges for it."""
        plan = self._stream.durable
        if self._records or not any(one.size for offsets in self._stream.ranges.values() for one in offsets):
            return
        if plan == self._stream.logged and plan > self._shown:
            self._shown = plan
            log.warning(
                "plan %d of stream %s is finished, but this query owns no partition now, so it cannot say so in the group. If "
                "others hold ranges of it, they stay owed, and count as lag, until the group gives this query a partition",
                *(plan, self._stream.name),
            )

    def _ask_what_is_done(self, interval_s: float) -> None:
        """Ask which owed ranges their streams have confirmed, if any are owed and it was not just asked."""
        if not any(record.owed for record in self._records.values()):
            self._confirmed_plans.rest()
            return
        if self._clock() < self._asked_at + interval_s:
            return
        self._asked_at = self._clock()
        owned = self._records.keys() | self._acquired
        takes_over = self._held_ranges.takes_over
        self._confirmed_plans.ask(self._stream, owned, self._records.values(), takes_over=takes_over)

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

    def _settled(self, done: Mapping[str, int]) -> dict[TopicPartition, CommitRecord]:
        """Return the records without the owed ranges of these plans; only those that change."""
        settled = {partition: settle(record, done) for partition, record in self._records.items()}
        return {partition: record for partition, record in settled.items() if record is not self._records[partition]}

    def _adopt(self) -> None:
        if due := self._adoption.due(self._acquired.difference(self._survey.asked, self._draining)):
            self._adopting = frozenset(due)
            commits = self._commits.fetch(due)
            # What has failed before is asked about apart: a leader that does not answer delays the answer.
            again = self._adoption.failing(due)
            for part in (due - again, again):
                self._survey.ask(self._stream, {partition: commits[partition] for partition in part})
        for partitions, found in self._survey.answers(self._stream):
            self._adopting = partitions
            if isinstance(found, Exception):
                raise found
            self._adopt_found(found.only(partitions - self._draining))

    def _adopt_found(self, found: Lookup) -> None:
        self._note_unknown(found)
        if self._fail_on_data_loss:
            refuse(found.losses)
        done = self._confirmed_plans.done(self._stream)
        member = self._commits.member
        adopted = {
            partition: adopt(
                self._stream,
                partition,
                commit,
                starting_offset=found.starting.get(partition, 0),
                done=done,
                topic_id=found.topic_ids.get(partition.topic) or None,  # if no broker answers now, the next plan finds out
                cluster_id=self._commits.cluster_id,
                member=member,
            )
            for partition, commit in found.commits.items()
        }
        written = {partition: record for partition, record in adopted.items() if record != found.commits[partition]}
        try:
            self._note_written({partition: record for partition, record in adopted.items() if partition not in written})
            self._write(written)
        finally:
            held = adopted.keys() & self._records.keys()
            if any(adopted[partition].owed for partition in held):
                self._confirmed_plans.adopted()
                self._ask_what_is_done(0)
            warn(loss for loss in found.losses if loss.partition in held)
            warn_of_another_cluster({partition: found.commits[partition] for partition in held})

    def _note_unknown(self, found: Lookup) -> None:
        """Note which partitions cannot be adopted now.

        Raises:
            BrokerUnavailable: a leader has not answered for longer than the patience.
        """
        new = set(found.unknown) - self._adoption.failing(found.unknown)
        if new:
            log.info(
                "%d partitions wait for their leader, or for their topic, which is deleted: %s", len(new), listed(sorted(new))
            )
        self._deleted -= found.commits.keys() | set(found.unknown)
        self._deleted |= found.deleted
        self._adoption.put_off(found.deleted, LOOK_FOR_DELETED_EVERY_S)
        silent = self._adoption.failed(set(found.unknown) - found.deleted)
        if silent:
            raise BrokerUnavailable(
                f"Where {min(silent)} begins is not known: its leader has not answered within assignmentTimeout. Check that its "
                "broker is up and can be reached from this driver."
            )

    def _confirmed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommitRecord]:
        """Return the records of these partitions with durable plans closed; only those that change."""
        closed = {}
        for partition in partitions:
            record = self._records.get(partition)
            if record is not None and (after := confirm(record, self._stream)) is not record:
                closed[partition] = after
        return closed

    def _write_confirmed(self, partitions: Iterable[TopicPartition]) -> None:
        self._write(self._confirmed(tuple(partitions)))

    def _confirm_if_possible(self, partitions: Iterable[TopicPartition]) -> None:
        """Confirm before a release. What cannot be committed now stays claimed, and the next owner holds it for this stream.

        Raises:
            CommitOutcomeUnknown: a confirmation that arrives late could undo the next claim.
        """
        try:
            self._write_confirmed(partitions)
        except CommitOutcomeUnknown:
            raise
        except GroupKafkaError as error:
            log.warning("claims of finished micro-batches stay open until the next commit of this stream: %s", error)

    def _write(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        """Write the records. Each counts once its commit is accepted.

        Raises:
            TopicNotFound: topics of some records do not exist. All others are written, and count.
        """
        missing: TopicNotFound | None = None
        for part in self._commits.parts(records):
            missing = self._write_part(part) or missing
        if missing is not None:
            raise missing

    def _write_part(self, records: Mapping[TopicPartition, CommitRecord]) -> TopicNotFound | None:
        """Write the records in one commit. If a topic does not exist, write the others, and return what the broker says.

        It does not say which topic that is. So the topics are halved until it is alone.
        """
        try:
            self._commits.commit(records)
        except TopicNotFound as error:
            topics = sorted(topics_of(records))
            if len(topics) == 1:
                return error
            missing = None
            for half in (set(topics[: len(topics) // 2]), set(topics[len(topics) // 2 :])):
                part = {partition: record for partition, record in records.items() if partition.topic in half}
                missing = self._write_part(part) or missing
            return missing
        self._note_written(records)
        return None

    def _note_written(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        """Note the records that the group has now."""
        self._records |= records
        self._acquired -= records.keys()
        self._adoption.forget(records.keys())
        self._publish()

    def _publish(self) -> None:
        self._observer.holds(self._records)
        self.positions = MappingProxyType(
            {partition: record.next for partition, record in self._records.items() if partition not in self._draining}
        )
        self.held = MappingProxyType(
            {
                partition: sum(entry.range.size for entry in owed)
                for partition, record in self._records.items()
                if record.owed and (owed := owed_to_others(record, self._stream))
            }
        )


def _not_empty(ranges: Ranges) -> dict[TopicPartition, tuple[OffsetRange, ...]]:
    """Return the partitions in which there is something to read."""
    return {partition: offsets for partition, offsets in ranges.items() if any(one.size for one in offsets)}
