"""Makes confluent-kafka clients safe to drop on any thread.

librdkafka aborts the process if a client is destroyed on one of that client's background threads. Such a thread runs Python code
for each answer to an AdminClient, and for each new token for a client with `kafka.oauth_cb`. So it may run garbage collection
like any other thread, or hold the last reference to an error whose traceback leads to the client.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import sys
import threading
import time
from typing import Any

_LOOK_AGAIN_S = 0.01
_LOOKS = 1000
"""How many times to check whether other references to the client remain. If a client has a callback that leads back to its owner,
another reference always remains, but its owner closes the client, or the process ends first."""


@functools.cache
def droppable(kind: type[Any]) -> type[Any]:
    """Return a subclass whose instances are destroyed on the main thread or on a separate thread.

    Args:
        kind: `Consumer`, `Producer` or `AdminClient`.
    """
    return type(kind.__name__, (_Droppable, kind), {"__doc__": kind.__doc__})


class _Droppable:
    def __del__(self) -> None:
        """Let another thread destroy the client, unless this is the main thread, which is never one of librdkafka's threads."""
        if threading.get_ident() != threading.main_thread().ident:
            # Do not use `threading` to start the thread, because this code may run during garbage collection while this thread
            # holds that module's lock. While Python is exiting, no thread can be started.
            with contextlib.suppress(RuntimeError):
                _thread.start_new_thread(_destroy, ([self],))


def _destroy(held: list[_Droppable]) -> None:
    """Wait until there are no other references to the client in the list, and then destroy the client on this thread."""
    # The garbage collector may still be clearing objects that refer to the client. If the list dropped its reference first, the
    # collecting thread would destroy the client after all. The two remaining references are the list's and this call's.
    for _ in range(_LOOKS):
        if sys.getrefcount(held[0]) <= 2:
            break
        time.sleep(_LOOK_AGAIN_S)
    held.clear()
