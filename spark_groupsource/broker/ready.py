"""Ready means: it answers. One node is asked, and what it says about the brokers or about a topic is looked at."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from spark_groupsource.broker.config import HOST, NodeAddress

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata

_BETWEEN_QUESTIONS_S = 0.05


def quiet_client(bootstrap_servers: str) -> AdminClient:
    """Return an AdminClient that writes nothing to the terminal: that a node is not there yet is no news."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 0, "error_cb": lambda _error: None}
    return AdminClient(settings)


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
    client = quiet_client(bootstrap_servers)
    while True:
        try:
            client.describe_consumer_groups(["groupkafka-start"], request_timeout=5)["groupkafka-start"].result()
        except KafkaException as error:
            # What 4.0 and later say of a group that nobody has joined yet (KIP-1043).
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return
        else:
            return
        check()
        time.sleep(_BETWEEN_QUESTIONS_S)


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False
