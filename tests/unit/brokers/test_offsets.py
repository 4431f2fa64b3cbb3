"""Offsets of many partitions are asked for in portions, and any client can write the metadata of a committed one.

librdkafka's time for a call grows with the square of its partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient

from spark_groupsource.brokers.offsets import LATEST_OFFSET, metadata_of, request_offsets
from spark_groupsource.partition import TopicPartition


class RecordingAdmin:
    """Notes each call, and returns a future for each of its partitions, as an AdminClient does."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, IsolationLevel, float]] = []

    def list_offsets(
        self, asked: Mapping[Any, Any], *, isolation_level: IsolationLevel, request_timeout: float
    ) -> dict[Any, Future[int]]:
        self.calls.append((len(asked), isolation_level, request_timeout))
        futures = {}
        for partition in asked:
            futures[partition] = Future[int]()
            futures[partition].set_result(10 * partition.partition)
        return futures


@pytest.mark.parametrize(("count", "calls"), [(0, []), (1, [1]), (1000, [1000]), (1001, [1000, 1]), (2500, [1000, 1000, 500])])
def test_no_call_asks_for_more_than_a_portion_and_each_partition_gets_its_own_answer(count: int, calls: list[int]) -> None:
    admin = RecordingAdmin()
    partitions = [TopicPartition("orders", number) for number in range(count)]
    specs = dict.fromkeys(partitions, LATEST_OFFSET)
    answers = request_offsets(cast(AdminClient, admin), specs, 3.0, IsolationLevel.READ_COMMITTED)
    assert admin.calls == [(size, IsolationLevel.READ_COMMITTED, 3.0) for size in calls]
    assert {partition: answer.result() for partition, answer in answers.items()} == {
        partition: 10 * partition.partition for partition in partitions
    }


class Found:
    """An offset as confluent-kafka returns it: it decodes the metadata when that is asked for."""

    def __init__(self, metadata: bytes | None) -> None:
        self._metadata = metadata

    @property
    def metadata(self) -> str | None:
        return None if self._metadata is None else self._metadata.decode()


@pytest.mark.parametrize(
    ("written", "read"),
    [(None, None), (b"", ""), (b"{}", "{}"), ("ü".encode(), "ü"), (b"{}\xe1", None), (b"{}\0rest", "{}")],
)
def test_metadata_that_is_no_text_is_none(written: bytes | None, read: str | None) -> None:
    assert metadata_of(Found(written)) == read
