"""The development broker: real Apache Kafka in KRaft mode on 127.0.0.1, with one node or three.

with Cluster() as cluster:
    cluster.create_topic("orders", partitions=6)
    print(cluster.bootstrap_servers)
"""

from __future__ import annotations

from devtools.broker.cluster import Cluster
from devtools.broker.node import Node
from devtools.errors import BrokerStartError

__all__ = ["BrokerStartError", "Cluster", "Node"]
