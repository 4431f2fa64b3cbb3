"""Repeats attempts until a deadline.

The clock and the sleep function are parameters, so tests need not wait. Times are in seconds on a monotonic clock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from spark_groupsource.errors import passes
from spark_groupsource.timeouts import RETRY_INTERVAL_S

log = logging.getLogger(__name__)

T = TypeVar("T")
K = TypeVar("K")


def doubled(first_s: float, most_s: float) -> Iterator[float]:
    """Yield `first_s`, then double the value each time, up to `most_s`."""
    while True:
        yield first_s
        first_s = min(2 * first_s, most_s)


class Deadline:
    """The time at which a caller stops retrying. A deadline is immutable, so any thread may use it."""

    def __init__(
        self, seconds: float, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Set the deadline, relative to now.

        Args:
            seconds: how far away the deadline is.
            clock: returns monotonic time in seconds.
            sleep: waits for a number of seconds.
        """
        self._clock = clock
        self._sleep = sleep
        self._at = clock() + seconds

    @property
    def left(self) -> float:
        """The seconds until the deadline; 0 after it."""
        return max(0.0, self._at - self._clock())

    @property
    def over(self) -> bool:
        """Whether the deadline has been reached."""
        return self._clock() >= self._at

    def attempts(self, interval_s: float = RETRY_INTERVAL_S, first_s: float | None = None) -> Iterator[int]:
        """Yield 0, 1, 2 and so on every `interval_s` seconds, at least once. The last value comes just after the deadline.

        In a `for ... else`, the `else` runs if the deadline came first.

        Args:
            interval_s: seconds between two attempts.
            first_s: seconds to pause after the first attempt. The pause then grows by a tenth each time, up to `interval_s`.
        """
        attempt = 0
        pause_s = interval_s if first_s is None else first_s
        while True:
            yield attempt
            if self.over:
                return
            self._sleep(pause_s)
            pause_s = min(interval_s, 1.1 * pause_s)
            attempt += 1

    def retry(
        self, step: Callable[[], T], may_pass: Callable[[Exception], bool] = passes, interval_s: float = RETRY_INTERVAL_S
    ) -> T:
        """Run `step` and return its result, retrying after each retriable error until the deadline.

        Args:
            step: the step.
            may_pass: returns whether an error is retriable.
            interval_s: seconds between two attempts.

        Raises:
            Exception: the last error from `step`, which is not retriable or came after the deadline.
        """
        while True:
            try:
                return step()
            except Exception as error:
                if not may_pass(error):
                    raise
                self.pause_after(error, interval_s)

    def pause_after(self, error: Exception, interval_s: float = RETRY_INTERVAL_S) -> None:
        """Wait before retrying a step that has failed.

        Args:
            error: the reason for the failure.
            interval_s: how many seconds to wait.

        Raises:
            Exception: `error`, if the deadline has passed.
        """
        if self.over:
            raise error
        log.info("will retry after an error: %s", error)
        self._sleep(interval_s)


@dataclass(frozen=True)
class _Failure:
    """One key's failure."""

    began_at: float | None
    """When the key began to fail, or `None` if it was only postponed."""
    due_at: float


class Failures(Generic[K]):
    """Tracks which keys are failing, and for how long, for a caller that must not block. Only one thread may use it.

    A key that has not failed is due. A key that has failed is due about one interval later, at a multiple of the interval, so
    that keys that failed at different times are retried at the same time. The mapping of failures is replaced and never modified.
    """

    def __init__(
        self, patience_s: float, *, interval_s: float = RETRY_INTERVAL_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start with no failures.

        Args:
            patience_s: how many seconds a key may keep failing.
            interval_s: seconds between two attempts.
            clock: returns monotonic time in seconds.
        """
        self._patience_s = patience_s
        self._interval_s = interval_s
        self._clock = clock
        self._failures: Mapping[K, _Failure] = {}

    def failing(self, keys: Iterable[K]) -> set[K]:
        """Return the keys whose last attempt failed or was postponed."""
        return {key for key in keys if key in self._failures}

    def due(self, keys: Iterable[K]) -> set[K]:
        """Return the keys that may be tried now."""
        now = self._clock()
        return {key for key in keys if key not in self._failures or self._failures[key].due_at <= now}

    def failed(self, keys: Iterable[K]) -> set[K]:
        """Record that these keys have failed, and return those that have been failing for longer than `patience_s`."""
        now = self._clock()
        due_at = self._next(now, self._interval_s)
        began_at = {
            key: now if (known := self._failures.get(key)) is None or known.began_at is None else known.began_at for key in keys
        }
        self._failures = {**self._failures, **{key: _Failure(began, due_at) for key, began in began_at.items()}}
        return {key for key, began in began_at.items() if now - began > self._patience_s}

    def put_off(self, keys: Iterable[K], interval_s: float) -> None:
        """Postpone these keys. This does not count as a failure, so their time limit starts over when they next fail."""
        due_at = self._next(self._clock(), interval_s)
        self._failures = {**self._failures, **dict.fromkeys(keys, _Failure(None, due_at))}

    def forget(self, keys: Collection[K]) -> None:
        """Forget keys that have succeeded, or are no longer needed."""
        self._failures = {key: failure for key, failure in self._failures.items() if key not in keys}

    def _next(self, now: float, interval_s: float) -> float:
        """Return the time of the next attempt, at a multiple of the interval."""
        return (round(now / interval_s) + 1) * interval_s
