"""What a micro-batch reads."""

from __future__ import annotations

from random import Random
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_groupsource.handoff.planner import Sharing, granted_part, lag, pieces, plan, rule_of_sharing, tasks
from spark_groupsource.partition import OffsetRange, TopicPartition


def tp(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def test_the_limit_is_shared_out_in_proportion_to_lag_and_small_lags_get_one() -> None:
    # Spark's own case: 1, 1 and 8 of a limit of 10.
    positions = {tp(0): 0, tp(1): 0, tp(2): 0}
    planned = plan(positions, {tp(0): 1, tp(1): 10, tp(2): 100}, 10)
    assert {partition.partition: offsets.size for partition, (offsets,) in planned.items()} == {0: 1, 1: 1, 2: 9}


def test_a_partition_waits_whose_end_is_unknown_or_below_the_position() -> None:
    assert plan({tp(0): 5, tp(1): 0}, {tp(1): 3}, 2) == {tp(0): (OffsetRange(5, 5),), tp(1): (OffsetRange(0, 2),)}
    assert plan({tp(0): 5}, {tp(0): 3}) == {tp(0): (OffsetRange(5, 5),)}


class TestRangesThatAreReadAgain:
    again = MappingProxyType({tp(0): (OffsetRange(2, 6), OffsetRange(6, 8))})

    def test_come_before_what_is_new_each_by_itself(self) -> None:
        planned = plan({tp(0): 10, tp(1): 0}, {tp(0): 12, tp(1): 0}, reread=self.again)
        assert planned == {tp(0): ((2, 6), (6, 8), (10, 12)), tp(1): ((0, 0),)}

    def test_are_read_as_a_whole_and_as_many_as_fit_the_limit_but_one_at_least(self) -> None:
        assert plan({tp(0): 10}, {tp(0): 20}, 3, reread=self.again) == {tp(0): ((2, 6), (10, 10))}
        assert plan({tp(0): 10}, {tp(0): 20}, 5, reread=self.again) == {tp(0): ((2, 6), (10, 10))}
        assert plan({tp(0): 10}, {tp(0): 20}, 7, reread=self.again) == {tp(0): ((2, 6), (6, 8), (10, 11))}

    def test_share_the_limit_with_other_partitions_in_proportion_to_what_is_to_be_read(self) -> None:
        planned = plan({tp(0): 10, tp(1): 0}, {tp(0): 12, tp(1): 24}, 8, reread=self.again)
        assert planned == {tp(0): ((2, 6), (10, 10)), tp(1): ((0, 6),)}

    def test_wait_while_they_end_above_the_end_of_the_log_or_of_the_target_or_that_is_unknown(self) -> None:
        assert plan({tp(0): 10}, {tp(0): 7}, reread=self.again) == {tp(0): ((2, 6), (10, 10))}
        assert plan({tp(0): 10}, {tp(0): 5}, reread=self.again) == {tp(0): ((10, 10),)}
        assert plan({tp(0): 10}, {}, reread=self.again) == {tp(0): ((10, 10),)}


positions_and_lags = st.dictionaries(
    st.integers(0, 20).map(tp), st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)), max_size=20
)


@given(positions_and_lags, st.none() | st.integers(1, 2**63 - 1))
def test_plans_start_at_the_positions_stay_within_the_ends_and_keep_the_limit(
    partitions: dict[TopicPartition, tuple[int, int]], limit: int | None
) -> None:
    positions = {partition: start for partition, (start, _) in partitions.items()}
    ends = {partition: start + size for partition, (start, size) in partitions.items()}
    planned = plan(positions, ends, limit)
    assert planned.keys() == positions.keys()
    for partition, (offsets,) in planned.items():
        assert offsets.start == positions[partition] <= offsets.end <= ends[partition]
        assert bool(offsets.size) == bool(ends[partition] - positions[partition])
    if limit is None:
        assert sum(offsets.size for (offsets,) in planned.values()) == sum(lag(positions, ends).values())
    else:
        assert sum(offsets.size for (offsets,) in planned.values()) < limit + max(1, len(partitions))


class TestPieces:
    def test_are_cut_from_the_largest_ranges_first(self) -> None:
        # A small range beside a large one stays whole (SPARK-30656).
        cut = pieces([(tp(0), OffsetRange(0, 90)), (tp(1), OffsetRange(0, 10))], min_pieces=4)
        assert cut == [(tp(0), (0, 30)), (tp(0), (30, 60)), (tp(0), (60, 90)), (tp(1), (0, 10))]

    @given(
        st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 50)), max_size=8),
        st.none() | st.integers(1, 60),
        st.none() | st.integers(1, 60),
    )
    def test_are_the_ranges_in_their_order_and_enough_of_them(
        self, bounds: list[tuple[int, int]], least: int | None, largest: int | None
    ) -> None:
        ranges = [(tp(number), OffsetRange(start, start + size)) for number, (start, size) in enumerate(bounds)]
        cut = pieces(ranges, least, largest)
        assert [(partition, offset) for partition, offsets in cut for offset in range(*offsets)] == [
            (partition, offset) for partition, offsets in ranges for offset in range(*offsets)
        ]
        assert len(cut) >= min(least or 0, sum(offsets.size for _, offsets in ranges))
        assert all(0 < offsets.size <= (largest or 50) for _, offsets in cut)


