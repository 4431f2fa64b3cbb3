"""A broker that enforces a consumer quota mutes the connection: a task waits, and does not break the connection."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from devtools.broker import Cluster
from spark_groupsource.brokers.client import librdkafka_log_of_tasks
from spark_groupsource.brokers.client_pool import pool
from spark_groupsource.errors import BrokerError
from spark_groupsource.fetch import native_shared
from spark_groupsource.fetch.contract import FetchRange, Reader
from tests.conftest import MakeTopic, Produce
from tests.support.fetching import NATIVE, MakeSettings, offsets, rows
from tests.support.producing import IN_ORDER
from tests.support.quotas import limit_fetches

RECORDS = 700
RATE = 80_000
"""Bytes per second. The broker counts over ten seconds: the first 800 KB come immediately, each further Fetch some s later."""

FETCH = {"max.partition.fetch.bytes": "250000"}


@pytest.fixture(autouse=True)
def new_consumers() -> Iterator[None]:
    pool().close_kept()
    yield
    pool().close_kept()


@pytest.fixture
def limited(cluster: Cluster, topic: MakeTopic) -> str:
    """A topic with two partitions, whose name is also the client id with the quota."""
    name = topic(partitions=2)
    # Small batches, of which one response has many.
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 20_000, **IN_ORDER})
    for number in range(2 * RECORDS):
        producer.produce(name, b"%d" % (number % 10) * 1000, partition=number % 2)
    assert producer.flush(60) == 0
    limit_fetches(cluster.bootstrap_servers, name, RATE)
    return name


@pytest.fixture
def timeouts(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> list[str]:
    """librdkafka's lines about requests without an answer. It closes the connection of such a request."""
    monkeypatch.setattr(librdkafka_log_of_tasks, "filters", [])
    caplog.set_level(logging.WARNING, librdkafka_log_of_tasks.name)
    found: list[str] = []
    monkeypatch.setattr(librdkafka_log_of_tasks, "handle", lambda record: found.append(record.getMessage()))
    return found


def test_a_throttled_task_waits_and_keeps_its_connection(
    read: Reader, limited: str, using: MakeSettings, timeouts: list[str]
) -> None:
    how = using({"client.id": limited, **FETCH})
    # The second range begins with a request for the log's bounds, while the connection is muted.
    for partition in range(2):
        assert offsets(read, FetchRange(limited, partition, 0, RECORDS), how) == list(range(RECORDS))
    assert not timeouts


def test_a_batch_that_the_quota_never_allows_is_an_error_which_names_the_quota(
    read: Reader, cluster: Cluster, topic: MakeTopic, produce: Produce, using: MakeSettings
) -> None:
    name = topic()
    produce(name, [(None, b"." * 500_000)])
    limit_fetches(cluster.bootstrap_servers, name, 10_000)
    what, how = FetchRange(name, 0, 0, 1), using({"client.id": name}, poll_timeout_ms=5_000)
    with pytest.raises(BrokerError, match="no progress for 5000 ms, because the brokers are throttling this client"):
        offsets(read, what, how)
    limit_fetches(cluster.bootstrap_servers, name, 1_000_000)
    assert offsets(read, what, using({"client.id": name})) == [0]


@NATIVE
def test_a_throttled_pass_of_several_partitions_waits(limited: str, using: MakeSettings, timeouts: list[str]) -> None:
    ranges = [FetchRange(limited, partition, 0, RECORDS) for partition in range(2)]

    def read_all(_one: FetchRange, how):  # type: ignore[no-untyped-def]
        return native_shared.read_all(ranges, how)

    found = rows(read_all, ranges[0], using({"client.id": limited, **FETCH}))
    assert sorted((row["partition"], row["offset"]) for row in found) == [
        (partition, offset) for partition in range(2) for offset in range(RECORDS)
    ]
    assert not timeouts
