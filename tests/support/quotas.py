"""Sets client quotas on a broker, because confluent-kafka has no such call and Kafka's own tool starts a JVM."""

from __future__ import annotations

import socket
import struct

_ALTER_CLIENT_QUOTAS = 49


def limit_fetches(bootstrap_servers: str, client_id: str, bytes_per_second: float) -> None:
    """Set the consumer quota of a client id, with AlterClientQuotas (KIP-546), version 0."""
    host, port = bootstrap_servers.split(",", maxsplit=1)[0].split(":")
    one = struct.pack(">i", 1)
    header = struct.pack(">hhi", _ALTER_CLIENT_QUOTAS, 0, 1) + _text("tests")
    entity = one + _text("client-id") + _text(client_id)
    operation = one + _text("consumer_byte_rate") + struct.pack(">d?", bytes_per_second, False)
    request = header + one + entity + operation + struct.pack(">?", False)
    with socket.create_connection((host, int(port)), timeout=60) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", answers.read(4))
        _correlation, _throttled_ms, _entries, error = struct.unpack(">iiih", answers.read(size)[:14])
    assert error == 0, f"the broker refuses the quota: error {error}"


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()
