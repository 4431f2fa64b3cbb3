"""Waits until a node is ready: until it answers, and its answer lists the expected brokers, or the leaders of a topic."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from devtools.broker.config import HOST, NodeAddress
from spark_groupsource.brokers.droppable import droppable

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata

_BETWEEN_QUESTIONS_S = 0.05
_QUIET: Mapping[str, Any] = {"log_level": 0, "error_cb": lambda _error: None}


def quiet_client(bootstrap_servers: str) -> AdminClient:
    """Return an AdminClient that prints nothing: a node that does not answer yet is expected."""
    client: AdminClient = droppable(AdminClient)({"bootstrap.servers": bootstrap_servers, **_QUIET})
    return client


def wait_until_answers(node: NodeAddress, brokers: set[int], check: Callable[[], None]) -> None:
    """Return when the node itself lists `brokers` as alive.

    Args:
        node: the node to ask.
        brokers: the ids of the brokers.
        check: called between the requests. It raises an error to give up.
    """
    while True:
        # An attempt to connect is cheap. A client that has failed once waits before it tries again.
        if _accepts(node.port):
            answer = ask(node, None)
            if answer is not None and brokers <= set(answer.brokers):
                return
        check()
        time.sleep(_BETWEEN_QUESTIONS_S)


def ask(node: NodeAddress, topic: str | None) -> ClusterMetadata | None:
    """Return the node's own view of the cluster (and of one topic); `None` if it did not answer within 2 s.

    A new client's first request goes to the only broker that it knows. Later requests would go to any broker.
    """
    client = quiet_client(f"{HOST}:{node.port}")
    try:
        answer = client.list_topics(topic, timeout=2) if topic is not None else client.list_topics(timeout=2)
    except KafkaException:
        return None
    return answer if answer.orig_broker_id == node.id else None


def knows_leaders(node: NodeAddress, topic: str, partitions: int) -> bool:
    """Return whether the node itself knows a leader for each of the topic's partitions."""
    answer = ask(node, topic)
    if answer is None or topic not in answer.topics:
        return False
    known = answer.topics[topic].partitions
    return len(known) == partitions and all(partition.leader >= 0 for partition in known.values())


def wait_for_coordinator(bootstrap_servers: str, check: Callable[[], None]) -> None:
    """Return when a group's coordinator answers.

    The first request for a coordinator makes the brokers create `__consumer_offsets`. Otherwise, the first group would have to
    wait for that.

    Args:
        bootstrap_servers: the brokers.
        check: called after each failure. It raises an error to give up.
    """
    # Do not use an AdminClient, which aborts the process if the connection breaks during such a request (librdkafka #4605).
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "group.id": "groupkafka-start", **_QUIET}
    client = Consumer(settings)
    try:
        while True:
            try:
                client.committed([TopicPartition("groupkafka-start", 0)], timeout=5)
            except KafkaException:
                check()
                time.sleep(_BETWEEN_QUESTIONS_S)
            else:
                return
    finally:
        client.close()


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False
