"""The socket between Spark's JVM and a Python worker, which would be idle for 40 ms at the start of each task.

The JVM sends the task's command, and then its partition. The second waits until the first is acknowledged (Nagle's
algorithm), and the worker's kernel puts that off for 40 ms, in case there is an answer to send it with. SPARK-51667 is of the
same two, on another of Spark's sockets; this one a source can mend only from within, and only at the moment between the
two messages: when it is unpickled.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import sys
from typing import Any


class PromptlyAcknowledged:
    """What Spark pickles into the command of its tasks: on its arrival in a worker the command is acknowledged."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge()


def acknowledge() -> None:
    """Have the kernel acknowledge at once what has come by TCP (`TCP_QUICKACK`: Linux only, elsewhere nothing).

    Python does not tell a task which of the process's sockets is Spark's, and for no other does this do any harm.
    """
    if sys.platform != "linux":
        return
    descriptors: list[str] = []
    with contextlib.suppress(OSError):
        descriptors = os.listdir("/proc/self/fd")
    # Not by an object of Python's for each: under `socket.setdefaulttimeout` that would make Spark's socket non-blocking.
    set_option = ctypes.CDLL(None).setsockopt
    on = ctypes.c_int(1)
    for descriptor in descriptors:
        # Of what is no such socket, or is closed by now, this only returns an error.
        set_option(int(descriptor), socket.IPPROTO_TCP, socket.TCP_QUICKACK, ctypes.byref(on), ctypes.sizeof(on))
