"""Writes a repeated warning only once a minute, with the number of suppressed lines.

While a broker is down, a client keeps trying to connect, and librdkafka logs each failure.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from spark_groupsource.subject import FIELD

WRITTEN_EVERY_S = 60.0
"""How often a repeated line is written."""

MOST_OF_A_KIND = 4
"""The maximum number of distinct lines of one kind to write within WRITTEN_EVERY_S. Each broker has its own lines."""

MOST_KINDS = 1000
"""The maximum number of kinds to remember. When it is reached, all are forgotten, so that unique lines do not fill memory."""

_DURATION = re.compile(r"\b\d+(?:\.\d+)? ?(?:us|ms|s|min)\b")
_SUPPRESSED = re.compile(r"(?:, )?\d+ identical error\(s\) suppressed")
_CLIENT = re.compile(r"\[[^\]\s]*#(?:consumer|producer)-\d+\] |\[thrd:[^\]]*\]:? ?")
"""Matches the names of the client and its thread in confluent-kafka and librdkafka lines."""
_BROKER = re.compile(r"[^\s/=(]+:\d+(?:/(?:\d+|bootstrap))?|\bGroupCoordinator(?:/\d+)?")
"""Matches a host with its port, or librdkafka's name for a broker."""
_NUMBER = re.compile(r"\d+")

_PASSED = "groupkafka_has_passed"
"""Marks a log record that a filter has passed, so that a handler's filter does not count the record again."""


@dataclass
class _Written:
    written_at: float
    lines: set[str]
    left_out: int = 0


class RepeatFilter(logging.Filter):
    """Passes the first of several equal warnings or errors, and then one each minute with the number of suppressed lines.

    A query's lines are equal if they differ only in durations and in the client that wrote them. librdkafka's lines also have a
    kind: the line without numbers and broker names. Lines below warning level always pass.

    Args:
        has_kinds: Whether the lines are librdkafka's.
        clock: Returns monotonic time in seconds.
    """

    def __init__(self, *, has_kinds: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._has_kinds = has_kinds
        self._clock = clock
        self._written: dict[tuple[str, str, str], _Written] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write the record."""
        if record.levelno < logging.WARNING or hasattr(record, _PASSED):
            return True
        line, now = same_line(record.getMessage()), self._clock()
        kind = (record.name, getattr(record, FIELD, ""), kind_of_line(line) if self._has_kinds else line)
        # Do not use a lock, because a signal handler that logs while this thread holds it would wait forever. At worst, two
        # threads write the same line, or a count is too low.
        written = self._written.get(kind)
        if written is None or now - written.written_at >= WRITTEN_EVERY_S:
            if written is None and len(self._written) >= MOST_KINDS:
                self._written = {}
            self._written[kind] = _Written(now, {line})
            if written is not None and written.left_out:
                record.msg, record.args = f"{record.getMessage()} ({_number_of(written, now)})", ()
        elif line in written.lines or len(written.lines) >= MOST_OF_A_KIND:
            written.left_out += 1
            return False
        else:
            written.lines.add(line)
        setattr(record, _PASSED, True)
        return True


def same_line(text: str) -> str:
    """Return the line without durations and the client's name, which may differ between repetitions."""
    return _DURATION.sub("#", _SUPPRESSED.sub("", _CLIENT.sub("", text)))


def kind_of_line(line: str) -> str:
    """Return a line's kind: the result of `same_line` without broker names and numbers."""
    return _NUMBER.sub("#", _BROKER.sub("BROKER", line))


def _number_of(written: _Written, now: float) -> str:
    lines = "1 line" if written.left_out == 1 else f"{written.left_out} lines"
    return f"{lines} like this suppressed in {now - written.written_at:.0f} s"
