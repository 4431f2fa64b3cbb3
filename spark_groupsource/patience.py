"""How long something may take, and trying it again until then.

Clock and sleep are given, so that tests need not wait. Times are seconds of a monotonic clock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_INTERVAL_S = 0.1
"""Between two attempts, unless the caller gives another interval."""


class Deadline:
    """A moment until which something is tried. It is only read, so any thread may use it."""

    def __init__(
        self, seconds: float, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Set the deadline, counted from now.

        Args:
            seconds: how far away the deadline is.
            clock: returns seconds, monotonic.
            sleep: waits for so many seconds.
        """
        self._clock = clock
        self._sleep = sleep
        self._at = clock() + seconds

    @property
    def left(self) -> float:
        """The seconds that are left; 0 from the deadline on."""
        return max(0.0, self._at - self._clock())

    @property
    def over(self) -> bool:
        """Whether the deadline has been reached."""
        return self._clock() >= self._at

    def attempts(self, interval_s: float = RETRY_INTERVAL_S, first_s: float | None = None) -> Iterator[int]:
        """Yield 0, 1, 2 and so on, `interval_s` seconds apart: at least once, and for the last time when the deadline is over.

        In `for ... else` the `else` runs when the deadline came first.

        Args:
            interval_s: seconds between two attempts.
            first_s: seconds after the first attempt. The pause then grows by a tenth each time, up to `interval_s`.
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

    def retry(self, step: Callable[[], T], passes: Callable[[Exception], bool], interval_s: float = RETRY_INTERVAL_S) -> T:
        """Return what `step` returns; try it again while it fails with an error that passes.

        Args:
            step: what to do.
            passes: whether another attempt may succeed after this error.
            interval_s: seconds between two attempts.

        Raises:
            Exception: the last error of `step`. It does not pass, or the deadline is over.
        """
        while True:
            try:
                return step()
            except Exception as error:
                if not passes(error) or self.over:
                    raise
                log.info("trying again: %s", error)
            self._sleep(interval_s)


class Retries:
    """When to try again what has failed, for a caller that must not wait. Used by one thread.

    It is due from the start, and again `interval_s` after each failure.
    """

    def __init__(
        self, patience_s: float, *, interval_s: float = RETRY_INTERVAL_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Be due at once.

        Args:
            patience_s: how many seconds of failures in a row are accepted.
            interval_s: seconds between two attempts.
            clock: returns seconds, monotonic.
        """
        self._patience_s = patience_s
        self._interval_s = interval_s
        self._clock = clock
        self._due_at = clock()
        self._failing_since: float | None = None

    @property
    def due(self) -> bool:
        """Whether it is time for the next attempt."""
        return self._clock() >= self._due_at

    def make_due(self) -> None:
        """Allow an attempt now: there is something new to try."""
        self._due_at = self._clock()

    def succeeded(self) -> None:
        """Note an attempt without an error."""
        self._failing_since = None

    def failed(self) -> bool:
        """Note a failure; return whether the patience allows another attempt."""
        now = self._clock()
        if self._failing_since is None:
            self._failing_since = now
        self._due_at = now + self._interval_s
        return now - self._failing_since <= self._patience_s
