"""What a Python worker does when it is asked to end in the middle of a task.

When an executor dies, Spark's daemon sends SIGHUP to its workers; a cluster manager that takes a container away sends SIGTERM.
Python ends at once then, and leaves a transaction open that readers wait for. A task that has one takes the moment to end it.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP) if hasattr(signal, "SIGHUP") else (signal.SIGTERM,)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise SystemExit in the block. Does nothing on another thread than the main one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.signal(each, _end) for each in _SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _end(number: int, _frame: FrameType | None) -> None:
    # A second signal must not interrupt what the first one began.
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)
