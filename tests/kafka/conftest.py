"""Queries without Spark: their checkpoints, and what the group holds for them."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from devtools.broker import Cluster
from spark_groupsource.brokers.client_pool import pool
from spark_groupsource.handoff.commit_record import CommitRecord, read_commit
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition
from spark_groupsource.query.cycle import Cycle
from spark_groupsource.query.session import Session
from tests.conftest import MakeTopic, Produce
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.secured import Secured

SHORT_TIMES = {"kafka.session.timeout.ms": "6000", "kafka.heartbeat.interval.ms": "300"}
"""Of a classic member. Under KIP-848 the broker sets them (tests/conftest.py, SHORT_SESSIONS)."""

Claimed = dict[int, tuple[int, ...]]
"""For each partition (from, to), and (from, to, from, to) where a plan has two ranges."""


class Query:
    """A query's checkpoint, and the run of it that is alive: what Spark would do, one call at a time."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.given = options
        self._options = Options.parse(options)
        self.cycle = Cycle(self._options)
        self.done = self.cycle.first()
        self.logged = self.done

    def plan(self) -> bool:
        """latestOffset, and the offset log; whether there is something to read."""
        planned = self.cycle.plan(self.done, limited=True)
        if planned is not None:
            self.logged = planned
        return planned is not None

    def claim(self) -> Claimed:
        """partitions(start, end): what the tasks read."""
        granted = self.cycle.claim(self.done, self.logged)
        return {partition.partition: tuple(bound for one in ranges for bound in one) for partition, ranges in granted.items()}

    def finish(self) -> None:
        """The sink and the commit log."""
        self.done = self.logged

    def store(self) -> None:
        """What Spark does with an offset: it writes JSON, and reads it again."""
        self.done = self.logged = PlanOffset.parse(json.loads(json.dumps(self.done.to_json())), self.done.group)

    def run_batch(self) -> Claimed:
        until(self.plan, "something to read")
        claimed = self.claim()
        self.finish()
        return claimed

    @property
    def session(self) -> Session:
        """The run's part in its group."""
        return self.cycle.session

    @property
    def draining(self) -> frozenset[TopicPartition]:
        """The partitions that the group has asked back; none before the query has joined."""
        return self.session.assignment.draining

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """Where the next plan goes on; empty before the query has joined."""
        return self.session.positions

    def until_planning(self, partitions: int) -> None:
        """Wait until the query may plan exactly so many partitions."""

        def enough() -> bool:
            self.plan()
            return len(self.positions) == partitions

        until(enough, f"{partitions} partitions to plan")

    def restart(self, options: Mapping[str, str] | None = None) -> None:
        """The driver is gone, and a new one starts on the same checkpoint, perhaps with other options."""
        self.cycle.stop()
        self.given = self.given if options is None else options
        self._options = Options.parse(self.given)
        self.cycle = Cycle(self._options)


@contextmanager
def running(query: Query) -> Iterator[list[Claimed]]:
    """Run micro-batches of the query in the background, as Spark would; what each of them has read."""
    over, read = threading.Event(), list[Claimed]()

    def run() -> None:
        while not over.wait(0.05):
            if query.plan():
                read.append(query.claim())
                query.finish()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield read
    finally:
        over.set()
        thread.join()


def offsets_of(batches: list[Claimed]) -> dict[int, list[int]]:
    """Every offset that was read of each partition, in the order of reading."""
    read: dict[int, list[int]] = {}
    for batch in batches:
        for partition, bounds in batch.items():
            for start, end in zip(bounds[::2], bounds[1::2], strict=True):
                read.setdefault(partition, []).extend(range(start, end))
    return read


@pytest.fixture(autouse=True)
def no_client_is_kept() -> Iterator[None]:
    """Close the clients that a process keeps from one micro-batch to the next: a test's broker may end before them."""
    yield
    pool().close_kept()


@pytest.fixture
def no_secret_is_logged(secured: Secured, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Whatever a test does: no password and no token stands in its logs or on its terminal."""
    caplog.set_level(logging.DEBUG)
    yield
    shown = caplog.text + "".join(capfd.readouterr())
    assert [secret for secret in secured.secrets() if secret in shown] == []


@pytest.fixture
def query(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Query]]:
    """Makes queries. Nobody reports their plans, so none waits for a report when it is stopped."""
    monkeypatch.setattr("spark_groupsource.query.cycle.AT_STOP_S", 0.0)
    made: list[Query] = []

    def make_query(topic: str, **more: str) -> Query:
        made.append(
            Query(
                {
                    "kafka.bootstrap.servers": cluster.bootstrap_servers,
                    "kafka.group.id": f"group-of-{topic}",
                    **(SHORT_TIMES if more.get("kafka.group.protocol", "classic") == "classic" else {}),
                    **({} if "subscribePattern" in more else {"subscribe": topic}),
                    "startingOffsets": "earliest",
                    **more,
                }
            )
        )
        return made[-1]

    yield make_query
    for one in made:
        one.cycle.stop()


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest) -> str:
    """Each rebalance protocol in turn, for tests of both."""
    return str(request.param)


@pytest.fixture
def options(cluster: Cluster, protocol: str) -> MakeOptions:
    """Makes the options of a member that subscribes to the topic, under each protocol."""

    def make_options(topic: str, **more: str) -> dict[str, str]:
        session = {"kafka.session.timeout.ms": "6000"} if protocol == "classic" else {}
        return {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "kafka.group.id": f"group-of-{topic}",
            "kafka.group.protocol": protocol,
            "kafka.topic.metadata.refresh.interval.ms": "1000",
            "subscribe": topic,
            **session,
            **more,
        }

    return make_options


@pytest.fixture
def record_of(admin: AdminClient) -> Callable[[str, int], CommitRecord]:
    """Reads the record that a query of the group has committed for a partition of the topic."""

    def read(topic: str, partition: int) -> CommitRecord:
        future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(f"group-of-{topic}")])[f"group-of-{topic}"]
        (found,) = (one for one in future.result(30).topic_partitions if (one.topic, one.partition) == (topic, partition))
        record = read_commit(found.offset, found.metadata)
        assert isinstance(record, CommitRecord), record
        return record

    return read


@pytest.fixture
def filled(topic: MakeTopic, produce: Produce) -> Callable[..., str]:
    """Makes a topic with so many records, which are alike, in each partition."""

    def make(partitions: int = 1, count: int = 10, value: bytes = b"x") -> str:
        name = topic(partitions)
        for partition in range(partitions):
            produce(name, [(None, value)] * count, partition)
        return name

    return make


MakeQuery = Callable[..., Query]
MakeOptions = Callable[..., dict[str, str]]
RecordOf = Callable[[str, int], CommitRecord]
Filled = Callable[..., str]
