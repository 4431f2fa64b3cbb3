"""Every reader, the settings to read with, and a topic that is compacted quickly."""

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
from spark_groupsource import patience
from spark_groupsource.fetch import consumer_cache as consumers
from spark_groupsource.fetch import native_consumer as native
from spark_groupsource.fetch import pure_consumer as pure
from spark_groupsource.fetch import reading
from spark_groupsource.fetch.arrow_schema import arrow_schema
from spark_groupsource.fetch.contract import Reader
from spark_groupsource.fetch.settings import BUFFER_BYTES, FetchSettings
from spark_groupsource.options.client_settings import consumer_settings
from tests.conftest import MakeTopic
from tests.support.fetching import NATIVE, MakeSettings


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
        monkeypatch.setattr(patience, "CUT_BELIEVED_AFTER_S", 1.0)


@pytest.fixture
def patient() -> None:
    """A log that ends below the range is believed as late as in a real task."""


@pytest.fixture(scope="module", autouse=True)
def no_consumer_left() -> Iterator[None]:
    yield
    consumers.close_kept()


@pytest.fixture(scope="module")
def quick_cleaner(cluster: Cluster, admin: AdminClient) -> None:
    """The log cleaner looks for work every 0.1 s instead of every 15 s."""
    entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
    for node in cluster.nodes:
        resource = ConfigResource(ResourceType.BROKER, str(node.id), incremental_configs=[entry])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result()


@pytest.fixture
def compacted(topic: MakeTopic, cluster: Cluster, quick_cleaner: None) -> str:
    """Offsets 0, 1, 5 and 9 are compacted away below 15: in partition 0 whole batches, in partition 1 records of one batch."""
    name = topic(
        partitions=2,
        config={
            "cleanup.policy": "compact",
            "segment.ms": "1000",
            "min.cleanable.dirty.ratio": "0",
            "min.compaction.lag.ms": "0",
        },
    )
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
    for partition in range(2):
        wait_for_first(cluster, name, partition, 2)
    return name


def wait_for_first(cluster: Cluster, name: str, partition: int, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "look", "auto.offset.reset": "error"})
    limit = time.monotonic() + 30
    first = None
    while first != offset:
        assert time.monotonic() < limit, f"not compacted: the first record is at {first}"
        consumer.assign([TopicPartition(name, partition, 0)])
        message = consumer.poll(5)
        first = None if message is None else message.offset()
        consumer.unassign()
        time.sleep(0.05)
    consumer.close()
