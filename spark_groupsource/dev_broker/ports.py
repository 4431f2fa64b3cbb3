"""Free ports on 127.0.0.1."""

from __future__ import annotations

import random
import socket

from spark_groupsource.dev_broker.config import HOST

# Below the ports that systems give to outgoing connections (from 32768 on Linux, 49152 elsewhere). A client that keeps
# trying to reach a stopped node on such a port may be given that very port as its own, and then connects to itself.
_FIRST, _LAST = 20000, 32000


def is_free(port: int) -> bool:
    """Whether a broker could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Java does: connections of an earlier process that linger are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_ports(count: int) -> list[int]:
    """Return different ports that nobody listens on. Somebody may take one before the broker does: be ready to try again."""
    chosen: list[int] = []
    # Not the shared generator: a test that seeds it would give all processes the same ports.
    generator = random.SystemRandom()
    while len(chosen) < count:
        port = generator.randint(_FIRST, _LAST)
        if port not in chosen and is_free(port):
            chosen.append(port)
    return chosen
