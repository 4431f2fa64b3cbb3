"""A network that silently forgets idle connections, as firewalls, NATs and load balancers do: every trigger reads what is due.

The queries' connections go through a proxy that swallows whatever is sent on a connection after some seconds without a byte.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from spark_groupsource.brokers import admin_client
from tests.harness.brokers import Brokers
from tests.harness.proxy import Proxy
from tests.kafka.conftest import MakeQuery
from tests.support.producing import send

FORGETS_S = 3.0
"""After how long the proxy forgets. Heartbeats come more often, as they do with every network."""
PAUSE_S = 2 * FORGETS_S
LIMIT_S = 15.0


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(1, None, proxied=True) as running:
        yield running


@pytest.fixture
def proxy(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The proxy, which forgets. The package takes shorter pauses for long ones."""
    monkeypatch.setattr(admin_client, "IDLE_S", FORGETS_S)
    (proxy,) = brokers.proxies.values()
    proxy.idle_s = FORGETS_S
    yield proxy
    proxy.idle_s = float("inf")


def fill(brokers: Brokers, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers})
    for number in range(count):
        send(producer, topic, b"x", None, number % 6)
    assert producer.flush(60) == 0


def test_triggers_far_apart_read_what_is_due(brokers: Brokers, proxy: Proxy, query: MakeQuery) -> None:
    brokers.create_topic("orders", 6)
    fill(brokers, "orders", 60)
    a = query("orders", **{"kafka.bootstrap.servers": brokers.through_proxies})
    assert sum(end - start for start, end in a.run_batch().values()) == 60
    for trigger in range(1, 4):
        time.sleep(PAUSE_S)
        forgotten = proxy.swallowed
        fill(brokers, "orders", 60)
        began = time.monotonic()
        assert a.plan(), f"trigger {trigger} reads nothing"
        assert sum(end - start for start, end in a.claim().values()) == 60
        assert time.monotonic() - began < LIMIT_S
        assert proxy.swallowed > forgotten, "the connections were idle"
        a.finish()
