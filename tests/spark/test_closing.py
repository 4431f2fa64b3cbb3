"""What Spark has finished is closed in the group at once: between triggers, at a stop, and when others join."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from devtools.broker import Cluster
from spark_groupsource import register
from spark_groupsource.spark.durable_listener import DurableListener
from tests.conftest import MakeTopic, Produce
from tests.support.consumers import records_for_a_plain_consumer
from tests.support.group_offsets import total_lag
from tests.support.queries import Pipeline, Queries
from tests.support.sinks import written
from tests.support.streams import member_stream
from tests.support.waiting import until

Started = Callable[..., Pipeline]

LONG = "5 minutes"
"""A trigger that no test waits for."""

PROTOCOLS = {"listener": "classic", "checkpoint": "consumer"}
"""The ways in which the runner learns that a micro-batch is finished, each with a protocol. Neither knows of the other."""


@pytest.fixture(params=PROTOCOLS)
def way(request: pytest.FixtureRequest, spark: SparkSession) -> str:
    """A way; the other one is not there."""
    chosen: str = request.param
    if chosen == "listener":
        spark.streams.addListener(DurableListener())  # as `register` does
    return chosen


@pytest.fixture
def protocol(way: str) -> str:
    return PROTOCOLS[way]


@pytest.fixture
def waiting(queries: Queries, way: str, protocol: str, tmp_path: Path) -> Started:
    """Starts a query whose only micro-batch is followed by a trigger that does not come."""

    def start(name: str, topic: str) -> Pipeline:
        given = {"checkpointLocation": f"file:{tmp_path / name / 'checkpoint'}"} if way == "checkpoint" else {}
        return queries(name, topic, **{"kafka.group.protocol": protocol, **given}).start(processingTime=LONG)

    return start


def is_finished(pipeline: Pipeline) -> bool:
    """Return whether Spark has the micro-batch in its commit log."""
    pipeline.raise_if_ended()
    return (pipeline.folder / "checkpoint" / "commits" / "0").exists()


def read_again(cluster: Cluster, group: str, topic: str, protocol: str) -> int:
    """Return how many records a plain consumer reads that joins the group, until it stands at the end of each partition."""
    return records_for_a_plain_consumer(cluster.bootstrap_servers, group, topic, 4, protocol)


def produced(topic: MakeTopic, produce: Produce) -> str:
    name = topic(partitions=4)
    for partition in range(4):
        produce(name, [(None, b"x")] * 150, partition)
    return name


def test_registering_is_enough_and_adds_one_listener_to_a_session(
    spark: SparkSession, topic: MakeTopic, produce: Produce, cluster: Cluster, tmp_path: Path
) -> None:
    name = produced(topic, produce)
    session = spark.newSession()
    listeners = session._jsparkSession.streams().listListeners
    assert len(listeners()) == 0
    for _ in range(2):
        register(session)
    assert len(listeners()) == 1
    a = Queries(session, tmp_path, cluster.bootstrap_servers)("a", name)

    def registers_again(batch: DataFrame, _: int) -> None:
        register(batch.sparkSession)

    a.start(foreach_batch=registers_again, processingTime=LONG)
    until(lambda: total_lag(cluster, f"group-of-{name}", name) == 0, "no lag")
    a.stop()
    assert len(listeners()) == 1


def test_the_checkpoint_of_another_query_ends_the_query_before_it_claims_anything(
    queries: Queries, topic: MakeTopic, produce: Produce, cluster: Cluster, tmp_path: Path
) -> None:
    name = produced(topic, produce)
    other = queries("other", name, **{"kafka.group.id": f"another-group-of-{name}"})
    other.run()
    a = queries("a", name, checkpointLocation=str(other.folder / "checkpoint"))
    message = a.start(processingTime=LONG).failure()
    assert "CheckpointOfAnotherStream" in message
    assert str(other.folder / "checkpoint") in message
    assert read_again(cluster, f"group-of-{name}", name, "classic") == 600


def test_a_finished_micro_batch_is_no_lag_long_before_the_next_trigger_and_a_stop_leaves_no_claim(
    waiting: Started, topic: MakeTopic, produce: Produce, cluster: Cluster, protocol: str
) -> None:
    """Meanwhile a newcomer gets its share at once and without claims."""
    name = produced(topic, produce)
    group = f"group-of-{name}"
    a = waiting("a", name)
    until(lambda: is_finished(a), "the micro-batch is in the commit log")
    took = until(lambda: total_lag(cluster, group, name) == 0, "no lag")
    print(f"lag 0 {took:.1f} s after the commit log, with a trigger of {LONG} ({protocol})")
    with member_stream("b", {**a.options, "handoff.drainTimeout": "30s"}) as b:
        took = b.until_owning(2)
        print(f"2 partitions {took:.1f} s after the newcomer had joined, beside a trigger of {LONG}")
        assert not any(record.owed for record in b.ledger.confirmed_records().values())
    a.stop()
    assert read_again(cluster, group, name, protocol) == 0
    assert len(written(a.folder / "out")) == 600


def test_a_query_that_is_stopped_as_soon_as_its_micro_batch_is_finished_leaves_nothing_claimed(
    waiting: Started, topic: MakeTopic, produce: Produce, cluster: Cluster, way: str, protocol: str
) -> None:
    name = produced(topic, produce)
    a = waiting("a", name)
    until(lambda: is_finished(a), "the micro-batch is in the commit log")
    if way == "listener":  # it hears of the progress, which a busy Spark makes later
        until(lambda: any(one.numInputRows for one in a.running.recentProgress), "the progress of the micro-batch")
    a.stop()
    assert read_again(cluster, f"group-of-{name}", name, protocol) == 0
