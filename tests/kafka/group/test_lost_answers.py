"""An answer of the coordinator is lost that says what a member has: the query notices, and joins again.

The member's connections go through a proxy, which forgets the one on which the answer comes. New connections work.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient

from spark_groupsource.cli.main import main
from spark_groupsource.group import coordinator_watch
from spark_groupsource.handoff.commit_record import CommitRecord, read_commit
from spark_groupsource.partition import TopicPartition
from tests.harness.brokers import Brokers
from tests.harness.proxy import Proxy
from tests.kafka.conftest import SHORT_TIMES, MakeQuery, Query
from tests.support.lost_answers import lose_assignment
from tests.support.producing import send
from tests.support.waiting import in_background, until

DISAGREES_S = 5.0
HEARTBEATS = {"group.consumer.heartbeat.interval.ms": "1000", "group.consumer.session.timeout.ms": "30000"}
WARNING = "the coordinator and this driver disagree: "
STEADY_S = 2 * DISAGREES_S


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(1, None, HEARTBEATS, proxied=True) as running:
        yield running


@pytest.fixture
def proxy(brokers: Brokers) -> Proxy:
    (proxy,) = brokers.proxies.values()
    return proxy


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the coordinator asked often: heartbeats are frequent here, so a rebalance is short."""
    monkeypatch.setattr(coordinator_watch, "COMPARE_EVERY_S", 3.0)
    monkeypatch.setattr(coordinator_watch, "COMPARE_AGAIN_S", 1.0)
    monkeypatch.setattr(coordinator_watch, "DISAGREES_S", DISAGREES_S)


@pytest.fixture
def filled(brokers: Brokers, request: pytest.FixtureRequest) -> str:
    """A topic of six partitions with ten records in each."""
    name: str = request.node.name.replace("_", "-")[:60]
    brokers.create_topic(name, 6)
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers})
    for number in range(60):
        send(producer, name, b"x", None, number % 6)
    assert producer.flush(60) == 0
    return name


@pytest.fixture
def client(brokers: Brokers) -> AdminClient:
    return brokers.client()


@pytest.fixture
def direct(query: MakeQuery, brokers: Brokers) -> Callable[..., Query]:
    """Makes queries whose connections are reliable."""
    return lambda topic, **more: query(topic, **with_servers(brokers.bootstrap_servers, **more))


@pytest.fixture
def proxied(query: MakeQuery, brokers: Brokers) -> Callable[..., Query]:
    """Makes queries whose connections go through the proxy."""
    return lambda topic, **more: query(topic, **with_servers(brokers.through_proxies, **more))


def with_servers(servers: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": servers, "kafka.group.protocol": "consumer", **more}


def records(client: AdminClient, topic: str) -> dict[int, CommitRecord]:
    """The record of each partition."""
    group = f"group-of-{topic}"
    found = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30).topic_partitions
    read = {one.partition: read_commit(one.offset, one.metadata) for one in found or ()}
    return {number: record for number, record in read.items() if isinstance(record, CommitRecord)}


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if WARNING in record.getMessage()]


def owned(query: Query) -> frozenset[TopicPartition]:
    return query.session.assignment.partitions


def planning(partitions: int, *queries: Query) -> Callable[[], bool]:
    """Have these queries plan, as Spark does at each trigger; return whether each may plan exactly so many partitions."""

    def enough() -> bool:
        for query in queries:
            query.plan()
        return all(len(query.positions) == partitions for query in queries)

    return enough


