"""Addresses of brokers, as librdkafka connects to them: IPv6, with the zone of a link-local address."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from devtools.broker import Cluster
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.kafka_settings.translation import translate


def link_local() -> str | None:
    """Return an IPv6 address of this machine that needs its zone, with the zone; `None` if there is none."""
    try:
        with open("/proc/net/if_inet6") as lines:
            found = [line.split() for line in lines]
    except OSError:
        return None
    for digits, _, _, scope, _, device in found:
        if scope == "20":  # link-local
            return ":".join(digits[at : at + 4] for at in range(0, 32, 4)) + f"%{device}"
    return None


def pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    for one in (source, target):
        one.close()


@pytest.fixture
def listening(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[tuple[int, list[str]]]:
    """Listens at the address, and passes on to the broker what comes; the port, and who has connected."""
    host, _, port = cluster.bootstrap_servers.partition(":")
    family, kind, protocol, _, address = socket.getaddrinfo(request.param, 0, socket.AF_INET6, socket.SOCK_STREAM)[0]
    came: list[str] = []
    with socket.socket(family, kind, protocol) as listener:
        listener.bind(address)
        listener.listen()

        def accept() -> None:
            while True:
                try:
                    client, peer = listener.accept()
                except OSError:  # closed
                    return
                came.append(peer[0])
                broker = socket.create_connection((host, int(port)))
                threading.Thread(target=pump, args=(client, broker), daemon=True).start()
                threading.Thread(target=pump, args=(broker, client), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1], came
        listener.shutdown(socket.SHUT_RDWR)


HERE = link_local() if socket.has_ipv6 else None
ADDRESSES = [one for one in (HERE, "::1" if HERE else None) if one]


@pytest.mark.skipif(not ADDRESSES, reason="this machine has no link-local IPv6 address")
@pytest.mark.parametrize(
    ("listening", "form"),
    [(one, form) for one in ADDRESSES for form in ("[{}]:{},", "PLAINTEXT://{}:{}")],
    indirect=["listening"],
)
def test_a_broker_is_reached_at_an_ipv6_address(
    listening: tuple[int, list[str]], form: str, request: pytest.FixtureRequest
) -> None:
    port, came = listening
    address = request.node.callspec.params["listening"]
    settings = translate({"bootstrap.servers": form.format(address, port)})
    assert GroupAdmin(settings).topics() is not None
    assert came, "the answer came through this address"
