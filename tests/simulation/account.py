"""Checks what must hold at all times and at the end: nothing is lost, duplicated, or held forever."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit, OwedRange
from spark_groupsource.partition import OffsetRange, Ranges, TopicPartition
from tests.simulation.checkpoint import Checkpoint
from tests.simulation.group import partition
from tests.simulation.twins import twin_of


class Violation(Exception):
    """A promise that was broken, by name."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name


def offsets_of(ranges: Iterable[OffsetRange]) -> Iterator[int]:
    """Yield every offset in the ranges."""
    return (offset for offsets in ranges for offset in range(*offsets))


class Account:
    """The account of where every offset of every partition has been."""

    def __init__(self, partitions: int, *, other_client: bool) -> None:
        self.output: list[list[str]] = [[] for _ in range(partitions)]
        """Who wrote each offset to a sink; empty when nobody did."""
        self.durable: list[set[int]] = [set() for _ in range(partitions)]
        """Offsets that are in a sink by a plan that is in its stream's commit log, or that another client answers for."""
        self.reread: list[set[int]] = [set() for _ in range(partitions)]
        """Offsets that were owed to a stream when another one claimed them for itself: those may be read twice."""
        self.alive: dict[tuple[int, str, str], frozenset[int]] = {}
        """What shows that a stream is alive, by the partition in which a range is owed to it, the letter of its owner
        and the stream's name: other partitions whose records are in its name, ever since that owner adopted the partition."""
        self.lost: list[set[int]] = [set() for _ in range(partitions)]
        """Offsets that were cut off once. What was claimed of them is left out of claims."""
        self.graceful = True
        """Nothing has died, or let go of what it had claimed, so far."""
        self.moved = False
        """A tool moved the committed offsets, or they expired when more than one plan knew of them."""
        self._other_client = other_client

    def clone(self) -> Account:
        twin = twin_of(self)
        twin.output = [list(written) for written in self.output]
        twin.durable = [set(offsets) for offsets in self.durable]
        twin.reread = [set(offsets) for offsets in self.reread]
        twin.lost = [set(offsets) for offsets in self.lost]
        twin.alive = dict(self.alive)
        return twin

    @property
    def exactly_once(self) -> bool:
        """Whether nothing may be read twice. With other clients in the group, this requires graceful hand-offs."""
        return not self.moved and (self.graceful or not self._other_client)

    def append(self, number: int, records: int = 1) -> None:
        """Add this many records to the partition."""
        self.output[number].extend([""] * records)

    def recreate(self) -> None:
        """Start over with the recreated topic: from now on, only its records count."""
        self.graceful = False
        self.output = [[] for _ in self.output]
        self.durable = [set() for _ in self.durable]
        self.reread = [set() for _ in self.reread]

    def cut(self, number: int, at: int) -> None:
        """The partition's log is cut off there: what becomes of the records below counts, and of those that are written now."""
        self.graceful = False
        self.lost[number] |= set(range(at, len(self.output[number])))
        del self.output[number][at:]
        self.durable[number] &= set(range(at))
        self.reread[number] &= set(range(at))

    def written(self, number: int, offset: int, who: str) -> None:
        """Note that a record has reached a sink."""
        before = self.output[number][offset]
        if before and self.exactly_once and offset not in self.reread[number]:
            raise Violation("doubled", f"{partition(number)} offset {offset}: {before}, and again by {who}")
        if self.graceful and offset and not self.output[number][offset - 1]:
            # A drain preserves a partition's order across members.
            raise Violation("out of order", f"{partition(number)} offset {offset} by {who} before the one below it")
        self.output[number][offset] = who

    def committed_elsewhere(self, number: int, position: int, *, skipped: bool = False) -> None:
        """Note that another client, or a tool, is responsible for everything below the position."""
        self.durable[number].update(range(position))
        for offset in range(position) if skipped else ():
            self.output[number][offset] = self.output[number][offset] or "skipped"

    def may_have_become(self, before: Ranges, now: Ranges) -> bool:
        """Return whether a later attempt at a plan reads what the first did, except what another stream has since taken over."""
        for where in before.keys() | now.keys():
            earlier, later = (set(offsets_of(granted.get(where, ()))) for granted in (before, now))
            if not later <= earlier or not earlier - later <= self.reread[where.partition]:
                return False
        return True

    def confirmed(self, sink: Ranges) -> None:
        """Note that a plan is in its stream's commit log."""
        for where, offsets in sink.items():
            self.durable[where.partition].update(offsets_of(offsets))

    def check_claim(
        self, where: TopicPartition, record: CommitRecord, before: GroupCommit, written: Sequence[str] | None
    ) -> None:
        """Check newly claimed ranges against those that were owed to other streams, according to the record `before`.

        `written`: the stream that wrote each partition's record, if its member is still in the group. `None` if no stream may
        read ranges that are owed to others.
        """
        if not isinstance(before, CommitRecord) or (before.stream, before.topic_id) != (record.stream, record.topic_id):
            return
        was_owed = set(offsets_of(entry.range for entry in before.owed))
        claimed = set(offsets_of(OffsetRange(*held) for held in record.open)) - set(
            offsets_of(OffsetRange(*held) for held in before.open)
        )
        if claimed & was_owed and written is None:
            raise Violation("claimed twice", f"{where}: {sorted(claimed & was_owed)} were owed: {record.metadata()}")
        for entry in before.owed:
            shown = self.alive.get((where.partition, record.stream[0], entry.stream), frozenset())
            shown = frozenset(number for number in shown if written is not None and written[number] == entry.stream)
            if shown and claimed & set(range(*entry.range)):
                raise Violation("taken from a live stream", f"{where}: {entry}, alive by {set(shown)}: {record.metadata()}")
        self.reread[where.partition] |= claimed & was_owed

    def note_adoption(self, number: int, record: CommitRecord, written: Sequence[str], owners: Sequence[str]) -> None:
        """Update which records show that a stream is alive, now that this record is written.

        The writer has adopted the partition if the last record was from another stream. `written`: the stream in whose name the
        record of each partition is, before this one. `owners`: the letters of the partitions' owners.
        """
        if record.stream == written[number]:
            return
        letter = record.stream[0]
        self.alive = {key: shown - {number} for key, shown in self.alive.items() if key[0] != number}
        for name in {entry.stream for entry in record.owed} - {record.stream}:
            shown = frozenset(other for other, owner in enumerate(owners) if written[other] == name and owner != letter)
            self.alive[number, letter, name] = shown - {number}

    def note_owner(self, letter: str, numbers: Sequence[int]) -> None:
        """A stream gets partitions. Their records, whoever wrote them, show it nothing: it is to adopt them itself."""
        if self.alive:
            taken = frozenset(numbers)
            self.alive = {key: shown - taken if key[1] == letter else shown for key, shown in self.alive.items()}

    def check_record(self, where: TopicPartition, record: CommitRecord, streams: Mapping[str, Checkpoint]) -> None:
        """Check a record against what is durable when the coordinator accepts it."""
        durable = self.durable[where.partition]
        if ahead := [offset for offset in range(record.offset) if offset not in durable]:
            raise Violation("committed ahead of durable", f"{where}: {record.offset} is committed, {ahead} are not durable")
        held = set(offsets_of(record.unconfirmed))
        if lost := [offset for offset in range(record.next) if offset not in durable and offset not in held]:
            raise Violation("let slip", f"{where}: {lost} are neither durable nor held: {record.metadata()}")
        for entry in (*record.owed, *(OwedRange(record.stream, record.logged, *offsets) for offsets in record.open)):
            self._check_owed(where, entry, streams)

    def _check_owed(self, where: TopicPartition, entry: OwedRange, streams: Mapping[str, Checkpoint]) -> None:
        """Check that every held range has a stream that takes it after a restart, or that has already had it."""
        checkpoint = streams[entry.stream[0]].complete()
        if entry.stream in checkpoint.gone:
            return
        if checkpoint.named == entry.stream and checkpoint.committed >= entry.plan >= 0:
            return
        newest = checkpoint.newest()
        planned = newest.by_partition.get(where, ()) if newest.plan == entry.plan else ()
        # Another stream may have taken a part of an owed range.
        touched = set(offsets_of(offsets for offsets in planned if offsets.overlap(entry.range).size))
        owed = set(range(*entry.range))
        whole = owed <= touched and touched - owed <= self.reread[where.partition] | self.lost[where.partition]
        if checkpoint.named != entry.stream or not whole:
            raise Violation("owed to nobody", f"{where}: {entry}; the newest plan of {checkpoint.named} has {planned}")

    def check_end(
        self, commits: Mapping[TopicPartition, GroupCommit], owners: set[str], *, rereading: bool, limited: bool = False
    ) -> None:
        """Check the promises at the end of a history.

        `owners`: the streams that own a partition. A stream that owns nothing cannot show what it has confirmed. `rereading`:
        ranges that are owed to others are read in their place. `limited`: a record has little room. A partition whose record is
        full makes no progress until it is shown what is confirmed.
        """
        still = {
            where.partition: held.next
            for where, held in commits.items()
            if limited and not rereading and isinstance(held, CommitRecord) and {entry.stream for entry in held.owed} - owners
        }
        for number, written in enumerate(self.output):
            if missing := [offset for offset, who in enumerate(written[: still.get(number)]) if not who]:
                raise Violation("lost", f"{partition(number)} {missing} reached no sink")
        for where, held in commits.items():
            if not isinstance(held, CommitRecord):
                raise Violation("not adopted", f"{where} belongs to a stream and the group holds {held}")
            if held.open or any(rereading or entry.stream in owners for entry in held.owed):
                raise Violation("held for ever", f"{where}: {held.metadata()}")
            if where.partition not in still and held.next != len(self.output[where.partition]):
                raise Violation("lost", f"{where}: the owner stands at {held.next}")

    def key(self) -> tuple[object, ...]:
        """A key that is equal for accounts with the same possible futures."""
        return (
            tuple(map(tuple, self.output)),
            tuple(map(frozenset, self.durable + self.reread + self.lost)),
            frozenset(self.alive.items()),
            self.graceful,
            self.moved,
        )
