"""Room in a commit record, and which streams are alive: rules of the hand-off that look at a whole record or at all of them."""

from __future__ import annotations

from dataclasses import replace

from spark_groupsource.handoff.commit_record import (
    MAX_METADATA_BYTES,
    CommitRecord,
    Foreign,
    GroupCommit,
    Newer,
    OwedRange,
    merged,
)
from spark_groupsource.handoff.rules import Stream, adopt, alive, claim, evidence, with_room
from spark_groupsource.partition import OffsetRange, TopicPartition
from tests.unit.test_handoff_rules import LOGGED, NOW, ORDERS, record


def crowded(count: int, *, stream: str = "me", claimed: tuple[tuple[int, int], ...] = ()) -> CommitRecord:
    """A record with so many owed ranges, each of another stream and none next to another one."""
    owed = tuple(OwedRange(f"{number:016x}", 2**40, 10 * number, 10 * number + 5, 1_700_000_000) for number in range(count))
    return record(stream, 6, done=6, at=100_000, owed=owed, claimed=claimed, since=1_700_000_000)


class TestARecordKeepsRoomForItsNextOwner:
    """A broker takes 4,095 bytes. An adopted record is longer than it was, since open ranges become owed ones."""

    NEW = OffsetRange(100_000, 100_100)

    def test_a_few_ranges_always_fit(self) -> None:
        longest = tuple(
            OwedRange("s" * 64, 2**63 - 1, 2**63 - 40 + 2 * number, 2**63 - 39 + 2 * number, 253_402_300_799)
            for number in range(16)
        )
        full = CommitRecord(stream="s" * 64, logged=2**63 - 1, done=2**63 - 1, next=2**63 - 1, owed=longest, cluster_id="c" * 48)
        assert len(full.metadata()) <= MAX_METADATA_BYTES
        assert with_room(record("me", 6, done=6, at=100), (OffsetRange(100, 200),)) == (OffsetRange(100, 200),)

    def test_what_is_claimed_can_be_adopted_by_any_stream_and_claimed_on_by_it(self) -> None:
        count = next(count for count in range(1, 200) if with_room(crowded(count), (self.NEW,)) != (self.NEW,))
        assert count > 50
        stream = replace(LOGGED, ranges={ORDERS: (self.NEW,)})
        claimed = claim(stream, ORDERS, crowded(count - 1), owned=True, held_since_planned=True, now=NOW).write
        assert claimed is not None
        after = adopt(Stream("n" * 64, 2**62, 2**62), ORDERS, claimed, starting_offset=0, done={})
        assert len(after.owed) == count
        assert len(after.metadata()) <= MAX_METADATA_BYTES

    def test_a_full_record_takes_no_new_range_but_others_can_be_reread(self) -> None:
        full = crowded(next(count for count in range(1, 200) if with_room(crowded(count), (self.NEW,)) != (self.NEW,)))
        assert with_room(full, (self.NEW,)) == (OffsetRange(100_000, 100_000),)
        again = tuple(entry.range for entry in full.owed)
        assert with_room(full, (*again, self.NEW))[:-1] == again

    def test_a_part_of_an_owed_range_that_has_no_room_is_the_whole_range(self) -> None:
        """Else a limit below its size, such as maxOffsetsPerTrigger, would hold it for ever."""
        full = crowded(next(count for count in range(1, 200) if with_room(crowded(count), (self.NEW,)) != (self.NEW,)))
        nothing_new = OffsetRange(100_000, 100_000)
        part = OffsetRange(10, 12)
        assert with_room(full, (part, nothing_new)) == (OffsetRange(10, 15), nothing_new)
        assert with_room(full, (OffsetRange(0, 5), part, nothing_new)) == (OffsetRange(0, 5), nothing_new)
        assert with_room(crowded(20), (part, nothing_new)) == (part, nothing_new)

    def test_adjacent_ranges_of_one_plan_are_one_entry_and_those_of_others_are_not(self) -> None:
        parts = [OwedRange("a", 1, 10, 20, 7), OwedRange("a", 1, 0, 10, 9), OwedRange("a", 2, 20, 30), OwedRange("b", 2, 30, 40)]
        assert merged(parts) == (OwedRange("a", 1, 0, 20, 7), OwedRange("a", 2, 20, 30), OwedRange("b", 2, 30, 40))
        assert merged([OwedRange("a", 1, 10, 20, 7), OwedRange("a", 1, 21, 30, 7)])[0].end == 20


class TestWhoIsAlive:
    def test_a_stream_that_wrote_the_record_of_a_partition_that_is_not_owned_here(self) -> None:
        commits: dict[TopicPartition, GroupCommit] = {
            ORDERS: record("me", 1, at=5),
            TopicPartition("orders", 4): record("other", 1, at=5, owed=(OwedRange("dead", 1, 0, 5),)),
            TopicPartition("orders", 5): record("adopted-from-it", 1, at=5),
            TopicPartition("orders", 6): Foreign(5),
            TopicPartition("orders", 7): None,
            TopicPartition("orders", 8): Newer(5, 2, "of-the-next-version", 3),
        }
        assert alive(commits, {ORDERS, TopicPartition("orders", 5)}) == {"other", "of-the-next-version"}

    def test_what_a_newer_version_has_done_is_evidence_too(self) -> None:
        assert evidence([Newer(5, 2, "of-the-next-version", 3), Newer(5, 2, "another", -1)]) == {
            "of-the-next-version": 3,
            "another": -1,
        }
