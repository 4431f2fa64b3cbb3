"""Warm Sparks: a JVM takes ten seconds to start, so one that survives a case serves the next, and spares are made meanwhile."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_groupsource.demo.query_process import QueryProcess

from ..waiting import until

START_LIMIT_S = 180.0


class Driver:
    """One warm Spark as the harness sees it: idle, or with a query."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._process = QueryProcess(name, folder, "tests.chaos.driver")
        self._jvm = 0
        self._killed = False
        self.state = "starting"
        self.failure = ""

    def look(self) -> str:
        """The state now: starting, ready, started, stopped, failed or gone."""
        for event in self._process.events():
            self.state = event["event"]
            self._jvm = event.get("jvm", self._jvm)
            self.failure = event.get("message", self.failure)
        if self._killed or self._process.ended:
            self.state = "gone"
        return self.state

    def until_ready(self) -> None:
        """Wait until its Spark is up."""
        until(lambda: self.look() != "starting", f"Spark of driver {self.name} is up", START_LIMIT_S)
        assert self.state != "gone", self._process.last_lines()

    def ask(self, command: Mapping[str, Any]) -> None:
        """Ask for a query; returns at once."""
        self.state, self.failure = "asked", ""
        self._process.begin({"do": "start", **command})

    def until_started(self) -> None:
        """Wait until Spark has started the query."""
        until(lambda: self.look() != "asked", f"driver {self.name} has started its query")
        assert self.state != "gone", self._process.last_lines()

    def stop(self) -> None:
        """Stop the query in an orderly way."""
        if self.look() == "started":
            self._process.begin({"do": "stop"})
            until(lambda: self.look() != "started", f"driver {self.name} has stopped its query")

    def kill(self) -> None:
        """SIGKILL for the driver's Python, its JVM and the runner at once."""
        self._killed = True
        self._process.close()

    def kill_jvm(self) -> None:
        """SIGKILL for the JVM; the runner lives until it notices."""
        self._killed = True
        os.kill(self._jvm, signal.SIGKILL)

    def log_lines(self, count: int) -> str:
        """The end of its log."""
        return self._process.last_lines(count)


class Pool:
    """The drivers of one lane."""

    def __init__(self, folder: Path, lane: str) -> None:
        self._folder = folder
        self._lane = lane
        self._numbers = itertools.count(1)
        self._idle: list[Driver] = []
        self._all: list[Driver] = []

    def refill(self, count: int) -> None:
        """Start new drivers until so many are idle; returns at once."""
        while len(self._idle) < count:
            name = f"{self._lane}{next(self._numbers)}"
            driver = Driver(name, self._folder / name)
            self._idle.append(driver)
            self._all.append(driver)

    def take(self) -> Driver:
        """A driver whose Spark is up."""
        self.refill(1)
        # One that is up already, before one that is just starting.
        driver = next((one for one in self._idle if one.look() != "starting"), self._idle[0])
        self._idle.remove(driver)
        driver.until_ready()
        return driver

    def give_back(self, driver: Driver) -> None:
        """Keep a driver without a query for the next; one that is gone is cleared away."""
        if driver.look() == "gone":
            driver.kill()
            self._all.remove(driver)
        else:
            self._idle.append(driver)

    def close(self) -> None:
        """Kill all of them."""
        for driver in self._all:
            driver.kill()
