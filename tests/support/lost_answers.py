"""Answers to a member that get lost: the ones that say which partitions it has, by the proxy's `forget`."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from tests.harness.proxy import Direction, Proxy

SYNC_GROUP = 14
"""The key of the request of the classic protocol whose answer has a member's assignment."""


def lose_assignment(proxy: Proxy, admin: AdminClient, topic: str, partitions: int, protocol: str = "consumer") -> None:
    """Lose the next answer that says that a member has so many of the topic's partitions.

    Args:
        proxy: what the member's connections go through.
        admin: asks for the topic's id.
        topic: the topic.
        partitions: how many (KIP-848). Other answers may repeat what the member has already.
        protocol: the group's protocol. Under `classic` the answer to a SyncGroup is lost, under `consumer` one to a heartbeat.
    """
    if protocol == "classic":
        proxy.forget(_is_sync_group, Direction.REQUESTS)
    else:
        proxy.forget(_assigns(admin, topic, partitions))


def _is_sync_group(request: bytes) -> bool:
    return int.from_bytes(request[4:6], "big") == SYNC_GROUP


def _assigns(admin: AdminClient, topic: str, partitions: int) -> Callable[[bytes], bool]:
    """Return whether an answer has the topic's id with so many partitions.

    It must not have the topic's name: all other answers that a member gets have that.
    """
    uuid = admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id
    halves = (uuid.get_most_significant_bits(), uuid.get_least_significant_bits())
    topic_id = b"".join(half.to_bytes(8, "big", signed=True) for half in halves)
    assignment = topic_id + bytes([partitions + 1])  # a compact array: its length and 1
    return lambda answer: assignment in answer and topic.encode() not in answer
