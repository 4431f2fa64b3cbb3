"""Memory, open files and threads of each process of each query, from Linux's /proc."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
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


def look_at(process: Process, at: float, proc: Path = PROC) -> Sample | None:
    """Return a sample of one process, or `None` if it has ended."""
    folder = proc / str(process.pid)
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


def processes_of(stream: str, session: int, proc: Path = PROC) -> Iterator[Process]:
    """Return the query's processes: those of the session that its driver leads."""
    found: dict[int, tuple[int, str]] = {}
    for folder in proc.glob("[0-9]*"):
        try:
            # The name of the program, in parentheses, may have spaces.
            state, parent, _group, its_session, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(its_session) == session and state != "Z":
                found[int(folder.name)] = (
                    int(parent),
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"),
                )
        except OSError:  # it has just ended
            continue
    for pid, (its_parent, command) in found.items():
        role = role_of(command, found.get(its_parent, (0, ""))[1])
        if role is not None:
            yield Process(stream, role, pid)


def role_of(command: str, parent: str) -> Role | None:
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
    """Takes samples regularly on its own thread, and writes each one to a file too."""

    def __init__(self, every_s: float, sessions: Callable[[], Mapping[str, int]], path: Path, begin: float) -> None:
        """Prepare it; nothing is sampled before `start`.

        Args:
            every_s: seconds between two samples.
            sessions: the session of each query that runs, by the query's name.
            path: where the samples go, one line of JSON each.
            begin: time 0 of the samples, by `time.monotonic`.
        """
        self._every_s = every_s
        self._sessions = sessions
        self._path = path
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
        with self._path.open("w", encoding="utf-8") as log:
            while not self._stopping.wait(self._every_s):
                for stream, session in self._sessions().items():
                    for process in processes_of(stream, session):
                        sample = look_at(process, time.monotonic() - self._begin)
                        if sample is not None:
                            self.samples.append(sample)
                            log.write(json.dumps(asdict(sample)) + "\n")
                with contextlib.suppress(OSError):
                    log.flush()
