"""A clean run of `make chaos-sink` is judged as such, and each violation is named."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos.copying_report import CONTESTED, Run, violations
from tests.chaos.visible import Copy, StandStill, Strike, Task, row_mark, total_mark

KILLED = Strike("broker-killed", "node 1", 100.0, 120.0)
FIRST, SECOND = Task("A", 0, 0), Task("B", 3, 1)


def copied(*tasks: Task) -> Copy:
    """Each of the tasks has five records."""
    copy = Copy()
    for at, task in enumerate(tasks):
        for number in range(5 * at, 5 * at + 5):
            copy.add(f"{number}{row_mark(task)}")
        copy.add(total_mark(task, 5))
    copy.look(1.0)
    return copy


def clean() -> Run:
    stills = [StandStill(0, 95.0, 124.0), StandStill(1, 200.0, 203.0)]
    errors = Counter({"RecordTooLarge": 3, f"CheckpointBehindSink{CONTESTED}": 1})
    return Run(["broker-killed", "stopped"], [KILLED], copied(FIRST, SECOND), 10, stills, {"A": 2, "B": 1}, errors)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (clean()._replace(sent=12), "lost: 2 records, the first ones [10, 11]"),
        (
            clean()._replace(stills=[StandStill(2, 95.0, 126.0)]),
            "readers of partition 2 waited for 11.0 s after broker-killed of node 1",
        ),
        (clean()._replace(stills=[StandStill(2, 30.0, 41.0)]), "readers of partition 2 waited for 11.0 s after no strike"),
        (clean()._replace(hidden=[3]), "records of partition 3 are not visible at the end"),
        (clean()._replace(faults=["it has written 9 of 10 records"]), "the harness itself: it has written 9 of 10 records"),
        (clean()._replace(errors=Counter({"WrittenElsewhere": 2})), "a query refused to go on: WrittenElsewhere, 2 times"),
        (clean()._replace(errors=Counter({"ReplayDiffers*": 1})), "a query refused to go on: ReplayDiffers*, 1 times"),
    ],
)
def test_what_is_wrong_is_named(run: Run, said: str) -> None:
    assert violations(run) == [said]


def test_a_part_of_a_task_may_be_visible_for_a_moment_or_while_a_broker_is_down() -> None:
    for begin, end, wrong in [(30.0, 39.0, False), (99.0, 128.0, False), (99.0, 131.0, True), (30.0, 41.0, True)]:
        copy = copied(FIRST)
        copy.add(f"5{row_mark(SECOND)}")
        copy.look(begin)
        copy.add(total_mark(SECOND, 1))
        copy.look(end)
        assert len(violations(clean()._replace(copy=copy, sent=6))) == wrong
