"""`groupkafka check`: open transactions hold records back."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Producer

from devtools.broker import Cluster
from tests.conftest import MakeTopic
from tests.kafka.check.conftest import Check, query


def test_an_open_transaction_that_holds_records_back_is_a_warning(
    topic: MakeTopic, cluster: Cluster, check: Check, plain: Mapping[str, str]
) -> None:
    name = topic()
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name, "transaction.timeout.ms": 600_000}
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"x", partition=0)
    assert producer.flush(30) == 0
    checked = check(query(name, plain, kafka_isolation_level="read_committed"))
    producer.abort_transaction(30)
    assert checked.exit_code == 0, checked.output
    assert checked.level("isolation") == "warning", checked.output
    assert f"block 1 offsets, in {name}-0" in checked.of("isolation")[0][2]
    closed = check(query(name, plain, kafka_isolation_level="read_committed"))
    assert closed.level("isolation") == "ok"
    assert "has found no record in" in closed.of("fetch")[0][2]
