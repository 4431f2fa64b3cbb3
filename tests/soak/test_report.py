"""The verdict on a run."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tests.harness.account import Count
from tests.soak.meter import Process, Role, Sample
from tests.soak.report import failures, judge
from tests.soak.run import Failure, Happened, Result, is_excused
from tests.soak.schedule import Plan
from tests.soak.slope import Verdict

RUNNER, WORKER, JVM = Process("A", Role.RUNNER, 11), Process("A", Role.WORKER, 12), Process("A", Role.JVM, 10)


def run(memory_kb: Callable[[Process, float], float], processes: tuple[Process, ...] = (RUNNER, WORKER, JVM)) -> Result:
    """Return a run of two hours whose processes have this much memory."""
    plan = Plan(7200, 1)
    samples = [
        Sample(at, process, int(memory_kb(process, at)), 90_000, 70_000, 20, 9)
        for at in (30.0 * one for one in range(240))
        for process in processes
    ]
    happened = [Happened(one.at, one, 3.0) for one in plan.disturbances()]
    return Result(plan, "4.1.0", 7200, Count(1000), 9, 500, 2.0, True, happened=happened, samples=samples)


def flat(_process: Process, at: float) -> float:
    return 50_000 + 40 * (at % 90 > 30)


def test_a_run_in_which_nothing_grows_is_right() -> None:
    result = run(flat)
    judged = judge(result)
    assert [(one.process, one.verdict) for one in judged] == [(JVM, None), (RUNNER, Verdict.FLAT), (WORKER, Verdict.FLAT)]
    assert failures(result, judged) == []


def test_a_runner_that_grows_is_a_failure_and_a_jvm_is_not() -> None:
    def memory(process: Process, at: float) -> float:
        return flat(process, at) + (0 if process is WORKER else 3.6 * 1024 * at / 3600)

    result = run(memory)
    (failure,) = failures(result, judge(result))
    assert failure.startswith("the runner of A grows by +3.")


def test_what_went_wrong_with_the_run_its_records_claims_and_queries_are_failures() -> None:
    result = run(flat)
    result.problem = "the run ended before its time: KafkaException: no leader"
    result.deleted = 0
    result.count = Count(1000, lost=["0:7"], doubled=["0:1"], changed=["0:3 has 5 in B"], unknown=["0:2"])
    result.unsettled = ["partition 3: owed: [5, 7) to b"]
    result.failures = [Failure(60.0, "A", "DataLossError: expired", False), Failure(90.0, "B", "CommitOutcomeUnknown", True)]
    assert failures(result, judge(result)) == [
        result.problem,
        "lost: 0:7; doubled: 0:1; changed: 0:3 has 5 in B; unknown: 0:2",
        "retention has deleted nothing",
        "the group has not settled: partition 3: owed: [5, 7) to b",
        "A ended by itself: DataLossError: expired",
    ]


@pytest.mark.parametrize(
    ("error", "since_broker", "since_start", "excused"),
    [
        ("... CommitOutcomeUnknown: no answer", -math.inf, 900.0, True),
        ("... CommitOutcomeUnknown: no answer", 30.0, 900.0, True),
        ("... CommitOutcomeUnknown: no answer", 90.0, 10.0, False),
        ("[STREAM_FAILED] Python worker failed to connect back.", 900.0, 30.0, True),
        ("[STREAM_FAILED] Python worker failed to connect back.", -math.inf, 90.0, False),
        ("DataLossError: expired", -math.inf, 1.0, False),
    ],
)
def test_an_error_is_excused_only_right_after_its_cause(
    error: str, since_broker: float, since_start: float, excused: bool
) -> None:
    assert is_excused(error, since_broker=since_broker, since_start=since_start) is excused


def test_a_run_without_a_runner_for_the_whole_last_half_fails() -> None:
    result = run(flat, (WORKER,))
    again = Process("A", Role.RUNNER, 14)
    result.samples += [Sample(5000.0 + 30 * one, again, 50_000, 1, 1, 1, 1) for one in range(70)]
    assert failures(result, judge(result)) == ["no runner of A was measured for the whole last half"]
