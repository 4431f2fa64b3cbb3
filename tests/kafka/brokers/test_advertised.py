"""Brokers that advertise an address which their clients cannot reach: who says so, and how soon."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from devtools.broker import Cluster
from devtools.broker.config import HOST
from spark_groupsource.brokers import advertised as advertised_addresses
from spark_groupsource.brokers.advertised import refuse_unreachable
from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.cli.main import main
from spark_groupsource.errors import BrokerUnavailable, GroupKafkaError
from spark_groupsource.fetch import native_consumer, pure_consumer
from spark_groupsource.fetch.contract import FetchRange, Reader
from spark_groupsource.native.libraries import why_unavailable
from spark_groupsource.options.model import Options
from spark_groupsource.options.sink_model import SinkOptions
from spark_groupsource.query.cycle import Cycle
from spark_groupsource.sink.topics import refuse_missing
from spark_groupsource.sink.writing import Attempt, write_at_least_once, write_once
from spark_groupsource.timeouts import ADDRESSES_TRIED_AFTER_S
from tests.harness.proxy import Proxy
from tests.support.advertised import UNREACHABLE, address, advertise
from tests.support.producing import send

SOON_S = 15.0
TASKS_SOON_S = SOON_S + ADDRESSES_TRIED_AFTER_S
STOOD_STILL_S = 10.0
"""How much longer a busy machine may take."""

ROWS = pa.RecordBatch.from_pydict({"value": ["a", "b"], "topic": ["orders", "orders"]})


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    with Cluster() as cluster:
        cluster.create_topic("orders", 1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        send(producer, "orders", "x")
        assert producer.flush(60) == 0
        del producer
        yield cluster


@pytest.fixture(
    params=["silent", *(pytest.param(kind, id=f"{kind}, all commands", marks=pytest.mark.long) for kind in UNREACHABLE)]
)
def advertised(request: pytest.FixtureRequest, own: Cluster) -> Iterator[str]:
    with address(request.param) as unreachable:
        advertise(own, unreachable)
        yield unreachable


def error_of(step: Callable[[], object]) -> tuple[str, float]:
    """Return what a step says when it fails, and after how many seconds."""
    began = time.monotonic()
    try:
        said = str(step())
    except GroupKafkaError as error:
        said = f"{type(error).__name__}: {error}"
    return said, time.monotonic() - began


NUMBERS = itertools.count()
"""Of queries: the transaction of one that was cut off in an earlier test may still be open."""


def steps(cluster: Cluster) -> dict[str, Callable[[], object]]:
    """Return what queries and their tasks do first, by name."""
    kafka = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.log_level": "0"}
    reading = {**kafka, "kafka.group.id": "g", "subscribe": "orders", "startingOffsets": "earliest"}
    options = Options.parse(reading, "stream")
    sink = SinkOptions.parse({**kafka, "topic": "orders"}, "stream").sink_settings("stream")
    by_row = SinkOptions.parse(kafka, "stream").sink_settings("stream")

    def read(reader: Reader) -> int:
        return sum(batch.num_rows for batch in reader(FetchRange("orders", 0, 0, 1), options.fetch_settings()))

    def first_plan() -> object:
        cycle = Cycle(options)
        try:
            return cycle.plan(cycle.first(), limited=False)
        finally:
            cycle.stop()

    def topics() -> Topics:
        return Topics(options.client_settings(), options, read_committed=False, patience_s=60)

    def write() -> object:
        name = f"q{next(NUMBERS)}"
        return write_once(by_row, by_row.names(name), Attempt(0, 0, name, name), iter([ROWS]))

    return {
        "a stream's first plan": first_plan,
        "a look at topics": lambda: topics().describe(["orders"])["orders"],
        "a batch": lambda: topics().partitions(),
        "a sink's driver": lambda: refuse_missing(sink, "orders"),
        "a sink's task": write,
        "a sink's task, at least once": lambda: write_at_least_once(by_row, iter([ROWS])),
        "a task of the pure reader": lambda: read(pure_consumer.read),
        **({} if why_unavailable() else {"a task of the native reader": lambda: read(native_consumer.read)}),
    }


def is_of_a_task(name: str) -> bool:
    return "task" in name


def commands(cluster: Cluster, folder: Path) -> dict[str, Callable[[], object]]:
    """Return the commands by name. One runs at a time: each takes the output of this process."""
    kafka = f"kafka.bootstrap.servers={cluster.bootstrap_servers}\nkafka.log_level=0\n"
    source, sink = folder / "source.properties", folder / "sink.properties"
    source.write_text(f"{kafka}kafka.group.id=g\nsubscribe=orders\n")
    sink.write_text(f"{kafka}topic=orders\n")
    servers = ("--bootstrap-server", cluster.bootstrap_servers)
    asked = (
        ("check", "--conf", str(source)),
        ("check", "--sink", "--conf", str(sink)),
        ("describe", *servers, "--group", "g"),
        ("claims", *servers, "--group", "g"),
        ("transactions", *servers, "--topic", "orders"),
        ("reset-offsets", *servers, "--group", "g", "--topic", "orders", "--to-earliest"),
    )
    return {" ".join(words[:2]): partial(lambda words: CliRunner().invoke(main, words).output, words) for words in asked}


def test_queries_and_commands_name_the_address_soon(
    own: Cluster, advertised: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Each command waits for ten seconds or more: in `make test` two of them are run."""
    asked, asked_commands = steps(own), commands(own, tmp_path)
    if request.node.get_closest_marker("long") is None:
        asked_commands = {name: asked_commands[name] for name in ("check --conf", "describe --bootstrap-server")}
    with ThreadPoolExecutor(4) as threads:
        found = dict(zip(asked, threads.map(error_of, asked.values()), strict=True))
    found |= {name: error_of(command) for name, command in asked_commands.items()}
    for name, (said, took_s) in found.items():
        print(f"{name}: {took_s:.1f} s")
        text = " ".join(said.split())
        assert f"{advertised} (broker 1)" in text, f"{name} says after {took_s:.1f} s: {text}"
        assert f"A bootstrap server of {own.bootstrap_servers} returned" in text
        assert "Check the brokers' advertised.listeners" in text
        assert took_s < (TASKS_SOON_S if is_of_a_task(name) else SOON_S) + STOOD_STILL_S, name


