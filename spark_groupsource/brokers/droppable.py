"""Makes clients of confluent-kafka safe to drop on any thread.

librdkafka aborts the process if a client is destroyed on a background thread of the client itself. That thread runs Python for
the answer to each request of an AdminClient, and for each new token of a client with `kafka.oauth_cb`. So it may collect garbage
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
"""How often to check that no other reference is left. A client whose callback leads back to its owner always has another one. Its
owner has closed such a client, or the process ends with it."""


@functools.cache
def droppable(kind: type[Any]) -> type[Any]:
    """Return a subclass whose clients are destroyed on the main thread, or on a thread of their own.

    Args:
        kind: `Consumer`, `Producer` or `AdminClient`.
    """
    return type(kind.__name__, (_Droppable, kind), {"__doc__": kind.__doc__})


class _Droppable:
    def __del__(self) -> None:
        """Let another thread destroy the client, unless this is the main thread, which never belongs to librdkafka."""
        if threading.get_ident() != threading.main_thread().ident:
            # Do not use `threading` here: garbage may be collected while this very thread holds the lock of that module. While
            # Python is ending, no thread can be started.
            with contextlib.suppress(RuntimeError):
                _thread.start_new_thread(_destroy, ([self],))


def _destroy(held: list[_Droppable]) -> None:
    """Destroy the client in a list on this thread."""
    # The collector may still be clearing objects that refer to the client. If the list's reference went first, the client would
    # be destroyed on the collecting thread after all. The two remaining references are the list's and the call's.
    for _ in range(_LOOKS):
        if sys.getrefcount(held[0]) <= 2:
            break
        time.sleep(_LOOK_AGAIN_S)
    held.clear()
