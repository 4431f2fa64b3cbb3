"""Plain Kafka consumers, for checks of what they receive and commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from devtools.broker import Cluster
from tests.support.waiting import in_background, until


@contextmanager
def joined(cluster: Cluster, group: str, topic: str, count: int, **settings: str) -> Iterator[Consumer]:
    """Return a plain consumer that has joined the group and owns `count` partitions."""
    more = {key.replace("_", "."): value for key, value in settings.items()}
    times = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "300"}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, **times, **more})
    consumer.subscribe([topic])
    try:
        until(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == count, f"{count} partitions")
        yield consumer
    finally:
        consumer.close()


def commit(consumer: Consumer, topic: str, partition: int, offset: int, metadata: str = "") -> None:
    consumer.commit(offsets=[KafkaTopicPartition(topic, partition, offset, metadata)], asynchronous=False)


def commit_as_another_client(cluster: Cluster, group: str, topic: str, offset: int, metadata: str = "") -> None:
    """Commit for partition 0 while the group has no members, which any client may do."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    commit(consumer, topic, 0, offset, metadata)
    consumer.close()


def records_for_a_plain_consumer(bootstrap_servers: str, group: str, topic: str, partitions: int, protocol: str) -> int:
    """Return how many records it reads until it owns every partition and stands at the end of each."""
    # With the classic protocol queries and other clients of one group share the cooperative strategy.
    strategy = {} if protocol == "consumer" else {"partition.assignment.strategy": "cooperative-sticky"}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
            **strategy,
        }
    )
    records = 0
    ended: set[int] = set()

    def at_the_end() -> bool:
        nonlocal records
        for message in consumer.consume(500, 0.2):
            partition = message.partition()
            if message.error() is None:
                records += 1
            elif partition is not None:
                ended.add(partition)
        owned = {one.partition for one in consumer.assignment()}
        return len(owned) == partitions and owned <= ended

    consumer.subscribe([topic])
    try:
        until(at_the_end, f"a plain consumer of {group} stands at the ends of {partitions} partitions", 60.0)
    finally:
        consumer.close()
    return records


class Plain:
    """A consumer that is polled on its own thread and commits nothing."""

    def __init__(self, consumer: Consumer) -> None:
        self.owned = 0
        """The number of its partitions."""
        self._consumer = consumer
        self._ended = False
        self._thread = in_background(self._poll)

    def close(self) -> None:
        self._ended = True
        self._thread.join()
        self._consumer.close()

    def _poll(self) -> None:
        while not self._ended:
            self._consumer.poll(0.1)
            self.owned = len(self._consumer.assignment())


@contextmanager
def plain_member(
    cluster: Cluster, group: str, topic: str, settings: Mapping[str, str], lets_go_after_s: float = 0.0
) -> Iterator[Plain]:
    """Yield a member of the group. It lets go of partitions so many seconds after the group has asked for them."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "enable.auto.commit": False, **settings}
    )
    ends = threading.Event()

    def let_go(*_: object) -> None:
        ends.wait(lets_go_after_s)

    consumer.subscribe([topic], on_revoke=let_go)
    plain = Plain(consumer)
    try:
        yield plain
    finally:
        ends.set()
        plain.close()
