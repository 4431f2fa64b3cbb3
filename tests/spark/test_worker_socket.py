"""In Spark's own workers: what has come of a task when its reader is unpickled is acknowledged there and then."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spark_groupsource.brokers.client_pool import pool
from spark_groupsource.spark.worker import PromptlyAcknowledged

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere TCP has no TCP_QUICKACK")


class _Reader(PromptlyAcknowledged, DataSourceReader):
    def __init__(self) -> None:
        # Pickle gives no state to what has none.
        self.acknowledging: list[int] = []
        self.of_the_user = -1

    def __setstate__(self, state: dict[str, Any]) -> None:
        # The worker may keep consumers of earlier tasks, with connections to their brokers.
        pool().close_kept()
        # As it is after a worker's first short tasks.
        for one in _tcp_sockets():
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as of_the_user:
            of_the_user.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            super().__setstate__(state)
            self.of_the_user = of_the_user.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
        self.acknowledging = _acknowledging()

    def read(self, partition: InputPartition) -> Iterator[tuple[list[int], int]]:  # noqa: ARG002
        yield self.acknowledging, self.of_the_user


def _tcp_sockets() -> Iterator[socket.socket]:
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            one = socket.socket(fileno=int(descriptor))
            try:
                if one.family in (socket.AF_INET, socket.AF_INET6):
                    yield one
            finally:
                one.detach()


def _acknowledging() -> list[int]:
    return [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) for one in _tcp_sockets()]


class _Sockets(DataSource):
    @classmethod
    def name(cls) -> str:
        return "sockets"

    def schema(self) -> str:
        return "acknowledging array<int>, of_the_user int"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return _Reader()


def test_what_spark_has_sent_to_a_task_is_acknowledged(spark: SparkSession) -> None:
    spark.dataSource.register(_Sockets)
    (task,) = spark.read.format("sockets").load().collect()
    assert set(task.acknowledging) == {1}
    assert task.of_the_user == 0, "only Spark's own socket is changed"
