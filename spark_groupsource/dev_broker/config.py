"""The settings of a node, and what a user's own settings may change: all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"


@dataclass(frozen=True)
class NodeAddress:
    """A node's id and its ports on 127.0.0.1: for clients and other brokers, and for the controllers."""

    id: int
    port: int
    controller_port: int


def listeners(node: NodeAddress, more: Mapping[str, int]) -> dict[str, str]:
    """Return the settings of a node's listeners; `more` has the ports of those beside PLAINTEXT, by security protocol."""
    controller = f"CONTROLLER://{HOST}:{node.controller_port}"
    for_clients = [f"{protocol}://{HOST}:{port}" for protocol, port in {"PLAINTEXT": node.port, **more}.items()]
    return {
        "listeners": ",".join([*for_clients, controller]),
        "advertised.listeners": ",".join(for_clients),
        "listener.security.protocol.map": ",".join(f"{protocol}:{protocol}" for protocol in ("PLAINTEXT", *more))
        + ",CONTROLLER:PLAINTEXT",
    }


def server_properties(
    node: NodeAddress, all_nodes: Sequence[NodeAddress], log_folder: Path, extra: Mapping[str, str]
) -> dict[str, str]:
    """Return the broker settings of one node; `extra` comes last and overrides any of them.

    The group protocols are the version's own defaults: classic only on 3.9, whose preview of KIP-848 speaks a first form
    of the protocol that librdkafka does not know, and which comes with another coordinator than users of 3.9 run.
    """
    replicas = str(min(3, len(all_nodes)))
    in_sync = str(min(2, len(all_nodes)))
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "controller.quorum.voters": ",".join(f"{one.id}@{HOST}:{one.controller_port}" for one in all_nodes),
        **listeners(node, {}),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(log_folder),
        "auto.create.topics.enable": "false",
        # Internal topics: as many replicas as there are nodes, and few partitions, each of which costs a start time.
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "5",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "5",
        # A group's first member need not wait for others (3 s otherwise).
        "group.initial.rebalance.delay.ms": "0",
        # Lower bounds only: members that ask for short sessions, or settings that do, are accepted.
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        # A node that was killed loses its leaderships after this time (9 s otherwise).
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # Of 128 MB, a quarter of the heap, nothing here needs more than:
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    }
    properties.update(extra)
    return properties
