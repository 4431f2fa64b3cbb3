"""The Python worker of a task: proves that all rows have come, acknowledges at once, ends well on a signal, and collects little.

**The end of a task's rows.** When a task is cancelled, the JVM shuts its end of the socket. PySpark iterates over an Arrow
stream, which takes an EOF between two record batches for its end: the iterator ends as if it had seen all rows. After a whole
input the JVM sends a mark of Spark's own (`SpecialLengths.END_OF_STREAM`), which PySpark reads once the task has its result. This
has been so from Spark 4.0 to 4.3, for TCP and for Unix sockets. So a task that must know looks ahead for that mark.

**An acknowledgement.** Without it the socket is idle for 40 ms at the start of each task. The JVM sends the task's command, and
then its partition. The second message waits until the first is acknowledged (Nagle's algorithm). The worker's kernel delays the
acknowledgement by 40 ms, in case there is an answer to send it with. SPARK-51667 is the same problem on another socket of Spark.
On this socket a source can only act at the moment between the two messages: when the source is unpickled.

Measured: a trickle in 4 partitions on 2 cores, Spark 4.3, blocks of micro-batches with and without this by turns, on a machine
with other load. The median of `addBatch` was 144 ms, and 200 ms without (96 micro-batches each).
"""

from __future__ import annotations

import ctypes
import functools
import gc
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from types import FrameType
from typing import Any, TypeVar

from spark_groupsource.errors import InputIncomplete

T = TypeVar("T")

_END_OF_STREAM = (-4).to_bytes(4, "big", signed=True)
"""What the JVM sends after the last row."""

_SIGNALS = (signal.SIGTERM, signal.SIGHUP) if hasattr(signal, "SIGHUP") else (signal.SIGTERM,)


class PromptlyAcknowledged:
    """Base of what Spark pickles into the command of its tasks. Unpickling it in a worker acknowledges the command."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        descriptor = sparks_socket()
        if descriptor is not None:
            acknowledge(descriptor)


def sparks_socket() -> int | None:
    """Return the descriptor from which Spark's worker reads what this thread unpickles. `None` outside a worker.

    Spark gives it to nobody, but `pyspark.worker.main(infile, outfile)` is one of the callers. Other sockets of the process are
    the user's, and are left alone.
    """
    infile = _infile()
    return infile.fileno() if isinstance(infile, BufferedReader) else None


def _infile() -> Any:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "main" and _is_worker(frame.f_globals):
            return frame.f_locals.get("infile")
        frame = frame.f_back
    return None


def _is_worker(module: dict[str, Any]) -> bool:
    # Without Spark's daemon (spark.python.use.daemon=false) it is run as a program: `python -m pyspark.worker`.
    return "pyspark.worker" in (module.get("__name__"), getattr(module.get("__spec__"), "name", None))


def sees_the_end() -> Callable[[], bool] | None:
    """Return a function that says, after the last row, whether it was the last. `None`: this process cannot know.

    The function waits until the JVM has sent the mark, or has shut its end of the socket. It takes nothing from the socket.
    """
    infile = _infile()
    peek: Callable[[int], bytes] | None = getattr(infile, "peek", None)
    if peek is None:
        return None

    def ended() -> bool:
        # Of a mark that has arrived in part, the first byte suffices: of a stream that is cut off, nothing follows.
        ahead = peek(len(_END_OF_STREAM))[: len(_END_OF_STREAM)]
        return bool(ahead) and _END_OF_STREAM.startswith(ahead)

    return ended


def whole(rows: Iterator[T], ended: Callable[[], bool]) -> Iterator[T]:
    """Yield the rows of a task, and raise an error at their end unless it is the end of them all.

    Raises:
        InputIncomplete: Spark has cancelled the task.
    """
    yield from rows
    if not ended():
        raise InputIncomplete(
            "Spark has cancelled this task before its last row: the query is stopped, another task of it has failed, or the "
            "executor is taken away. What the task has written with exactly-once is aborted, and no reader of committed records "
            "sees it. There is nothing to do: Spark runs the micro-batch again, now or when the query is started again."
        )


def acknowledge(descriptor: int) -> None:
    """Have the kernel acknowledge at once what has arrived by TCP (`TCP_QUICKACK`). Does nothing on systems other than Linux.

    Args:
        descriptor: A socket. For one that is not of TCP, this does nothing.
    """
    if sys.platform == "linux":
        # Not through a Python socket object: after `socket.setdefaulttimeout` it would make Spark's socket non-blocking.
        on = ctypes.c_int(1)
        ctypes.CDLL(None).setsockopt(descriptor, socket.IPPROTO_TCP, socket.TCP_QUICKACK, ctypes.byref(on), ctypes.sizeof(on))


@functools.cache
def freeze_imports() -> None:
    """Exclude everything that has been imported by now from garbage collection, once in each process.

    Spark collects a worker's garbage after every task, before the worker takes the next one. With everything that the reader
    imports, that takes longer than a small task.

    What later tasks leave behind is collected as usual. Garbage that exists already is collected first: user code that shares the
    worker may have left it.

    Measured with PySpark 4.3, on a machine with other load: a collection takes 8 to 13 ms of CPU time in Spark's worker alone, 13
    to 30 ms with this package (60,000 objects), and 0.00 ms after `freeze_imports`. In a trickle in 4 partitions on 2 cores, with
    and without it by turns, the median of `addBatch` was 144 ms, and 192 ms without (96 micro-batches each).
    """
    gc.collect()
    gc.freeze()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise SystemExit in the block. Does nothing on another thread than the main one.

    When an executor dies, Spark's daemon sends SIGHUP to its workers. A cluster manager that takes a container away sends
    SIGTERM. Python ends at once then, and leaves a transaction open that readers wait for. A task that has one takes the moment
    to end it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _end) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> None:
    # A second signal must not interrupt what the first one began.
    for handled in _SIGNALS:
        signal.signal(handled, signal.SIG_IGN)
    sys.exit(128 + number)
