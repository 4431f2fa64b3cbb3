"""A clean run of `make chaos-cluster` is judged as such, and each violation is named."""

from __future__ import annotations

import pytest

from tests.chaos.cluster_report import Attempts, Run, violations
from tests.chaos.visible import Copy, Strike, Task, row_mark, total_mark

KILLED = Strike("executor-killed", "127.0.0.2 4711", 100.0, 100.0)
FIRST, SECOND = Task("copies", 0, 0), Task("copies", 0, 1)


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
    both = copied(FIRST, SECOND)
    return Run(["executor-killed", "worker-killed"], [KILLED], 10, both, both, [], Attempts(3, 12, 2, 4))


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (clean()._replace(files=copied(FIRST)), ["lost in files: 5 records, the first ones [5, 6, 7, 8, 9]"]),
        (clean()._replace(topic=copied(FIRST)), ["lost in the topic: 5 records, the first ones [5, 6, 7, 8, 9]"]),
        (clean()._replace(ended=["DataLossError: gone"]), ["a query has ended: DataLossError: gone"]),
        (clean()._replace(left=["7 java Worker"]), ["still running: 7 java Worker"]),
        (clean()._replace(faults=["fixed: nothing is copied"]), ["the harness itself: fixed: nothing is copied"]),
        (
            clean()._replace(files=copied(FIRST, FIRST), sent=10),
            [f"written twice into files: {FIRST}"],
        ),
    ],
)
def test_what_is_wrong_is_named(run: Run, said: list[str]) -> None:
    assert violations(run) == said
