"""Makes the settings of a node. A user's own settings may override each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"


@dataclass(frozen=True)
class NodeAddress:
    """A node's id, its port on 127.0.0.1 for clients and other brokers, and its port for the controllers."""

    id: int
    port: int
    controller_port: int


def listeners(node: NodeAddress, more: Mapping[str, int]) -> dict[str, str]:
    """Return the settings of a node's listeners.

    Args:
        node: the node.
        more: the ports of the listeners in addition to PLAINTEXT, by security protocol.
    """
    controller = f"CONTROLLER://{HOST}:{node.controller_port}"
    for_clients = [f"{protocol}://{HOST}:{port}" for protocol, port in {"PLAINTEXT": node.port, **more}.items()]
    return {
        "listeners": ",".join([*for_clients, controller]),
        "advertised.listeners": ",".join(for_clients),
        "listener.security.protocol.map": ",".join(f"{protocol}:{protocol}" for protocol in ("PLAINTEXT", *more))
        + ",CONTROLLER:PLAINTEXT",
    }


def rack_of_node(rack: str) -> dict[str, str]:
    """Return the settings of a node in a rack that sends consumers to the replica in their own rack (KIP-392)."""
    return {"broker.rack": rack, "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


def server_properties(
    node: NodeAddress, all_nodes: Sequence[NodeAddress], log_folder: Path, extra: Mapping[str, str]
) -> dict[str, str]:
    """Return the broker settings of one node. `extra` overrides all others.

    The group protocols are the defaults of the version. On 3.9 that is classic only: its preview of KIP-848 has an early form of
    the protocol, which librdkafka does not support. The preview also has a different group coordinator from the one that users of
    3.9 run.
    """
    replicas = str(min(3, len(all_nodes)))
    in_sync = str(min(2, len(all_nodes)))
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "controller.quorum.voters": ",".join(f"{voter.id}@{HOST}:{voter.controller_port}" for voter in all_nodes),
        **listeners(node, {}),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(log_folder),
        "auto.create.topics.enable": "false",
        # Internal topics have a replica on each node, and few partitions, because each partition makes the start longer.
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "5",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "5",
        # A group's first member does not wait for others (default: 3 s).
        "group.initial.rebalance.delay.ms": "0",
        # Only lower bounds: members and settings may use short sessions.
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        # A killed node loses its leaderships after this time (default: 9 s).
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # The default, 128 MB, is a quarter of the heap. Here this is enough:
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    }
    properties.update(extra)
    return properties
