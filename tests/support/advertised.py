"""A broker that advertises an address chosen by the test, and addresses that cannot be reached."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from devtools.broker import Cluster
from devtools.broker.config import HOST
from tests.support.waiting import until

UNREACHABLE = ("unresolvable", "silent", "refused")


@contextmanager
def address(kind: str) -> Iterator[str]:
    """Give an address that cannot be resolved, one that takes connections and never answers, or one without a listener."""
    if kind == "unresolvable":
        yield "no-such-host.invalid:9092"
        return
    with socket.socket() as own:
        own.bind((HOST, 0))
        if kind == "silent":
            own.listen(1000)  # the system accepts the connections
        yield f"{HOST}:{own.getsockname()[1]}"


def advertise(cluster: Cluster, address: str | None = None) -> None:
    """Restart the only broker of the cluster with another `advertised.listeners`, and wait for it; `None` is its own address."""
    (node,) = cluster.nodes
    node.stop()
    address = address or cluster.bootstrap_servers
    node.configure({"advertised.listeners": f"PLAINTEXT://{address}"})
    node.launch()

    def answers() -> bool:
        node.check_alive()
        client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        client.describe_cluster(request_timeout=2)  # keeps the first connection until it has an answer
        try:
            found = client.list_topics(timeout=2)
        except KafkaException:
            return False
        named = [f"{broker.host}:{broker.port}" for broker in found.brokers.values()]
        leaders = [partition.leader for topic in found.topics.values() for partition in topic.partitions.values()]
        return named == [address] and bool(leaders) and min(leaders) >= 0

    until(answers, f"a broker that advertises {address}")
