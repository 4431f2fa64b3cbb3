"""Tokens and marks as brokers keep them."""

from __future__ import annotations

import threading
from contextlib import closing

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from devtools.broker import Cluster
from spark_groupsource.sink.token import Token, Written
from tests.conftest import MakeTopic
from tests.support.sink_queries import RUN, Query


@pytest.fixture
def query(cluster: Cluster, topic: MakeTopic) -> Query:
    return Query(cluster, topic(2))


@pytest.mark.parametrize("named", [True, False], ids=["the option topic", "the column topic"])
def test_the_token_of_a_transaction_that_is_about_to_end_is_waited_for(cluster: Cluster, topic: MakeTopic, named: bool) -> None:
    """It may be the first one on this topic: a broker that is asked for all offsets of the group does not know of it yet."""
    name = topic()
    query = Query(cluster, name if named else None)
    group = query.names.task(0)
    earlier = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": group})
    earlier.init_transactions(60)
    earlier.begin_transaction()
    token = Token(query.names.query, 0, Written(1, 7), RUN)
    outsider = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    position = KafkaTopicPartition(name, 0, token.offset, metadata=token.metadata())
    earlier.send_offsets_to_transaction([position], outsider.consumer_group_metadata(), 60)
    outsider.close()
    ends = threading.Timer(1, lambda: earlier.commit_transaction(60))
    ends.start()
    with closing(query.tokens) as tokens:
        assert tokens.read_task(0, [] if named else [name]) == token
    ends.join()


def test_a_driver_that_looks_at_many_tasks_finds_them_by_their_marks_and_keeps_no_connection(query: Query) -> None:
    """A task with a high number marks how far one has to look."""
    for task in (0, 3, 200):
        query.write(0, ["a"], task=task)
    with closing(query.tokens) as tokens:
        assert tokens.read_reach() == 256
        assert tokens.read_marks(range(250)).keys() == tokens.read_tasks((0, 1, 3, 200)).keys() == {0, 3, 200}
        assert tokens._clients == {}


def test_a_driver_without_rows_keeps_its_token_on_any_topic(cluster: Cluster, topic: MakeTopic) -> None:
    query = Query(cluster, None)
    for batch in range(2):
        query.finish(batch, 2, 0, empty=(0, 1))
    found = query.tokens.read_driver()
    assert found is not None
    assert (found.batch, found.tasks) == (1, 2)
    rows = pa.RecordBatch.from_pydict({"value": ["a"], "topic": [topic()]})
    assert query.write(2, rows).written == 1


def test_without_a_token_there_is_none(query: Query) -> None:
    with closing(query.tokens) as tokens:
        assert tokens.read_task(0) is None
        assert tokens.read_driver() is None
