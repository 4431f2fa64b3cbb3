"""Controls the queries' processes in `make chaos-sink`. A query that has ended is restarted."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from devtools.broker import Cluster
from spark_groupsource.patience import Deadline
from tests.chaos import copying_program
from tests.chaos.copying_report import CONTESTED
from tests.support.processes import processes_with
from tests.support.spark_process import SparkProcess

MARK = f"COPYING_{os.getpid()}"
"""Stands in the environment of all processes of a query, with the name of the process that was started."""

NAMES = "AB"
LOOK_EVERY_S = 0.1
_ERROR = re.compile(r"spark_groupsource\.errors\.(\w+)")
_OF_SPARK = re.compile(r"^\[([A-Z_.]+)\]")
_FAILED = re.compile(rf"^{copying_program.FAILED} (.*)$", re.MULTILINE)


class Running:
    """One process that runs a query."""

    def __init__(self, name: str, folder: Path, servers: str, cores: int, *, again: bool) -> None:
        self.name = name
        self._folder = folder
        command = [sys.executable, copying_program.__file__, name.partition("-")[0], servers, str(cores), name]
        self._process = SparkProcess(name, folder, [*command, "yes" if again else "no"], {MARK: name})

    @property
    def ended(self) -> bool:
        """Whether the process has ended on its own, or was killed."""
        return self._process.ended

    @property
    def starts(self) -> int:
        """How often the process has started its query."""
        return self._process.log().count(copying_program.STARTED)

    @property
    def errors(self) -> list[str]:
        """The errors with which its query has failed: the name of this package's error, or else the beginning of Spark's."""
        return [_name_of(text) for text in _FAILED.findall(self._process.log())]

    def command(self, what: str, limit_s: float) -> bool:
        """Send a command, and return whether it was taken."""
        file = self._folder / f"{self.name}.{what}"
        file.touch()
        for _ in Deadline(limit_s).attempts(0.02):
            if not file.exists():
                return True
            if self.ended:
                break
        file.unlink(missing_ok=True)
        return False

    def kill(self, of: str, chance: random.Random) -> bool:
        """Kill the driver's JVM or a Python worker with SIGKILL. Return whether there was one."""
        processes = processes_with(f"{MARK}={self.name}\0")
        drivers = [pid for pid, command in processes.items() if "java" in command.partition(" ")[0]]
        workers = [pid for pid, command in processes.items() if "pyspark.daemon" in command]
        among = drivers if of == "driver" else workers
        try:
            if among:
                os.kill(chance.choice(among), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return bool(among)

    def close(self) -> None:
        """Kill it."""
        self._process.close()


def _name_of(error: str) -> str:
    names: list[str] = _ERROR.findall(error) or _OF_SPARK.findall(error) or [error[:100]]
    return names[-1]


class Queries:
    """The two queries. Only the strikes' thread uses this."""

    def __init__(self, cluster: Cluster, folder: Path, chance: random.Random) -> None:
        self._servers = cluster.bootstrap_servers
        self._folder = folder
        self._chance = chance
        self._started = Counter[str]()
        self._all: list[Running] = []
        self._current: dict[str, Running] = {}
        self._contested: set[str] = set()
        self.cores = dict.fromkeys(NAMES, 2)

    def keep_running(self) -> None:
        """Start the queries that are not running."""
        for name in NAMES:
            if name not in self._current or self._current[name].ended:
                if name in self._current:
                    self._current[name].close()
                self._current[name] = self.start(name, again=self._chance.random() < 0.5)

    def start(self, name: str, *, again: bool) -> Running:
        """Start a query's process, even if it already has one."""
        self._started[name] += 1
        running = Running(f"{name}-{self._started[name]}", self._folder, self._servers, self.cores[name], again=again)
        self._all.append(running)
        return running

    def current(self, name: str) -> Running:
        """Return the process that runs a query, or ran it last."""
        return self._current[name]

    def contested(self, name: str, stays: Running, ended: Running) -> None:
        """Note that two processes have run a query at the same time, and which of them remains."""
        self._contested |= {stays.name, ended.name}
        ended.close()
        self._current[name] = stays

    def until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Wait for a condition while keeping the queries running. Return whether it came true."""
        for _ in Deadline(limit_s).attempts(LOOK_EVERY_S):
            self.keep_running()
            if condition():
                return True
        return False

    @property
    def starts(self) -> dict[str, int]:
        """How often each query was started, in a new process or in the same one."""
        return {name: sum(each.starts for each in self._all if each.name.startswith(name)) for name in NAMES}

    @property
    def errors(self) -> Counter[str]:
        """The errors with which the queries have failed. A star marks those that a second driver may have caused."""
        return Counter(error + CONTESTED * (each.name in self._contested) for each in self._all for error in each.errors)

    def close(self) -> None:
        """Kill all."""
        for process in self._current.values():
            process.close()
