"""The clients that a process keeps from task to task, and from one micro-batch to the next.

A new client connects, logs in, and asks for the brokers. One that is kept saves all of that. Its user takes it out of the pool,
so nothing else uses it meanwhile, and puts it back if nothing is wrong with it.

Kept clients are bounded in number, since each has some threads and a connection to each broker it uses, and in time.
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

log = logging.getLogger(__name__)

KEPT_S = 30.0
"""How long a client may have been idle when it is used. Networks may forget idle connections, and librdkafka is not told: a
request on such a connection waits for seconds. A new client costs little beside such a pause.

Older ones are closed when the next task of the process begins. Spark ends its idle workers once none has been used for a
minute."""

LIFE_S = 600.0
"""How long a client is used at all. Certificates and passwords in files are read when a client is made."""

MOST_KEPT = 32
"""How many clients are kept. Each has about three threads and one for each broker, and connections to the brokers it uses."""


class PooledClient(Protocol):
    """A client that can be kept."""

    def close(self) -> None:
        """End its connections."""

    def abandon(self) -> None:
        """Never use or free it, in a forked child: its threads do not exist there, and closing it would hang."""


Client = TypeVar("Client", bound=PooledClient)


class _Idle(NamedTuple):
    client: PooledClient
    since: float


class ClientPool:
    """Clients by what they are made of. To be used by one thread."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without clients.

        Args:
            clock: Returns seconds, monotonic.
        """
        self._clock = clock
        self._idle: dict[Hashable, _Idle] = {}
        """The clients that nothing uses now, the one that was used last at the end."""
        self._living: dict[int, tuple[PooledClient, float]] = {}
        """All clients that are not closed, by `id`, and when each was made."""

    def add(self, client: Client) -> Client:
        """Note a new client, and return it. Its user then keeps or closes it."""
        self._living[id(client)] = client, self._clock()
        return client

    def take(self, key: Hashable, *, useless: Callable[[PooledClient], bool] = lambda _client: False) -> PooledClient | None:
        """Return the kept client of this key, and let its user have it. `None`: there is none that is still good.

        Args:
            key: What the client has to have in common with a new one.
            useless: Whether nobody will ever need a kept client again. Such ones are closed.
        """
        self._close_old(useless)
        found = self._idle.pop(key, None)
        return None if found is None else found.client

    def has(self, client: PooledClient) -> bool:
        """Return whether a client that was taken or added may be used. In a forked child it is the parent's, and may not."""
        return id(client) in self._living

    def keep(self, key: Hashable, client: PooledClient) -> None:
        """Keep a client for the next user with the same key."""
        if not self.has(client):
            return
        before = self._idle.pop(key, None)
        # It is the same one if a signal has interrupted what the user does after it has kept it, and it keeps it again.
        if before is not None and before.client is not client:
            self.close(before.client)
        self._idle[key] = _Idle(client, self._clock())
        while len(self._idle) > MOST_KEPT:
            self._close_later(self._idle.pop(next(iter(self._idle))).client)
        log.debug("%d clients are kept in this process", len(self._idle))

    def close(self, client: PooledClient) -> None:
        """Close a client that was taken or added. In a forked child, the parent's clients are left alone."""
        if self._living.pop(id(client), None) is not None:
            client.close()

    def close_kept(self) -> None:
        """Close the kept clients, and wait until they have ended."""
        for key in list(self._idle):
            self.close(self._idle.pop(key).client)

    def abandon(self) -> None:
        """Forget the parent's clients, in a forked child."""
        for client, _made in self._living.values():
            client.abandon()
        self._living.clear()
        self._idle.clear()

    def _close_old(self, useless: Callable[[PooledClient], bool]) -> None:
        now = self._clock()
        for key, (client, since) in list(self._idle.items()):
            if now - since >= KEPT_S or now - self._living[id(client)][1] >= LIFE_S or useless(client):
                self._close_later(self._idle.pop(key).client)

    def _close_later(self, client: PooledClient) -> None:
        """Close a client on a thread of its own: that takes some ms, and no task should wait for it."""
        del self._living[id(client)]
        try:
            threading.Thread(target=client.close, name="closing a client").start()
        except RuntimeError as none_left:
            log.info("no thread to close a client: %s", none_left)
            client.close()


def digest(client: Mapping[str, str]) -> str:
    """Return a text that stands for a client's settings, and holds no secret of them."""
    return hashlib.sha256(repr(sorted(client.items())).encode()).hexdigest()


_POOL = ClientPool()


def pool() -> ClientPool:
    """Return the pool of this process."""
    return _POOL


os.register_at_fork(after_in_child=_POOL.abandon)
# Otherwise their threads would still run while the process unloads the libraries that they use.
atexit.register(_POOL.close_kept)
