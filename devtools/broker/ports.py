"""Finds free ports on 127.0.0.1."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

from devtools.broker.config import HOST

_FIRST, _LAST = 20000, 32000
"""The range of ports. It is below the ports that systems use for outgoing connections (from 32768 on Linux, 49152 elsewhere).

A client that tries to reach a stopped node may get such a port for its own end. If that is the node's port, it connects to
itself.
"""


def is_free(port: int) -> bool:
    """Return whether a broker could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Java does this, too, because the port may still have an earlier process's closing connections.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_ports(count: int, *, chosen_before: Collection[int] = ()) -> list[int]:
    """Return different free ports, none of which was chosen before, because nothing may listen on those yet.

    Another process may take one before the broker does. Try again in that case.
    """
    chosen: list[int] = []
    # Do not use the shared generator: if a test seeded it, all processes would get the same ports.
    generator = random.SystemRandom()
    while len(chosen) < count:
        port = generator.randint(_FIRST, _LAST)
        if port not in chosen and port not in chosen_before and is_free(port):
            chosen.append(port)
    return chosen
