"""Lines of the log that repeat: the first is written, and then once a minute how often it came again.

A client tries to connect again and again while a broker is away, and librdkafka logs each failure.
"""

from __future__ import annotations

import atexit
import copy
import logging
import os
import re
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from spark_groupsource.subject import subject_of
from spark_groupsource.timeouts import REPEATED_LINE_EVERY_S, REPEATED_LINE_LOCK_S

Line = TypeVar("Line")

MOST_OF_A_KIND = 4
"""So many different lines of one kind are written in the interval. The others of the kind are counted together.

In a large cluster each broker has lines of its own.
"""

_DURATION = re.compile(r"\b\d+(?:\.\d+)? ?(?:us|ms|s|min)\b")
_SUPPRESSED = re.compile(r"(?:, )?\d+ identical error\(s\) suppressed")
_CLIENT = re.compile(r"\[[^\]\s]*#(?:consumer|producer)-\d+\] |\[thrd:[^\]]*\]:? ?")
"""Where confluent-kafka and librdkafka name the client and its thread."""
_BROKER = re.compile(r"[^\s/=(]+:\d+(?:/(?:\d+|bootstrap))?|\bGroupCoordinator(?:/\d+)?")
"""A host with its port, or librdkafka's name of a broker."""
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Repeated(Generic[Line]):
    """How often a line came again."""

    line: Line
    """The newest."""
    times: int
    seconds: float
    of_a_kind: bool
    """Whether several different lines of one kind are counted together. None of them was written."""

    def often(self) -> str:
        """Return the count in words."""
        times = f"{self.times} time" + ("s" if self.times > 1 else "")
        return f"{'lines of this kind came' if self.of_a_kind else 'repeated'} {times} in {self.seconds:.0f} s"


@dataclass
class _Window(Generic[Line]):
    began: float
    kind: str | None
    newest: Line
    times: int = 0


@dataclass
class Repeats(Generic[Line]):
    """Which lines are new, and how often the others came again. It has no thread and no lock.

    A line that comes again within the interval is counted. When the interval is over its count is due, and the next interval of
    this line begins. A line that was not repeated in an interval is new again.

    Args:
        interval_s: The interval.
        clock: Returns seconds, monotonic.
    """

    interval_s: float = REPEATED_LINE_EVERY_S
    clock: Callable[[], float] = time.monotonic
    _windows: dict[tuple[str, bool], _Window[Line]] = field(default_factory=dict)
    """Those of lines and of kinds, the one that began first in front."""
    _of_kind: Counter[str] = field(default_factory=Counter)
    _due: list[Repeated[Line]] = field(default_factory=list)

    def is_new(self, same: str, kind: str | None, line: Line) -> bool:
        """Return whether the line is to be written. Otherwise count it.

        Args:
            same: Equal for lines that repeat each other.
            kind: Equal for lines of one kind. `None`: the line has none.
            line: What `due` returns.
        """
        self._end_windows()
        key = same, False
        if key not in self._windows and kind is not None and self._of_kind[kind] >= MOST_OF_A_KIND:
            key = kind, True
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(self.clock(), None if key[1] else kind, line)
            if not key[1]:
                if kind is not None:
                    self._of_kind[kind] += 1
                return True
        window.newest = line
        window.times += 1
        return False

    def due(self) -> list[Repeated[Line]]:
        """Return the counts of the intervals that are over, each once."""
        self._end_windows()
        due, self._due = self._due, []
        return due

    def due_in_s(self) -> float | None:
        """Return the seconds until a count is due; `None` if nothing has been counted."""
        if self._due:
            return 0.0
        counted = [window.began for window in self._windows.values() if window.times]
        return max(0.0, min(counted) + self.interval_s - self.clock()) if counted else None

    def all_counts(self) -> list[Repeated[Line]]:
        """Return all counts that have not been returned, and forget all lines."""
        due = self.due()
        now = self.clock()
        due += [self._repeated(key, window, now) for key, window in self._windows.items() if window.times]
        self._windows.clear()
        self._of_kind.clear()
        return due

    def _end_windows(self) -> None:
        now = self.clock()
        while self._windows:
            key, window = next(iter(self._windows.items()))
            if now - window.began < self.interval_s:
                return
            del self._windows[key]
            if window.times:
                self._due.append(self._repeated(key, window, now))
                self._windows[key] = _Window(now, window.kind, window.newest)
            elif window.kind is not None:
                self._of_kind[window.kind] -= 1

    def _repeated(self, key: tuple[str, bool], window: _Window[Line], now: float) -> Repeated[Line]:
        return Repeated(window.newest, window.times, now - window.began, of_a_kind=key[1])


