"""`kafka.metadata.max.age.ms` as in Java: with 0 the brokers are asked all the time."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # its stubs miss it

from devtools.broker import Cluster
from tests.conftest import MakeTopic
from tests.support.streams import member_stream


def test_a_new_partition_is_noticed_at_once_with_a_metadata_age_of_zero(
    cluster: Cluster, topic: MakeTopic, admin: AdminClient
) -> None:
    """librdkafka would never ask again. This source's own default is 10 s."""
    name = topic()
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.group.id": name,
        "subscribe": name,
        "kafka.metadata.max.age.ms": "0",
    }
    with member_stream("alice", options) as stream:
        stream.until_owning(1)
        admin.create_partitions([NewPartitions(name, 2)])[name].result(30)
        stream.until_owning(2)
