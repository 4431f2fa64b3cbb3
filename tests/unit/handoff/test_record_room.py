"""Room in a commit record, and which streams are alive: rules of the hand-off that look at a whole record or at all of them."""

from __future__ import annotations

import itertools
from dataclasses import replace

from spark_groupsource.handoff.commit_record import (
    MAX_METADATA_BYTES,
    CommitRecord,
    Foreign,
    GroupCommit,
    OtherFormat,
    OwedRange,
    PastStream,
    fitting,
    merged,
    read_commit,
)
from spark_groupsource.handoff.rules import Stream, adopt, alive, claim, with_room
from spark_groupsource.partition import OffsetRange, TopicPartition
from tests.unit.handoff.test_rules import LOGGED, NOW, ORDERS, record


def crowded(count: int) -> CommitRecord:
    """A record with so many owed ranges, each of another stream and none next to another one."""
    owed = tuple(OwedRange(f"{number:016x}", 2**40, 10 * number, 10 * number + 5, 1_700_000_000) for number in range(count))
    return record("me", 6, done=6, at=100_000, owed=owed, since=1_700_000_000)


class TestARecordKeepsRoomForItsNextOwner:
    """A broker takes 4,095 bytes. An adopted record is longer than it was, since open ranges become owed ones."""

    NEW = OffsetRange(100_000, 100_100)

    def test_a_few_ranges_always_fit(self) -> None:
        longest = tuple(
            OwedRange("s" * 64, 2**63 - 1, 2**63 - 40 + 2 * number, 2**63 - 39 + 2 * number, 253_402_300_799)
            for number in range(16)
        )
        past = tuple(PastStream(f"{number:s<64}", 2**63 - 1, 2**63 - 1) for number in range(8))
        full = CommitRecord(
            stream="s" * 64,
            logged=2**63 - 1,
            done=2**63 - 1,
            next=2**63 - 1,
            owed=longest,
            cluster_id="c" * 48,
            topic_id="t" * 22,
            member="m" * 11,
            past=past,
        )
        assert len(fitting(full).metadata()) <= MAX_METADATA_BYTES
        assert fitting(full).owed == full.owed
        assert with_room(record("me", 6, done=6, at=100), (OffsetRange(100, 200),)) == (OffsetRange(100, 200),)

    def test_what_is_claimed_can_be_adopted_by_any_stream_and_claimed_on_by_it(self) -> None:
        count = next(count for count in range(1, 200) if with_room(crowded(count), (self.NEW,)) != (self.NEW,))
        assert count > 50
        stream = replace(LOGGED, ranges={ORDERS: (self.NEW,)})
        claimed = claim(stream, ORDERS, crowded(count - 1), owned=True, owned_since_planned=True, now=NOW).write
        assert claimed is not None
        after = adopt(Stream("n" * 64, 2**62, 2**62), ORDERS, claimed, starting_offset=0, done={})
        assert len(after.owed) == count
        assert len(after.metadata()) <= MAX_METADATA_BYTES
        assert read_commit(after.offset, after.metadata()) == after

    def test_a_longer_one_than_any_broker_stores_counts_as_another_clients_commit(self) -> None:
        longer = crowded(100)
        assert len(longer.metadata()) > MAX_METADATA_BYTES
        assert read_commit(longer.offset, longer.metadata()) == Foreign(longer.offset)

    def test_a_full_record_takes_no_new_range_but_others_can_be_reread(self) -> None:
        full = crowded(next(count for count in range(1, 200) if with_room(crowded(count), (self.NEW,)) != (self.NEW,)))
        assert with_room(full, (self.NEW,)) == (OffsetRange(100_000, 100_000),)
        again = tuple(entry.range for entry in full.owed)
        assert with_room(full, (*again, self.NEW))[:-1] == again

    def test_adjacent_ranges_of_one_plan_are_one_entry_and_those_of_others_are_not(self) -> None:
        parts = [OwedRange("a", 1, 10, 20, 7), OwedRange("a", 1, 0, 10, 9), OwedRange("a", 2, 20, 30), OwedRange("b", 2, 30, 40)]
        assert merged(parts) == (OwedRange("a", 1, 0, 20, 7), OwedRange("a", 2, 20, 30), OwedRange("b", 2, 30, 40))
        assert merged([OwedRange("a", 1, 10, 20, 7), OwedRange("a", 1, 21, 30, 7)])[0].end == 20


