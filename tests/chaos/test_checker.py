"""The checker accepts a correct run, and detects each kind of wrong output, owner and commit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos.cases import CASES
from tests.chaos.checker import check
from tests.chaos.lanes import jobs
from tests.chaos.stalls import stalls, summary
from tests.harness.evidence import Durable, Evidence, Grant, Range, Row, Sample


def rows(partition: int, start: int, end: int) -> list[Row]:
    return [Row(partition, offset, offset) for offset in range(start, end)]


@pytest.fixture
def right() -> Evidence:
    """Return two partitions; partition 0 moves from A to B after 10 records, with A's plan 1 replayed."""
    return Evidence(
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


def failing(evidence: Evidence, kind: str) -> None:
    verdict = check(evidence)
    assert any(violation.startswith(kind) for violation in verdict.violations), verdict


def test_what_is_right_passes(right: Evidence) -> None:
    assert check(right).violations == ()
    assert (check(right).records, check(right).lost, check(right).doubled) == (32, 0, 0)


def test_a_record_that_is_missing_fails(right: Evidence) -> None:
    short = replace(right, outputs={**right.outputs, "A": right.outputs["A"][:-1]})
    failing(short, "lost: 0:9")
    assert check(short).lost == 1


def test_a_record_that_is_missing_is_not_lost_before_the_group_was_drained(right: Evidence) -> None:
    short = replace(right, outputs={**right.outputs, "A": right.outputs["A"][:-1]})
    assert check(short, drained=False).violations == ()


def test_a_record_that_stands_twice_in_one_output_fails(right: Evidence) -> None:
    twice = replace(right, outputs={**right.outputs, "A": [*right.outputs["A"], right.outputs["A"][3]]})
    failing(twice, "doubled: 0:3")
    assert check(twice).doubled == 1


def test_a_record_that_stands_in_two_outputs_fails(right: Evidence) -> None:
    failing(replace(right, outputs={**right.outputs, "B": [*right.outputs["B"], Row(0, 9, 9)]}), "doubled: 0:9")


def test_records_that_are_swapped_between_two_streams_fail(right: Evidence) -> None:
    a, b = [*right.outputs["A"]], [*right.outputs["B"]]
    a[-1], b[-1] = b[-1], a[-1]
    swapped = replace(right, outputs={"A": a, "B": b})
    assert (check(swapped).lost, check(swapped).doubled) == (0, 0)
    failing(swapped, "not granted")


def test_a_record_that_nobody_has_produced_fails(right: Evidence) -> None:
    failing(replace(right, outputs={**right.outputs, "A": [*right.outputs["A"], Row(0, 20, 20)]}), "unknown")


def test_a_record_in_the_place_of_another_fails(right: Evidence) -> None:
    failing(replace(right, outputs={**right.outputs, "A": [Row(0, 0, 1), *right.outputs["A"][1:]]}), "changed")


@pytest.mark.parametrize("other", [Range(0, 4, 10), Range(0, 9, 11), Range(0, 3, 5)])
def test_two_owners_of_one_range_fail(right: Evidence, other: Range) -> None:
    failing(replace(right, grants=[*right.grants, Grant("B", 2, frozenset({other}))]), "two owners")


def test_a_range_that_one_stream_claims_in_two_plans_fails(right: Evidence) -> None:
    failing(replace(right, grants=[*right.grants, Grant("A", 2, frozenset({Range(0, 4, 10)}))]), "two owners")


def test_a_replay_that_reads_something_else_fails(right: Evidence) -> None:
    failing(replace(right, grants=[*right.grants, Grant("B", 1, frozenset())]), "unstable")


def test_a_long_range_that_covers_several_later_ones_fails(right: Evidence) -> None:
    long = Grant("C", 0, frozenset({Range(1, 0, 100)}))
    failing(replace(right, grants=[*right.grants, long, Grant("C", 1, frozenset({Range(1, 50, 60)}))]), "two owners")


@pytest.mark.parametrize(
    "sample",
    [
        Sample(5.3, {0: 5}, {"A": 0, "B": 1}),  # A's plan 1 is claimed, not durable
        Sample(5.3, {0: 20}, {"A": 0, "B": 1}),  # what comes after it is durable, it is not
        Sample(1.3, {1: 1}, {"A": 0}),
        Sample(8.0, {0: 21}, {"A": 1, "B": 1}),
    ],
)
def test_a_committed_offset_ahead_of_what_is_durable_fails(right: Evidence, sample: Sample) -> None:
    failing(replace(right, samples=[*right.samples, sample]), "ahead of what is durable")


def test_a_claim_that_is_closed_before_its_micro_batch_is_durable_fails(right: Evidence) -> None:
    closing = Sample(5.1, {0: 10}, {"A": 0, "B": 1})  # A's plan 1 is being closed
    failing(replace(right, samples=[*right.samples, closing]), "ahead of what is durable")
    afterwards = closing._replace(newest={"A": 1, "B": 1})
    assert check(replace(right, samples=[*right.samples, afterwards])).violations == ()


def test_what_is_still_owed_at_the_end_fails(right: Evidence) -> None:
    failing(replace(right, left=("0: [4, 10) owed to A",)), "left: 0: [4, 10) owed to A")


def test_records_that_a_plain_consumer_reads_again_fail(right: Evidence) -> None:
    failing(replace(right, read_again=6), "read again: 6 records")


def test_the_stall_of_a_partition_that_moved_is_told_from_a_bystanders(right: Evidence) -> None:
    found = stalls(right, 1.5, 9.0, struck={"A"})
    assert found.moved == {0: 3.5}
    assert found.kept == {1: 7.0}
    assert stalls(right, 2.5, 9.0, struck={"B"}).kept == {}


def test_a_summary_of_stalls_is_median_p99_and_maximum() -> None:
    assert summary([]) == (0.0, 0.0, 0.0)
    assert summary([3.0, 1.0, 2.0]) == (2.0, 3.0, 3.0)
    assert summary([float(number) for number in range(1000)]) == (499.5, 990.0, 999.0)


def test_each_case_is_played_with_each_of_its_ways() -> None:
    for rounds in (3, 6):
        planned = jobs(CASES.values(), rounds)
        for case in CASES.values():
            mine = [job for job in planned if job.case is case]
            assert {job.way for job in mine} == set(case.ways)
    together = {(job.case.name, job.way, job.protocol) for job in jobs(CASES.values(), 9)}
    for case in CASES.values():
        found = {(way, protocol) for name, way, protocol in together if name == case.name}
        assert found >= {(way, protocol) for way in case.ways for protocol in ("classic", "consumer")}, case.name


def test_a_run_is_the_same_whatever_other_cases_are_played() -> None:
    (name, *_) = reversed(CASES)
    assert set(jobs([CASES[name]], 3)) == {job for job in jobs(CASES.values(), 3) if job.case.name == name}
