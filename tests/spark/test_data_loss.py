"""Records that expire, or whose topic is deleted, while a query reads them: the error, or the warning and what is read then."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, Row

from devtools.broker import Cluster
from tests.conftest import MakeTopic, Produce
from tests.support.fetching import delete_before, delete_topic
from tests.support.queries import Pipeline, Queries
from tests.support.waiting import until


class SlowReader:
    """A micro-batch whose tasks stop after their first records, until they are told to go on."""

    def __init__(self, folder: Path) -> None:
        self.began, self.goes_on = folder / "began", folder / "goes-on"
        self.offsets: list[int] = []

    def __call__(self, frame: DataFrame, _batch: int) -> None:
        began, goes_on = str(self.began), str(self.goes_on)

        def slowly(rows: Iterable[Row]) -> Iterator[int]:
            deadline = time.monotonic() + 120
            for row in rows:
                Path(began).touch()
                while not Path(goes_on).exists() and time.monotonic() < deadline:
                    time.sleep(0.05)
                yield row.offset

        # With their values, so that what is not taken here is not taken from the reader either.
        self.offsets += frame.select("offset", "value").rdd.mapPartitions(slowly).collect()


@pytest.fixture
def slow(queries: Queries, topic: MakeTopic, produce: Produce, tmp_path: Path) -> Callable[[str], tuple[SlowReader, Pipeline]]:
    """A query in the middle of a task on a topic of its own, which has 30 MB in 60 records, and few of them read."""

    def start(fail: str) -> tuple[SlowReader, Pipeline]:
        name = topic()
        produce(name, [(None, bytes(500_000))] * 60)
        reader = SlowReader(tmp_path)
        small = {"kafkaConsumer.bufferBytes": "1048576"}
        pipeline = queries("a", name, failOnDataLoss=fail, **small).start(foreach_batch=reader)
        until(reader.began.exists, "the task reads")
        return reader, pipeline

    return start


def until_read(pipeline: Pipeline, condition: Callable[[], bool], what: str) -> None:
    """Wait; fail with the query's own error when it ends."""

    def is_so() -> bool:
        pipeline.raise_if_ended()
        return condition()

    until(is_so, what)


def test_records_that_expire_while_a_task_reads_are_an_error(
    slow: Callable[[str], tuple[SlowReader, Pipeline]], admin: AdminClient
) -> None:
    reader, pipeline = slow("true")
    name = pipeline.options["subscribe"]
    delete_before(admin, name, 55)
    reader.goes_on.touch()
    assert re.search(rf"DataLossError.*Records in {name}-0 are lost: offsets \[\d+, 55\)", pipeline.failure())


def test_a_topic_that_is_deleted_while_a_task_reads_is_survived(
    slow: Callable[[str], tuple[SlowReader, Pipeline]], admin: AdminClient, cluster: Cluster
) -> None:
    reader, pipeline = slow("false")
    name = pipeline.options["subscribe"]
    delete_topic(admin, name)
    reader.goes_on.touch()
    until_read(pipeline, lambda: bool(reader.offsets), "the batch ends")
    before = list(reader.offsets)
    assert before == list(range(len(before)))
    assert len(before) < 60
    cluster.create_topic(name, 1)
    fresh = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    fresh.produce(name, b"new")
    assert fresh.flush(60) == 0
    until_read(pipeline, lambda: len(reader.offsets) > len(before), "the new topic is read")
    assert reader.offsets == [*before, 0]
    pipeline.stop()
