"""Controls the processes of `make chaos-cluster`: a standalone master, two workers and a driver."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from devtools.broker import Cluster
from spark_groupsource.patience import Deadline
from tests.chaos import cluster_program
from tests.chaos.copying_program import FAILED, STARTED
from tests.chaos.visible import Strike
from tests.support.processes import processes_with
from tests.support.spark_process import SparkProcess, start_master, start_worker

MARK = f"CLUSTERED_{os.getpid()}"
"""Stands in the environment of all these processes, with what they belong to."""

HOSTS = ("127.0.0.1", "127.0.0.2")
"""Of the workers. Spark makes no speculative attempt on the host of the first one, so two addresses are two hosts."""

CORES = 2
"""Of a worker."""

CASES: Mapping[str, Mapping[str, str]] = {
    "fixed": {"spark.executor.cores": str(CORES)},
    "dynamic-allocation": {
        "spark.executor.cores": "1",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.executorIdleTimeout": "2s",
        "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    },
}
"""The settings of Spark in each case."""

DRAINED_LIMIT_S = 60.0
"""How long a decommissioned executor may take to move its blocks and to end."""
STOP_LIMIT_S = 180.0


class Processes:
    """All processes. Only the strikes' thread uses this.

    Args:
        brokers: where the driver's queries read and write.
        folder: has the logs, the checkpoints and the files.
        chance: chooses what is struck.
    """

    def __init__(self, brokers: Cluster, folder: Path, chance: random.Random) -> None:
        self._servers = brokers.bootstrap_servers
        self._folder = folder
        self._chance = chance
        self._started = 0
        # Otherwise, the master gives up the program when its executors have failed ten times.
        self._master, self._address = start_master(folder, "-Dspark.deploy.maxExecutorRetries=-1", {MARK: "master"})
        self._workers: dict[str, SparkProcess] = {}
        self._drivers: list[SparkProcess] = []
        self.keep_running()

    def keep_running(self) -> None:
        """Start the workers that are not running."""
        for host in HOSTS:
            if host not in self._workers or self._workers[host].ended:
                if host in self._workers:
                    self._workers[host].close()
                self._started += 1
                more = {MARK: f"worker-{host}", "SPARK_WORKER_OPTS": "-Dspark.decommission.enabled=true"}
                self._workers[host] = start_worker(f"worker-{self._started}", self._folder, self._address, CORES, host, more)

    def begin(self, case: str) -> None:
        """Start the driver, from an earlier driver's checkpoints."""
        settings = [f"{name}={value}" for name, value in CASES[case].items()]
        command = [sys.executable, cluster_program.__file__, self._address, self._servers, *settings]
        self._drivers.append(SparkProcess(f"driver-{len(self._drivers)}", self._folder, command, {MARK: "driver"}))
        self.until(lambda: self._drivers[-1].log().count(STARTED) == 2, STOP_LIMIT_S)

    def stop(self) -> None:
        """Make the driver stop its queries, and wait until it has ended."""
        (self._folder / f"{cluster_program.NAME}.stop").touch()
        self.until(lambda: self._drivers[-1].ended, STOP_LIMIT_S)

    @property
    def ended(self) -> list[str]:
        """The queries that have ended by themselves, with their errors."""
        return [text for driver in self._drivers for text in re.findall(rf"^{FAILED} (.*)$", driver.log(), re.MULTILINE)]

    @property
    def driver_ended(self) -> bool:
        """Whether the driver has ended."""
        return self._drivers[-1].ended

    def until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Wait for a condition while keeping the workers running. Return whether it came true before the driver ended."""
        for _ in Deadline(limit_s).attempts(0.1):
            self.keep_running()
            if condition():
                return True
            if self.driver_ended:
                return False
        return False

    def kill(self, kind: str) -> Strike | None:
        """Kill a process with SIGKILL."""
        return self._signal(kind, FOUND[kind], signal.SIGKILL)

    def decommission(self, kind: str) -> Strike | None:
        """Decommission a worker or an executor, and wait for the end of the executors. A worker is then killed, and replaced."""
        strike = self._signal(kind, FOUND[kind], signal.SIGPWR)
        if strike is None:
            return None
        host, _, pid = strike.struck.partition(" ")
        if kind == WORKER_DECOMMISSIONED:
            self.until(lambda: not _executors(processes_with(f"{MARK}=worker-{host}\0")), DRAINED_LIMIT_S)
            _send(int(pid), signal.SIGKILL)
        else:
            self.until(lambda: int(pid) not in processes_with(f"{MARK}=worker-{host}\0"), DRAINED_LIMIT_S)
        return strike._replace(end=time.monotonic())

    def close(self) -> list[str]:
        """Kill all processes, and return those that are left."""
        for process in [*self._drivers, *self._workers.values(), self._master]:
            process.close()
        for _ in Deadline(DRAINED_LIMIT_S).attempts(0.2):
            if not processes_with(f"{MARK}="):
                break
        return [f"{pid} {command[:100]}" for pid, command in processes_with(f"{MARK}=").items()]

    def _signal(self, kind: str, find: Callable[[Mapping[int, str]], list[int]], number: signal.Signals) -> Strike | None:
        at = time.monotonic()
        among = [(host, pid) for host in HOSTS for pid in find(processes_with(f"{MARK}=worker-{host}\0"))]
        if not among:
            return None
        host, pid = self._chance.choice(among)
        return Strike(kind, f"{host} {pid}", at, at) if _send(pid, number) else None


def _send(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _jvms(processes: Mapping[int, str], of: str) -> list[int]:
    return [pid for pid, command in processes.items() if "java" in command.partition(" ")[0] and of in command]


def _executors(processes: Mapping[int, str]) -> list[int]:
    return _jvms(processes, "CoarseGrainedExecutorBackend")


def _workers(processes: Mapping[int, str]) -> list[int]:
    return _jvms(processes, "org.apache.spark.deploy.worker.Worker")


def _python(processes: Mapping[int, str], *, daemons: bool) -> list[int]:
    """Return the daemons that executors have started, or the workers that the daemons have forked."""
    found = [pid for pid, command in processes.items() if "pyspark.daemon" in command]
    return [pid for pid in found if (_parent(pid) in found) != daemons]


def _parent(pid: int) -> int | None:
    try:
        return int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


WORKER_DECOMMISSIONED = "worker-decommissioned"

FOUND: Mapping[str, Callable[[Mapping[int, str]], list[int]]] = {
    "executor-killed": _executors,
    "worker-killed": _workers,
    "daemon-killed": lambda processes: _python(processes, daemons=True),
    "python-worker-killed": lambda processes: _python(processes, daemons=False),
    "executor-decommissioned": _executors,
    WORKER_DECOMMISSIONED: _workers,
}
"""The kinds of strikes, each with the processes of a worker's host that it may hit."""
