"""What this member holds: the record of each owned partition, as the group has it, and the steps that change it.

Everything here runs on the consumer's thread. Other threads read `positions`, a mapping that is replaced, never edited.
Each step asks the pure rules (handoff.py) for the records to write and sends them in one commit; what was decided counts only
once that commit is accepted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from .broker_errors import is_passing
from .commit_record import CommitRecord, GroupCommit
from .coordinator import Coordinator
from .errors import BrokerUnavailable, CommitOutcomeUnknown, GroupKafkaError, MemberUnknown
from .handoff import Decision, Stream, adopt, claim, confirm, evidence, settle
from .partition import OffsetRange, TopicPartition

log = logging.getLogger(__name__)

SETTLE_INTERVAL_S = 2.0
"""How often a member that holds ranges for other streams looks whether those streams have confirmed them."""

RETRY_INTERVAL_S = 0.2
"""How long an adoption that a passing error refused waits before it is tried again."""


@dataclass(frozen=True)
class Claims:
    """The outcome of one attempt to claim a plan's ranges."""

    granted: Mapping[TopicPartition, OffsetRange]
    left_to_others: Mapping[TopicPartition, OffsetRange]
    waiting: Mapping[TopicPartition, GroupCommit]
    """Partitions that this member does not own and that nobody has adopted yet, with what the group holds for them."""


