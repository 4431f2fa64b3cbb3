"""The socket between Spark's JVM and a Python worker. Without this module it is idle for 40 ms at the start of each task.

The JVM sends the task's command, and then its partition. The second message waits until the first is acknowledged (Nagle's
algorithm). The worker's kernel delays the acknowledgement by 40 ms, in case there is an answer to send it with. SPARK-51667 is
the same problem on another socket of Spark. On this socket a source can only act at the moment between the two messages: when the
source is unpickled.

Measured: a trickle in 4 partitions on 2 cores, Spark 4.3, blocks of micro-batches with and without this by turns, on a machine
with other load. The median of `addBatch` was 144 ms, and 200 ms without (96 micro-batches each).
"""

from __future__ import annotations

import ctypes
import socket
import sys
from io import BufferedReader
from types import FrameType
from typing import Any


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
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "main" and frame.f_globals.get("__name__") == "pyspark.worker":
            infile = frame.f_locals.get("infile")
            return infile.fileno() if isinstance(infile, BufferedReader) else None
        frame = frame.f_back
    return None


def acknowledge(descriptor: int) -> None:
    """Have the kernel acknowledge at once what has arrived by TCP (`TCP_QUICKACK`). Does nothing on systems other than Linux.

    Args:
        descriptor: A socket. For one that is not of TCP, this does nothing.
    """
    if sys.platform == "linux":
        # Not through a Python socket object: after `socket.setdefaulttimeout` it would make Spark's socket non-blocking.
        on = ctypes.c_int(1)
        ctypes.CDLL(None).setsockopt(descriptor, socket.IPPROTO_TCP, socket.TCP_QUICKACK, ctypes.byref(on), ctypes.sizeof(on))
