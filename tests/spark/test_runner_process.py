"""A driver that dies takes its membership with it, also when nobody is left to stop the query."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from devtools.broker import Cluster
from devtools.demo.query_process import QueryProcess
from tests.conftest import MakeTopic, Produce
from tests.support.processes import CAN_LOOK, all_have_ended, driver_jvm
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(not CAN_LOOK, reason="looks for processes in /proc")


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Stands in the environment of all that the test starts from here on."""
    mark = f"driver-{uuid.uuid4()}"
    monkeypatch.setenv("GROUPKAFKA_TEST_MARK", mark)
    return mark


@pytest.fixture
def query(tmp_path: Path, mark: str) -> Iterator[QueryProcess]:
    process = QueryProcess("Q", tmp_path / "Q")
    yield process
    process.close()


def kill_driver(mark: str) -> None:
    """SIGKILL for the Spark driver's JVM, and nothing else."""
    os.kill(driver_jvm(mark), signal.SIGKILL)


def options(cluster: Cluster, topic: str, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.group.id": f"group-of-{topic}",
        "subscribe": topic,
        "startingOffsets": "earliest",
        **more,
    }


def test_a_killed_driver_leaves_the_group_at_once(
    query: QueryProcess, cluster: Cluster, admin: AdminClient, topic: MakeTopic, produce: Produce, mark: str
) -> None:
    name = topic()
    produce(name, [(None, b"1")])
    query.begin(options(cluster, name))
    until(lambda: any(event["event"] == "progress" for event in query.events()), "the first micro-batch")
    assert members(admin, name) == 1
    kill_driver(mark)
    # Its session would be over after 45 s.
    assert until(lambda: members(admin, name) == 0, "the member has left") < 30
    all_have_ended(mark)


@pytest.mark.long
def test_a_killed_driver_does_not_go_on_waiting_for_the_group(
    query: QueryProcess, cluster: Cluster, admin: AdminClient, topic: MakeTopic, mark: str
) -> None:
    name = topic()
    # A member that has stopped polling holds up the rebalance until its max.poll.interval.ms is over.
    silent = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": f"group-of-{name}"})
    try:
        silent.subscribe([name])
        until(lambda: silent.poll(0.1) is None and silent.assignment(), "the first member has its partitions")
        query.begin(options(cluster, name, **{"kafka.partition.assignment.strategy": "range", "assignmentTimeout": "4m"}))
        until(lambda: members(admin, name) == 2, "the query asks to join")
        kill_driver(mark)
        all_have_ended(mark)
    finally:
        silent.close()


def members(admin: AdminClient, topic: str) -> int:
    group = f"group-of-{topic}"
    return len(admin.describe_consumer_groups([group])[group].result(30).members)
