"""The racks of brokers change, as while one of them is down: what that means for the members of a group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from devtools.broker import Cluster
from devtools.broker.config import rack_of_node
from tests.conftest import NOT_FENCED, SELDOM
from tests.kafka.conftest import MakeQuery
from tests.support.waiting import until

CONFIG = {**NOT_FENCED, **SELDOM}
IN_A_RACK = {"client.rack": "zone-a", "topic.metadata.refresh.interval.ms": "500", "session.timeout.ms": "60000"}


@pytest.fixture
def in_zone_a() -> Iterator[Cluster]:
    with Cluster(racks=["zone-a"], config=CONFIG) as running:
        running.create_topic("orders", partitions=2)
        yield running


def test_racks_of_brokers_that_change_cost_a_query_with_a_rack_no_rebalance(in_zone_a: Cluster, query: MakeQuery) -> None:
    """Only the tasks need it. With it the member joins again each time, as this plain consumer does, which fetches nothing."""
    servers = in_zone_a.bootstrap_servers
    one = query("orders", **{f"kafka.{name}": value for name, value in {"bootstrap.servers": servers, **IN_A_RACK}.items()})
    one.until_planning(2)
    joined: list[bool] = []

    def note(consumer: Consumer, _: list[KafkaTopicPartition]) -> None:
        consumer.assign([])
        joined.append(True)

    plain = Consumer({"bootstrap.servers": servers, "group.id": "plain", "log_level": 0, **IN_A_RACK})
    plain.subscribe(["orders"], on_assign=note)
    until(lambda: plain.poll(0.1) is None and joined, "the plain consumer has joined")
    before = one.session.assignment.generation
    (node,) = in_zone_a.nodes
    node.stop()
    node.configure({**CONFIG, **rack_of_node("zone-b")})
    node.start()
    until(lambda: plain.poll(0.1) is None and len(joined) == 2, "the plain consumer has joined again")
    plain.close()
    one.plan()
    assert one.session.assignment.generation == before
