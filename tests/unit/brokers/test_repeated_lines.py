"""What a log shows of lines that repeat: the first, and then how often they came."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

import pytest

from spark_groupsource.brokers.repeated_lines import MOST_OF_A_KIND, Repeated, RepeatFilter, Repeats, kind_of_line, same_line
from tests.support.waiting import until


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


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def repeats(clock: Clock) -> Repeats[str]:
    return Repeats(60, clock)


def test_a_line_is_new_its_repetitions_are_counted_and_after_a_silent_interval_it_is_new_again(
    repeats: Repeats[str], clock: Clock
) -> None:
    assert repeats.is_new("down", None, "down after 1 ms")
    assert repeats.due_in_s() is None
    assert not repeats.is_new("down", None, "down after 2 ms")
    clock.now += 59
    assert not repeats.is_new("down", None, "down after 3 ms")
    assert repeats.due() == []
    assert repeats.due_in_s() == 1
    clock.now += 2
    assert repeats.due_in_s() == 0, "even if nothing else is logged"
    assert repeats.due() == [Repeated("down after 3 ms", 2, 61, of_a_kind=False)]
    assert repeats.due() == []
    clock.now += 61
    assert repeats.is_new("down", None, "down after 4 ms")
    assert repeats.due() == []
    assert repeats.due_in_s() is None


def test_a_line_that_goes_on_is_written_once_in_each_interval(repeats: Repeats[str], clock: Clock) -> None:
    written = []
    for _ in range(300):
        if repeats.is_new("down", None, "down"):
            written.append("new")
        written += [str(one.times) for one in repeats.due()]
        clock.now += 1
    clock.now += 60
    written += [str(one.times) for one in repeats.due()]
    assert written[0] == "new"
    assert 5 <= len(written) <= 6
    assert 1 + sum(int(times) for times in written[1:]) == 300, "no repetition is lost"


def test_all_counts_are_there_at_the_end(repeats: Repeats[str], clock: Clock) -> None:
    for _ in range(3):
        repeats.is_new("down", None, "down")
    repeats.is_new("lost", None, "lost")
    clock.now += 5
    assert repeats.all_counts() == [Repeated("down", 2, 5, of_a_kind=False)]
    assert repeats.all_counts() == []


def test_of_one_kind_some_lines_are_written_and_the_others_are_counted_together(repeats: Repeats[str], clock: Clock) -> None:
    written = [number for number in range(100) if repeats.is_new(f"broker {number}", "broker", f"broker {number}")]
    assert written == list(range(MOST_OF_A_KIND))
    assert repeats.is_new("something else", "else", "something else")
    clock.now += 60
    assert repeats.due() == [Repeated("broker 99", 100 - MOST_OF_A_KIND, 60, of_a_kind=True)]


def test_a_kind_that_has_been_away_is_written_again(repeats: Repeats[str], clock: Clock) -> None:
    for number in range(10):
        repeats.is_new(f"broker {number}", "broker", "")
    clock.now += 60
    assert repeats.due()
    clock.now += 61
    assert repeats.is_new("broker 11", "broker", "")


def test_lines_that_differ_in_durations_or_in_the_client_are_equal() -> None:
    first = same_line(refused())
    assert same_line(refused(ms=1234, client=7)) == first
    assert same_line(refused(suppressed=", 17 identical error(s) suppressed")) == first
    assert same_line(refused(number=2)) != first
    assert same_line(refused().replace("refused", "timed out")) != first


def test_lines_of_librdkafka_that_differ_in_the_broker_have_one_kind() -> None:
    kind = kind_of_line(same_line(refused()))
    assert kind_of_line(same_line(refused(number=22))) == kind
    assert kind_of_line(same_line(refused().replace("refused", "timed out"))) != kind


@pytest.fixture
def log() -> logging.Logger:
    logger = logging.Logger("librdkafka")  # noqa: LOG001 -- it has no parent and no handlers of pytest's
    logger.setLevel(logging.INFO)
    return logger


class Shown(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_the_filter_of_a_logger_writes_the_count_by_itself_also_if_no_timer_could_be_started_at_first(
    log: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.addFilter(RepeatFilter(log.handle, repeats=Repeats(0.3)))
    log.addHandler(shown := Shown())

    def refused(_: threading.Timer) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Timer, "start", refused)
        log.error("down after %d ms", 0)
        log.error("down after %d ms", 1)
    log.error("down after %d ms", 2)
    until(lambda: len(shown.lines) == 2, "the count")
    assert shown.lines == ["down after 0 ms", "down after 2 ms (repeated 2 times in 0 s)"]


def test_a_line_is_checked_once_by_the_filters_of_a_logger_and_of_a_handler(log: logging.Logger) -> None:
    shown = Shown()
    own = RepeatFilter(shown.handle)
    shown.addFilter(own)
    log.addHandler(shown)
    log.addFilter(of_log := RepeatFilter(log.handle))
    for _ in range(3):
        log.warning("down")
    of_log.end()
    own.end()
    assert shown.lines == ["down", "down (repeated 2 times in 0 s)"]


class Interrupted(Repeats[logging.LogRecord]):
    """A signal handler interrupts the thread that counts a line, and logs one itself."""

    log: logging.Logger

    def is_new(self, same: str, kind: str | None, line: logging.LogRecord) -> bool:
        if line.getMessage() == "down":
            self.log.warning("stopping")
        return super().is_new(same, kind, line)


def test_a_signal_handler_may_log_while_a_line_is_counted(log: logging.Logger) -> None:
    repeats = Interrupted()
    repeats.log = log
    log.addFilter(RepeatFilter(log.handle, repeats=repeats))
    log.addHandler(shown := Shown())
    threading.Thread(target=log.warning, args=("down",), daemon=True).start()
    until(lambda: shown.lines == ["stopping", "down"], "both lines")


def test_below_a_warning_every_line_is_written(log: logging.Logger) -> None:
    log.addFilter(RepeatFilter(log.handle))
    log.addHandler(shown := Shown())
    for _ in range(3):
        log.info("trying again")
    assert len(shown.lines) == 3


A_PROCESS = """
import logging, os
from spark_groupsource.brokers.client import librdkafka_log
from spark_groupsource.spark.stderr_log import log_to_stderr

log_to_stderr()
log = logging.getLogger("spark_groupsource.query.cycle")
for _ in range(3):
    librdkafka_log.error("1/1 brokers are down")
    log.warning("the leader does not answer")
if os.fork() == 0:
    librdkafka_log.error("in the child")
    os._exit(0)
"""


def test_a_process_that_ends_writes_its_counts_and_a_forked_child_does_not() -> None:
    done = subprocess.run([sys.executable, "-c", A_PROCESS], capture_output=True, text=True, check=True)
    assert sorted(line.partition(": ")[2] for line in done.stderr.splitlines()) == [
        "1/1 brokers are down",
        "1/1 brokers are down (repeated 2 times in 0 s)",
        "in the child",
        "the leader does not answer",
        "the leader does not answer (repeated 2 times in 0 s)",
    ]
