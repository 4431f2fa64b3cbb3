"""Groups that are not consumer groups, each created by a member of its own kind.

librdkafka has no such members. So a socket sends their requests to the only node of a cluster: heartbeats of a share group
(KIP-932) and of a streams group (KIP-1071), and what a worker of Kafka Connect joins its group with.
"""

from __future__ import annotations

import socket
import struct
from uuid import uuid4

from devtools.broker import Cluster
from tests.support.waiting import until

JOIN_GROUP = (11, 3)
LEAVE_GROUP = (13, 2)
SHARE_GROUP_HEARTBEAT = (76, 1)
STREAMS_GROUP_HEARTBEAT = (88, 0)
"""The key and the version of a request."""

JOINING, LEAVING = 0, -1
"""Epochs of a member."""

NO_ERROR = 0
IS_LOADING = (14, 15, 16)
"""What a coordinator says that is not there yet."""

NULL = b"\0"
NO_TAGS = b"\0"
NO_STRUCT = b"\xff"
EMPTY_ARRAY = b"\1"
"""Parts of a flexible request (KIP-482)."""


class ShareGroup:
    """A share group with one member. Its session is over after 45 s; the group stays."""

    kind = "share group"

    def __init__(self, cluster: Cluster, group: str, topic: str) -> None:
        self._cluster, self._group, self._topic = cluster, group, topic
        self._member = str(uuid4())
        self._heartbeat(JOINING)

    def leave(self) -> None:
        """Have the member leave."""
        self._heartbeat(LEAVING)

    def _heartbeat(self, epoch: int) -> None:
        topics = _array(_text(self._topic)) if epoch == JOINING else NULL
        body = _text(self._group) + _text(self._member) + struct.pack(">i", epoch) + NULL + topics + NO_TAGS
        _accepted(self._cluster, SHARE_GROUP_HEARTBEAT, body, flexible=True)


class StreamsGroup(ShareGroup):
    """A streams group with one member, which reads one topic."""

    kind = "streams group"

    def _heartbeat(self, epoch: int) -> None:
        subtopology = _text("0") + _array(_text(self._topic)) + EMPTY_ARRAY * 5 + NO_TAGS
        topology = b"\1" + struct.pack(">i", 0) + _array(subtopology) + NO_TAGS
        joins = topology + EMPTY_ARRAY * 3 + _text("process") + NO_STRUCT + EMPTY_ARRAY
        leaves = NO_STRUCT + NULL * 4 + NO_STRUCT + NULL
        body = _text(self._group) + _text(self._member) + struct.pack(">ii", epoch, 0) + NULL * 2 + struct.pack(">i", 60_000)
        body += (joins if epoch == JOINING else leaves) + NULL * 2 + b"\0" + NO_TAGS
        _accepted(self._cluster, STREAMS_GROUP_HEARTBEAT, body, flexible=True)


class ConnectGroup:
    """A group of Kafka Connect with one worker, which stays in it for five minutes."""

    kind = "classic group with the protocol type 'connect'"

    def __init__(self, cluster: Cluster, group: str, topic: str) -> None:  # noqa: ARG002 -- workers subscribe to nothing
        self._cluster, self._group = cluster, group
        protocols = struct.pack(">i", 1) + _old_text("sessioned") + struct.pack(">i", 0)
        body = _old_text(group) + struct.pack(">ii", 300_000, 300_000) + _old_text("") + _old_text("connect") + protocols
        answer = _accepted(cluster, JOIN_GROUP, body)
        place = 4 + 2 + 4  # the throttle time, the error and the generation
        for _ in range(3):  # the protocol, the leader and the member
            size = struct.unpack_from(">h", answer, place)[0]
            self._member = answer[place + 2 : place + 2 + size].decode()
            place += 2 + size

    def leave(self) -> None:
        """Have the worker leave."""
        _accepted(self._cluster, LEAVE_GROUP, _old_text(self._group) + _old_text(self._member))


def _accepted(cluster: Cluster, request: tuple[int, int], body: bytes, *, flexible: bool = False) -> bytes:
    """Send a request until the coordinator has loaded the group; return the answer, from the throttle time on."""
    host, port = cluster.bootstrap_servers.split(":")
    message = struct.pack(">hhi", *request, 1) + _old_text("test") + (NO_TAGS if flexible else b"") + body
    answer = b""

    def accepted() -> bool:
        nonlocal answer
        with socket.create_connection((host, int(port)), 60) as connection:
            connection.sendall(struct.pack(">i", len(message)) + message)
            answer = _exactly(connection, struct.unpack(">i", _exactly(connection, 4))[0])[4 + flexible :]
        (error,) = struct.unpack_from(">h", answer, 4)
        assert error in (NO_ERROR, *IS_LOADING), answer
        return bool(error == NO_ERROR)

    until(accepted, "an accepted request")
    return answer


def _exactly(connection: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        part = connection.recv(size - len(read))
        assert part, "the broker has closed the connection: it does not know the request"
        read += part
    return read


def _text(text: str) -> bytes:
    assert len(text) < 127
    return bytes([len(text) + 1]) + text.encode()


def _array(*entries: bytes) -> bytes:
    return bytes([len(entries) + 1]) + b"".join(entries)


def _old_text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
