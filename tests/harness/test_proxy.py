"""The proxy lets bytes through, keeps them back in one direction, and loses them.

Tests that make it forget a connection check that it did.
"""

from __future__ import annotations

import socket
import socketserver
from collections.abc import Iterator

import pytest

from devtools.broker.config import HOST
from tests.harness.proxy import Direction, Proxy
from tests.support.waiting import in_background, until


class Echo(socketserver.ThreadingTCPServer):
    """Sends back what it gets, and keeps it."""

    daemon_threads = True
    got = b""


class Connection(socketserver.BaseRequestHandler):
    server: Echo

    def handle(self) -> None:
        while data := self.request.recv(100):
            self.server.got += data
            self.request.sendall(data)


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo((HOST, 0), Connection) as server:
        in_background(lambda: server.serve_forever(poll_interval=0.01))
        yield server
        server.shutdown()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    running = Proxy(echo.server_address[1])
    yield running
    running.close()


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with connect(proxy) as connection:
        connection.sendall(b"1")
        assert connection.recv(10) == b"1"
        yield connection


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection((HOST, proxy.port), timeout=10)


def nothing_comes(client: socket.socket) -> bool:
    client.settimeout(0.2)
    try:
        return client.recv(10) == b""
    except TimeoutError:
        return True
    finally:
        client.settimeout(10)


def test_requests_that_are_held_arrive_when_they_are_released(proxy: Proxy, echo: Echo, client: socket.socket) -> None:
    proxy.hold(Direction.REQUESTS)
    client.sendall(b"2")
    assert nothing_comes(client)
    assert echo.got == b"1"
    proxy.release()
    assert client.recv(10) == b"2"


def test_answers_are_held_while_requests_go_through(proxy: Proxy, echo: Echo, client: socket.socket) -> None:
    proxy.hold(Direction.ANSWERS)
    client.sendall(b"2")
    until(lambda: echo.got == b"12", "the request arrives")
    assert nothing_comes(client)
    proxy.release()
    assert client.recv(10) == b"2"


def test_what_was_held_is_lost_when_it_is_dropped(proxy: Proxy, echo: Echo, client: socket.socket) -> None:
    proxy.hold(*Direction)
    client.sendall(b"2")
    assert nothing_comes(client)
    proxy.drop()
    assert client.recv(10) == b""
    with connect(proxy) as another:
        another.sendall(b"3")
        assert another.recv(10) == b"3"
    assert echo.got == b"13"
