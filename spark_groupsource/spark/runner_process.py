"""The runner's process: it leaves the group when Spark stops it or when the driver dies, and it collects garbage rarely.

Spark starts one runner for each source of each running query, as a child of the driver's JVM.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from types import FrameType

from spark_groupsource.query.cycle import Cycle

LOOK_AT_DRIVER_EVERY_S = 0.5
"""Seconds between two looks at whether the driver is alive."""

COLLECT_AFTER_OBJECTS = 50_000
"""New objects after which Python's garbage collector runs. Python's own threshold is 700 in Python 3.11."""


def collect_rarely() -> None:
    """Have the garbage collector run rarely in this process.

    A plan of thousands of partitions makes many objects that all stay for a while. With Python's thresholds the collector took
    more than half of the plan's time.
    """
    gc.set_threshold(COLLECT_AFTER_OBJECTS)


def leave_on_sigterm(cycle: Cycle) -> None:
    """Leave the group when Spark stops the query.

    The JVM sends SIGTERM to the runner and does not wait for `stop`. Outside the main thread nothing is installed.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(signal.SIGTERM)

    def leave(number: int, frame: FrameType | None) -> None:
        cycle.stop()
        if callable(before):
            before(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    signal.signal(signal.SIGTERM, leave)


def leave_with_driver(cycle: Cycle) -> None:
    """Leave the group and end this process when the driver has died.

    Between Spark's calls the runner notices a dead driver by itself. It does not during a call that waits for a broker or for
    another member: it would keep the driver's partitions until the wait ends. So a thread watches the driver.
    """
    driver = os.getppid()

    def watch() -> None:
        while os.getppid() == driver:
            time.sleep(LOOK_AT_DRIVER_EVERY_S)
        cycle.stop(with_driver=True)
        os._exit(1)

    threading.Thread(target=watch, name="groupkafka-driver-watch", daemon=True).start()
