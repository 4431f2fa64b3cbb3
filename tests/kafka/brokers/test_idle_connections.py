"""A network that silently forgets idle connections, as firewalls, NATs and load balancers do: what is due is read and written.

All connections go through a proxy that swallows whatever is sent on one after some seconds without a byte.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from spark_groupsource.brokers import admin_client, client_pool
from spark_groupsource.brokers.client_pool import pool
from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.group_offsets import GroupOffsets
from spark_groupsource.fetch.choice import fetch
from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.group import group_reader
from spark_groupsource.group.group_reader import GroupReader
from spark_groupsource.options.client_settings import request_settings
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition
from spark_groupsource.timeouts import IDLE_S
from tests.harness.brokers import Brokers
from tests.harness.proxy import Proxy
from tests.kafka.cli.test_top import top
from tests.kafka.conftest import MakeQuery
from tests.support.consumers import commit_as_another_client
from tests.support.producing import send

FORGETS_S = 3.0
"""After how long the proxy forgets a connection. Heartbeats come more often, as they do in every network."""

PAUSE_S = 2 * FORGETS_S

LIMIT_S = 15.0
"""How long a trigger may take."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(1, None, proxied=True) as running:
        yield running


@pytest.fixture
def proxy(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The proxy, which forgets. This process takes as short a time for a pause."""
    monkeypatch.setattr(admin_client, "IDLE_S", FORGETS_S)
    monkeypatch.setattr(group_reader, "KEPT_S", FORGETS_S)
    (proxy,) = brokers.proxies.values()
    proxy.idle_s = FORGETS_S
    yield proxy
    proxy.idle_s = math.inf
    pool().close_kept()


@pytest.fixture
def orders(brokers: Brokers, request: pytest.FixtureRequest) -> str:
    """A topic of six partitions with ten records in each."""
    name = "".join(char if char.isalnum() else "-" for char in request.node.name)
    brokers.create_topic(name, 6)
    fill(brokers, name)
    return name


def fill(brokers: Brokers, topic: str) -> None:
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers})
    for number in range(60):
        send(producer, topic, b"x", None, number % 6)
    assert producer.flush(60) == 0


@contextmanager
def soon() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < LIMIT_S


def connections(brokers: Brokers) -> dict[str, str]:
    return {"bootstrap.servers": brokers.through_proxies}


def test_triggers_far_apart_read_all_that_is_due(brokers: Brokers, proxy: Proxy, query: MakeQuery, orders: str) -> None:
    far = query(orders, **{"kafka.bootstrap.servers": brokers.through_proxies})
    assert far.run_batch() == dict.fromkeys(range(6), (0, 10))
    for number in (1, 2):
        time.sleep(PAUSE_S)
        forgotten = proxy.swallowed
        fill(brokers, orders)
        with soon():
            assert far.plan(), "there is something to read"
            assert far.claim() == dict.fromkeys(range(6), (10 * number, 10 * number + 10))
        far.finish()
        assert proxy.swallowed > forgotten, "no connection was idle for so long"


@pytest.mark.parametrize("kept_s", [FORGETS_S, 60.0], ids=["replaced after the pause", "kept all the same"])
def test_a_task_after_a_pause_reads_its_range(
    brokers: Brokers, proxy: Proxy, orders: str, kept_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_pool, "KEPT_S", kept_s)
    settings = Options.parse(
        {"kafka.bootstrap.servers": brokers.through_proxies, "kafka.group.id": "billing", "subscribe": orders}
    ).fetch_settings()
    assert sum(batch.num_rows for batch in fetch(FetchRange(orders, 0, 0, 5), settings)) == 5
    time.sleep(PAUSE_S)
    forgotten = proxy.swallowed
    with soon():
        assert sum(batch.num_rows for batch in fetch(FetchRange(orders, 0, 5, 10), settings)) == 5
    if kept_s != FORGETS_S:
        assert proxy.swallowed > forgotten, "the consumer was kept, so its connection was forgotten"


ASKED: dict[str, Callable[[GroupOffsets, str], object]] = {
    "read": lambda offsets, topic: offsets.read([topic]),
    "commit": lambda offsets, topic: offsets.commit(topic, 2, "two"),
}


@pytest.mark.parametrize("question", ASKED)
def test_the_sinks_token_is_read_and_committed_after_a_pause(brokers: Brokers, proxy: Proxy, orders: str, question: str) -> None:
    """Before, a request on the forgotten connection took a minute, which is all the time that a micro-batch has."""
    offsets = GroupOffsets(request_settings(connections(brokers)), f"token-of-{orders}")
    offsets.commit(orders, 1, "one")
    time.sleep(PAUSE_S)
    forgotten = proxy.swallowed
    with soon():
        ASKED[question](offsets, orders)
    assert proxy.swallowed > forgotten
    offsets.close(wait=True)


def test_the_groups_records_are_read_after_a_pause(brokers: Brokers, proxy: Proxy, orders: str) -> None:
    partitions = [TopicPartition(orders, number) for number in range(6)]
    reader = GroupReader(
        connections(brokers), "billing", subscribed=lambda: partitions, everywhere=lambda: partitions, cluster_id=None
    )
    assert reader.subscribed().keys() <= set(partitions)
    time.sleep(PAUSE_S)
    with soon():
        reader.subscribed()


def test_the_child_process_that_describes_groups_answers_after_a_pause(brokers: Brokers, proxy: Proxy, orders: str) -> None:
    commit_as_another_client(brokers, "billing", orders, 5)
    with GroupAdminProcess(connections(brokers)) as groups:
        assert len(groups.offsets("billing")) >= 1
        time.sleep(IDLE_S + 1)
        with soon():
            assert len(groups.offsets("billing")) >= 1


@pytest.mark.long
def test_top_shows_the_group_although_it_looks_seldom(brokers: Brokers, proxy: Proxy, orders: str) -> None:
    group = f"group-of-{orders}"
    commit_as_another_client(brokers, group, orders, 5)
    with top(brokers.through_proxies, group, "--interval", str(IDLE_S + 4)) as running:
        shown = 0
        for _ in range(3):
            shown = running.until(r"lag |no answer", shown)
        assert not [line for line in running.lines if "no answer" in line], running.lines
