"""A group's committed offsets and lag, as other clients see them."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from devtools.broker import Cluster


def committed_offsets(cluster: Cluster, group: str, topic: str) -> dict[int, int]:
    """Return the committed offset by partition; partitions without a commit are left out."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    return {found.partition: found.offset for found in future.result(30).topic_partitions if found.topic == topic}


def end_offsets(cluster: Cluster, topic: str) -> dict[int, int]:
    """Return the log end offset by partition (exclusive)."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}  # type: ignore[no-untyped-call]
    return {partition.partition: future.result(30).offset for partition, future in admin.list_offsets(asked).items()}


def total_lag(cluster: Cluster, group: str, topic: str) -> int:
    """Return the records between the committed offsets and the ends, as lag tools count them; without a commit, all of them."""
    committed = committed_offsets(cluster, group, topic)
    return sum(end - committed.get(partition, 0) for partition, end in end_offsets(cluster, topic).items())