def few(count: int, size: int = 3) -> list[tuple[TopicPartition, OffsetRange]]:
    return [(tp(number), OffsetRange(7, 7 + size)) for number in range(count)]


class TestTasks:
    def test_small_ranges_share_four(self) -> None:
        rule = rule_of_sharing(few(64))
        assert rule == (4, 2_000, 500)
        assert [len(task) for task in tasks(few(64), sharing=rule)] == [16] * 4

    @pytest.mark.parametrize(("size", "count"), [(20, 4), (21, 5), (50, 10), (80, 16), (500, 16)])
    def test_one_more_is_made_for_every_hundred_offsets_up_to_sixteen(self, size: int, count: int) -> None:
        assert len(tasks(few(20, size), sharing=rule_of_sharing(few(20, size)))) == count

    def test_there_are_more_if_the_offsets_of_sixteen_would_be_too_many(self) -> None:
        ranges = few(256, 400)
        assert {len(task) for task in tasks(ranges, sharing=rule_of_sharing(ranges))} == {4, 5}

    def test_as_many_as_asked_for_are_left(self) -> None:
        rule = rule_of_sharing(few(64), 30)
        assert rule == (30, 2_000, 500)
        assert len(tasks(few(64), 30, None, rule)) == 30
        assert rule_of_sharing(few(64), 64) is None
        assert rule_of_sharing(few(64), 100) is None

    def test_keep_the_most_offsets_of_one(self) -> None:
        rule = rule_of_sharing(few(64), None, 7)
        assert {len(task) for task in tasks(few(64), None, 7, rule)} == {2}
        assert rule_of_sharing(few(64), None, 5) is None

    def test_large_ranges_and_partitions_with_two_ranges_are_alone(self) -> None:
        ranges = [*few(40), (tp(40), OffsetRange(0, 501)), (tp(5), OffsetRange(20, 21))]
        alone = [task[0] for task in tasks(ranges, sharing=rule_of_sharing(ranges)) if len(task) == 1]
        assert alone == [(tp(5), (7, 10)), (tp(5), (20, 21)), (tp(40), (0, 501))]

    @given(
        st.lists(st.tuples(st.integers(0, 25), st.integers(0, 9)), max_size=60, unique_by=lambda each: each[0]),
        st.none() | st.integers(1, 40),
        st.none() | st.integers(1, 12),
        st.builds(Sharing, st.integers(1, 20), st.integers(1, 30), st.integers(1, 8)),
        st.randoms(use_true_random=False),
    )
    def test_read_every_offset_once_within_all_limits_in_any_order_of_the_ranges(
        self, sizes: list[tuple[int, int]], least: int | None, largest: int | None, rule: Sharing, random: Random
    ) -> None:
        ranges = [(tp(number), OffsetRange(number, number + size)) for number, size in sizes]
        rule = rule._replace(least=max(rule.least, least or 0))
        found = tasks(ranges, least, largest, rule)
        cut = pieces(sorted(ranges), least, largest)

        assert sorted(piece for task in found for piece in task) == cut
        assert len(found) >= min(len(cut), rule.least)
        assert len(found) >= min(least or 0, sum(size for _, size in sizes))
        for task in found:
            size = sum(offsets.size for _, offsets in task)
            assert size <= (largest or 9) or len(task) > 1
            if len(task) > 1:
                assert size <= min(rule.most, largest or rule.most)
                assert len({partition for partition, _ in task}) == len(task)
                assert all(offsets.size <= rule.small for _, offsets in task)
        assert found == sorted(tuple(sorted(task)) for task in found)

        random.shuffle(ranges)
        assert tasks(ranges, least, largest, rule) == found


class TestWhatIsNotGranted:
    @given(
        st.lists(st.tuples(st.integers(0, 25), st.integers(0, 9)), max_size=60, unique_by=lambda each: each[0]),
        st.none() | st.integers(1, 40),
        st.none() | st.integers(1, 12),
        st.none() | st.builds(Sharing, st.integers(1, 20), st.integers(1, 30), st.integers(1, 8)),
        st.sets(st.integers(0, 25)),
    )
    def test_changes_no_other_task_whatever_it_is(
        self,
        sizes: list[tuple[int, int]],
        least: int | None,
        largest: int | None,
        rule: Sharing | None,
        left_out: set[int],
    ) -> None:
        ranges = [(tp(number), OffsetRange(number, number + size)) for number, size in sizes]
        whole = tasks(ranges, least, largest, rule)
        assert [granted_part(task, {partition: (offsets,) for partition, offsets in ranges}) for task in whole] == whole
        granted = {partition: (offsets,) for partition, offsets in ranges if partition.partition not in left_out}
        for task in whole:
            assert granted_part(task, granted) == tuple(piece for piece in task if piece[0] in granted)

    def test_may_be_a_part_of_a_range(self) -> None:
        task = ((tp(0), OffsetRange(10, 20)), (tp(1), OffsetRange(0, 5)))
        granted = {tp(0): (OffsetRange(0, 12), OffsetRange(18, 30)), tp(1): (OffsetRange(5, 9),)}
        assert granted_part(task, granted) == ((tp(0), (10, 12)), (tp(0), (18, 20)))
        assert granted_part(task, {}) == ()