class TestARecordThatIsTooLong:
    """One whose next owner writes fields that its writer did not know, for example."""

    def of_one_plan(self, count: int, *others: OwedRange) -> CommitRecord:
        owed = tuple(OwedRange("a" * 16, 3, 10 * number, 10 * number + 5 + number % 3, 1_700_000_000) for number in range(count))
        return record("me", 6, done=6, at=100_000, owed=tuple(sorted((*owed, *others), key=lambda entry: entry.start)))

    def test_first_forgets_the_oldest_streams_and_then_the_times(self) -> None:
        past = (PastStream("b", 1, 1), PastStream("c", 1, 1))
        long = self.of_one_plan(3).model_copy(update={"past": past, "claimed_at": NOW})
        size = len(long.metadata())
        assert fitting(long, size - 1) == long.model_copy(update={"past": past[1:]})
        assert fitting(long, size - 12) == long.model_copy(update={"past": None})
        timeless = fitting(long, size - 40)
        assert (timeless.past, timeless.claimed_at, {entry.since for entry in timeless.owed}) == (None, None, {None})
        assert [entry.range for entry in timeless.owed] == [entry.range for entry in long.owed]

    def test_then_joins_ranges_of_one_plan_over_the_smallest_gap(self) -> None:
        long = self.of_one_plan(4)
        size = len(fitting(long, len(long.metadata()) - 1).metadata())
        assert [entry.range for entry in fitting(long, size - 1).owed] == [(0, 5), (10, 16), (20, 35)]
        assert [entry.range for entry in fitting(long, 0).owed] == [(0, 35)]

    def test_but_not_over_what_is_held_for_another_plan_or_stream(self) -> None:
        between = [OwedRange("a" * 16, 2, 6, 8), OwedRange("b" * 16, 3, 18, 19)]
        long = self.of_one_plan(3, *between)
        assert [entry.range for entry in fitting(long, 0).owed] == [(0, 5), (6, 8), (10, 16), (18, 19), (20, 27)]
        open_between = record("me", 6, at=50, claimed=((6, 8),), owed=(OwedRange("a", 3, 0, 5), OwedRange("a", 3, 10, 15)))
        assert [entry.range for entry in fitting(open_between, 0).owed] == [(0, 5), (10, 15)]

    def test_whose_writer_did_not_know_its_member_is_adopted(self) -> None:
        *_, full = itertools.takewhile(
            lambda record: len(record.metadata()) <= MAX_METADATA_BYTES,
            (crowded(count).model_copy(update={"cluster_id": "c" * 22, "topic_id": "t" * 22}) for count in range(100)),
        )
        longer = Stream("n" * 64, 2**62, 2**62)
        after = adopt(longer, ORDERS, full, starting_offset=0, done={}, member="m" * 11)
        assert len(after.metadata()) <= MAX_METADATA_BYTES
        assert [entry.range for entry in after.owed] == [entry.range for entry in full.owed]


def test_a_stream_is_alive_that_wrote_the_record_of_a_partition_that_is_not_owned_here() -> None:
    commits: dict[TopicPartition, GroupCommit] = {
        ORDERS: record("me", 1, at=5),
        TopicPartition("orders", 4): record("other", 1, at=5, owed=(OwedRange("dead", 1, 0, 5),)),
        TopicPartition("orders", 5): record("adopted-from-it", 1, at=5),
        TopicPartition("orders", 6): Foreign(5),
        TopicPartition("orders", 7): None,
        TopicPartition("orders", 8): OtherFormat(5, 5, "of-the-next-version", 3),
    }
    owned = {ORDERS, TopicPartition("orders", 5)}
    assert alive(commits, owned) == {"other", "of-the-next-version"}
    left = {TopicPartition("orders", 4), TopicPartition("orders", 7)}
    assert alive(commits, owned, left) == {"of-the-next-version"}