class Late(Proxy):
    """Closes its next connection at once. After that it holds each for a while before it lets the broker answer."""

    def __init__(self, target_port: int, held_s: float) -> None:
        self._held_s = held_s
        self.closes_next = False
        self.closed = 0
        super().__init__(target_port)

    def _connect(self, client: socket.socket) -> None:
        if self.closes_next:
            self.closes_next = False
            self.closed += 1
            client.close()
            return
        time.sleep(self._held_s)
        super()._connect(client)


def port(cluster: Cluster) -> int:
    return int(cluster.bootstrap_servers.rpartition(":")[2])


@pytest.mark.parametrize("held_s", [pytest.param(0.0, marks=pytest.mark.long), 5.0])
def test_a_broker_whose_first_connection_failed_is_asked_again(
    own: Cluster, held_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the second address of its name. The second time it has as long as a connection may take."""
    monkeypatch.setattr(advertised_addresses, "CONNECT_S", 15.0)
    proxy = Late(port(own), held_s)
    try:
        advertise(own, f"{HOST}:{proxy.port}")
        proxy.closes_next = True
        refuse_unreachable({"bootstrap.servers": own.bootstrap_servers})
        assert proxy.closed == 1
    finally:
        proxy.close()


def test_tasks_wait_for_brokers_that_are_away_for_some_seconds_while_a_bootstrap_server_answers(own: Cluster) -> None:
    proxy = Proxy(port(own))
    try:
        advertise(own, f"{HOST}:{proxy.port}")
        tasks = {name: step for name, step in steps(own).items() if is_of_a_task(name)}
        proxy.refuse()
        with ThreadPoolExecutor(len(tasks)) as threads:
            asked = {name: threads.submit(error_of, task) for name, task in tasks.items()}
            threading.Timer(ADDRESSES_TRIED_AFTER_S / 2, proxy.release).start()
            found = {name: one.result() for name, one in asked.items()}
    finally:
        proxy.close()
    for name, (said, _) in found.items():
        assert said == "1" or said.startswith("Report(written=2"), f"{name} says: {said}"


def test_with_the_address_that_the_error_asks_for_all_of_them_work(own: Cluster, tmp_path: Path) -> None:
    advertise(own)
    for name, step in {**steps(own), **commands(own, tmp_path)}.items():
        said, _ = error_of(step)
        assert "advertise" not in said, f"{name} says: {said}"
        assert not said.startswith("BrokerUnavailable"), f"{name} says: {said}"


@pytest.mark.long
def test_a_bootstrap_server_that_does_not_answer_advertises_nothing() -> None:
    for kind in UNREACHABLE:
        with address(kind) as nowhere:
            refuse_unreachable({"bootstrap.servers": nowhere})


@pytest.mark.long
def test_one_broker_of_three_that_is_away_is_no_matter_of_addresses() -> None:
    with Cluster(nodes=3) as cluster:
        cluster.nodes[0].kill()
        for _ in range(3):
            refuse_unreachable({"bootstrap.servers": cluster.bootstrap_servers})


def test_a_broker_that_stops_answering_later_is_waited_for(own: Cluster) -> None:
    """Only a client that never had an answer tries the addresses: a query goes on when a broker restarts."""
    advertise(own)
    settings = {"bootstrap.servers": own.bootstrap_servers, "log_level": "0"}
    options = Options.parse({"kafka.bootstrap.servers": own.bootstrap_servers, "kafka.group.id": "g", "subscribe": "orders"})
    topics = Topics(settings, options, read_committed=False, patience_s=60)
    assert topics.partitions()
    (node,) = own.nodes
    node.kill()
    with pytest.raises(BrokerUnavailable) as caught:
        topics.partitions()
    assert "no broker answers at them" not in str(caught.value)
    node.start()
    with GroupAdminProcess(settings) as groups:
        assert groups.groups("no-such") == []
