"""A clean run of `make chaos-cluster` is judged as such, and each violation is named."""

from __future__ import annotations

import json

import pytest

from tests.chaos.cluster_report import Attempts, Run, attempts, lines, violations
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


def test_a_clean_run() -> None:
    assert violations(clean()) == []
    assert [" ".join(line.split()) for line in lines(clean())] == [
        "executor-killed 1",
        "worker-killed 0",
        "12 task attempts on 3 executors, 2 speculative, 4 failed",
        "10 records into files by 2 tasks, 0 lost, 0 doubled",
        "10 records into the topic by 2 tasks, 0 lost, 0 doubled",
        "queries that ended: 0",
    ]


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


def test_records_that_are_there_twice_and_a_task_that_is_there_in_part() -> None:
    copy = copied(FIRST, SECOND)
    copy.add(f"3{row_mark(SECOND)}")
    copy.look(2.0)
    assert violations(clean()._replace(files=copy)) == [
        "doubled in files: 1 records, the first ones [3]",
        f"{SECOND} is in files in part: 6 rows of 5",
    ]


def test_the_event_log_says_what_spark_has_done() -> None:
    events = [
        {"Event": "SparkListenerExecutorAdded"},
        {"Event": "SparkListenerTaskStart", "Task Info": {"Speculative": False}},
        {"Event": "SparkListenerTaskStart", "Task Info": {"Speculative": True}},
        {"Event": "SparkListenerTaskEnd", "Task End Reason": {"Reason": "Success"}},
        {"Event": "SparkListenerTaskEnd", "Task End Reason": {"Reason": "ExecutorLostFailure"}},
        {"Event": "SparkListenerApplicationEnd"},
    ]
    assert attempts(map(json.dumps, events)) == Attempts(executors=1, tasks=2, speculative=1, failed=1)
