"""Logs that fall back: a broker's disk is restored from a copy, or a replica that is behind becomes leader."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from devtools.broker import Cluster
from tests.support.waiting import until


def write(cluster: Cluster, topic: str, records: int, value: bytes) -> None:
    """Write records, in small batches, with a producer that has not known the log before. A leader alone acknowledges them."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "1", "batch.size": 20_000})
    for _ in range(records):
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


class Disk:
    """The logs of some topics, with one partition each, of a cluster with a single node."""

    def __init__(self, cluster: Cluster, topics: list[str], copies: Path) -> None:
        (self._node,) = cluster.nodes
        self._copies = {topic: copies / topic for topic in topics}
        self._folders = {topic: next(self._node.log.parent.glob(f"data/**/{topic}-0")) for topic in topics}
        self._node.stop()
        for topic, folder in self._folders.items():
            shutil.copytree(folder, self._copies[topic])
        self._node.start()

    def restore(self) -> None:
        """Put the logs back as they were."""
        self._node.stop()
        for topic, folder in self._folders.items():
            shutil.rmtree(folder)
            shutil.copytree(self._copies[topic], folder)
        self._node.start()


@contextmanager
def copied(cluster: Cluster, *topics: str) -> Iterator[Disk]:
    """Copy the logs of the topics as they are now. The node is stopped meanwhile."""
    with TemporaryDirectory() as folder:
        yield Disk(cluster, list(topics), Path(folder))


class Replicas:
    """Topics with one partition and two replicas, on the first two nodes of a cluster of three."""

    def __init__(self, cluster: Cluster, *topics: str) -> None:
        self._cluster = cluster
        self._topics = topics
        self._ahead, self._behind, _ = cluster.nodes
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        replicas = [[self._ahead.id, self._behind.id]]
        made = admin.create_topics([NewTopic(topic, 1, replica_assignment=replicas, config=config) for topic in topics])
        for done in made.values():
            done.result(60)
        self._until_led_by(self._ahead.id)

    def fall_behind(self) -> None:
        """Stop the second replica: what is written from now on, it does not get."""
        self._behind.stop()

    def fall_back(self) -> None:
        """Stop the first replica, and start the second one, which becomes leader."""
        self._ahead.stop()
        self._behind.launch()
        self._until_led_by(self._behind.id)

    def heal(self) -> None:
        """Start the first replica again. It follows, and drops what the new leader does not have."""
        self._ahead.launch()

    def _until_led_by(self, node: int) -> None:
        def led() -> bool:
            found = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers}).list_topics(timeout=30).topics
            return all(topic in found and found[topic].partitions[0].leader == node for topic in self._topics)

        until(led, f"node {node} leads")
