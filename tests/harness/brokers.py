"""The brokers of a lane: one node, or three that can also be reached through a proxy each."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, TopicMetadata  # type: ignore[attr-defined]

from devtools.broker import Cluster, Node
from devtools.broker.config import HOST
from devtools.broker.ports import free_ports
from devtools.broker.ready import quiet_client
from tests.conftest import SHORT_SESSIONS
from tests.harness.proxy import Proxy
from tests.support.waiting import until

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import PartitionMetadata

OFFSETS_TOPIC = "__consumer_offsets"
REQUEST_LIMIT_S = 10.0
COORDINATOR_LIMIT_S = 180.0


def in_sync(topics: Iterable[TopicMetadata]) -> bool:
    """Return whether every replica of every partition of these topics is in sync."""
    return all(len(one.isrs) == len(one.replicas) for topic in topics for one in topic.partitions.values())


class Brokers(Cluster):
    """A cluster. With three nodes, or on request, each node has a second listener that advertises a proxy's address."""

    def __init__(
        self, nodes: int, version: str | None, config: Mapping[str, str] = SHORT_SESSIONS, *, proxied: bool = False
    ) -> None:
        super().__init__(nodes=nodes, version=version, config=config)
        self._with = config
        self._proxied = proxied or nodes > 1
        self.proxies: dict[int, Proxy] = {}

    def start(self) -> None:
        super().start()
        if self._proxied:
            self._put_behind_proxies()

    def stop(self) -> None:
        super().stop()
        for proxy in self.proxies.values():
            proxy.close()

    @property
    def through_proxies(self) -> str:
        """The brokers' addresses for a client whose connections all go through the proxies."""
        return ",".join(f"{HOST}:{proxy.port}" for proxy in self.proxies.values()) or self.bootstrap_servers

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None, replication: int | None = None
    ) -> None:
        in_sync = {"min.insync.replicas": "2"} if len(self.nodes) > 1 else {}
        super().create_topic(name, partitions, {**in_sync, **(config or {})}, replication)

    def client(self) -> AdminClient:
        return quiet_client(self.bootstrap_servers)

    def coordinator(self, group: str) -> Node:
        """Return the node that coordinates the group now."""
        # Not by describing the group: librdkafka aborts the process when a coordinator's connection breaks meanwhile (#4605).
        _, leader = self._place(group)
        (node,) = [node for node in self.nodes if node.id == leader.leader]
        return node

    def until_moved(self, group: str, node: Node) -> None:
        """Wait until a node other than this crashed one coordinates the group."""
        self._until_placed(group, lambda now: now.leader not in {-1, node.id}, f"another node coordinates {group}")

    def move_coordinator(self, group: str, folder: Path) -> None:
        """Make the next node the leader of the group's partition of the offsets topic, without stopping anything."""
        number, metadata = self._place(group)
        before = metadata.leader
        replicas = sorted(metadata.replicas, key=lambda node: ((node - before - 1) % len(self.nodes), node))
        self._reassign(number, replicas, folder)
        # The first replica is the preferred one; the election makes it the leader.
        until(lambda: self._elected(number, replicas[0]), f"node {replicas[0]} coordinates {group}", COORDINATOR_LIMIT_S)

    def keep_on(self, group: str, nodes: Iterable[Node], folder: Path) -> None:
        """Keep the group's partition of the offsets topic on these nodes and on no other."""
        number, _ = self._place(group)
        wanted = [node.id for node in nodes]
        self._reassign(number, wanted, folder)
        self._until_placed(
            group,
            lambda now: sorted(now.replicas) == sorted(now.isrs) == sorted(wanted),
            f"{group} is on {wanted}",
        )

    def until_leaderless(self, group: str) -> None:
        """Wait until no node coordinates the group."""
        self._until_placed(group, lambda now: now.leader == -1, f"nobody coordinates {group}")

    def _until_placed(self, group: str, fits: Callable[[PartitionMetadata], bool], what: str) -> None:
        def placed() -> bool:
            try:
                return fits(self._place(group)[1])
            except KafkaException:
                return False  # a node that is dead may be the only one that the client has asked

        until(placed, what, COORDINATOR_LIMIT_S)

    def _reassign(self, number: int, replicas: list[int], folder: Path) -> None:
        plan = folder / "reassign.json"
        wanted = {"topic": OFFSETS_TOPIC, "partition": number, "replicas": replicas}
        plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        self._run(
            "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
            *("--reassignment-json-file", str(plan), "--execute"),
        )

    def _elected(self, number: int, wanted: int) -> bool:
        # Not by the AdminClient, whose elect_leaders raises SystemError in confluent-kafka 2.16.
        self._run(
            "org.apache.kafka.tools.LeaderElectionCommand",
            *("--election-type", "preferred", "--topic", OFFSETS_TOPIC, "--partition", str(number)),
        )
        found = self.client().list_topics(OFFSETS_TOPIC, timeout=REQUEST_LIMIT_S)
        return bool(found.topics[OFFSETS_TOPIC].partitions[number].leader == wanted)

    def _run(self, tool: str, *arguments: str) -> None:
        argv = self.tool(tool, "--bootstrap-server", self.bootstrap_servers, *arguments)
        subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120)

    def _place(self, group: str) -> tuple[int, PartitionMetadata]:
        """Return the group's partition of the offsets topic; the leader of this partition is the group's coordinator."""
        partitions = self.client().list_topics(OFFSETS_TOPIC, timeout=REQUEST_LIMIT_S).topics[OFFSETS_TOPIC].partitions
        number = abs(java_hash(group)) % len(partitions)
        return number, partitions[number]

    def _put_behind_proxies(self) -> None:
        """Restart the nodes with the second listener, because only now is each node's own port known."""
        for node, port in zip(self.nodes, free_ports(len(self.nodes)), strict=True):
            node.kill()
            self.proxies[node.id] = Proxy(port)
            plain, controller = f"PLAINTEXT://{HOST}:{node.port}", f"CONTROLLER://{HOST}:{node._address.controller_port}"
            node.configure(
                {
                    **self._with,
                    "listeners": f"{plain},PROXIED://{HOST}:{port},{controller}",
                    "advertised.listeners": f"{plain},PROXIED://{HOST}:{self.proxies[node.id].port}",
                    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
                }
            )
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_until_answers({other.id for other in self.nodes})


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`, which selects the group's partition of the offsets topic."""
    value = 0
    for char in text:
        value = (31 * value + ord(char)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
