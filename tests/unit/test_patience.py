"""Trying again: how often, until when, and after which errors. Time is the tests' own."""

from __future__ import annotations

import itertools

import pytest

from spark_groupsource.patience import Deadline, Failures, doubled


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


def deadline(time: Time, seconds: float) -> Deadline:
    return Deadline(seconds, clock=time, sleep=time.sleep)


def test_a_deadline_knows_what_is_left_and_when_it_is_over(time: Time) -> None:
    limit = deadline(time, 2)
    assert (limit.left, limit.over) == (2, False)
    time.now += 2
    assert (limit.left, limit.over) == (0, True)
    time.now += 5
    assert (limit.left, limit.over) == (0, True)


@pytest.mark.parametrize(("seconds", "expected"), [(-1, 1), (0, 1), (0.5, 2), (1, 2), (2.5, 4)])
def test_there_is_one_attempt_at_least_and_one_at_the_deadline(time: Time, seconds: float, expected: int) -> None:
    assert list(deadline(time, seconds).attempts(interval_s=1)) == list(range(expected))


def failing(time: Time, until: float, error: Exception) -> str:
    if time.now < until:
        raise error
    return "done"


def test_an_error_that_passes_is_tried_again_until_it_is_over(time: Time) -> None:
    assert deadline(time, 10).retry(lambda: failing(time, 105, OSError()), lambda _: True, interval_s=1) == "done"
    assert time.now == 105


def test_an_error_that_stays_is_raised_at_the_deadline(time: Time) -> None:
    with pytest.raises(OSError, match="taken"):
        deadline(time, 10).retry(lambda: failing(time, 200, OSError("taken")), lambda _: True, interval_s=4)
    assert time.now == 112


def test_an_error_that_does_not_pass_is_raised_at_once(time: Time) -> None:
    with pytest.raises(ValueError, match="wrong"):
        deadline(time, 10).retry(lambda: failing(time, 200, ValueError("wrong")), lambda error: isinstance(error, OSError))
    assert time.now == 100


def test_a_pause_after_a_failure_ends_in_its_error_once_the_deadline_is_over(time: Time) -> None:
    until = deadline(time, 10)
    error = OSError("taken")
    for _ in range(2):
        until.pause_after(error, 6)
    assert time.now == 112
    with pytest.raises(OSError, match="taken"):
        until.pause_after(error, 6)
    assert time.now == 112


def test_each_of_many_has_a_patience_of_its_own_from_its_first_failure_in_a_row(time: Time) -> None:
    failures: Failures[str] = Failures(60, clock=time)
    assert not failures.failed({"a", "b"})
    time.now += 50
    failures.forget({"b"})
    assert not failures.failed({"a", "b", "c"}), "b is counted anew"
    time.now += 11
    assert failures.failed({"a", "b", "c"}) == {"a"}
    time.now += 50
    assert failures.failed({"b", "c"}) == {"b", "c"}


def test_what_is_put_off_is_no_failure_and_has_its_whole_patience_when_it_fails(time: Time) -> None:
    failures: Failures[str] = Failures(60, clock=time)
    failures.failed({"a"})
    time.now += 50
    failures.put_off({"a"}, 1)
    time.now += 1000
    assert not failures.failed({"a"})
    time.now += 60
    assert not failures.failed({"a"})
    time.now += 1
    assert failures.failed({"a"}) == {"a"}


def test_what_failed_at_different_times_is_due_together(time: Time) -> None:
    failures: Failures[str] = Failures(60, interval_s=2, clock=time)
    assert failures.due({"a", "b", "c"}) == {"a", "b", "c"}
    failures.failed({"a"})
    time.now += 0.9
    failures.failed({"b"})
    assert failures.due({"a", "b", "c"}) == {"c"}
    assert failures.failing({"a", "b", "c"}) == {"a", "b"}
    time.now += 1.1
    assert failures.due({"a", "b", "c"}) == {"a", "b", "c"}


def test_what_failed_is_not_due_at_once_whatever_the_clock_shows(time: Time) -> None:
    failures: Failures[int] = Failures(60, clock=time)
    for tick in range(1000):
        time.now = tick / 10
        failures.failed({tick})
        assert not failures.due({tick})


def test_what_is_put_off_waits_for_the_interval_that_it_is_given(time: Time) -> None:
    failures: Failures[str] = Failures(60, interval_s=2, clock=time)
    failures.put_off({"a"}, 10)
    time.now += 9
    assert not failures.due({"a"})
    time.now += 1
    assert failures.due({"a"})


def test_pauses_between_attempts_grow_from_a_short_first_one(time: Time) -> None:
    began = time.now
    at = [time.now - began for _ in deadline(time, 10).attempts(interval_s=1, first_s=0.5)]

    assert at[:3] == pytest.approx([0, 0.5, 1.05])
    assert at[-1] - at[-2] == pytest.approx(1)


def test_times_are_doubled_up_to_the_longest() -> None:
    assert list(itertools.islice(doubled(1, 10), 6)) == [1, 2, 4, 8, 10, 10]
