"""Offsets of many partitions are asked for in portions: librdkafka's time for a call grows with the square of its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient

from spark_groupsource.brokers.offsets import LATEST_OFFSET, request_offsets
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
