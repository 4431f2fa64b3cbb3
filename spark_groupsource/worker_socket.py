"""The socket between Spark's JVM and a Python worker, which would be idle for 40 ms at the start of each task.

The JVM sends the task's command, and then its partition. The second waits until the first is acknowledged (Nagle's
algorithm), and the worker's kernel puts that off for 40 ms, in case there is an answer to send it with. SPARK-51667 is of the
same two, on another of Spark's sockets; this one a source can mend only from within, and only at the moment between the
two messages: when it is unpickled.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from typing import Any

_LOOPBACK = frozenset({"127.0.0.1", "::1"})


class PromptlyAcknowledged:
    """What Spark pickles into the command of its tasks: on its arrival in a worker the command is acknowledged."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge()


def acknowledge() -> None:
    """Have the kernel acknowledge at once what has come by TCP from this machine (`TCP_QUICKACK`: Linux only, elsewhere nothing).

    Python does not tell a task which of the process's sockets is Spark's, and for no other does this do any harm.
    """
    if sys.platform != "linux":
        return
    descriptors: list[str] = []
    with contextlib.suppress(OSError):
        descriptors = os.listdir("/proc/self/fd")
    for descriptor in descriptors:
        # No socket, not connected, or closed meanwhile.
        with contextlib.suppress(OSError):
            _acknowledge(int(descriptor))


def _acknowledge(descriptor: int) -> None:
    one = socket.socket(fileno=descriptor)
    try:
        if one.family in (socket.AF_INET, socket.AF_INET6) and one.getpeername()[0] in _LOOPBACK:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    finally:
        # It is not ours to close.
        one.detach()
