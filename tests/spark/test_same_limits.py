"""How much a micro-batch reads, and when, compared with Spark's own Kafka source."""

from __future__ import annotations

from collections import Counter
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from devtools.broker import Cluster
from tests.conftest import MakeTopic, Produce
from tests.support.pairs import MakePair, numbers, sizes
from tests.support.queries import needs_admission_control, setting


@needs_admission_control
def test_the_limit_is_shared_out_by_lag_and_survives_a_restart(pair: MakePair, topic: MakeTopic, produce: Produce) -> None:
    name = topic(partitions=3)
    for partition, count in enumerate((1, 10, 60)):
        produce(name, numbers(count), partition)
    both = pair(name, subscribe=name, maxOffsetsPerTrigger="10")
    theirs: dict[int, list[tuple[int, int]]] = {}
    ours: dict[int, list[tuple[int, int]]] = {}

    def start(**trigger: Any) -> None:
        for one, taken in ((both.theirs, theirs), (both.ours, ours)):

            def take(frame: DataFrame, batch: int, taken: dict[int, list[tuple[int, int]]] = taken) -> None:
                taken[batch] = sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())

            one.start(foreach_batch=take, **trigger)

    start(processingTime="100 milliseconds")
    both.until_reported(25)
    both.stop()
    start(availableNow=True)
    both.finish()
    # An expelled member, on a busy machine, has a micro-batch without rows.
    assert [rows for rows in ours.values() if rows] == list(theirs.values())
    assert sum(map(len, ours.values())) == 71
    assert Counter(partition for partition, _ in ours[0]) == {0: 1, 1: 1, 2: 8}


@needs_admission_control
def test_trigger_once_ignores_the_limit(pair: MakePair, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    produce(name, numbers(15))
    both = pair(name, subscribe=name, maxOffsetsPerTrigger="5", minOffsetsPerTrigger="5")
    both.run(once=True)
    assert both.sizes() == [15]


def test_a_micro_batch_waits_for_enough_offsets(pair: MakePair, topic: MakeTopic, produce: Produce) -> None:
    name = topic()
    produce(name, numbers(4))
    both = pair(name, subscribe=name, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    both.start()
    both.until_rows(4)
    for start in (4, 9, 14):
        produce(name, numbers(5, start))
    both.until_reported(14)
    for one in (both.theirs, both.ours):
        first, *later = sizes(one)
        assert first == 4
        assert min(later) >= 10
    both.stop()


def test_a_micro_batch_comes_when_the_delay_is_over(pair: MakePair, topic: MakeTopic, produce: Produce, cluster: Cluster) -> None:
    name = topic()
    produce(name, numbers(4))
    both = pair(name, subscribe=name, minOffsetsPerTrigger="1000", maxTriggerDelay="3s")
    both.start()
    both.until_rows(4)
    # In one request: the delay may be over between two. A flush does not linger.
    at_once = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 60_000})
    for _, value in numbers(5, 4):
        at_once.produce(name, value)
    assert at_once.flush(60) == 0
    both.until_reported(9)
    assert both.sizes() == [4, 5]
    both.stop()


def test_each_action_on_a_micro_batch_counts_its_rows_and_only_sparks_source_has_metrics(
    pair: MakePair, topic: MakeTopic, produce: Produce
) -> None:
    name = topic()
    produce(name, numbers(20))
    both = pair(name, subscribe=name)

    def count_twice(frame: DataFrame, _batch: int) -> None:
        assert [frame.count(), frame.count()] == [20, 20]

    for one in (both.theirs, both.ours):
        one.start(foreach_batch=count_twice, availableNow=True)
    both.finish()
    assert sizes(both.theirs) == sizes(both.ours) == [40]
    theirs, ours = ([each.sources[0].metrics for each in one.running.recentProgress] for one in (both.theirs, both.ours))
    assert any("maxOffsetsBehindLatest" in metrics for metrics in theirs)
    assert not any(ours)


def test_a_batch_of_no_records_is_refused_by_pyspark(
    spark: SparkSession, pair: MakePair, topic: MakeTopic, produce: Produce
) -> None:
    name = topic()
    produce(name, numbers(2))
    both = pair(name, subscribe=name)
    with setting(spark, "spark.sql.execution.arrow.maxRecordsPerBatch", "0"):
        assert "maximum arrow batch size should be greater than 0" in both.ours.start(availableNow=True).failure()
        both.theirs.start(availableNow=True).finish()
