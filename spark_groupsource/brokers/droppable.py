"""Clients of confluent-kafka that any thread may drop.

librdkafka aborts the process if a client is destroyed on a background thread of the client itself. That thread runs Python: for
the answer to each request of an AdminClient, and for each new token of a client with `kafka.oauth_cb`. So it collects garbage as
every thread does, or holds the last reference to an error whose traceback leads to the client.
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
"""A client whose callback leads back to its owner is never alone. It was closed by its owner, or the process ends with it."""


@functools.cache
def droppable(kind: type[Any]) -> type[Any]:
    """Return the class of the same clients that end on the main thread, or on a thread of their own.

    Args:
        kind: `Consumer`, `Producer` or `AdminClient`.
    """
    return type(kind.__name__, (_Droppable, kind), {"__doc__": kind.__doc__})


class _Droppable:
    def __del__(self) -> None:
        """Leave the end to another thread, unless this is the main thread, which is never librdkafka's."""
        if threading.get_ident() != threading.main_thread().ident:
            # Not threading's: garbage may be collected while this very thread holds its lock. At Python's end none starts.
            with contextlib.suppress(RuntimeError):
                _thread.start_new_thread(_destroy, ([self],))


def _destroy(held: list[_Droppable]) -> None:
    """Drop the client that a list holds, on this thread."""
    # The collector may still be clearing what refers to the client. If the list's reference went first, the client would be
    # destroyed over there all the same. The two references are the list's and the call's.
    for _ in range(_LOOKS):
        if sys.getrefcount(held[0]) <= 2:
            break
        time.sleep(_LOOK_AGAIN_S)
    held.clear()
