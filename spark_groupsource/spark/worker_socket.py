"""The socket between Spark's JVM and a Python worker. Without this module it is idle for 40 ms at the start of each task.

The JVM sends the task's command, and then its partition. The second message waits until the first is acknowledged (Nagle's
algorithm). The worker's kernel delays the acknowledgement by 40 ms, in case there is an answer to send it with. SPARK-51667 is
the same problem on another socket of Spark. On this socket a source can only act at the moment between the two messages: when the
source is unpickled.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import sys
from typing import Any


class PromptlyAcknowledged:
    """Base of what Spark pickles into the command of its tasks. Unpickling it in a worker acknowledges the command."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge()


def acknowledge() -> None:
    """Have the kernel acknowledge at once what has arrived by TCP (`TCP_QUICKACK`). Does nothing on systems other than Linux.

    A task cannot know which of the process's sockets is Spark's, so this sets the option on each of them. It does no harm.
    """
    if sys.platform != "linux":
        return
    descriptors: list[str] = []
    with contextlib.suppress(OSError):
        descriptors = os.listdir("/proc/self/fd")
    # Not through Python socket objects: after `socket.setdefaulttimeout` they would make Spark's socket non-blocking.
    set_option = ctypes.CDLL(None).setsockopt
    on = ctypes.c_int(1)
    for descriptor in descriptors:
        # For a descriptor that is no TCP socket, or is closed by now, this only returns an error.
        set_option(int(descriptor), socket.IPPROTO_TCP, socket.TCP_QUICKACK, ctypes.byref(on), ctypes.sizeof(on))
