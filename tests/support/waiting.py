"""Waits for a condition, with a time limit that even a slow machine meets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

GENEROUS_S = 180.0


def until(condition: Callable[[], object], what: str, timeout_s: float = GENEROUS_S) -> float:
    """Wait until `condition` is true, and return the seconds it took; fail with `what` at the time limit.

    The last look begins after the limit: a look that takes long does not shorten the wait.
    """
    begin = time.monotonic()
    passed = 0.0
    while not condition():
        assert passed < timeout_s, f"still waiting after {timeout_s} s: {what}"
        # The longer it takes, the less often it looks: a look may be as dear as all progress of a query.
        time.sleep(min(0.02 + passed / 20, 0.2))
        passed = time.monotonic() - begin
    return time.monotonic() - begin


def in_background(step: Callable[[], object]) -> threading.Thread:
    """Start a step on its own thread."""
    thread = threading.Thread(target=step)
    thread.start()
    return thread
