"""Memory, open files and threads of each process of each query, from Linux's /proc."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

PROC = Path("/proc")


class Role(str, Enum):
    """What a process of a query is."""

    RUNNER = "runner"
    WORKER = "worker"
    DAEMON = "daemon"
    """PySpark's own, which forks the workers."""
    JVM = "JVM"


TASKS = "pyspark.daemon pyspark.worker"
"""In the command lines of the daemon that forks the workers of tasks, and of these."""

JUDGED = (Role.RUNNER, Role.WORKER)
"""Whose growth is a failure: in these the source's own code runs."""


@dataclass(frozen=True)
class Process:
    """One process of a query."""

    stream: str
    role: Role
    pid: int


@dataclass(frozen=True)
class Sample:
    """One look at one process, in kB.

    `anonymous` is memory that belongs to no file: a leak shows there. `rss` and `pss` include the pages of libraries. `pss`
    counts a share of them, so it changes whenever another process that uses them starts or ends.
    """

    at: float
    process: Process
    anonymous: int
    rss: int
    pss: int
    files: int
    threads: int


def look_at(process: Process, at: float) -> Sample | None:
    """Return a sample of one process, or `None` if it has ended."""
    folder = PROC / str(process.pid)
    try:
        memory = _kilobytes((folder / "smaps_rollup").read_text())
        threads = _kilobytes((folder / "status").read_text())["Threads"]
        files = sum(1 for _ in (folder / "fd").iterdir())
    except (OSError, KeyError):
        return None
    return Sample(at, process, memory["Anonymous"], memory["Rss"], memory["Pss"], files, threads)


def _kilobytes(text: str) -> dict[str, int]:
    """Return the fields of a file of /proc whose value is a number."""
    fields = (line.split() for line in text.splitlines())
    return {words[0][:-1]: int(words[1]) for words in fields if len(words) > 1 and words[0].endswith(":") and words[1].isdigit()}


def processes_of(stream: str, session: int) -> Iterator[Process]:
    """Return the query's processes: those of the session that its driver leads."""
    found: dict[int, tuple[int, str]] = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            # The name of the program, in parentheses, may have spaces.
            state, parent, _group, its_session, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(its_session) == session and state != "Z":
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(folder.name)] = int(parent), command
        except OSError:  # it has just ended
            continue
    for pid, (its_parent, command) in found.items():
        role = _role_of(command, found.get(its_parent, (0, ""))[1])
        if role is not None:
            yield Process(stream, role, pid)


def _role_of(command: str, parent: str) -> Role | None:
    """Return what the process with this command line is, given the command line of its parent."""
    if "org.apache.spark.deploy.SparkSubmit" in command:
        return Role.JVM
    if "python_streaming_source_runner" in command:
        return Role.RUNNER
    # Other daemons look up data sources and plan. They are idle once a query runs.
    if TASKS in command:
        return Role.WORKER if TASKS in parent else Role.DAEMON
    return None


class Meter:
    """Takes samples regularly on its own thread."""

    def __init__(self, every_s: float, sessions: Callable[[], Mapping[str, int]], begin: float) -> None:
        """Prepare it; nothing is sampled before `start`.

        Args:
            every_s: seconds between two samples.
            sessions: the session of each query that runs, by the query's name.
            begin: time 0 of the samples, by `time.monotonic`.
        """
        self._every_s = every_s
        self._sessions = sessions
        self._begin = begin
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="meter", daemon=True)
        self.samples: list[Sample] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            for stream, session in self._sessions().items():
                for process in processes_of(stream, session):
                    sample = look_at(process, time.monotonic() - self._begin)
                    if sample is not None:
                        self.samples.append(sample)
