"""A TCP proxy in front of one broker's listener, which can stop either direction or refuse to connect.

`hold` keeps the bytes and the connections: what was sent arrives when it is released, as through a network that was away for
a while. `drop` closes the connections that were held, and their bytes never arrive.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from enum import Enum

from devtools.broker.config import HOST

CHUNK = 65536
CONNECT_LIMIT_S = 5.0


class Direction(Enum):
    """Which way bytes go."""

    REQUESTS = "requests"
    ANSWERS = "answers"


class Proxy:
    """Listens on a free port of 127.0.0.1. Its threads are daemons: it ends with its process."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._open = {direction: threading.Event() for direction in Direction}
        for gate in self._open.values():
            gate.set()
        self._refusing = False
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
        """Close every connection, and every new one at once."""
        self._refusing = True
        self._close_all()

    def release(self) -> None:
        """Let everything through again, what was held back included."""
        self._refusing = False
        for gate in self._open.values():
            gate.set()

    def drop(self) -> None:
        """Let new connections through again; close those that were held, with the bytes in them."""
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
        threading.Thread(target=self._pump, args=(client, broker, Direction.REQUESTS), daemon=True).start()
        self._pump(broker, client, Direction.ANSWERS)

    def _pump(self, source: socket.socket, target: socket.socket, direction: Direction) -> None:
        try:
            while data := source.recv(CHUNK):
                self._open[direction].wait()
                target.sendall(data)
        except OSError:
            pass
        # If a connection ends while the direction is held, its end is held too.
        self._open[direction].wait()
        with self._lock:
            self._connections -= {source, target}
        for one in (source, target):
            _shut(one)

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
