"""Sending records to partitions that the producer may not know yet."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.support.waiting import until

Delivered = Callable[[KafkaError | None, Message], None]


def numbered(count: int, start: int = 0) -> list[tuple[bytes, bytes]]:
    """Return keys and values of so many records, each with its number."""
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
