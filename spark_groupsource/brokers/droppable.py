"""Makes clients of confluent-kafka safe to drop on any thread.

librdkafka aborts the process if a client is destroyed on a background thread of that client. Such a thread runs Python code for
each answer to an AdminClient, and for each new token of a client with `kafka.oauth_cb`. So it may collect garbage like any other
thread, or hold the last reference to an error whose traceback leads to the client.
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
"""How often to check that no other reference to the client is left. A client with a callback that leads back to its owner always
has another one, but such a client is closed by its owner, or ends with the process."""


@functools.cache
def droppable(kind: type[Any]) -> type[Any]:
    """Return a subclass whose clients are destroyed on the main thread or on a separate thread.

    Args:
        kind: `Consumer`, `Producer` or `AdminClient`.
    """
    return type(kind.__name__, (_Droppable, kind), {"__doc__": kind.__doc__})


class _Droppable:
    def __del__(self) -> None:
        """Let another thread destroy the client, unless this is the main thread, which is never a thread of librdkafka."""
        if threading.get_ident() != threading.main_thread().ident:
            # Do not start the thread with `threading`, because this code may run as garbage collection while the same thread
            # holds that module's lock. While Python exits, no thread can be started.
            with contextlib.suppress(RuntimeError):
                _thread.start_new_thread(_destroy, ([self],))


def _destroy(held: list[_Droppable]) -> None:
    """Destroy the client in a list on this thread."""
    # The collector may still be clearing objects that refer to the client. If the list dropped its reference first, the client
    # would be destroyed on the collecting thread after all. The two remaining references are the list's and this call's.
    for _ in range(_LOOKS):
        if sys.getrefcount(held[0]) <= 2:
            break
        time.sleep(_LOOK_AGAIN_S)
    held.clear()
