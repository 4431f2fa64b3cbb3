"""`python -m benchmarks.reconnecting`: measures what a query does while its brokers are down, with the development broker.

It counts the connections that a query's clients try per second, and the lines that they log. In one case the broker's port is
closed; in the other, every connection is accepted and closed, as by a load balancer without a backend. First, it measures how
long a query and a task take to start, because settings that make clients reconnect less often could delay the start.
"""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import socket
import statistics
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import click
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from devtools.broker import Cluster
from devtools.broker.config import HOST
from devtools.broker.node import Node
from spark_groupsource.brokers.client_pool import pool
from spark_groupsource.brokers.repeated_lines import RepeatFilter
from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.fetch.arrow_schema import arrow_schema
from spark_groupsource.fetch.choice import fetch
from spark_groupsource.fetch.contract import FetchConsumer, FetchRange, MakeConsumer
from spark_groupsource.fetch.native_consumer import NativeConsumer
from spark_groupsource.fetch.pure_consumer import PureConsumer
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition
from spark_groupsource.query.cycle import Cycle

TOPIC = "orders"
RECORDS = 10
SETTLED_S = 10
"""From this second on the connections count: a client may try at once when it loses its broker."""

PARTITION = TopicPartition(TOPIC, 0)
TRY_CONNECT = "broker in state TRY_CONNECT connecting"
"""What librdkafka logs for each connection that it tries, with the settings DEBUG."""

DEBUG = {"kafka.debug": "broker", "kafka.log_level": "7"}


class Tries(logging.Handler):
    """Counts the clients' log records about connections."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._since = time.monotonic()
        self.in_second: Counter[int] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Count the record if it is about a connection."""
        if TRY_CONNECT in record.getMessage():
            self.in_second[int(time.monotonic() - self._since)] += 1


class Closing:
    """Listens on a broker's port, accepts and closes every connection, and counts the connections per second."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server((HOST, port), backlog=512)
        self._since = time.monotonic()
        self.in_second: Counter[int] = Counter()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.in_second[int(time.monotonic() - self._since)] += 1
            connection.close()


@dataclass
class Outage:
    """The counts while the broker was down."""

    name: str
    seconds: int
    tries: Counter[int]
    lines: list[str] = field(default_factory=list)

    @property
    def settled_per_s(self) -> float:
        """The connections per second, after the first seconds."""
        return sum(self.tries[second] for second in range(SETTLED_S, self.seconds)) / (self.seconds - SETTLED_S)

    @property
    def lines_per_minute(self) -> float:
        """The log lines per minute."""
        return 60 * len(self.lines) / self.seconds


def fill(cluster: Cluster) -> None:
    """Create the topic, and write a few records."""
    cluster.create_topic(TOPIC, 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for _ in range(RECORDS):
        producer.produce(TOPIC, b"x", partition=0)
    producer.flush()


def options(cluster: Cluster, more: Mapping[str, str]) -> Options:
    """Return the options for a query in its own group."""
    return Options.parse(
        {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "kafka.group.id": f"reconnecting-{uuid.uuid4().hex[:8]}",
            "startingOffsets": "earliest",
            **({} if "subscribePattern" in more else {"subscribe": TOPIC}),
            **more,
        }
    )


def first_plan(given: Options) -> tuple[Cycle, float]:
    """Start a query. Return its cycle, and the seconds until its first plan."""
    since = time.perf_counter()
    cycle = Cycle(given)
    start = cycle.first()
    while cycle.plan(start, limited=True) is None:
        pass
    return cycle, time.perf_counter() - since


def starts(cluster: Cluster, more: Mapping[str, str], rounds: int) -> list[float]:
    """Return the seconds until the first plan for each of this many queries."""
    found = []
    for _ in range(rounds):
        cycle, seconds = first_plan(options(cluster, more))
        cycle.stop()
        found.append(seconds)
    return found


def first_reads(cluster: Cluster, more: Mapping[str, str], rounds: int) -> list[float]:
    """Return the seconds that each new worker's consumer took to read its first range."""
    found = []
    for _ in range(rounds):
        settings = options(cluster, more).fetch_settings()
        since = time.perf_counter()
        list(fetch(FetchRange(TOPIC, 0, 0, RECORDS), settings))
        found.append(time.perf_counter() - since)
        pool().close_kept()
    return found


