"""Warm Sparks. A JVM takes ten seconds to start, so those that survive a case are reused, and spares are kept ready."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from devtools.demo.query_process import QueryProcess
from tests.harness.sampler import batches_in
from tests.harness.steps import CHECKPOINT
from tests.support.processes import has_ended
from tests.support.waiting import until

START_LIMIT_S = 400.0

PATIENCE_S = 180.0
"""After this time something is stuck. How long a stall may be is up to the verdict."""

MOST_STARTS = 3
"""How many starts may fail in a row: Spark gives up on a Python process that has not connected within 10 s."""

TERMINATE_LIMIT_S = 30.0

SESSION_S = 6.0

STARTING = threading.Semaphore(2)
"""Held while something large starts: several JVMs that start at once would exceed their time limits."""


class Driver:
    """A warm Spark, as the harness sees it: idle, or with a query."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._process = QueryProcess(name, folder, "tests.harness.driver")
        self._jvm = 0
        self._killed = False
        self.state = "starting"
        self.failure = ""

    def look(self) -> str:
        """Return the state now: starting, ready, started, stopped, failed or ended."""
        for event in self._process.events():
            self.state = event["event"]
            self._jvm = event.get("jvm", self._jvm)
            self.failure = event.get("message", self.failure)
        if self._killed or self._process.ended:
            self.state = "ended"
        return self.state

    def until_ready(self) -> None:
        until(lambda: self.look() != "starting", f"Spark of driver {self.name} is up", START_LIMIT_S)
        assert self.state != "ended", self._process.last_lines()

    def ask(self, command: Mapping[str, Any]) -> None:
        """Request a query, and return at once."""
        self.state, self.failure = "asked", ""
        self._process.begin({"do": "start", **command})

    def until_started(self) -> None:
        until(lambda: self.look() != "asked", f"driver {self.name} has started its query", PATIENCE_S)
        assert self.state != "ended", self._process.last_lines()

    def stop(self) -> None:
        """Stop the query in an orderly way."""
        if self.look() == "started":
            self._process.begin({"do": "stop"})
            until(lambda: self.look() != "started", f"driver {self.name} has stopped its query", PATIENCE_S)

    def kill(self) -> None:
        """Send SIGKILL to the driver's Python, its JVM and the runner at once."""
        self._killed = True
        self._process.close()

    def kill_jvm(self) -> None:
        """Send SIGKILL to the JVM. The runner lives until it notices."""
        self._killed = True
        os.kill(self._jvm, signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM to the JVM, wait until it has ended, and kill what is left."""
        os.kill(self._jvm, signal.SIGTERM)
        with contextlib.suppress(AssertionError):
            until(lambda: has_ended(self._jvm), f"the JVM of driver {self.name} has ended", TERMINATE_LIMIT_S)
        self.kill()

    @property
    def session(self) -> int:
        """The session that all its processes belong to."""
        return self._process._process.pid

    def last_words(self) -> str:
        return self._process.last_lines(60)


def reading(bootstrap_servers: str, topic: str, protocol: str, client_id: str) -> dict[str, str]:
    """Return the source's options for reading a topic from the beginning, in a group with the topic's name."""
    return {
        "kafka.bootstrap.servers": bootstrap_servers,
        "kafka.group.id": topic,
        "kafka.group.protocol": protocol,
        "kafka.client.id": client_id,
        "subscribe": topic,
        "startingOffsets": "earliest",
        # Under KIP-848 the broker sets it.
        **({} if protocol == "consumer" else {"kafka.session.timeout.ms": str(int(SESSION_S * 1000))}),
    }


class PooledQuery:
    """A query with its checkpoint and its output, in one of the pool's drivers.

    It keeps the driver while the driver is running, and takes another one when it has ended.
    """

    def __init__(self, name: str, folder: Path, pool: Pool, command: Mapping[str, Any]) -> None:
        self.name = name
        self.checkpoint = folder / CHECKPOINT
        self._output = folder / "out"
        self._pool = pool
        self._command = {**command, "checkpoint": str(self.checkpoint), "output": str(self._output)}
        self._driver: Driver | None = None

    @property
    def micro_batches(self) -> int:
        """How many micro-batches it has had."""
        return max(batches_in(self.checkpoint), default=-1) + 1

    def start(self) -> None:
        """Start the query from its checkpoint, and return when Spark has started it."""
        self.ask()
        self.until_started()

    def ask(self) -> None:
        """Request its start, and return at once."""
        self._take_driver().ask(self._command)

    def until_started(self) -> None:
        assert self._driver is not None
        self._driver.until_started()

    def stop(self) -> None:
        """Stop it in an orderly way, and give its driver back."""
        if self._driver is not None:
            self._driver.stop()
            self._return_driver()

    def _take_driver(self) -> Driver:
        """Return the driver that it still has, or another warm one."""
        if self._driver is not None and self._driver.look() == "ended":
            self._return_driver()
        if self._driver is None:
            self._driver = self._pool.take()
        return self._driver

    def _return_driver(self) -> None:
        if self._driver is not None:
            self._pool.give_back(self._driver)
            self._driver = None


class Pool:
    """One lane's drivers. A separate thread starts new ones, one after the other."""

    def __init__(self, folder: Path, lane: str) -> None:
        self._folder = folder
        self._lane = lane
        self._numbers = itertools.count(1)
        self._wanted = 0
        self._idle: list[Driver] = []
        self._all: list[Driver] = []
        self._failure: BaseException | None = None
        self._closing = threading.Event()
        self._maker = threading.Thread(target=self._make, name=f"drivers of lane {lane}", daemon=True)
        self._maker.start()

    def refill(self, count: int) -> None:
        """Request new drivers until this many are idle, and return immediately."""
        self._wanted = max(self._wanted, count)

    def until_warm(self, count: int) -> None:
        """Wait until this many drivers are idle."""
        self.refill(count)
        until(lambda: self._made(count), f"{count} drivers are warm", count * START_LIMIT_S)

    def take(self) -> Driver:
        """Return a driver whose Spark is up."""
        self.until_warm(1)
        driver = self._idle.pop(0)
        # It is not replaced before the next `refill`: a start would take the processors away from the case.
        self._wanted = len(self._idle)
        return driver

    def give_back(self, driver: Driver) -> None:
        """Keep a driver without a query for the next case. Drop one that has ended."""
        if driver.look() == "ended":
            driver.kill()
            self._all.remove(driver)
        else:
            self._idle.append(driver)

    def close(self) -> None:
        """Kill all of them."""
        self._closing.set()
        for driver in self._all:
            driver.kill()
        self._maker.join()

    def _made(self, count: int) -> bool:
        if self._failure is not None:
            raise RuntimeError("a driver did not start") from self._failure
        return len(self._idle) >= count

    def _make(self) -> None:
        failed = 0
        while failed < MOST_STARTS and not self._closing.wait(0.1):
            if len(self._idle) >= self._wanted:
                continue
            try:
                with STARTING:
                    self._make_one()
            except Exception as error:  # noqa: BLE001 -- whoever waits for a driver has to know
                failed += 1
                if failed == MOST_STARTS:
                    self._failure = error
            else:
                failed = 0

    def _make_one(self) -> None:
        name = f"{self._lane}{next(self._numbers)}"
        driver = Driver(name, self._folder / name)
        self._all.append(driver)
        if self._closing.is_set():
            driver.kill()
        driver.until_ready()
        self._idle.append(driver)
