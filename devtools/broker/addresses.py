"""Chooses a cluster's identity, its id and its nodes' ports. A named data folder keeps both in `cluster.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from devtools.broker.config import HOST, NodeAddress
from devtools.broker.ports import free_ports, is_free
from devtools.broker.storage import new_id
from devtools.errors import BrokerStartError

_FILE = "cluster.json"


@dataclass(frozen=True)
class Identity:
    """The cluster id, and the addresses of all nodes, sorted by node id."""

    cluster_id: str
    nodes: tuple[NodeAddress, ...]

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for clients, separated by commas."""
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes)


def choose_identity(count: int, port: int | None, earlier: Identity | None) -> Identity:
    """Return the identity for the next start: the earlier one, with new ports if the earlier ones are in use.

    Args:
        count: the number of nodes.
        port: the client port of a single node; `None` for any.
        earlier: the identity that the data folder keeps; `None` for a new cluster.

    Raises:
        BrokerStartError: The requested port is in use, or the earlier cluster had another number of nodes.
    """
    cluster_id = earlier.cluster_id if earlier is not None else new_id()
    if earlier is not None and len(earlier.nodes) != count:
        raise BrokerStartError(f"The data folder holds a cluster of size {len(earlier.nodes)}, not {count}.")
    if port is not None and not is_free(port):
        raise BrokerStartError(f"Port {port} of {HOST} is in use.")
    if earlier is not None and port in (None, earlier.nodes[0].port) and all(map(_is_free, earlier.nodes)):
        return earlier
    ports = free_ports(2 * count, chosen_before=() if port is None else (port,))
    if port is not None:
        ports[0] = port
    nodes = tuple(NodeAddress(index + 1, ports[2 * index], ports[2 * index + 1]) for index in range(count))
    return Identity(cluster_id, nodes)


def read_identity(folder: Path) -> Identity | None:
    """Return the identity that the folder keeps; `None` for a folder without a cluster.

    Raises:
        BrokerStartError: The file with the identity is damaged.
    """
    file = folder / _FILE
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        value = json.loads(text)
        nodes = tuple(NodeAddress(index + 1, int(pair[0]), int(pair[1])) for index, pair in enumerate(value["ports"]))
        return Identity(str(value["cluster_id"]), nodes)
    except (ValueError, LookupError, TypeError) as error:
        raise BrokerStartError(f"{file} is not a description of a cluster: {error!r}") from error


def write_identity(folder: Path, identity: Identity) -> None:
    """Keep the identity in the folder."""
    value = {"cluster_id": identity.cluster_id, "ports": [[node.port, node.controller_port] for node in identity.nodes]}
    partial = folder / f"{_FILE}.partial"
    partial.write_text(json.dumps(value), encoding="utf-8")
    partial.rename(folder / _FILE)


def _is_free(node: NodeAddress) -> bool:
    return is_free(node.port) and is_free(node.controller_port)