class RepeatFilter(logging.Filter):
    """Lets the first of equal warnings and errors pass. Once a minute, and at exit, it writes how often each came again.

    Lines for one query are equal if they differ in durations only, and in the client that wrote them. The lines of librdkafka
    also have a kind: what is left of them without numbers and names of brokers.

    Args:
        write: Writes a record. It may pass this filter again.
        has_kinds: Whether the lines are librdkafka's.
        repeats: What counts.
    """

    def __init__(
        self,
        write: Callable[[logging.LogRecord], object],
        *,
        has_kinds: bool = False,
        repeats: Repeats[logging.LogRecord] | None = None,
    ) -> None:
        super().__init__()
        self._write = write
        self._has_kinds = has_kinds
        self._repeats = repeats or Repeats()
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._ended = False
        _filters.add(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be written."""
        subject = subject_of(record)
        if self._ended or record.levelno < logging.WARNING or hasattr(record, _CHECKED):
            return True
        same = same_line(record.getMessage())
        # A signal handler may have interrupted the thread that holds it.
        if not self._lock.acquire(timeout=REPEATED_LINE_LOCK_S):
            return True
        try:
            kind = f"{subject}{kind_of_line(same)}" if self._has_kinds else None
            new = self._repeats.is_new(f"{record.name} {subject}{same}", kind, record)
            if not new:
                self._start_timer()
        finally:
            self._lock.release()
        if new:
            setattr(record, _CHECKED, True)
        return new

    def write_due(self) -> None:
        """Write the counts of the intervals that are over."""
        with self._lock:
            due = self._repeats.due()
            self._timer = None
            self._start_timer()
        self._write_counts(due)

    def end(self) -> None:
        """Write all counts, at exit. From now on every line is written."""
        with self._lock:
            self._ended = True
            due = self._repeats.all_counts()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        self._write_counts(due)

    def forget(self) -> None:
        """Forget everything, in a forked child: the counts are the parent's, and the lock may be held by a thread of it."""
        self._lock = threading.Lock()
        self._timer = None
        self._repeats = Repeats(self._repeats.interval_s, self._repeats.clock)

    def _start_timer(self) -> None:
        left_s = self._repeats.due_in_s()
        if self._timer is None and left_s is not None:
            self._timer = threading.Timer(left_s, self.write_due)
            self._timer.daemon = True
            try:
                self._timer.start()
            except RuntimeError:
                # Near its exit a process starts no threads: then `end` writes the counts. If it has too many, a later line tries.
                self._timer = None

    def _write_counts(self, counts: list[Repeated[logging.LogRecord]]) -> None:
        for one in counts:
            record = copy.copy(one.line)
            record.created = time.time()
            record.msecs = record.created % 1 * 1000
            record.msg, record.args = f"{record.getMessage()} ({one.often()})", ()
            setattr(record, _CHECKED, True)
            self._write(record)


_CHECKED = "groupkafka_is_no_repetition"
"""The attribute of a record that a filter has let pass, or has made. Other filters let it pass, too."""

_filters: weakref.WeakSet[RepeatFilter] = weakref.WeakSet()


def logger_without_repetitions(name: str) -> logging.Logger:
    """Return a logger for librdkafka's lines, which writes a line once while it repeats, whatever its handlers are."""
    logger = logging.getLogger(name)
    if not any(isinstance(one, RepeatFilter) for one in logger.filters):
        logger.addFilter(RepeatFilter(logger.handle, has_kinds=True))
    return logger


def same_line(text: str) -> str:
    """Return what a line has in common with its repetitions: it has neither durations nor the name of the client."""
    return _DURATION.sub("#", _SUPPRESSED.sub("", _CLIENT.sub("", text)))


def kind_of_line(same: str) -> str:
    """Return what a line of librdkafka has in common with those of other brokers and topics' partitions."""
    return _NUMBER.sub("#", _BROKER.sub("BROKER", same))


def _end_all() -> None:
    for one in list(_filters):
        one.end()


def _forget_all() -> None:
    for one in list(_filters):
        one.forget()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_forget_all)
