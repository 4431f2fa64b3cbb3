"""A member of a group under KIP-848 without a client: it sends the epochs that it is told to send."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Collection, Mapping

from typing_extensions import Self

HEARTBEAT, OFFSET_COMMIT = 68, 8
"""ConsumerGroupHeartbeat and OffsetCommit."""
VERSIONS = {HEARTBEAT: 0, OFFSET_COMMIT: 9}
JOINING, LEAVING = 0, -1
"""Epochs with which a member joins and leaves."""

NOTHING, NO_TAGS = b"\x00", b"\x00"
_numbers = itertools.count(1)


def text(value: str) -> bytes:
    """Write a compact string of at most 126 bytes."""
    return bytes([len(value) + 1]) + value.encode()


def several(items: Collection[bytes]) -> bytes:
    """Write a compact array of at most 126 items."""
    return bytes([len(items) + 1]) + b"".join(items)


class Answer:
    """What is left of an answer."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    def number(self, kind: str) -> int:
        value: int = struct.unpack(f">{kind}", self.take(struct.calcsize(f">{kind}")))[0]
        return value

    def length(self) -> int:
        """Read the length of a compact string or array; 0 also for none."""
        return max(0, self.number("B") - 1)

    def text(self) -> str:
        return self.take(self.length()).decode()

    def no_tags(self) -> None:
        assert self.number("B") == 0


class RawMember:
    """One member. `epoch` and `assigned` are what the coordinator last said."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self.group, self.topic = group, topic
        self._topic_id = b""
        self.member_id = ""
        self.epoch = JOINING
        self.assigned: frozenset[int] = frozenset()
        self.owned: frozenset[int] = frozenset()
        """What it says that it has."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def heartbeat(self) -> int:
        """Say what it has, and hear what it is to have. The error code."""
        has = [self._topic_id + several([struct.pack(">i", one) for one in sorted(self.owned)]) + NO_TAGS] if self.owned else []
        answer = self._ask(
            HEARTBEAT,
            text(self.group)
            + text(self.member_id)
            + struct.pack(">i", self.epoch)
            + NOTHING  # instance id
            + NOTHING  # rack
            + struct.pack(">i", 60_000)
            + several([text(self.topic)])
            + NOTHING  # assignor
            + several(has)
            + NO_TAGS,
        )
        answer.number("i")
        error = answer.number("h")
        answer.text()
        member_id, epoch = answer.text(), answer.number("i")
        answer.number("i")
        if error:
            return error
        self.member_id, self.epoch = member_id, epoch
        if answer.number("b") == 1:
            self.assigned = frozenset()
            for _ in range(answer.length()):
                self._topic_id = answer.take(16)
                self.assigned |= {answer.number("i") for _ in range(answer.length())}
                answer.no_tags()
        return 0

    def settle(self) -> None:
        """Take and give back what the coordinator wants, and tell it."""
        assert self.heartbeat() == 0
        if self.owned != self.assigned:
            self.owned = self.assigned
            assert self.heartbeat() == 0

    def commit(self, offsets: Mapping[int, int], epoch: int) -> dict[int, int]:
        """Commit under this epoch. The error code of each partition."""
        partitions = [struct.pack(">iqi", number, offset, -1) + text("") + NO_TAGS for number, offset in sorted(offsets.items())]
        answer = self._ask(
            OFFSET_COMMIT,
            text(self.group)
            + struct.pack(">i", epoch)
            + text(self.member_id)
            + NOTHING  # instance id
            + several([text(self.topic) + several(partitions) + NO_TAGS])
            + NO_TAGS,
        )
        answer.number("i")
        errors = {}
        for _ in range(answer.length()):
            answer.text()
            for _ in range(answer.length()):
                number = answer.number("i")
                errors[number] = answer.number("h")
                answer.no_tags()
            answer.no_tags()
        return errors

    def _ask(self, kind: int, body: bytes) -> Answer:
        number = next(_numbers)
        request = struct.pack(">hhih", kind, VERSIONS[kind], number, -1) + NO_TAGS + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", self._exactly(4))
        answer = Answer(self._exactly(size))
        assert answer.number("i") == number
        answer.no_tags()
        return answer

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data