@contextlib.contextmanager
def planning(cluster: Cluster, more: Mapping[str, str]) -> Iterator[None]:
    """Run a query that keeps planning, as it does in Spark."""
    cycle, _ = first_plan(options(cluster, more))
    over = threading.Event()
    start = cycle.first()

    def plan() -> None:
        while not over.is_set():
            with contextlib.suppress(GroupKafkaError):
                cycle.plan(start, limited=True)
            over.wait(0.1)

    thread = threading.Thread(target=plan, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        cycle.stop()
        thread.join()


@contextlib.contextmanager
def reading(make: MakeConsumer, cluster: Cluster, more: Mapping[str, str]) -> Iterator[None]:
    """Run one task's consumer, which waits for records at the end of a partition."""
    consumer: FetchConsumer = make(options(cluster, more).fetch_settings().client)
    _, end = consumer.bounds(PARTITION, 10)
    consumer.assign(PARTITION, end)
    intake = consumer.intake(FetchRange(*PARTITION, 0, RECORDS), arrow_schema(include_headers=False), 1_000_000)
    over = threading.Event()

    def take() -> None:
        while not over.is_set():
            intake.take(end, end + 1, 0.1)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    time.sleep(1)
    try:
        yield
    finally:
        over.set()
        thread.join()
        intake.close()
        consumer.close()


def outage(
    name: str, node: Node, client: Callable[[], contextlib.AbstractContextManager[None]], seconds: int, *, accepts: bool
) -> Outage:
    """Stop a client's broker for some seconds, and count connections and log lines.

    Args:
        name: the name of the measurement.
        node: the broker, which is running again at the end.
        client: runs the client.
        seconds: more than SETTLED_S.
        accepts: whether connections to the broker's port are accepted and closed. Otherwise the port is closed, and connections
            are counted only if the client has the DEBUG settings.
    """
    package = logging.getLogger("spark_groupsource")
    own = logging.StreamHandler(written := io.StringIO())
    own.setLevel(logging.WARNING)
    own.addFilter(RepeatFilter())
    gc.collect()  # otherwise earlier queries' clients would be counted
    with client():
        package.addHandler(own)
        node.kill()
        tries: Tries | Closing
        if accepts:
            tries = Closing(node.port)
        else:
            tries = Tries()
            package.addHandler(tries)
        time.sleep(seconds)
        package.removeHandler(own)
        lines = written.getvalue().splitlines()
        if isinstance(tries, Closing):
            tries.close()
        else:
            package.removeHandler(tries)
        node.start()
    return Outage(name, seconds, tries.in_second, lines)


@click.command()
@click.option(
    "--seconds", default=60, show_default=True, type=click.IntRange(min=SETTLED_S + 1), help="How long brokers are away."
)
@click.option("--rounds", default=7, show_default=True, help="How many starts are measured; 0: none.")
@click.option("--option", "given", multiple=True, metavar="OPTION=VALUE", help="An option of the source.")
@click.option("--show-lines", is_flag=True, help="Print what is written to the log.")
def main(seconds: int, rounds: int, given: tuple[str, ...], *, show_lines: bool) -> None:
    """Measure how long starts take, and count connections and log lines while brokers are down."""
    console = Console(width=150)
    more = dict(one.split("=", 1) for one in given)
    package = logging.getLogger("spark_groupsource")
    package.propagate = False
    package.setLevel(logging.DEBUG)
    package.addHandler(logging.NullHandler())  # the lines are counted, and shown at the end
    debug = {**more, **DEBUG}
    with Cluster(progress=lambda line: console.print(line, style="dim")) as cluster:
        fill(cluster)
        if rounds:
            print_starts(
                console,
                {
                    "first plan, subscribe": starts(cluster, more, rounds),
                    "first plan, subscribePattern": starts(cluster, {**more, "subscribePattern": TOPIC}, rounds),
                    "first plan, KIP-848": starts(cluster, {**more, "kafka.group.protocol": "consumer"}, rounds),
                    "first read of a new worker": first_reads(cluster, more, rounds),
                },
            )
        (node,) = cluster.nodes
        clients: dict[str, Callable[[Mapping[str, str]], contextlib.AbstractContextManager[None]]] = {
            "query": lambda settings: planning(cluster, settings),
            "task, native": lambda settings: reading(NativeConsumer, cluster, settings),
            "task, pure": lambda settings: reading(PureConsumer, cluster, settings),
        }
        found = []
        for name, client in clients.items():
            found += [
                outage(f"{name}, closed port", node, lambda: client(debug), seconds, accepts=False),  # noqa: B023
                outage(f"{name}, accepts and closes", node, lambda: client(more), seconds, accepts=True),  # noqa: B023
            ]
        print_outages(console, found, show_lines=show_lines)


def print_starts(console: Console, found: Mapping[str, list[float]]) -> None:
    """Print medians."""
    table = Table("start", "median", "all")
    for name, times in found.items():
        table.add_row(name, f"{1000 * statistics.median(times):.0f} ms", " ".join(f"{1000 * one:.0f}" for one in times))
    console.print(table)


def print_outages(console: Console, found: list[Outage], *, show_lines: bool) -> None:
    """Print the counts."""
    table = Table("broker away", "connections/s", "first seconds", "log lines a minute")
    for one in found:
        early = " ".join(str(one.tries[second]) for second in range(SETTLED_S))
        table.add_row(one.name, f"{one.settled_per_s:.1f}", early, f"{one.lines_per_minute:.0f}")
    console.print(f"connections per second after the first {SETTLED_S} s of {found[0].seconds} s")
    console.print(table)
    if show_lines:
        for one in found:
            console.print(one.name, style="bold")
            for line in one.lines:
                console.print(f"  {line}", markup=False, highlight=False)


if __name__ == "__main__":
    main()
