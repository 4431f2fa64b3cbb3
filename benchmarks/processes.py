"""Measures the CPU time and peak memory of this process's descendants: Spark's JVM, its Python workers and the query's runner.

It works only on Linux, because it reads /proc. The broker is a descendant, too, and is excluded by its pid.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SAMPLE_S = 0.5
# A worker's Python thread copies the records that librdkafka's threads have fetched, and sends them to the JVM's tasks. The
# driver's Python process is the query's runner, with its clients.
PARTS_OF_WORK = ("broker", "librdkafka", "worker", "JVM tasks", "JVM GC", "JVM compiler", "JVM other", "driver's Python")
EXECUTOR = ("librdkafka", "worker", "JVM tasks", "JVM GC")
"""The parts that an executor and its workers have, when the JVM's compilers have done their work."""
_KB = 1024
_PROC = Path("/proc")


@dataclass(frozen=True)
class Peaks:
    """Peak resident memory in bytes: of the JVM, and of the largest Python worker."""

    jvm: int
    python: int


def cpu_seconds(without: Iterable[int]) -> float:
    """Return the user and system time of all descendants in seconds, including those that have ended.

    When a process ends, its time is added to that of the process that waits for it, so the sum does not shrink. This process,
    which only measures, is excluded. `without`: pids of processes that are also excluded, with their descendants.
    """
    return sum(_cpu_ticks(pid) for pid in _tree(set(without)) - {os.getpid()}) / _TICKS_PER_S


class CpuByPart:
    """The CPU seconds that threads have used since this object was created, by part of the work, including the broker's.

    Args:
        broker: the pids of the broker's nodes.
    """

    def __init__(self, broker: Iterable[int]) -> None:
        self._brokers = set(broker)
        self._before = self._threads()

    def seconds(self) -> dict[str, float]:
        """Return the seconds by `PARTS_OF_WORK`, for the threads that are still running."""
        found = dict.fromkeys(PARTS_OF_WORK, 0.0)
        for task, (part, ticks) in self._threads().items():
            found[part] += (ticks - self._before.get(task, (part, 0))[1]) / _TICKS_PER_S
        return found

    def _threads(self) -> dict[Path, tuple[str, int]]:
        found = {}
        for pid in _tree(set()) - {os.getpid()}:
            process = "worker" if _is_worker(pid) else _name(_PROC / str(pid))
            for task in _tasks(pid):
                part = "broker" if pid in self._brokers else _part(process, _name(task))
                found[task] = part, sum(int(field) for field in _fields(task)[11:13])
        return found


def _part(process: str, thread: str) -> str:
    if process == "java":
        if thread.startswith("Executor task"):
            return "JVM tasks"
        if thread.startswith(("C1 ", "C2 ", "Sweeper")):
            return "JVM compiler"
        return "JVM GC" if thread.startswith(("GC ", "G1 ", "VM ")) else "JVM other"
    if process != "worker":
        return "driver's Python"
    return "librdkafka" if thread.startswith("rdk:") else "worker"


def _is_worker(pid: int) -> bool:
    """Return whether it is one of Spark's Python workers, or the daemon that forks them."""
    try:
        return b"pyspark.daemon" in (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False


@dataclass(frozen=True)
class PythonProcess:
    """One of Spark's Python processes: what it runs, and the CPU seconds that it has used."""

    runs: str
    cpu_seconds: float


def python_processes() -> dict[int, PythonProcess]:
    """Return Spark's running Python processes, by pid."""
    commands = {pid: _spark_module(pid) for pid in _tree(set()) - {os.getpid()}}
    return {
        pid: PythonProcess(_what_it_runs(pid, command, commands), _cpu_ticks(pid) / _TICKS_PER_S)
        for pid, command in commands.items()
        if command
    }


def _spark_module(pid: int) -> tuple[str, ...]:
    """Return the module that a Python process of Spark was started with, and its arguments; nothing for other processes."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_text().rstrip("\0").split("\0")
    except OSError:
        return ()
    return tuple(words[2:]) if words[1:2] == ["-m"] and words[2].startswith("pyspark.") else ()


def _what_it_runs(pid: int, command: tuple[str, ...], commands: dict[int, tuple[str, ...]]) -> str:
    """Return a short name for what a process runs. A process that a daemon forked has the daemon's command line."""
    module = command[-1].rpartition(".")[2]
    if command[0] != "pyspark.daemon":
        return module
    fields = _fields(_PROC / str(pid))
    is_daemon = not fields or commands.get(int(fields[1])) != command
    of = "worker" if len(command) == 1 else module
    return f"daemon of {of}" if is_daemon else of


def drivers_python_memory(without: Iterable[int]) -> int:
    """Return the resident memory in bytes of the driver's largest Python process, which is a query's runner.

    `without`: pids that are excluded, with their descendants.
    """
    found = 0
    for pid in _tree(set(without)) - {os.getpid()}:
        if _name(_PROC / str(pid)) != "java" and not _is_worker(pid):
            found = max(found, _status(pid).get("VmRSS", 0))
    return found


class PeakMemory:
    """Watches the peak memory of all descendants from `__enter__` to `__exit__`, which sets `peaks`."""

    def __init__(self, without: Iterable[int]) -> None:
        self._without = set(without)
        self._seen: dict[int, tuple[str, int]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peaks = Peaks(0, 0)

    def __enter__(self) -> Self:
        for pid in _tree(self._without):
            _forget_peak(pid)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()
        self.peaks = Peaks(self._largest("java"), self._largest("python"))

    def _largest(self, name: str) -> int:
        return max((peak for command, peak in self._seen.values() if name in command), default=0)

    def _watch(self) -> None:
        # A process's peak cannot be read after the process has ended.
        while not self._stop.wait(_SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        for pid in _tree(self._without) - {os.getpid()}:
            found = _peak(pid)
            if found is not None:
                self._seen[pid] = found


def _tree(without: set[int]) -> set[int]:
    parents: dict[int, int] = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            fields = _fields(folder)
            if fields:
                parents[int(folder.name)] = int(fields[1])
    found = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found - without
        if not more:
            return found
        found |= more


def _tasks(pid: int) -> list[Path]:
    """Return the threads of a process; none if it has ended."""
    try:
        return list((_PROC / str(pid) / "task").iterdir())
    except OSError:
        return []


def _name(task: Path) -> str:
    try:
        return (task / "comm").read_text().strip()
    except OSError:
        return ""


def _fields(task: Path) -> list[str]:
    """Return the `stat` fields of a process or a thread, beginning with the state; none if it has ended."""
    try:
        text = (task / "stat").read_text()
    except OSError:
        return []
    # The name is in brackets, and may contain any character.
    return text.rpartition(")")[2].split()


def _cpu_ticks(pid: int) -> int:
    fields = _fields(_PROC / str(pid))
    # utime, stime, cutime, cstime.
    return sum(int(field) for field in fields[11:15])


def _peak(pid: int) -> tuple[str, int] | None:
    found = _status(pid)
    return (_name(_PROC / str(pid)), found["VmHWM"]) if "VmHWM" in found else None


def _status(pid: int) -> dict[str, int]:
    """Return a process's memory from `status`, in bytes; nothing if it has ended."""
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return {}
    return {line.split(":")[0]: int(line.split()[1]) * _KB for line in lines if line.startswith("Vm")}


def _forget_peak(pid: int) -> None:
    try:
        (_PROC / str(pid) / "clear_refs").write_text("5")
    except OSError:
        return