class Ledger:
    """The records of the partitions that this member owns. It is the `Holder` of a `membership.Member`."""

    def __init__(
        self,
        stream: Stream,
        coordinator: Coordinator,
        *,
        starting_offsets: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]],
        all_partitions: Callable[[], Iterable[TopicPartition]],
        patience_s: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            stream: what the checkpoint says.
            coordinator: reads and writes the group's records.
            starting_offsets: where to start in partitions that the group has no commit for (inclusive); of those only whose
                leaders can tell now.
            all_partitions: every partition that the group may hold a record for, owned by this member or not.
            patience_s: how long passing errors may hold up the adoption of a partition, in seconds.
            clock: seconds, monotonic.
        """
        self._stream = stream
        self._coordinator = coordinator
        self._starting_offsets = starting_offsets
        self._all_partitions = all_partitions
        self._patience_s = patience_s
        self._clock = clock
        self._failing_since: float | None = None
        self._records: dict[TopicPartition, CommitRecord] = {}
        self._acquired: set[TopicPartition] = set()
        self._draining: set[TopicPartition] = set()
        self._planned: frozenset[TopicPartition] = frozenset()
        self._retry_at = 0.0
        self._settle_at = 0.0
        self.positions: Mapping[TopicPartition, int] = MappingProxyType({})
        """Next offset to plan of each partition that new plans may have. Read it from any thread."""

    # The member's side (membership.Holder).

    def acquired(self, partitions: frozenset[TopicPartition]) -> None:
        """Adopt the partitions; when a passing error forbids it now, `idle` tries again."""
        self._acquired |= partitions - self._records.keys()
        self._retry_at = 0.0
        self.idle()

    def draining(self, partitions: frozenset[TopicPartition]) -> None:
        """Leave the partitions out of new plans, and close what is known to be durable."""
        self._draining |= partitions
        self._publish()
        self._confirm_if_possible(partitions)

    def in_flight(self, partitions: frozenset[TopicPartition]) -> bool:
        """Whether a range of these is planned, or claimed and not yet confirmed."""
        return any(
            partition in self._planned or (partition in self._records and self._records[partition].open)
            for partition in partitions
        )

    def released(self, partitions: frozenset[TopicPartition]) -> None:
        """Close what is known to be durable, then forget the partitions; open claims stay in the group's record."""
        self._confirm_if_possible(partitions)
        self.lost(partitions)

    def lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Forget the partitions."""
        for partition in partitions:
            self._records.pop(partition, None)
        self._planned -= partitions
        self._acquired -= partitions
        self._draining -= partitions
        self._publish()

    def idle(self) -> None:
        """Adopt what could not be adopted before.

        Raises:
            GroupKafkaError: not passing, or for longer than the patience.
        """
        now = self._clock()
        if not self._acquired or now < self._retry_at:
            return
        try:
            self._adopt()
        except GroupKafkaError as error:
            self._failing_since = now if self._failing_since is None else self._failing_since
            passing = is_passing(error) or isinstance(error, MemberUnknown)
            if not passing or now - self._failing_since > self._patience_s:
                raise
            log.info("adoption of %d partitions is tried again: %s", len(self._acquired), error)
            self._retry_at = self._clock() + RETRY_INTERVAL_S
        else:
            self._failing_since = None

    # The micro-batch cycle's side (stream_reader.py), by `Member.call`.

    def ready(self) -> bool:
        """Whether there is something to plan with: a partition that is adopted, or the certainty that the group gave none."""
        return bool(self._records) or not self._acquired

    def durable(self, plan: int) -> None:
        """Take note that Spark has `plan` in its commit log; a partition that drains is confirmed at once."""
        if plan > self._stream.durable:
            self._stream = replace(self._stream, durable=plan, logged=max(plan, self._stream.logged))
        if self._draining:
            self._write_confirmed(self._draining)

    def propose(self, ranges: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, OffsetRange]:
        """Take note of a plan before Spark is told of it, so that its partitions are not let go before it is claimed.

        Gives back the ranges of those partitions that are still to be planned.
        """
        kept = {partition: offsets for partition, offsets in ranges.items() if self.positions.get(partition) == offsets.start}
        self._planned = frozenset(partition for partition, offsets in kept.items() if offsets.size)
        return kept

    def claim(self, stream: Stream) -> Claims:
        """Claim what can be claimed of plan `stream.logged`, which is in Spark's offset log, in one commit.

        The same commit confirms the plan before it. Idempotent. Empty ranges need no claim.

        Raises:
            CheckpointBehindGroup: see handoff.claim.
            CommitError, BrokerError, MemberFenced: see coordinator.Coordinator.
        """
        self._stream = stream
        wanted = {partition: offsets for partition, offsets in stream.ranges.items() if offsets.size}
        elsewhere = self._coordinator.fetch(wanted.keys() - self._records.keys())
        commits: dict[TopicPartition, GroupCommit] = {partition: self._held(partition, elsewhere) for partition in wanted}
        verdicts = {
            partition: claim(
                stream,
                partition,
                commits[partition],
                owned=partition in self._records,
                held_since_planned=partition in self._planned,
            )
            for partition in wanted
        }
        writes = {partition: verdict.write for partition, verdict in verdicts.items() if verdict.write is not None}
        self._write({**self._confirmed(self._records.keys() - writes.keys()), **writes})
        self._planned -= {partition for partition, verdict in verdicts.items() if verdict.decision is not Decision.WAIT}

        def having(*decisions: Decision) -> dict[TopicPartition, OffsetRange]:
            return {partition: wanted[partition] for partition, verdict in verdicts.items() if verdict.decision in decisions}

        return Claims(
            granted=having(Decision.READ, Decision.CLAIM),
            left_to_others=having(Decision.LEAVE),
            waiting={partition: commits[partition] for partition in having(Decision.WAIT)},
        )

    def confirm(self) -> None:
        """Close the claims of every durable plan; nothing is sent when nothing is open.

        Raises:
            CommitError, BrokerError, MemberFenced: see coordinator.Coordinator.
        """
        writes = self._confirmed(self._records)
        published = max((record.done for record in (*self._records.values(), *writes.values())), default=self._stream.durable)
        if not writes and published < self._stream.durable and self._stream.ranges.keys() - self._records.keys():
            # Its last partitions went with their claims open: without this, nobody could see that those are settled.
            partition = min(self._records)
            record = self._records[partition]
            logged = max(record.logged, self._stream.durable)
            writes = {partition: record.model_copy(update={"done": self._stream.durable, "logged": logged})}
        self._write(writes)

    def settle(self) -> None:
        """Drop owed ranges that their streams have confirmed; looks at the group every SETTLE_INTERVAL_S at most.

        Raises:
            CommitError, BrokerError, MemberFenced: see coordinator.Coordinator.
        """
        if self._clock() < self._settle_at or not any(record.owed for record in self._records.values()):
            return
        self._settle_at = self._clock() + SETTLE_INTERVAL_S
        done = {**self._evidence(), self._stream.name: self._stream.durable}
        settled = {partition: settle(record, done) for partition, record in self._records.items()}
        self._write({partition: record for partition, record in settled.items() if record is not self._records[partition]})

    def go_back(self, ends: Mapping[TopicPartition, int]) -> None:
        """Read on at the end of logs that end below their positions; what was recorded of later offsets is forgotten.

        Raises:
            CommitError, BrokerError, MemberFenced: see coordinator.Coordinator.
        """
        cut = {}
        for partition, end in ends.items():
            record = confirm(self._records[partition], self._stream)
            kept = {
                "open": tuple(held for held in record.open if held.end <= end),
                "owed": tuple(held for held in record.owed if held.end <= end),
            }
            cut[partition] = record.model_copy(update={"next": end, **kept})
        self._write(cut)

    # Inside.

    def _held(self, partition: TopicPartition, elsewhere: Mapping[TopicPartition, GroupCommit]) -> GroupCommit:
        return self._records[partition] if partition in self._records else elsewhere[partition]

    def _evidence(self) -> dict[str, int]:
        return evidence(self._coordinator.fetch(self._all_partitions()).values())

    def _adopt(self) -> None:
        commits = self._coordinator.fetch(self._acquired)
        unrecorded = {partition for partition, commit in commits.items() if commit is None} - self._stream.ranges.keys()
        starting = self._starting_offsets(unrecorded) if unrecorded else {}
        leaderless = unrecorded - starting.keys()
        commits = {partition: commit for partition, commit in commits.items() if partition not in leaderless}
        holds_ranges = any(isinstance(commit, CommitRecord) and commit.unconfirmed for commit in commits.values())
        done = self._evidence() if holds_ranges else {}
        adopted = {
            partition: adopt(self._stream, partition, commit, starting_offset=starting.get(partition, 0), done=done)
            for partition, commit in commits.items()
        }
        self._coordinator.commit({partition: record for partition, record in adopted.items() if record != commits[partition]})
        self._records |= adopted
        self._acquired -= adopted.keys()
        self._publish()
        self._warn_of_owed(adopted)
        if leaderless:
            raise BrokerUnavailable(f"where {min(leaderless)} begins is not known now: its leader does not answer.")

    @staticmethod
    def _warn_of_owed(records: Mapping[TopicPartition, CommitRecord]) -> None:
        for partition, record in records.items():
            for owed in record.owed:
                log.warning(
                    "%s %s (%d offsets) is held back: stream %s claimed it in plan %d and has not confirmed it; "
                    "it reads it when its query restarts on its checkpoint",
                    partition,
                    owed.range,
                    owed.range.size,
                    owed.stream,
                    owed.plan,
                )

    def _confirmed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommitRecord]:
        """What the records of these partitions become when durable plans are closed; only those that change."""
        closed = {}
        for partition in partitions:
            record = self._records.get(partition)
            if record is not None and (after := confirm(record, self._stream)) is not record:
                closed[partition] = after
        return closed

    def _write_confirmed(self, partitions: Iterable[TopicPartition]) -> None:
        self._write(self._confirmed(tuple(partitions)))

    def _confirm_if_possible(self, partitions: Iterable[TopicPartition]) -> None:
        """Confirm on the way out: what cannot be committed now stays claimed, and the next owner holds it for this stream.

        Raises:
            CommitOutcomeUnknown: a confirmation that arrives late could undo the next claim.
        """
        try:
            self._write_confirmed(partitions)
        except CommitOutcomeUnknown:
            raise
        except GroupKafkaError as error:
            log.warning("claims of durable micro-batches stay open: %s", error)

    def _write(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        if records:
            self._coordinator.commit(records)
            self._records |= records
            self._publish()

    def _publish(self) -> None:
        self.positions = MappingProxyType(
            {partition: record.next for partition, record in self._records.items() if partition not in self._draining}
        )
