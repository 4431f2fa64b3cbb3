"""A log that falls back and grows again past a query's position: running and restarted, and with both values of failOnDataLoss."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from devtools.broker import Cluster
from spark_groupsource.errors import DataLossError
from tests.conftest import KEEP_ALL, NOT_FENCED, SHORT_SESSIONS
from tests.kafka.conftest import SHORT_TIMES, Query
from tests.kafka.losses.conftest import GOES_ON
from tests.support.fallen_logs import Replicas, copied, write
from tests.support.waiting import until

SOON = {"kafkaConsumer.pollTimeoutMs": "3000"}
"""A log that was cut is believed after so many ms."""

WAYS = [(running, fails) for running in (True, False) for fails in (True, False)]

Make = Callable[..., Query]


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """A node that is stopped, and whose disk is restored."""
    with Cluster(config={**SHORT_SESSIONS, **NOT_FENCED, **KEEP_ALL}) as running:
        yield running


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster(nodes=3, config={**SHORT_SESSIONS, **KEEP_ALL}) as running:
        yield running


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr("spark_groupsource.query.cycle.AT_STOP_S", 0.0)
    made: list[Query] = []

    def make_query(cluster: Cluster, topic: str, **more: str) -> Query:
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.group.id": f"group-of-{topic}", **SHORT_TIMES}
        made.append(Query({**options, "subscribe": topic, "startingOffsets": "earliest", **SOON, **more}))
        return made[-1]

    yield make_query
    for one in made:
        one.cycle.stop()


def queries(cluster: Cluster, make: Make, topics: list[str]) -> list[Query]:
    """A query on each topic, which has read 200 records."""
    return [make(cluster, topic, **({} if fails else GOES_ON)) for topic, (_, fails) in zip(topics, WAYS, strict=True)]


def read_all(made: list[Query], first: int, end: int) -> None:
    for one in made:
        assert one.run_batch() == {0: (first, end)}
        assert not one.plan(), "this confirms the plan"


def check(made: list[Query], topics: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """Each has noticed that its log was cut at 100, and has 249 records now."""
    for one, topic, (running, fails) in zip(made, topics, WAYS, strict=True):
        if not running:
            one.restart()
        lost = rf"{topic}-0 \[100, 200\) \(100 offsets\): the next offset to read was 200, and the log was cut off at 100"
        if fails:
            with pytest.raises(DataLossError, match=lost):
                until(lambda one=one: one.plan() and False, "the query ends")  # type: ignore[misc]
        else:
            assert one.run_batch() == {0: (100, 249)}, "each record of the log as it is now, once"
            assert re.search(lost + ".*the query goes on at 100", caplog.text)
            assert not one.plan()


def test_a_restored_disk(own: Cluster, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    topics = [f"restored-{number}" for number in range(len(WAYS))]
    for topic in topics:
        own.create_topic(topic)
        write(own, topic, 100, b"old")
    with copied(own, *topics) as disk:
        for topic in topics:
            write(own, topic, 100, b"lost")
        made = queries(own, make, topics)
        read_all(made, 0, 200)
        for one, (running, _) in zip(made, WAYS, strict=True):
            if not running:
                one.cycle.stop()
        disk.restore()
        for topic in topics:
            write(own, topic, 149, b"new")
        check(made, topics, caplog)


def test_an_unclean_leader_election(three: Cluster, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    topics = [f"elected-{number}" for number in range(len(WAYS))]
    replicas = Replicas(three, *topics)
    for topic in topics:
        write(three, topic, 100, b"old")
    made = queries(three, make, topics)
    read_all(made, 0, 100)
    replicas.fall_behind()
    for topic in topics:
        write(three, topic, 100, b"lost")
    read_all(made, 100, 200)
    for one, (running, _) in zip(made, WAYS, strict=True):
        if not running:
            one.cycle.stop()
    replicas.fall_back()
    for topic in topics:
        write(three, topic, 149, b"new")
    check(made, topics, caplog)
