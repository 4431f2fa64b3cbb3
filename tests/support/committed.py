"""What a reader of committed records finds in topics."""

from __future__ import annotations

from typing import Literal, overload

from confluent_kafka import Consumer, Message, TopicPartition

from devtools.broker import Cluster


@overload
def read_committed(cluster: Cluster, *topics: str | None, whole: Literal[True]) -> list[Message]: ...
@overload
def read_committed(cluster: Cluster, *topics: str | None) -> list[str]: ...
def read_committed(cluster: Cluster, *topics: str | None, whole: bool = False) -> list[Message] | list[str]:
    """Read the topics to their ends with `isolation.level=read_committed`.

    Args:
        cluster: The brokers.
        topics: Their names.
        whole: Whether to return messages, in the order of each partition. Otherwise the values are returned, sorted.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reads-committed",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        known = consumer.list_topics(timeout=60).topics
        left = {(name, number) for name in topics if name is not None for number in known[name].partitions}
        consumer.assign([TopicPartition(name, number, 0) for name, number in sorted(left)])
        found: list[Message] = []
        while left:
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    found.append(message)
                else:
                    assert error.name() == "_PARTITION_EOF", error
                    left.discard((message.topic() or "", message.partition() or 0))
        return found if whole else sorted((message.value() or b"").decode() for message in found)
    finally:
        consumer.close()
