"""A TCP proxy in front of one broker's listener, which can stop either direction, refuse to connect, or forget connections.

`hold` keeps the bytes and the connections: what was sent arrives when it is released, as after a network outage. `drop` closes
the held connections, and their bytes never arrive. `forget` loses a response and all later ones on its connection, like a router
that has forgotten a connection: requests still arrive, and new connections work.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable
from enum import Enum

from devtools.broker.config import HOST

CHUNK = 65536
CONNECT_LIMIT_S = 5.0


class Direction(Enum):
    """The direction of the bytes."""

    REQUESTS = "requests"
    ANSWERS = "answers"


class Proxy:
    """Listens on a free port of 127.0.0.1. Its threads are daemons, so it ends with its process."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._open = {direction: threading.Event() for direction in Direction}
        for gate in self._open.values():
            gate.set()
        self._refusing = False
        self._loses: tuple[Direction, Callable[[bytes], bool]] | None = None
        self._forgotten: set[socket.socket] = set()
        """The broker's ends of connections on which no answer arrives any more."""
        self.idle_s = math.inf
        """After how many seconds without a byte a connection is forgotten. May be changed at any time."""
        self.swallowed = 0
        """How many connections were forgotten because they were idle, and used afterwards."""
        self._used_at: dict[socket.socket, float] = {}
        self._swallowing: set[socket.socket] = set()
        """The broker's ends of connections that were forgotten because they were idle."""
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name=f"proxy {self.port}", daemon=True).start()

    def hold(self, *directions: Direction) -> None:
        """Hold back everything in these directions."""
        for direction in directions:
            self._open[direction].clear()

    def refuse(self) -> None:
        """Close every connection, and every new one immediately."""
        self._refusing = True
        self._close_all()

    def forget(self, begins: Callable[[bytes], bool], among: Direction = Direction.ANSWERS) -> None:
        """Lose a response, and every later one on its connection, until the client closes the connection.

        Args:
            begins: gets what is sent, in pieces; what is shorter than a few kB is one. It is true for the answer to lose, or for
                the request whose answer to lose.
            among: which of the two `begins` gets.
        """
        self._loses = (among, begins)

    @property
    def forgot(self) -> bool:
        """Whether what `forget` waits for has come."""
        return self._loses is None

    def release(self) -> None:
        """Let everything through again, including what was held back."""
        self._refusing = False
        for gate in self._open.values():
            gate.set()

    def drop(self) -> None:
        """Let new connections through again. Close the held ones, and lose the bytes in them."""
        self._close_all()
        self.release()

    def close(self) -> None:
        self._listener.close()
        self.drop()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        if self._refusing:
            client.close()
            return
        try:
            broker = socket.create_connection((HOST, self._target_port), timeout=CONNECT_LIMIT_S)
        except OSError:
            client.close()
            return
        broker.settimeout(None)
        for one in (client, broker):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._connections |= {client, broker}
            self._used_at[broker] = time.monotonic()
        threading.Thread(target=self._pump, args=(client, broker, Direction.REQUESTS), daemon=True).start()
        self._pump(broker, client, Direction.ANSWERS)

    def _pump(self, source: socket.socket, target: socket.socket, direction: Direction) -> None:
        try:
            while data := source.recv(CHUNK):
                self._open[direction].wait()
                broker = target if direction is Direction.REQUESTS else source
                if not self._is_lost(broker, direction, data):
                    target.sendall(data)
        except OSError:
            pass
        # If a connection ends while the direction is held, its end is held too.
        self._open[direction].wait()
        broker = target if direction is Direction.REQUESTS else source
        with self._lock:
            # The other end of one that was idle is not told. It stays open until the proxy is closed.
            ended = {source} if self._is_idle(broker) else {source, target}
            self._connections -= ended
            self._forgotten -= ended
        for one in ended:
            _shut(one)

    def _is_lost(self, broker: socket.socket, direction: Direction, data: bytes) -> bool:
        with self._lock:
            if self._loses is not None and self._loses[0] is direction and self._loses[1](data):
                self._loses = None
                self._forgotten.add(broker)
            if self._is_idle(broker):
                self.swallowed += broker not in self._swallowing
                self._swallowing.add(broker)
                return True
            self._used_at[broker] = time.monotonic()
            return direction is Direction.ANSWERS and broker in self._forgotten

    def _is_idle(self, broker: socket.socket) -> bool:
        """Return whether a connection has been idle for too long, now or before. The caller has the lock."""
        return broker in self._swallowing or time.monotonic() - self._used_at[broker] > self.idle_s

    def _close_all(self) -> None:
        with self._lock:
            connections, self._connections = self._connections, set()
        for one in connections:
            _shut(one)


def _shut(connection: socket.socket) -> None:
    # A thread that waits in recv() notices a shutdown, not a close.
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
