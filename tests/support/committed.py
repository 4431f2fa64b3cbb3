"""Reads topics as a `read_committed` consumer."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Literal, overload

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from devtools.broker import Cluster
from spark_groupsource.brokers.offsets import LATEST_OFFSET, request_offsets
from spark_groupsource.partition import TopicPartition as Partition

VISIBLE_WITHIN_S = 10.0
"""Brokers end a transaction on one partition after the other, after they have answered. One that stays open is not waited for
longer than this."""


@overload
def read_committed(cluster: Cluster, *topics: str | None, whole: Literal[True]) -> list[Message]: ...
@overload
def read_committed(cluster: Cluster, *topics: str | None) -> list[str]: ...
def read_committed(cluster: Cluster, *topics: str | None, whole: bool = False) -> list[Message] | list[str]:
    """Read the topics to their ends with `isolation.level=read_committed`.

    What is there is waited for until it is visible, unless a transaction stays open.

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
        _until_visible(cluster, left)
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


def _until_visible(cluster: Cluster, partitions: Collection[tuple[str, int]]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})

    def ends(level: IsolationLevel) -> dict[Partition, int]:
        asked = {Partition(*partition): LATEST_OFFSET for partition in sorted(partitions)}
        answers = request_offsets(admin, asked, VISIBLE_WITHIN_S, level)
        return {partition: answer.result().offset for partition, answer in answers.items()}

    written: dict[Partition, int] | None = None
    until_s = time.monotonic() + VISIBLE_WITHIN_S
    while time.monotonic() < until_s:
        try:
            # Only what is written by now: others may write on meanwhile.
            written = ends(IsolationLevel.READ_UNCOMMITTED) if written is None else written
            visible = ends(IsolationLevel.READ_COMMITTED)
        except KafkaException:
            visible = {}  # a leader has just moved
        if written is not None and all(visible.get(partition, -1) >= end for partition, end in written.items()):
            return
        time.sleep(0.05)
