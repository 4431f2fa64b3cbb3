"""What a log shows of lines that repeat: the first, and then one a minute, with the number of those left out."""

from __future__ import annotations

import logging
import threading

import pytest

from spark_groupsource.brokers.repeated_lines import MOST_KINDS, MOST_OF_A_KIND, RepeatFilter, same_line
from spark_groupsource.subject import FIELD


def refused(number: int = 1, client: int = 1, ms: int = 0, suppressed: str = "") -> str:
    broker = f"kafka-{number}.example.com:9092/{number}"
    return (
        f"FAIL [groupkafka#consumer-{client}] [thrd:{broker}]: {broker}: Connect to ipv4#10.0.0.{number}:9092 failed: "
        f"Connection refused (after {ms}ms in state CONNECT{suppressed})"
    )


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Shown(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
def log(clock: Clock, shown: Shown) -> logging.Logger:
    """A logger as that of librdkafka's lines."""
    logger = logging.Logger("librdkafka")  # noqa: LOG001 -- it has no parent and no handlers of pytest's
    logger.setLevel(logging.INFO)
    logger.addFilter(RepeatFilter(has_kinds=True, clock=clock))
    logger.addHandler(shown)
    return logger


def test_a_line_is_written_its_repetitions_are_left_out_and_the_next_one_has_their_number(
    log: logging.Logger, clock: Clock, shown: Shown
) -> None:
    for ms in range(3):
        log.error("down after %d ms", ms)
    clock.now += 59
    log.error("down after %d ms", 3)
    assert shown.lines == ["down after 0 ms"]
    clock.now += 2
    log.error("down after %d ms", 4)
    log.error("down after %d ms", 5)
    assert shown.lines[1:] == ["down after 4 ms (3 lines like this suppressed in 61 s)"]
    clock.now += 3600
    log.error("down after %d ms", 6)
    assert shown.lines[2:] == ["down after 6 ms (1 line like this suppressed in 3600 s)"]
    clock.now += 60
    log.error("down after %d ms", 7)
    assert shown.lines[3:] == ["down after 7 ms"], "nothing was left out"


def test_of_one_kind_some_lines_are_written_and_all_others_are_counted(log: logging.Logger, clock: Clock, shown: Shown) -> None:
    for number in range(100):
        log.error(refused(number))
    assert shown.lines == [refused(number) for number in range(MOST_OF_A_KIND)]
    log.error("something else")
    assert shown.lines.pop() == "something else"
    clock.now += 60
    log.error(refused(99))
    log.error(refused(98))
    assert shown.lines[MOST_OF_A_KIND:] == [f"{refused(99)} (96 lines like this suppressed in 60 s)", refused(98)]


def test_lines_of_another_logger_than_librdkafkas_have_no_kind(clock: Clock, shown: Shown) -> None:
    logger = logging.Logger("cycle")  # noqa: LOG001
    shown.addFilter(RepeatFilter(clock=clock))
    logger.addHandler(shown)
    for _ in range(2):
        for number in range(100):
            logger.warning("orders-%d has no leader", number)
    assert shown.lines == [f"orders-{number} has no leader" for number in range(100)]


def test_each_query_has_lines_of_its_own(log: logging.Logger, shown: Shown) -> None:
    for query in ("query a: ", "query b: ", "query a: "):
        log.error("down", extra={FIELD: query})
    assert shown.lines == ["down", "down"]


def test_lines_that_differ_in_durations_or_in_the_client_are_equal() -> None:
    first = same_line(refused())
    assert same_line(refused(ms=1234, client=7)) == first
    assert same_line(refused(suppressed=", 17 identical error(s) suppressed")) == first
    assert same_line(refused(number=2)) != first
    assert same_line(refused().replace("refused", "timed out")) != first


def test_lines_that_are_all_different_do_not_fill_the_memory(clock: Clock) -> None:
    own = RepeatFilter(clock=clock)
    for number in range(3 * MOST_KINDS):
        assert own.filter(logging.LogRecord("cycle", logging.WARNING, "", 0, f"offset {number}", (), None))
    assert len(own._written) <= MOST_KINDS


def test_a_line_is_counted_once_by_the_filters_of_a_logger_and_of_a_handler(
    log: logging.Logger, clock: Clock, shown: Shown
) -> None:
    shown.addFilter(RepeatFilter(clock=clock))
    for _ in range(3):
        log.warning("down")
    clock.now += 60
    log.warning("down")
    assert shown.lines == ["down", "down (2 lines like this suppressed in 60 s)"]


def test_a_signal_handler_may_log_while_a_line_is_counted(log: logging.Logger, clock: Clock, shown: Shown) -> None:
    stopping = iter(["once"])

    def interrupted() -> float:
        for _ in stopping:
            log.warning("stopping")
        return clock.now

    log.filters[:] = [RepeatFilter(has_kinds=True, clock=interrupted)]
    thread = threading.Thread(target=log.warning, args=("down",), daemon=True)
    thread.start()
    thread.join(30)
    assert shown.lines == ["stopping", "down"]


def test_below_a_warning_every_line_is_written(log: logging.Logger, shown: Shown) -> None:
    for _ in range(3):
        log.info("trying again")
    assert len(shown.lines) == 3
