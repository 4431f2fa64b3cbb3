"""Pools a process's Kafka clients, so that later tasks and micro-batches can reuse them.

Reusing a client saves the time to connect, log in and look up the brokers. A task takes a client out of the pool, so that no
other task uses it, and puts it back if nothing is wrong with it.

The pool limits the number and age of its clients, because each has several threads and a connection to each broker it uses.
Clients that have been idle for longer than KEPT_S are closed when the process's next task begins. Spark stops its idle workers
when it has used none of them for a minute.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from spark_groupsource.timeouts import KEPT_S

log = logging.getLogger(__name__)

LIFE_S = 600.0
"""A client's maximum age. Clients must be replaced occasionally, because they read certificate and password files only once."""

MOST_KEPT = 32
"""The maximum number of idle clients. Each has about three threads, and one more for each broker that it uses."""


class PooledClient(Protocol):
    """A client that the pool can keep."""

    def close(self) -> None:
        """Close the client's connections."""

    def abandon(self) -> None:
        """Make sure that a forked child never uses or frees the client. Closing it would hang, because its threads are gone."""


Client = TypeVar("Client", bound=PooledClient)


class _Idle(NamedTuple):
    client: PooledClient
    idle_since: float


class ClientPool:
    """A pool of idle clients, keyed by their settings. Only one thread may use it."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Make an empty pool.

        Args:
            clock: Returns monotonic time in seconds.
        """
        self._clock = clock
        self._idle: dict[Hashable, _Idle] = {}
        """The idle clients, with the most recently used one last."""
        self._living: dict[int, tuple[PooledClient, float]] = {}
        """All clients that have not been closed, by `id`, with the time when each was created."""

    def add(self, client: Client) -> Client:
        """Register a new client and return it. The caller must later call `keep` or `close` with it."""
        self._living[id(client)] = client, self._clock()
        return client

    def take(self, key: Hashable, *, useless: Callable[[PooledClient], bool] = lambda _client: False) -> PooledClient | None:
        """Take the idle client with this key out of the pool, or return `None` if there is no usable one.

        Args:
            key: The settings, and anything else in which clients may differ.
            useless: Returns whether an idle client will never be needed again, so that it can be closed.
        """
        self._close_old(useless)
        found = self._idle.pop(key, None)
        return None if found is None else found.client

    def has(self, client: PooledClient) -> bool:
        """Return whether a client that came from this pool is still usable. A forked child must not use its parent's clients."""
        return id(client) in self._living

    def keep(self, key: Hashable, client: PooledClient) -> None:
        """Put a client into the pool for the next caller with the same key."""
        if not self.has(client):
            return
        earlier = self._idle.pop(key, None)
        # Both are the same client if a signal interrupted the caller after its first call, and it then called again.
        if earlier is not None and earlier.client is not client:
            self.close(earlier.client)
        self._idle[key] = _Idle(client, self._clock())
        while len(self._idle) > MOST_KEPT:
            self._close_later(next(iter(self._idle)))
        log.debug("this process has %d cached clients that are not in use", len(self._idle))

    def close(self, client: PooledClient) -> None:
        """Close a client that `take` or `add` has returned. In a forked child, this does nothing to the parent's clients."""
        if self._living.pop(id(client), None) is not None:
            client.close()

    def close_kept(self) -> None:
        """Close the idle clients, and wait until they are closed."""
        for key in list(self._idle):
            self.close(self._idle.pop(key).client)

    def abandon(self) -> None:
        """Forget the parent's clients in a forked child."""
        for client, _made in self._living.values():
            client.abandon()
        self._living.clear()
        self._idle.clear()

    def _close_old(self, useless: Callable[[PooledClient], bool]) -> None:
        now = self._clock()
        for key, (client, idle_since) in list(self._idle.items()):
            if now - idle_since >= KEPT_S or now - self._living[id(client)][1] >= LIFE_S or useless(client):
                self._close_later(key)

    def _close_later(self, key: Hashable) -> None:
        client = self._idle.pop(key).client
        del self._living[id(client)]
        close_on_thread(client.close)


def close_on_thread(close: Callable[[], object]) -> None:
    """Close a client on a separate thread, because closing takes several milliseconds and no task should wait for it."""
    try:
        threading.Thread(target=close, name="closing a client").start()
    except RuntimeError as none_left:
        log.info("closing a client on this thread, because no new thread can be started: %s", none_left)
        close()


def digest(client: Mapping[str, str]) -> str:
    """Return a string that identifies a client's settings but contains none of their secrets."""
    return hashlib.sha256(repr(sorted(client.items())).encode()).hexdigest()


_POOL = ClientPool()


def pool() -> ClientPool:
    """Return this process's pool."""
    return _POOL


os.register_at_fork(after_in_child=_POOL.abandon)
# Close the idle clients at exit. Otherwise, their threads would still be running when the process unloads the libraries they use.
atexit.register(_POOL.close_kept)
