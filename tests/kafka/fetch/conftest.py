"""Every reader, the settings to read with, and topics with gaps, which tests only read."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs miss them
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from devtools.broker import Cluster
from spark_groupsource import timeouts
from spark_groupsource.brokers.client_pool import pool
from spark_groupsource.fetch import native_consumer as native
from spark_groupsource.fetch import pure_consumer as pure
from spark_groupsource.fetch import reading
from spark_groupsource.fetch.arrow_schema import arrow_schema
from spark_groupsource.fetch.contract import BUFFER_BYTES, FetchSettings, Reader
from spark_groupsource.options.client_settings import consumer_settings
from tests.support.fetching import NATIVE, MakeSettings
from tests.support.waiting import until


@pytest.fixture(params=[pytest.param(pure.read, id="pure"), pytest.param(native.read, id="native", marks=NATIVE)])
def read(request: pytest.FixtureRequest) -> Reader:
    reader: Reader = request.param
    return reader


@pytest.fixture
def using(cluster: Cluster) -> MakeSettings:
    """Make settings: client settings as a mapping, all others by name. Without `schema`, the columns of Spark's own source."""

    def make(
        client: Mapping[str, str] | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        *,
        include_headers: bool = False,
        schema: pa.Schema | None = None,
        **others: Any,
    ) -> FetchSettings:
        given = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "fetch-tests", **(client or {})}
        finished = consumer_settings(given, buffer_bytes)
        columns = schema or arrow_schema(include_headers)
        return FetchSettings(finished, columns, buffer_bytes=buffer_bytes, **{"poll_timeout_ms": 30_000, **others})

    return make


@pytest.fixture(autouse=True)
def believed_soon(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task without a record looks after a second where the log ends, and as soon believes it, unless the test is `patient`."""
    if "secured" not in request.fixturenames:
        monkeypatch.setattr(reading, "TASK_SILENCE_S", 1.0)
    if "patient" not in request.fixturenames:
        monkeypatch.setattr(timeouts, "CUT_BELIEVED_AFTER_S", 1.0)


@pytest.fixture
def patient() -> None:
    """A log that ends below the range is believed as late as in a real task."""


@pytest.fixture(scope="module", autouse=True)
def no_consumer_left() -> Iterator[None]:
    yield
    pool().close_kept()


COMPACTED_AWAY = {0, 1, 5, 9}


@pytest.fixture(scope="session")
def compacted(cluster: Cluster, admin: AdminClient) -> str:
    """COMPACTED_AWAY is compacted away below 15: in partition 0 whole batches, in partition 1 records of one batch."""
    # The log cleaner looks for work every 0.1 s instead of every 15 s.
    entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
    for node in cluster.nodes:
        resource = ConfigResource(ResourceType.BROKER, str(node.id), incremental_configs=[entry])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result()
    name = "compacted"
    at_once = {"segment.ms": "1000", "min.cleanable.dirty.ratio": "0", "min.compaction.lag.ms": "0"}
    cluster.create_topic(name, 2, {"cleanup.policy": "compact", **at_once})
    keys = [*range(10), 0, 1, 5, 9, 10]
    now_ms = int(time.time() * 1000)
    for partition, config in enumerate(({"linger.ms": 0}, {"linger.ms": 200})):
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **config})
        for number, key in enumerate(keys):
            # The last one is the first of a new segment, by its time: only closed segments are compacted.
            late = number == len(keys) - 1
            if late or partition == 0:
                assert producer.flush(10) == 0
            producer.produce(name, b"v%d" % number, b"k%d" % key, partition, timestamp=now_ms + (5_000 if late else 0))
        assert producer.flush(10) == 0
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "look", "auto.offset.reset": "error"})

    def first(partition: int) -> int | None:
        consumer.assign([TopicPartition(name, partition, 0)])
        message = consumer.poll(5)
        consumer.unassign()
        return None if message is None else message.offset()

    for partition in range(2):
        until(lambda partition=partition: first(partition) == 2, "compaction")  # type: ignore[misc]
    consumer.close()
    return name


COMMITTED = [0, 1, 2, 8, 9]

NO_MARKERS = [0, 1, 2, 4, 5, 6, 8, 9, 11, 12, 13]


@pytest.fixture(scope="session")
def transactions(cluster: Cluster) -> str:
    """Ten partitions alike: 0-2 and 8-9 are committed, 4-6 and 11-13 aborted; the markers are at 3, 7, 10 and 14."""
    name = "transactions"
    cluster.create_topic(name, 10)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    for count, commit in ((3, True), (3, False), (2, True), (3, False)):
        producer.begin_transaction()
        for partition in range(10):
            for number in range(count):
                producer.produce(name, b"%d" % number, partition=partition)
        assert producer.flush(30) == 0
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    return name
