"""A task reads from the replica in the rack that its process has in its environment (KIP-392)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from devtools.broker import Cluster
from spark_groupsource.brokers.client_pool import pool
from spark_groupsource.fetch.contract import FetchRange, Reader
from tests.conftest import NOT_FENCED
from tests.support.fetching import MakeSettings, offsets
from tests.support.producing import IN_ORDER

RACKS = ("zone-a", "zone-b", "zone-b")
RECORDS = 4_000
RECORD_BYTES = 5_000
TOPIC_BYTES = RECORDS * RECORD_BYTES
ALL = FetchRange("orders", 0, 0, RECORDS)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc says how many bytes a process has written")


@pytest.fixture(scope="module")
def in_two_racks() -> Iterator[Cluster]:
    """A topic with a replica in each rack. Kafka places replicas so."""
    with Cluster(nodes=3, racks=RACKS, config=NOT_FENCED) as running:
        running.create_topic("orders", replication=2)
        write(running, "orders", [bytes([number % 256]) * RECORD_BYTES for number in range(RECORDS)])
        yield running


def write(cluster: Cluster, topic: str, values: Sequence[bytes]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 0, **IN_ORDER})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def racks_of(cluster: Cluster, topic: str) -> tuple[str, str]:
    """Return the rack of the leader, and that of its follower."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    leader = admin.list_topics(topic, timeout=60).topics[topic].partitions[0].leader
    rack = RACKS[leader - 1]
    return rack, "zone-b" if rack == "zone-a" else "zone-a"


@pytest.fixture(autouse=True)
def new_process() -> None:
    """Every test has consumers of its own, which read the environment anew."""
    pool().close_kept()


def written(cluster: Cluster) -> Mapping[str, int]:
    """The bytes that the brokers of each rack have written, sockets included."""
    found = dict.fromkeys(RACKS, 0)
    for node, rack in zip(cluster.nodes, RACKS, strict=True):
        lines = Path(f"/proc/{node.pid}/io").read_text().splitlines()
        found[rack] += int(dict(line.split(": ") for line in lines)["wchar"])
    return found


def served(read: Reader, using: MakeSettings, cluster: Cluster) -> Mapping[str, float]:
    """Read everything, and return how often the brokers of each rack have written the bytes of the topic."""
    how = using({"bootstrap.servers": cluster.bootstrap_servers, "client.rack": "${env:ZONE}"})
    before = written(cluster)
    assert offsets(read, ALL, how) == list(range(RECORDS))
    after = written(cluster)
    return {rack: (after[rack] - before[rack]) / TOPIC_BYTES for rack in before}


def test_the_replica_in_the_rack_of_the_process_serves_the_records_and_the_leader_if_there_is_none(
    read: Reader, using: MakeSettings, in_two_racks: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = racks_of(in_two_racks, "orders")
    for zone, serves in ((follower, follower), (leader, leader), ("zone-z", leader)):
        monkeypatch.setenv("ZONE", zone)
        by = served(read, using, in_two_racks)
        assert by[serves] > 0.9
        assert min(by.values()) < 0.1
        pool().close_kept()


def test_what_was_just_written_is_read_from_the_follower_too(
    read: Reader, using: MakeSettings, in_two_racks: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower learns the new end a moment later than a producer and a plan do."""
    name = read.__module__.rpartition(".")[2]
    in_two_racks.create_topic(name, replication=2)
    monkeypatch.setenv("ZONE", racks_of(in_two_racks, name)[1])
    how = using({"bootstrap.servers": in_two_racks.bootstrap_servers, "client.rack": "${env:ZONE}"})
    for start in range(0, 60, 10):
        write(in_two_racks, name, [b"%d" % number for number in range(start, start + 10)])
        assert offsets(read, FetchRange(name, 0, start, start + 10), how) == list(range(start, start + 10))
