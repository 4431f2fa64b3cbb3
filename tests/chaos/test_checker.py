"""The checker accepts a correct run, and detects each kind of wrong output, owner and commit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.checker import check
from tests.harness.evidence import Durable, Evidence, Grant, Range, Row, Sample


def rows(partition: int, start: int, end: int) -> list[Row]:
    return [Row(partition, offset, offset) for offset in range(start, end)]


RIGHT = Evidence(
    produced={0: 20, 1: 12},
    outputs={"A": rows(0, 0, 10), "B": [*rows(1, 0, 12), *rows(0, 10, 20)]},
    grants=[
        Grant("A", 0, frozenset({Range(0, 0, 4)})),
        Grant("A", 1, frozenset({Range(0, 4, 10)})),
        Grant("B", 0, frozenset({Range(1, 0, 12)})),
        Grant("B", 1, frozenset({Range(0, 10, 20)})),
        Grant("A", 1, frozenset({Range(0, 4, 10)})),
    ],
    durable=[Durable("A", 0, 1.0), Durable("B", 0, 2.0), Durable("B", 1, 5.0), Durable("A", 1, 7.0)],
    samples=[
        Sample(1.1, {0: 0, 1: 0}, {"A": 0}),
        Sample(1.2, {0: 4, 1: 0}, {"A": 0}),
        Sample(5.2, {0: 4, 1: 12}, {"A": 0, "B": 1}),
        Sample(7.2, {0: 20, 1: 12}, {"A": 1, "B": 1}),
    ],
)
"""Two partitions; partition 0 moves from A to B after 10 records, with A's plan 1 replayed."""
A, B = RIGHT.outputs["A"], RIGHT.outputs["B"]


def granted(*more: Grant) -> dict[str, Any]:
    return {"grants": [*RIGHT.grants, *more]}


def sampled(at: float, offsets: dict[int, int], newest: dict[str, int]) -> dict[str, Any]:
    return {"samples": [*RIGHT.samples, Sample(at, offsets, newest)]}


AHEAD = "ahead of what is durable"
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("lost: 0:9", {"outputs": {"A": A[:-1], "B": B}}),
    ("doubled: 0:3", {"outputs": {"A": [*A, A[3]], "B": B}}),
    ("doubled: 0:9", {"outputs": {"A": A, "B": [*B, Row(0, 9, 9)]}}),
    ("unknown: 0:20", {"outputs": {"A": [*A, Row(0, 20, 20)], "B": B}}),
    ("changed: 0:0 has 1 in A", {"outputs": {"A": [Row(0, 0, 1), *A[1:]], "B": B}}),
    ("two owners", granted(Grant("B", 2, frozenset({Range(0, 4, 10)})))),
    ("two owners", granted(Grant("B", 2, frozenset({Range(0, 9, 11)})))),
    ("two owners", granted(Grant("A", 2, frozenset({Range(0, 4, 10)})))),
    # A long range covers several later ones.
    ("two owners", granted(Grant("C", 0, frozenset({Range(1, 0, 100)})), Grant("C", 1, frozenset({Range(1, 50, 60)})))),
    # Two records are swapped between the outputs.
    ("not granted", {"outputs": {"A": [*A[:-1], B[-1]], "B": [*B[:-1], A[-1]]}}),
    ("unstable", granted(Grant("B", 1, frozenset()))),
    (AHEAD, sampled(5.3, {0: 5}, {"A": 0, "B": 1})),  # A's plan 1 is claimed, not durable
    (AHEAD, sampled(5.3, {0: 20}, {"A": 0, "B": 1})),  # what comes after it is durable, it is not
    (AHEAD, sampled(1.3, {1: 1}, {"A": 0})),
    (AHEAD, sampled(8.0, {0: 21}, {"A": 1, "B": 1})),
    ("left: 0: [4, 10) owed to A", {"left": ("0: [4, 10) owed to A",)}),
    ("read again: 6 records", {"read_again": 6}),
]


def test_what_is_right_passes() -> None:
    assert check(RIGHT).violations == ()
    assert (check(RIGHT).records, check(RIGHT).lost, check(RIGHT).doubled) == (32, 0, 0)


@pytest.mark.parametrize(("said", "change"), WRONG)
def test_what_is_wrong_fails(said: str, change: dict[str, Any]) -> None:
    verdict = check(replace(RIGHT, **change))
    assert any(violation.startswith(said) for violation in verdict.violations), verdict
    assert (verdict.lost, verdict.doubled) == (said.startswith("lost"), said.startswith("doubled"))


def test_a_record_that_is_missing_is_not_lost_before_the_group_was_drained() -> None:
    assert check(replace(RIGHT, outputs={"A": A[:-1], "B": B}), drained=False).violations == ()
