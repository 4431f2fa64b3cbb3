"""What happens to topics behind a query's back."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from devtools.broker import Cluster
from spark_groupsource.errors import DataLossError
from spark_groupsource.handoff.commit_record import CommitRecord
from spark_groupsource.query import loss_watch
from tests.kafka.conftest import Query
from tests.support.consumers import commit_as_another_client
from tests.support.fetching import delete_before, delete_topic
from tests.support.waiting import until

GOES_ON = {"failOnDataLoss": "false"}

QUICK = {"kafka.topic.metadata.refresh.interval.ms": "500"}

EITHER = pytest.mark.parametrize("fail", [True, False])


class Brokers:
    def __init__(self, cluster: Cluster, admin: AdminClient) -> None:
        self._cluster = cluster
        self._admin = admin

    def expire(self, topic: str, offset: int, partition: int = 0) -> None:
        """Delete the records below the offset."""
        delete_before(self._admin, topic, offset, partition)

    def delete(self, topic: str) -> None:
        delete_topic(self._admin, topic)

    def recreate(self, topic: str, records: int, partitions: int = 1) -> None:
        """Delete the topic and create it again, with so many records in each partition."""
        self.delete(topic)
        self._cluster.create_topic(topic, partitions)
        for partition in range(partitions):
            self.append(topic, records, partition)

    def append(self, topic: str, records: int, partition: int = 0) -> None:
        """Records of a producer that has not known the topic before: one that did would go on with the old one for a while."""
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap_servers})
        for _ in range(records):
            producer.produce(topic, b"new", partition=partition)
        assert producer.flush(60) == 0

    def restore_commit(self, topic: str, record: CommitRecord) -> None:
        """As if the coordinator had not yet forgotten the group's commit of a deleted topic."""
        commit_as_another_client(self._cluster, f"group-of-{topic}", topic, record.offset, record.metadata())


@pytest.fixture
def brokers(cluster: Cluster, admin: AdminClient) -> Brokers:
    return Brokers(cluster, admin)


@pytest.fixture(autouse=True)
def each_plan_asks_where_logs_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_watch, "ASK_FOR_STARTS_EVERY_S", 0.0)


def ended(one: Query) -> str:
    """Plan until the query ends; the text of its error."""
    with pytest.raises(DataLossError) as ended_with:
        until(lambda: one.plan() and False, "the query ends")
    return str(ended_with.value)
