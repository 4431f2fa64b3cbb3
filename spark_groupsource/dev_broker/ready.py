"""Ready means: it answers. One node is asked, and what it says about the brokers or about a topic is looked at."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_groupsource.dev_broker.config import HOST, NodeAddress

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata

_BETWEEN_QUESTIONS_S = 0.05
_QUIET: Mapping[str, Any] = {"log_level": 0, "error_cb": lambda _error: None}


def quiet_client(bootstrap_servers: str) -> AdminClient:
    """Return an AdminClient that writes nothing to the terminal: that a node is not there yet is no news."""
    return AdminClient({"bootstrap.servers": bootstrap_servers, **_QUIET})


def wait_until_answers(node: NodeAddress, brokers: set[int], check: Callable[[], None]) -> None:
    """Return when the node itself lists `brokers` as alive. `check` is called between the questions and raises to give up."""
    while True:
        # A connection attempt costs nothing, whereas a client that has failed once waits before it tries again.
        if _accepts(node.port):
            answer = ask(node, None)
            if answer is not None and brokers <= set(answer.brokers):
                return
        check()
        time.sleep(_BETWEEN_QUESTIONS_S)


def ask(node: NodeAddress, topic: str | None) -> ClusterMetadata | None:
    """Return the node's own view of the cluster (and of one topic), or None when it did not answer within 2 s.

    A new client's first question goes to the one broker that it knows, and later ones to any broker.
    """
    client = quiet_client(f"{HOST}:{node.port}")
    try:
        answer = client.list_topics(topic, timeout=2) if topic is not None else client.list_topics(timeout=2)
    except KafkaException:
        return None
    return answer if answer.orig_broker_id == node.id else None


def knows_leaders(node: NodeAddress, topic: str, partitions: int) -> bool:
    """Whether the node itself knows a leader for each of the topic's partitions."""
    answer = ask(node, topic)
    if answer is None or topic not in answer.topics:
        return False
    known = answer.topics[topic].partitions
    return len(known) == partitions and all(one.leader >= 0 for one in known.values())


def wait_for_coordinator(bootstrap_servers: str, check: Callable[[], None]) -> None:
    """Return when a group's coordinator answers.

    The first question for one makes the brokers create `__consumer_offsets`; otherwise the first group that joins
    would wait for that.
    """
    # Not by an AdminClient: when the connection breaks while it asks a coordinator, it aborts the process (librdkafka #4605).
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
