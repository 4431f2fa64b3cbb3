"""Plain consumers, and what they commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from devtools.broker import Cluster
from tests.support.waiting import until


@contextmanager
def joined(cluster: Cluster, group: str, topic: str, count: int, **settings: str) -> Iterator[Consumer]:
    """Return a plain consumer that has joined the group and owns `count` partitions."""
    more = {key.replace("_", "."): value for key, value in settings.items()}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "session.timeout.ms": 6000, **more})
    consumer.subscribe([topic])
    try:
        until(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == count, f"{count} partitions")
        yield consumer
    finally:
        consumer.close()


def commit(consumer: Consumer, topic: str, partition: int, offset: int, metadata: str = "") -> None:
    consumer.commit(offsets=[KafkaTopicPartition(topic, partition, offset, metadata)], asynchronous=False)
