"""The processes that a test has started, found by a mark in their environment, however far down they were started."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.waiting import until

CAN_LOOK = Path("/proc/self/environ").exists()


def processes_with(mark: str) -> dict[int, str]:
    """Return the command line of each running process that has the mark, by process id; zombies do not count."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has just ended, or is another user's
            continue
    return found


def driver_jvm(mark: str) -> int:
    """Return the process id of the JVM of the only Spark driver with the mark."""
    found: list[int] = []

    def is_alone() -> bool:
        commands = processes_with(mark).items()
        found[:] = [pid for pid, command in commands if re.match(r"\S*java .*org\.apache\.spark\.deploy\.SparkSubmit ", command)]
        return len(found) == 1

    # A process that the JVM is starting has the JVM's own command line for a moment.
    until(is_alone, "one JVM of a Spark driver")
    return found[0]


def has_ended(process: int) -> bool:
    """Return whether a process has ended, even if its parent has not reaped it yet."""
    try:
        # The name of the program, in parentheses, may have spaces.
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def all_have_ended(mark: str) -> None:
    """Wait until no process with the mark is left; fail with those that are."""
    try:
        until(lambda: not processes_with(mark), "every process has ended")
    except AssertionError as error:
        left = [f"{pid} {command[:200]}" for pid, command in processes_with(mark).items()]
        raise AssertionError(f"{error}: {left}") from None
