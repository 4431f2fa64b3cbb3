"""The kernel's own sockets acknowledge at once. TCP_QUICKACK shows whether they do."""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from spark_groupsource.options.model import Options
from spark_groupsource.spark.batch_reader import GroupKafkaBatchReader
from spark_groupsource.spark.stream_reader import GroupKafkaStreamReader
from spark_groupsource.spark.task import BatchTaskReader, TaskReader
from spark_groupsource.spark.worker_socket import acknowledge

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere TCP has no TCP_QUICKACK")


@pytest.fixture
def delaying() -> Iterator[socket.socket]:
    """One end of a connection on which the kernel puts acknowledgements off."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
        server.accept()[0] as answering,
    ):
        answering.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        assert not _acknowledges(answering)
        yield answering


def test_what_has_come_is_acknowledged_at_once(delaying: socket.socket) -> None:
    acknowledge()
    assert _acknowledges(delaying)


def test_all_else_stays_as_it_is(delaying: socket.socket) -> None:
    one, other = socket.socketpair()
    with one, other, socket.socket() as not_connected, open(__file__, "rb") as file:
        acknowledge()
        one.send(b"!")
        assert other.recv(1) == b"!"
        assert not_connected.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
        assert file.read(3) == b'"""'
    delaying.send(b"!")


def test_a_timeout_that_a_user_has_set_is_for_the_users_own_sockets(delaying: socket.socket) -> None:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(5)
    try:
        acknowledge()
    finally:
        socket.setdefaulttimeout(before)
    assert os.get_blocking(delaying.fileno())


@pytest.mark.parametrize(("reader", "of_task"), [(GroupKafkaStreamReader, TaskReader), (GroupKafkaBatchReader, BatchTaskReader)])
def test_a_reader_that_arrives_in_a_worker_acknowledges(reader: Any, of_task: type, delaying: socket.socket) -> None:
    pickled = pickle.dumps(reader(Options.parse({"kafka.bootstrap.servers": "b:9092", "kafka.group.id": "g", "subscribe": "t"})))
    assert not _acknowledges(delaying)
    assert type(pickle.loads(pickled)) is of_task  # noqa: S301 -- what was pickled here
    assert _acknowledges(delaying)


def _acknowledges(one: socket.socket) -> bool:
    return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
