"""The socket of Spark's worker acknowledges at once, and no other does. TCP_QUICKACK shows whether they do."""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from spark_groupsource.spark.batch_reader import GroupKafkaBatchReader
from spark_groupsource.spark.stream_reader import GroupKafkaStreamReader
from spark_groupsource.spark.task import BatchTaskReader, TaskReader
from spark_groupsource.spark.worker_socket import acknowledge
from tests.support.options import parse

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere TCP has no TCP_QUICKACK")


@pytest.fixture
def delaying() -> Iterator[socket.socket]:
    """One end of a connection on which the kernel puts acknowledgements off."""
    with _delaying() as answering:
        yield answering


@contextmanager
def _delaying() -> Iterator[socket.socket]:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
        server.accept()[0] as answering,
    ):
        answering.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        assert not _acknowledges(answering)
        yield answering


def in_spark_worker(infile: object, step: Callable[[], object]) -> object:
    """Call a step from where Spark's worker unpickles: below `pyspark.worker.main(infile, outfile)`."""
    module: dict[str, Any] = {"__name__": "pyspark.worker"}
    exec("def main(infile, step):\n    return step()\n", module)  # noqa: S102
    return module["main"](infile, step)


def test_what_is_no_connection_stays_as_it_is() -> None:
    one, other = socket.socketpair()
    with one, other, open(__file__, "rb") as file:
        for each in (one, file):
            acknowledge(each.fileno())
        one.send(b"!")
        assert other.recv(1) == b"!"
        assert file.read(3) == b'"""'


def test_a_timeout_that_a_user_has_set_is_for_the_users_own_sockets(delaying: socket.socket) -> None:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(5)
    try:
        acknowledge(delaying.fileno())
    finally:
        socket.setdefaulttimeout(before)
    assert os.get_blocking(delaying.fileno())


@pytest.mark.parametrize(("reader", "of_task"), [(GroupKafkaStreamReader, TaskReader), (GroupKafkaBatchReader, BatchTaskReader)])
def test_a_reader_that_arrives_in_a_worker_acknowledges_on_the_socket_of_spark_alone(
    reader: Any, of_task: type, delaying: socket.socket
) -> None:
    pickled = pickle.dumps(reader(parse()))
    assert not _acknowledges(delaying)
    with _delaying() as of_the_user, os.fdopen(os.dup(delaying.fileno()), "rb") as infile:
        read = in_spark_worker(infile, lambda: pickle.loads(pickled))  # noqa: S301 -- what was pickled here
        assert not _acknowledges(of_the_user)
    assert type(read) is of_task
    assert _acknowledges(delaying)


def test_a_reader_that_is_unpickled_elsewhere_touches_no_socket(delaying: socket.socket) -> None:
    pickle.loads(pickle.dumps(GroupKafkaStreamReader(parse())))  # noqa: S301
    assert not _acknowledges(delaying)


def _acknowledges(one: socket.socket) -> bool:
    return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
