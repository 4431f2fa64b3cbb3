"""Batches that are large, or become so: what Java's client reads is read, or the error names the setting."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from devtools.broker import Cluster
from spark_groupsource.errors import BrokerError
from spark_groupsource.fetch import native_consumer as native
from spark_groupsource.fetch.contract import FetchRange, Reader
from tests.conftest import KEEP_ALL, NOT_FENCED, MakeTopic
from tests.support.fetching import MEGABYTE, NATIVE, MakeSettings, rows
from tests.support.written_logs import ZSTD, batch, write_logs

LARGE = 120 * MEGABYTE
"""Above librdkafka's default of `receive.message.max.bytes`."""

SMALL_RESPONSES = {"receive.message.max.bytes": str(3 * MEGABYTE)}


def send(cluster: Cluster, topic: str, value: bytes, codec: str, headers: int = 0) -> None:
    most = {"message.max.bytes": 200 * MEGABYTE, "queue.buffering.max.kbytes": 500_000}
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "compression.codec": codec, "linger.ms": 0, **most})
    producer.produce(topic, value, partition=0, headers=[("", b"")] * headers)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("codec", [*(pytest.param(codec, marks=pytest.mark.long) for codec in ("gzip", "snappy", "lz4")), "zstd"])
def test_a_record_of_120_mb_that_is_small_in_the_log(
    codec: str, read: Reader, using: MakeSettings, topic: MakeTopic, cluster: Cluster
) -> None:
    name = topic(config={"max.message.bytes": str(8 * MEGABYTE)})
    send(cluster, name, bytes(LARGE), codec)

    (found,) = rows(read, FetchRange(name, 0, 0, 1), using())

    assert found["value"] == bytes(LARGE)


@pytest.fixture(scope="module")
def as_of_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker with batches in zstd that do not say how large they are, one of one record and one of many."""
    with Cluster(data_dir=tmp_path_factory.mktemp("large"), config={**KEEP_ALL, **NOT_FENCED}) as cluster:
        logs = {"one": [batch([bytes(LARGE)], ZSTD)], "many": [batch([bytes(MEGABYTE)] * 120, ZSTD)]}
        for name in logs:
            cluster.create_topic(name)
        write_logs(cluster, logs)
        yield cluster


@pytest.mark.parametrize(("name", "count"), [("one", 1), pytest.param("many", 120, marks=pytest.mark.long)])
def test_a_batch_that_does_not_say_how_large_it_is(
    name: str, count: int, read: Reader, using: MakeSettings, as_of_java: Cluster
) -> None:
    how = using({"bootstrap.servers": as_of_java.bootstrap_servers})

    found = [len(row["value"]) for batch in read(FetchRange(name, 0, 0, count), how) for row in batch.to_pylist()]

    assert found == [LARGE // count] * count


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_what_the_users_own_limit_is_too_small_for_is_an_error_at_once_that_names_it(
    codec: str, read: Reader, using: MakeSettings, topic: MakeTopic, cluster: Cluster
) -> None:
    name = topic(config={"max.message.bytes": str(8 * MEGABYTE)})
    value = os.urandom(5 * MEGABYTE) if codec == "none" else bytes(5 * MEGABYTE)
    send(cluster, name, value, codec)
    began = time.monotonic()

    with pytest.raises(BrokerError, match=r"at offset 0: .*kafka\.receive\.message\.max\.bytes"):
        rows(read, FetchRange(name, 0, 0, 1), using(SMALL_RESPONSES, poll_timeout_ms=300_000))

    assert time.monotonic() - began < 60
    (found,) = rows(read, FetchRange(name, 0, 0, 1), using())
    assert found["value"] == value


@NATIVE
def test_more_headers_than_librdkafka_takes(using: MakeSettings, topic: MakeTopic, cluster: Cluster) -> None:
    name = topic(config={"max.message.bytes": str(8 * MEGABYTE)})
    send(cluster, name, b"most", "none", headers=100_000)
    send(cluster, name, b"too many", "none", headers=100_001)
    what = FetchRange(name, 0, 0, 2)

    assert [row["value"] for row in rows(native.read, what, using())] == [b"most", b"too many"]
    (found,) = rows(native.read, FetchRange(name, 0, 0, 1), using(include_headers=True))
    assert len(found["headers"]) == 100_000
    with pytest.raises(BrokerError, match=r"at offset 1: .* 100,000 .*includeHeaders"):
        rows(native.read, what, using(include_headers=True))
