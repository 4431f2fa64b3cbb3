"""The judge of a copy accepts what is right, and detects each kind of what a reader must not see."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.chaos.visible import Copy, StandStills, Strike, Task, outside, row_mark, struck_before, total_mark

KILLED, STOPPED = Strike("driver-killed", "A-1", 100.0, 101.0), Strike("stopped", "B-1", 120.0, 120.0)


def rows(task: Task, start: int, end: int) -> list[str]:
    return [f"{number}{row_mark(task)}" for number in range(start, end)]


def whole(task: Task, start: int, end: int) -> list[str]:
    return [*rows(task, start, end), total_mark(task, end - start)]


def read(*looks: tuple[float, Sequence[str]]) -> Copy:
    copy = Copy()
    for at, values in looks:
        for value in values:
            copy.add(value)
        copy.look(at)
    return copy


FIRST, SECOND, OTHER = Task("A", 0, 0), Task("A", 0, 1), Task("B", 0, 0)


def test_whole_tasks_are_right_in_any_order_and_in_many_looks() -> None:
    copy = read((1.0, whole(FIRST, 0, 5)), (2.0, whole(OTHER, 5, 9)[::-1]), (30.0, whole(SECOND, 9, 10)))
    assert (copy.lost(10), copy.doubled(), copy.seen) == ([], [], 10)
    assert (copy.parts, copy.unfinished()) == ([], {})


def test_records_that_are_missing_or_twice() -> None:
    copy = read((1.0, [*whole(FIRST, 0, 5), *whole(Task("A", 1, 0), 3, 7)]))
    assert copy.lost(9) == [7, 8]
    assert copy.doubled() == [3, 4]
    assert copy.seen == 7


def test_a_part_of_a_task_is_timed_from_the_first_look_to_the_one_that_finds_it_whole() -> None:
    mine = whole(FIRST, 0, 5)
    copy = read((1.0, mine[:2]), (4.0, []), (8.0, mine[2:]), (20.0, []))
    assert [(part.task, part.begin, part.end) for part in copy.parts] == [(FIRST, 1.0, 8.0)]
    assert copy.unfinished() == {}


@pytest.mark.parametrize("left", [["total"], ["row"], ["total", "row"]])
def test_a_part_that_stays_is_named_with_its_counts(left: list[str]) -> None:
    """Its rows without their total, or without one of them, or both."""
    mine = whole(FIRST, 0, 5)
    shown = mine[1 if "row" in left else 0 : -1 if "total" in left else None]
    assert read((1.0, shown)).unfinished() == {FIRST: (5 - left.count("row"), None if "total" in left else 5)}


def test_a_partition_that_stands_still_below_its_end_is_timed() -> None:
    still = StandStills(0.0)
    for at, stable, end in [(0, 10, 10), (1, 10, 20), (2, 10, 30), (9, 10, 30), (10, 30, 30)]:
        still.sample(float(at), 0, stable, end)
    (found,) = still.found()
    assert (found.partition, found.begin, found.end) == (0, 1.0, 9.0)


def test_a_partition_at_its_end_or_that_moves_does_not_stand_still() -> None:
    still = StandStills(0.0)
    for at in range(20):
        still.sample(float(at), 0, 10, 10)
        still.sample(float(at), 1, at, 100)
    assert still.found() == []


@pytest.mark.parametrize(
    ("begin", "end", "seconds"),
    [
        (0, 10, 10),  # before any strike
        (95, 100.5, 5),  # into one
        (100.2, 100.8, 0),  # within one
        (95, 130, 34),  # over both, one of which takes no time
        (101, 111, 10),  # after one
    ],
)
def test_the_time_of_strikes_does_not_count(begin: float, end: float, seconds: float) -> None:
    assert outside(begin, end, [KILLED, STOPPED]) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("begin", "end", "strike"),
    [
        (0, 10, None),
        (98, 110, KILLED),  # a task that was writing when it was struck
        (105, 119, KILLED),  # it began after the strike, and before the next one
        (105, 125, STOPPED),
        (90, 130, KILLED),  # the first that fell into it: it should have ended soon after that
        (125, 130, STOPPED),
    ],
)
def test_which_strike_is_to_blame(begin: float, end: float, strike: Strike | None) -> None:
    assert struck_before(begin, end, [KILLED, STOPPED]) == strike