def test_a_query_that_did_not_hear_that_partitions_are_asked_back_joins_again_and_keeps_its_claims(
    filled: str,
    proxied: Callable[..., Query],
    direct: Callable[..., Query],
    proxy: Proxy,
    client: AdminClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    keeper, newcomer = proxied(filled, **{"handoff.drainTimeout": "1s"}), direct(filled)
    keeper.until_planning(6)
    assert len(keeper.claim()) == 6
    stream = keeper.logged.stream
    lose_assignment(proxy, client, filled, 3)
    newcomer.until_planning(3)
    until(lambda: len(owned(keeper)) == 3, "the keeper has its share")
    assert proxy.forgot
    assert not owned(keeper) & owned(newcomer)
    (warning,) = warnings_in(caplog)
    assert "which is assigned to other members" in warning
    # All is still claimed: by the keeper where it reads on, and for it where the newcomer does.
    until(lambda: all(record.unconfirmed for record in records(client, filled).values()), "every claim is kept")
    held = records(client, filled)
    assert {one.partition for one in owned(newcomer)} <= {
        number for number, record in held.items() if stream in {owed.stream for owed in record.owed}
    }
    keeper.finish()
    until(
        lambda: planning(3, keeper, newcomer)() and not any(r.owed for r in records(client, filled).values()),
        "what was claimed is confirmed",
    )
    assert len(warnings_in(caplog)) == 1


def test_a_query_that_did_not_hear_of_a_partition_joins_again_and_who_drains_or_waits_is_left_alone(
    filled: str,
    proxied: Callable[..., Query],
    direct: Callable[..., Query],
    proxy: Proxy,
    client: AdminClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    quick, slow = direct(filled, **{"handoff.drainTimeout": "1s"}), direct(filled, **{"handoff.drainTimeout": "100s"})
    until(planning(3, quick, slow), "two share the partitions")
    assert len(slow.claim()) == 3
    third = proxied(filled)
    until(lambda: planning(1, third)() and planning(2, quick)(), "the third one has what the quick one gave")
    until(lambda: slow.draining, "the slow one drains")
    time.sleep(STEADY_S)
    assert warnings_in(caplog) == []
    lose_assignment(proxy, client, filled, 2)
    slow.finish()
    slow.plan()
    until(lambda: proxy.forgot, "the answer is lost")
    until(planning(2, quick, slow, third), "each has its share")
    assert len(owned(quick) | owned(slow) | owned(third)) == 6
    (warning,) = warnings_in(caplog)
    assert "this driver has been missing" in warning


@pytest.mark.long
def test_a_static_member_that_did_not_hear_joins_again_as_itself(
    filled: str,
    proxied: Callable[..., Query],
    direct: Callable[..., Query],
    proxy: Proxy,
    client: AdminClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    keeper, newcomer = proxied(filled, **{"kafka.group.instance.id": "driver-1", "handoff.drainTimeout": "1s"}), direct(filled)
    keeper.until_planning(6)
    lose_assignment(proxy, client, filled, 3)
    newcomer.until_planning(3)
    until(planning(3, keeper), "the keeper has its share")
    assert len(warnings_in(caplog)) == 1


@pytest.mark.long
def test_under_the_classic_protocol_the_client_itself_asks_again(
    filled: str,
    proxied: Callable[..., Query],
    direct: Callable[..., Query],
    proxy: Proxy,
    client: AdminClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It does so when the session is over. Then the coordinator has expelled it, so that others have its partitions already."""
    classic = {"kafka.group.protocol": "classic", **SHORT_TIMES}
    keeper, newcomer = proxied(filled, **classic), direct(filled, **classic)
    keeper.until_planning(6)
    lose_assignment(proxy, client, filled, 3, "classic")
    joining = in_background(newcomer.plan)
    until(lambda: proxy.forgot, "the answer is lost")
    joining.join()
    until(planning(3, newcomer, keeper), "each has its share")
    assert not owned(keeper) & owned(newcomer)
    assert warnings_in(caplog) == []


def test_describe_shows_what_differs(
    filled: str,
    proxied: Callable[..., Query],
    direct: Callable[..., Query],
    proxy: Proxy,
    client: AdminClient,
    brokers: Brokers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spark_groupsource.query.session.watch", lambda *_: None)
    keeper, newcomer = proxied(filled), direct(filled)
    keeper.until_planning(6)
    lose_assignment(proxy, client, filled, 3)
    joining = in_background(newcomer.plan)
    until(lambda: proxy.forgot, "the answer is lost")

    def differing() -> set[int]:
        arguments = ["describe", "--bootstrap-server", brokers.bootstrap_servers, "--group", f"group-of-{filled}"]
        as_json = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).output)
        member_id = keeper.session.assignment.member_id
        shown = CliRunner().invoke(main, arguments).output
        assert bool(as_json["differences"]) == ("members and coordinator disagree" in shown)
        assert {one["writer_member_id"] for one in as_json["differences"]} <= {member_id}
        assert member_id not in {one["target_member_id"] for one in as_json["differences"]}
        return {one["partition"] for one in as_json["differences"]}

    until(lambda: len(differing()) == 3, "what was asked back is shown")
    assert len(owned(keeper)) == 6
    keeper.cycle.stop()
    joining.join()
    until(planning(6, newcomer), "the newcomer has all")
    assert differing() == set()
