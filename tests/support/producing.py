"""Sends records, to partitions that the producer may not know yet, or continuously while a test runs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from devtools.broker import Cluster
from tests.support.waiting import in_background, until

IN_ORDER = {"enable.idempotence": True}
"""Of a producer: a request that is sent again, because a new topic has no leader yet, does not come after later ones. On a busy
machine one in flight at a time was not enough for that."""

Delivered = Callable[[KafkaError | None, Message], None]


def numbered(count: int, start: int = 0) -> list[tuple[bytes, bytes]]:
    """Return keys and values for this many numbered records."""
    return [(b"k%d" % number, b"v%d" % number) for number in range(start, start + count)]


def send(
    producer: Producer,
    topic: str,
    value: bytes | str | None,
    key: bytes | str | None = None,
    partition: int = -1,
    timestamp: int = 0,
    on_delivery: Delivered | None = None,
) -> None:
    """Queue one record; while the client does not know the partition, which may be a new one, it asks for the topic again."""

    def sent() -> bool:
        try:
            producer.produce(topic, value, key, partition, timestamp=timestamp, on_delivery=on_delivery)
        except KafkaException as refused:
            if refused.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                raise
            producer.list_topics(topic, timeout=30)
            return False
        return True

    until(sent, f"{topic}-{partition} is known to the producer")


@contextmanager
def producing(cluster: Cluster, topic: str, per_second: int) -> Iterator[Counter[int]]:
    """Write about so many records a second, by turns to all partitions that there are, and count them by partition.

    At the end of the block the broker has them all.
    """
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5})
    written: Counter[int] = Counter()
    ended = threading.Event()

    def produce() -> None:
        number = 0
        while not ended.wait(0.02):
            partitions = len(producer.list_topics(topic, timeout=30).topics[topic].partitions)
            for _ in range(per_second // 50):
                send(producer, topic, b"%d" % number, partition=number % partitions)
                written[number % partitions] += 1
                number += 1
            producer.poll(0)
        assert producer.flush(60) == 0

    thread = in_background(produce)
    try:
        yield written
    finally:
        ended.set()
        thread.join()
